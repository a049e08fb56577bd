"""Celeriac: events in order, one leader, results that arrive, and a history you can query."""

from celeriac import history
from celeriac.app import Celeriac
from celeriac.config import Limits, Settings
from celeriac.core.clock import LamportClock
from celeriac.core.revoked import RevokedSet
from celeriac.core.task import Task
from celeriac.core.worker import Worker
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
from celeriac.model import events, states
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
