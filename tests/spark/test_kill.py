"""The process that drives Spark is killed at every point: what is published is whole, and ends up the same.

``HYPOTHESIS_PROFILE=long`` kills it five times in a batch and five times in a stream.
"""

from pathlib import Path
from shutil import copytree
from threading import Event, Thread

import pytest
from pyspark.sql import SparkSession

from celeriac.pipeline.job import Pipeline
from celeriac.store.manifest import read_manifest
from celeriac.store.place import place_for
from tests.live import IS_LONG
from tests.spark.jobs import run_job
from tests.spark.published import (
    HALF,
    TASKS,
    Half,
    Rows,
    events_of,
    follow_until,
    manifest_of,
    tables_of,
)

EVENTS = events_of(TASKS)
#: Where, and at which visit. A batch begins with tables of the first half, and is killed in the second.
BATCH = [("tasks-staged", 1)]
STREAM = [("before-commit", 1)]
if IS_LONG:
    # It begins without tables. What is published once is not visited again.
    EARLY = [("chunk-read", 1), ("tasks-staged", 1), ("before-publish", 1)]
    BATCH = [*EARLY, ("tasks-staged", 2), ("after-publish", 1)]
    STREAM = [*EARLY, ("after-publish", 1), *STREAM]
KILLED = 137


class Reader:
    """Reads whatever is published, all the time, and says what it found wrong."""

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse
        self._stop = Event()
        self._thread = Thread(target=self._read, daemon=True)
        self.versions: set[int] = set()
        self.wrong: list[str] = []

    def __enter__(self) -> "Reader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._stop.wait(0.05):
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - whatever a reader meets is a finding
                self.wrong.append(repr(error))
                return

    def _look(self) -> None:
        manifest = read_manifest(place_for(self._warehouse))
        if manifest is None or manifest.version in self.versions:
            return
        tables: Rows = tables_of(self._warehouse, manifest)
        ids = [row[1] for row in tables["tasks"]]
        # Of one moment: no task twice, and no attempt without its task.
        if len(ids) != len(set(ids)) or not {row[1] for row in tables["attempts"]} <= set(ids):
            self.wrong.append(f"version {manifest.version} is not of one moment")
        self.versions.add(manifest.version)


@pytest.fixture
def warehouse(half: Half, tmp_path: Path) -> Path:
    """A warehouse with the first half of the log; in the long form an empty one."""
    folder = tmp_path / "warehouse"
    return folder if IS_LONG else copytree(half.warehouse, folder)


def test_a_batch_that_is_killed_again_and_again_ends_with_the_tables_of_one_that_never_was(
    spark: SparkSession, log: Path, whole: Path, warehouse: Path
) -> None:
    before, chunks = (0, 2) if IS_LONG else (manifest_of(warehouse).version, 1)
    with Reader(warehouse) as reader:
        codes = [
            run_job(log, warehouse, point=point, visit=visit, chunk_events=HALF) for point, visit in BATCH
        ]
        Pipeline(spark, log, warehouse, chunk_events=HALF).run()

    assert codes == [KILLED] * len(BATCH)
    assert tables_of(warehouse) == tables_of(whole)
    assert reader.wrong == []
    assert reader.versions
    assert manifest_of(warehouse).version == before + chunks


def test_a_stream_that_is_killed_again_and_again_ends_with_the_tables_of_a_batch(
    spark: SparkSession, log: Path, whole: Path, tmp_path: Path
) -> None:
    warehouse = tmp_path / "warehouse"
    chunk_events = HALF if IS_LONG else len(EVENTS)

    with Reader(warehouse) as reader:
        codes = [
            run_job(
                log,
                warehouse,
                mode="follow",
                events=len(EVENTS) + 1,
                point=point,
                visit=visit,
                chunk_events=chunk_events,
            )
            for point, visit in STREAM
        ]
        follow_until(Pipeline(spark, log, warehouse, chunk_events=chunk_events), warehouse, len(EVENTS))

    assert codes == [KILLED] * len(STREAM)
    assert tables_of(warehouse) == tables_of(whole)
    assert reader.wrong == []
