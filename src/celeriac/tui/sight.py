"""What the screens show: a cluster as it is, as it was at an instant, or as it goes on in a replay."""

from collections.abc import Callable
from math import inf
from threading import Event as Flag
from threading import Thread
from time import monotonic, time
from typing import Final, Protocol, Self

from celeriac.node.replay import Replay
from celeriac.node.scene import Scene
from celeriac.node.watcher import Watcher
from celeriac.views.worker import LiveWorker, live_workers

__all__ = ["LiveSight", "PastSight", "PlayedSight", "Sight", "Stopwatch"]

#: How long the thread of a replay may take to end; it looks every twentieth of a second.
_PATIENCE: Final = 2.0


class Sight(Protocol):
    """A cluster to look at. Any thread may ask."""

    @property
    def place(self) -> str:
        """The broker or the log, without what is secret of it."""

    @property
    def mode(self) -> str:
        """How it is looked at, in a few words."""

    @property
    def scene(self) -> Scene:
        """The state, and what is counted of it."""

    @property
    def as_of(self) -> float:
        """The instant that it is of, in seconds of the epoch."""

    @property
    def is_live(self) -> bool:
        """Whether it is the cluster as it is now, which can be acted on."""

    def workers(self) -> list[LiveWorker]:
        """Return the workers, those first that need somebody to look."""

    def hold(self, is_held: bool) -> None:
        """Have time stand still, or go on, where that can be."""

    def check(self) -> None:
        """Raise what ended the coming of events, if something did."""


class LiveSight:
    """A cluster as it is now."""

    is_live: Final = True

    def __init__(self, watcher: Watcher, *, place: str, now: Callable[[], float] = time) -> None:
        self.place = place
        self.scene = watcher.scene
        self._watcher = watcher
        self._now = now

    @property
    def mode(self) -> str:
        """Whether events come."""
        return "live" if self._watcher.is_receiving else "disconnected"

    @property
    def as_of(self) -> float:
        """Now."""
        return self._now()

    def workers(self) -> list[LiveWorker]:
        """Return the workers, and what who watches holds them for."""
        return live_workers(self.scene, self._watcher.presences(), as_of=self.as_of)

    def hold(self, is_held: bool) -> None:
        """Do nothing: a cluster goes on."""

    def check(self) -> None:
        """Raise what ended the reception."""
        self._watcher.check()


class PastSight:
    """A cluster as it was when a replay has been run to its end."""

    mode: Final = "past"
    is_live: Final = False

    def __init__(self, scene: Scene, *, place: str, as_of: float) -> None:
        self.scene = scene
        self.place = place
        self.as_of = as_of

    @classmethod
    def of(cls, replay: Replay, *, place: str) -> Self:
        """Run a replay to its end, and return what the cluster was then."""
        # All of it is known from the log alone.
        scene = Scene(replay.state, begun_at=inf)
        for events in replay.batches():
            scene.recall(events)
        return cls(scene, place=place, as_of=replay.instant)

    def workers(self) -> list[LiveWorker]:
        """Return the workers, each held for what its silence tells."""
        return live_workers(self.scene, as_of=self.as_of)

    def hold(self, is_held: bool) -> None:
        """Do nothing: the past stands still."""

    def check(self) -> None:
        """Do nothing: all has been read."""


class Stopwatch:
    """A clock that can be stopped, and then goes on from where it stood."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        #: Since when it stands, and how long it stood before; in one, as threads read it.
        self._stood: tuple[float | None, float] = (None, 0.0)

    def __call__(self) -> float:
        """Return the seconds that went by, but for those in which it stood."""
        since, before = self._stood
        return (self._clock() if since is None else since) - before

    def hold(self, is_held: bool) -> None:
        """Stop, or go on."""
        since, before = self._stood
        if is_held and since is None:
            self._stood = (self._clock(), before)
        elif not is_held and since is not None:
            self._stood = (None, before + self._clock() - since)


class PlayedSight:
    """A cluster in a replay that goes on in a thread, for as long as the context lasts.

    ``clock`` is that of the replay, so that to hold it leaves no time to be made up for.
    """

    is_live: Final = False

    def __init__(self, replay: Replay, clock: Stopwatch, *, place: str) -> None:
        self.place = place
        self.scene = Scene(replay.state, begun_at=inf)
        self._replay = replay
        self._clock = clock
        self._is_going = Flag()
        self._is_going.set()
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="replay", daemon=True)

    @property
    def mode(self) -> str:
        """How fast it goes, or that it is over."""
        if not self._thread.is_alive():
            return "replay, at its end"
        speed = self._replay.speed
        return "replay, full speed" if speed is None else f"replay, {speed:g}x"

    @property
    def as_of(self) -> float:
        """How far it is."""
        return self._replay.instant

    def workers(self) -> list[LiveWorker]:
        """Return the workers, each held for what its silence tells."""
        return live_workers(self.scene, as_of=self.as_of)

    def hold(self, is_held: bool) -> None:
        """Stop the replay, or have it go on."""
        self._clock.hold(is_held)
        if is_held:
            self._is_going.clear()
        else:
            self._is_going.set()

    def check(self) -> None:
        """Raise what ended the replay."""
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._replay.stop()
        self._is_going.set()
        self._thread.join(_PATIENCE)

    def _run(self) -> None:
        try:
            for events in self._replay.batches():
                self.scene.recall(events)
                self._is_going.wait()
        except BaseException as error:  # noqa: BLE001  (raised by check, where somebody sees it)
            self._error = error
