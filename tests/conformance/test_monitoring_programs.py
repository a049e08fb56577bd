"""Monitoring and events: programs written for Celery print the same with Celery and with Celeriac.

The programs are those of Celery's monitoring guide and of the document on monitoring. They import Celery; for
Celeriac nothing but the import changes. They watch a worker of each library, with a queue of its own.
"""

import re
import signal
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest

from celeriac import Celeriac
from celeriac.model.events import Event
from celeriac.programs.process import wait_until
from celeriac.testing.peers import CeleriacWorker, CeleryWorker
from tests.conformance.script import LIBRARIES, Script, copy_programs
from tests.live import PEER_APP, PEERS, empty_database, new_vhost, peer

TIMEOUT = 60.0
OUR_APP = PEER_APP.with_name("ours.py")
of_each_library = pytest.mark.parametrize("library", LIBRARIES)

#: The programs that run until Ctrl-C, and patterns that are all in the output of a complete run.
OUTPUTS = {
    "watch_failures.py": [rf"peers\.fail\[{library}-" for library in LIBRARIES],
    "dump_cam.py": [
        *(rf"{library}@example \(ONLINE" for library in LIBRARIES),
        *(rf"{library}-\S+\) {state}" for library in LIBRARIES for state in ("SUCCESS", "FAILURE")),
        r"(Total: .*){3}",
    ],
    "print_events.py": ["task-succeeded", "task-failed", "worker-heartbeat", "worker-online"],
    "take_snapshots.py": [
        rf"\[{library}-\S+ {state}" for library in LIBRARIES for state in ("SUCCESS", "FAILURE")
    ],
}


@dataclass
class Runs:
    """The output and the exit code of each program, by library and file; it ended by Ctrl-C."""

    printed: dict[tuple[str, str], str] = field(default_factory=dict)
    codes: dict[tuple[str, str], int | None] = field(default_factory=dict)
    #: An event that the dispatcher of each library sent.
    sent: dict[str, Event] = field(default_factory=dict)


def has_printed(script: Script, patterns: list[str]) -> bool:
    """Tell whether all patterns are in the output of a program."""
    return all(re.search(pattern, script.log(), re.DOTALL) for pattern in patterns)


