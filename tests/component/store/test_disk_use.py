"""How many bytes a log takes."""

from pathlib import Path

from celeriac.store.disk_use import DiskUse


def write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


def test_a_folder_that_is_not_there_takes_nothing(tmp_path: Path) -> None:
    assert DiskUse(tmp_path / "none").measure() == 0


def test_all_files_below_a_folder_count_also_those_that_came_and_went(tmp_path: Path) -> None:
    write(tmp_path / "events" / "hour=01" / "a.parquet", 100)
    use = DiskUse(tmp_path)
    sizes = [use.measure()]

    write(tmp_path / "events" / "hour=02" / "b.parquet", 50)
    sizes.append(use.measure())
    (tmp_path / "events" / "hour=01" / "a.parquet").unlink()
    sizes.append(use.measure())

    assert sizes == [100, 150, 50]


def test_a_file_that_grows_is_measured_again(tmp_path: Path) -> None:
    write(tmp_path / "spool" / "1.wal", 10)
    use = DiskUse(tmp_path)
    before = use.measure()

    with (tmp_path / "spool" / "1.wal").open("ab") as file:
        file.write(b"y" * 5)

    assert (before, use.measure()) == (10, 15)
