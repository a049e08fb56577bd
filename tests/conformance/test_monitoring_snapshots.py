"""Monitoring and events: programs of Celery's monitoring guide, and cameras, with a Celery worker."""

import inspect
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from pprint import pformat
from threading import Thread
from typing import Any

import pytest
import sqlalchemy
from celery.events import snapshot as stock

from celeriac import Celeriac, MemoryBroker, Polaroid, State, evcam
from celeriac.programs.process import wait_until
from celeriac.store.database_camera import DatabaseCamera
from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleryWorker
from tests.builders import WORKER, task, worker
from tests.live import NEWEST, PEER_APP, peer

TIMEOUT = 60.0


@pytest.fixture(scope="module", params=NEWEST)
def url(request: pytest.FixtureRequest, redis_server: RedisServer) -> Iterator[str]:
    """A Redis database where a Celery worker waits for tasks."""
    url = redis_server.url_of(43)
    with CeleryWorker(peer(request.param), PEER_APP, url=url, backend=url, hostname="c@example", pool="solo"):
        yield url


@pytest.fixture
def app(url: str) -> Iterator[Celeriac]:
    app = Celeriac(url, url, environ={})
    yield app
    app.close()


@contextmanager
def in_thread(
    function: Callable[..., Any], *args: Any, stop: Callable[[], object], **kwargs: Any
) -> Iterator[None]:
    """Run a program that captures events; it ends with the context."""
    thread = Thread(target=function, args=args, kwargs=kwargs)
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join(TIMEOUT)
    assert not thread.is_alive()


def run_tasks_until(app: Celeriac, condition: Callable[[], bool]) -> bool:
    """Run a task that succeeds and one that fails, again until a condition holds."""

    def is_met() -> bool:
        app.send_task("peers.add", (2, 3)).get(timeout=TIMEOUT)
        app.send_task("peers.fail").get(timeout=TIMEOUT, propagate=False)
        return condition()

    return wait_until(is_met, patience=TIMEOUT)


def test_081_a_program_for_real_time_processing_runs_as_written(app: Celeriac) -> None:
    """A monitor that feeds `State` and handles `task-failed` runs as written for Celery."""
    printed: list[str] = []
    receivers: list[Any] = []

    def watch_failures(app: Celeriac) -> None:
        state = app.events.State()

        def announce_failed_tasks(event: Any) -> None:
            state.event(event)
            # The name comes with task-received, so the state has to be asked for it.
            task: Any = state.tasks.get(event["uuid"])
            printed.append(f"TASK FAILED: {task.name}[{task.uuid}] {task.info()}")

        with app.connection() as connection:
            recv = app.events.Receiver(connection, handlers={
                "task-failed": announce_failed_tasks,
                "*": state.event,
            })  # fmt: skip
            receivers.append(recv)
            recv.capture(limit=None, timeout=None, wakeup=True)
            recv.close()

    with in_thread(watch_failures, app, stop=lambda: [each.stop() for each in receivers]):
        seen = run_tasks_until(app, lambda: any("peers.fail[" in line for line in printed))

    assert seen, printed
    assert any("ValueError" in line for line in printed)


class DumpCam(Polaroid):
    """The camera of Celery's monitoring guide, which keeps its text."""

    clear_after = True
    printed: list[str]

    def on_shutter(self, state: State) -> None:
        if not state.event_count:
            return
        self.printed.append(f"Workers: {pformat(state.workers, indent=4)}")
        self.printed.append(f"Tasks: {pformat(state.tasks, indent=4)}")
        self.printed.append(f"Total: {state.event_count} events, {state.task_count} tasks")


@pytest.fixture(scope="module")
def pictures(url: str) -> list[str]:
    """The pictures of the camera in a run of the program."""
    printed: list[str] = []
    receivers: list[Any] = []

    def main(app: Celeriac, freq: float = 1.0) -> None:
        state = app.events.State()
        camera = DumpCam(state, freq=freq)
        camera.printed = printed
        with app.connection() as connection:
            recv = app.events.Receiver(connection, handlers={"*": state.event})
            receivers.append(recv)
            with camera:
                recv.capture(limit=None, timeout=None)
            recv.close()

    app = Celeriac(url, url, environ={})
    with in_thread(main, app, freq=0.05, stop=lambda: [each.stop() for each in receivers]):

        def is_complete() -> bool:
            text = "\n".join(printed)
            return all(word in text for word in ("SUCCESS", "FAILURE", "ONLINE")) and text.count("Total") > 2

        seen = run_tasks_until(app, is_complete)
    app.close()
    assert seen, printed
    return printed


def test_093_a_camera_takes_pictures_at_intervals(pictures: list[str]) -> None:
    """The timer of a `Polaroid` calls `on_shutter(state)` every `freq` seconds."""
    totals = [line for line in pictures if line.startswith("Total:")]

    assert len(totals) > 2


