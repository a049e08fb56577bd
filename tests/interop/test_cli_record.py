"""``celeriac record`` at work: real brokers, real signals, a terminal, systemd, and a disk that fails."""

import json
import os
import pty
import re
import resource
import select
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from celeriac.app import Celeriac
from celeriac.model.events import Gap, TaskEvent
from celeriac.node.record_source import record_queue
from celeriac.programs.process import wait_until
from celeriac.store.event_log import EventLog
from tests.builders import body, task
from tests.program import Program, own_environment, run_program

PATIENCE = 60.0
#: Has the command tell how it gets on at each turn.
IMPATIENT = "import celeriac.cli.record; celeriac.cli.record._LINE_EVERY = 0.0"
#: A recorder whose disk never lets it end, in the place of the command.
STUCK = """
import time
from celeriac.app import Celeriac
from celeriac.core.redaction import Redactor
from celeriac.node.recorder import Recorder
from celeriac.node.rehearsal import Rehearsal
from celeriac.transport.memory import MemoryBroker

class Stuck(Rehearsal):
    def close(self):
        time.sleep(600)

app = Celeriac(MemoryBroker(), environ={})
writer = Stuck(Redactor(tasks={}, names=(), hash_key=b"k"))
told = lambda progress: print(progress.state, flush=True)
recorder = Recorder(app.connection(), writer, settings=app.conf, clock=app.clock, name="one", on_turn=told)
recorder.run()
"""


@pytest.fixture(params=["redis_url", "amqp_url"])
def url(request: pytest.FixtureRequest) -> str:
    """Run the test on each broker."""
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def environment() -> dict[str, str]:
    """An environment without settings of ours."""
    return own_environment()


class Recording:
    """The command, running; what it says is in a file."""

    def __init__(
        self, arguments: list[str], folder: Path, environment: dict[str, str], before: str = ""
    ) -> None:
        self._said = folder / f"said-{len(list(folder.glob('said-*')))}"
        with self._said.open("wb") as said:
            self.process = Program(
                *arguments, stdout=said, stderr=said, cwd=folder, env=environment, before=before
            )

    @property
    def said(self) -> str:
        return self._said.read_text()

    def wait(self) -> int:
        return self.process.wait(PATIENCE)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.wait()


