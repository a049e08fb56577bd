"""Celeriac: events in order, one leader, results that arrive, and a history you can query."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from celeriac.errors import (
    AccessRefused,
    CallerError,
    CeleriacError,
    ConnectionLost,
    DiskError,
    Ignore,
    ImproperlyConfigured,
    MaxRetriesExceeded,
    NetworkError,
    NotRegistered,
    Reject,
    RemoteError,
    ResultTimeout,
    ResultUnreadable,
    Retry,
    SoftTimeLimitExceeded,
    TaskRevoked,
    TimeLimitExceeded,
    WorkerLost,
)

if TYPE_CHECKING:
    from celeriac import events, history, states
    from celeriac.app import Celeriac
    from celeriac.config import Limits, Settings
    from celeriac.core.clock import LamportClock
    from celeriac.core.revoked import RevokedSet
    from celeriac.core.task import Task
    from celeriac.core.worker import Worker
    from celeriac.model.result import ResultMeta
    from celeriac.node.async_receiver import AsyncEventReceiver
    from celeriac.node.camera import Polaroid, evcam
    from celeriac.node.clock import SharedClock
    from celeriac.node.consumer import BaseResultConsumer
    from celeriac.node.control import Control
    from celeriac.node.crontab import crontab
    from celeriac.node.dispatcher import EventDispatcher
    from celeriac.node.drainer import Drainer, register_drainer
    from celeriac.node.history import History
    from celeriac.node.inspect import Inspect, Replies
    from celeriac.node.leadership import Leadership
    from celeriac.node.mailbox import Mailbox
    from celeriac.node.receiver import EventReceiver
    from celeriac.node.recorder import Recorder
    from celeriac.node.replay import Replay
    from celeriac.node.result import AsyncResult
    from celeriac.node.result_set import ResultSet
    from celeriac.node.signature import Signature
    from celeriac.node.state import State
    from celeriac.node.waiting import AsyncBackendMixin
    from celeriac.transport.memory import MemoryBroker
    from celeriac.wire.event import Gate, decode, encode
    from celeriac.worker.mandate import Mandate

__all__ = [
    "AccessRefused",
    "AsyncBackendMixin",
    "AsyncEventReceiver",
    "AsyncResult",
    "BaseResultConsumer",
    "CallerError",
    "Celeriac",
    "CeleriacError",
    "ConnectionLost",
    "Control",
    "DiskError",
    "Drainer",
    "EventDispatcher",
    "EventReceiver",
    "Gate",
    "History",
    "Ignore",
    "ImproperlyConfigured",
    "Inspect",
    "LamportClock",
    "Leadership",
    "Limits",
    "Mailbox",
    "Mandate",
    "MaxRetriesExceeded",
    "MemoryBroker",
    "NetworkError",
    "NotRegistered",
    "Polaroid",
    "Recorder",
    "Reject",
    "RemoteError",
    "Replay",
    "Replies",
    "ResultMeta",
    "ResultSet",
    "ResultTimeout",
    "ResultUnreadable",
    "Retry",
    "RevokedSet",
    "Settings",
    "SharedClock",
    "Signature",
    "SoftTimeLimitExceeded",
    "State",
    "Task",
    "TaskRevoked",
    "TimeLimitExceeded",
    "Worker",
    "WorkerLost",
    "crontab",
    "decode",
    "encode",
    "evcam",
    "events",
    "history",
    "register_drainer",
    "states",
]
__version__ = "0.1.0"

#: Where each name is. It is loaded when it is first asked for: who asks the tables a question needs no
#: broker, and half of the time would go into loading the ways to all of them.
_HOMES: Final = {
    "history": "celeriac.history",
    "Celeriac": "celeriac.app:Celeriac",
    "Limits": "celeriac.config:Limits",
    "Settings": "celeriac.config:Settings",
    "LamportClock": "celeriac.core.clock:LamportClock",
    "RevokedSet": "celeriac.core.revoked:RevokedSet",
    "Task": "celeriac.core.task:Task",
    "Worker": "celeriac.core.worker:Worker",
    "events": "celeriac.events",
    "states": "celeriac.states",
    "ResultMeta": "celeriac.model.result:ResultMeta",
    "AsyncEventReceiver": "celeriac.node.async_receiver:AsyncEventReceiver",
    "Polaroid": "celeriac.node.camera:Polaroid",
    "evcam": "celeriac.node.camera:evcam",
    "SharedClock": "celeriac.node.clock:SharedClock",
    "BaseResultConsumer": "celeriac.node.consumer:BaseResultConsumer",
    "Control": "celeriac.node.control:Control",
    "crontab": "celeriac.node.crontab:crontab",
    "EventDispatcher": "celeriac.node.dispatcher:EventDispatcher",
    "Drainer": "celeriac.node.drainer:Drainer",
    "register_drainer": "celeriac.node.drainer:register_drainer",
    "History": "celeriac.node.history:History",
    "Inspect": "celeriac.node.inspect:Inspect",
    "Replies": "celeriac.node.inspect:Replies",
    "Leadership": "celeriac.node.leadership:Leadership",
    "Mailbox": "celeriac.node.mailbox:Mailbox",
    "EventReceiver": "celeriac.node.receiver:EventReceiver",
    "Recorder": "celeriac.node.recorder:Recorder",
    "Replay": "celeriac.node.replay:Replay",
    "AsyncResult": "celeriac.node.result:AsyncResult",
    "ResultSet": "celeriac.node.result_set:ResultSet",
    "Signature": "celeriac.node.signature:Signature",
    "State": "celeriac.node.state:State",
    "AsyncBackendMixin": "celeriac.node.waiting:AsyncBackendMixin",
    "MemoryBroker": "celeriac.transport.memory:MemoryBroker",
    "Gate": "celeriac.wire.event:Gate",
    "decode": "celeriac.wire.event:decode",
    "encode": "celeriac.wire.event:encode",
    "Mandate": "celeriac.worker.mandate:Mandate",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, _, attribute = _HOMES[name].partition(":")
    module = import_module(home)
    found = globals()[name] = getattr(module, attribute) if attribute else module
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
