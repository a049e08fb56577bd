"""Snapshots in Parquet files: a folder for each, without secrets, and none longer than wanted."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from celeriac import State
from celeriac.core.redaction import Redactor
from celeriac.errors import CallerError
from celeriac.node.camera import Film, Polaroid
from celeriac.store.parquet_camera import TASKS, WORKERS, ParquetCamera
from tests.builders import AT, WORKER, task
from tests.unit.core.test_snapshot import busy_state

FOLDER = "snapshot=20261115T005017.250000Z"


def rows(path: Path, schema: pa.Schema) -> list[dict[str, Any]]:
    table = pq.ParquetFile(path).read()
    assert table.schema.equals(schema)
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def test_a_snapshot_has_a_row_for_each_worker_and_each_task(tmp_path: Path) -> None:
    camera = ParquetCamera(tmp_path, now=lambda: AT)
    state = busy_state()

    camera.on_shutter(state)

    (first, second) = rows(tmp_path / FOLDER / "tasks.parquet", TASKS)
    (worker,) = rows(tmp_path / FOLDER / "workers.parquet", WORKERS)
    told = state.tasks["t1"].as_dict()
    same = ("uuid", "name", "state", "args", "result", "exception", "runtime", "received", "clock", "retries")
    assert {name: first[name] for name in same} == {name: told[name] for name in same}
    assert (first["host"], first["parent_id"], first["snapshot_at"]) == (WORKER, "t0", AT)
    assert (second["uuid"], second["state"], second["name"]) == ("t2", "PROGRESS", None)
    assert (worker["hostname"], worker["processed"], worker["loadavg"]) == (WORKER, 7, [2.55, 1.6, 0.73])


def test_each_snapshot_has_a_folder_of_its_own(tmp_path: Path) -> None:
    moments = iter([AT, AT + 1])
    camera = ParquetCamera(str(tmp_path), now=lambda: next(moments))

    camera.on_shutter(busy_state())
    camera.on_shutter(State())

    # By the name of its folder, as whatever reads many Parquet files does.
    table = pq.read_table(tmp_path, partitioning="hive")
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("snapshot=*/*"))
    assert len(files) == 4
    assert files[0] == f"{FOLDER}/tasks.parquet"
    assert len(set(table["snapshot"].to_pylist())) == 1
    assert rows(tmp_path / files[2], TASKS) == []


def test_secrets_are_masked_unless_told_otherwise(tmp_path: Path) -> None:
    state = State()
    state.event(task("received", "t1", name="shop.pay", kwargs="{'password': 'hunter2'}"))
    state.event(task("failed", "t1", clock=30, exception="hunter3", traceback="token=hunter2"))

    def kept(name: str, redact: Redactor | bool) -> dict[str, Any]:
        ParquetCamera(tmp_path / name, redact=redact, now=lambda: AT).on_shutter(state)
        (row,) = rows(tmp_path / name / FOLDER / "tasks.parquet", TASKS)
        return row

    masked, whole = kept("masked", redact=True), kept("whole", redact=False)
    dropped = kept("dropped", redact=Redactor({"shop.*": "drop"}))

    assert "hunter2" not in str(masked)
    assert masked["exception"] == "hunter3"
    assert str(whole).count("hunter2") == 2
    assert (dropped["kwargs"], dropped["exception"], dropped["name"]) == (None, None, "shop.pay")


def test_snapshots_that_are_too_old_go_and_nothing_else(tmp_path: Path) -> None:
    now = [AT]
    camera = ParquetCamera(tmp_path, keep=60.0, now=lambda: now[0])
    camera.on_shutter(busy_state())
    now[0] = AT + 50
    camera.on_shutter(busy_state())
    (tmp_path / "snapshot=notes").mkdir()
    (tmp_path / "snapshot=notes" / "tasks.parquet").write_text("mine")
    (tmp_path / FOLDER / "mine.txt").write_text("mine")
    now[0] = AT + 61

    removed = camera.on_cleanup()
    removed_again = camera.on_cleanup()

    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("snapshot=*/*"))
    assert (removed, removed_again) == (2, 0)
    assert left == [
        f"{FOLDER}/mine.txt",
        "snapshot=20261115T005107.250000Z/tasks.parquet",
        "snapshot=20261115T005107.250000Z/workers.parquet",
        "snapshot=notes/tasks.parquet",
    ]


def test_without_keep_nothing_goes(tmp_path: Path) -> None:
    camera = ParquetCamera(tmp_path, now=lambda: AT)
    camera.on_shutter(busy_state())

    assert camera.on_cleanup() == 0
    assert (tmp_path / FOLDER / "tasks.parquet").exists()


def test_snapshots_go_to_an_object_store_too() -> None:
    camera = ParquetCamera("memory://snapshots", now=lambda: AT)

    camera.on_shutter(busy_state())

    assert camera.place.names("") == [f"{FOLDER}/tasks.parquet", f"{FOLDER}/workers.parquet"]
    MemoryFileSystem().rm("/snapshots", recursive=True)


def test_it_is_a_film_that_a_polaroid_takes(tmp_path: Path) -> None:
    film = ParquetCamera(tmp_path, now=lambda: AT)

    Polaroid(busy_state(), film=film).capture()

    assert isinstance(film, Film)
    assert len(rows(tmp_path / FOLDER / "tasks.parquet", TASKS)) == 2


@pytest.mark.parametrize("keep", [0, -1, float("nan")])
def test_a_time_to_keep_that_is_none_is_refused(tmp_path: Path, keep: float) -> None:
    with pytest.raises(CallerError, match="keep"):
        ParquetCamera(tmp_path, keep=keep)
