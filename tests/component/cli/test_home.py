"""The folder of ``celeriac up`` is one run's at a time, and one cluster's."""

from collections.abc import Callable
from pathlib import Path

import pytest

from celeriac.cli.home import Home, claim_log, read_owner, trim
from celeriac.errors import CallerError, CeleriacError, DiskError


def test_a_second_one_is_told_where_the_dashboard_of_the_first_is(tmp_path: Path) -> None:
    home = Home(tmp_path / "data")
    with home.taken():
        home.note_address("http://127.0.0.1:8765")

        with pytest.raises(CeleriacError, match=r"already, its dashboard is http://127\.0\.0\.1:8765; for"):
            Home(tmp_path / "data").taken().__enter__()

        assert home.run.is_dir()
    with Home(tmp_path / "data").taken():
        pass


def test_its_data_stay_out_of_version_control_and_are_its_owners(tmp_path: Path) -> None:
    with Home(tmp_path / "data").taken():
        pass

    assert (tmp_path / "data" / ".gitignore").read_text() == "*\n"
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


def test_nothing_stays_that_is_only_for_a_run(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.claim("the sample cluster", log=None)
    (home.run / "celeriac-load-of-one-that-was-killed").mkdir(parents=True)

    with home.taken():
        left = list(home.run.iterdir())
        (home.run / "celeriac-load-of-this").mkdir()

    assert left == []
    assert not home.run.exists()


# -- what is not ours


def contents(folder: Path) -> dict[str, str]:
    return {str(each.relative_to(folder)): each.read_text() for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize(
    "others",
    [
        {".gitignore": "*.pyc\n", "run/server.py": "print()\n"},
        {"lock": "a lock of another program\n", "run/server.py": "print()\n"},
        {"cluster": "production\n", "run/server.py": "print()\n"},
    ],
)
def test_a_folder_of_the_users_own_files_is_refused_and_left_as_it_is(
    tmp_path: Path, others: dict[str, str]
) -> None:
    (tmp_path / "run").mkdir()
    for name, text in others.items():
        (tmp_path / name).write_text(text)

    with pytest.raises(CallerError, match=r"take a new folder, such as --data \S+/\.celeriac$"):
        Home(tmp_path).taken().__enter__()

    assert contents(tmp_path) == others


def test_a_folder_that_the_recorder_has_made_is_taken(tmp_path: Path) -> None:
    claim_log(tmp_path / "log", "redis://one/0")
    (tmp_path / "warehouse").mkdir()

    home = Home(tmp_path)
    with home.taken():
        home.claim("redis://one/0", log=home.log)

    assert read_owner(home.log) == "redis://one/0"


def test_a_log_takes_the_events_of_one_cluster(tmp_path: Path) -> None:
    claim_log(tmp_path / "log", "redis://one/0")
    claim_log(tmp_path / "log", "redis://one/0")

    with pytest.raises(CallerError, match="has the history of redis://one/0, and two clusters cannot"):
        claim_log(tmp_path / "log", "redis://two/0")


@pytest.mark.parametrize("mark", ["lock", "cluster"])
def test_in_a_folder_that_is_ours_what_the_user_put_there_is_left_as_it_is(tmp_path: Path, mark: str) -> None:
    home = Home(tmp_path)
    with home.taken():
        home.note_address("http://127.0.0.1:8765")
        home.claim("redis://example.com/0", log=None)
    (tmp_path / {"lock": "cluster", "cluster": "lock"}[mark]).unlink()
    (tmp_path / ".gitignore").write_text("output\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine\n")

    with Home(tmp_path).taken():
        pass

    kept = contents(tmp_path)
    assert (kept[".gitignore"], kept["run/notes.txt"]) == ("output\n", "mine\n")


def test_a_folder_that_others_may_write_to_is_refused_with_what_helps(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o775)

    with pytest.raises(CallerError, match=rf"others may write to {folder}: chmod go-w {folder}, or"):
        Home(folder).taken().__enter__()

    folder.chmod(0o755)
    with Home(folder).taken():
        pass


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: tmp_path.stat().st_uid + 1)

    with pytest.raises(CallerError, match="belongs to another user"):
        Home(tmp_path).taken().__enter__()

    assert list(tmp_path.iterdir()) == []


def note_cluster(home: Home) -> None:
    home.claim("the sample cluster", log=None)


def note_port(home: Home) -> None:
    home.broker_port = 4711


def note_compaction(home: Home) -> None:
    home.compacted_at = 4711


@pytest.mark.parametrize(
    ("name", "note"),
    [("cluster", note_cluster), ("broker-port", note_port), ("compacted-at", note_compaction)],
)
def test_a_note_is_not_written_through_a_link(
    tmp_path: Path, name: str, note: Callable[[Home], None]
) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / name).symlink_to("precious")

    with pytest.raises(DiskError, match=rf"{name} cannot be written: .*; symbolic links are not followed"):
        note(Home(tmp_path))

    assert (tmp_path / "precious").read_text() == "mine"


