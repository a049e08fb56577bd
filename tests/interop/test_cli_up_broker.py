"""``celeriac up`` with a broker that is named: what it starts, what it refuses, and that it ends."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from celeriac.app import Celeriac
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleriacWorker
from tests.interop.test_cli_elections import SHOP
from tests.program import run_program
from tests.up import PATIENCE, is_open, running


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """A broker with a password, and a worker."""
    with RedisServer() as server:
        url = f"redis://:hush-hush@127.0.0.1:{server.port}/0"
        server.configure("requirepass", "hush-hush")
        with CeleriacWorker(SHOP, url=url, backend=url, hostname="shop@lab"):
            yield url


def test_with_a_broker_named_it_starts_a_recorder_and_a_dashboard_and_no_more(
    guarded: str, tmp_path: Path
) -> None:
    app = Celeriac(guarded, guarded, environ={})
    log = tmp_path / "elsewhere"
    # A setting says where the log is, and an option where all else is.
    with running(tmp_path, "--broker", guarded, "--data", "kept", CELERIAC_LOG_URL=str(log)) as up:
        address = up.address
        result = app.send_task("shop.price", (3, 2.5))
        result.get(timeout=PATIENCE)
        path = f"/api/v1/tasks/{result.id}"
        is_seen = wait_until(lambda: up.get(path).status_code == 200, patience=PATIENCE)
        commands = [command for pid, command in up.alive().items() if pid != up.process.pid]
        code = up.end(signal.SIGHUP)
        is_gone = wait_until(lambda: up.alive() == {} and not is_open(int(address[-5:])), patience=PATIENCE)
    app.close()
    events = run_program("events", "--log", str(log), "--json").stdout

    assert (is_seen, code, is_gone) == (True, 0, True)
    # Each with a guard.
    assert sorted(re.sub(r".* -m celeriac (\w+) .*", r"\1", each) for each in commands) == [
        *["record"] * 2,
        *["web"] * 2,
    ]
    assert "hush" not in " ".join(commands) + up.told
    assert result.id in events
    assert sorted(each.name for each in (tmp_path / "kept").iterdir()) == [
        *(".gitignore", "cluster", "lock", "output"),
    ]
    assert list(up.temporary.iterdir()) == []


def test_what_the_dashboard_refuses_ends_it_at_once_with_the_reason(guarded: str, tmp_path: Path) -> None:
    with running(tmp_path, "--host", "0.0.0.0", CELERIAC_BROKER_URL=guarded) as up:  # noqa: S104
        code = up.process.wait(timeout=PATIENCE)

    assert code == 2
    assert "dashboard: cannot start: Cannot serve on 0.0.0.0 without accounts" in up.told


def test_another_cluster_has_to_have_another_folder(guarded: str, tmp_path: Path) -> None:
    (tmp_path / ".celeriac").mkdir()
    (tmp_path / ".celeriac" / "cluster").write_text("the sample cluster")

    result = run_program("up", "--broker", guarded, cwd=tmp_path)

    assert result.returncode == 2
    assert "has the history of the sample cluster" in result.stderr


def test_a_project_of_the_user_is_not_taken_for_its_folder(guarded: str, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.pyc\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "server.py").touch()

    result = run_program("up", "--broker", guarded, "--data", ".", cwd=tmp_path)

    assert result.returncode == 2
    assert f"take a new folder, such as --data {tmp_path}/.celeriac" in result.stderr
    assert sorted(each.name for each in tmp_path.rglob("*")) == [".gitignore", "run", "server.py"]
    assert (tmp_path / ".gitignore").read_text() == "*.pyc\n"


def test_a_broker_that_is_not_there_is_one_line_and_code_69(tmp_path: Path) -> None:
    result = run_program("up", "--broker", "redis://127.0.0.1:1/0", cwd=tmp_path)

    assert result.returncode == 69
    assert len(result.stderr.splitlines()) == 1
    assert "name another with --broker URL" in result.stderr
    assert list(tmp_path.iterdir()) == []
