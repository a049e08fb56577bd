"""Native threads."""

from collections.abc import Callable
from threading import Event, Thread

from celeriac.runtime.base import Flag, Spawned

__all__ = ["Threads"]


class Threads:
    """Everything in threads."""

    def flag(self) -> Flag:
        """Return a flag for threads."""
        return Event()

    def spawn(self, run: Callable[[], object], *, name: str) -> Spawned:
        """Run something in a thread."""
        thread = Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread
