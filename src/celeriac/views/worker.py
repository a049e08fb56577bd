"""Workers as a dashboard shows them: what each is held for and why, and how it is."""

from collections.abc import Iterable, Mapping
from heapq import nsmallest
from typing import Final, NamedTuple

from celeriac.core.member import Liveness
from celeriac.core.membership import lost_after, suspect_after
from celeriac.core.worker import Worker
from celeriac.model.clock import NO_CLOCK
from celeriac.node.scene import Scene
from celeriac.node.watcher import Presence
from celeriac.node.worker_setup import WorkerSetup
from celeriac.views.cell import number_of
from celeriac.views.format import format_duration
from celeriac.views.text import visible

__all__ = ["LiveWorker", "SetupRow", "WorkerPage", "live_workers", "setup_row", "worker_page"]

_NAME_CHARS: Final = 120
_ORDER: Final = [Liveness.SUSPECT, Liveness.LOST, Liveness.ALIVE, Liveness.LEFT]


class LiveWorker(NamedTuple):
    """A worker. Every text is safe to show except its key; timestamps are seconds since the epoch.

    None stands for an unknown value.
    """

    name: str
    #: The name itself. Two may be shown alike: what is done to a worker is done by its key.
    key: str
    #: ``ALIVE``, ``SUSPECT``, ``LOST`` or ``LEFT``.
    liveness: str
    reason: str
    #: Since when it is held for that; in the past, as far as was replayed.
    since_at: float | None
    #: When it was last heard of, by our clock.
    seen_at: float | None
    #: Seconds between its heartbeats.
    heartbeat: float
    active: int | None
    processed: int | None
    #: Over the last one, five and fifteen minutes.
    load: tuple[float, float, float] | None
    #: Its Lamport clock.
    clock: int | None
    #: Seconds that our clock is ahead of its own.
    drift: float | None
    is_drifting: bool
    pid: int | None
    software: str | None
    #: Whether it sends task events; None while that is unknown, and for the past.
    task_events: bool | None


class SetupRow(NamedTuple):
    """Queues and pool size that a worker replied. Every text is safe to show; None is unknown."""

    #: Those that it takes tasks from.
    queues: list[str] | None
    #: How many tasks it can run at once.
    pool: int | None
    #: Why something is not known; empty if all is.
    reason: str
    #: When it was asked, in seconds of the epoch.
    asked_at: float


class WorkerPage(NamedTuple):
    """A part of a list."""

    workers: list[LiveWorker]
    #: To be given for the next page; None if this was the last.
    next: str | None


def worker_page(workers: Iterable[LiveWorker], *, after: str | None = None, limit: int = 50) -> WorkerPage:
    """Return the workers whose names come after those of the page that ``after`` was given with.

    By name alone: what a worker is held for may change between two pages.
    """
    left = (each for each in workers if after is None or each.key > after)
    found = nsmallest(limit + 1, left, key=lambda each: each.key)
    return WorkerPage(found[:limit], found[limit - 1].key if len(found) > limit else None)


def setup_row(setup: WorkerSetup) -> SetupRow:
    """Return the row of what a worker said of itself."""
    queues = None if setup.queues is None else [visible(name, _NAME_CHARS) for name in setup.queues]
    return SetupRow(queues, setup.pool, visible(setup.reason, 200), setup.asked_at)


def live_workers(
    scene: Scene, presences: Mapping[str, Presence] | None = None, *, as_of: float
) -> list[LiveWorker]:
    """Return the workers, those first that need somebody to look.

    ``presences`` says what each is held for by who watches; without it, as of a moment in the past, each is
    judged by how long it was silent then, against its own heartbeat.
    """
    workers: list[Worker] = scene.state.freeze_while(list, scene.state.workers.values())
    known = presences or {}
    rows = [_row(worker, known.get(worker.hostname) or _judged(worker, scene, as_of)) for worker in workers]
    return sorted(rows, key=lambda row: (_ORDER.index(Liveness(row.liveness)), row.name, row.key))


def _row(worker: Worker, presence: tuple[Liveness, str, float | None, bool | None]) -> LiveWorker:
    liveness, reason, since_at, task_events = presence
    return LiveWorker(
        name=visible(worker.hostname, _NAME_CHARS),
        key=worker.hostname,
        liveness=liveness.value,
        reason=visible(reason),
        since_at=since_at,
        seen_at=number_of(worker.seen_at) or None,
        heartbeat=worker.freq,
        active=worker.active,
        processed=worker.processed,
        load=worker.loadavg,
        clock=None if worker.clock == NO_CLOCK else worker.clock,
        drift=number_of(worker.drift),
        is_drifting=worker.is_drifting,
        pid=worker.pid,
        software=visible(f"{worker.sw_ident or ''} {worker.sw_ver or ''}".strip(), 60) or None,
        task_events=task_events,
    )


def _judged(worker: Worker, scene: Scene, as_of: float) -> tuple[Liveness, str, float | None, bool | None]:
    if worker.has_left:
        return Liveness.LEFT, "shut down cleanly", worker.timestamp, None
    if not worker.seen_at:
        return Liveness.LOST, "never seen", None, None
    silence = as_of - worker.seen_at
    reason = f"silent for {format_duration(silence)}"
    for liveness, patience in (
        (Liveness.LOST, lost_after(worker.freq)),
        (Liveness.SUSPECT, suspect_after(worker.freq)),
    ):
        if silence > patience:
            return liveness, reason, worker.seen_at + patience, None
    return Liveness.ALIVE, "heartbeat on time", scene.attendance.since(worker.hostname), None
