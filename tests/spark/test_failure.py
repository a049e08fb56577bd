from typing import Any

from pyspark.sql import SparkSession

from celeriac.model.events import Event, Failed, Gap, Other, Retried, Started
from celeriac.pipeline import failure, gap
from celeriac.pipeline.schema import table_schema
from tests.spark.frames import raw_frame, rows

DAY = 1_794_614_400.0  # 2026-11-14 00:00 UTC
FIRST, SECOND = "rec-000001", "rec-000002"


def _raised(kind: type[Failed | Retried], uuid: str, at: float, **fields: Any) -> Event:
    given = {"clock": 7, "hostname": "celery@a", "pid": 12, "local_received": at + 0.5, **fields}
    return kind(uuid=uuid, timestamp=at, **given)


def test_a_raise_is_one_row_however_often_and_wherever_it_was_recorded(spark: SparkSession) -> None:
    events = [
        _raised(Failed, "t1", DAY + 1, exception="ValueError('ü; DROP TABLE tasks --')"),
        _raised(Retried, "t2", DAY + 2, exception="x" * 5000, traceback="y" * 5000),
        _raised(Retried, "t2", DAY + 3, exception=None),
        # Before midnight by the worker's clock, and after it by the recorder's.
        _raised(Failed, "t3", DAY + 86_399.9),
        _raised(Failed, "t4", 0.0, local_received=DAY + 9),
        Started(uuid="t5", timestamp=DAY, clock=1, hostname="celery@a", local_received=DAY),
    ]
    one = raw_frame(spark, events, recorder=FIRST, first=11)
    other = raw_frame(spark, events[::-1], recorder=SECOND, first=2**40)

    made = failure.failures(one.unionByName(other).unionByName(one), [FIRST, SECOND])

    told = {(row["uuid"], row["raised_at"]): row for row in rows(made)}
    assert made.schema.simpleString() == table_schema("failures").simpleString()
    assert len(told) == made.count()
    assert {key: (row["outcome"], row["row"], row["day"]) for key, row in told.items()} == {
        ("t1", DAY + 1): ("FAILURE", 11, "2026-11-14"),
        ("t2", DAY + 2): ("RETRY", 12, "2026-11-14"),
        ("t2", DAY + 3): ("RETRY", 13, "2026-11-14"),
        ("t3", DAY + 86_399.9): ("FAILURE", 14, "2026-11-15"),
        ("t4", None): ("FAILURE", 15, "2026-11-14"),
    }
    assert told["t1", DAY + 1]["exception"] == "ValueError('ü; DROP TABLE tasks --')"
    assert told["t2", DAY + 2]["exception"] == "x" * 1000


def test_failures_of_two_reads_merge_to_those_of_one(spark: SparkSession) -> None:
    events = [_raised(Failed if n % 3 else Retried, f"t{n % 5}", DAY + n % 7) for n in range(40)]
    one = raw_frame(spark, events[:25], recorder=FIRST)
    other = raw_frame(spark, events[15:], recorder=SECOND)

    apart = failure.failures(other, [FIRST, SECOND]).unionByName(failure.failures(one, [FIRST, SECOND]))

    together = failure.failures(one.unionByName(other), [FIRST, SECOND])
    assert rows(failure.merged(apart)) == rows(together)
    assert rows(failure.merged(together)) == rows(together)
    assert 1 < together.where("row >= 281474976710656").count() < together.count()  # of the second recorder


def test_a_gap_is_one_row_if_a_recorder_told_it(spark: SparkSession) -> None:
    common: dict[str, Any] = {
        "clock": 1,
        "hostname": "rec@a",
        "timestamp": DAY + 30,
        "local_received": DAY + 30,
    }
    told = Gap(since=DAY - 5, until=DAY + 30, reason="link lost; DROP TABLE gaps", attempts=3, **common)
    forged = Other(group="cluster", subject="gap", **common)
    raw = raw_frame(spark, [told, forged])

    made = gap.gaps(raw.unionByName(raw))

    assert made.schema.simpleString() == table_schema("gaps").simpleString()
    assert rows(made) == [
        {
            "recorder": FIRST,
            "since_at": DAY - 5,
            "until_at": DAY + 30,
            "reason": "link lost; DROP TABLE gaps",
            "attempts": 3,
            "day": "2026-11-14",
        }
    ]
