"""Greenlets of gevent."""

from collections.abc import Callable
from typing import Final, cast

from gevent import Greenlet
from gevent.event import Event
from gevent.monkey import is_module_patched

from celeriac.runtime.base import Flag, Spawned
from celeriac.runtime.threads import Threads

__all__ = ["Gevent"]

_SLICE: Final = 3600.0


class _GeventFlag:
    """An event of gevent's that is waited for in slices.

    While a thread is to raise it, gevent may have nothing else to do, and would say that nobody ever will.
    A timer tells it otherwise.
    """

    def __init__(self) -> None:
        event = Event()
        self.set, self.clear, self._wait = event.set, event.clear, event.wait

    def wait(self, timeout: float | None = None) -> None:
        if timeout is not None:
            self._wait(timeout)
            return
        while not self._wait(_SLICE):
            pass


class Gevent:
    """Everything in greenlets, if sockets are patched.

    If they are not, to read from one would stop every greenlet. Then what runs in the
    background has a thread of its own; flags of gevent may be raised from there too.
    """

    def flag(self) -> Flag:
        """Return a flag for greenlets."""
        return _GeventFlag()

    def spawn(self, run: Callable[[], object], *, name: str) -> Spawned:
        """Run something in a greenlet, or in a thread if it could not give way."""
        if not (is_module_patched("socket") and is_module_patched("select")):
            return Threads().spawn(run, name=name)
        greenlet = Greenlet(run)
        greenlet.name = name
        greenlet.start()
        return cast("Spawned", greenlet)
