"""What our dispatcher tells is understood by Celery's monitor, its workers and Flower."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from celeriac.app import Celeriac
from celeriac.node.dispatcher import EventDispatcher
from celeriac.programs.port import LOOPBACK, ReservedPort
from celeriac.programs.process import wait_until
from celeriac.programs.service import Service
from celeriac.testing.peers import CeleryWorker
from celeriac.wire.names import event_exchange, event_queue
from tests.console import Console
from tests.interop.conftest import Pair, paired
from tests.watcher import PATIENCE, Watcher

NODE, CLIENT = "ours@celeriac", "gen1@celeriac"
ABOUT: dict[str, Any] = {
    "freq": 60.0, "active": 1, "processed": 7, "loadavg": [0.5, 0.25, 0.125],
    "sw_ident": "celeriac", "sw_ver": "0.1.0", "sw_sys": "Linux",
}  # fmt: skip
DESCRIPTION: dict[str, Any] = {"name": "shop.pay", "args": "(1, 'é')", "kwargs": "{}", "retries": 0}
#: What is told of each task, and the state that Celery's monitor makes of it.
TASKS: dict[str, tuple[str, list[tuple[str, dict[str, Any]]]]] = {
    "received": ("RECEIVED", []),
    "started": ("STARTED", [("started", {})]),
    "succeeded": ("SUCCESS", [("started", {}), ("succeeded", {"result": "42", "runtime": 0.5})]),
    "failed": ("FAILURE", [("started", {}), ("failed", {"exception": "OSError('x')", "traceback": "…"})]),
    "retried": ("RETRY", [("started", {}), ("retried", {"exception": "OSError('x')", "traceback": "…"})]),
    "revoked": ("REVOKED", [("revoked", {"terminated": False, "signum": None, "expired": False})]),
    "custom": ("PROGRESS", [("started", {}), ("progress", {"done": 3})]),
}
BATCHED = [f"batched-{number}" for number in range(20)]


def tell_of_tasks(dispatcher: EventDispatcher) -> dict[str, int]:
    """Send the events of all tasks; return the clock of the last one of each."""
    clocks = {}
    for uuid, (_, events) in TASKS.items():
        dispatcher.send("task-received", uuid=uuid, **DESCRIPTION, root_id=uuid, parent_id=None)
        for subject, fields in events:
            dispatcher.send(f"task-{subject}", uuid=uuid, **fields)
        clocks[uuid] = dispatcher.clock.value
    return clocks


def tell_in_batches(dispatcher: EventDispatcher) -> None:
    """Send the events of more tasks, a step of all of them at a time."""
    for uuid in BATCHED:
        dispatcher.send("task-received", uuid=uuid, **DESCRIPTION)
    for uuid in BATCHED:
        dispatcher.send("task-started", uuid=uuid)
    for uuid in BATCHED:
        dispatcher.send("task-succeeded", uuid=uuid, result="42", runtime=0.5)


@dataclass
class Scene:
    """A cluster of Celery's that our node is a part of."""

    app: Celeriac
    dispatcher: EventDispatcher
    console: Console
    worker: CeleryWorker
    #: The clock of the last event of each task.
    clocks: dict[str, int]
    #: The clock of the last heartbeat.
    clock: int
    #: The bodies that came as batches.
    batches: list[list[dict[str, Any]]]

    def celery(self) -> dict[str, Any]:
        """Return what Celery's monitor knows now."""
        shown: dict[str, Any] = self.console.ask("show")
        assert shown["errors"] == []
        return shown

    def wait_for_task(self, uuid: str, state: str) -> None:
        came = wait_until(
            lambda: self.celery()["tasks"].get(uuid, {}).get("state") == state, patience=PATIENCE
        )
        assert came, self.celery()


@pytest.fixture(scope="module")
def scene(pair: Pair) -> Iterator[Scene]:
    """All was told, and Celery's monitor has heard it."""
    app = pair.app()
    with ExitStack() as stack:
        console = stack.enter_context(pair.console())
        worker = stack.enter_context(pair.worker("--without-mingle", pool="solo"))
        console.ask("watch")
        batches: list[list[dict[str, Any]]] = []
        link = stack.enter_context(app.connection())
        exchange = event_exchange(app.conf.event_exchange, link.driver)
        link.subscribe(
            event_queue(app.conf, exchange, unique="batches", routing_key="task.multi"),
            lambda message: batches.append(json.loads(message.body)),
        )
        single = stack.enter_context(app.events.Dispatcher(hostname=NODE))
        single.send("worker-online", **ABOUT | {"active": 0, "processed": 0})
        single.send("worker-heartbeat", **ABOUT)
        clock = app.clock.value
        with app.events.Dispatcher(hostname=CLIENT) as client:
            client.send(
                "task-sent", uuid="sent", **DESCRIPTION, queue="fast", exchange="", routing_key="fast"
            )
        clocks = tell_of_tasks(single)
        with app.events.Dispatcher(hostname=NODE, buffer_group={"task"}) as batching:
            tell_in_batches(batching)
        while sum(map(len, batches)) < 3 * len(BATCHED):
            assert link.drain(PATIENCE), "a batch is missing"
        scene = Scene(app, single, console, worker, clocks, clock, batches)
        scene.wait_for_task(BATCHED[-1], "SUCCESS")
        yield scene


