"""Tasks that do nothing, from the queue to the stored result: our worker beside Celery's.

All tasks wait in the queue before a worker starts, so that no client is measured. Time counts from when a
first part of the results is stored, which is when the worker is warm, until the last is. Queue and
results are in one Redis, in databases of their own; both workers have the same number of tasks at a time,
their default settings, and log warnings only.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep
from typing import Final

from benchmarks import brokers
from benchmarks.no_op import NAME
from benchmarks.report import Row
from celeriac import Celeriac
from celeriac.model.task_request import Posting, TaskRequest
from celeriac.node.sender import TaskSender
from celeriac.programs.service import Service
from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleriacWorker, CeleryWorker

TASKS: Final = 6_000
#: Results by which a worker counts as warm.
WARM: Final = 600
#: Tasks at a time.
CONCURRENCY: Final = 4
#: Our pool, and Celery's of the same kind.
POOLS: Final = {"threads": "threads", "processes": "prefork"}
ROWS: Final = ("threads_events", "processes_events", "threads", "processes")
_APP: Final = Path(__file__).parent / "no_op.py"
_LOOK: Final = 0.01
_PATIENCE: Final = 300.0


def run() -> dict[str, Row]:
    """Measure every row, both sides in turn."""
    best: dict[str, dict[str, float]] = {row: {} for row in ROWS}
    for turn in range(1, brokers.TURNS + 1):
        for row in ROWS:
            for side in ("ours", "peer"):
                rate = measure(side, row)
                told = f"· turn {turn} of {brokers.TURNS}: {row:<16} {side:<5} {rate:>8,.0f}"
                print(told, file=sys.stderr, flush=True)
                best[row][side] = max(rate, best[row].get(side, 0.0))
    return {row: Row(figures["ours"], figures["peer"], unit="tasks/s") for row, figures in best.items()}


def measure(side: str, row: str) -> float:
    """Return how many tasks a second one worker did."""
    pool, _, events = row.partition("_")
    with RedisServer() as server:
        _fill(server.url_of(0))
        with server.client(1) as results, _worker(side, server, pool, has_events=bool(events)):
            first, begun = _reached(results, WARM)
            last, ended = _reached(results, TASKS)
        return (last - first) / (ended - begun)


class _Ours(CeleriacWorker):
    def _is_ready(self) -> bool:
        return True  # it says so at a level that is not logged


class _Peer(CeleryWorker):
    def _is_ready(self) -> bool:
        return True


def _fill(url: str) -> None:
    app = Celeriac(url, environ={})
    sender = TaskSender(app.connection, settings=app.conf)
    # As a client sends them: an id each, and what they are shown by.
    requests = [
        TaskRequest(f"{number:032x}", NAME, argsrepr="()", kwargsrepr="{}", origin="gen1@benchmark")
        for number in range(TASKS)
    ]
    sender.post([Posting(request, "celery") for request in requests], timeout=60)
    sender.close()


@contextmanager
def _worker(side: str, server: RedisServer, pool: str, *, has_events: bool) -> Iterator[Service]:
    url, backend = server.url_of(0), server.url_of(1)
    made: Service
    if side == "ours":
        made = _Ours(
            _APP,
            url=url,
            backend=backend,
            pool=pool,
            concurrency=CONCURRENCY,
            events=has_events,
            arguments=("--loglevel", "warning"),
        )
    else:
        made = _Peer(
            sys.executable,
            _APP,
            url=url,
            backend=backend,
            pool=POOLS[pool],
            concurrency=CONCURRENCY,
            events=has_events,
            arguments=("--loglevel", "WARNING"),
        )
    with made:
        yield made


def _reached(results: object, count: int) -> tuple[int, float]:
    """Wait until so many results are stored; return how many there are, and when that was."""
    until = perf_counter() + _PATIENCE
    while (stored := int(results.dbsize())) < count:  # type: ignore[attr-defined]
        if perf_counter() > until:
            raise SystemExit(f"only {stored} of {TASKS} tasks were done")
        sleep(_LOOK)
    return stored, perf_counter()