def test_094_a_picture_shows_tasks_and_workers(pictures: list[str]) -> None:
    """`on_shutter` sees the tasks and workers of the state, and `clear_after` clears the tasks that ended."""
    text = "\n".join(pictures)

    ended = re.findall(r"<Task: [\w.]+\(([\w-]+)\) (?:SUCCESS|FAILURE)", text)

    assert "<Task: peers.add(" in text
    assert "<Worker: c@example (ONLINE" in text
    assert len(set(ended)) == len(ended)  # cleared after the picture that shows its end


def test_095_a_camera_cleans_up_is_limited_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """A `Polaroid` has `on_cleanup`, `maxrate` and signals, and goes on after an `on_shutter` that raises."""
    calls: list[str] = []

    class Camera(Polaroid):
        def on_shutter(self, _state: State) -> None:
            calls.append("shutter")
            raise OSError("disk full")

        def on_cleanup(self) -> None:
            calls.append("cleanup")

    def note(**_: object) -> None:
        calls.append("signal")

    Polaroid.shutter_signal.connect(note)
    with Camera(State(), freq=0.01, cleanup_freq=0.01) as camera:
        goes_on = wait_until(lambda: camera.failed > 1 and calls.count("cleanup") > 1, patience=TIMEOUT)
    limited = Polaroid(State(), maxrate="1/m")
    taken = [limited.shutter() for _ in range(3)]
    Polaroid.shutter_signal.disconnect(note)

    assert goes_on
    assert {"shutter", "cleanup", "signal"} == set(calls)
    assert taken == [True, False, False]
    assert "disk full" in caplog.text


def test_096_evcam_runs_a_camera_by_its_name(app: Celeriac, monkeypatch: pytest.MonkeyPatch) -> None:
    """`evcam(camera='my_project.Camera', freq=…, app=app)` takes pictures of the cluster until Ctrl-C."""
    pictures: list[dict[str, tuple[str | None, str]]] = []

    class Camera(Polaroid):
        def on_shutter(self, state: State) -> None:
            pictures.append({uuid: (task.name, task.state) for uuid, task in state.itertasks()})
            if ("peers.add", "SUCCESS") in pictures[-1].values():
                done.append(True)

    def interrupt(_state: State, _event: object) -> None:
        if done:
            raise KeyboardInterrupt

    done: list[bool] = []
    monkeypatch.setattr("tests.conformance.redis_spy.Camera", Camera, raising=False)
    make_state = app.events.State
    monkeypatch.setattr(app.events, "State", lambda: make_state(interrupt))
    sender = Thread(target=run_tasks_until, args=(app, lambda: bool(done)))
    sender.start()

    evcam(camera="tests.conformance.redis_spy.Camera", freq=0.05, app=app)
    sender.join(TIMEOUT)

    assert ("peers.add", "SUCCESS") in [each for picture in pictures for each in picture.values()]


def test_097_evcam_has_the_arguments_of_celery(tmp_path: Path) -> None:
    """`evcam` takes camera, freq, maxrate, loglevel, logfile, pidfile, timer and app, in this order."""
    theirs = [
        each.name for each in inspect.signature(stock.evcam).parameters.values() if each.name != "kwargs"
    ]
    ours = [
        name
        for name, each in inspect.signature(evcam).parameters.items()
        if each.kind is not each.KEYWORD_ONLY
    ]
    log, pid, calls = tmp_path / "cam.log", tmp_path / "cam.pid", []
    cancelled: list[bool] = []

    class Timer:
        def call_repeatedly(self, secs: float, fun: Callable[[], object], /) -> "Timer":
            calls.append((secs, pid.read_text()))
            if len(calls) == 2:
                raise KeyboardInterrupt
            fun()
            return self

        def cancel(self) -> None:
            cancelled.append(pid.exists())

    pictures: list[int] = []

    class Camera(Polaroid):
        def on_shutter(self, state: State) -> None:
            pictures.append(len(state.tasks))

    evcam(Camera, 2.0, "60/m", "INFO", log, pid, Timer(), Celeriac(MemoryBroker(), environ={}))

    assert ours == theirs
    assert calls == [(seconds, f"{os.getpid()}\n") for seconds in (2.0, 3600.0)]
    assert cancelled == [True]
    assert pictures == [0]
    assert "INFO" in log.read_text()
    assert not pid.exists()


def test_098_pictures_are_kept_in_a_database(tmp_path: Path) -> None:
    """A camera keeps pictures of the cluster in a database."""
    database = f"sqlite:///{tmp_path / 'pictures.sqlite'}"
    state = State()
    for event in (worker("online"), task("received", name="shop.pay"), task("succeeded", result="1")):
        state.event(event)

    film = DatabaseCamera(database)
    Polaroid(state, film=film).capture()
    film.close()

    engine = sqlalchemy.create_engine(database)
    with engine.connect() as connection:
        tasks = connection.execute(sqlalchemy.text("SELECT name, state FROM celeriac_tasks")).all()
        workers = connection.execute(sqlalchemy.text("SELECT hostname FROM celeriac_workers")).all()
    engine.dispose()
    assert [tuple(row) for row in tasks] == [("shop.pay", "SUCCESS")]
    assert [tuple(row) for row in workers] == [(WORKER,)]
