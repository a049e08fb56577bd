"""A small log and its tables, which many tests look at."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from celeriac.model.events import TaskEvent
from celeriac.pipeline.event import narrow
from celeriac.pipeline.fold import fold
from celeriac.pipeline.job import Pipeline
from celeriac.pipeline.schema import table_schema
from tests.event_logs import seal
from tests.live import IS_LONG
from tests.spark.frames import RECORDER, raw_frame
from tests.spark.published import HALF, TASKS, Half, batches, events_of, write_log
from tests.spark.task_events import many_tasks

#: Clusters of several Javas, and a million tasks in memory, take minutes: ``make soak`` has them.
_LONG = ["test_cluster.py", "test_million.py"]
collect_ignore = [] if IS_LONG else _LONG


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # A name that Spark would take for a pattern, or for something encoded.
    folder = tmp_path_factory.mktemp("a log [1] {x} 50%20")
    write_log(folder, events_of(TASKS))
    return folder


@pytest.fixture(scope="session")
def whole(split_spark: SparkSession, log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of the log, by one run that took it all at once; others are compared with them."""
    warehouse = tmp_path_factory.mktemp("tables of [it]") / "w"
    report = Pipeline(split_spark, log, warehouse).run()
    assert report.chunks == 1
    return warehouse


@pytest.fixture(scope="session")
def half(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Half:
    """Tests use copies of both folders."""
    folder = tmp_path_factory.mktemp("half")
    log, warehouse = folder / "log", folder / "warehouse"
    write_log(log, events_of(TASKS)[:HALF], segments=2)
    late = iter(batches()[:1])

    def at_point(point: str) -> None:
        if point == "before-publish":
            for first, batch in late:
                seal(log, batch, recorder="rec-1", first=first)

    run = Pipeline(spark, log, warehouse, chunk_events=HALF // 2, at=at_point).run()
    return Half(log, warehouse, run)


@pytest.fixture(scope="session")
def events() -> list[TaskEvent]:
    """The events of tasks of all sorts."""
    return many_tasks(20_261_115, regular=250, wild=450, usual=250)


@pytest.fixture(scope="session")
def frame(spark: SparkSession, compiled_spark: SparkSession, events: list[TaskEvent]) -> DataFrame:
    """The tasks of these events as the product makes them: others are compared with these."""
    made = fold(narrow(raw_frame(compiled_spark, events), [RECORDER]))
    return spark.createDataFrame(made.collect(), table_schema("tasks"))