def test_celerys_monitor_gives_each_task_the_state_we_told_of(scene: Scene) -> None:
    tasks = scene.celery()["tasks"]

    states = {uuid: tasks[uuid]["state"] for uuid in TASKS}

    assert states == {uuid: state for uuid, (state, _) in TASKS.items()}


def test_celerys_monitor_describes_each_task_as_we_did(scene: Scene) -> None:
    tasks = scene.celery()["tasks"]

    described = [{name: tasks[uuid][name] for name in DESCRIPTION} for uuid in TASKS]

    assert described == [DESCRIPTION] * len(TASKS)
    assert {tasks[uuid]["worker"] for uuid in TASKS} == {NODE}
    assert (tasks["succeeded"]["result"], tasks["succeeded"]["runtime"]) == ("42", 0.5)
    assert tasks["failed"]["exception"] == "OSError('x')"


def test_celerys_monitor_knows_the_client_of_a_task_that_we_sent(scene: Scene) -> None:
    task = scene.celery()["tasks"]["sent"]

    known = (task["state"], task["name"], task["client"])

    assert known == ("PENDING", "shop.pay", CLIENT)


def test_celerys_monitor_keeps_the_clocks_we_stamped(scene: Scene) -> None:
    tasks = scene.celery()["tasks"]

    clocks = {uuid: tasks[uuid]["clock"] for uuid in TASKS}

    assert clocks == scene.clocks


def test_celerys_monitor_takes_batches_apart(scene: Scene) -> None:
    tasks = scene.celery()["tasks"]

    states = {uuid: tasks[uuid]["state"] for uuid in BATCHED}

    assert states == dict.fromkeys(BATCHED, "SUCCESS")
    assert [len(batch) for batch in scene.batches] == [24, 24, 12]


def test_celerys_monitor_knows_our_node_as_alive(scene: Scene) -> None:
    ours = scene.celery()["workers"][NODE]

    expected = ABOUT | {"hostname": NODE, "pid": os.getpid(), "alive": True, "clock": scene.clock}

    assert ours == {name: value for name, value in expected.items() if name != "loadavg"}


def test_celerys_worker_hears_us_without_an_error(scene: Scene) -> None:
    answer = scene.console.ask("ping", timeout=PATIENCE, destination=[scene.worker.hostname])

    errors = scene.worker.errors()

    assert answer == [{scene.worker.hostname: {"ok": "pong"}}]
    assert errors == []


def test_a_retry_told_of_last_undoes_no_success_here_though_it_does_in_celerys_monitor(scene: Scene) -> None:
    with Watcher(scene.app) as watcher:
        scene.dispatcher.send("task-received", uuid="late", **DESCRIPTION)
        scene.dispatcher.send("task-received", uuid="late", **DESCRIPTION | {"retries": 1})
        scene.dispatcher.send("task-succeeded", uuid="late", result="42", runtime=0.5)

        scene.dispatcher.send("task-retried", uuid="late", exception="OSError('x')", traceback="…")

        # Celery: RETRY is let in whatever came before, so that its monitor depends on luck.
        scene.wait_for_task("late", "RETRY")
        watcher.wait_for(lambda: watcher.types["task-retried"] == 1)
        assert watcher.state.tasks["late"].state == "SUCCESS"


def test_celerys_monitor_sees_our_node_leave(scene: Scene) -> None:
    name = "leaving@celeriac"
    with scene.app.events.Dispatcher(hostname=name) as dispatcher:
        dispatcher.send("worker-online", **ABOUT)
        assert wait_until(lambda: name in scene.celery()["workers"], patience=PATIENCE)

        dispatcher.send("worker-offline", **ABOUT)

        assert wait_until(lambda: not scene.celery()["workers"][name]["alive"], patience=PATIENCE)


