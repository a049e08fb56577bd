"""Monitoring and events: cameras, `evcam`, and snapshots in a database."""

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from celery.events import snapshot as stock

from celeriac import Celeriac, MemoryBroker, Polaroid, State, evcam
from celeriac.programs.process import wait_until
from celeriac.store.database_camera import DatabaseCamera
from tests.builders import WORKER, task, worker

TIMEOUT = 60.0


def test_095_a_camera_cleans_up_is_limited_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """A `Polaroid` has `on_cleanup`, `maxrate` and signals, and goes on after an `on_shutter` that raises."""
    calls: list[str] = []

    class Camera(Polaroid):
        def on_shutter(self, _state: State) -> None:
            calls.append("shutter")
            raise OSError("disk full")

        def on_cleanup(self) -> None:
            calls.append("cleanup")

    def note_shutter(**_: object) -> None:
        calls.append("shutter signal")

    def note_cleanup(**_: object) -> None:
        calls.append("cleanup signal")

    Polaroid.shutter_signal.connect(note_shutter)
    Polaroid.cleanup_signal.connect(note_cleanup)
    with Camera(State(), freq=0.01, cleanup_freq=0.01) as camera:
        goes_on = wait_until(lambda: camera.failed > 1 and calls.count("cleanup") > 1, patience=TIMEOUT)
    limited = Polaroid(State(), maxrate="1/m")
    taken = [limited.shutter() for _ in range(3)]
    Polaroid.shutter_signal.disconnect(note_shutter)
    Polaroid.cleanup_signal.disconnect(note_cleanup)

    assert goes_on
    assert calls[:2] in (["shutter signal", "shutter"], ["cleanup signal", "cleanup"])
    assert set(calls) == {"shutter", "shutter signal", "cleanup", "cleanup signal"}
    assert taken == [True, False, False]
    assert "disk full" in caplog.text


def test_097_evcam_has_the_arguments_of_celery(tmp_path: Path) -> None:
    """`evcam` takes camera, freq, maxrate, loglevel, logfile, pidfile, timer and app, in this order."""

    def arguments(function: Callable[..., Any]) -> list[tuple[str, Any]]:
        parameters = inspect.signature(function).parameters.values()
        return [(each.name, each.default) for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]

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

    assert arguments(evcam) == arguments(stock.evcam)
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
