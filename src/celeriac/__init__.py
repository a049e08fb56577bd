"""Celeriac: events in order, one leader, results that arrive, and a history you can query."""

from celeriac.config import Limits
from celeriac.core.clock import LamportClock
from celeriac.core.revoked import RevokedSet
from celeriac.core.task import Task
from celeriac.core.worker import Worker
from celeriac.errors import CallerError, CeleriacError
from celeriac.model import events, states
from celeriac.node.clock import SharedClock
from celeriac.node.state import State
from celeriac.wire.event import Gate, decode, encode

__all__ = [
    "CallerError",
    "CeleriacError",
    "Gate",
    "LamportClock",
    "Limits",
    "RevokedSet",
    "SharedClock",
    "State",
    "Task",
    "Worker",
    "decode",
    "encode",
    "events",
    "states",
]
__version__ = "0.1.0"
