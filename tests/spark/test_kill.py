"""The process that drives Spark is killed at every point: what is published is whole, and ends up the same.

A batch is killed, and then a stream that goes on with it. ``HYPOTHESIS_PROFILE=long`` also kills five batches
one after the other, and five streams.
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
#: How a job runs, where it is killed, and at which visit. Each goes on with what those before it have left.
KILLS = {"batch-stream": [("run", "tasks-staged", 1), ("follow", "before-commit", 1)]}
if IS_LONG:
    # These begin without tables. What is published once is not visited again.
    EARLY = [("chunk-read", 1), ("tasks-staged", 1), ("before-publish", 1)]
    BATCH = [*EARLY, ("tasks-staged", 2), ("after-publish", 1)]
    STREAM = [*EARLY, ("after-publish", 1), ("before-commit", 1)]
    KILLS["batch"] = [("run", *each) for each in BATCH]
    KILLS["stream"] = [("follow", *each) for each in STREAM]
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


@pytest.mark.parametrize("name", KILLS)
def test_jobs_that_are_killed_again_and_again_end_with_the_tables_of_one_that_never_was(
    spark: SparkSession, log: Path, whole: Path, half: Half, tmp_path: Path, *, name: str
) -> None:
    warehouse, begins_empty = tmp_path / "warehouse", name != "batch-stream"
    before, chunks = (0, 2) if begins_empty else (manifest_of(half.warehouse).version, 1)
    if not begins_empty:
        copytree(half.warehouse, warehouse)

    with Reader(warehouse) as reader:
        codes = [
            run_job(
                log,
                warehouse,
                mode=mode,
                events=len(EVENTS) + 1,
                point=point,
                visit=visit,
                chunk_events=HALF,
            )
            for mode, point, visit in KILLS[name]
        ]
        job = Pipeline(spark, log, warehouse, chunk_events=HALF)
        if name == "batch":
            job.run()
        else:
            follow_until(job, warehouse, len(EVENTS))

    assert codes == [KILLED] * len(KILLS[name])
    assert tables_of(warehouse) == tables_of(whole)
    assert reader.wrong == []
    assert reader.versions
    assert manifest_of(warehouse).version == before + chunks
