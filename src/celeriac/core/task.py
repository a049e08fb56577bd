"""One task as its events describe it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar, cast, overload

from msgspec.structs import force_setattr

from celeriac.core import facts, history
from celeriac.core.history import FULL_EVENTS
from celeriac.core.order import display_key
from celeriac.core.share import share_description
from celeriac.model.clock import NO_CLOCK
from celeriac.model.events import Custom, Described, Received, Sent, Started
from celeriac.model.states import READY_STATES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from celeriac.core.state import ClusterState
    from celeriac.core.worker import Worker
    from celeriac.model.events import TaskEvent

__all__ = ["Task"]


_T = TypeVar("_T")

#: Stands where the events of a task name several; no name is empty.
_SEVERAL: Final = ""


class Told(Generic[_T]):
    """An attribute read from the event that speaks for the task: ``Told("succeeded", "result")``."""

    def __init__(self, event: str, field: str) -> None:
        self._event = event
        self._field = field

    @overload
    def __get__(self, task: None, _: type[Task]) -> Told[_T]: ...

    @overload
    def __get__(self, task: Task, _: type[Task]) -> _T | None: ...

    def __get__(self, task: Task | None, _: type[Task]) -> Told[_T] | _T | None:
        if task is None:
            return self
        return cast("_T | None", getattr(getattr(task.facts, self._event), self._field, None))


class Task:
    """A task, identified by its ``uuid``.

    It keeps its events and computes all other values from them, so the result depends on the set of
    events, and not on their order. Timestamps are those of the
    senders; the timestamp of a type is that of its last event.
    """

    #: What :meth:`as_dict` gives.
    _fields: ClassVar[tuple[str, ...]] = (
        "uuid", "name", "state", "received", "sent", "started", "rejected", "succeeded", "failed", "retried",
        "revoked", "args", "kwargs", "eta", "expires", "retries", "worker", "result", "exception",
        "timestamp", "runtime", "traceback", "exchange", "routing_key", "clock", "client", "root", "root_id",
        "parent", "parent_id", "children",
    )  # fmt: skip
    #: What :meth:`info` gives unless told otherwise.
    _info_fields: ClassVar[tuple[str, ...]] = (
        "args", "kwargs", "retries", "result", "eta", "runtime", "expires", "exception", "exchange",
        "routing_key", "root_id", "parent_id",
    )  # fmt: skip

    __slots__ = (
        "__weakref__", "_facts", "_host", "_name", "cluster_state", "heard", "history", "kind", "latest",
        "parent_link", "uuid",
    )  # fmt: skip

    def __init__(self, uuid: str, cluster_state: ClusterState) -> None:
        self.uuid = uuid
        self.cluster_state = cluster_state
        self.history: history.History = ()
        #: The latest event in display order.
        self.latest: TaskEvent | None = None
        self._name: str | None = None
        self._host: str | None = None
        #: The task that sent it. Unlike ``parent_id`` a retry does not hide it.
        self.parent_link: str | None = None
        #: The number of the last event about it, among those of all tasks; lists are in this order.
        self.heard = 0
        #: What it is counted as, where somebody counts; see :class:`~celeriac.core.tally.Tally`.
        self.kind: tuple[str, str | None] | None = None
        self._facts: facts.Facts | None = None

    def __repr__(self) -> str:
        return f"<Task: {self.name}({self.uuid}) {self.state} clock:{self.clock}>"

    def __eq__(self, other: object) -> bool:
        return self.uuid == other.uuid if isinstance(other, Task) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.uuid)

    @classmethod
    def restored(
        cls, uuid: str, cluster_state: ClusterState, *, past: history.History, latest: TaskEvent | None
    ) -> Task:
        """Return a task that has these events, as if they had come one by one."""
        task = cls(uuid, cluster_state)
        task.history, task.latest = past, latest or max(past, key=display_key)
        names = {event.name for event in past if isinstance(event, Described)}
        hosts = {event.hostname: event.hostname for event in past if type(event) is not Sent}
        task._name = names.pop() if len(names) == 1 else _SEVERAL if names else None
        task._host = hosts.popitem()[1] if len(hosts) == 1 else _SEVERAL if hosts else None
        task.parent_link = facts.parent_link(past)
        return task

    def apply(self, event: TaskEvent) -> None:
        """Take one more event of this task."""
        past, latest, kind = self.history, self.latest, type(event)
        if past and event.timestamp > past[-1].timestamp and len(past) < FULL_EVENTS:
            self.history = past + (event,)  # noqa: RUF005 - in order, the usual case: no call, no list
        else:
            self.history = history.add(past, event)
        if (
            latest is None
            or event.clock > latest.clock > NO_CLOCK  # the usual case: no call
            or (not NO_CLOCK < event.clock < latest.clock and display_key(event) > display_key(latest))
        ):
            self.latest = event
        if event.hostname is not self._host and kind is not Sent:
            self._host = event.hostname if self._host is None else _SEVERAL
        if kind is Received or kind is Sent:
            self._describe(event, past)  # type: ignore[arg-type]  # told by kind: isinstance is slower

    def _describe(self, event: Described, past: history.History) -> None:
        if self.history is past:  # the event came before
            return
        share_description(event, self.uuid, past)
        if len(self.history) != len(past) + 1:
            # The event replaced another, or drove one out: ask the facts from now on.
            self._name = _SEVERAL
            self.parent_link = facts.parent_link(self.history)
        elif event.name == self._name:
            force_setattr(event, "name", self._name)  # equal text, one copy
        elif self._name is None and not any(isinstance(e, Described) for e in past):
            self._name = event.name
        else:
            self._name = _SEVERAL
        if event.parent_id is not None and event.parent_id not in (self.uuid, self.parent_link):
            is_first = self.parent_link is None
            self.parent_link = event.parent_id if is_first else facts.parent_link(self.history)

    @property
    def facts(self) -> facts.Facts:
        """The events that speak for the task."""
        known = self._facts
        if known is None or known.history is not self.history:
            known = self._facts = facts.read(self.history)
        return known

    # The next two are facts that lists are filtered by. Nearly always all events agree on
    # them, and to read the facts of a million tasks for one list would take seconds.

    @property
    def name(self) -> str | None:
        """The name of the task; its shadow name if it has one."""
        return self.facts.name if self._name is _SEVERAL else self._name

    @property
    def host(self) -> str | None:
        """The node name of the worker that has, or had, the task."""
        return self.facts.worker if self._host is _SEVERAL else self._host

    # -- what became of it

    @property
    def state(self) -> str:
        """The furthest it got: a name of :mod:`celeriac.states`, or a custom one."""
        return self.facts.state

    @property
    def ready(self) -> bool:
        """Whether it has ended."""
        return self.state in READY_STATES

    @property
    def phase(self) -> str:
        """Where it is now: queued, received, running, retry_wait, requeued or done."""
        return self.facts.phase

    #: When it got into its state, and the Lamport clock of the event that told.
    timestamp = Told[float]("decided_by", "timestamp")

    @property
    def clock(self) -> int:
        """The Lamport clock of the event that gave it its state, as its sender stamped it; 0 without one."""
        decided_by = self.facts.decided_by
        return NO_CLOCK if decided_by is None else decided_by.clock

    #: The repr of what it returned, and the seconds it ran by the worker's measure.
    result = Told[str]("succeeded", "result")
    runtime = Told[float]("succeeded", "runtime")
    #: What it raised last.
    exception = Told[str]("raised", "exception")
    traceback = Told[str]("raised", "traceback")

    sent = Told[float]("sent", "timestamp")
    received = Told[float]("received", "timestamp")
    started = Told[float]("started", "timestamp")
    succeeded = Told[float]("succeeded", "timestamp")
    failed = Told[float]("failed", "timestamp")
    retried = Told[float]("retried", "timestamp")
    revoked = Told[float]("revoked", "timestamp")
    rejected = Told[float]("rejected", "timestamp")

    def first(self, subject: str) -> float | None:
        """Return the timestamp of the first event of a type: ``task.first("received")``.

        Only the last custom event is kept for sure, so the first one is unknown.
        """
        told = (e.timestamp for e in self.history if e.subject == subject and type(e) is not Custom)
        return next(told, None)

    # -- how often

    @property
    def attempts(self) -> int:
        """How many attempts there were so far, the present one included."""
        return 0 if self.facts.received is None else self.facts.received.retries + 1

    @property
    def attempt_known(self) -> bool:
        """Whether a received event has the attempt; if not, an open state relies on timestamps."""
        return self.facts.received is not None

    @property
    def deliveries(self) -> int:
        """How often a worker received it."""
        return len(facts.all_of(Received, self.history))

    @property
    def executions(self) -> int:
        """How often a worker started it."""
        return len(facts.all_of(Started, self.history))

    @property
    def redelivered(self) -> bool:
        """Whether it was delivered more often than it was tried."""
        return self.deliveries > self.attempts

    @property
    def conflict(self) -> bool:
        """Whether it succeeded and failed, succeeded twice, or did either in an attempt that was retried.

        Of a retry this is known only once a ``received`` came, as that counts the retries before it.
        """
        return self.facts.conflict

    # -- what it is

    args = Told[str]("description", "args")
    kwargs = Told[str]("description", "kwargs")
    retries = Told[int]("description", "retries")
    eta = Told[str]("description", "eta")
    expires = Told[str]("description", "expires")
    root_id = Told[str]("description", "root_id")
    parent_id = Told[str]("description", "parent_id")
    #: The node name of the client that sent it, and where to.
    client = Told[str]("sent", "hostname")
    queue = Told[str]("sent", "queue")
    exchange = Told[str]("sent", "exchange")
    routing_key = Told[str]("sent", "routing_key")
    #: The fields of its last custom event that we have no place for.
    extra = Told[Mapping[str, object]]("custom", "extra")

    @property
    def id(self) -> str:
        """The same as ``uuid``."""
        return self.uuid

    # -- and whom it knows

    @property
    def worker(self) -> Worker | None:
        """The worker that has, or had, the task; None while only a client spoke of it."""
        return None if self.host is None else self.cluster_state.workers.get(self.host)

    @property
    def origin(self) -> str | None:
        """The process that spoke for it last: ``hostname.pid`` of the worker, else the client."""
        worker = self.worker
        return self.client if worker is None else worker.id

    @property
    def parent(self) -> Task | None:
        """The task that sent it, if still in memory."""
        return None if self.parent_link is None else self.cluster_state.tasks.get(self.parent_link)

    @property
    def root(self) -> Task | None:
        """The first task of its workflow, if still in memory."""
        return None if self.root_id is None else self.cluster_state.tasks.get(self.root_id)

    @property
    def children(self) -> set[Task]:
        """The tasks it sent that are still in memory."""
        return self.cluster_state.children_of(self.uuid)

    # -- for display

    def info(self, fields: Iterable[str] | None = None, extra: Iterable[str] = ()) -> dict[str, object]:
        """Return the known values of the most important fields."""
        names = [*(self._info_fields if fields is None else fields), *extra]
        return {name: value for name in names if (value := getattr(self, name, None)) is not None}

    def as_dict(self) -> dict[str, object]:
        """Return all fields; related tasks by their ids."""
        values = {name: getattr(self, name) for name in self._fields}
        values["children"] = sorted(task.uuid for task in self.children)
        return values | {"parent": self.parent_id, "root": self.root_id}
