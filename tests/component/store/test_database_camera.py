"""Snapshots in SQLite: what is written, what is not, and what is refused."""

import logging
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy import event as engine_event
from sqlalchemy import select

from celeriac import State
from celeriac.core.redaction import Redactor
from celeriac.errors import CallerError, DiskError, ImproperlyConfigured
from celeriac.model.events import (
    Custom,
    Event,
    Extra,
    Failed,
    Received,
    Started,
    Succeeded,
    WorkerHeartbeat,
    WorkerOffline,
)
from celeriac.store import database_camera
from celeriac.store.database_camera import DatabaseCamera
from tests.snapshots import cluster_events, expected_tasks, state_of, stored_tasks, stored_workers

AT = 1_790_000_000.0
HOST: dict[str, Any] = {"hostname": "w1@lab", "pid": 7}
RECEIVED = Received(timestamp=AT, clock=1, uuid="t1", name="shop.pay", args="(1,)", kwargs="{}", **HOST)
STARTED = Started(timestamp=AT + 1, clock=2, uuid="t1", **HOST)
SUCCEEDED = Succeeded(timestamp=AT + 2, clock=3, uuid="t1", result="42", runtime=1.0, **HOST)
OTHER = Received(timestamp=AT, clock=9, uuid="t2", name="shop.ship", **HOST)
BEAT = WorkerHeartbeat(
    timestamp=AT, clock=5, freq=2.0, active=1, processed=9, loadavg=(3.0, 2.0, 1.0), **HOST
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'snapshots.db'}"


@pytest.fixture
def camera(url: str) -> Iterator[DatabaseCamera]:
    with DatabaseCamera(url, redact=False) as made:
        yield made


def shoot(url: str, *events: Event) -> None:
    """Take a snapshot with a camera that knows of no other."""
    with DatabaseCamera(url, redact=False) as camera:
        camera.on_shutter(state_of(events))


def written(camera: DatabaseCamera, state: State) -> list[str]:
    """Return the first words of the statements by which a snapshot changes the database."""
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement.split(maxsplit=1)[0])

    engine_event.listen(camera.engine, "before_cursor_execute", note)
    camera.on_shutter(state)
    engine_event.remove(camera.engine, "before_cursor_execute", note)
    return [word for word in statements if word == "INSERT"]