class Place:
    """A broker, a folder with a log, and the commands that are run there."""

    def __init__(self, url: str, folder: Path, environment: dict[str, str], stack: ExitStack) -> None:
        self.app = Celeriac(url, environ={}, log_recorder="one")
        self.url = url
        self.folder = folder
        self.log = folder / "log"
        self.environment = environment
        self._stack = stack
        self._link = stack.enter_context(self.app.connection())

    def record(self, *arguments: str, **environment: str) -> Recording:
        program = Recording(self.command(*arguments), self.folder, self.environment | environment)
        self._stack.callback(self._end, program)
        return program

    def command(self, *arguments: str) -> list[str]:
        return ["record", str(self.log), "--broker", self.url, "--name", "one", *arguments]

    def check(self) -> tuple[int, str]:
        done = run_program(*self.command("--check"), env=self.environment)
        return done.returncode, done.stdout.strip()

    def status(self) -> dict[str, Any]:
        """Return what the file for supervisors says; nothing if there is none."""
        try:
            told: dict[str, Any] = json.loads((self.log / "spool" / "one" / "status.json").read_text())
        except FileNotFoundError:
            return {}
        return told

    def wait_until(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        assert wait_until(lambda: condition(self.status()), patience=PATIENCE), self.status()
        return self.status()

    def wait_for(self, program: Recording, recorded: int = 0) -> dict[str, Any]:
        """Wait until a program records, and has recorded so many events."""
        return self.wait_until(
            lambda told: (
                told.get("pid") == program.process.pid
                and told["state"] == "recording"
                and told["recorded"] >= recorded
            )
        )

    def publish(self, *events: dict[str, Any]) -> None:
        exchange = record_queue(self.app.conf, "one", self._link.driver).exchange
        for event in events:
            self._link.publish(exchange, body(event), routing_key="task.multi")
        assert self._link.unconfirmed(PATIENCE) == 0

    def queue_length(self) -> int | None:
        return self._link.queue_length("celeriac.record.one")

    def uuids(self) -> list[str]:
        return [event.uuid for event in EventLog(str(self.log)).read() if isinstance(event, TaskEvent)]

    def gaps(self) -> list[Gap]:
        return [event for event in EventLog(str(self.log)).read() if isinstance(event, Gap)]

    def _end(self, program: Recording) -> None:
        if program.process.poll() is None:
            program.process.kill()
        program.wait()
        print(program.said)  # pytest shows it if the test failed


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def place(url: str, tmp_path: Path, environment: dict[str, str], stack: ExitStack) -> Place:
    return Place(url, tmp_path, environment, stack)


@pytest.fixture
def redis_place(redis_url: str, tmp_path: Path, environment: dict[str, str], stack: ExitStack) -> Place:
    return Place(redis_url, tmp_path, environment, stack)


def started(count: int) -> list[dict[str, Any]]:
    return [task("started", f"t{number}") for number in range(count)]


@contextmanager
def disk_full(program: Recording, log: Path) -> Iterator[None]:
    """Have no file of a program grow, beyond what one of the recorder has by now."""
    soft, hard = resource.prlimit(program.process.pid, resource.RLIMIT_FSIZE)
    largest = max(path.stat().st_size for path in (log / "spool").rglob("*.wal"))
    resource.prlimit(program.process.pid, resource.RLIMIT_FSIZE, (largest, hard))
    try:
        yield
    finally:
        resource.prlimit(program.process.pid, resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_recorder_that_is_told_to_end_has_everything_recorded_and_sealed(place: Place, number: int) -> None:
    program = place.record()
    place.wait_for(program)
    place.publish(*started(100))
    place.wait_for(program, 100)

    code = program.stop(number)

    assert code == 0
    assert place.uuids() == [f"t{number}" for number in range(100)]
    assert len(list((place.log / "events").rglob("*.parquet"))) == 1
    assert place.status()["state"] == "stopped"
    assert re.search(r"stopped:\s+100 events", program.said)
    assert place.queue_length() in (None, 0)


def test_whether_it_is_well_can_be_asked(place: Place) -> None:
    never = place.check()
    program = place.record()
    place.wait_for(program)
    running = place.check()
    program.stop()

    stopped = place.check()

    assert never[0] == 1
    assert "no recorder status found in" in never[1]
    assert running == (0, "recorder one: healthy")
    assert stopped == (1, "recorder one: stopped by request")


def test_a_recorder_that_was_killed_is_not_well_and_what_it_recorded_is_kept(place: Place) -> None:
    program = place.record()
    place.wait_for(program)
    place.publish(*started(10))
    place.wait_for(program, 10)

    program.process.kill()
    program.wait()

    assert place.check() == (1, f"recorder one: process {program.process.pid} is not running")
    assert place.uuids() == [f"t{number}" for number in range(10)]


def test_a_second_of_the_same_name_is_refused_and_tells_nothing_in_the_place_of_the_first(
    place: Place,
) -> None:
    first = place.record()
    place.wait_for(first)

    second = place.record()
    code = second.wait()

    assert code == 78
    assert "a recorder named 'one' is already running" in second.said
    assert place.check()[0] == 0
    assert place.status()["pid"] == first.process.pid


def test_a_dry_run_writes_nothing_leaves_no_queue_and_shows_what_would_be_masked(place: Place) -> None:
    program = place.record("--dry-run", "--limit", "2")
    secret = task("received", "t1", name="shop.pay", args="()", kwargs="{'password': 'hunter2'}")

    def has_ended() -> bool:
        # Nobody keeps them, so they are said again until somebody listens.
        place.publish(secret, task("started", "t1"))
        return program.process.poll() is not None

    assert wait_until(has_ended, patience=PATIENCE)

    assert program.wait() == 0
    assert re.search(r"kwargs\s+\S.*\d+", program.said)
    assert "hunter2" not in program.said
    assert not place.log.exists()
    assert place.queue_length() is None


def test_what_was_damaged_is_told_at_the_start(redis_place: Place) -> None:
    program = redis_place.record()
    redis_place.wait_for(program)
    redis_place.publish(*started(10))
    redis_place.wait_for(program, 10)
    program.process.kill()
    program.wait()
    (left,) = [
        path for path in (redis_place.log / "spool" / "one").glob("*.wal") if path.stat().st_size > 1000
    ]
    with left.open("ab") as file:
        file.write(b"\x20\x00\x00\x00torn")

    again = redis_place.record()
    redis_place.wait_for(again)

    assert "warning:" in again.said
    assert left.name in again.said
    assert redis_place.uuids() == [f"t{number}" for number in range(10)]


def test_a_disk_that_takes_nothing_is_told_and_recording_goes_on_when_it_does(place: Place) -> None:
    program = place.record()
    place.wait_for(program)
    place.publish(task("started", "first"))
    place.wait_for(program, 1)
    with disk_full(program, place.log):
        place.publish(*started(10))
        place.wait_until(lambda told: told["state"] == "disk")
        code, answer = place.check()

    place.wait_for(program, 11)

    assert code == 1
    assert "disk full or read-only" in answer
    assert "raise the file size limit" in answer
    assert place.check()[0] == 0
    assert place.uuids() == ["first", *(f"t{number}" for number in range(10))]


def test_messages_that_nobody_can_read_end_nothing(redis_place: Place) -> None:
    with Path("/dev/full").open("wb") as full:
        program = Program(
            *redis_place.command(), stdout=full, stderr=full, env=redis_place.environment, before=IMPATIENT
        )
    try:
        redis_place.wait_until(lambda told: told.get("state") == "recording")
        redis_place.publish(*started(5))
        redis_place.wait_until(lambda told: told["recorded"] == 5)
        is_alive = program.poll() is None
        program.send_signal(signal.SIGTERM)
        program.wait(PATIENCE)
    finally:
        program.kill()
        program.wait()

    assert is_alive
    assert redis_place.status()["state"] == "stopped"
    assert len(list((redis_place.log / "events").rglob("*.parquet"))) == 1


def test_systemd_is_told_that_it_is_ready_alive_and_about_to_end(redis_place: Place, tmp_path: Path) -> None:
    address = tmp_path / "notify"
    heard: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        door.bind(str(address))
        door.settimeout(0.05)

        def hears(*words: str) -> bool:
            with suppress(TimeoutError):
                heard.append(door.recv(4096).decode())
            return all(any(line.startswith(word) for line in heard) for word in words)

        program = redis_place.record(NOTIFY_SOCKET=str(address), WATCHDOG_USEC="500000")
        assert wait_until(
            lambda: hears("READY=1", "WATCHDOG=1", "STATUS=recording, 0 events"), patience=PATIENCE
        ), heard

        program.process.send_signal(signal.SIGTERM)

        assert wait_until(lambda: hears("STOPPING=1"), patience=PATIENCE), heard
        assert program.wait() == 0
    assert heard[0] == "READY=1"


def test_on_a_terminal_one_line_shows_how_it_gets_on(redis_place: Place) -> None:
    ours, theirs = pty.openpty()
    program = Program(
        *redis_place.command(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=redis_place.environment | {"TERM": "xterm", "COLUMNS": "200"},
        start_new_session=True,
    )
    os.close(theirs)
    seen = b""

    def shows(words: bytes) -> bool:
        nonlocal seen
        if select.select([ours], [], [], 0)[0]:
            try:
                seen += os.read(ours, 65536)
            except OSError:  # the other end is closed
                return words in seen
        return words in seen

    try:
        assert wait_until(lambda: shows(b"recording:  0 events"), patience=PATIENCE), seen
        redis_place.publish(*started(7))
        assert wait_until(lambda: shows(b"recording:  7 events"), patience=PATIENCE), seen
        program.send_signal(signal.SIGINT)
        assert wait_until(lambda: shows(b"stopped:  7 events"), patience=PATIENCE), seen
        code = program.wait(PATIENCE)
    finally:
        program.kill()
        program.wait()
        os.close(ours)

    assert code == 0
    assert b"0 dropped" in seen


def test_a_second_signal_ends_it_at_once(
    tmp_path: Path, environment: dict[str, str], stack: ExitStack
) -> None:
    program = Recording([], tmp_path, environment, before=STUCK)
    stack.callback(program.wait)
    stack.callback(program.process.kill)
    assert wait_until(lambda: "recording" in program.said, patience=PATIENCE), program.said
    program.process.send_signal(signal.SIGTERM)
    assert wait_until(lambda: "stopping" in program.said, patience=PATIENCE), program.said

    code = program.stop(signal.SIGINT)

    assert code == -signal.SIGINT
    assert "KeyboardInterrupt" in program.said


def test_a_broker_that_is_not_there_is_told_with_its_code(redis_place: Place) -> None:
    redis_place.url = "redis://127.0.0.1:1/0"

    program = redis_place.record()

    assert program.wait() == 69
    assert "redis://127.0.0.1:1/0" in program.said
    assert redis_place.check()[0] == 1
