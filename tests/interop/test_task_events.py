"""Real Celery workers with and without task events, side by side: those without are named."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event as Flag
from threading import Thread

from celeriac.app import Celeriac
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from tests.browser.kit import Dashboard, dashboard
from tests.live import StartWorker, peer
from tests.program import run_program

PATIENCE = 90.0


def sends(board: Dashboard) -> dict[str, bool | None]:
    """Return whether each worker sends task events, as the API says it."""
    return {each["name"]: each["task_events"] for each in board.api("workers")["workers"]}


def alerts(board: Dashboard) -> list[str]:
    told = [each["text"] for each in board.api("overview")["alerts"]]
    return [text for text in told if text.startswith("Workers without task events")]


@contextmanager
def load(url: str, *queues: str) -> Iterator[None]:
    """Have a task run in each queue now and then."""
    ending = Flag()
    client = Celeriac(url, environ={})

    def send() -> None:
        while not ending.wait(0.2):
            for queue in queues:  # a queue for each worker, or one could run all tasks
                client.send_task("peers.add", (1, 2), queue=queue)

    thread = Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
        client.close()


def test_worker_without_task_events_is_named_and_one_with_them_is_not(
    own_redis: RedisServer, celery_worker: StartWorker
) -> None:
    url, python = own_redis.url, peer("5.7")
    on = celery_worker(python, url, events=True, arguments=("-Q", "on")).hostname
    off = celery_worker(python, url, events=False, arguments=("-Q", "off")).hostname

    with load(url, "on", "off"), dashboard(url) as board:
        assert wait_until(lambda: sends(board) == {on: True, off: False}, patience=PATIENCE), sends(board)
        (alert,) = alerts(board)
        metrics = board.client.get("/metrics").text
        status = run_program("status", "-b", url, "--json", "--listen", "5", "--timeout", "5")

    assert (off in alert, on in alert) == (True, False)
    assert f'celeriac_worker_task_events_enabled{{worker="{off}"}} 0.0' in metrics
    assert f'celeriac_worker_task_events_enabled{{worker="{on}"}} 1.0' in metrics
    assert {row["name"]: row["events"] for row in json.loads(status.stdout) if "peer-" in row["name"]} == {
        on: "on",
        off: "off",
    }
    assert f"task events are off: {off}" in status.stderr


def test_dashboard_enables_task_events_of_workers_that_run_and_that_join(
    own_redis: RedisServer, celery_worker: StartWorker
) -> None:
    url, python = own_redis.url, peer("5.7")
    first = celery_worker(python, url, events=False, arguments=("-Q", "first")).hostname

    with load(url, "first", "second"), dashboard(url, "--enable-events") as board:
        assert wait_until(lambda: sends(board).get(first) is True, patience=PATIENCE), sends(board)
        second = celery_worker(python, url, events=False, arguments=("-Q", "second")).hostname
        assert wait_until(lambda: sends(board).get(second) is True, patience=PATIENCE), sends(board)
        assert alerts(board) == []
