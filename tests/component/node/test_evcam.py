"""``evcam`` takes any camera, and goes on until it is stopped."""

import logging
from collections.abc import Callable
from threading import Event as Flag
from threading import Thread, active_count
from typing import Any

import pytest

from celeriac import MemoryBroker, State
from celeriac.app import Celeriac
from celeriac.errors import CallerError, ImproperlyConfigured
from celeriac.node.camera import Polaroid, evcam, load_camera, make_camera
from celeriac.programs.process import wait_until
from tests.component.node.test_camera import PATIENCE, Album, Broken, Film


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
    assert "A picture of Broken failed" in caplog.text


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
    with pytest.raises(CallerError, match="no camera"):
        make_camera(camera, app)


def test_a_film_that_needs_arguments_is_to_be_made_first(app: Celeriac) -> None:
    class Roll(Film):
        def __init__(self, url: str) -> None:
            super().__init__()
            self.url = url

    with pytest.raises(CallerError, match="make one first"):
        make_camera(Roll, app)
