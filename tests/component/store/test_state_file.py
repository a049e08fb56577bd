"""A state in a file: exact, whole or refused, and never a secret or a surprise in it."""

import os
import stat
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from celeriac import MemoryBroker, State
from celeriac.app import Celeriac
from celeriac.core import snapshot
from celeriac.core.redaction import Redactor
from celeriac.core.snapshot import Snapshot
from celeriac.errors import CallerError, DiskError, ImproperlyConfigured
from celeriac.model.events import Extra
from celeriac.store import state_file
from celeriac.store.state_file import read_state, write_state
from tests.builders import AT, nested, task, worker
from tests.unit.core.test_snapshot import busy_state, taken


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "cluster.state"


@pytest.fixture
def saved(path: Path) -> bytes:
    """The content of a file."""
    busy_state().save(path, redact=False)
    return path.read_bytes()


def read(path: Path | str, **options: Any) -> Snapshot:
    return read_state(path, **{"max_workers": 100, "max_tasks": 100} | options)


def sealed(*lines: bytes | dict[str, Any], version: int = 2, **counts: int) -> bytes:
    """Return a file of these lines after the header, with a checksum that is right."""
    header = (
        b'{"format":"celeriac-state","version":%d,"taken_at":1.0,"event_count":1,"task_count":1}' % version
    )
    made = [line if isinstance(line, bytes) else msgspec.json.encode(line) for line in lines]
    body = b"".join(line + b"\n" for line in (header, *made))
    end = {"line": "end", "workers": 0, "tasks": 0, "gaps": 0} | counts
    return body + msgspec.json.encode(end | {"sha256": sha256(body).hexdigest()}) + b"\n"


# -- what is saved is restored


def test_what_is_saved_is_restored(path: Path) -> None:
    state = busy_state()

    state.save(path, redact=False)
    again = State().restore(path)

    assert taken(again) == taken(state)


