"""Ctrl-C once lets what runs end, twice breaks it off; nothing is lost, and nobody is left behind."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from celeriac.app import Celeriac
from celeriac.programs.process import wait_until
from celeriac.testing.peers import CeleriacWorker
from celeriac.wire.envelope import opened
from tests.default_signals import WITH_DEFAULT_SIGNALS
from tests.fleet import OUR_APP, PATIENCE
from tests.live import IS_LONG

POOLS = ("threads", "processes", "solo")
TASKS = ("ours.hold", "ours.hold_early")
#: Each pool with a task of each kind; in the short form with one, and one signal has another than two have.
EACH = [(pool, task) for pool in POOLS for task in TASKS]
ONCE, TWICE = (EACH, EACH) if IS_LONG else ([EACH[0], EACH[3], EACH[4]], [EACH[1], EACH[2], EACH[5]])


class InterruptibleWorker(CeleriacWorker):
    """A worker that takes Ctrl-C, whatever started the tests."""

    def _command(self) -> list[str]:
        return [*WITH_DEFAULT_SIGNALS, *super()._command()]


class Scene:
    """A worker that runs one task and has others at hand."""

    def __init__(self, url: str, folder: Path, *, pool: str, task: str, **options: Any) -> None:
        self.app = Celeriac(url, url, environ={})
        self.worker = InterruptibleWorker(OUR_APP, url=url, backend=url, pool=pool, concurrency=1, **options)
        self.notes, self.until = folder / "notes", folder / "until"
        self._task, self._pool = task, pool
        self._client = redis.Redis.from_url(url)

    def begin(self) -> list[Any]:
        """Start the worker, send three tasks, and wait until the first runs; return their results."""
        self.worker.start()
        arguments = [(str(self.notes), text, str(self.until)) for text in ("one", "two", "three")]
        results = [self.app.send_task(self._task, each) for each in arguments]
        assert self.soon(lambda: self.told() == ["begin one"])
        return results

    def told(self) -> list[str]:
        """Return what the tasks wrote."""
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    def press(self) -> None:
        """Press Ctrl-C, as a terminal passes it on: to the worker and to all of its processes."""
        os.killpg(self.worker.pid, signal.SIGINT)

    def press_again(self) -> None:
        """Press Ctrl-C once more, when the first has been heeded."""
        if self._pool == "solo":
            # Busy with its task it tells nothing of the first. Two signals of one kind may become one.
            os.killpg(self.worker.pid, signal.SIGTERM)
            return
        assert self.soon(lambda: "worker: stopping" in self.worker.log())
        self.press()

    def family(self) -> list[psutil.Process]:
        """Return the processes of the worker, itself included."""
        own = psutil.Process(self.worker.pid)
        return [own, *own.children(recursive=True)]

    def waiting(self) -> int:
        """Return how many tasks are in the queue."""
        return int(self._client.llen("celery"))

    def queued(self) -> list[str]:
        """Return the ids of the tasks that wait in the queue; none may be in the hands of anybody."""
        assert self._client.hlen("unacked") == 0
        envelopes: list[Any] = self._client.lrange("celery", 0, -1)
        return [str(opened(each).headers["id"]) for each in envelopes]

    def soon(self, condition: Any) -> bool:
        return wait_until(lambda: bool(condition()), patience=PATIENCE)

    def close(self) -> None:
        self.until.touch()
        self.worker.kill()
        print(self.worker.log())  # pytest shows it if the test failed
        self.worker.close()
        self.app.close()
        self._client.close()


@contextmanager
def playing(url: str, folder: Path, *, pool: str, task: str, **options: Any) -> Iterator[Scene]:
    scene = Scene(url, folder, pool=pool, task=task, **options)
    try:
        yield scene
    finally:
        scene.close()


@pytest.mark.parametrize(("pool", "task"), ONCE)
def test_ctrl_c_once_lets_what_runs_end_and_gives_the_rest_back(
    redis_url: str, tmp_path: Path, pool: str, task: str
) -> None:
    with playing(redis_url, tmp_path, pool=pool, task=task) as scene:
        first, *others = scene.begin()
        family = scene.family()

        scene.press()
        # While it runs a task by itself a worker does nothing else.
        assert pool == "solo" or scene.soon(lambda: scene.waiting() == 2)
        scene.until.touch()

        assert scene.soon(lambda: not scene.worker.is_alive)
        assert scene.worker.exit_code == 0
        assert first.get(timeout=PATIENCE) == "one"
        assert scene.told() == ["begin one", "end one"]
        assert sorted(scene.queued()) == sorted(other.id for other in others)
        assert not [process for process in family if process.is_running()]
        assert scene.worker.errors() == []


@pytest.mark.parametrize(("pool", "task"), TWICE)
def test_ctrl_c_twice_breaks_off_what_runs_and_gives_all_back(
    redis_url: str, tmp_path: Path, pool: str, task: str
) -> None:
    with playing(redis_url, tmp_path, pool=pool, task=task) as scene:
        results = scene.begin()
        family = scene.family()

        scene.press()
        scene.press_again()

        assert scene.soon(lambda: not scene.worker.is_alive)
        assert scene.worker.exit_code == 0
        assert sorted(scene.queued()) == sorted(result.id for result in results)
        assert scene.told() == ["begin one"]
        assert not [process for process in family if process.is_running()]


def test_what_was_broken_off_is_run_by_the_next_worker(redis_url: str, tmp_path: Path) -> None:
    with playing(redis_url, tmp_path, pool="processes", task="ours.hold_early") as scene:
        results = scene.begin()
        scene.press()
        scene.press_again()
        assert scene.soon(lambda: not scene.worker.is_alive)

        scene.worker.start()
        scene.until.touch()

        assert [result.get(timeout=PATIENCE) for result in results] == ["one", "two", "three"]


def test_sigterm_is_as_ctrl_c_once(redis_url: str, tmp_path: Path) -> None:
    with playing(redis_url, tmp_path, pool="processes", task="ours.hold") as scene:
        first, *_ = scene.begin()

        os.kill(scene.worker.pid, signal.SIGTERM)
        scene.until.touch()

        assert scene.soon(lambda: not scene.worker.is_alive)
        assert first.get(timeout=PATIENCE) == "one"
        assert scene.worker.exit_code == 0


def test_sigquit_breaks_off_at_once(redis_url: str, tmp_path: Path) -> None:
    with playing(redis_url, tmp_path, pool="processes", task="ours.hold") as scene:
        results = scene.begin()

        os.kill(scene.worker.pid, signal.SIGQUIT)

        assert scene.soon(lambda: not scene.worker.is_alive)
        assert sorted(scene.queued()) == sorted(result.id for result in results)
