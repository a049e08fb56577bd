"""What must not be shared with a forked child: links, and who uses them."""

import os
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["PerProcess"]

_T = TypeVar("_T")
#: What the parents of this process had. Never used, and never let go: that would end the parents' links.
_inherited: list[object] = []


class PerProcess(Generic[_T]):
    """One thing for each process, made when it is first asked for."""

    def __init__(self, make: Callable[[], _T]) -> None:
        self._make = make
        self._by_process: dict[int, _T] = {}

    def get(self) -> _T:
        """Return that of this process."""
        process = os.getpid()
        try:
            return self._by_process[process]
        except KeyError:
            _inherited.extend(self._by_process.values())
            # In one step: of two threads that come at once, both get the same.
            return self._by_process.setdefault(process, self._make())

    @property
    def is_made(self) -> bool:
        """Whether this process has one."""
        return os.getpid() in self._by_process

    def pop(self) -> _T | None:
        """Return that of this process, if there is one, and hold it no more."""
        return self._by_process.pop(os.getpid(), None)
