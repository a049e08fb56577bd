"""Every error Celeriac raises, sorted by who can fix it.

What a peer sends is never answered with an exception: it is counted where it
enters (:class:`celeriac.wire.event.Gate`) and harms nothing.
"""

__all__ = ["CallerError", "CeleriacError", "PeerError"]


class CeleriacError(Exception):
    """The root of the tree."""


class CallerError(CeleriacError, ValueError):
    """The code that called us can fix this; the message says how."""


class PeerError(CeleriacError):
    """A peer sent what cannot be taken; the message is the reason it is counted under.

    Raised and caught inside ``wire``: it never reaches a caller.
    """
