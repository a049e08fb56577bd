"""``celeriac up`` goes on while the disk is full, and ends in order when its terminal is closed."""

import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from celeriac.programs.process import wait_until
from tests.attack.test_recorder_folder import unmount
from tests.live import IS_LONG
from tests.recorders import Publisher, read_lawful
from tests.up import PATIENCE, Up, is_open, running

#: Far more than is written, and soon full.
DISK_BYTES = 32 * 1024 * 1024
#: Messages of five events each, before, while and after the disk is full.
MESSAGES = 200 if IS_LONG else 4


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own that can be filled."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "celeriac", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root may mount a file system")
    yield place
    unmount(place)


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Have no room on a disk meanwhile."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    yield
    filler.unlink()


def pid_of(up: Up, command: str) -> int:
    """Return the process that runs a command of ours, and not its guard."""
    (found,) = [
        pid
        for pid, line in up.alive().items()
        if f"celeriac {command} " in f"{line} " and "guard.py" not in line
    ]
    return found


def has_seen(up: Up, publisher: Publisher) -> bool:
    """Say whether the dashboard knows the task that was published last."""
    *_, last = publisher.published
    try:
        return up.get(f"/api/v1/tasks/{last}").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("is_output_there", [False, True] if IS_LONG else [False])
def test_full_disk_is_reported_and_costs_no_event_and_no_dashboard(
    redis_url: str, tmp_path: Path, disk: Path, is_output_there: bool
) -> None:
    folder = disk / "work" if is_output_there else tmp_path / "work"
    folder.mkdir()
    log = disk / "data" / "log"
    arguments = ("--data", str(disk / "data"), "--pipeline-every", "0")
    with (
        Publisher(redis_url) as publisher,
        running(folder, *arguments, CELERIAC_BROKER_URL=redis_url) as up,
    ):
        up.wait_for("^(end +with )")
        publisher.publish(MESSAGES)
        assert wait_until(lambda: has_seen(up, publisher), patience=PATIENCE)
        with full(disk):
            publisher.publish(MESSAGES)
            if not is_output_there:
                reason = up.wait_for(r"recorder: unhealthy: (.*)")
            assert wait_until(lambda: has_seen(up, publisher), patience=PATIENCE)
            dashboard = pid_of(up, "web")
            os.kill(dashboard, signal.SIGKILL)
            assert is_replaced(up, "web", dashboard)
        if not is_output_there:
            up.wait_for("(recorder: healthy again)")
        publisher.publish(MESSAGES)
        assert wait_until(lambda: has_seen(up, publisher), patience=PATIENCE)
        code = up.end(signal.SIGTERM)
        is_gone = has_ended(up)
        read = read_lawful(log)

    if not is_output_there:
        assert "No space left on device" in reason
        assert "free disk space" in reason
    assert (code, is_gone) == (0, True), up.told
    lost = {*publisher.published} - read.ids
    print(
        f"tried {len(publisher.published)}, recorded {len(read.ids)}, lost {len(lost)}, gaps {len(read.gaps)}"
    )
    assert lost == set()
    assert read.gaps == []
    assert "Traceback" not in up.told


def has_ended(up: Up) -> bool:
    """Say whether nothing is left: no process, no port of its own, no temporary file."""
    port = int(up.address.rpartition(":")[2]) if "dashboard " in up.told else None
    return (
        wait_until(lambda: up.alive() == {}, patience=PATIENCE)
        and (port is None or not is_open(port))
        and list(up.temporary.iterdir()) == []
    )


def is_replaced(up: Up, command: str, before: int) -> bool:
    """Wait until another process runs a command of ours, and the dashboard answers."""

    def is_another() -> bool:
        try:
            return pid_of(up, command) != before
        except ValueError:  # there is none at the moment
            return False

    return wait_until(lambda: is_another() and is_served(up), patience=PATIENCE)


def is_served(up: Up) -> bool:
    try:
        return up.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


def test_up_that_finds_no_room_says_so_in_one_line(redis_url: str, tmp_path: Path, disk: Path) -> None:
    with full(disk), running(tmp_path, "--data", str(disk / "data"), CELERIAC_BROKER_URL=redis_url) as up:
        code = up.process.wait(timeout=PATIENCE)
        text = up.told

    assert code == 1, text
    assert "No space left on device; free disk space, or use a larger disk" in text
    assert len([line for line in text.splitlines() if line.startswith("error: ")]) == 1
    assert "Traceback" not in text


# -- a terminal that is closed


class Terminal:
    """A terminal; what is shown on it is kept in a file, until it is closed."""

    def __init__(self, *, is_hangup_ignored: bool = False) -> None:
        self._ours, self._theirs = pty.openpty()
        self._awake, self._wake = os.pipe()
        self._is_hangup_ignored = is_hangup_ignored
        self._reader = Thread(target=self._read, daemon=True)
        self._shown: Any = None

    def start(self, command: list[str], **options: Any) -> "subprocess.Popen[bytes]":
        """Start a program whose terminal it is."""
        self._shown = open(options.pop("stdout").name, "wb", buffering=0)  # noqa: PTH123, SIM115
        options["stderr"] = self._theirs
        if self._is_hangup_ignored:
            # Without the program that gives signals their default actions.
            command = command[command.index("-c") - 1 :]
        program = subprocess.Popen(  # noqa: S603
            command,
            stdin=self._theirs,
            stdout=self._theirs,
            start_new_session=True,
            preexec_fn=self._take,  # noqa: PLW1509 - the tests begin no threads that hold locks here
            **options,
        )
        os.close(self._theirs)
        self._reader.start()
        return program

    def _take(self) -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if self._is_hangup_ignored else signal.SIG_DFL)

    def _read(self) -> None:
        # While it waits in a read, the terminal would not be closed.
        with suppress(OSError):
            while self._awake not in select.select([self._ours, self._awake], [], [])[0]:
                self._shown.write(os.read(self._ours, 65_536).replace(b"\r\n", b"\n"))

    def close(self) -> None:
        """Close it: its programs get SIGHUP, and who writes to it an error."""
        os.close(self._wake)
        self._reader.join(PATIENCE)
        os.close(self._ours)
        os.close(self._awake)
        self._shown.close()


@pytest.mark.parametrize("when", ["^(starting)$", "^(end +with )"], ids=["starting", "up"])
def test_up_ends_in_order_when_its_terminal_is_closed(redis_url: str, tmp_path: Path, when: str) -> None:
    terminal = Terminal()
    arguments = ("--pipeline-every", "0")
    with running(tmp_path, *arguments, start=terminal.start, CELERIAC_BROKER_URL=redis_url) as up:
        up.wait_for(when)
        assert wait_until(lambda: len(up.alive()) > 1, patience=PATIENCE)

        terminal.close()

        assert up.process.wait(timeout=PATIENCE) == 0
        assert has_ended(up)


def test_up_goes_on_without_a_terminal_if_a_hangup_is_ignored(redis_url: str, tmp_path: Path) -> None:
    terminal = Terminal(is_hangup_ignored=True)
    arguments = ("--pipeline-every", "0")
    with running(tmp_path, *arguments, start=terminal.start, CELERIAC_BROKER_URL=redis_url) as up:
        up.wait_for("^(end +with )")
        assert re.search(r"^dashboard ", up.told, re.MULTILINE)

        terminal.close()

        # It has something to say each time, and cannot.
        for _ in range(5 if IS_LONG else 2):
            before = pid_of(up, "web")
            os.kill(before, signal.SIGKILL)
            assert is_replaced(up, "web", before)
        assert up.end(signal.SIGTERM) == 0
        assert has_ended(up)
