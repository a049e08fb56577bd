"""``celeriac up`` as a program, with all that it starts."""

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import httpx

from celeriac.programs.process import wait_until
from tests.http_client import NO_CERTIFICATES
from tests.program import CELERIAC, own_environment

__all__ = ["PATIENCE", "Up", "is_open", "running"]

PATIENCE = 180.0


class Up:
    """One ``celeriac up`` in a folder; all of its processes are known by a mark in their environment.

    ``start`` takes its command and options of ``Popen``, for one that is to run elsewhere than in a file.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        start: Callable[..., "subprocess.Popen[bytes]"] = subprocess.Popen,
        **variables: str,
    ) -> None:
        self.folder = folder
        self._mark = uuid4().hex
        self._told = folder / f"told-{self._mark}"
        # Looked at in the end: whatever lies about there was left by them.
        self.temporary = folder / f"tmp-{self._mark}"
        self.temporary.mkdir()
        environment = own_environment(TEST_MARK=self._mark, TMPDIR=str(self.temporary), **variables)
        with self._told.open("wb") as told:
            self.process = start(
                [*CELERIAC, "up", "--port", "0", *arguments],
                cwd=folder,
                env=environment,
                stdout=told,
                stderr=subprocess.STDOUT,
            )

    @property
    def told(self) -> str:
        return self._told.read_text()

    def wait_for(self, pattern: str) -> str:
        """Wait until it has told something, and return the first group of it."""
        found: list[str] = []

        def is_told() -> bool:
            found[:] = re.findall(pattern, self.told, re.MULTILINE)
            return bool(found) or self.process.poll() is not None

        assert wait_until(is_told, patience=PATIENCE), self.told
        assert found, self.told
        return found[0]

    @property
    def address(self) -> str:
        return self.wait_for(r"^dashboard +(http://\S+)")

    def get(self, path: str, **parameters: str | int) -> httpx.Response:
        return httpx.get(f"{self.address}{path}", params=parameters, timeout=PATIENCE, verify=NO_CERTIFICATES)

    def alive(self) -> dict[int, str]:
        """Return the commands of its processes, by pid; itself is one of them."""
        found = {}
        for place in Path("/proc").glob("[0-9]*"):
            try:
                environ, command = (place / "environ").read_bytes(), (place / "cmdline").read_bytes()
            except OSError:
                continue
            if self._mark.encode() in environ:
                found[int(place.name)] = command.replace(b"\0", b" ").decode()
        return found

    def end(self, number: int) -> int:
        """Send a signal, wait until it has ended, and return its code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=PATIENCE)

    def is_gone(self) -> bool:
        """Tell whether nothing is left: no process, no port, no temporary file."""
        ports = [int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", self.told)]
        return (
            wait_until(lambda: self.alive() == {}, patience=PATIENCE)
            and not any(map(is_open, ports))
            and list(self.temporary.iterdir()) == []
            and not (self.folder / ".celeriac" / "run").exists()
        )


def is_open(port: int) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5, verify=NO_CERTIFICATES)
    except httpx.ConnectError:
        return False
    except httpx.HTTPError:  # somebody is there
        return True
    return True


@contextmanager
def running(
    folder: Path,
    *arguments: str,
    start: Callable[..., "subprocess.Popen[bytes]"] = subprocess.Popen,
    **variables: str,
) -> Iterator[Up]:
    up = Up(folder, *arguments, start=start, **variables)
    try:
        yield up
    finally:
        up.process.kill()
        up.process.wait()
        wait_until(lambda: up.alive() == {}, patience=PATIENCE)
