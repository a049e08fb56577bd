"""Calls that programs written for Celery make: each works as written, or its error names the fix."""

import signal
import sys
from importlib import import_module
from pathlib import Path
from subprocess import run
from threading import Thread
from typing import Any

import celery.events.snapshot
import celery.events.state
import celery.states
import kombu
import pytest

from celeriac import (
    BaseResultConsumer,
    CallerError,
    Celeriac,
    EventDispatcher,
    EventReceiver,
    ImproperlyConfigured,
    MemoryBroker,
    TaskRevoked,
    evcam,
)
from celeriac.model.result import ResultMeta
from celeriac.programs.process import wait_until
from tests.conformance.script import Script, copy_programs
from tests.program import Program, own_environment, run_here

TIMEOUT = 60.0
BROKERS = pytest.mark.parametrize("broker", ["redis_url", "amqp_url"])


@pytest.fixture
def app() -> Celeriac:
    return Celeriac(MemoryBroker(), "rpc://", environ={})


@pytest.fixture
def url(broker: str, request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(broker))


# -- dispatchers and receivers


@BROKERS
def test_a_receiver_captures_on_a_kombu_connection(url: str) -> None:
    app = Celeriac(url, environ={})
    seen: list[Any] = []

    with app.events.Receiver(kombu.Connection(url), {"worker-online": seen.append}) as recv:
        with pytest.raises(TimeoutError):
            recv.capture(timeout=0)
        with EventDispatcher(kombu.Connection(url), enabled=True) as dispatcher:
            dispatcher.send("worker-online", custom_field="value")
        recv.capture(limit=1, timeout=TIMEOUT)

    assert [event["custom_field"] for event in seen] == ["value"]


@BROKERS
def test_a_receiver_needs_only_a_connection(url: str) -> None:
    app = Celeriac(url, environ={})
    seen: list[Any] = []

    with app.connection() as connection, EventReceiver(connection, {"*": seen.append}) as recv:
        with pytest.raises(TimeoutError):
            recv.capture(timeout=0)
        with EventDispatcher(connection, enabled=True) as dispatcher:
            dispatcher.send("worker-online")
        recv.capture(limit=1, timeout=TIMEOUT)

    assert [event["type"] for event in seen] == ["worker-online"]


def test_a_receiver_of_anything_else_names_the_connections_it_takes(app: Celeriac) -> None:
    url: Any = "redis://localhost"

    with pytest.raises(CallerError, match=r"of type str: pass app\.connection\(\) or a kombu\.Connection"):
        app.events.Receiver(url)


def test_capture_takes_its_arguments_by_position_until_should_stop(app: Celeriac) -> None:
    recv = app.events.Receiver()
    capturing = Thread(target=recv.capture, args=(None, None, True))

    capturing.start()
    is_capturing = wait_until(lambda: recv.is_subscribed, patience=TIMEOUT)
    recv.should_stop = True
    capturing.join(TIMEOUT)
    recv.close()

    assert is_capturing
    assert not capturing.is_alive()


@pytest.mark.parametrize(
    "line",
    [
        "from celeriac.events import EventDispatcher, EventReceiver",
        "from celeriac.events.dispatcher import EventDispatcher",
        "from celeriac.events.receiver import CLIENT_CLOCK_SKEW, EventReceiver",
        "from celeriac.events.snapshot import Polaroid, evcam",
        "from celeriac.events.state import State, Task, Worker, heartbeat_expires",
        "from celeriac.states import PENDING, READY_STATES, SUCCESS, precedence, state",
    ],
)
def test_names_are_imported_as_from_celery(line: str) -> None:
    done = run([sys.executable, "-c", line], capture_output=True, text=True, check=False)  # noqa: S603

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("module", [celery.states, celery.events.state, celery.events.snapshot])
def test_modules_have_all_names_of_celerys(module: Any) -> None:
    ours = import_module(module.__name__.replace("celery", "celeriac"))

    assert set(module.__all__) <= set(dir(ours))


# -- cameras


def test_evcam_without_an_app_uses_the_environment(redis_url: str, tmp_path: Path) -> None:
    folder = copy_programs("celeriac", tmp_path / "programs")
    program = folder / "evcam_alone.py"
    program.write_text("from celeriac import evcam\nevcam('my_project.Camera', freq=0.1, loglevel='INFO')\n")
    environment = own_environment(CELERIAC_BROKER_URL=redis_url)
    app = Celeriac(redis_url, environ={})

    with Script(program, environment=environment) as script, app.events.Dispatcher() as dispatcher:

        def is_shown() -> bool:
            dispatcher.send("task-received", uuid="t1", name="shop.pay")
            return "shop.pay[t1] RECEIVED" in script.log()

        shown = wait_until(is_shown, patience=TIMEOUT)
        script.signal(signal.SIGINT)
        code, log = script.wait(), script.log()

    assert shown, log
    assert code == 0
    assert "INFO/MainProcess] evcam: taking snapshots" in log


