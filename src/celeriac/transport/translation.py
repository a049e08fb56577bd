"""Errors of the libraries that speak to brokers, as errors of our own. Loads none of these libraries."""

import re
from typing import Final

from celeriac.errors import AccessRefused, ConnectionLost

__all__ = ["error_text", "translated"]

#: What a broker says to who may not, or asked for what cannot be: to try again is no use.
_REFUSALS: Final = frozenset(
    {
        "AccessRefused",
        "AuthenticationError",
        "NoPermissionError",
        "NotAllowed",
        "PreconditionFailed",
    }
)
#: What RabbitMQ says when a delivery is settled too late, as if it refused us: it gives out all again.
_ABOUT_DELIVERIES: Final = re.compile(
    r"PRECONDITION_FAILED - (unknown delivery tag|delivery acknowledgement)"
)


def translated(error: Exception, address: str, peer: str = "broker") -> ConnectionLost | AccessRefused:
    """Return what a broker's library raised as an error of our own."""
    names = {kind.__name__ for kind in type(error).__mro__}
    text = error_text(error)
    if _ABOUT_DELIVERIES.search(text):
        return ConnectionLost(
            f"lost the {peer} at {address}: {text}; if tasks are acknowledged late, raise consumer_timeout "
            "of RabbitMQ"
        )
    if names & _REFUSALS:
        return AccessRefused(f"access refused by the {peer} at {address}: {text}")
    return ConnectionLost(f"lost the {peer} at {address}: {text}")


def error_text(error: Exception) -> str:
    """Return what an error says, or at least its name."""
    return str(error) or type(error).__name__
