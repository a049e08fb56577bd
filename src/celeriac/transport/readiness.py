"""Waiting until one of several files has something to read, in threads and greenlets alike.

What waits is looked up in :mod:`select` when it is needed, and not before: gevent and
eventlet put their own in its place, perhaps after this was imported.
"""

import os
import posix
import select
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

__all__ = ["File", "Wakeup", "wait_readable"]

#: An hour: the system takes no wait of many days, and who waits longer can wait again.
_LONGEST: Final = 3600.0
#: More rings than anybody forgets to clear.
_READ_BYTES: Final = 4096
#: Kept here, because eventlet may take it away, too.
_POLLIN: Final = select.POLLIN if hasattr(select, "POLLIN") else 1


class File(Protocol):
    """What can be waited for."""

    def fileno(self) -> int:
        """Return the number that the system knows it by."""


_File = TypeVar("_File", bound=File)


def wait_readable(files: Sequence[_File], timeout: float) -> list[_File]:
    """Return those that have something to read, or have ended, waiting up to ``timeout`` seconds for one."""
    by_number = {file.fileno(): file for file in files}
    wait = min(max(0.0, timeout), _LONGEST)
    new_poll: Any = getattr(select, "poll", None)
    if new_poll is None:
        # eventlet takes it away, because it leaves nothing there that would block. What it has instead may
        # answer what was asked before: so it only waits, and Python's own, which cannot block now, tells.
        if wait > 0:
            select.select(list(by_number), [], [], wait)
        new_poll, wait = sys.modules["eventlet.patcher"].original("select").poll, 0.0
    poll = new_poll()
    for number in by_number:
        poll.register(number, _POLLIN)
    return [by_number[number] for number, _ in poll.poll(wait * 1000)]


class _Held:
    """A number of the system's that is given back once nobody holds it any more.

    So one thread can close while another rings: the number cannot become that of another
    file in between.
    """

    #: Kept here, because a finalizer may run when modules are gone.
    _close = staticmethod(os.close)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        with suppress(OSError):  # who becomes a daemon closes every number there is
            self._close(self.number)


class Wakeup:
    """A file that :meth:`ring` makes readable, to end somebody's waiting.

    Nothing here blocks or takes a lock, so a finalizer may ring too. :mod:`posix` is used by
    its own name, because the reading and writing that eventlet puts into :mod:`os` waits.
    """

    def __init__(self) -> None:
        new_event: Any = getattr(os, "eventfd", None)
        self._ends: tuple[_Held, _Held] | None
        if new_event is not None:
            end = _Held(new_event(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
            self._ends = (end, end)
            self._note = (1).to_bytes(8, sys.byteorder)
        else:
            reader, writer = os.pipe()
            for number in (reader, writer):
                os.set_blocking(number, False)
            self._ends = (_Held(reader), _Held(writer))
            self._note = b"\0"

    def fileno(self) -> int:
        """Return the number to wait for; -1 once it is closed."""
        ends = self._ends
        return -1 if ends is None else ends[0].number

    def ring(self) -> None:
        """Make it readable, from anywhere; once it is closed nothing happens."""
        ends = self._ends
        if ends is not None:
            with suppress(BlockingIOError):  # it is full of rings that nobody cleared
                posix.write(ends[1].number, self._note)

    def clear(self) -> None:
        """Take back every ring there was: it is not readable until the next one."""
        ends = self._ends
        if ends is not None:
            with suppress(BlockingIOError):
                while len(posix.read(ends[0].number, _READ_BYTES)) == _READ_BYTES:
                    pass

    def close(self) -> None:
        """Give it back to the system; closing twice is fine."""
        self._ends = None
