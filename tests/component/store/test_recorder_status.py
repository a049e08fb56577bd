"""What all recorders of a log tell, whatever else is in the folder of their spools."""

from pathlib import Path

from celeriac.store.recorder_status import RecorderStatus, read_statuses, write_status


def tell(spool: Path, name: str, updated_at: float) -> None:
    (spool / name).mkdir(parents=True)
    status = RecorderStatus(
        name=name, recorder=name, log="here", pid=1, started_at=0.0, updated_at=updated_at, state="recording"
    )
    write_status(spool / name, status)


def test_who_told_last_comes_first_and_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    for name, updated_at in (("a", 5.0), ("b", 9.0), ("c", 7.0)):
        tell(tmp_path, name, updated_at)
    (tmp_path / "silent").mkdir()
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "status.json").write_text("{")

    assert [each.name for each in read_statuses(tmp_path)] == ["b", "c", "a"]


def test_of_many_names_those_are_told_that_were_used_last(tmp_path: Path) -> None:
    for number in range(30):
        tell(tmp_path, f"r{number}", float(number))

    assert [each.name for each in read_statuses(tmp_path)] == [f"r{number}" for number in range(29, 9, -1)]


def test_where_nobody_records_nobody_tells(tmp_path: Path) -> None:
    assert read_statuses(tmp_path / "none") == []
