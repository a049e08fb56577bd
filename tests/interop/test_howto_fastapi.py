"""The web service of the how-to, run by uvicorn beside a real Redis and a real Celery worker."""

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from redis import Redis

from celeriac.app import Celeriac
from celeriac.programs.port import LOOPBACK, ReservedPort
from celeriac.programs.process import wait_until
from celeriac.programs.service import Service
from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleryWorker
from tests.fleet import running
from tests.http_client import http_client

EXAMPLE = Path(__file__).parents[2] / "examples" / "fastapi_results.py"
PATIENCE = 60.0
#: Of the service: too short for a task that nobody runs, and for no other.
NOT_LONG = 0.2


class WebService(Service):
    """The example, served on a free port of the loopback interface."""

    name = "uvicorn"

    def __init__(self, redis: RedisServer) -> None:
        super().__init__()
        self._redis = redis
        self._port = ReservedPort()
        self.client = http_client(f"http://{LOOPBACK}:{self._port.number}", timeout=PATIENCE)

    def close(self) -> None:
        self.client.close()
        super().close()
        self._port.release()

    def waiters(self) -> int:
        """Return how many requests wait for a result."""
        waiters: int = self.client.get("/health").json()["waiters"]
        return waiters

    def _environment(self) -> dict[str, str]:
        return dict(os.environ) | {"REDIS_URL": self._redis.url}

    def _command(self) -> list[str]:
        place = ["--app-dir", str(EXAMPLE.parent), "--host", LOOPBACK, "--port", str(self._port.number)]
        return [sys.executable, "-m", "uvicorn", f"{EXAMPLE.stem}:web", *place]

    def _is_ready(self) -> bool:
        return "Uvicorn running on" in self.log()


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def web(redis: RedisServer) -> Iterator[WebService]:
    with WebService(redis) as service:
        yield service
        print(service.log())  # pytest shows it if the test failed


@contextmanager
def working(redis: RedisServer) -> Iterator[None]:
    """Have a worker with the tasks of the example."""
    environment = {"REDIS_URL": redis.url}
    worker = CeleryWorker(sys.executable, EXAMPLE, url=redis.url, pool="solo", environment=environment)
    with running(worker):
        yield


def test_a_task_that_takes_long_is_accepted_and_asked_for_later_and_its_result_is_the_answer(
    web: WebService, redis: RedisServer
) -> None:
    accepted = web.client.post("/reports", params={"pages": 2, "patience": NOT_LONG})
    where = accepted.headers["Location"]
    too_early = web.client.get(where, params={"patience": NOT_LONG})
    with working(redis):
        late = web.client.get(where, params={"patience": PATIENCE})
        done = web.client.post("/reports", params={"pages": 3, "patience": PATIENCE})
        failed = web.client.post("/reports", params={"pages": 0, "patience": PATIENCE})

    assert accepted.status_code == 202
    assert where == f"/reports/{accepted.json()['task_id']}"
    assert too_early.status_code == 504
    assert (late.status_code, late.json()) == (200, {"pages": 2, "words": 600})
    assert (done.status_code, done.json()) == (200, {"pages": 3, "words": 900})
    assert failed.status_code == 502
    assert "ValueError: a report has at least one page" in failed.json()["detail"]
    assert web.waiters() == 0


def test_a_client_that_leaves_ends_the_wait(web: WebService) -> None:
    with pytest.raises(httpx.ReadTimeout):
        web.client.get("/reports/nobody-sent-it", params={"patience": 3600}, timeout=NOT_LONG)

    assert wait_until(lambda: web.waiters() == 0, patience=PATIENCE)
    assert "Traceback" not in web.log()


def _most_heard(client: Redis) -> int:
    """Return for how many results the link listens that listens for the most."""
    return max((int(each["sub"]) for each in client.client_list(_type="pubsub")), default=0)


def test_one_link_serves_many_requests_at_once(web: WebService, redis: RedisServer) -> None:
    def ask(number: int) -> int:
        return web.client.get(f"/reports/nobody-{number}", params={"patience": PATIENCE}).status_code

    app = Celeriac(backend=redis.url, environ={})
    with ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(ask, number) for number in range(20)]
        have_all_come = wait_until(lambda: web.waiters() == 20, patience=PATIENCE)
        with redis.client() as client:
            # A second link was seen at times beside it, on a busy machine.
            is_one = wait_until(lambda: _most_heard(client) >= 10, patience=PATIENCE / 2)
        for number in range(20):
            app.backend.store_result(f"nobody-{number}", number)
        codes = {each.result() for each in asked}
    app.close()

    assert have_all_come
    assert is_one
    assert codes == {200}


def test_the_service_ends_and_leaves_no_link(web: WebService, redis: RedisServer) -> None:
    # The last of the file: afterwards the service is gone.
    web.client.get("/reports/nobody-sent-it", params={"patience": NOT_LONG})
    with redis.client() as client:
        links_before = len(client.client_list())

    web.stop()

    with redis.client() as client:
        assert links_before > 1
        assert len(client.client_list()) == 1
    assert "Application shutdown complete" in web.log()
    assert "Traceback" not in web.log()
