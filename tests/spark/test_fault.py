from math import inf, nan
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from celeriac.model.table import TABLES
from celeriac.pipeline import fault
from celeriac.pipeline.schema import LOG, table_schema
from tests.spark.frames import rows

DAY = 1_794_614_400.0  # 2026-11-14 00:00 UTC
RECORDERS = ("rec-000001", "rec-000002")
EVENT: dict[str, Any] = {
    "recorder": RECORDERS[0], "type": "task-started", "uuid": "t1", "hostname": "celery@a",
    "clock": 1, "pid": 1, "timestamp": DAY, "received_at": DAY,
}  # fmt: skip


def _log(spark: SparkSession, events: list[dict[str, Any]]) -> DataFrame:
    """Return rows of a log that a recorder of ours would not write."""
    made = [{"sequence": number, **EVENT, **event} for number, event in enumerate(events, 1)]
    return spark.createDataFrame([tuple(row.get(name) for name in LOG.names) for row in made], LOG)


def test_events_that_are_wrong_are_counted_by_kind_recorder_and_day(spark: SparkSession) -> None:
    raw = _log(
        spark,
        [
            {},
            {"name": "'; DROP TABLE tasks; --", "uuid": "ü\u0000/../day=2026-01-01", "args": "x" * 2**20},
            {"uuid": None},
            {"uuid": "", "recorder": RECORDERS[1], "sequence": 40},
            {"uuid": None, "received_at": DAY + 86_400, "timestamp": 0.0},
            {"uuid": None, "type": "worker-online"},
            *(
                {"timestamp": moment}
                for moment in (None, nan, inf, -inf, -1.0, 1e300, 946_684_799.0, 4_102_444_800.0)
            ),
            {"timestamp": 946_684_800.0},
            {"timestamp": DAY + 86_400},
            {"timestamp": DAY + 86_401},
            {"args": "é" * (2**19 + 1)},
            {"type": "worker-online", "uuid": None, "rest": "x" * (2**20 + 1)},
        ],
    )

    made = fault.faults(raw.unionByName(raw), RECORDERS)

    found = {(row["kind"], row["source"], row["day"]): (row["first_row"], row["rows"]) for row in rows(made)}
    assert made.schema.simpleString() == table_schema("faults").simpleString()
    assert found == {
        ("no_id", RECORDERS[0], "2026-11-14"): (3, 1),
        ("no_id", RECORDERS[1], "2026-11-14"): (2**48 + 40, 1),
        ("no_id", RECORDERS[0], "2026-11-15"): (5, 1),
        ("absurd_time", RECORDERS[0], "2026-11-15"): (5, 1),
        ("absurd_time", RECORDERS[0], "2026-11-14"): (7, 9),
        ("oversized", RECORDERS[0], "2026-11-14"): (18, 2),
    }


def test_a_receipt_that_is_no_moment_is_filed_and_stops_nothing(spark: SparkSession) -> None:
    raw = _log(spark, [{"uuid": None, "received_at": moment} for moment in (None, nan, inf, -5.0, 1e300)])

    made = fault.faults(raw, RECORDERS)

    assert [(row["kind"], row["first_row"], row["rows"], row["day"]) for row in rows(made)] == [
        ("no_id", 1, 5, "1970-01-01")
    ]


def test_counts_of_different_rows_add_up(spark: SparkSession) -> None:
    raw = _log(spark, [{"uuid": None, "timestamp": 0.0 if n % 2 else DAY} for n in range(9)])
    parts = [fault.faults(raw.where(test), RECORDERS) for test in ("sequence <= 4", "sequence > 4")]

    made = fault.merged(parts[1].unionByName(parts[0]))

    assert made.columns == [column.name for column in TABLES["faults"].columns]
    assert rows(made) == rows(fault.faults(raw, RECORDERS))