@pytest.mark.parametrize("kind", ["path", "text", "file", "memory"])
def test_a_file_is_named_by_a_path_or_a_url(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.state"
    urls: dict[str, str | Path] = {
        "path": path, "text": str(path), "file": f"file://{path}", "memory": "memory://deep/a.state"
    }  # fmt: skip
    url = urls[kind]

    busy_state().save(url)
    again = State().restore(url)

    assert list(again.tasks) == ["t1", "t2"]
    assert path.exists() is (kind != "memory")
    if kind == "memory":
        MemoryFileSystem().rm("/deep", recursive=True)


def test_a_name_alone_is_a_file_in_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    busy_state().save("cluster.state")

    assert len(State().restore("cluster.state").tasks) == 2
    assert (tmp_path / "cluster.state").is_file()


def test_what_was_there_before_is_replaced_and_nobody_else_may_read_it(path: Path) -> None:
    busy_state().save(path)

    State().save(path)

    assert len(State().restore(path).tasks) == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_of_more_than_there_is_room_for_the_last_are_read(path: Path) -> None:
    state = State()
    for number in range(5):
        state.event(task("started", f"t{number}", hostname=f"w{number}@x"))
    state.save(path)

    picture = read(path, max_tasks=2, max_workers=1)

    assert [record.uuid for record in picture.tasks] == ["t3", "t4"]
    assert [record.hostname for record in picture.workers] == ["w4@x"]


def test_texts_of_every_kind_survive(path: Path) -> None:
    state = State()
    odd = '\x00 \u2028 \U0001f955 \\ " \n {} é'
    state.event(task("received", odd, name=odd, args=odd, kwargs=odd))
    state.event(task(odd, odd, clock=26, more={odd: [odd, None, 1.5, -(2**63), {"deep": []}]}))

    state.save(path, redact=False)

    assert taken(State().restore(path)) == taken(state)


def test_an_event_that_no_file_can_hold_is_refused_before_anything_is_written(path: Path) -> None:
    state = State()
    state.event(task("started"))
    (event,) = state.tasks["t1"].history
    for extra in (Extra(deep=nested(100)), Extra(odd=object()), Extra(half="\ud800")):
        state.event(msgspec.structs.replace(event, clock=event.clock + 1, extra=extra))

        with pytest.raises(CallerError, match="cannot be saved"):
            state.save(path, redact=False)

        state.clear(ready=False)
    assert not path.exists()


# -- secrets


def test_secrets_are_masked_unless_told_otherwise(path: Path) -> None:
    state = State()
    state.event(task("received", name="shop.pay", kwargs="{'password': 'hunter2'}", args="(1, 2)"))
    state.event(
        task("failed", clock=30, exception="Refused('redis://:hunter2@db/0')", traceback="token=hunter2")
    )
    state.event(task("note", clock=31, api_key="hunter2"))

    state.save(path)
    masked = path.read_bytes()
    state.save(path, redact=False)
    whole = path.read_bytes()
    state.save(path, redact=Redactor({"*": "drop"}))
    dropped = path.read_bytes()

    assert b"hunter2" not in masked
    assert b"(1, 2)" in masked
    assert whole.count(b"hunter2") == 4
    assert b"(1, 2)" not in dropped


def test_a_state_of_an_app_obeys_its_settings(path: Path) -> None:
    app = Celeriac(MemoryBroker(), environ={}, redact_tasks={"bank.*": "drop"}, redact_names=("iban",))
    state = app.events.State()
    state.event(task("received", "t1", name="bank.send", args="('to Bob',)"))
    state.event(task("received", "t2", name="shop.pay", kwargs="{'iban': 'DE1', 'to': 'Alice'}"))

    state.save(path)

    content = path.read_bytes()
    assert b"Bob" not in content
    assert b"DE1" not in content
    assert b"Alice" in content


# -- damage


def test_every_byte_that_is_changed_is_found(path: Path, saved: bytes) -> None:
    before = State()
    for place in range(0, len(saved), 7):
        path.write_bytes(saved[:place] + bytes([saved[place] ^ 0x04]) + saved[place + 1 :])

        with pytest.raises((DiskError, ImproperlyConfigured), match=r"cluster\.state"):
            before.restore(path)

    assert taken(before) == taken(State())


def test_every_length_but_the_whole_is_found(path: Path, saved: bytes) -> None:
    for length in [*range(0, len(saved), 13), len(saved) - 1]:
        path.write_bytes(saved[:length])

        with pytest.raises((DiskError, ImproperlyConfigured), match=r"cluster\.state"):
            State().restore(path)


@pytest.mark.parametrize("tail", [b"\0" * 100, b"{}\n", b"\n", b"x"])
def test_what_was_added_is_found(path: Path, saved: bytes, tail: bytes) -> None:
    path.write_bytes(saved + tail)

    with pytest.raises(DiskError, match="damaged: truncated"):
        State().restore(path)


@pytest.mark.parametrize(
    ("content", "error", "reason"),
    [
        (b"", DiskError, "the file is empty"),
        (b"\0" * 4096, DiskError, "the file is empty"),
        (
            b"\x80\x04\x95pickle",
            ImproperlyConfigured,
            "not a file of State.save: give one that State.save wrote",
        ),
        (
            b'{"format":"celeriac-worker-state","version":1}\n',
            ImproperlyConfigured,
            "not a file of State.save: give one that State.save wrote",
        ),
        (b'{"format":"celeriac-state","version":3,"new":1}\n??', ImproperlyConfigured, "version 3: upgrade"),
        (b'{"format":"celeriac-state","version":0}\n', DiskError, "damaged"),
        (b'{"format":"celeriac-state","version":1}', DiskError, "damaged"),
    ],
)
def test_what_is_none_of_ours_or_of_a_later_version_is_refused(
    path: Path, content: bytes, error: type[Exception], reason: str
) -> None:
    path.parent.mkdir()
    path.write_bytes(content)

    with pytest.raises(error, match=reason):
        State().restore(path)


_EVENT = {"type": "task-started", "timestamp": 1.0, "clock": 1, "hostname": "a@x", "uuid": "t1"}
_TASK = {"line": "task", "uuid": "t1", "events": [_EVENT], "latest": 0, "gone": []}


def test_saved_state_has_version_2(saved: bytes) -> None:
    assert saved.startswith(b'{"format":"celeriac-state","version":2,')


def test_saved_state_keeps_the_clocks_of_the_receiver(path: Path) -> None:
    state = State()
    state.event(task("started"))
    (event,) = state.tasks["t1"].history
    state.clear(ready=False)
    state.event(msgspec.structs.replace(event, clock=0, local_clock=501))

    state.save(path)

    (restored,) = State().restore(path).tasks["t1"].history
    assert (restored.clock, restored.display_clock) == (0, 501)


@pytest.mark.parametrize("version", [1, 2])
def test_the_lines_that_the_next_test_spoils_are_good(path: Path, version: int) -> None:
    path.parent.mkdir()
    path.write_bytes(sealed(_TASK, version=version, tasks=1))

    state = State().restore(path)

    assert state.tasks["t1"].state == "STARTED"


@pytest.mark.parametrize(
    "line",
    [
        {"line": "virus"},
        {},
        [],
        _TASK | {"uuid": "t2"},
        _TASK | {"uuid": "x" * 300},
        _TASK | {"latest": 1},
        _TASK | {"latest": -1},
        _TASK | {"gone": [_EVENT, _EVENT]},
        _TASK | {"events": []},
        _TASK | {"events": [_EVENT, _EVENT]},
        _TASK | {"events": [_EVENT] * 10_000},
        _TASK | {"events": [_EVENT | {"clock": -1}]},
        _TASK | {"events": [_EVENT | {"timestamp": 1e300}]},
        _TASK | {"events": [_EVENT | {"__class__": "os.system"}]},
        _TASK | {"events": [_EVENT | {"type": "worker-online"}]},
        _TASK | {"events": [_EVENT | {"extra": [1]}]},
        _TASK | {"events": [_EVENT | {"extra": {"deep": nested(100)}}]},
        _TASK | {"events": [_EVENT | {"extra": {"many": [[]] * 5000}}]},
        _TASK | {"events": [_EVENT | {"extra": {"deep": nested(900)}}]},
        {"line": "worker", "worker": {"hostname": "a@x"}},
        {"line": "gap", "gap": {"since": 1}},
        b'{"line":"task","uuid":"t1","events":[' + b"[" * 100_000,
    ],
)
def test_a_hostile_line_is_refused_though_its_checksum_is_right(path: Path, line: Any) -> None:
    path.parent.mkdir()
    path.write_bytes(sealed(line, tasks=1))
    state = State()

    with pytest.raises(DiskError, match=r"cluster\.state"):
        state.restore(path)

    assert taken(state) == taken(State())


@pytest.mark.parametrize("counts", [{}, {"tasks": 2}, {"tasks": 1, "workers": 1}, {"tasks": 1, "gaps": 1}])
def test_a_file_that_does_not_hold_what_it_counts_is_refused(path: Path, counts: dict[str, int]) -> None:
    path.parent.mkdir()
    path.write_bytes(sealed(_TASK, **counts))

    with pytest.raises(DiskError, match="do not match"):
        State().restore(path)


def test_one_task_twice_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(sealed(_TASK, _TASK, tasks=2))

    with pytest.raises(DiskError, match="duplicate task"):
        State().restore(path)


# -- limits


def test_a_file_that_is_too_large_is_not_even_read(path: Path) -> None:
    path.parent.mkdir()
    with path.open("wb") as file:
        os.truncate(file.fileno(), 1 << 40)  # a terabyte that takes no room

    with pytest.raises(DiskError, match=r"more than the limit of .*max_bytes"):
        State(max_tasks_in_memory=10, max_workers_in_memory=10).restore(path)


def test_who_trusts_a_file_may_have_it_read(path: Path, saved: bytes) -> None:
    state = State()

    with pytest.raises(DiskError, match="max_bytes"):
        state.restore(path, max_bytes=len(saved) - 1)

    assert len(state.restore(path, max_bytes=len(saved)).tasks) == 2


def test_a_line_that_is_too_long_is_refused_on_both_ways(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy_state().save(path)
    monkeypatch.setattr(state_file, "_LINE_BYTES", 500)

    with pytest.raises(CallerError, match="more than the limit of 500"):
        busy_state().save(path)
    with pytest.raises(DiskError, match="damaged"):
        State().restore(path)


# -- places


def test_a_file_that_is_missing_or_a_link_is_not_restored(path: Path, saved: bytes) -> None:
    link = path.with_name("link.state")
    link.symlink_to(path)

    for wrong in (path.with_name("missing.state"), link, path.parent):
        with pytest.raises(DiskError, match=wrong.name):
            State().restore(wrong)
    assert saved


@pytest.mark.parametrize("name", ["", "folder/", "..", "s3://bucket/"])
def test_what_names_no_file_is_refused(name: str) -> None:
    with pytest.raises(CallerError, match="has no file name"):
        State().save(name)


def test_what_cannot_be_replaced_is_told_and_left(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "mine").write_text("keep me")

    with pytest.raises(DiskError, match=r"cluster\.state cannot be written"):
        State().save(path)

    assert (path / "mine").read_text() == "keep me"


def test_a_snapshot_of_workers_alone_is_read_as_it_was(path: Path) -> None:
    state = State()
    state.event(worker("online", local_received=AT + 3))
    state.event(worker("offline", hostname="gone@x", local_received=AT + 3))

    write_state(path, snapshot.take(state, now=AT))

    assert read(path)._replace(workers=list(read(path).workers), tasks=[]) == taken(state)
