"""The facade: it assembles, and decides nothing."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar, Unpack, overload
from uuid import uuid4

from celeriac.config import Settings
from celeriac.core.revoked import RevokedSet
from celeriac.errors import CallerError
from celeriac.masking import sanitize_url
from celeriac.model.election import Level, Mode
from celeriac.node.call_options import CallOptions
from celeriac.node.client import TaskClient
from celeriac.node.clock import SharedClock
from celeriac.node.control import Control
from celeriac.node.dispatcher import EventDispatcher
from celeriac.node.election import TASK_TOPIC, elected_task_id
from celeriac.node.events import Events
from celeriac.node.history import History
from celeriac.node.identity import anonymous_name, node_name
from celeriac.node.leadership import DEFAULT_TTL, Leadership, elected
from celeriac.node.mailbox import Mailbox
from celeriac.node.per_process import PerProcess
from celeriac.node.result import AsyncResult as Result
from celeriac.node.result_set import ResultSet as Results
from celeriac.node.sender import TaskSender
from celeriac.node.signature import Signature
from celeriac.node.task import Task
from celeriac.node.task_registry import TaskRegistry, task_name
from celeriac.transport.arbiter import Arbiter
from celeriac.transport.base import Connection
from celeriac.transport.memory import MemoryBroker

if TYPE_CHECKING:
    from celeriac.node.backend import Backend
    from celeriac.worker.worker import Worker

__all__ = ["Celeriac", "Events"]

#: Parts that keep the settings they were made with.
_MADE_WITH_SETTINGS: Final = frozenset(
    {"events", "history", "control", "backend", "_arbiters", "_sender", "_client"}
)

_Parameters = ParamSpec("_Parameters")
_T = TypeVar("_T")


class Celeriac:
    """One program's view of a cluster: its settings, its clock, and the parts that share them.

    ``broker`` is a URL as Celery takes it, or a :class:`MemoryBroker` for tests. Everything else is
    a setting; see :class:`~celeriac.config.Settings`. Settings that are not given here come from
    ``celery``, an app of Celery, then from the environment (``CELERIAC_*``), then from a TOML file.
    """

    def __init__(
        self,
        broker: str | MemoryBroker | None = None,
        backend: str | None = None,
        *,
        hostname: str | None = None,
        config: Path | str | None = None,
        environ: Mapping[str, str] | None = None,
        celery: Any = None,
        **settings: Any,
    ) -> None:
        self._memory = broker if isinstance(broker, MemoryBroker) else None
        given = {"broker_url": broker if isinstance(broker, str) else None, "result_backend": backend}
        self._conf = Settings.load(
            given | settings,
            environ=os.environ if environ is None else environ,
            file=None if config is None else Path(config),
            celery=celery,
        )
        #: What :meth:`configure` changed.
        self._changed: dict[str, Any] = {}
        #: The Lamport clock that all parts of this program share.
        self.clock = SharedClock()
        #: The name this program has in the cluster.
        self.hostname = hostname or anonymous_name()
        #: The tasks that this program knows, by name.
        self.tasks = TaskRegistry()

    def __repr__(self) -> str:
        address = sanitize_url(self.conf.broker_url) if self._memory is None else self._memory.name
        return f"<Celeriac {self.hostname} on {address}>"

    @property
    def conf(self) -> Settings:
        """The settings in force, where they came from included."""
        return self._conf

    def configure(self, **settings: Any) -> None:
        """Change settings before anything is made with them; None leaves one as it is.

        Raises CallerError if it is too late.
        """
        made = sorted(_MADE_WITH_SETTINGS.intersection(self.__dict__))
        if made:
            raise CallerError(f"the app is in use ({', '.join(made)}): change settings before the first use")
        given = {name: value for name, value in settings.items() if value is not None}
        self._conf = replace(self._conf, **given)
        self._changed |= given

    def connection(self) -> Connection:
        """Return a new connection to the broker, not yet open."""
        if self._memory is not None:
            return self._memory.connect(self.conf)
        from celeriac.transport.connect import connect  # noqa: PLC0415 - only who connects waits for kombu

        return connect(self.conf)

    @cached_property
    def events(self) -> Events:
        """Dispatchers, receivers and states of this program."""
        return Events(self.connection, settings=self.conf, clock=self.clock, hostname=self.hostname)

    @cached_property
    def history(self) -> History:
        """What records the events of the cluster, and reads what was recorded."""
        return History(self.connection, settings=self.conf, clock=self.clock, hostname=self.hostname)

    @cached_property
    def control(self) -> Control:
        """Commands to the nodes of the cluster."""
        return Control(self.connection, settings=self.conf, clock=self.clock, hostname=self.hostname)

    @cached_property
    def backend(self) -> "Backend":
        """Where results are kept, by the setting ``result_backend``."""
        from celeriac.node.backend import backend_for  # noqa: PLC0415 - only who wants results loads it

        return backend_for(self.conf, self.connection)

    def AsyncResult(self, id: str, parent: Result | Results | None = None) -> Result:  # noqa: A002, N802
        """Return the result of the task of this id; see :class:`~celeriac.node.result.AsyncResult`."""
        return Result(id, backend=self.backend, control=self.control, parent=parent)

    def ResultSet(self, results: Iterable[Result | str] = ()) -> Results:  # noqa: N802
        """Return a set of results, or of those of the tasks of these ids; see :class:`ResultSet`."""
        made = [self.AsyncResult(each) if isinstance(each, str) else each for each in results]
        return Results(made, backend=self.backend)

    # -- elections

    @property
    def arbiter(self) -> Arbiter:
        """The arbiter of elections: the broker, or the server in the setting ``election_url``."""
        return self._arbiters.get()

    @cached_property
    def _arbiters(self) -> PerProcess[Arbiter]:
        from celeriac.transport.arbiters import arbiter_for  # noqa: PLC0415 - only who elects loads it

        return PerProcess(lambda: arbiter_for(self.conf, self._memory))

    def leadership(
        self,
        name: str,
        *,
        ttl: float = DEFAULT_TTL,
        on_step_down: Callable[[str], object] | None = None,
    ) -> Leadership:
        """Return a leadership with this name: one of all processes that request it is leader.

        See :class:`~celeriac.node.leadership.Leadership`. If the leader does not answer for ``ttl`` seconds,
        another process can become leader.
        """
        return Leadership(
            name,
            arbiter=lambda: self.arbiter,
            hostname=self.hostname,
            min_level=Level[self.conf.election_min_level],
            ttl=ttl,
            on_step_down=on_step_down,
        )

    def elected(
        self, name: str, *, ttl: float = DEFAULT_TTL
    ) -> Callable[[Callable[Concatenate[Leadership, _Parameters], _T]], Callable[_Parameters, _T | None]]:
        """Make a function run only where this process leads: ``@app.elected("nightly-report")``.

        It is called with the leadership first. Where another process leads it is not run, and gives None.
        """
        if callable(name):  # written without a name, it would be a decorator that nobody calls
            raise CallerError('give the name of the leadership: @app.elected("nightly-report")')
        return lambda function: elected(lambda: self.leadership(name, ttl=ttl), function)

    # -- tasks

    @overload
    def task(self, function: Callable[..., Any], /) -> Task: ...

    @overload
    def task(
        self, function: None = None, /, *, name: str | None = None, **options: Any
    ) -> Callable[[Callable[..., Any]], Task]: ...

    def task(
        self, function: Callable[..., Any] | None = None, /, *, name: str | None = None, **options: Any
    ) -> Task | Callable[[Callable[..., Any]], Task]:
        """Make a function a task: ``@app.task``, or ``@app.task(bind=True, …)`` with options.

        Its name is that of its module and its own, unless one is given; see
        :class:`~celeriac.node.task.Task`.
        """

        def register(function: Callable[..., Any]) -> Task:
            task = Task(function, name=name or task_name(function), caller=self, **options)
            return self.tasks.add(task)

        return register if function is None else register(function)

    def send_task(
        self,
        name: str,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> Result:
        """Send a task by its name, which need not be known here; on return the broker has it."""
        return self._client.send_task(name, args, kwargs, **options)

    def signature(
        self,
        task: str | Mapping[str, Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
        **options: Unpack[CallOptions],
    ) -> Signature:
        """Return a call of a task, written down: by its name, or from the dict that Celery writes."""
        if isinstance(task, str):
            return Signature(task, args, kwargs, immutable=immutable, caller=self).set(**options)
        return Signature.from_dict(task, caller=self).clone(args, kwargs, **options)

    def elect_task(
        self,
        signature: Signature,
        *,
        id: str | None = None,  # noqa: A002
        mode: str = Mode.ONCE,
        force: bool = False,
        timeout: float = 1.0,
    ) -> Result:
        """Have the workers elect one of them, which sends a task; return its result, to wait for."""
        # An empty one is refused below: who meant to name it would have it run each time.
        election_id = str(uuid4()) if id is None else id
        # Whoever wins sends it under this id: a Celery worker takes it from the signature.
        task_id = signature.options.get("task_id") or elected_task_id(str(election_id))
        reply_to = self._reply_to()
        whole = signature.clone(task_id=task_id)
        if reply_to:
            whole.set(reply_to=reply_to)
        self.control.election(
            election_id, TASK_TOPIC, whole.to_dict(), mode=mode, force=force, timeout=timeout
        )
        return self._result(task_id)

    @cached_property
    def _sender(self) -> TaskSender:
        return TaskSender(self.connection, settings=self.conf)

    @cached_property
    def _dispatcher(self) -> EventDispatcher:
        return self.events.Dispatcher()

    @cached_property
    def _client(self) -> TaskClient:
        return TaskClient(
            self._sender,
            settings=self.conf,
            tasks=self.tasks,
            origin=self.hostname,
            reply_to=self._reply_to,
            result=self._result,
            dispatcher=lambda: self._dispatcher,
        )

    def _reply_to(self) -> str:
        # Only where results are messages somebody must be named to send them to.
        is_rpc = (self.conf.result_backend or "").startswith("rpc:")
        return getattr(self.backend, "reply_to", "") if is_rpc else ""

    def _result(self, task_id: str) -> Result:
        if self.conf.result_backend is not None:
            return self.AsyncResult(task_id)
        from celeriac.node.no_backend import no_backend  # noqa: PLC0415 - only who wants results loads it

        return Result(task_id, backend=no_backend(self.conf), control=self.control)

    def close(self) -> None:
        """Stop all background threads; using the app again starts them again."""
        if "_sender" in self.__dict__:
            self._sender.close()
        if "_dispatcher" in self.__dict__:
            self.__dict__.pop("_dispatcher").close()
        if "backend" in self.__dict__:
            self.backend.close()
        if "_arbiters" in self.__dict__ and (arbiter := self._arbiters.pop()) is not None:
            arbiter.close()

    def Worker(  # noqa: N802
        self,
        hostname: str | None = None,
        *,
        pool: str = "threads",
        concurrency: int | None = None,
        queues: Sequence[str] = (),
        task_events: bool | None = None,
        without_mingle: bool = False,
        without_gossip: bool = False,
        without_heartbeat: bool = False,
        place: str = "",
    ) -> "Worker":
        """Return a worker that runs the tasks of this app; see :class:`~celeriac.worker.worker.Worker`.

        ``pool`` is ``threads``, ``processes``, ``solo`` or ``gevent``. Pool processes import the app again:
        ``place`` is its location, as ``module:attribute``.
        """
        from celeriac.worker.execute import Executor  # noqa: PLC0415 - only who runs tasks loads it
        from celeriac.worker.parts import Choices, Surroundings  # noqa: PLC0415
        from celeriac.worker.pool.choose import make_pool  # noqa: PLC0415
        from celeriac.worker.worker import Worker  # noqa: PLC0415

        name = hostname or node_name("celery@%h")
        surroundings = Surroundings(
            settings=self.conf,
            clock=self.clock,
            hostname=name,
            version=metadata.version("celeriac"),
            connect=self.connection,
            control=Control(self.connection, settings=self.conf, clock=self.clock, hostname=name),
            dispatcher=self.events.Dispatcher(hostname=name, buffer_group=("task",), enabled=False),
            sender=self._sender,
            backend=None if self.conf.result_backend is None else self.backend,
            tasks=self.tasks,
            arbiter=lambda: self.arbiter,
        )
        made = make_pool(
            pool,
            runner=Executor(self.tasks, self.conf),
            app=place,
            size=concurrency or self.conf.worker_concurrency or os.cpu_count() or 1,
            settings=self.conf,
            overrides=self._changed,
        )
        choices = Choices(queues, task_events, without_mingle, without_gossip, without_heartbeat)
        return Worker(surroundings, choices, made)

    def mailbox(
        self,
        hostname: str | None = None,
        *,
        handlers: Mapping[str, Callable[..., object]] | None = None,
        revoked: RevokedSet | None = None,
    ) -> Mailbox:
        """Return a mailbox that answers commands to this program; see :class:`Mailbox`."""
        return Mailbox(
            hostname or self.hostname,
            settings=self.conf,
            clock=self.clock,
            handlers=handlers,
            revoked=revoked,
        )
