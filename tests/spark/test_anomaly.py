from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from celeriac.pipeline.anomaly import anomalies
from celeriac.pipeline.schema import HISTORY, table_schema
from tests.spark.frames import rows

NOON = 1_794_657_600.0  # 2026-11-14 12:00 UTC
DAY = "2026-11-14"
OTHER_DAY = "2026-11-13"

Fields = dict[str, Any]


def _frame(spark: SparkSession, table: str, given: Iterable[Fields]) -> DataFrame:
    schema = table_schema(table)
    made = [{"day": DAY, **row} for row in given]
    return spark.createDataFrame([tuple(row.get(name) for name in schema.names) for row in made], schema)


def _held(uuid: str, node: str, pid: int, at: float, *, phase: str = "running", **given: Any) -> Fields:
    """Return a task that a process received, after another process had."""
    common = {"clock": 1, "retries": 0, "host": node}
    history = [
        {"type": "sent", "at": at - 9, **common, "pid": 7},
        {"type": "received", "at": at - 5, **common, "pid": pid + 1000},
        {"type": "received", "at": at, **common, "pid": pid},
    ]
    told = [tuple(event.get(name) for name in HISTORY.names) for event in history]
    return {"uuid": uuid, "worker": node, "phase": phase, "name": "shop.pay", "history": told, **given}


def _session(node: str, pid: int, begin: float, end: float, ending: str, **given: Any) -> Fields:
    moments = {"begin_at": NOON + begin, "end_at": NOON + end}
    return {"worker": node, "pid": pid, **moments, "ending": ending, "is_restart": False, **given}


TASKS = [
    _held("lost", "dead", 1, NOON + 50),
    _held("left", "gone", 2, NOON + 50, phase="received"),
    _held("last-breath", "dead", 1, NOON + 130),
    _held("replaced", "back", 3, NOON + 50, name=None),
    _held("on the new one", "back", 4, NOON + 150),
    _held("in a container", "same", 1, NOON + 50, day=OTHER_DAY),
    _held("heard again", "pause", 5, NOON + 50),
    _held("alive", "fine", 6, NOON + 50),
    _held("ended", "dead", 1, NOON + 50, phase="done"),
    _held("waits", "dead", 1, NOON + 50, phase="retry_wait"),
    _held("later than anything", "dead", 1, NOON + 500),
    _held("beside another", "twins", 10, NOON + 50),
    _held("overnight", "night", 12, NOON + 50),
    _held("no moment", "back", 4, 0.0),
    _held("of a stranger", "unheard", 1, NOON + 50),
    # By the worker's clock, an hour behind, it was there before the worker was.
    _held("early", "behind", 8, NOON + 50 - 3600),
]
SESSIONS = [
    _session("dead", 1, 0, 100, "lost"),
    _session("gone", 2, 0, 100, "offline"),
    _session("back", 3, 0, 60, "lost"),
    _session("back", 4, 100, 999, "open", is_restart=True),
    _session("same", 1, 0, 60, "offline"),
    _session("same", 1, 70, 999, "open", is_restart=True),
    _session("pause", 5, 0, 60, "lost"),
    _session("pause", 5, 300, 999, "open"),
    _session("fine", 6, 0, 999, "open", drift=-16.0),
    _session("behind", 8, 0, 100, "lost", drift=3600.0),
    _session("twins", 10, 0, 999, "open"),
    _session("twins", 11, 100, 999, "open", is_restart=True),
    _session("night", 12, 0, 100, "midnight"),
    _session("night", 13, 300, 999, "open"),
    _session("night", 14, 600, 999, "open", is_restart=True),
    _session("ahead", 9, 0, 999, "open", drift=-16.5),
]


def _minute(name: str | None, at: float, retried: int, attempts: int, **given: Any) -> Fields:
    return {"name": name, "begin_at": NOON + at, "retried": retried, "attempts": attempts, **given}


MINUTES = [
    # Of two workers together.
    _minute("storm", 0, 30, 60, worker="a"),
    _minute("storm", 0, 20, 40, worker="b"),
    _minute("storm", 60, 49, 49),
    _minute("few of many", 0, 60, 121),
    # What is filed under two days are two.
    _minute("two days", 0, 30, 30),
    _minute("two days", 0, 30, 30, day=OTHER_DAY),
]


