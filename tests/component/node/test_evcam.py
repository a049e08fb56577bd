"""``evcam`` takes any camera, and goes on until it is stopped."""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from threading import Event as Flag
from threading import Thread, active_count
from typing import Any

import pytest

from celeriac import MemoryBroker, State
from celeriac.app import Celeriac
from celeriac.errors import CallerError, ConnectionLost, DiskError, ImproperlyConfigured
from celeriac.node.camera import Polaroid, evcam, load_camera, make_camera
from celeriac.programs.process import wait_until
from tests.component.node.test_camera import PATIENCE, Album, Broken, Film, cameras


@pytest.fixture
def app() -> Celeriac:
    return Celeriac(MemoryBroker(), environ={})


def send_until(app: Celeriac, is_heard: Callable[[], bool]) -> bool:
    """Send the same event until it is heard: nobody knows when a receiver has begun to listen."""

    def look() -> bool:
        dispatcher.send("task-started", uuid="t1")
        return is_heard()

    with app.events.Dispatcher() as dispatcher:
        return wait_until(look, patience=PATIENCE)


@pytest.mark.parametrize("kind", ["class", "name", "instance", "film", "function"])
def test_evcam_takes_pictures_of_what_happens_until_it_is_stopped(
    app: Celeriac, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    class Kept(Album):
        def __init__(self, state: State, **options: Any) -> None:
            super().__init__(state, **options)
            made.append(self)

    def make(state: State, **options: Any) -> Polaroid:
        return Kept(state, **options)

    film = Film()
    monkeypatch.setattr("celeriac.programs.process.Kept", Kept, raising=False)
    camera: Any = {
        "class": Kept,
        "name": "celeriac.programs.process:Kept",
        "instance": Album(app.events.State(), freq=0.01),
        "film": film,
        "function": make,
    }[kind]
    receiver = app.events.Receiver()
    thread = Thread(target=evcam, args=(camera, 0.01), kwargs={"app": app, "receiver": receiver})
    thread.start()

    def pictures() -> list[int]:
        album = made[0] if made else film if kind == "film" else camera
        return list(getattr(album, "pictures", ()))

    try:
        heard = send_until(app, lambda: 1 in pictures())
    finally:
        receiver.stop()
        thread.join(PATIENCE)

    assert heard, pictures()
    assert not thread.is_alive()


def test_evcam_ends_cleanly_at_ctrl_c(app: Celeriac) -> None:
    threads = active_count()
    heard = Flag()

    def press(*_: object) -> None:
        heard.set()
        raise KeyboardInterrupt

    camera = Album(app.events.State(press), freq=0.01)
    sender = Thread(target=send_until, args=(app, heard.is_set))
    sender.start()

    evcam(camera, app=app)
    sender.join(PATIENCE)

    assert heard.is_set()
    assert not camera.is_installed
    assert wait_until(lambda: active_count() <= threads, patience=PATIENCE)


def test_evcam_goes_on_with_a_camera_that_raises(app: Celeriac, caplog: pytest.LogCaptureFixture) -> None:
    camera, receiver = Broken(app.events.State(), freq=0.01), app.events.Receiver()
    thread = Thread(target=evcam, args=(camera,), kwargs={"app": app, "receiver": receiver})

    with caplog.at_level(logging.ERROR):
        thread.start()
        goes_on = wait_until(lambda: camera.failed > 2, patience=PATIENCE)
        receiver.stop()
        thread.join(PATIENCE)

    assert goes_on
    assert "camera: picture of Broken failed" in caplog.text


def test_times_are_for_cameras_that_are_not_made_yet(app: Celeriac) -> None:
    options: dict[str, Any] = {"freq": 5.0, "maxrate": "1/m", "cleanup_freq": 60.0, "clear_after": True}

    made = make_camera(Album, app, **options)
    of_film = make_camera(Film(), app, **options)
    of_class = make_camera(Film, app, **options)

    for camera in (made, of_film, of_class):
        assert (camera.freq, camera.cleanup_freq, camera.clear_after) == (5.0, 60.0, True)
        assert camera.app is app


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("nowhere.at:All", "no module 'nowhere'"),
        ("celeriac.node.camera:Nikon", "has no 'Nikon'"),
        ("celeriac.node.camera.Nikon", "has no 'Nikon'"),
        ("Nikon", "module:Class"),
        (":Nikon", "module:Class"),
    ],
)
def test_a_name_of_no_camera_is_told_with_the_fix(name: str, fix: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=fix):
        load_camera(name)


@pytest.mark.parametrize("name", ["celeriac.node.camera:Polaroid", "celeriac.node.camera.Polaroid"])
def test_a_camera_is_found_by_its_name(name: str) -> None:
    assert load_camera(name) is Polaroid


