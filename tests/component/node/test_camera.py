"""Cameras take pictures in time, one at a time, and go on whatever happens."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event as Flag
from threading import Thread
from threading import enumerate as all_threads
from typing import Any

import pytest

from celeriac import State
from celeriac.errors import CallerError
from celeriac.node.camera import Polaroid, next_due
from celeriac.programs.process import wait_until
from tests.builders import task, worker

PATIENCE = 60.0


class Album(Polaroid):
    """Keeps how many tasks it saw in each picture."""

    def __init__(self, state: State, **options: Any) -> None:
        super().__init__(state, **options)
        self.pictures: list[int] = []
        self.cleanups = 0

    def on_shutter(self, state: State) -> None:
        self.pictures.append(len(state.tasks))

    def on_cleanup(self) -> None:
        self.cleanups += 1


class Film:
    """What keeps pictures, and is no camera."""

    def __init__(self) -> None:
        self.pictures: list[int] = []
        self.cleanups = 0

    def on_shutter(self, state: State) -> None:
        self.pictures.append(len(state.tasks))

    def on_cleanup(self) -> None:
        self.cleanups += 1


class Broken(Polaroid):
    """Fails each time."""

    def on_shutter(self, state: State) -> None:
        raise OSError(f"no film for {len(state.tasks)} tasks")


def state_of(*events: dict[str, Any]) -> State:
    state = State()
    for event in events:
        state.event(event)
    return state


def running_state() -> State:
    """Return a state of one task that has ended, and one that has not."""
    return state_of(task("succeeded", "done"), task("started", "open"), worker("heartbeat"))


@contextmanager
def connected(signal: Any, receiver: Callable[..., object]) -> Iterator[None]:
    signal.connect(receiver)
    yield
    signal.disconnect(receiver)


# -- the timer


def cameras() -> int:
    """Return how many threads there are of cameras."""
    return sum(each.name == "celeriac-camera" for each in all_threads())


def test_pictures_are_taken_by_themselves_until_it_is_cancelled() -> None:
    camera = Album(running_state(), freq=0.01, cleanup_freq=0.02)

    with camera:
        was_installed = camera.is_installed
        came = wait_until(lambda: len(camera.pictures) > 2 and camera.cleanups > 1, patience=PATIENCE)

    assert (was_installed, came, camera.is_installed) == (True, True, False)
    assert set(camera.pictures) == {2}
    assert cameras() == 0


def test_a_camera_may_be_installed_twice_and_again_after_its_end() -> None:
    camera = Album(State(), freq=0.01)
    camera.install()

    camera.install()
    running = cameras()
    camera.cancel()
    before = len(camera.pictures)
    with camera:
        goes_on = wait_until(lambda: len(camera.pictures) > before, patience=PATIENCE)

    assert running == 1
    assert goes_on
    assert cameras() == 0


def test_a_camera_that_was_never_installed_can_be_cancelled() -> None:
    camera = Album(State())

    camera.cancel()

    assert not camera.is_installed


def test_a_camera_that_raises_is_logged_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), Broken(running_state(), freq=0.01) as camera:
        goes_on = wait_until(lambda: camera.failed > 2, patience=PATIENCE)

    assert goes_on
    assert camera.taken == 0
    assert (
        "camera: picture of Broken failed, retrying at the next interval: no film for 2 tasks"
        in caplog.messages
    )


def test_what_fails_is_told_by_the_name_of_the_film(caplog: pytest.LogCaptureFixture) -> None:
    class Torn(Film):
        def on_shutter(self, state: State) -> None:
            raise OSError(f"torn at {len(state.tasks)} tasks")

    with caplog.at_level(logging.ERROR), Polaroid(running_state(), freq=0.01, film=Torn()) as camera:
        failed = wait_until(lambda: camera.failed > 0 and bool(caplog.messages), patience=PATIENCE)

    assert failed
    assert (
        caplog.messages[0] == "camera: picture of Torn failed, retrying at the next interval: torn at 2 tasks"
    )


def test_a_camera_may_end_itself() -> None:
    class Once(Album):
        def on_shutter(self, state: State) -> None:
            super().on_shutter(state)
            self.cancel()

    camera = Once(State(), freq=0.01)

    camera.install()

    assert wait_until(lambda: cameras() == 0, patience=PATIENCE)
    assert len(camera.pictures) == 1


def test_no_two_pictures_are_taken_at_a_time() -> None:
    class Slow(Album):
        inside = most = 0

        def on_shutter(self, state: State) -> None:
            self.inside += 1
            self.most = max(self.most, self.inside)
            ready.wait(0.02)
            super().on_shutter(state)
            self.inside -= 1

    ready = Flag()
    with Slow(State(), freq=0.001) as camera:
        hands = [Thread(target=method) for method in (camera.capture, camera.shutter) * 3]
        for hand in hands:
            hand.start()
        for hand in hands:
            hand.join()
        came = wait_until(lambda: len(camera.pictures) > 8, patience=PATIENCE)
        ready.set()

    assert came
    assert camera.most == 1


def test_cancel_waits_for_the_picture_that_is_being_taken() -> None:
    class Slow(Album):
        def on_shutter(self, state: State) -> None:
            begun.set()
            ready.wait(PATIENCE)
            super().on_shutter(state)

    begun, ready = Flag(), Flag()
    camera = Slow(State(), freq=0.001)
    camera.install()
    assert begun.wait(PATIENCE)
    end = Thread(target=camera.cancel)
    end.start()

    assert camera._stopping.wait(PATIENCE)
    is_waiting = end.is_alive()
    ready.set()
    end.join(PATIENCE)

    assert is_waiting
    assert not end.is_alive()
    assert len(camera.pictures) == 1


class Timer:
    """Calls when the test says so, as a timer does whose thread runs on after ``cancel``."""

    def __init__(self) -> None:
        self.functions: list[Callable[[], object]] = []
        self.cancelled = 0

    def call_repeatedly(self, _secs: float, fun: Callable[[], object], /) -> "Timer":
        self.functions.append(fun)
        return self

    def cancel(self) -> None:
        self.cancelled += 1


def test_cancel_waits_for_the_picture_of_a_timer() -> None:
    class Slow(Album):
        def on_shutter(self, state: State) -> None:
            begun.set()
            ready.wait(PATIENCE)
            super().on_shutter(state)

    def cancel() -> None:
        camera.cancel()
        seen.append(len(camera.pictures))

    begun, ready, seen = Flag(), Flag(), list[int]()
    timer = Timer()
    camera = Slow(State(), timer=timer)
    camera.install()
    call, end = Thread(target=timer.functions[0]), Thread(target=cancel)
    call.start()
    assert begun.wait(PATIENCE)

    end.start()
    assert wait_until(lambda: timer.cancelled == 2, patience=PATIENCE)
    ready.set()
    end.join(PATIENCE)
    call.join(PATIENCE)

    assert seen == [1]


def test_late_call_of_a_timer_takes_no_picture() -> None:
    timer = Timer()
    camera = Album(State(), timer=timer)
    camera.install()

    camera.cancel()
    for function in timer.functions:
        function()

    assert (camera.pictures, camera.cleanups) == ([], 0)


def test_camera_of_a_timer_may_end_itself() -> None:
    class Once(Album):
        def on_shutter(self, state: State) -> None:
            super().on_shutter(state)
            self.cancel()

    timer = Timer()
    camera = Once(State(), timer=timer)
    camera.install()

    timer.functions[0]()
    timer.functions[0]()

    assert (len(camera.pictures), timer.cancelled) == (1, 2)


def test_timer_that_fails_keeps_no_entry() -> None:
    class Full(Timer):
        def call_repeatedly(self, secs: float, fun: Callable[[], object], /) -> Timer:
            if self.functions:
                raise OSError("too many entries")
            return super().call_repeatedly(secs, fun)

    timer = Full()
    camera = Album(State(), timer=timer)

    with pytest.raises(OSError, match="too many entries"):
        camera.install()

    assert (timer.cancelled, camera.is_installed) == (1, False)


@pytest.mark.parametrize(
    ("now", "due"), [(100.0, 101.0), (100.4, 101.0), (101.0, 102.0), (101.001, 102.0), (107.9, 108.0)]
)
def test_the_times_of_pictures_do_not_drift(now: float, due: float) -> None:
    assert next_due(100.0, 1.0, now=now) == due


@pytest.mark.parametrize("freq", [0, -1, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["freq", "cleanup_freq"])
def test_a_time_between_pictures_that_is_none_is_refused(name: str, freq: float) -> None:
    options: dict[str, Any] = {name: freq}

    with pytest.raises(CallerError, match=name):
        Polaroid(State(), **options)


# -- pictures


@pytest.mark.parametrize(("maxrate", "seconds"), [("10/m", 6), (0.5, 2), ("30/m", 2), (None, 1), ("5", 1)])
def test_no_more_pictures_are_taken_than_maxrate_allows(maxrate: str | float | None, seconds: int) -> None:
    moments = iter([0.001, *(number - 0.0005 for number in range(1, 60))])
    camera = Album(State(), maxrate=maxrate, now=lambda: next(moments))

    taken = [camera.shutter() for _ in range(60)]

    assert [number for number, is_taken in enumerate(taken) if is_taken] == list(range(0, 60, seconds))
    assert camera.taken == len(camera.pictures) == sum(taken)


def test_early_pictures_do_not_add_up_to_more_than_maxrate() -> None:
    moments = iter(number * 0.95 for number in range(1000))
    camera = Album(State(), maxrate="1/s", now=lambda: next(moments))

    for _ in range(1000):
        camera.shutter()

    assert camera.taken <= 951


def test_a_maxrate_that_is_none_is_refused() -> None:
    with pytest.raises(CallerError, match="often"):
        Polaroid(State(), maxrate="often")


def test_with_clear_after_the_state_forgets_what_has_ended() -> None:
    camera = Album(running_state(), clear_after=True)

    camera.capture()

    assert camera.pictures == [2]
    assert (list(camera.state.tasks), len(camera.state.workers)) == (["open"], 0)


def test_a_class_says_whether_its_cameras_clear() -> None:
    class Clearing(Album):
        clear_after = True

    clearing, keeping = Clearing(running_state()), Clearing(running_state(), clear_after=False)
    clearing.capture()
    keeping.capture()

    assert list(clearing.state.tasks) == ["open"]
    assert list(keeping.state.tasks) == ["done", "open"]


def test_what_no_picture_was_taken_of_is_not_forgotten() -> None:
    broken = Broken(running_state(), clear_after=True)
    limited = Album(running_state(), clear_after=True, maxrate="1/h")
    limited.capture()
    limited.state.event(task("succeeded", "open", timestamp=1_794_703_818.0))

    with pytest.raises(OSError, match="no film"):
        broken.capture()
    limited.capture()

    assert list(broken.state.tasks) == ["done", "open"]
    assert list(limited.state.tasks) == ["open"]
    assert limited.pictures == [2]


def test_a_shutter_of_its_own_is_used_by_capture() -> None:
    class Odd(Album):
        def shutter(self) -> bool:
            self.pictures.append(-1)
            return True

    camera = Odd(running_state(), clear_after=True)

    camera.capture()

    assert camera.pictures == [-1]
    assert list(camera.state.tasks) == ["open"]


def test_the_state_does_not_change_while_a_picture_is_taken() -> None:
    class Watching(Polaroid):
        def on_shutter(self, state: State) -> None:
            sender.start()
            before.append(len(state.tasks))
            begun.wait(PATIENCE)
            before.append(len(state.tasks))

    def send() -> None:
        begun.set()
        camera.state.event(task("started", "late"))

    begun, before, sender = Flag(), list[int](), Thread(target=send)
    camera = Watching(running_state())

    camera.capture()
    sender.join(PATIENCE)

    assert before == [2, 2]
    assert len(camera.state.tasks) == 3


def test_signals_tell_of_pictures_and_cleanups() -> None:
    told: list[tuple[str, object, object]] = []
    camera = Album(running_state())

    def tell(sender: object, signal: Any, camera: object, **_: object) -> None:
        told.append((signal.name, sender, camera))

    with connected(Polaroid.shutter_signal, tell), connected(Polaroid.cleanup_signal, tell):
        camera.shutter()
        camera.cleanup()

    assert told == [("shutter", camera.state, camera), ("cleanup", None, camera)]
    assert (len(camera.pictures), camera.cleanups) == (1, 1)


def test_a_film_is_asked_to_keep_and_to_throw_away() -> None:
    film = Film()
    camera = Polaroid(running_state(), film=film)

    camera.capture()
    camera.cleanup()

    assert (film.pictures, film.cleanups) == ([2], 1)
