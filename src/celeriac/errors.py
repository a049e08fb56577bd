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