@pytest.mark.parametrize("camera", [7, object(), dict])
def test_what_is_no_camera_is_refused(app: Celeriac, camera: object) -> None:
    with pytest.raises(CallerError, match="invalid camera"):
        make_camera(camera, app)


def test_a_film_that_needs_arguments_is_to_be_made_first(app: Celeriac) -> None:
    class Roll(Film):
        def __init__(self, url: str) -> None:
            super().__init__()
            self.url = url

    with pytest.raises(CallerError, match="create an instance"):
        make_camera(Roll, app)


# -- the arguments of Celery


def interrupt() -> None:
    raise KeyboardInterrupt


class Timer:
    """Calls what it is given once, and notes it."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        self.entries: list[float] = []
        self.cancelled = 0
        self._then = then

    def call_repeatedly(self, secs: float, fun: Callable[[], object], /) -> "Timer":
        self.entries.append(secs)
        fun()
        if len(self.entries) == 2:
            self._then()
        return self

    def cancel(self) -> None:
        self.cancelled += 1


def test_a_timer_takes_the_place_of_the_thread() -> None:
    timer = Timer()
    camera = Album(State(), freq=2.0, cleanup_freq=60.0, timer=timer)

    with camera:
        was_installed = camera.is_installed
        threads = cameras()

    assert (was_installed, camera.is_installed, threads) == (True, False, 0)
    assert (camera.pictures, camera.cleanups) == ([0], 1)
    assert (timer.entries, timer.cancelled) == ([2.0, 60.0], 2)


def test_evcam_without_an_app_takes_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELERIAC_BROKER_URL", "redis://127.0.0.1:1/0")
    made: list[Any] = []

    def make(state: State, **options: Any) -> Polaroid:
        made.append(options["app"].conf.broker_url)
        return Polaroid(state, **options)

    with pytest.raises(ConnectionLost):
        evcam(make)

    assert made == ["redis://127.0.0.1:1/0"]


def test_the_log_is_as_before_when_evcam_has_ended(app: Celeriac, tmp_path: Path) -> None:
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    log = tmp_path / "cam.log"

    evcam(Album, 1.0, None, "info", log, timer=Timer(interrupt), app=app)

    assert (root.level, root.handlers) == before
    assert "INFO/MainProcess] evcam: taking snapshots" in log.read_text()


def test_a_log_level_that_is_none_is_refused(app: Celeriac) -> None:
    with pytest.raises(CallerError, match="Invalid loglevel 'loud'"):
        evcam(Album, loglevel="loud", timer=Timer(interrupt), app=app)


def test_a_log_file_that_cannot_be_written_is_named(app: Celeriac, tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="Cannot write log file"):
        evcam(Album, logfile=tmp_path / "missing" / "cam.log", timer=Timer(interrupt), app=app)


def test_evcam_writes_its_pid_and_removes_the_file(app: Celeriac, tmp_path: Path) -> None:
    pid, seen = tmp_path / "cam.pid", list[str]()

    def look() -> None:
        seen.append(pid.read_text())
        raise KeyboardInterrupt

    evcam(Album, pidfile=pid, timer=Timer(look), app=app)

    assert seen == [f"{os.getpid()}\n"]
    assert not pid.exists()


def test_evcam_refuses_the_pid_file_of_a_running_process(app: Celeriac, tmp_path: Path) -> None:
    pid = tmp_path / "cam.pid"
    pid.write_text(f"{os.getppid()}\n")

    with pytest.raises(CallerError, match=f"process {os.getppid()} is running"):
        evcam(Album, pidfile=pid, timer=Timer(interrupt), app=app)

    assert pid.read_text() == f"{os.getppid()}\n"


@pytest.mark.parametrize(
    "left",
    # The process of the test has another id in each process that collects it.
    ["", "999999999", pytest.param(str(os.getpid()), id="own")],
)
def test_evcam_replaces_a_pid_file_that_was_left_behind(left: str, app: Celeriac, tmp_path: Path) -> None:
    pid = tmp_path / "cam.pid"
    pid.write_text(left)

    evcam(Album, pidfile=pid, timer=Timer(interrupt), app=app)

    assert not pid.exists()


def test_a_pid_file_that_cannot_be_written_is_named(app: Celeriac, tmp_path: Path) -> None:
    with pytest.raises(DiskError, match="Cannot write pid file"):
        evcam(Album, pidfile=tmp_path / "missing" / "cam.pid", timer=Timer(interrupt), app=app)


@pytest.mark.parametrize("content", ["notes of today\n", "-1", "12 34"])
def test_a_file_that_holds_no_pid_is_kept(content: str, app: Celeriac, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text(content)

    with pytest.raises(CallerError, match=r"notes\.txt has no pid: remove it"):
        evcam(Album, pidfile=notes, timer=Timer(interrupt), app=app)

    assert notes.read_text() == content