@pytest.fixture(scope="module", params=["redis", "amqp"])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Run all programs at the same time, alongside a worker of each library, until each run is complete."""
    folder, runs = tmp_path_factory.mktemp("programs"), Runs()
    with ExitStack() as stack:
        if request.param == "redis":
            url = empty_database(request.getfixturevalue("redis_server"))
        else:
            url = stack.enter_context(new_vhost(request.getfixturevalue("rabbit_server")))
        place: dict[str, Any] = {"url": url, "pool": "solo"}
        peer_python = peer(PEERS[-1])
        for worker in (
            CeleryWorker(
                peer_python, PEER_APP, hostname="celery@example", arguments=("-Q", "celery"), **place
            ),
            CeleriacWorker(OUR_APP, hostname="celeriac@example", arguments=("-Q", "celeriac"), **place),
        ):
            stack.enter_context(worker)
        scripts = {}
        for library in LIBRARIES:
            copies = copy_programs(library, folder / library)
            for name in OUTPUTS:
                scripts[library, name] = stack.enter_context(Script(copies / name, url))
        app = Celeriac(url, environ={})
        stack.callback(app.close)
        online: list[Event] = []
        senders: dict[int | None, str] = {}
        receiver = app.events.Receiver(handlers={"*": online.append}, routing_key="worker.online")
        stack.enter_context(receiver)
        with pytest.raises(TimeoutError):
            receiver.capture(timeout=0)

        printers = [script for (_, name), script in scripts.items() if name == "print_events.py"]

        def send_events() -> None:
            for library in LIBRARIES:
                app.send_task("peers.add", (2, 3), queue=library, task_id=f"{library}-{uuid4()}")
                app.send_task("peers.fail", queue=library, task_id=f"{library}-{uuid4()}")
                # Each time a new process: no more of them than it takes.
                if library not in runs.sent or not all(
                    has_printed(each, ["worker-online"]) for each in printers
                ):
                    with Script(folder / library / "send_event.py", url) as sender:
                        assert sender.wait() == 0, sender.log()
                        senders[sender.pid] = library
            # A dispatcher that closes gives up after five seconds, and another event follows.
            with suppress(TimeoutError):
                receiver.capture(limit=len(LIBRARIES), timeout=1.0)
            runs.sent = {senders[event.pid]: event for event in online if event.pid in senders}

        def is_complete() -> bool:
            send_events()
            outputs = (has_printed(script, OUTPUTS[name]) for (_, name), script in scripts.items())
            return set(runs.sent) == set(LIBRARIES) and all(outputs)

        # Each test reports by itself that its program did not print all it should.
        wait_until(is_complete, patience=TIMEOUT)
        for key, script in scripts.items():
            script.signal(signal.SIGINT)
            runs.codes[key], runs.printed[key] = script.wait(), script.log()
    return runs


@pytest.mark.differs("Connections of dispatchers and receivers")
@of_each_library
def test_061_dispatcher_is_a_context_manager_over_a_connection(library: str, runs: Runs) -> None:
    """`EventDispatcher(connection, enabled=True)` is a context manager and sends to its broker."""
    event = runs.sent[library]

    assert (event.type, event["custom_field"]) == ("worker-online", "value")


@of_each_library
def test_073_receiver_captures_events_as_written(library: str, runs: Runs) -> None:
    """`Receiver(conn, handlers={'*': handler})` on `app.connection()` gives each event to the handler."""
    printed = re.findall(r"^Received event: (\S+)$", runs.printed[library, "print_events.py"], re.MULTILINE)

    steps = {f"task-{step}" for step in ("received", "started", "succeeded", "failed")}
    assert set(printed) >= steps | {"worker-online", "worker-heartbeat"}


@of_each_library
def test_081_a_program_for_real_time_processing_runs_as_written(library: str, runs: Runs) -> None:
    """A monitor that feeds `State` and handles `task-failed` runs as written for Celery."""
    printed = runs.printed[library, "watch_failures.py"]

    fields = r"""'args': '\(\)', 'kwargs': '{}', 'retries': 0, 'exception': "ValueError\('planned'\)\""""
    for worker in LIBRARIES:
        line = rf"^TASK FAILED: peers\.fail\[(?P<id>{worker}-\S{{36}})\] {{{fields}, 'root_id': '(?P=id)'}}$"
        assert re.search(line, printed, re.MULTILINE), printed
    assert runs.codes[library, "watch_failures.py"] == 128 + signal.SIGINT


@of_each_library
def test_093_a_camera_takes_pictures_at_intervals(library: str, runs: Runs) -> None:
    """The timer of a `Polaroid` calls `on_shutter(state)` every `freq` seconds."""
    printed = runs.printed[library, "dump_cam.py"]

    totals = re.findall(r"^Total: \d+ events, \d+ tasks$", printed, re.MULTILINE)

    assert len(totals) > 2
    assert runs.codes[library, "dump_cam.py"] == 128 + signal.SIGINT


@of_each_library
def test_094_a_picture_shows_tasks_and_workers(library: str, runs: Runs) -> None:
    """`on_shutter` sees the tasks and workers of the state, and `clear_after` clears what ended."""
    printed = runs.printed[library, "dump_cam.py"]

    ended = re.findall(r"<Task: peers\.(?:add|fail)\(([\w-]+)\) (SUCCESS|FAILURE) clock:\d+>", printed)

    for worker in LIBRARIES:
        states = {state for uuid, state in ended if uuid.startswith(f"{worker}-")}
        assert f"<Worker: {worker}@example (ONLINE clock:" in printed
        assert states == {"SUCCESS", "FAILURE"}
    assert len(set(ended)) == len(ended)  # cleared after the picture that shows its end


@of_each_library
def test_096_evcam_runs_a_camera_by_its_name(library: str, runs: Runs) -> None:
    """`evcam(camera='my_project.Camera', freq=…, app=app)` takes pictures of the cluster until Ctrl-C."""
    printed = runs.printed[library, "take_snapshots.py"]

    tasks = re.findall(r"^(peers\.\w+)\[(\w+)-\S{36}\] (SUCCESS|FAILURE)$", printed, re.MULTILINE)

    assert set(tasks) == {
        (name, worker, state)
        for worker in LIBRARIES
        for name, state in (("peers.add", "SUCCESS"), ("peers.fail", "FAILURE"))
    }
    assert runs.codes[library, "take_snapshots.py"] == 0
