from math import ceil
from random import Random
from typing import Any

from pyspark.sql import SparkSession

from celeriac.model.events import Event, WorkerEvent, WorkerHeartbeat, WorkerOffline, WorkerOnline
from celeriac.pipeline import beat, worker
from celeriac.pipeline.schema import table_schema
from tests.spark.frames import raw_frame, rows

DAY = 1_794_614_400.0  # 2026-11-14 00:00 UTC
NOON = DAY + 43_200
MIDNIGHT = DAY + 86_400


def _event(
    kind: type[WorkerEvent], node: str, at: float, *, pid: int = 1, behind: float = 0.0, **told: Any
) -> Event:
    about = {"freq": 2.0, "active": 1, "processed": 7, "loadavg": (0.5, 1.0, 2.0), **told}
    return kind(hostname=node, pid=pid, clock=1, timestamp=at - behind, local_received=at, **about)


def _life(node: str, begin: float, end: float, *, every: float = 20.0, **told: Any) -> list[Event]:
    """Return the heartbeats of a process from one moment to another, both of them included."""
    beats = [
        _event(WorkerHeartbeat, node, begin + every * n, **told) for n in range(ceil((end - begin) / every))
    ]
    return [*beats, _event(WorkerHeartbeat, node, end, **told)]


def _twice(events: list[Event], seed: int) -> list[Event]:
    return Random(seed).sample(events * 2, len(events) * 2)


def test_beats_are_what_a_process_said_in_a_minute(spark: SparkSession) -> None:
    software: dict[str, Any] = {"sw_ident": "py-celery", "sw_ver": "5.7.0"}
    events = [
        _event(WorkerOnline, "ü@a", NOON + 1, freq=2.0, active=0, processed=0, behind=0.25, **software),
        _event(WorkerHeartbeat, "ü@a", NOON + 3, active=5, processed=9, behind=-0.5, loadavg=(3.0, 1.0, 1.0)),
        _event(WorkerHeartbeat, "ü@a", NOON + 59, freq=5.0, active=None, processed=None, behind=0.125),
        _event(WorkerOffline, "ü@a", NOON + 59.5, loadavg=None),
        _event(WorkerHeartbeat, "ü@a", NOON + 60),
        _event(WorkerHeartbeat, "ü@a", NOON + 4, pid=2),
        # Clocks that cannot be believed say nothing of drift.
        WorkerHeartbeat(hostname="b", pid=3, clock=1, timestamp=0.0, local_received=NOON),
        WorkerHeartbeat(hostname="b", pid=3, clock=1, timestamp=NOON + 90_000, local_received=NOON),
    ]
    raw = raw_frame(spark, _twice(events, 1))

    made = beat.beats(raw)

    found = rows(made)
    assert made.schema.simpleString() == table_schema("beats").simpleString()
    assert {(row["worker"], row["pid"], row["minute_at"], row["drift_min"]) for row in found} == {
        ("ü@a", 1, NOON, -0.5), ("ü@a", 1, NOON + 60, 0.0), ("ü@a", 2, NOON, 0.0), ("b", 3, NOON, None),
    }  # fmt: skip
    assert next(row for row in found if row["last_at"] == NOON + 59.5) == {
        "worker": "ü@a", "pid": 1, "minute_at": NOON, "first_at": NOON + 1, "last_at": NOON + 59.5,
        "online_at": NOON + 1, "offline_at": NOON + 59.5, "freq": 5.0, "active": 5, "processed": 9,
        "load": 3.0, "drift_min": -0.5, "drift_max": 0.25, "software": "py-celery 5.7.0", "day": "2026-11-14",
    }  # fmt: skip
    assert "SortAggregate" not in _plan(beat.beats(raw).drop("software"))


def test_beats_of_two_reads_merge_to_those_of_one(spark: SparkSession) -> None:
    random = Random(7)
    kinds = (WorkerOnline, WorkerHeartbeat, WorkerHeartbeat, WorkerOffline)
    events = [
        _event(
            random.choice(kinds),
            random.choice("ab"),
            NOON + random.uniform(0, 200),
            pid=random.randint(1, 2),
            behind=random.uniform(-3, 3),
            active=random.choice((None, 3)),
            sw_ver=random.choice((None, "5.6", "5.7")),
        )
        for _ in range(150)
    ]
    one, other = raw_frame(spark, events[:90]), raw_frame(spark, events[50:], recorder="rec-000002")

    apart = beat.merged(beat.beats(other).unionByName(beat.beats(one)))

    together = beat.beats(one.unionByName(other))
    assert rows(apart) == rows(together)
    assert rows(beat.merged(together)) == rows(together)


