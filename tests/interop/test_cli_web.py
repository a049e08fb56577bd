"""``celeriac web`` as a program of its own, beside a real broker and a worker."""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from celeriac.app import Celeriac
from celeriac.programs.port import ReservedPort
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleriacWorker
from tests.http_client import http_client
from tests.interop.test_cli_elections import SHOP
from tests.live import StartWorker
from tests.program import Program, own_environment

PATIENCE = 60.0


@pytest.fixture(scope="module")
def app() -> Iterator[Celeriac]:
    with RedisServer() as redis:
        app = Celeriac(redis.url, redis.url, environ={}, task_send_sent_event=True)
        with CeleriacWorker(SHOP, url=redis.url, backend=redis.url, arguments=("--task-events",)):
            yield app
        app.close()


@contextmanager
def serving(app: Celeriac, folder: Path, *arguments: str) -> Iterator[tuple[Program, httpx.Client]]:
    environment = own_environment(CELERIAC_BROKER_URL=app.conf.broker_url)
    told = folder / "told"
    with (
        told.open("wb") as stderr,
        Program("web", "--port", "0", *arguments, cwd=folder, env=environment, stderr=stderr) as process,
    ):
        found: list[str] = []

        def is_serving() -> bool:
            found[:] = re.findall(r"served at (http://\S+)", told.read_text())
            return bool(found)

        assert wait_until(is_serving, patience=PATIENCE), told.read_text()
        with http_client(found[0], timeout=PATIENCE) as client:
            assert wait_until(lambda: client.get("/healthz").status_code == 200, patience=PATIENCE)
            yield process, client


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_task_is_seen_over_http_until_a_signal_ends_it(
    app: Celeriac, tmp_path: Path, number: signal.Signals
) -> None:
    with serving(app, tmp_path) as (process, client):
        result = app.send_task("shop.price", (3, 2.5), kwargs={})
        result.get(timeout=PATIENCE)
        path = f"/api/v1/tasks/{result.id}"

        def state() -> str | None:
            answer = client.get(path)
            return answer.json()["task"]["state"] if answer.status_code == 200 else None

        is_seen = wait_until(lambda: state() == "SUCCESS", patience=PATIENCE)
        process.send_signal(number)
        code = process.wait()

    assert is_seen
    assert code == 0
    assert "Traceback" not in (tmp_path / "told").read_text()


def test_what_was_recorded_is_known_after_a_restart_and_as_of_any_instant(
    app: Celeriac, tmp_path: Path
) -> None:
    environment = own_environment(CELERIAC_BROKER_URL=app.conf.broker_url)
    # So many that heartbeats alone do not fill it before a task has run.
    with Program("record", "log", "--limit", "20", cwd=tmp_path, env=environment) as recorder:

        def is_recorded() -> bool:
            app.send_task("shop.price", (1, 1.0), kwargs={}).get(timeout=PATIENCE)
            return recorder.poll() is not None

        assert wait_until(is_recorded, patience=PATIENCE)

    with serving(app, tmp_path, "--log", "log") as (_, client):
        assert wait_until(lambda: bool(client.get("/api/v1/tasks").json()["tasks"]), patience=PATIENCE)
        now = client.get("/api/v1/overview").json()
        then = client.get("/api/v1/overview", params={"at": now["as_of"] - 3000}).json()

    assert now["tasks"] >= 1
    assert then["tasks"] == 0
    assert then["as_of"] == int(now["as_of"] - 3000)


def test_a_task_of_another_queue_is_sent_there_once_more_though_no_event_told_it(
    redis_url: str, peer_python: Path, celery_worker: StartWorker, tmp_path: Path
) -> None:
    silent = Celeriac(redis_url, redis_url, environ={})
    celery_worker(peer_python, redis_url, pool="solo", arguments=("--queues", "mail"))

    with serving(silent, tmp_path, "--allow-control") as (_, client):
        first = silent.send_task("peers.fail", ("planned",), {}, queue="mail").id
        again: list[str] = []

        def has_failed(uuid: str) -> bool:
            answer = client.get(f"/api/v1/tasks/{uuid}")
            return answer.status_code == 200 and answer.json()["task"]["state"] == "FAILURE"

        def is_retried() -> bool:
            done = client.post("/api/v1/control/retry", json={"ids": [first]}).json()
            again[:] = re.findall(r"^sent as (\S+) to mail$", done["replies"].get(first, ""))
            return bool(again)

        assert wait_until(lambda: has_failed(first), patience=PATIENCE)
        # On a busy machine the worker may not answer in time; then nothing is sent.
        assert wait_until(is_retried, patience=PATIENCE)

        assert wait_until(lambda: has_failed(again[0]), patience=PATIENCE)
    silent.close()


def test_others_than_this_machine_are_not_served_without_accounts(app: Celeriac, tmp_path: Path) -> None:
    environment = own_environment(CELERIAC_BROKER_URL=app.conf.broker_url)
    with Program("web", "--host", "0.0.0.0", cwd=tmp_path, env=environment) as process:  # noqa: S104
        _, told = process.communicate()

    assert process.returncode == 2
    assert "celeriac access add" in told


def test_a_broker_that_is_away_is_told_and_nothing_is_served(tmp_path: Path) -> None:
    port = ReservedPort()
    environment = own_environment(CELERIAC_BROKER_URL=f"redis://127.0.0.1:{port.number}/0")
    with Program("web", "--port", "0", cwd=tmp_path, env=environment) as process:
        _, told = process.communicate()
    port.release()

    assert process.returncode == 69
    assert "Start it, or name another with --broker URL" in told
    assert "served at" not in told


def test_somebody_who_was_added_is_let_in(app: Celeriac, tmp_path: Path) -> None:
    with Program("access", "add", "robot", "--token", cwd=tmp_path) as process:
        token, _ = process.communicate()

    with serving(app, tmp_path, "--accounts", "accounts.json") as (_, client):
        without = client.get("/api/v1/overview")
        within = client.get("/api/v1/overview", headers={"Authorization": f"Bearer {token.strip()}"})

    assert (without.status_code, within.status_code) == (401, 200)
