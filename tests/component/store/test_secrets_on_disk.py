"""Secrets in events, and whatever we write of them: none is left in any file."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from celeriac import Celeriac, MemoryBroker, State
from celeriac.model.events import Event
from celeriac.store.database_camera import DatabaseCamera
from celeriac.store.export import Format, export
from celeriac.store.parquet_camera import ParquetCamera
from celeriac.store.write_ahead_scan import scan
from tests.secrets_corpus import SECRETS, Entry, as_event

#: Of a secret no part of this length may be left; shorter ones may stand in a text for another reason.
PART = 12

#: Each in a task of its own.
EVENTS: list[Event] = [
    replace(as_event(entry), uuid=f"task-{number}", timestamp=1000.0 + number, local_received=2000.0 + number)
    for number, entry in enumerate(SECRETS)
]


def secret_length(entry: Entry) -> int:
    return len(entry.secret)


def parts_of(text: str) -> set[str]:
    """Return all parts of that length of a text."""
    return {text[start : start + PART] for start in range(len(text) - PART + 1)}


def find_leaks(text: str) -> list[Entry]:
    """Return the secrets of which a part is in a text."""
    # One pass over the text: to look for each part of each secret took a second.
    parts = parts_of(text)
    return [
        entry
        for entry in SECRETS
        if (
            entry.secret in text if len(entry.secret) < PART else not parts.isdisjoint(parts_of(entry.secret))
        )
    ]


def the_state() -> State:
    state = State()
    state.take(EVENTS, 2000.0)
    return state


def write_ahead(folder: Path) -> list[bytes]:
    """Return what is on the disk before anything is sealed."""
    app = Celeriac(MemoryBroker(), log_url=str(folder), environ={})
    with app.history.writer() as writer:
        writer.append(EVENTS)
        writer.sync()
        found = [scan(path) for path in folder.rglob("*.wal")]
        return [repr(batch.to_pylist()).encode() for each in found for batch in each.batches]


def segments(folder: Path) -> list[bytes]:
    """Return all that is in segments, as text: in the files themselves it is packed."""
    write_ahead(folder)
    return [repr(pq.read_table(path).to_pylist()).encode() for path in folder.rglob("*.parquet")]


def exported(form: Format) -> Callable[[Path], list[bytes]]:
    def write(folder: Path) -> list[bytes]:
        write_ahead(folder)
        log = Celeriac(MemoryBroker(), log_url=str(folder), environ={}).history.log()
        return [b"".join(export(log, form=form))]

    return write


def saved_state(folder: Path) -> list[bytes]:
    the_state().save(folder / "cluster.state")
    return [(folder / "cluster.state").read_bytes()]


def parquet_pictures(folder: Path) -> list[bytes]:
    ParquetCamera(folder).on_shutter(the_state())
    return [repr(pq.read_table(path).to_pylist()).encode() for path in folder.rglob("*.parquet")]


def database(folder: Path) -> list[bytes]:
    with DatabaseCamera(f"sqlite:///{folder / 'tasks.db'}") as camera:
        camera.on_shutter(the_state())
    return [path.read_bytes() for path in folder.glob("tasks.db*")]


@pytest.mark.parametrize(
    "write",
    [write_ahead, segments, exported("jsonl"), exported("csv"), saved_state, parquet_pictures, database],
    ids=["write-ahead", "segments", "jsonl", "csv", "state", "pictures", "database"],
)
def test_of_five_hundred_secrets_none_is_left_in_what_we_write(
    write: Callable[[Path], list[bytes]], tmp_path: Path
) -> None:
    assert len(SECRETS) >= 500

    text = b"\n".join(write(tmp_path)).decode("utf-8", "replace")

    assert sum(f"task-{number}" in text for number in range(len(SECRETS))) == len(SECRETS)
    assert find_leaks(text) == []


@pytest.mark.parametrize("entry", [min(SECRETS, key=secret_length), max(SECRETS, key=secret_length)])
def test_a_part_of_a_secret_is_found(entry: Entry) -> None:
    part = entry.secret[-PART:]

    assert entry in find_leaks(f"task-1 {part} task-2")
    assert find_leaks(f"task-1 {part[1:]} task-2") == []
