"""Wall clocks of other processes, which a test sets forward and back."""

import struct
import sys
from pathlib import Path

from celeriac.testing.peers import CeleriacWorker

__all__ = ["SKEWED_CLOCK", "SkewedClock", "SkewedWorker"]

SKEWED_CLOCK = Path(__file__).parent / "peers" / "skewed_clock.py"
_SECONDS = struct.Struct("<d")


class SkewedClock:
    """By how much the clock of some processes is wrong; they read it from a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.set(0.0)

    def set(self, seconds: float) -> None:
        """Make the clock wrong by so many seconds from now on."""
        # In place: the processes have mapped the file.
        with self.file.open("r+b" if self.file.exists() else "wb") as file:
            file.write(_SECONDS.pack(seconds))

    def command(self, module: str, *arguments: str) -> list[str]:
        """Return what runs a module with this clock."""
        return [sys.executable, str(SKEWED_CLOCK), str(self.file), module, *arguments]


class SkewedWorker(CeleriacWorker):
    """A worker of ours whose clock is wrong."""

    clock: SkewedClock

    def _command(self) -> list[str]:
        _, flag, module, *arguments = super()._command()
        assert flag == "-m"
        return self.clock.command(module, *arguments)
