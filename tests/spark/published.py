"""A small log of all sorts of events, and tables as readers find them."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from threading import Event as Flag
from threading import Thread
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq
from datasketches import kll_doubles_sketch

from celeriac.model.events import (
    Event,
    Failed,
    Gap,
    Received,
    Retried,
    Sent,
    Started,
    Succeeded,
    WorkerHeartbeat,
    WorkerOnline,
)
from celeriac.pipeline.job import Pipeline
from celeriac.pipeline.report import Report
from celeriac.programs.process import wait_until
from celeriac.store.manifest import Manifest, read_manifest
from celeriac.store.place import place_for
from celeriac.store.segment import Segment
from tests.event_logs import seal
from tests.live import IS_LONG

#: 2026-11-14T23:00Z: an hour before a day ends.
BEGIN_AT: Final = 1_794_697_200.0
#: In the log that tests share.
TASKS: Final = 60
#: Events that are taken before a stream begins: those of two of four segments.
HALF: Final = 152
#: Of a stream. In the long form plans are compiled too, which fills Java's code cache.
BATCHES: Final = 60 if IS_LONG else 2
#: Seconds that tables may take.
PATIENCE: Final = 600.0
#: Spark's own work for frames of a few rows takes far longer than the rows do.
QUICK: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.memory": "1g",
    # A plan as text is for the UI.
    "spark.sql.ui.explainMode": "simple",
    # A large young generation is collected a few times, a small one all the time.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms1g -Xmn512m",
}
#: To compile the plan of a small frame takes longer than to interpret it, and to split a few rows among two
#: tasks takes twice the time of one.
INTERPRETED: Final = {
    **QUICK,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
}
#: The rows of a table in two tasks, wherever that may matter.
SPLIT: Final = {"spark.sql.shuffle.partitions": "2", "spark.sql.leafNodeDefaultParallelism": "2"}

Rows = dict[str, list[tuple[Any, ...]]]


class Half(NamedTuple):
    """The tables of the first half of the events, in two chunks. The next batch was sealed during the run."""

    log: Path
    warehouse: Path
    run: Report


def events_of(tasks: int, *, seed: int = 1) -> list[Event]:
    """Return the events of tasks over two hours, in the order of their receipt; some fail, or are retried."""
    random = Random(seed)
    made: list[Event] = []
    for number in range(tasks):
        made += _task(random, number, BEGIN_AT + number * 7200 / tasks)
    for minute in range(0, 120, 5):
        common = _common(BEGIN_AT + minute * 60, f"celery@web{minute % 2}", clock=minute)
        made.append(WorkerHeartbeat(freq=2.0, active=1, processed=minute, loadavg=(0.5, 0.5, 0.5), **common))
    made.append(WorkerOnline(**_common(BEGIN_AT + 1, "celery@web0", clock=1)))
    gap: dict[str, Any] = {
        "since": BEGIN_AT + 100,
        "until": BEGIN_AT + 160,
        "reason": "it rained",
        "attempts": 3,
    }
    made.append(Gap(**gap, **_common(BEGIN_AT + 161, "recorder", clock=0)))
    return sorted(made, key=lambda event: event.local_received or 0.0)


def batches() -> list[tuple[int, list[Event]]]:
    """Return the events after the first half in batches, each with the number of its first event."""
    late = events_of(TASKS)[HALF:]
    bounds = [len(late) * batch // BATCHES for batch in range(BATCHES + 1)]
    return [(HALF + first + 1, late[first:end]) for first, end in pairwise(bounds)]


def _task(random: Random, number: int, at: float) -> list[Event]:
    uuid, host = f"task-{number:05d}", f"celery@web{number % 2}"
    kin = {
        "root_id": f"task-{number - number % 4:05d}",
        "parent_id": f"task-{number - 1:05d}" if number % 4 else None,
    }
    told: dict[str, Any] = {"uuid": uuid, "name": f"shop.job{number % 3}", **kin}
    clock = number * 10
    made: list[Event] = [Sent(queue="celery", **told, **_common(at, "gen1@client", clock=clock))]
    made.append(Received(**told, **_common(at + 1, host, clock=clock + 1)))
    made.append(Started(uuid=uuid, **_common(at + 2, host, clock=clock + 2)))
    if random.random() < 0.2:
        again = _common(at + 3, host, clock=clock + 3)
        made.append(Retried(uuid=uuid, exception="KeyError('x')", traceback="…", **again))
        made.append(Received(**{**told, "retries": 1}, **_common(at + 400, host, clock=clock + 4)))
        made.append(Started(uuid=uuid, **_common(at + 401, host, clock=clock + 5)))
    end_at = at + random.choice((5.0, 900.0))
    end = _common(end_at, host, clock=clock + 9)
    if random.random() < 0.2:
        made.append(Failed(uuid=uuid, exception="ValueError('y')", traceback="…", **end))
    elif random.random() < 0.95:
        made.append(Succeeded(uuid=uuid, result="1", runtime=2.5, **end))
    return made


def _common(at: float, hostname: str, *, clock: int) -> dict[str, Any]:
    return {"timestamp": at, "clock": clock, "hostname": hostname, "pid": 7, "local_received": at + 0.25}


def write_log(
    root: Path, events: Sequence[Event], *, segments: int = 4, recorder: str = "rec-1"
) -> list[Segment]:
    """Write events as segments of about one size, and return them."""
    size = -(-len(events) // segments)
    return [
        seal(root, events[first : first + size], recorder=recorder, first=first + 1)
        for first in range(0, len(events), size)
    ]


def manifest_of(warehouse: Path) -> Manifest:
    manifest = read_manifest(place_for(warehouse))
    assert manifest is not None
    return manifest


def published_events(warehouse: Path) -> int:
    return manifest_of(warehouse).events if (warehouse / "current.json").exists() else 0


def follow_until(job: Pipeline, warehouse: Path, events: int) -> Report:
    """Follow a log until so many events are in the tables."""
    stop = Flag()

    def watch() -> None:
        wait_until(lambda: stop.is_set() or published_events(warehouse) >= events, patience=PATIENCE)
        stop.set()

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        return job.follow(0.1, stop)
    finally:
        stop.set()
        watcher.join()


def tables_of(warehouse: Path, manifest: Manifest | None = None) -> Rows:
    """Return all rows of all tables, sorted; read without Spark, by the manifest alone."""
    manifest = manifest or manifest_of(warehouse)
    return {
        table: sorted((row for day in days for row in _rows(warehouse, day, days[day])), key=repr)
        for table, days in manifest.tables.items()
    }


def _rows(warehouse: Path, day: str, files: Sequence[Any]) -> list[tuple[Any, ...]]:
    made: list[tuple[Any, ...]] = []
    for file in files:
        # The file alone: its path says the day, and Arrow would add it.
        with (warehouse / file.path).open("rb") as opened:
            rows = pq.read_table(opened).to_pylist()
        assert len(rows) == file.rows
        made += [(day, *(_plain(name, value) for name, value in row.items())) for row in rows]
    return made


def _plain(name: str, value: Any) -> Any:
    if name == "history" and value is not None:
        return sorted((tuple(event.items()) for event in value), key=repr)
    if isinstance(value, bytes):  # a sketch is the same if it tells the same
        told = kll_doubles_sketch.deserialize(value)
        return told.n, told.get_min_value(), told.get_max_value(), told.get_quantile(0.5)
    return value
