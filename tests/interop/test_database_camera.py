"""Snapshots in a real PostgreSQL and in SQLite files: from many cameras, in any order, over every loss."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from random import Random
from threading import Barrier

import pytest

from celeriac import State
from celeriac.errors import AccessRefused, ConnectionLost, DiskError, ImproperlyConfigured
from celeriac.model.events import Event, Extra, Failed, Started, Succeeded
from celeriac.store.database_camera import DatabaseCamera
from celeriac.testing.postgres import PostgresServer
from tests.live import IS_LONG
from tests.snapshots import cluster_events, expected_tasks, state_of, stored_tasks, stored_workers

ROOT = Path(__file__).parents[2]
_numbers = count()

#: Takes snapshots of beginnings of a stream, each in another order, with a camera of its own for each.
WRITER = """
import sys
from random import Random
from celeriac.store.database_camera import DatabaseCamera
from tests.snapshots import cluster_events, state_of
url, seed = sys.argv[1], int(sys.argv[2])
events = cluster_events(Random(5), tasks=80)
random = Random(seed)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(12):
    cuts = sorted(random.sample(range(len(events) + 1), 2))
    with DatabaseCamera(url, redact=False) as camera:
        camera.on_shutter(state_of(events[cuts[0] : cuts[1]]))
with DatabaseCamera(url, redact=False) as camera:
    camera.on_shutter(state_of(events[seed % 2 :: 2]))
"""


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """An empty database of the shared PostgreSQL."""
    return postgres_server.add_database(f"snapshots_{next(_numbers)}")


@pytest.fixture(params=["postgresql", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Run the test with each database: an empty one."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'snapshots.db'}"
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL that the test may do anything to."""
    with PostgresServer() as server:
        yield server


def shoot(url: str, state: State) -> None:
    """Take a snapshot with a camera that knows of no other."""
    with DatabaseCamera(url, redact=False) as camera:
        camera.on_shutter(state)


# -- any order


@pytest.mark.parametrize("seed", range(3 if IS_LONG else 1))
def test_snapshots_of_beginnings_in_any_order_come_to_the_rows_of_the_whole(url: str, seed: int) -> None:
    random = Random(seed)
    events = cluster_events(random, tasks=150)
    cuts = [*random.sample(range(len(events)), 8), len(events)]
    states = [state_of(events[:cut]) for cut in cuts]

    for state in random.sample(states, len(states)) + random.sample(states, 3):
        shoot(url, state)

    with DatabaseCamera(url, redact=False) as camera:
        assert stored_tasks(camera) == expected_tasks(state_of(events))
        newest = stored_workers(camera)["w1@lab"]
        whole = state_of(events).workers["w1@lab"]
        assert (newest["timestamp"], newest["processed"]) == (whole.timestamp, whole.processed)


def test_one_camera_that_follows_a_state_writes_what_it_comes_to(url: str) -> None:
    events = cluster_events(Random(8), tasks=150)
    state = State(now=lambda: 1e9)
    with DatabaseCamera(url, redact=False) as camera:
        for number, event in enumerate(events):
            state.event(event)
            if number % 50 == 0:
                camera.on_shutter(state)

        camera.on_shutter(state)

        assert stored_tasks(camera) == expected_tasks(state)


def test_cameras_in_two_processes_at_once_lose_nothing(url: str) -> None:
    writers = [
        subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-c", WRITER, url, str(seed)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in (0, 1)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"

    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    codes = [writer.wait(timeout=120) for writer in writers]
    for writer in writers:
        writer.communicate()

    assert codes == [0, 0]
    with DatabaseCamera(url, redact=False) as camera:
        assert stored_tasks(camera) == expected_tasks(state_of(cluster_events(Random(5), tasks=80)))


def test_cameras_that_write_the_same_tasks_at_the_same_moment_all_get_on(url: str) -> None:
    events = cluster_events(Random(6), tasks=100)
    together = Barrier(6)

    def take(number: int) -> None:
        random = Random(number)
        states = [state_of(random.sample(events[number::6], len(events[number::6]))) for _ in range(2)]
        together.wait(60)
        for state in states:
            shoot(url, state)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(take, range(6)))

    with DatabaseCamera(url, redact=False) as camera:
        assert stored_tasks(camera) == expected_tasks(state_of(events))


# -- losses


def test_a_server_that_was_killed_and_comes_back_gets_what_it_missed(own_postgres: PostgresServer) -> None:
    events = cluster_events(Random(7), tasks=60)
    third = len(events) // 3
    state = State(now=lambda: 1e9)
    with DatabaseCamera(own_postgres.url, redact=False) as camera:
        _feed(state, events[:third])
        camera.on_shutter(state)
        own_postgres.kill()
        _feed(state, events[third : 2 * third])
        with pytest.raises(ConnectionLost) as told:
            camera.on_shutter(state)
        state.clear(ready=False)
        _feed(state, events[2 * third :])
        own_postgres.start()

        camera.on_shutter(state)

        assert own_postgres.password not in str(told.value)
        assert stored_tasks(camera) == expected_tasks(state_of(events))
        assert camera.pending == 0


