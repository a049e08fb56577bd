"""Events as typed records, one class for each type Celery's workers and clients send.

Records are frozen and hold what was sent, after the door has made it safe
(:mod:`celeriac.wire.event`): a clock or time that could not be read is 0, text is
valid UTF-8 of bounded length, and fields we do not know are in ``extra``.
"""

from typing import Annotated, ClassVar, Final

from msgspec import Meta, Struct

from celeriac.model.clock import MAX_CLOCK, NO_CLOCK

__all__ = [
    "EVENT_CLASSES",
    "MAX_ID_CHARS",
    "MAX_TIMESTAMP",
    "TASK_EVENTS",
    "AnyTaskEvent",
    "AnyWorkerEvent",
    "Custom",
    "Event",
    "Extra",
    "Failed",
    "Gap",
    "Other",
    "Received",
    "Rejected",
    "Retried",
    "Revoked",
    "Sent",
    "Started",
    "Succeeded",
    "TaskEvent",
    "WorkerEvent",
    "WorkerHeartbeat",
    "WorkerOffline",
    "WorkerOnline",
]

#: The year 2100: beyond it a timestamp is a mistake or an attack.
MAX_TIMESTAMP: Final = 4_102_444_800.0

#: Task ids, node names and event types. A uuid has 36 characters, a host name at most 253.
MAX_ID_CHARS: Final = 256

Clock = Annotated[int, Meta(ge=0, le=MAX_CLOCK)]
Count = Annotated[int, Meta(ge=0, le=MAX_CLOCK)]
Integer = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
#: Seconds since the epoch by the sender's wall clock; 0 when it could not be read.
Timestamp = Annotated[float, Meta(ge=0, lt=MAX_TIMESTAMP)]
Name = Annotated[str, Meta(min_length=1, max_length=MAX_ID_CHARS)]
Runtime = Annotated[float, Meta(ge=0, le=1e12)]
#: Seconds between heartbeats. A day at most: a larger value would keep a dead worker alive.
Frequency = Annotated[float, Meta(gt=0, le=86_400)]
UtcOffset = Annotated[float, Meta(ge=-48, le=48)]
Load = Annotated[float, Meta(ge=0, le=1e12)]


#: Fields of records that are not fields of the wire.
_OURS: Final = frozenset({"extra", "group", "local_clock", "subject"})


class Extra(dict[str, object]):
    """The fields of an event that its record has no place for, bounded and opaque.

    A type of its own, so that a peer's field named ``extra`` cannot pass for it.
    """