def before_writing(camera: DatabaseCamera, act: Callable[[], None]) -> list[bool]:
    """Do something once, after a camera has read of tasks and before it writes; tell whether it was done."""
    done: list[bool] = []

    def look(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("INSERT INTO celeriac_tasks") and not done:
            done.append(True)
            act()

    engine_event.listen(camera.engine, "before_cursor_execute", look)
    return done


# -- what is written


def test_there_is_a_row_for_each_task_with_what_the_state_says_of_it(camera: DatabaseCamera) -> None:
    state = state_of(cluster_events(Random(1), tasks=60))

    camera.on_shutter(state)

    assert len(state.tasks) == 60
    assert stored_tasks(camera) == expected_tasks(state)


def test_there_is_a_row_for_each_worker(camera: DatabaseCamera) -> None:
    camera.on_shutter(state_of([BEAT, RECEIVED]))

    assert stored_workers(camera) == {
        "w1@lab": {
            "hostname": "w1@lab", "pid": 7, "timestamp": AT, "clock": 5, "utcoffset": 0.0, "freq": 2.0,
            "active": 1, "processed": 9, "load_1": 3.0, "load_5": 2.0, "load_15": 1.0, "sw_ident": None,
            "sw_ver": None, "sw_sys": None, "has_left": False, "seen_at": 1e9 + 1, "alive_until": 1e9 + 5,
        }
    }  # fmt: skip


def test_more_tasks_than_are_written_at_once_are_all_written(
    camera: DatabaseCamera, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_camera, "_CHUNK", 7)
    state = state_of(cluster_events(Random(2), tasks=50))

    camera.on_shutter(state)

    assert stored_tasks(camera) == expected_tasks(state)
    assert camera.pending == 0


def test_the_events_of_a_task_are_json_that_can_be_asked(camera: DatabaseCamera) -> None:
    camera.on_shutter(state_of([RECEIVED, STARTED]))

    with camera.engine.connect() as connection:
        asked = "json_extract(history, '$[1].type'), json_extract(history, '$[0].name')"
        found = connection.exec_driver_sql(f"SELECT {asked} FROM celeriac_tasks").all()  # noqa: S608
    assert found == [("task-started", "shop.pay")]


def test_custom_events_and_fields_that_nobody_knows_come_back(camera: DatabaseCamera, url: str) -> None:
    custom = Custom(
        timestamp=AT + 2, clock=0, uuid="t1", subject="upload", extra=Extra(done=[1, None]), **HOST
    )
    started = Started(timestamp=AT + 1, clock=2, uuid="t1", extra=Extra(region="eu"), **HOST)
    shoot(url, RECEIVED, started)

    camera.on_shutter(state_of([custom]))

    row = stored_tasks(camera)["t1"]
    assert row["state"] == "UPLOAD"
    assert row == expected_tasks(state_of([RECEIVED, started, custom]))["t1"]


def test_when_there_was_news_of_a_task_is_told_by_the_receiver_or_else_by_our_clock(url: str) -> None:
    told = Received(timestamp=AT, clock=1, uuid="t3", local_received=AT + 9, **HOST)
    with DatabaseCamera(url, now=lambda: AT + 5) as camera:
        camera.on_shutter(state_of([RECEIVED, told]))

        with camera.engine.connect() as connection:
            rows = connection.execute(select(camera.tables.tasks)).mappings()
            seen = {row["uuid"]: row["seen_at"] for row in rows}
    assert seen == {"t1": AT + 5, "t3": AT + 9}


def test_news_that_came_earlier_does_not_set_the_time_of_news_back_nor_is_it_kept_with_the_events(
    camera: DatabaseCamera, url: str
) -> None:
    shoot(url, Succeeded(timestamp=AT, clock=3, uuid="t1", local_received=AT + 9, **HOST))

    camera.on_shutter(state_of([Received(timestamp=AT, clock=1, uuid="t1", local_received=AT + 3, **HOST)]))

    with camera.engine.connect() as connection:
        row = connection.execute(select(camera.tables.tasks)).mappings().one()
    assert row["seen_at"] == AT + 9
    assert "local_received" not in row["history"]


# -- what is not


def test_only_what_changed_is_written_again(camera: DatabaseCamera) -> None:
    state = state_of([RECEIVED, OTHER])
    camera.on_shutter(state)

    unchanged = written(camera, state)
    state.event(STARTED)
    changed = written(camera, state)

    assert unchanged == []
    assert changed == ["INSERT"]
    assert stored_tasks(camera) == expected_tasks(state)


def test_a_camera_that_was_started_again_writes_nothing_that_is_there(
    camera: DatabaseCamera, url: str
) -> None:
    state = state_of([BEAT, RECEIVED, OTHER])
    shoot(url, BEAT, RECEIVED, OTHER)

    camera.on_shutter(state_of([]))  # sees that the tables are there

    assert written(camera, state) == []


# -- late snapshots


def test_a_late_snapshot_does_not_undo_a_newer_one(camera: DatabaseCamera, url: str) -> None:
    shoot(url, RECEIVED, STARTED, SUCCEEDED)

    shoot(url, RECEIVED)
    shoot(url, STARTED)

    assert stored_tasks(camera) == expected_tasks(state_of([RECEIVED, STARTED, SUCCEEDED]))


def test_snapshots_that_each_know_a_part_make_a_whole(camera: DatabaseCamera, url: str) -> None:
    for event in (SUCCEEDED, RECEIVED, STARTED, RECEIVED):
        shoot(url, event)

    row = stored_tasks(camera)["t1"]
    assert (row["state"], row["name"], row["result"]) == ("SUCCESS", "shop.pay", "42")
    assert (row["received"], row["started"], row["succeeded"]) == (AT, AT + 1, AT + 2)


def test_an_older_word_of_a_worker_does_not_replace_a_newer_one(camera: DatabaseCamera, url: str) -> None:
    farewell = WorkerOffline(timestamp=AT + 1, clock=6, **HOST)
    shoot(url, BEAT, farewell)

    shoot(url, BEAT)

    row = stored_workers(camera)["w1@lab"]
    assert (row["timestamp"], row["has_left"], row["alive_until"]) == (AT + 1, True, None)


@pytest.mark.parametrize("first", [RECEIVED, None], ids=["a-row-that-is-there", "a-row-that-is-not"])
def test_who_is_overtaken_between_reading_and_writing_tries_again(
    camera: DatabaseCamera, url: str, first: Event | None
) -> None:
    before = [OTHER] if first is None else [first]
    shoot(url, *before)
    overtaken = before_writing(camera, lambda: shoot(url, SUCCEEDED))

    camera.on_shutter(state_of([STARTED]))

    assert overtaken == [True]
    assert stored_tasks(camera) == expected_tasks(state_of([*before, STARTED, SUCCEEDED]))


def test_a_row_that_was_deleted_and_made_anew_is_not_taken_for_the_one_that_was_read(
    camera: DatabaseCamera, url: str
) -> None:
    def replace() -> None:
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.execute("DELETE FROM celeriac_tasks")
        connection.close()
        shoot(url, SUCCEEDED)

    shoot(url, RECEIVED)
    overtaken = before_writing(camera, replace)

    camera.on_shutter(state_of([STARTED]))

    assert overtaken == [True]
    assert stored_tasks(camera) == expected_tasks(state_of([STARTED, SUCCEEDED]))


def test_a_row_that_never_takes_what_is_written_is_told_of(camera: DatabaseCamera, url: str) -> None:
    shoot(url, RECEIVED)
    with camera.engine.begin() as connection:
        rule = "CREATE TRIGGER deaf BEFORE UPDATE ON celeriac_tasks BEGIN SELECT RAISE(IGNORE); END"
        connection.exec_driver_sql(rule)

    with pytest.raises(DiskError, match="trigger"):
        camera.on_shutter(state_of([STARTED]))

    assert camera.pending == 1


# -- what could not be written


def test_what_could_not_be_written_is_written_with_the_next_snapshot_though_the_state_forgot_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_camera, "_PATIENCE", 0)
    state = state_of([RECEIVED])
    with DatabaseCamera(url) as camera:
        camera.on_shutter(state)
        blocker = sqlite3.connect(tmp_path / "snapshots.db", isolation_level=None)
        blocker.execute("BEGIN EXCLUSIVE")
        state.event(SUCCEEDED)
        with pytest.raises(DiskError, match="locked"):
            camera.on_shutter(state)
        state.clear(ready=False)
        state.event(STARTED)
        blocker.close()

        camera.on_shutter(state)

        assert stored_tasks(camera) == expected_tasks(state_of([RECEIVED, STARTED, SUCCEEDED]))
        assert camera.pending == 0