def _hour(name: str, hour: int, runs: int, mean: float, **given: Any) -> Fields:
    return {"name": name, "begin_at": NOON + 3600 * hour, "runs": runs, "run_sum": runs * mean, **given}


HOURS = [
    *(_hour("slow", hour, 100, 1.0, day=OTHER_DAY) for hour in range(-5, 0)),
    _hour("slow", 0, 10, 4.0, worker="a"),
    _hour("slow", 0, 10, 2.0, worker="b"),
    _hour("nearly", -1, 100, 1.0),
    _hour("nearly", 0, 100, 2.99),
    _hour("rare", -1, 100, 1.0),
    _hour("rare", 0, 19, 50.0),
    _hour("new", 0, 100, 50.0),
    _hour("once", -1, 19, 1.0),
    _hour("once", 0, 100, 50.0),
    _hour("instant", -1, 100, 0.0),
    _hour("instant", 0, 100, 50.0),
    _hour("hostile", -1, 100, 1.0),
    _hour("hostile", 0, 100, 1e300),
    _hour("hostile", 1, 100, float("nan")),
]


def _gap(recorder: str, length: float) -> Fields:
    return {"recorder": recorder, "since_at": NOON, "until_at": NOON + length, "reason": "100% of '%s' lost"}


GAPS = [_gap("short", 0.5), _gap("long", 1.0), _gap("back in time", -5.0)]


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> list[Fields]:
    """Return all that is wrong in the tables above."""
    made = anomalies(
        tasks=_frame(spark, "tasks", TASKS),
        hours=_frame(spark, "rollups_hour", HOURS),
        minutes=_frame(spark, "rollups_minute", MINUTES),
        workers=_frame(spark, "workers", SESSIONS),
        gaps=_frame(spark, "gaps", GAPS),
    )
    assert made.schema.simpleString() == table_schema("anomalies").simpleString()
    return rows(made)


def _of(found: list[Fields], kind: str) -> dict[str, tuple[Any, ...]]:
    told = [row for row in found if row["kind"] == kind]
    made = {
        row["subject"]: (row["noticed_at"] - NOON, row["value"], row["usual"], row["day"]) for row in told
    }
    assert len(made) == len(told)
    return made


def test_a_task_is_stuck_if_the_process_that_had_it_is_gone(found: list[Fields]) -> None:
    stuck = _of(found, "stuck_task")

    assert stuck == {
        "lost": (100, 50, None, DAY),
        "left": (100, 50, None, DAY),
        "last-breath": (130, 0, None, DAY),
        "replaced": (60, 10, None, DAY),
        "in a container": (70, 20, None, OTHER_DAY),
        "overnight": (300, 250, None, DAY),
        "early": (100, 50, None, DAY),
    }
    assert next(row["text"] for row in found if row["subject"] == "lost") == (
        "shop.pay was on dead, process 1, which was lost after 50.0 s; its outcome is unknown"
    )


def test_a_storm_is_many_retries_that_are_half_of_the_attempts(found: list[Fields]) -> None:
    assert _of(found, "retry_storm") == {"storm": (0, 50, 50, DAY)}


def test_a_task_is_slow_against_its_own_other_hours(found: list[Fields]) -> None:
    assert _of(found, "slow_task") == {"slow": (0, 3.0, 1.0, DAY)}


def test_a_clock_is_off_if_a_worker_would_be_said_to_drift(found: list[Fields]) -> None:
    drifts = _of(found, "clock_drift")

    assert drifts == {"behind": (0, 3600.0, 16.0, DAY), "ahead": (0, -16.5, 16.0, DAY)}
    assert {row["text"] for row in found if row["kind"] == "clock_drift"} == {
        "its clock is 3600.0 s behind the clock of the recorder",
        "its clock is 16.5 s ahead of the clock of the recorder",
    }


def test_a_gap_is_wrong_if_it_is_long_enough_to_miss_something(found: list[Fields]) -> None:
    gaps = _of(found, "gap")

    assert gaps == {"long": (0, 1.0, 1.0, DAY)}
    assert next(row["text"] for row in found if row["kind"] == "gap") == (
        "no events received for 1.0 s: 100% of '%s' lost"
    )
