"""Pictures of the cluster at regular times, for whoever keeps them."""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from math import inf
from pathlib import Path
from threading import Event as Flag
from threading import RLock, Thread, current_thread
from time import monotonic
from typing import Any, ClassVar, Final, Protocol, Self, runtime_checkable

from celeriac.core.rate import parse_rate
from celeriac.errors import CallerError, ImproperlyConfigured
from celeriac.node.log_output import log_output
from celeriac.node.receiver import EventReceiver
from celeriac.node.signal import Signal
from celeriac.node.state import State
from celeriac.store.pid_file import pid_file

__all__ = ["Film", "Polaroid", "Timer", "evcam", "load_camera", "make_camera", "next_due"]

logger = logging.getLogger(__name__)

#: A picture that comes early by this part of the time between two is in time: timers are not exact, and
#: without it a camera that may take one each six seconds would wait for the seventh.
_TOLERANCE: Final = 0.1


@runtime_checkable
class Film(Protocol):
    """Keeps pictures. :mod:`celeriac.store` has one for databases and one for Parquet files."""

    def on_shutter(self, state: State) -> object:
        """Keep a picture of the state, which does not change meanwhile."""

    def on_cleanup(self) -> object:
        """Throw away what is too old."""


class _Entry(Protocol):
    def cancel(self) -> object:
        """Call the function no more."""


class Timer(Protocol):
    """Calls functions at intervals, such as ``celery.utils.timer2.Timer``."""

    def call_repeatedly(self, secs: float, fun: Callable[[], object], /) -> _Entry:
        """Call a function every so many seconds, until the entry is cancelled."""


