"""How results are waited for: in threads, in greenlets, in event loops."""

from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from contextlib import suppress
from importlib import import_module
from time import monotonic
from typing import ClassVar, TypeVar

from celeriac.errors import CallerError, ImproperlyConfigured, ResultTimeout
from celeriac.node.callbacks import Callbacks
from celeriac.node.consumer import BaseResultConsumer
from celeriac.node.slot import Slot
from celeriac.runtime.asyncio import LoopFlag
from celeriac.runtime.base import Runtime
from celeriac.runtime.environment import environment
from celeriac.runtime.threads import Threads

__all__ = ["AsyncioDrainer", "Drainer", "LoopSlot", "TimeIsUp", "drainer_class", "register_drainer"]

_drainers: dict[str, "type[Drainer]"] = {}
_D = TypeVar("_D", bound="type[Drainer]")


def register_drainer(name: str) -> Callable[[_D], _D]:
    """Make a drainer known by a name, which the setting ``result_drainer`` may then hold."""

    def register(drainer: _D) -> _D:
        _drainers[name] = drainer
        return drainer

    return register


def drainer_class(name: str | None = None) -> "type[Drainer]":
    """Return the drainer of a name; without one, that which is right where this is called from."""
    chosen = name or environment()
    if chosen not in _drainers:
        raise ImproperlyConfigured(
            f"result_drainer is {chosen!r}; use one of {', '.join(sorted(_drainers))}, or register_drainer"
        )
    return _drainers[chosen]


class Drainer:
    """Runs a consumer in the background, and lets callers wait for its results.

    A subclass overrides :meth:`new_runtime` for another kind of thread or greenlet, or any other method.
    """

    #: The extra that installs what it needs, if it needs something.
    extra: ClassVar[str] = ""

    def __init__(self, consumer: BaseResultConsumer) -> None:
        self.consumer = consumer
        try:
            self.runtime = self.new_runtime()
            self._callbacks = Callbacks(self.runtime)
        except ImportError as error:
            raise ImproperlyConfigured(
                f"result_drainer {self.extra!r} needs a package that is not installed ({error}); install "
                f"celeriac[{self.extra}]"
            ) from error

    def new_runtime(self) -> Runtime:
        """Return an object with ``flag()`` and ``spawn(run, *, name)``: how code runs in the background."""
        return Threads()

    def start(self) -> None:
        """Drain in the background; starting twice is fine."""
        self.consumer.start(self.runtime)

    def stop(self) -> None:
        """Drain no more."""
        self.consumer.stop()

    def slot(self, task_ids: Collection[str], *, wants_all: bool = False) -> Slot:
        """Return an empty slot for a waiter of these tasks."""
        return Slot(self.runtime.flag(), task_ids, wants_all=wants_all)

    def caller(self) -> Callable[[Callable[[], object]], object]:
        """Return a runner for callbacks outside the consumer thread, where callbacks may block."""
        return self._callbacks.put

    def drain_events_until(
        self,
        slot: Slot,
        timeout: float | None = None,
        interval: float | None = None,
        on_interval: Callable[[], object] | None = None,
    ) -> Iterator[None]:
        """Yield after each message for a slot and every ``interval`` seconds, until the slot is full.

        Blocks only its caller. Received states are available at each step, including the last.
        Raises ResultTimeout after ``timeout`` seconds; states received until then count.
        """
        clock = _Countdown(timeout, interval)
        while not slot.ready:
            if not slot.has_news:
                slot.flag.wait(clock.next())
            if on_interval is not None:
                on_interval()
            yield
        yield


@register_drainer("default")
class ThreadDrainer(Drainer):
    """For threads: the consumer has one of its own."""


@register_drainer("gevent")
class GeventDrainer(Drainer):
    """For greenlets of gevent; the consumer is one, if sockets are patched."""

    extra = "gevent"

    def new_runtime(self) -> Runtime:
        """Return greenlets of gevent."""
        runtime: Runtime = import_module("celeriac.runtime.gevent").Gevent()
        return runtime


@register_drainer("eventlet")
class EventletDrainer(Drainer):
    """For greenlets of eventlet; the consumer is one."""

    extra = "eventlet"

    def new_runtime(self) -> Runtime:
        """Return greenlets of eventlet."""
        runtime: Runtime = import_module("celeriac.runtime.eventlet").Eventlet()
        return runtime


@register_drainer("asyncio")
class AsyncioDrainer(Drainer):
    """For the tasks of event loops. The consumer has a thread, so that no loop ever waits for a socket."""

    def slot(self, task_ids: Collection[str], *, wants_all: bool = False) -> "LoopSlot":
        """Return an empty slot for a task of the running loop."""
        return LoopSlot(LoopFlag(_running_loop()), task_ids, wants_all=wants_all)

    def caller(self) -> Callable[[Callable[[], object]], object]:
        """Return what runs a callback in the running loop, for as long as that runs."""
        loop = _running_loop()

        def call(callback: Callable[[], object]) -> None:
            with suppress(RuntimeError):  # the loop is closed, and nobody is there to be called
                loop.call_soon_threadsafe(callback)

        return call

    async def drain_events_async(
        self,
        slot: "LoopSlot",
        timeout: float | None = None,
        interval: float | None = None,
        on_interval: Callable[[], object] | None = None,
    ) -> AsyncGenerator[None]:
        """Do what :meth:`drain_events_until` does, and give way to other tasks meanwhile."""
        clock = _Countdown(timeout, interval)
        while not slot.ready:
            if not slot.has_news:
                await slot.flag.wait(clock.next())
            if on_interval is not None:
                on_interval()
            yield
        yield


def _running_loop() -> AbstractEventLoop:
    try:
        return get_running_loop()
    except RuntimeError:
        raise CallerError(
            "result_drainer is 'asyncio', but no event loop is running; set result_drainer to None to "
            "choose the drainer automatically"
        ) from None


class LoopSlot(Slot):
    """A slot for a task of an event loop."""

    flag: LoopFlag


class TimeIsUp(ResultTimeout):
    """The time that was given to us, and not to somebody who is called meanwhile, has passed."""


class _Countdown:
    """How long to wait at a time, until the time is up."""

    def __init__(self, timeout: float | None, interval: float | None) -> None:
        self._timeout = timeout
        self._interval = interval
        self._deadline = None if timeout is None else monotonic() + timeout

    def next(self) -> float | None:
        """Return how long to wait now, None for ever; raises ResultTimeout when the time is up."""
        left = None if self._deadline is None else self._deadline - monotonic()
        if left is not None and left <= 0:
            raise TimeIsUp(f"no result within {self._timeout:g} s")
        return min((span for span in (left, self._interval) if span is not None), default=None)
