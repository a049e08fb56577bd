from typing import Any

import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import SparkSession

from celeriac.model.events import Received
from celeriac.pipeline.event import narrow
from celeriac.pipeline.schema import LOG
from tests.spark.frames import RECORDER, raw_frame, rows
from tests.spark.task_events import ISO, ISO_AT


def test_what_cannot_be_is_made_as_the_door_makes_it(spark: SparkSession) -> None:
    nan, inf, most = float("nan"), float("inf"), 2**63 - 1
    odd_rows = [
        raw_row(1, timestamp=nan, clock=-1, pid=most, retries=-1, name="", received_at=nan),
        raw_row(2, timestamp=inf, clock=2**53, hostname=None, parent_id="", root_id="", received_at=-inf),
        raw_row(3, timestamp=-0.0, clock=None, pid=None, retries=None, received_at=None),
        raw_row(4, timestamp=4_102_444_800.0, retries=most, received_at=1e300),
        raw_row(5, type="task-succeeded", runtime=nan, retries=3, name="x", eta=ISO),
        raw_row(6, type="task-succeeded", runtime=-1.0, timestamp=None),
        raw_row(7, type="task-ünder-way", timestamp=2.0),
        raw_row(8, eta="12:30"),
        raw_row(9, eta="2026-99-99T00:00"),
        raw_row(10, eta="2026-11-15T01:00:00.25+01:00"),
        raw_row(11, uuid=None),
        raw_row(12, uuid=""),
        raw_row(13, type="task-"),
        raw_row(14, type="worker-heartbeat"),
        raw_row(15, type=None),
    ]

    told = {row["row"]: row for row in rows(narrow(spark.createDataFrame(odd_rows, LOG), ["x", RECORDER]))}

    base = 2**48
    said = {"uuid": "t", "type": "received", "at": 0.0, "clock": 0, "host": "a@x", "pid": 0, "retries": 0}
    none = dict.fromkeys(("name", "queue", "root_id", "parent_id", "runtime", "eta_at", "requeue"))
    blank = said | none | {"seen_at": 5.0}
    assert told == {
        base + 1: blank | {"name": "", "row": base + 1, "seen_at": 0.0},
        base + 2: blank | {"host": "", "row": base + 2, "seen_at": 0.0},
        base + 3: blank | {"row": base + 3, "seen_at": 0.0},
        base + 4: blank | {"row": base + 4, "seen_at": 0.0},
        base + 5: blank | {"type": "succeeded", "row": base + 5},
        base + 6: blank | {"type": "succeeded", "row": base + 6},
        base + 7: blank | {"type": "ünder-way", "at": 2.0, "row": base + 7},
        base + 8: blank | {"row": base + 8},
        base + 9: blank | {"row": base + 9},
        base + 10: blank | {"row": base + 10, "eta_at": ISO_AT + 0.25},
    }


def test_a_recorder_without_a_code_is_an_error(spark: SparkSession) -> None:
    received = Received(timestamp=1.0, clock=1, hostname="a@x", uuid="x")

    stranger = narrow(raw_frame(spark, [received], recorder="stranger"), [RECORDER])

    with pytest.raises(SparkRuntimeException, match="stranger"):
        stranger.collect()


def raw_row(sequence: int, **fields: object) -> tuple[object, ...]:
    said: dict[str, Any] = {
        "recorder": RECORDER,
        "sequence": sequence,
        "type": "task-received",
        "uuid": "t",
        "hostname": "a@x",
        "received_at": 5.0,
        **fields,
    }
    return tuple(said.get(name) for name in LOG.names)
