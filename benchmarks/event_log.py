"""A log as a recorder leaves it, of any size, made in columns: a million events take some three seconds.

Of a hundred tasks 6 are retried on another worker, 3 fail, 1 reports its progress, 1 is delivered twice and
5 were sent by another task. Of a hundred events one is there twice. Each worker beats every two seconds.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from celeriac.store.columns import SCHEMA
from celeriac.store.place import place_for
from celeriac.store.segment import write_segment

BEGIN = 1_794_614_400.0  # midnight, so that a day has all its events
TASKS_PER_S = 400.0
TASKS_PER_SEGMENT = 60_000
RECORDER = "bench-000001"
NAMES = np.array([f"shop.tasks.job_{number}" for number in range(50)])
HOSTS = np.array([f"celery@web{number}" for number in range(20)])
QUEUES = np.array(["celery", "mail", "video", "slow"])

Columns = dict[str, Any]


def write_log(root: Path, events: int, *, seed: int = 1) -> int:
    """Write a log of at least so many events, and return how many they are."""
    place = place_for(root)
    first = 1
    for table in _segments(seed):
        if first > events:
            break
        last = first + table.num_rows - 1
        numbers = pa.array(np.arange(first, last + 1))
        # The clock of a node is its own; that it rises over all of them harms no rule.
        whole = _filled(table, {"sequence": numbers, "clock": numbers})
        write_segment(place, whole.to_batches(), recorder=RECORDER, first=first, last=last, generation=0)
        first = last + 1
    return first - 1


def _segments(seed: int) -> Iterator[pa.Table]:
    random = np.random.default_rng(seed)
    begin = BEGIN
    while True:
        end = begin + TASKS_PER_SEGMENT / TASKS_PER_S
        rows = pa.concat_tables([_tasks(random, begin, end), _beats(begin, end)])
        twice = rows.take(pa.array(random.integers(0, rows.num_rows, rows.num_rows // 100)))
        rows = pa.concat_tables([rows, twice])
        yield rows.take(pc.sort_indices(rows["received_at"])).combine_chunks()
        begin = end


def _tasks(random: np.random.Generator, begin: float, end: float) -> pa.Table:
    """Return the events of the tasks that are sent within a span of time."""
    count = TASKS_PER_SEGMENT
    uuid = _ids(random, count)
    name, queue = random.choice(NAMES, count), random.choice(QUEUES, count)
    first_host, last_host = random.choice(HOSTS, count), random.choice(HOSTS, count)
    is_retried, is_failed = random.random(count) < 0.06, random.random(count) < 0.03
    is_told, is_doubled = random.random(count) < 0.01, random.random(count) < 0.01
    is_child = random.random(count) < 0.05
    parent = np.where(is_child, np.roll(uuid, 1), None)
    root = np.where(is_child, np.roll(uuid, 1), uuid)
    last_host = np.where(is_retried, last_host, first_host)
    sent = np.sort(random.uniform(begin, end, count))
    received = sent + 0.01
    started = received + random.exponential(2.0, count)
    run = random.exponential(1.0, count)
    gave_up = started + run
    again = np.where(is_retried, gave_up + 3.0, received)
    again_started = np.where(is_retried, again + 0.5, started)
    ended = again_started + run
    described = {
        "name": name, "root_id": root, "parent_id": parent, "kwargs": np.full(count, "{}"),
        "args": np.char.add(np.char.add("(", np.arange(count).astype(str)), ", 'customer')"),
    }  # fmt: skip
    zero: Any = np.zeros(count, np.int64)
    one = zero + 1
    raised = {"traceback": np.full(count, "Traceback (most recent call last): …")}
    everyone = np.full(count, fill_value=True)

    def of(kind: str, chosen: Any, at: Any, host: Any, **more: Any) -> pa.Table:
        columns = {"uuid": uuid, "timestamp": at, "hostname": host, "pid": np.full(count, 4242), **more}
        return _rows(kind, {field: values[chosen] for field, values in columns.items()})

    client = np.full(count, "gen7@shop")
    return pa.concat_tables(
        [
            of("task-sent", everyone, sent, client, **described, queue=queue, retries=zero),
            of("task-received", everyone, received, first_host, **described, retries=zero),
            of("task-received", is_doubled, received + 1.0, first_host, **described, retries=zero),
            of("task-started", everyone, started, first_host),
            of("task-progress", is_told, started + run / 2, first_host),
            of("task-retried", is_retried, gave_up, first_host, **raised, exception=np.full(count, "Busy()")),
            of("task-received", is_retried, again, last_host, **described, retries=one),
            of("task-started", is_retried, again_started, last_host),
            of("task-succeeded", ~is_failed, ended, last_host, runtime=run, result=np.full(count, "42")),
            of("task-failed", is_failed, ended, last_host, **raised, exception=np.full(count, "Wrong()")),
        ]
    )


def _beats(begin: float, end: float) -> pa.Table:
    at = np.tile(np.arange(begin, end, 2.0), len(HOSTS))
    host: Any = np.repeat(HOSTS, len(at) // len(HOSTS))
    active = np.full(len(at), 4)
    more = {"freq": np.full(len(at), 2.0), "active": active, "processed": active}
    return _rows(
        "worker-heartbeat", {"timestamp": at, "hostname": host, "pid": np.full(len(at), 4242), **more}
    )


def _rows(kind: str, columns: Columns) -> pa.Table:
    size = len(columns["timestamp"])
    known = {
        **columns,
        "type": np.full(size, kind),
        "received_at": columns["timestamp"] + 0.001,
        "utcoffset": np.zeros(size),
        "recorder": np.full(size, RECORDER),
    }
    return _filled(pa.table({}), {name: pa.array(values) for name, values in known.items()}, size)


def _filled(table: pa.Table, columns: dict[str, pa.Array], size: int | None = None) -> pa.Table:
    """Return a table of the whole schema: some columns given, the others as they are, or null."""
    rows = table.num_rows if size is None else size

    def column(field: pa.Field) -> Any:
        if field.name in columns:
            return columns[field.name].cast(field.type)
        return table[field.name] if field.name in table.column_names else pa.nulls(rows, field.type)

    return pa.table([column(field) for field in SCHEMA], schema=SCHEMA).combine_chunks()


def _ids(random: np.random.Generator, count: int) -> Any:
    """Return task ids as Celery makes them."""
    digits = random.bytes(16 * count).hex()
    made = (digits[at : at + 32] for at in range(0, 32 * count, 32))
    return np.array([f"{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:]}" for d in made])