class Event(Struct, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """What every event carries."""

    group: ClassVar[str] = ""
    #: The type after its group: ``started`` of ``task-started``.
    subject: ClassVar[str] = ""

    timestamp: Timestamp
    #: The sender's Lamport clock; 0 when absent or invalid.
    clock: Clock
    hostname: Name
    pid: Count = 0
    #: Hours west of UTC at the sender. Shown, never used to shift ``timestamp``.
    utcoffset: UtcOffset = 0
    #: When the receiver got it, if it is a receiver that wrote it in. A million tasks do without.
    local_received: Timestamp | None = None
    #: The receiver's Lamport clock at receipt, of an event without a clock of its own; else None.
    local_clock: Clock | None = None
    extra: Extra | None = None

    @property
    def type(self) -> str:
        """The type as on the wire: ``task-started``."""
        return f"{self.group}-{self.subject}" if self.subject else self.group

    @property
    def display_clock(self) -> int:
        """The sender's clock; without one, the receiver's clock at receipt; 0 without both."""
        return self.clock or self.local_clock or NO_CLOCK

    # Programs written for Celery's receiver take events for dicts: to read one like that works too.

    def __getitem__(self, name: str) -> object:
        if name == "type":
            return self.type
        if name == "clock":  # Celery: its receiver stamps events that have none.
            return self.display_clock
        if self.extra is not None and name in self.extra:
            return self.extra[name]
        value = getattr(self, name, None) if name in self.__struct_fields__ else None
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def get(self, name: str, default: object = None) -> object:
        """Return a field by its name on the wire; ``default`` where the event does not say."""
        try:
            return self[name]
        except KeyError:
            return default

    def keys(self) -> list[str]:
        """Return the names of the fields that the event says: ``dict(event)`` has them all."""
        said = [
            name for name in self.__struct_fields__ if name not in _OURS and getattr(self, name) is not None
        ]
        return [*said, "type", *(self.extra or ())]


class TaskEvent(Event, frozen=True, kw_only=True, gc=False):
    """Something happened to the task ``uuid``."""

    group: ClassVar[str] = "task"

    uuid: Name


class Described(TaskEvent, frozen=True, kw_only=True, gc=False):
    """An event that says what the task is, not only what happened to it."""

    name: str | None = None
    args: str | None = None
    kwargs: str | None = None
    root_id: Name | None = None
    parent_id: Name | None = None
    retries: Count = 0
    eta: str | None = None
    expires: str | None = None


class Sent(Described, frozen=True, kw_only=True, gc=False, tag="task-sent"):
    """A client published the task."""

    subject: ClassVar[str] = "sent"

    queue: str | None = None
    exchange: str | None = None
    routing_key: str | None = None
    #: The clock the client stamped. Clients never synchronise, so a receiver
    #: puts its own value into ``clock`` and keeps the client's here.
    client_clock: Clock | None = None


class Received(Described, frozen=True, kw_only=True, gc=False, tag="task-received"):
    """A worker took delivery of the task."""

    subject: ClassVar[str] = "received"


class Started(TaskEvent, frozen=True, kw_only=True, gc=False, tag="task-started"):
    """A worker began to run the task."""

    subject: ClassVar[str] = "started"


class Succeeded(TaskEvent, frozen=True, kw_only=True, gc=False, tag="task-succeeded"):
    """The task returned."""

    subject: ClassVar[str] = "succeeded"

    result: str | None = None
    runtime: Runtime | None = None


class Raised(TaskEvent, frozen=True, kw_only=True, gc=False):
    """The task raised."""

    exception: str | None = None
    traceback: str | None = None


class Failed(Raised, frozen=True, kw_only=True, gc=False, tag="task-failed"):
    """The task raised, and that is the end of it."""

    subject: ClassVar[str] = "failed"


class Retried(Raised, frozen=True, kw_only=True, gc=False, tag="task-retried"):
    """The task raised, and will be received again."""

    subject: ClassVar[str] = "retried"


class Rejected(TaskEvent, frozen=True, kw_only=True, gc=False, tag="task-rejected"):
    """The worker refused the delivery."""

    subject: ClassVar[str] = "rejected"

    requeue: bool | None = None


class Revoked(TaskEvent, frozen=True, kw_only=True, gc=False, tag="task-revoked"):
    """The task was cancelled."""

    subject: ClassVar[str] = "revoked"

    terminated: bool | None = None
    signum: Integer | Name | None = None
    expired: bool | None = None


class Custom(TaskEvent, frozen=True, kw_only=True, gc=False):
    """A task event of any other type; its fields are in ``extra``."""

    subject: Name  # type: ignore[misc]  # a constant of the class everywhere else


class WorkerEvent(Event, frozen=True, kw_only=True, gc=False):
    """A worker says how it is. Fields it left out are unchanged."""

    group: ClassVar[str] = "worker"

    freq: Frequency | None = None
    active: Count | None = None
    processed: Count | None = None
    loadavg: tuple[Load, Load, Load] | None = None
    sw_ident: str | None = None
    sw_ver: str | None = None
    sw_sys: str | None = None


class WorkerOnline(WorkerEvent, frozen=True, kw_only=True, gc=False, tag="worker-online"):
    """The worker is up, or back."""

    subject: ClassVar[str] = "online"


class WorkerHeartbeat(WorkerEvent, frozen=True, kw_only=True, gc=False, tag="worker-heartbeat"):
    """The worker is alive."""

    subject: ClassVar[str] = "heartbeat"


class WorkerOffline(WorkerEvent, frozen=True, kw_only=True, gc=False, tag="worker-offline"):
    """The worker stopped cleanly."""

    subject: ClassVar[str] = "offline"


class Other(Event, frozen=True, kw_only=True, gc=False):
    """An event of any other group or worker type; its fields are in ``extra``.

    ``worker-elect`` and ``worker-elect-ack`` are among them: they are messages
    between workers, and no part of a worker's description.
    """

    group: Name  # type: ignore[misc]  # constants of the class everywhere else
    subject: str = ""  # type: ignore[misc]


class Gap(Event, frozen=True, kw_only=True, gc=False):
    """Our receiver was not connected for a while: events from ``since`` to ``until`` may be missing.

    Only a receiver makes one. What a peer sends under this type is an :class:`Other`.
    """

    group: ClassVar[str] = "cluster"
    subject: ClassVar[str] = "gap"

    #: When a message last came before the loss, and when the new subscription was confirmed.
    since: Timestamp
    until: Timestamp
    #: What broke the link.
    reason: str
    #: How many times it was tried in vain to make it again.
    attempts: Count


AnyTaskEvent = Sent | Received | Started | Succeeded | Failed | Retried | Rejected | Revoked
AnyWorkerEvent = WorkerOnline | WorkerHeartbeat | WorkerOffline

#: The record of each type we know.
EVENT_CLASSES: Final[dict[str, type[Event]]] = {
    f"{kind.group}-{kind.subject}": kind
    for kind in (
        Sent,
        Received,
        Started,
        Succeeded,
        Failed,
        Retried,
        Rejected,
        Revoked,
        WorkerOnline,
        WorkerHeartbeat,
        WorkerOffline,
    )
}
#: The records that are about a task.
TASK_EVENTS: Final[frozenset[type[Event]]] = frozenset(
    [kind for kind in EVENT_CLASSES.values() if issubclass(kind, TaskEvent)] + [Custom]
)