class Polaroid:
    """Takes a snapshot of a state every ``freq`` seconds, in a separate thread or by a ``timer``.

    Derive a class with ``on_shutter``, or give a ``film`` that has one. The state does not change while
    ``on_shutter`` runs, and only one runs at a time: if one takes longer than ``freq``, snapshots become
    rarer, not delayed. Exceptions are logged, and the next snapshot is taken as scheduled.

    ``maxrate`` limits the snapshots per second, a number or such as ``"10/m"``; beyond it none is taken.
    ``on_cleanup`` is called every ``cleanup_freq`` seconds. With ``clear_after`` ended tasks are removed from
    the state after each snapshot.
    """

    #: Told before each picture, with the state as sender, and before each cleanup; with ``camera``.
    shutter_signal: ClassVar[Signal] = Signal("shutter")
    cleanup_signal: ClassVar[Signal] = Signal("cleanup")

    #: Whether the state forgets after each picture, unless told otherwise.
    clear_after: bool = False

    def __init__(  # noqa: PLR0917 - the signature of Celery
        self,
        state: State,
        freq: float = 1.0,
        maxrate: str | float | None = None,
        cleanup_freq: float = 3600.0,
        timer: Timer | None = None,
        app: object = None,
        *,
        clear_after: bool | None = None,
        film: Film | None = None,
        now: Callable[[], float] = monotonic,
    ) -> None:
        for name, seconds in (("freq", freq), ("cleanup_freq", cleanup_freq)):
            if not 0 < seconds < inf:
                raise CallerError(f"{name} must be a number of seconds above 0, not {seconds!r}")
        self.state = state
        self.freq = freq
        self.cleanup_freq = cleanup_freq
        self.timer = timer
        self.film = film
        self.app = app
        if clear_after is not None:
            self.clear_after = clear_after
        #: Pictures that were taken, and those that failed.
        self.taken = self.failed = 0
        self._now = now
        rate = parse_rate(maxrate)
        #: The least time between two pictures, and when the next may be taken.
        self._interval = 0.0 if rate is None else 1.0 / rate
        self._free_at = -inf
        self._stopping = Flag()
        self._thread: Thread | None = None
        #: Entries of the timer.
        self._entries: list[_Entry] = []
        #: Held while the timer calls; reentrant, because ``on_shutter`` may cancel.
        self._calling = RLock()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: every {self.freq:g} s, of {self.state!r}>"

    # -- what cameras are for

    def on_shutter(self, state: State) -> object:
        """Store a snapshot of the state. Override it in a camera."""
        return None if self.film is None else self.film.on_shutter(state)

    def on_cleanup(self) -> object:
        """Remove old snapshots. Override it in a camera."""
        return None if self.film is None else self.film.on_cleanup()

    # -- the timer

    @property
    def is_installed(self) -> bool:
        """Whether pictures are taken by themselves."""
        return bool(self._entries) or (self._thread is not None and self._thread.is_alive())

    def install(self) -> None:
        """Begin to take pictures; the first comes after ``freq`` seconds. Twice is as good as once."""
        if self.is_installed and not self._stopping.is_set():
            return
        self.cancel()
        self._stopping = Flag()
        if self.timer is not None:
            jobs = (self.freq, "picture", self.capture), (self.cleanup_freq, "cleanup", self.cleanup)
            try:
                for seconds, name, function in jobs:
                    call = partial(self._call, self._stopping, name, function)
                    self._entries.append(self.timer.call_repeatedly(seconds, call))
            except BaseException:
                self.cancel()
                raise
            return
        # Of this thread alone: one that is still ending must not see the flag of the next.
        arguments = (self._stopping,)
        self._thread = Thread(target=self._run, args=arguments, name="celeriac-camera", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Take no more snapshots. On return none is being taken, unless ``on_shutter`` calls this method.

        Do not call it while another thread has the state frozen: a snapshot may be waiting for it.
        """
        self._stopping.set()
        while self._entries:
            self._entries.pop().cancel()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not current_thread():
            thread.join()
        with self._calling:  # a timer does not wait for a call that runs
            pass

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        self.cancel()

    def _run(self, stopping: Flag) -> None:
        began_at = self._now()
        shutter_at, cleanup_at = began_at + self.freq, began_at + self.cleanup_freq
        while not stopping.wait(max(0.0, min(shutter_at, cleanup_at) - self._now())):
            if self._now() >= shutter_at:
                self._try("picture", self.capture)
                shutter_at = next_due(began_at, self.freq, now=self._now())
            if self._now() >= cleanup_at and not stopping.is_set():
                self._try("cleanup", self.cleanup)
                cleanup_at = next_due(began_at, self.cleanup_freq, now=self._now())

    def _call(self, stopping: Flag, what: str, function: Callable[[], object]) -> None:
        """Run a function for the timer, which may call late."""
        with self._calling:
            if not stopping.is_set():
                self._try(what, function)

    def _try(self, what: str, function: Callable[[], object]) -> None:
        try:
            function()
        except Exception as error:
            who = type(self if self.film is None else self.film).__name__
            why = str(error) or type(error).__name__
            logger.exception("camera: %s of %s failed, retrying at the next interval: %s", what, who, why)

    # -- pictures

    def capture(self) -> None:
        """Take a picture now, unless ``maxrate`` forbids it; forget afterwards if ``clear_after`` says so."""
        self.state.freeze_while(self._capture)

    def shutter(self) -> bool:
        """Take a picture now and forget nothing; return whether ``maxrate`` allowed it."""
        return self.state.freeze_while(self._shutter)

    def cleanup(self) -> None:
        """Throw away old pictures now."""
        # Celery: this signal has no sender.
        self.cleanup_signal.send(None, camera=self)
        self.on_cleanup()

    def _capture(self) -> None:
        # Celery: it forgets also what no picture was taken of, because of the rate or an error.
        if self.shutter() is not False and self.clear_after:
            self.state.clear()

    def _shutter(self) -> bool:
        if not self._may_shoot():
            return False
        self.shutter_signal.send(self.state, camera=self)
        try:
            self.on_shutter(self.state)
        except BaseException:
            self.failed += 1
            raise
        self.taken += 1
        return True

    def _may_shoot(self) -> bool:
        now = self._now()
        if now < self._free_at - self._interval * _TOLERANCE:
            return False
        self._free_at = max(self._free_at, now) + self._interval
        return True


def next_due(began_at: float, every: float, *, now: float) -> float:
    """Return the first of the moments ``every`` seconds apart since ``began_at`` that is still to come."""
    return began_at + every * (int((now - began_at) / every) + 1)


_State = State


class _Events(Protocol):
    def State(self) -> _State:  # noqa: N802
        """Return an empty state."""

    def Receiver(self, *, state: _State | None = None) -> EventReceiver:  # noqa: N802
        """Return a receiver that brings a state up to date."""


class App(Protocol):
    """What a camera needs of an app."""

    @property
    def events(self) -> _Events:
        """What makes states and receivers."""


def evcam(  # noqa: PLR0917 - the signature of Celery
    camera: object,
    freq: float = 1.0,
    maxrate: str | float | None = None,
    loglevel: int | str = 0,
    logfile: str | Path | None = None,
    pidfile: str | Path | None = None,
    timer: Timer | None = None,
    app: App | None = None,
    *,
    cleanup_freq: float = 3600.0,
    clear_after: bool | None = None,
    receiver: EventReceiver | None = None,
) -> None:
    """Receive events and let a camera take snapshots of the cluster, until Ctrl-C.

    ``camera`` is a class derived from :class:`Polaroid`, its name as ``module:Class``, or an object with
    ``on_shutter(state)`` and ``on_cleanup()``. A Polaroid instance has its own state and times;
    the times given here are for all others.

    ``loglevel`` and ``logfile`` set the level of the root logger in the meantime, and write its lines to a
    file. Without them logging is unchanged. ``pidfile`` is a file for the pid; CallerError is raised if it
    has the pid of another running process, or no pid. ``timer`` calls the camera instead of a thread. Without
    ``app`` the broker and the settings are those of the environment and of the settings file, as for
    ``Celeriac()``.

    To stop it from another thread, create the ``receiver`` of the same app, and call ``stop()`` on it.
    Raises ConnectionLost if the broker is unreachable at the start; later it reconnects automatically.
    """
    with pid_file(pidfile) if pidfile else nullcontext(), log_output(loglevel, logfile):
        app = app or _app_of_environment()
        options = {"maxrate": maxrate, "cleanup_freq": cleanup_freq, "clear_after": clear_after}
        made = make_camera(camera, app, freq=freq, timer=timer, **options)
        if receiver is None:
            receiver = app.events.Receiver(state=made.state)
        else:
            receiver.handlers["*"] = made.state.event
        logger.info("evcam: taking snapshots, camera=%r", made)
        try:
            with receiver, made:
                receiver.capture()
        except KeyboardInterrupt:
            logger.info("evcam: stopped by a signal")


def _app_of_environment() -> App:
    # By its name: the app is made of what is in this room, so no module here may import it.
    app: App = import_module("celeriac.app").Celeriac()
    return app


def load_camera(name: str) -> object:
    """Import a camera by its name, ``module:Class`` or ``module.Class``; raises ImproperlyConfigured."""
    module, _, attribute = name.partition(":") if ":" in name else name.rpartition(".")
    if not module or not attribute:
        raise ImproperlyConfigured(f"Invalid camera {name!r}. Use module:Class, such as shop.monitor:Camera.")
    try:
        found: object = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ImproperlyConfigured(
            f"Cannot import the camera {name!r}: no module {error.name!r}. Correct the name, or run the "
            "program in the folder of the module."
        ) from None
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ImproperlyConfigured(
                f"Cannot import the camera {name!r}: {module} has no {attribute!r}. Correct the name."
            )
        found = getattr(found, part)
    return found


def make_camera(camera: object, app: App, **options: Any) -> Polaroid:
    """Return a camera that is ready to be installed, of what :func:`evcam` takes for one."""
    if isinstance(camera, str):
        camera = load_camera(camera)
    if isinstance(camera, Polaroid):
        return camera
    is_class = isinstance(camera, type)
    if is_class and not issubclass(camera, Polaroid):  # type: ignore[arg-type]  # is_class says so
        camera, is_class = _film_of(camera), False  # type: ignore[arg-type]
    if isinstance(camera, Film) and not is_class:  # a class has the methods of a film, and is none
        return Polaroid(app.events.State(), film=camera, app=app, **options)
    if callable(camera):
        # A class of cameras, or a function that makes one as such a class does.
        optional = {"clear_after", "timer"}
        given = {name: value for name, value in options.items() if name not in optional or value is not None}
        try:
            made = camera(app.events.State(), app=app, **given)
        except TypeError as error:  # most often it is no camera, and takes other arguments
            raise _no_camera(camera, f" ({error})") from error
        if isinstance(made, Polaroid):
            return made
    raise _no_camera(camera)


def _no_camera(camera: object, why: str = "") -> CallerError:
    return CallerError(
        f"invalid camera {camera!r}{why}: derive a class from celeriac.Polaroid, or give an object with "
        "on_shutter(state) and on_cleanup()"
    )


def _film_of(kind: type) -> object:
    try:
        return kind()
    except TypeError as error:
        raise CallerError(
            f"{kind.__name__} needs arguments: create an instance and pass that ({error})"
        ) from None
