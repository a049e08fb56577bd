"""The process that drives Spark is killed at every point: what is published is whole, and ends up the same.

``HYPOTHESIS_PROFILE=long`` kills it five times in a batch and five times in a stream.
"""

from pathlib import Path
from threading import Event, Thread

import pytest

from celeriac.store.manifest import read_manifest
from celeriac.store.place import place_for
from tests.live import IS_LONG
from tests.spark.jobs import run_job
from tests.spark.published import Rows, events_of, manifest_of, tables_of, write_log

#: Where, and at which visit: the first chunk has no tables before it, and the second has.
BATCH = [("tasks-staged", 2)]
STREAM = [("before-commit", 1)]
if IS_LONG:
    # What is published once is not visited again.
    EARLY = [("chunk-read", 1), ("tasks-staged", 1), ("before-publish", 1)]
    BATCH = [*EARLY, *BATCH, ("after-publish", 1)]
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


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed") / "log"
    write_log(folder, events_of(24), segments=2)
    return folder


@pytest.fixture(scope="module")
def undisturbed(log: Path) -> Rows:
    warehouse = log.parent / "undisturbed"
    assert run_job(log, warehouse) == 0
    return tables_of(warehouse)


def test_a_batch_that_is_killed_again_and_again_ends_with_the_tables_of_one_that_never_was(
    log: Path, undisturbed: Rows, tmp_path: Path
) -> None:
    warehouse = tmp_path / "warehouse"

    with Reader(warehouse) as reader:
        codes = [run_job(log, warehouse, point=point, visit=visit) for point, visit in BATCH]
        codes.append(run_job(log, warehouse))

    assert codes == [KILLED] * len(BATCH) + [0]
    assert tables_of(warehouse) == undisturbed
    assert reader.wrong == []
    assert reader.versions
    assert manifest_of(warehouse).version == 2


def test_a_stream_that_is_killed_again_and_again_ends_with_the_tables_of_a_batch(
    log: Path, undisturbed: Rows, tmp_path: Path
) -> None:
    warehouse = tmp_path / "warehouse"
    events = len(events_of(24))

    with Reader(warehouse) as reader:
        codes = [
            run_job(log, warehouse, mode="follow", events=events + 1, point=point, visit=visit)
            for point, visit in STREAM
        ]
        codes.append(run_job(log, warehouse, mode="follow", events=events))

    assert codes == [KILLED] * len(STREAM) + [0]
    assert tables_of(warehouse) == undisturbed
    assert reader.wrong == []
