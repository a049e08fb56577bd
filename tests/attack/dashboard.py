"""The dashboard as a program of its own, to be attacked."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from celeriac.programs.process import wait_until
from tests.program import Program, own_environment

__all__ = ["PATIENCE", "Dashboard", "dashboard"]

#: Far more than needed, for a busy machine.
PATIENCE = 90.0


class Dashboard(NamedTuple):
    """A dashboard that runs: its host and port, its log, and its process id."""

    address: str
    log: Path
    pid: int


@contextmanager
def dashboard(
    broker: str, folder: Path, *arguments: str, files: int | None = None, before: str = ""
) -> Iterator[Dashboard]:
    """Run `celeriac web` with a limit on its open files, after some code of the test."""
    log = folder / "log"
    if files is not None:
        before += f"\nimport resource as r; r.setrlimit(r.RLIMIT_NOFILE, ({files}, {files}))"
    command = ("web", "--port", "0", *arguments)
    environment = own_environment(CELERIAC_BROKER_URL=broker)
    with (
        log.open("wb") as stderr,
        Program(*command, cwd=folder, env=environment, stderr=stderr, before=before) as program,
    ):
        assert wait_until(lambda: "served at http://" in log.read_text(), patience=PATIENCE), log.read_text()
        yield Dashboard(log.read_text().partition("served at http://")[2].split()[0], log, program.pid)