def test_evcam_of_an_unknown_camera_names_the_module(app: Celeriac) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"'nomod\.Camera'.* no module 'nomod'"):
        evcam("nomod.Camera", app=app)


def test_snapshot_takes_a_picture_every_so_many_seconds(redis_url: str, tmp_path: Path) -> None:
    folder = copy_programs("celeriac", tmp_path / "programs")
    environment = own_environment(CELERIAC_BROKER_URL=redis_url)
    app = Celeriac(redis_url, environ={})
    output = tmp_path / "output"
    command = ("snapshot", "--camera", "my_project.Camera", "--every", "0.25")

    with (
        output.open("wb") as file,
        Program(*command, env=environment, cwd=folder, stdout=file) as program,
        app.events.Dispatcher() as dispatcher,
    ):

        def is_shown() -> bool:
            dispatcher.send("task-received", uuid="t1", name="shop.pay")
            return "shop.pay[t1] RECEIVED" in output.read_text()

        shown = wait_until(is_shown, patience=TIMEOUT)
        program.send_signal(signal.SIGINT)
        _, said = program.communicate()

    assert shown, said
    assert program.returncode == 0
    assert "snapshot every 250 ms" in said


def test_the_help_of_snapshot_lists_both_names_of_the_option() -> None:
    done = run_here("snapshot", "--help", env={"COLUMNS": "120"})

    assert b"--freq,--every" in done.stdout


# -- workers and elections


def test_revoked_add_needs_only_the_id(app: Celeriac) -> None:
    app.task(name="shop.pay")(lambda: None)

    with app.Worker("w@example", concurrency=1, without_mingle=True) as worker:
        worker.revoked.add("t1")
        result = app.send_task("shop.pay", task_id="t1")
        with pytest.raises(TaskRevoked):
            result.get(timeout=TIMEOUT)
    app.close()


def test_election_takes_a_signature_and_a_connection() -> None:
    app = Celeriac(MemoryBroker(), environ={}, election_actions=["shop.*"])
    rooms: list[int] = []
    tidy = app.task(name="shop.tidy")(rooms.append)

    with app.Worker("w@example", concurrency=1), app.connection() as connection:
        app.control.election("e1", "task", tidy.s(7), connection=connection)
        tidy.s(8).election()
        assert wait_until(lambda: len(rooms) == 2, patience=TIMEOUT)
    app.close()

    assert sorted(rooms) == [7, 8]


def test_election_handlers_take_the_action_alone(app: Celeriac) -> None:
    actions: list[Any] = []

    with app.Worker("w@example", concurrency=1) as worker:
        worker.gossip.election_handlers["tidy"] = lambda action: actions.append(action)  # noqa: PLW0108
        app.control.election("e1", "tidy", {"room": 7})
        assert wait_until(lambda: bool(actions), patience=TIMEOUT)
    app.close()

    assert actions == [{"room": 7}]


# -- results


def test_the_result_consumer_can_be_replaced(app: Celeriac) -> None:
    states: list[str] = []
    app.task(name="shop.add")(lambda x, y: x + y)

    class Consumer(BaseResultConsumer):
        def on_state_change(self, meta: ResultMeta) -> None:
            states.append(meta.status)

    app.backend.ResultConsumer = Consumer
    with app.Worker("w@example", concurrency=1):
        result = app.send_task("shop.add", (2, 3))
        value = app.backend.wait_for_pending(result, timeout=TIMEOUT)
    app.close()

    assert value == 5
    assert states == ["SUCCESS"]


# -- settings


def test_a_transport_without_its_library_names_the_library() -> None:
    with pytest.raises(ImproperlyConfigured, match=r"pip install 'kombu\[confluentkafka\]'"):
        Celeriac("kafka://x", environ={}).Worker("x@v")


def test_an_exclusive_and_durable_queue_names_the_setting_to_change(app: Celeriac) -> None:
    with pytest.raises(ImproperlyConfigured, match="set event_queue_exclusive to False"):
        app.configure(event_queue_durable=True)


def test_an_unsafe_event_serializer_names_the_safe_one() -> None:
    with pytest.raises(ImproperlyConfigured, match=r"event_serializer is 'pickle'.*use 'json'"):
        Celeriac(MemoryBroker(), environ={}, event_serializer="pickle")


def test_a_level_that_the_broker_lacks_names_the_settings_of_redis(redis_url: str) -> None:
    app = Celeriac(redis_url, environ={})
    leader = app.leadership("report")

    with (
        pytest.raises(
            ImproperlyConfigured,
            match=r"election_min_level L2.*appendonly to yes and appendfsync to always",
        ),
        leader,
    ):
        pass
    app.close()