def test_notes_that_cannot_be_written_are_told_with_the_reason(tmp_path: Path) -> None:
    home = Home(tmp_path / "none")

    for note in (note_cluster, note_port, lambda home: home.note_address("http://127.0.0.1:1")):
        with pytest.raises(DiskError, match="cannot be written: "):
            note(home)


def test_one_log_is_of_one_cluster(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.claim("the sample cluster", log=None)
    home.claim("the sample cluster", log=None)

    with pytest.raises(CallerError, match=r"has the history of the sample cluster, .* --data FOLDER"):
        home.claim("redis://example.com/0", log=None)


def test_a_log_elsewhere_is_of_one_cluster_too(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    Home(tmp_path / "one").claim("redis://one/0", log=log)

    with pytest.raises(
        CallerError, match=rf"^{log} has the history of redis://one/0, .* setting log_url, or"
    ):
        Home(tmp_path / "two").claim("redis://two/0", log=log)

    # What was refused leaves no trace, and the same cluster may have its log from another folder.
    assert list((tmp_path / "two").iterdir()) == []
    Home(tmp_path / "two").claim("redis://one/0", log=log)


def test_a_folder_of_another_cluster_leaves_the_log_unclaimed(tmp_path: Path) -> None:
    home, log = Home(tmp_path), tmp_path / "elsewhere"
    home.claim("redis://one/0", log=None)

    with pytest.raises(CallerError, match="take another folder"):
        home.claim("redis://two/0", log=log)

    assert list(log.iterdir()) == []


@pytest.mark.parametrize("noted", ["", "none", "-1", "²", "9" * 4000])
def test_a_moment_that_is_none_is_not_taken(tmp_path: Path, noted: str) -> None:
    (tmp_path / "compacted-at").write_text(noted)

    assert Home(tmp_path).compacted_at == 0


def test_the_port_of_the_broker_is_remembered(tmp_path: Path) -> None:
    home = Home(tmp_path)
    before = home.broker_port

    home.broker_port = 4711

    assert (before, Home(tmp_path).broker_port) == (0, 4711)


@pytest.mark.parametrize("noted", ["", "none", "-1", "70000", "²"])
def test_a_port_that_is_none_is_not_taken(tmp_path: Path, noted: str) -> None:
    (tmp_path / "broker-port").write_text(noted)

    assert Home(tmp_path).broker_port == 0


def test_a_folder_that_cannot_be_made_is_told_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(DiskError, match="cannot be used"):
        Home(tmp_path / "file").taken().__enter__()


def test_of_a_long_log_the_end_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"old\n" * 2_000_000 + b"new\n")

    with log.open("ab") as program:
        trim(log)
        program.write(b"newer\n")

    assert log.stat().st_size < 100_000
    assert log.read_bytes().endswith(b"old\nnew\nnewer\n")


def test_a_short_log_and_one_that_is_not_there_are_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"all of it\n")

    trim(log)
    trim(tmp_path / "none")

    assert log.read_bytes() == b"all of it\n"
