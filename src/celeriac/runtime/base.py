"""What every way of running code offers to those who wait in it."""

from collections.abc import Callable
from typing import Protocol

__all__ = ["Flag", "Runtime", "Spawned"]


class Flag(Protocol):
    """Raised by one, awaited by others, as :class:`threading.Event` is."""

    def set(self) -> object:
        """Raise it, and wake everybody who waits."""

    def clear(self) -> object:
        """Lower it again."""

    def wait(self, timeout: float | None = None) -> object:
        """Wait until it is raised, or ``timeout`` seconds have passed."""


class Spawned(Protocol):
    """Code that was started beside ours."""

    def join(self, timeout: float | None = None) -> object:
        """Wait until it has ended, or ``timeout`` seconds have passed."""


class Runtime(Protocol):
    """A way of running code side by side."""

    def flag(self) -> Flag:
        """Return a flag that blocks nobody but who waits for it."""

    def spawn(self, run: Callable[[], object], *, name: str) -> Spawned:
        """Run something in the background. It does not keep the program from ending."""
