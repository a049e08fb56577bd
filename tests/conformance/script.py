"""Programs of the folder ``programs``, run with Celery or with Celeriac."""

import sys
from collections.abc import Mapping
from pathlib import Path

from celeriac.programs.process import wait_until
from celeriac.programs.service import Service
from tests.default_signals import WITH_DEFAULT_SIGNALS

__all__ = ["LIBRARIES", "Script", "copy_programs"]

LIBRARIES = ("celery", "celeriac")
_PROGRAMS = Path(__file__).parent / "programs"
_TIMEOUT = 60.0


def copy_programs(library: str, folder: Path) -> Path:
    """Copy the programs to a new folder, and return it; for Celeriac only their imports change."""
    folder.mkdir()
    for path in _PROGRAMS.glob("*.py"):
        source = path.read_text()
        if library == "celeriac":
            source = source.replace("from celery import Celery", "from celeriac import Celeriac as Celery")
            source = source.replace("from celery.", "from celeriac.")
        (folder / path.name).write_text(source)
    return folder


class Script(Service):
    """A program, run by the Python of the tests; its output is its log."""

    name = "script"

    def __init__(self, path: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._path = path
        self._arguments = arguments
        self._extra = dict(environment or {})

    def wait(self) -> int | None:
        """Wait until it has ended, and return its exit code."""
        assert wait_until(lambda: not self.is_alive, patience=_TIMEOUT), self.log()
        return self.exit_code

    def _command(self) -> list[str]:
        return [*WITH_DEFAULT_SIGNALS, sys.executable, "-u", str(self._path), *self._arguments]

    def _environment(self) -> dict[str, str]:
        return super()._environment() | self._extra

    def _is_ready(self) -> bool:
        return True
