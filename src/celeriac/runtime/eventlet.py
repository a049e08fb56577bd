"""Greenlets of eventlet."""

from collections.abc import Callable

import eventlet
from eventlet.event import Event
from eventlet.greenthread import GreenThread
from eventlet.patcher import is_monkey_patched

from celeriac.errors import ImproperlyConfigured
from celeriac.runtime.base import Flag, Spawned

__all__ = ["Eventlet"]


class _EventletFlag:
    """A flag made of eventlet's events, each of which can be raised only once."""

    def __init__(self) -> None:
        self._event = Event()

    def set(self) -> None:
        if not self._event.ready():
            self._event.send()

    def clear(self) -> None:
        if self._event.ready():
            self._event = Event()

    def wait(self, timeout: float | None = None) -> None:
        event = self._event
        if not event.ready():
            event.wait(timeout)


class _Spawned:
    def __init__(self, greenlet: GreenThread) -> None:
        self._ended = _EventletFlag()
        greenlet.link(lambda _: self._ended.set())

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)


class Eventlet:
    """Everything in greenlets; sockets must be patched, and one thread must do it all."""

    def __init__(self) -> None:
        if not (is_monkey_patched("socket") and is_monkey_patched("select")):
            raise ImproperlyConfigured(
                "result_drainer is 'eventlet', but sockets are not patched; call eventlet.monkey_patch()"
            )

    def flag(self) -> Flag:
        """Return a flag for greenlets."""
        return _EventletFlag()

    def spawn(self, run: Callable[[], object], *, name: str) -> Spawned:  # noqa: ARG002
        """Run something in a greenlet."""
        return _Spawned(eventlet.spawn(run))