def test_a_server_that_is_not_there_at_first_is_no_reason_to_give_up(own_postgres: PostgresServer) -> None:
    own_postgres.stop()
    state = state_of(cluster_events(Random(9), tasks=5))
    with DatabaseCamera(own_postgres.url, redact=False) as camera:
        with pytest.raises(ConnectionLost, match="cannot be reached"):
            camera.on_shutter(state)
        own_postgres.start()

        camera.on_shutter(state)

        assert stored_tasks(camera) == expected_tasks(state)


def test_tables_that_were_dropped_meanwhile_are_made_again(url: str) -> None:
    started = Started(timestamp=1e9, clock=1, hostname="w@x", uuid="t1")
    state = state_of([started])
    with DatabaseCamera(url) as camera:
        camera.on_shutter(state)
        with camera.engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE celeriac_tasks")
        state.event(Succeeded(timestamp=1e9 + 1, clock=2, hostname="w@x", uuid="t1"))
        with pytest.raises(ImproperlyConfigured, match="were not created by Celeriac"):
            camera.on_shutter(state)

        camera.on_shutter(state)

        assert stored_tasks(camera) == expected_tasks(state)


# -- PostgreSQL's own ways


def test_the_character_0_is_no_reason_for_postgresql_to_refuse_a_snapshot(postgres_url: str) -> None:
    odd = Failed(
        timestamp=1e9, clock=1, hostname="w\0@x", uuid="t\0", exception="E('\0')", extra=Extra({"a\0": "\0"})
    )
    plain = Started(timestamp=1e9, clock=1, hostname="w@x", uuid="t1")

    with DatabaseCamera(postgres_url) as camera:
        camera.on_shutter(state_of([odd, plain]))

        assert stored_tasks(camera)["t␀"]["exception"] == "E('␀')"
        assert set(stored_tasks(camera)) == {"t␀", "t1"}


def test_events_are_json_that_postgresql_can_be_asked_about(postgres_url: str) -> None:
    custom = Failed(timestamp=1e9, clock=1, hostname="w@x", uuid="t1", extra=Extra(region="eu\0"))

    with DatabaseCamera(postgres_url, redact=False) as camera:
        camera.on_shutter(state_of([custom]))

        with camera.engine.connect() as connection:
            asked = "history->0->>'type', history->0->'extra'->>'region', to_timestamp(failed)"
            row = connection.exec_driver_sql(f"SELECT {asked} FROM celeriac_tasks").one()  # noqa: S608
    assert (row[0], row[1], row[2].timestamp()) == ("task-failed", "eu␀", 1e9)


def test_who_may_only_write_to_tables_that_are_there_is_not_refused(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    state = state_of([Started(timestamp=1e9, clock=1, hostname="w@x", uuid="t1")])
    with DatabaseCamera(postgres_url) as owner:
        owner.on_shutter(state_of([]))
        with owner.engine.begin() as connection:
            connection.exec_driver_sql("CREATE USER scribe PASSWORD 'quill'")
            connection.exec_driver_sql(
                "GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO scribe"
            )
    scribe = postgres_url.replace(f"postgres:{postgres_server.password}", "scribe:quill")

    with DatabaseCamera(scribe, keep=1.0) as camera:
        camera.on_shutter(state)

        assert set(stored_tasks(camera)) == {"t1"}
        with pytest.raises(AccessRefused, match="permission denied"):
            camera.on_cleanup()


def test_a_wrong_password_is_told_and_not_shown(postgres_server: PostgresServer) -> None:
    url = postgres_server.url.replace(postgres_server.password, "hunter2xyz")

    with DatabaseCamera(url) as camera, pytest.raises(AccessRefused, match="password authentication") as told:
        camera.on_shutter(state_of([]))

    assert "hunter2xyz" not in str(told.value)
    assert "postgres:**@" in str(told.value)


def test_a_database_that_may_only_be_read_is_told(postgres_url: str) -> None:
    url = f"{postgres_url}?options=-c%20default_transaction_read_only%3Don"

    with DatabaseCamera(url) as camera, pytest.raises(DiskError, match="read-only"):
        camera.on_shutter(state_of([]))


def test_a_cleanup_deletes_what_ended_long_ago(url: str) -> None:
    old = Succeeded(timestamp=1e9, clock=1, hostname="w@x", uuid="old")
    new = Succeeded(timestamp=1e9 + 50, clock=1, hostname="w@x", uuid="new")
    with DatabaseCamera(url, keep=60.0, now=lambda: 1e9 + 100) as camera:
        camera.on_shutter(state_of([old, new]))

        assert camera.on_cleanup() == 1

        assert set(stored_tasks(camera)) == {"new"}


def _feed(state: State, events: list[Event]) -> None:
    for event in events:
        state.event(event)
