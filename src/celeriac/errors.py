"""Every error Celeriac raises, sorted by who can fix it.

What a peer sends is never answered with an exception: it is counted where it
enters (:class:`celeriac.wire.event.Gate`) and harms nothing.
"""

__all__ = [
    "AccessRefused",
    "CallerError",
    "CeleriacError",
    "ConnectionLost",
    "DiskError",
    "Ignore",
    "ImproperlyConfigured",
    "MaxRetriesExceeded",
    "NetworkError",
    "NotRegistered",
    "PeerError",
    "Reject",
    "RemoteError",
    "ResultTimeout",
    "ResultUnreadable",
    "Retry",
    "SoftTimeLimitExceeded",
    "TaskRevoked",
    "TimeLimitExceeded",
    "WorkerLost",
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
    """A setting is unknown or has an invalid value; the message names the setting and the fix."""


class NetworkError(CeleriacError, ConnectionError):
    """The broker, or the way to it, is at fault."""


class ConnectionLost(NetworkError):
    """The connection was lost or could not be established. Retry with a new connection."""


class AccessRefused(NetworkError):
    """The broker refused the login or the operation. Retrying does not help; the operator can fix it."""


class DiskError(CeleriacError, OSError):
    """A file cannot be read or written; the message has the path and the system error."""


class ResultTimeout(CeleriacError, TimeoutError):
    """The timeout of a wait has passed. The task may still end; wait again."""


class ResultUnreadable(CeleriacError):
    """A stored result cannot be read; the message says why, and how to fix it."""


class RemoteError(CeleriacError):
    """A task failed in its worker. The error is text: names of classes from peers are never imported.

    ``task_id``, ``exc_type``, ``exc_module`` and ``exc_args`` are as stored by the worker, and
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


# -- how a task ended, where it was not by returning or by an error of its own


class Retry(CeleriacError):
    """Raised by ``task.retry()``: the task will be run again. ``exc`` is why, ``when`` says how soon."""

    def __init__(
        self, message: str = "", exc: BaseException | None = None, when: float | None = None
    ) -> None:
        super().__init__(message)
        self.exc = exc
        #: Seconds from now.
        self.when = when
        #: The message of the next try, a :class:`~celeriac.model.task_request.Posting`, for the worker to
        #: publish; None outside of one.
        self.posting: object = None


class Ignore(CeleriacError):
    """Raise it in a task to end it without a result."""


class Reject(CeleriacError):
    """Raise it in a task with late acknowledgement to have its message dropped, or put back."""

    def __init__(self, reason: object = None, requeue: bool = False) -> None:
        super().__init__(reason, requeue)
        self.reason = reason
        self.requeue = requeue


class MaxRetriesExceeded(CeleriacError):
    """A task was to be retried more often than its ``max_retries``."""


class SoftTimeLimitExceeded(CeleriacError):
    """Raised within a task that took longer than its ``soft_time_limit``; it may catch it, and tidy up."""


class TimeLimitExceeded(CeleriacError):
    """A task took longer than its ``time_limit``, and was ended."""


class WorkerLost(CeleriacError):
    """The process that ran a task died."""


class NotRegistered(CeleriacError, KeyError):
    """No task has this name here: import the module that defines it, or correct the name."""