def test_of_more_than_may_wait_the_oldest_go_and_are_counted(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_camera, "_PATIENCE", 0)
    monkeypatch.setattr(database_camera, "MAX_PENDING", 3)
    with DatabaseCamera(url) as camera:
        camera.on_shutter(state_of([]))
        blocker = sqlite3.connect(tmp_path / "snapshots.db", isolation_level=None)
        blocker.execute("BEGIN EXCLUSIVE")
        for number in range(5):
            with pytest.raises(DiskError):
                camera.on_shutter(state_of([Started(timestamp=AT, clock=1, uuid=f"t{number}", **HOST)]))
        blocker.close()

        camera.on_shutter(state_of([]))

        assert set(stored_tasks(camera)) == {"t2", "t3", "t4"}
        assert camera.dropped == 2


def test_what_is_stored_and_cannot_be_read_is_written_anew_and_told_of(
    camera: DatabaseCamera, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    shoot(url, RECEIVED, OTHER)
    with camera.engine.begin() as connection:
        connection.exec_driver_sql(
            """UPDATE celeriac_tasks SET history = '[{"type": 1}]' WHERE uuid = 't1'"""
        )

    with caplog.at_level(logging.WARNING):
        camera.on_shutter(state_of([STARTED, OTHER]))

    assert stored_tasks(camera) == expected_tasks(state_of([OTHER, STARTED]))
    assert "of task 't1'" in caplog.text


# -- odd texts and secrets


def test_the_character_0_and_halves_of_characters_break_nothing(camera: DatabaseCamera) -> None:
    odd = Failed(
        timestamp=AT, clock=1, hostname="w\0@lab", uuid="t\0", exception="E('\0')", traceback="\ud800",
        extra=Extra({"a\0": ["\0", {"b": "\0"}]}),
    )  # fmt: skip

    camera.on_shutter(state_of([odd]))

    row = stored_tasks(camera)["t␀"]
    assert (row["exception"], row["traceback"], row["worker"]) == ("E('␀')", "?", "w␀@lab")
    assert list(stored_workers(camera)) == ["w␀@lab"]


def test_two_tasks_whose_ids_come_out_the_same_harm_nothing(camera: DatabaseCamera) -> None:
    one, other = (Started(timestamp=AT, clock=n, uuid=uuid, **HOST) for n, uuid in enumerate(("t\0", "t␀")))

    camera.on_shutter(state_of([one, other]))

    assert list(stored_tasks(camera)) == ["t␀"]


def test_secrets_are_masked_unless_one_asks_for_all(url: str, tmp_path: Path) -> None:
    secret = Received(timestamp=AT, clock=1, uuid="t1", kwargs="{'password': 'hunter2xyz'}", **HOST)
    failed = Failed(timestamp=AT, clock=2, uuid="t1", exception="E('amqp://u:hunter2xyz@h')", **HOST)
    with DatabaseCamera(url) as camera:
        camera.on_shutter(state_of([secret, failed]))
    masked = (tmp_path / "snapshots.db").read_bytes()

    shoot(f"sqlite:///{tmp_path / 'open.db'}", secret)

    assert b"password" in masked
    assert b"hunter2xyz" not in masked
    assert b"hunter2xyz" in (tmp_path / "open.db").read_bytes()


def test_a_policy_holds_for_all_events_of_a_task_also_for_those_that_do_not_name_it(url: str) -> None:
    with DatabaseCamera(url, redact=Redactor({"shop.pay": "drop"})) as camera:
        camera.on_shutter(state_of([RECEIVED, SUCCEEDED, OTHER]))

        row = stored_tasks(camera)["t1"]
        with camera.engine.connect() as connection:
            (kept,) = connection.exec_driver_sql("SELECT history FROM celeriac_tasks WHERE uuid = 't1'").one()
    assert (row["state"], row["args"], row["result"]) == ("SUCCESS", None, None)
    assert "42" not in kept


def test_only_its_owner_may_read_the_file(url: str, tmp_path: Path) -> None:
    shoot(url, RECEIVED)

    assert stat.S_IMODE((tmp_path / "snapshots.db").stat().st_mode) == 0o600


# -- cleanup


def test_tasks_that_ended_long_ago_go_at_cleanup(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_camera, "_DELETED", 2)
    now = AT + 1000
    ended = [Succeeded(timestamp=AT + n, clock=n, uuid=f"old{n}", **HOST) for n in range(5)]
    recent = Failed(timestamp=now - 99, clock=9, uuid="recent", **HOST)
    timeless = Failed(timestamp=0.0, clock=9, uuid="timeless", **HOST)
    with DatabaseCamera(url, keep=100.0, now=lambda: now) as camera:
        camera.on_shutter(state_of([*ended, recent, timeless, RECEIVED]))

        assert camera.on_cleanup() == 5

        assert set(stored_tasks(camera)) == {"recent", "timeless", "t1"}
        assert camera.on_cleanup() == 0


def test_without_a_limit_everything_stays(camera: DatabaseCamera) -> None:
    camera.on_shutter(state_of([SUCCEEDED]))

    assert camera.on_cleanup() == 0
    assert set(stored_tasks(camera)) == {"t1"}


def test_a_cleanup_may_come_before_any_snapshot(url: str) -> None:
    with DatabaseCamera(url, keep=1.0) as camera:
        assert camera.on_cleanup() == 0


# -- other tables


def test_two_prefixes_are_two_sets_of_tables(url: str) -> None:
    with DatabaseCamera(url, prefix="one_") as one, DatabaseCamera(url, prefix="two_") as two:
        one.on_shutter(state_of([RECEIVED]))
        two.on_shutter(state_of([OTHER]))

        assert (set(stored_tasks(one)), set(stored_tasks(two))) == ({"t1"}, {"t2"})


@pytest.mark.parametrize(("version", "fix"), [(2, "upgrade Celeriac"), (0, "drop them")])
def test_tables_of_another_version_are_refused_and_left_alone(url: str, version: int, fix: str) -> None:
    shoot(url, RECEIVED)
    with DatabaseCamera(url) as camera:
        with camera.engine.begin() as connection:
            connection.exec_driver_sql(f"UPDATE celeriac_schema SET number = {version}")  # noqa: S608

        with pytest.raises(ImproperlyConfigured, match=fix):
            camera.on_shutter(state_of([OTHER]))

        assert set(stored_tasks(camera)) == {"t1"}


def test_tables_of_somebody_else_are_refused(url: str) -> None:
    with DatabaseCamera(url) as camera:
        with camera.engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE celeriac_tasks (uuid TEXT, colour TEXT)")

        with pytest.raises(ImproperlyConfigured, match="use another prefix, or drop them"):
            camera.on_shutter(state_of([RECEIVED]))


def test_a_file_that_is_no_database_is_refused(url: str, tmp_path: Path) -> None:
    (tmp_path / "snapshots.db").write_text("a letter to a friend, long enough to be read" * 9)

    with DatabaseCamera(url) as camera, pytest.raises(DiskError, match="not a database"):
        camera.on_shutter(state_of([RECEIVED]))


# -- what it is given


def test_a_database_in_memory_is_one_for_all_threads() -> None:
    with DatabaseCamera("sqlite://") as camera:
        camera.on_shutter(state_of([RECEIVED]))

        assert set(stored_tasks(camera)) == {"t1"}


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("no url at all", "postgresql://user:password@host/name"),
        ("mysql://me:hunter2xyz@host/x", "PostgreSQL or SQLite"),
        ("postgresql+asyncpg://me:hunter2xyz@host/x", "PostgreSQL or SQLite"),
        ("postgresql//me:hunter2xyz@host/x", "postgresql://user:password@host/name"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url: str, fix: str) -> None:
    with pytest.raises(ImproperlyConfigured) as told:
        DatabaseCamera(url)

    assert fix in str(told.value)
    assert "hunter2xyz" not in str(told.value)


def test_a_camera_shows_no_password() -> None:
    camera = DatabaseCamera("postgresql://me:hunter2xyz@host/x?sslpassword=hunter2xyz")

    assert "hunter2xyz" not in repr(camera)
    assert camera.place == "postgresql+psycopg://me:**@host/x?sslpassword=**"


@pytest.mark.parametrize("prefix", ["", "a b", '"; DROP', "Upper_", "1st_", "x" * 40])
def test_a_prefix_that_is_no_name_is_refused(prefix: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="invalid table prefix"):
        DatabaseCamera("sqlite://", prefix=prefix)


def test_a_time_to_keep_that_is_none_is_refused() -> None:
    with pytest.raises(CallerError, match="keep"):
        DatabaseCamera("sqlite://", keep=0)


def test_a_folder_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="No such file"):
        DatabaseCamera(f"sqlite:///{tmp_path}/nowhere/snapshots.db")


def test_without_sqlalchemy_the_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "from celeriac.errors import ImproperlyConfigured\n"
        "try: import celeriac.store.database_camera\n"
        "except ImproperlyConfigured as error: print(error)\n"
    )

    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert "celeriac[database]" in done.stdout