def test_a_blind_event_stops_no_monitor_of_celerys(pair: Pair) -> None:
    with pair.console() as console, pair.app().events.Dispatcher(hostname="blind@celeriac") as dispatcher:
        console.ask("watch")

        dispatcher.send("worker-heartbeat", blind=True, **ABOUT)
        dispatcher.send("worker-heartbeat", **ABOUT)

        shown: dict[str, Any] = {}

        def is_heard_or_dead() -> bool:
            shown.update(console.ask("show"))
            return bool(shown["errors"]) or shown["types"].get("worker-heartbeat", 0) >= 2

        assert wait_until(is_heard_or_dead, patience=PATIENCE)
        assert shown["errors"] == []


class Flower(Service):
    """The monitor that people know, with its API open to us."""

    name = "flower"

    def __init__(self, python: Path, *, url: str) -> None:
        super().__init__()
        self._python = python
        self._url = url
        self._port = ReservedPort()

    def ask(self, path: str) -> Any:
        """Return what it answers to a request."""
        with urlopen(f"http://{LOOPBACK}:{self._port.number}/api/{path}", timeout=10) as answer:
            return json.load(answer)

    def close(self) -> None:
        super().close()
        self._port.release()

    def _environment(self) -> dict[str, str]:
        return super()._environment() | {"FLOWER_UNAUTHENTICATED_API": "1"}

    def _command(self) -> list[str]:
        place = [f"--address={LOOPBACK}", f"--port={self._port.number}"]
        return [str(self._python), "-m", "celery", f"--broker={self._url}", "flower", *place]

    def _is_ready(self) -> bool:
        try:
            return isinstance(self.ask("workers?status=1"), dict)
        except (URLError, OSError):
            return False


@pytest.fixture(scope="module", params=[("5.6", "redis"), ("5.7", "amqp")], ids="-".join)
def flower(request: pytest.FixtureRequest) -> Iterator[Flower]:
    """A Flower that has heard all that we told; with one version of Celery on each broker."""
    with paired(request, *request.param) as pair, Flower(pair.python, url=pair.url) as flower:
        app = pair.app()
        with app.events.Dispatcher(hostname=NODE) as dispatcher:

            def is_heard() -> bool:
                # It answers requests before it hears events.
                dispatcher.send("worker-online", **ABOUT)
                return NODE in flower.ask("workers?status=1")

            assert wait_until(is_heard, patience=PATIENCE), flower.log()
            tell_of_tasks(dispatcher)
        with app.events.Dispatcher(hostname=NODE, buffer_group={"task"}) as batching:
            tell_in_batches(batching)
        assert wait_until(
            lambda: flower.ask("tasks").get(BATCHED[-1], {}).get("state") == "SUCCESS", patience=PATIENCE
        ), flower.log()
        yield flower
        print(flower.log())


def test_flower_shows_our_node_as_alive(flower: Flower) -> None:
    workers = flower.ask("workers?status=1")

    assert workers == {NODE: True}


def test_flower_shows_our_tasks_with_their_states(flower: Flower) -> None:
    tasks = flower.ask("tasks")

    states = {uuid: (task["state"], task["name"], task["worker"]) for uuid, task in tasks.items()}

    expected = {uuid: state for uuid, (state, _) in TASKS.items()} | dict.fromkeys(BATCHED, "SUCCESS")
    assert states == {uuid: (state, "shop.pay", NODE) for uuid, state in expected.items()}


def test_flower_logs_no_error(flower: Flower) -> None:
    log = flower.log()

    errors = [line for line in log.splitlines() if line.startswith("[E") or "Failed to capture" in line]

    assert errors == []
    assert flower.is_alive


_UNCLOSED_PROGRAM = """
import sys
from celeriac import Celeriac
dispatcher = Celeriac(sys.argv[1], environ={}).events.Dispatcher(buffer_group=["task"])
dispatcher.send("task-custom", uuid="t1")
"""


@pytest.mark.parametrize("broker", ["redis", "amqp"])
def test_a_program_that_ends_without_close_sends_the_events_that_it_buffered(
    broker: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(f"{broker}_url")

    with Watcher(Celeriac(url, environ={})) as watcher:
        command = [sys.executable, "-c", _UNCLOSED_PROGRAM, url]
        subprocess.run(command, check=True, timeout=PATIENCE)  # noqa: S603 - our own command
        watcher.wait_for(lambda: watcher.types["task-custom"] > 0)

    [event] = watcher.of_type("task-custom")
    assert event["uuid"] == "t1"