def test_sessions_end_as_their_processes_did(spark: SparkSession) -> None:
    events = [
        # Someone is there all the time, and told of by two recorders.
        *_life("all", DAY, MIDNIGHT - 1, every=50.0),
        *_life("goes", NOON, NOON + 100), _event(WorkerOffline, "goes", NOON + 101),
        # A beat that the other recorder got after the farewell, in the minute after it.
        *_life("trails", NOON, NOON + 59), _event(WorkerOffline, "trails", NOON + 59.5),
        _event(WorkerHeartbeat, "trails", NOON + 60.5),
        *_life("dies", NOON, NOON + 100),
        # Silence of a minute and its allowance, to the second, and one more.
        *_life("holds", NOON, NOON + 100), *_life("holds", NOON + 164, NOON + 200),
        *_life("breaks", NOON, NOON + 100), *_life("breaks", NOON + 165, NOON + 200),
        *_life("slow", NOON, NOON + 100, freq=60.0), *_life("slow", NOON + 280, NOON + 300, freq=60.0),
        # Another process of the node, at once.
        *_life("back", NOON, NOON + 100, pid=8), _event(WorkerOnline, "back", NOON + 103, pid=9),
        *_life("back", NOON + 105, MIDNIGHT - 1, every=50.0, pid=9),
        # The same process number, as in containers: with a farewell in the same minute, and without.
        *_life("same", NOON, NOON + 70), _event(WorkerOffline, "same", NOON + 71),
        _event(WorkerOnline, "same", NOON + 72), *_life("same", NOON + 74, NOON + 200),
        *_life("cold", NOON, NOON + 90), _event(WorkerOnline, "cold", NOON + 100),
        *_life("cold", NOON + 101, NOON + 200),
        # Two recorders hear one word on two sides of a minute.
        _event(WorkerOnline, "echo", NOON + 59.99), _event(WorkerOnline, "echo", NOON + 60.02),
        *_life("echo", NOON + 61, NOON + 100),
    ]  # fmt: skip
    beats = beat.beats(raw_frame(spark, _twice(events, 3)))

    made = worker.sessions(beats)

    assert made.schema.simpleString() == table_schema("workers").simpleString()
    found: dict[str, list[Any]] = {}
    for row in sorted(made.collect(), key=lambda row: row["begin_at"]):
        times = (round(row["begin_at"] - NOON, 2), round(row["end_at"] - NOON, 2))
        found.setdefault(row["worker"], []).append((*times, row["ending"], row["is_restart"]))
    assert found == {
        "all": [(-43_200, 43_199, "midnight", False)],
        "goes": [(0, 101, "offline", False)],
        "trails": [(0, 60.5, "offline", False)],
        "dies": [(0, 100, "lost", False)],
        "holds": [(0, 200, "lost", False)],
        "breaks": [(0, 100, "lost", False), (165, 200, "lost", False)],
        "slow": [(0, 300, "lost", False)],
        "back": [(0, 100, "lost", False), (103, 43_199, "midnight", True)],
        "same": [(0, 71, "offline", False), (72, 200, "lost", True)],
        # When it was last heard before it was back is known to the minute.
        "cold": [(0, 60, "lost", False), (100, 200, "lost", False)],
        "echo": [(59.99, 100, "lost", False)],
    }


def test_a_session_is_of_one_day_and_open_where_the_data_ends(spark: SparkSession) -> None:
    events = [
        *_life(
            "a", MIDNIGHT - 100, MIDNIGHT + 100, behind=-20.0, active=3, sw_ident="py-celery", sw_ver="5.7.0"
        ),
        *_life("b", MIDNIGHT - 100, MIDNIGHT - 70, behind=30.0),
        # All of its events were late, and one by less than the others.
        *_life("b", MIDNIGHT + 10, MIDNIGHT + 90, behind=40.0),
        _event(WorkerHeartbeat, "b", MIDNIGHT + 50, behind=1.5, active=9, loadavg=(8.0, 1.0, 1.0)),
    ]
    beats = beat.beats(raw_frame(spark, events))

    made = worker.sessions(beats)

    found = {(row["worker"], row["day"]): row for row in rows(made)}
    assert {key: (row["begin_at"] - MIDNIGHT, row["ending"], row["drift"]) for key, row in found.items()} == {
        ("a", "2026-11-14"): (-100, "midnight", -20.0),
        ("a", "2026-11-15"): (0, "open", -20.0),
        ("b", "2026-11-14"): (-100, "open", 30.0),
        ("b", "2026-11-15"): (10, "open", 1.5),
    }
    assert found["a", "2026-11-14"]["software"] == "py-celery 5.7.0"
    assert (found["b", "2026-11-15"]["active_max"], found["b", "2026-11-15"]["load_max"]) == (9, 8.0)


def _plan(frame: Any) -> str:
    plan: str = frame._jdf.queryExecution().executedPlan().toString()
    return plan
