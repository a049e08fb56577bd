"""The kit starts a real PostgreSQL, whoever we are, and leaves nothing of it behind."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from celeriac.errors import CallerError, CeleriacError, ImproperlyConfigured
from celeriac.programs.port import LOOPBACK
from celeriac.programs.process import wait_until
from celeriac.testing import postgres
from celeriac.testing.postgres import PostgresServer
from tests.interop.test_brokers_kit import alive

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0

#: An owner that starts a server, says where it is, and waits to be killed.
OWNER = """
import time
from celeriac.testing.postgres import PostgresServer
server = PostgresServer()
server.start()
print(server.folder, flush=True)
time.sleep(1000)
"""


@pytest.fixture(scope="module")
def shared_server() -> Iterator[PostgresServer]:
    """One for all tests here that start no other: a new one takes a CPU second."""
    with PostgresServer({"work_mem": "5MB"}) as started:
        yield started


@pytest.fixture
def server(shared_server: PostgresServer) -> PostgresServer:
    """A server that runs, whatever was done to it before."""
    if not shared_server.is_alive:
        shared_server.start()
    return shared_server


def ask(server: PostgresServer, query: str, *, url: str = "") -> object:
    with psycopg.connect(url or server.url) as connection:
        answer = connection.execute(query.encode())
        return answer.fetchone() if answer.description else None


def memory_ids() -> set[str]:
    """Return the System V memory that the system holds."""
    return {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}


def memory_of(folder: Path) -> str:
    """Return the id of the System V memory that a server in a folder holds."""
    return (folder / "data" / "postmaster.pid").read_text().splitlines()[6].split()[-1]


def test_it_answers_on_its_port_and_keeps_what_was_committed_over_every_end(server: PostgresServer) -> None:
    port, folder = server.port, server.folder
    ask(server, "CREATE TABLE kept AS SELECT 7 AS number")

    server.restart()
    after_restart = ask(server, "SELECT number FROM kept")
    server.kill()
    was_alive = server.is_alive
    server.start()

    assert (after_restart, was_alive) == ((7,), False)
    assert ask(server, "SELECT number FROM kept") == (7,)
    assert (server.port, server.folder) == (port, folder)


def test_it_is_not_run_by_root_and_its_folder_is_for_its_user_alone(server: PostgresServer) -> None:
    owner = Path(f"/proc/{server.pid}").stat().st_uid

    assert owner != 0
    assert server.folder.stat().st_uid == owner
    assert stat.S_IMODE(server.folder.stat().st_mode) == 0o700


def test_it_listens_on_the_loopback_interface_alone_and_its_socket_is_in_its_folder(
    server: PostgresServer,
) -> None:
    assert ask(server, "SHOW listen_addresses") == (LOOPBACK,)
    assert ask(server, "SHOW unix_socket_directories") == (str(server.folder),)
    assert (server.folder / f".s.PGSQL.{server.port}").is_socket()


def test_nobody_gets_in_without_the_password(server: PostgresServer) -> None:
    with pytest.raises(psycopg.OperationalError, match="password"):
        ask(server, "SELECT 1", url=server.url.replace(server.password, "guessed"))

    assert ask(server, "SELECT 1") == (1,)
    assert not (server.folder / "password").exists()


def test_a_setting_is_as_given_and_by_default_it_does_not_wait_for_the_disk(server: PostgresServer) -> None:
    assert ask(server, "SHOW work_mem") == ("5MB",)
    assert ask(server, "SHOW fsync") == ("off",)


def test_a_database_that_is_added_is_empty_and_another_one(server: PostgresServer) -> None:
    ask(server, "CREATE TABLE elsewhere (number int)")

    url = server.add_database("second")

    assert ask(server, "SELECT current_database()", url=url) == ("second",)
    assert ask(server, "SELECT to_regclass('elsewhere')", url=url) == (None,)
    with pytest.raises(CeleriacError, match="already exists"):
        server.add_database("second")


def test_it_stops_though_a_client_is_still_there(server: PostgresServer) -> None:
    with psycopg.connect(server.url) as connection:
        server.stop()

        assert server.exit_code == 0
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_a_server_that_runs_is_not_started_twice(server: PostgresServer) -> None:
    with pytest.raises(CallerError, match="is already running"):
        server.start()

    assert ask(server, "SELECT 1") == (1,)


def test_one_that_cannot_start_says_why() -> None:
    with (
        pytest.raises(CeleriacError, match="no_such_setting"),
        PostgresServer({"no_such_setting": "1"}),
    ):
        pass


def test_a_killed_one_leaves_no_process_no_folder_and_no_memory() -> None:
    server = PostgresServer()
    server.start()
    memory = memory_of(server.folder)
    server.kill()
    is_held_after_the_kill = memory in memory_ids()

    server.close()

    assert is_held_after_the_kill
    assert not alive(server.folder)
    assert not server.folder.exists()
    assert memory not in memory_ids()


def test_it_ends_with_an_owner_that_is_killed() -> None:
    command = [sys.executable, "-c", OWNER]
    owner = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)  # noqa: S603
    assert owner.stdout is not None
    folder = Path(owner.stdout.readline().strip())
    ran, memory = bool(alive(folder)), memory_of(folder)

    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    owner.stdout.close()

    assert ran
    assert wait_until(lambda: not alive(folder) and not folder.exists(), patience=PATIENCE)
    subprocess.run(["ipcrm", "-m", memory], check=True)  # noqa: S603, S607 - all that is left


def test_where_it_is_not_installed_the_package_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(postgres, "_VERSIONS", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ImproperlyConfigured, match="apt-get install postgresql"), PostgresServer():
        pass
