"""Hostile tasks in front of ordinary ones: our worker beside Celery's, on both brokers.

A running worker with default settings gets all hostile tasks of a row, and behind them ordinary tasks. Once
these have run, or cannot run any more, it gets as many again. The same messages go to both sides.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, Final

from kombu import Connection, Exchange, Queue

from benchmarks.no_op import NAME
from celeriac.testing.brokers import RabbitServer, RedisServer
from celeriac.testing.peers import CeleriacWorker, CeleryWorker

#: Times that no year from 1 to 9999 has in UTC, and the first and the last that it has.
TIMES: Final = (
    "9999-12-31T23:59:59-23:59",
    "9999-12-31T23:59:59-00:01",
    "0001-01-01T00:00:00+14:00",
    "0001-01-01T00:00:00+00:01",
    "9999-12-31T23:59:59.999999+00:00",
    "9999-12-31T23:59:59+23:59",
    "0001-01-01T00:00:00+00:00",
    "0001-01-01T00:00:00-23:59",
    "10000-01-01T00:00:00",
    "0000-01-01T00:00:00",
)
FAR: Final = "9999-01-01T00:00:00+00:00"
#: More than a worker of ours holds by default.
FAR_TASKS: Final = 10_300
#: Ordinary tasks behind the hostile ones, and again as many later.
ORDINARY: Final = 20
CONCURRENCY: Final = 4
_APP: Final = Path(__file__).parent / "no_op.py"
_QUEUE: Final = Queue("celery", Exchange("celery"), routing_key="celery")
_TIMEOUT: Final = 180.0
_LOOK_EVERY: Final = 0.002

Headers = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What hostile tasks did to a worker."""

    hostile: int
    worker: str
    #: Ordinary tasks that ran, of those behind the hostile ones and of those that came later.
    behind: int
    later: int
    #: From the first of the later tasks until the last had a result; None if that did not come.
    later_ms: float | None


def run() -> dict[str, dict[str, Outcome]]:
    """Measure every row, both sides in turn: outcomes by row and side."""
    attacks = {
        "times": [{name: time} for name in ("eta", "expires") for time in TIMES],
        "far_etas": [{"eta": FAR}] * FAR_TASKS,
    }
    rows: dict[str, dict[str, Outcome]] = {}
    with RedisServer() as redis, RabbitServer() as rabbit:
        for kind, hostile in attacks.items():
            for broker in ("redis", "amqp"):
                row = rows[f"{broker}_{kind}"] = {}
                for side in ("ours", "celery"):
                    with redis.client(0) as client, redis.client(1) as results:
                        client.flushdb()
                        results.flushdb()
                    vhost = f"{side}-{kind}"
                    rabbit.add_vhost(vhost)
                    url = redis.url_of(0) if broker == "redis" else rabbit.url_of(vhost)
                    outcome = row[side] = measure(side, url, redis, hostile)
                    rabbit.delete_vhost(vhost)
                    print(f"· {broker}_{kind}: {side:<6} {outcome}", file=sys.stderr, flush=True)
    return rows


def show(name: str, rows: dict[str, dict[str, Outcome]]) -> None:
    """Print the table, and the line of JSON."""
    columns = ("row", "side", "hostile", "worker", "behind", "later", "later ms")
    table: list[tuple[str, ...]] = [columns]
    for row, sides in rows.items():
        for side, each in sides.items():
            counts = (f"{count} of {ORDINARY}" for count in (each.behind, each.later))
            time = "-" if each.later_ms is None else f"{each.later_ms:,.0f}"
            table.append((row, side, f"{each.hostile:,}", each.worker, *counts, time))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    print()
    for line in table:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
    figures = {row: {side: asdict(outcome) for side, outcome in sides.items()} for row, sides in rows.items()}
    print(json.dumps({"bench": name, "ordinary": ORDINARY, "rows": figures}))


def measure(side: str, url: str, redis: RedisServer, hostile: Sequence[Headers]) -> Outcome:
    """Attack a worker of one side, and count what it still does."""
    with _worker(side, url, redis.url_of(1)) as worker, Connection(url) as connection:
        _send(connection, "hostile", hostile)
        behind, _ = _served(worker, redis, _send(connection, "behind", [{}] * ORDINARY))
        begun = perf_counter()
        later, ended = _served(worker, redis, _send(connection, "later", [{}] * ORDINARY))
        return Outcome(
            len(hostile),
            "alive" if worker.is_alive else f"exit {worker.exit_code}",
            behind,
            later,
            (ended - begun) * 1000 if later == ORDINARY else None,
        )


@contextmanager
def _worker(side: str, url: str, backend: str) -> Iterator[CeleriacWorker | CeleryWorker]:
    options: dict[str, Any] = {
        "url": url,
        "backend": backend,
        "pool": "threads",
        "concurrency": CONCURRENCY,
        "events": False,
    }
    worker: CeleriacWorker | CeleryWorker
    if side == "ours":
        worker = CeleriacWorker(_APP, **options)
    else:
        worker = CeleryWorker(sys.executable, _APP, **options)
    try:
        worker.start()
        yield worker
    finally:
        worker.kill()
        worker.close()


def _send(connection: Connection, name: str, tasks: Sequence[Headers]) -> list[str]:
    """Send a task for each headers, as a client of Celery writes it; return their ids."""
    ids = [f"{name}-{number}" for number in range(len(tasks))]
    body = [[], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
    with connection.Producer(serializer="json") as producer:
        producer.exchange = _QUEUE.exchange
        _QUEUE.bind(producer.channel).declare()
        for task_id, headers in zip(ids, tasks, strict=True):
            usual = {"lang": "py", "task": NAME, "id": task_id, "root_id": task_id, "retries": 0}
            producer.publish(
                body, routing_key=_QUEUE.routing_key, headers=usual | headers, correlation_id=task_id
            )
    return ids


def _served(
    worker: CeleriacWorker | CeleryWorker, redis: RedisServer, ids: Sequence[str]
) -> tuple[int, float]:
    """Wait until all tasks have results, or cannot get any; return how many have, and when that was."""
    keys = [f"celery-task-meta-{task_id}" for task_id in ids]
    until = perf_counter() + _TIMEOUT
    with redis.client(1) as results:
        while (count := int(results.exists(*keys))) < len(keys) and perf_counter() < until:
            if not worker.is_alive:
                break
            sleep(_LOOK_EVERY)
    return count, perf_counter()
