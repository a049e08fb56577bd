"""The state of a worker on disk: what is kept, what a crash leaves, and what is never touched."""

import errno
import json
import os
import pickle
import shelve
import stat
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from celeriac.core.revoked import REVOKED_MAX_SIZE
from celeriac.errors import DiskError, ImproperlyConfigured
from celeriac.store.worker_state import Saved, WorkerStateFile

REVOKED = [("old", 100.5), ("é", 3.0)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "worker.state"


@pytest.fixture
def saved(path: Path) -> WorkerStateFile:
    """A file with something in it."""
    file = WorkerStateFile(path)
    file.save(clock=7, revoked=REVOKED)
    return file


def names(path: Path) -> set[str]:
    return {each.name for each in path.parent.iterdir()}


# -- what is kept


def test_before_the_first_save_there_is_nothing(path: Path) -> None:
    assert WorkerStateFile(path).load() == Saved(0, ())
    assert names(path) == set()


def test_what_was_saved_is_loaded(path: Path, saved: WorkerStateFile) -> None:
    assert saved.load() == Saved(7, REVOKED)
    assert WorkerStateFile(str(path)).load() == Saved(7, REVOKED)


def test_a_save_replaces_the_one_before_and_leaves_nothing_else(path: Path, saved: WorkerStateFile) -> None:
    saved.save(clock=9, revoked=[])

    assert saved.load() == Saved(9, [])
    assert names(path) == {"worker.state"}


def test_only_its_owner_may_read_it(path: Path, saved: WorkerStateFile) -> None:
    path.chmod(0o644)

    saved.save(clock=8, revoked=[])

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_it_is_text_that_people_can_read(path: Path, saved: WorkerStateFile) -> None:
    header, body = path.read_text().splitlines()

    assert saved.load().damage == ""
    assert json.loads(header)["version"] == 1
    assert json.loads(body) == {"clock": 7, "revoked": [["old", 100.5], ["é", 3.0]]}


def test_as_many_as_a_worker_keeps_can_be_saved_and_of_more_the_newest(path: Path) -> None:
    file = WorkerStateFile(path)
    revoked = [("é" * 250 + str(number), 1e6 / 3) for number in range(REVOKED_MAX_SIZE + 1)]

    file.save(clock=1, revoked=revoked)

    assert file.load().revoked == revoked[1:]


@pytest.mark.parametrize(
    "odd",
    [("", 1.0), ("x" * 257, 1.0), ("\ud800", 1.0), ("a", float("nan")), ("a", float("inf")), ("a", -1.0)],
)
def test_an_id_that_could_not_be_read_back_is_left_out(path: Path, odd: tuple[str, float]) -> None:
    file = WorkerStateFile(path)

    file.save(clock=1, revoked=[odd, ("good", 1.0)])

    assert file.load() == Saved(1, [("good", 1.0)])


# -- crashes


@pytest.mark.parametrize("call", ["fsync", "open"])
def test_a_save_that_fails_leaves_what_was_there(
    path: Path, saved: WorkerStateFile, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: Any, **__: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(DiskError, match=r"worker\.state.* cannot be written: No space left"):
            saved.save(clock=8, revoked=[])

    assert saved.load() == Saved(7, REVOKED)
    assert names(path) == {"worker.state"}


def test_what_is_written_is_on_the_disk_before_it_takes_its_place(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def note_fsync(number: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(number).st_mode) else "file")
        fsync(number)

    def note_replace(self: Path, target: Path) -> Path:
        steps.append("replace")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)

    WorkerStateFile(path).save(clock=1, revoked=[])

    assert steps == ["file", "replace", "folder"]


def test_what_a_crash_left_of_a_save_is_not_loaded(path: Path, saved: WorkerStateFile) -> None:
    path.with_name(".worker.state.0123abcd.new").write_bytes(b'{"format":')

    assert saved.load() == Saved(7, REVOKED)
    saved.save(clock=8, revoked=[])
    assert saved.load().clock == 8


# -- damage


def damaged(content: bytes) -> dict[str, bytes]:
    """Return a file of ours, damaged in ways of every kind."""
    header, body = content.splitlines()
    return {
        "cut": content[:-10],
        "cut in its header": content[:40],
        "no body": header,
        "a bit": content.replace(b"100.5", b"100.4"),
        "a wrong header": content.replace(b'"version":1', b'"version":"1"'),
        "a version that never was": content.replace(b'"version":1', b'"version":0'),
        "more behind it": content + b"x",
        "not UTF-8": header + b"\n" + body.replace(b"old", b"\xff\xff\xff"),
        "zeros": b"\0" * len(content),
    }


@pytest.mark.parametrize("how", damaged(b"a\nb"))
def test_a_damaged_file_is_set_aside_and_told(path: Path, saved: WorkerStateFile, how: str) -> None:
    content = damaged(path.read_bytes())[how]
    path.write_bytes(content)

    loaded = saved.load()

    assert loaded[:2] == (0, ())
    assert "worker.state is damaged" in loaded.damage
    assert "worker.state.damaged-1" in loaded.damage
    assert names(path) == {"worker.state.damaged-1"}
    assert path.with_name("worker.state.damaged-1").read_bytes() == content


@pytest.mark.parametrize(
    "body",
    [b"[]", b'{"clock":-1,"revoked":[]}', b'{"clock":9007199254740992,"revoked":[]}', b'{"clock":1}',
     b'{"clock":1,"revoked":[["a",-1]]}', b'{"clock":1,"revoked":[["",1]]}', b'{"clock":1,"revoked":["a"]}',
     b"[" * 100_000],
)  # fmt: skip
def test_a_file_with_a_right_checksum_over_wrong_values_is_damaged(
    path: Path, saved: WorkerStateFile, body: bytes
) -> None:
    header = json.dumps(
        {"format": "celeriac-worker-state", "version": 1, "sha256": sha256(body).hexdigest()},
        separators=(",", ":"),
    )
    path.write_bytes(header.encode() + b"\n" + body + b"\n")

    loaded = saved.load()

    assert loaded.damage


def test_every_damaged_file_is_kept(path: Path, saved: WorkerStateFile) -> None:
    for _ in range(3):
        saved.save(clock=1, revoked=[])
        path.write_bytes(path.read_bytes()[:-5])
        assert saved.load().damage

    assert names(path) == {f"worker.state.damaged-{number}" for number in (1, 2, 3)}


def test_after_a_damaged_file_a_new_one_is_written(path: Path, saved: WorkerStateFile) -> None:
    path.write_bytes(path.read_bytes()[:-5])
    saved.load()

    saved.save(clock=8, revoked=[])

    assert saved.load() == Saved(8, [])


# -- what is none of ours


@pytest.mark.parametrize(
    "content",
    [pickle.dumps({"zrevoked": b"", "clock": 7}), b"SQLite format 3\0rest", b"{}", b"precious", b"\n"],
)
def test_a_file_of_another_kind_is_refused_and_never_touched(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    with pytest.raises(ImproperlyConfigured, match="perhaps a Celery statedb: give another file"):
        WorkerStateFile(path).load()

    assert names(path) == {"worker.state"}
    assert path.read_bytes() == content


def test_celerys_own_statedb_is_refused_and_never_touched(path: Path) -> None:
    with shelve.open(str(path), protocol=2) as shelf:  # noqa: S301 - as Celery writes it
        shelf["clock"] = 7
    # In one file or in several, as the library at hand has it.
    contents = {made: made.read_bytes() for made in path.parent.iterdir()}

    for made in contents:
        with pytest.raises(ImproperlyConfigured):
            WorkerStateFile(made).load()

    assert contents
    assert {made: made.read_bytes() for made in path.parent.iterdir()} == contents


def test_a_file_of_a_later_version_is_refused_and_never_touched(path: Path) -> None:
    content = b'{"format":"celeriac-worker-state","version":2,"blake3":"00"}\nwhatever'
    path.write_bytes(content)

    with pytest.raises(ImproperlyConfigured, match="newer version 2: upgrade"):
        WorkerStateFile(path).load()

    assert path.read_bytes() == content


def test_a_link_is_refused_and_not_followed(path: Path, saved: WorkerStateFile) -> None:
    link = path.with_name("link")
    link.symlink_to(path)

    with pytest.raises(ImproperlyConfigured, match="symbolic link"):
        WorkerStateFile(link).load()

    assert saved.load() == Saved(7, REVOKED)


def test_to_save_over_a_link_leaves_alone_what_it_leads_to(path: Path) -> None:
    path.write_text("precious")
    link = path.with_name("link")
    link.symlink_to(path)

    WorkerStateFile(link).save(clock=1, revoked=[])

    assert path.read_text() == "precious"
    assert not link.is_symlink()


def test_a_pipe_is_refused_and_not_waited_for(path: Path) -> None:
    os.mkfifo(path)

    with pytest.raises(ImproperlyConfigured, match="not a regular file"):
        WorkerStateFile(path).load()


def test_a_folder_is_refused(path: Path) -> None:
    path.mkdir()

    with pytest.raises(ImproperlyConfigured, match="not a regular file"):
        WorkerStateFile(path).load()


def test_a_folder_that_is_not_there_is_named_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"the folder .*absent.* does not exist: create it"):
        WorkerStateFile(tmp_path / "absent" / "worker.state").load()


def test_a_path_with_a_null_character_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImproperlyConfigured, match="null character"):
        WorkerStateFile(f"{tmp_path}/a\0b").load()


def test_an_empty_file_has_nothing_to_lose(path: Path) -> None:
    path.touch()

    assert WorkerStateFile(path).load() == Saved()
