"""Small frames to test with, and their rows to compare."""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from celeriac.model.events import Event
from celeriac.pipeline.schema import LOG
from celeriac.store.columns import to_batch

RECORDER = "rec-000001"


def raw_frame(
    spark: SparkSession, events: Sequence[Event], *, recorder: str = RECORDER, first: int = 1
) -> DataFrame:
    """Return events as rows of a log, in the order given; the first is number ``first`` of its recorder."""
    columns = to_batch(events, recorder=recorder, first=first).to_pydict()
    return spark.createDataFrame(list(zip(*columns.values(), strict=True)), LOG)


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame as dicts, in an order that depends on them alone."""
    made = [row.asDict(recursive=True) for row in frame.collect()]
    return sorted(made, key=lambda row: [(value is not None, str(value)) for value in row.values()])
