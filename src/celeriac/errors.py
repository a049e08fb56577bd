"""Every error Celeriac raises, sorted by who can fix it.

What a peer sends is never answered with an exception: it is counted where it
enters (:class:`celeriac.wire.event.Gate`) and harms nothing.
"""

__all__ = [
    "AccessRefused",
    "CallerError",
    "CeleriacError",
    "ConnectionLost",
    "ImproperlyConfigured",
    "NetworkError",
    "PeerError",
    "RemoteError",
    "ResultTimeout",
    "ResultUnreadable",
    "TaskRevoked",
]


class CeleriacError(Exception):
    """The root of the tree."""


class CallerError(CeleriacError, ValueError):
    """The code that called us can fix this; the message says how."""


class PeerError(CeleriacError):
    """A peer sent what cannot be taken; the message is the reason it is counted under.

    Raised and caught inside ``wire``: it never reaches a caller.
    """


class ImproperlyConfigured(CeleriacError):
    """A setting is unknown, or holds what it cannot; the message names the setting and the fix."""


class NetworkError(CeleriacError, ConnectionError):
    """The broker, or the way to it, is at fault."""


class ConnectionLost(NetworkError):
    """The link broke or could not be made. To try again, with a fresh link, is right."""


class AccessRefused(NetworkError):
    """The broker refused who we are or what we asked for. To try again is no use; the operator can fix it."""


class ResultTimeout(CeleriacError, TimeoutError):
    """The time that somebody gave a result has passed. The task may still end; to wait again is fine."""


class ResultUnreadable(CeleriacError):
    """There is a result, but it cannot be read; the message says why, and which side can mend it."""


class RemoteError(CeleriacError):
    """A task failed where it ran. It is told as text: no class is looked up by a name that a peer sent.

    ``task_id``, ``exc_type``, ``exc_module`` and ``exc_args`` are what the worker stored, and
    ``traceback`` is its text, or None.
    """

    def __init__(
        self,
        text: str,
        *,
        task_id: str,
        exc_type: str = "",
        exc_module: str | None = None,
        exc_args: tuple[object, ...] = (),
        traceback: str | None = None,
    ) -> None:
        super().__init__(text)
        self.task_id = task_id
        self.exc_type = exc_type
        self.exc_module = exc_module
        self.exc_args = exc_args
        self.traceback = traceback


class TaskRevoked(RemoteError):
    """The task was revoked: it will not run, or was ended."""
