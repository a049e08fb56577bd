"""A wall clock that a test moves forward and back while a program runs; the monotonic clock is as it was.

To import this replaces ``time.time``, so it comes before all modules that import that name. As a program it
runs a module: ``skewed_clock.py FILE MODULE ARGUMENT…``. The file holds the error in seconds.
"""

import mmap
import os
import runpy
import struct
import sys
import time
from pathlib import Path

__all__ = ["follow"]

_SECONDS = struct.Struct("<d")
_real_time = time.time
_skew: mmap.mmap | None = None


def follow(file: str) -> None:
    """Be wrong by what the file says from now on, also when that changes."""
    global _skew  # noqa: PLW0603 - one clock in a process
    number = os.open(file, os.O_RDONLY)
    _skew = mmap.mmap(number, _SECONDS.size, prot=mmap.PROT_READ)
    os.close(number)


def skewed_time() -> float:
    """Return the time of day, as wrong as it is to be."""
    return _real_time() + (0.0 if _skew is None else _SECONDS.unpack_from(_skew)[0])


time.time = skewed_time

if __name__ == "__main__":
    follow(sys.argv[1])
    sys.argv = sys.argv[2:]
    sys.path[0] = str(Path.cwd())
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
