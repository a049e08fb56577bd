"""The dashboard as a program of its own, to be attacked."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from celeriac.programs.process import wait_until
from tests.program import Program, own_environment

__all__ = ["PATIENCE", "dashboard"]

#: Far more than needed, for a busy machine.
PATIENCE = 90.0


@contextmanager
def dashboard(
    broker: str, folder: Path, *arguments: str, files: int | None = None
) -> Iterator[tuple[str, Path]]:
    """Run `celeriac web`, with a limit on its open files; yield its host and port, and its log."""
    log = folder / "log"
    before = (
        "" if files is None else f"import resource as r; r.setrlimit(r.RLIMIT_NOFILE, ({files}, {files}))"
    )
    command = ("web", "--port", "0", *arguments)
    environment = own_environment(CELERIAC_BROKER_URL=broker)
    with (
        log.open("wb") as stderr,
        Program(*command, cwd=folder, env=environment, stderr=stderr, before=before),
    ):
        assert wait_until(lambda: "served at http://" in log.read_text(), patience=PATIENCE), log.read_text()
        yield log.read_text().partition("served at http://")[2].split()[0], log
