"""The detector in a worker of Celery: it hears what the gossip hears, and its faults stay its own."""

import logging
import subprocess
import sys
from importlib import import_module
from typing import Any
from unittest.mock import patch

import pytest
from celery import Celery
from celery.worker.control import Panel

from celeriac.errors import ImproperlyConfigured
from celeriac.integrations.celery import COMMAND, MembersStep, Observer, _overheard, _tell_members, install
from tests.builders import WORKER, worker

US = "us@here"
PULSE = 0.5


class Clock:
    """A time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Heard:
    """A message as kombu hands it to the gossip."""

    def __init__(self, payload: object) -> None:
        self._payload = payload

    @property
    def payload(self) -> object:
        if isinstance(self._payload, Exception):
            raise self._payload
        return self._payload


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def observer(clock: Clock) -> Observer:
    made = Observer(US, pid=1, freq=2.0, now=clock)
    made.tick()
    return made


def wait(observer: Observer, clock: Clock, seconds: float) -> None:
    for _ in range(round(seconds / PULSE)):
        clock.now += PULSE
        observer.tick()


def test_a_worker_that_is_heard_is_a_member(observer: Observer) -> None:
    observer.receive(worker("heartbeat"))

    told = observer.members[WORKER]
    assert (told["state"], told["reason"], told["pid"], told["freq"]) == (
        "ALIVE",
        "heartbeat on time",
        19036,
        2.0,
    )


def test_a_batch_of_events_is_heard_too(observer: Observer) -> None:
    observer.receive([worker("heartbeat", hostname="a@x"), worker("heartbeat", hostname="b@x")])

    assert list(observer.members) == [US, "a@x", "b@x"]


def test_the_worker_itself_is_a_member(observer: Observer) -> None:
    observer.receive(worker("heartbeat", hostname=US))

    assert list(observer.members) == [US]


def test_what_happens_is_logged(observer: Observer, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    observer.receive(worker("heartbeat", clock=1))
    wait(observer, clock, 7.0)
    observer.receive(worker("heartbeat", clock=2))
    wait(observer, clock, 10.0)
    observer.receive(worker("heartbeat", clock=3))
    observer.receive(worker("offline", clock=4))

    assert caplog.messages == [
        f"celeriac: {WORKER} joined, pid=19036",
        f"celeriac: {WORKER} suspect, silent for 6.5 s, phi=18.9",
        f"celeriac: {WORKER} alive again",
        f"celeriac: {WORKER} suspect, silent for 6.5 s, phi=18.8",
        f"celeriac: {WORKER} lost: silent for 9.5 s",
        f"celeriac: {WORKER} joined, pid=19036",
        f"celeriac: {WORKER} left",
    ]


def test_an_election_is_a_sign_of_life_and_no_more(
    observer: Observer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    observer.receive(worker("heartbeat"))
    caplog.clear()

    observer.receive(worker("elect", id="e1", topic="task", action=None, cver=1))

    assert caplog.messages == []


def test_while_the_worker_has_no_link_nobody_is_lost(observer: Observer, clock: Clock) -> None:
    observer.receive(worker("heartbeat"))

    observer.disconnected()
    wait(observer, clock, 100.0)
    observer.reconnected()
    wait(observer, clock, 3.0)

    assert observer.members[WORKER]["state"] == "ALIVE"


@pytest.mark.parametrize("junk", [None, 7, "text", b"bytes", {}, [], [None], {"type": 7}, object()])
def test_junk_is_counted_and_harms_nothing(observer: Observer, junk: object) -> None:
    observer.receive(junk)

    assert observer.faults == 0
    assert list(observer.members) == [US]


def test_a_fault_of_ours_is_told_once_in_a_while_and_never_raised(
    observer: Observer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with patch.object(observer.membership, "tick", side_effect=ZeroDivisionError("planted")):
        wait(observer, clock, 59.0)

    assert observer.faults == 118
    assert caplog.messages == ["celeriac: the failure detector raised an exception, count=1"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


# -- beside Celery's gossip


def test_the_gossip_takes_its_messages_as_before(observer: Observer) -> None:
    on_message = _overheard(lambda prepare, message: [prepare, message], observer)
    message = Heard(worker("heartbeat"))

    returned = on_message("prepare", message)

    assert returned == ["prepare", message]
    assert WORKER in observer.members


def test_what_is_heard_is_not_changed(observer: Observer) -> None:
    payload = worker("heartbeat")

    _overheard(lambda *_: None, observer)(None, Heard(payload))

    assert payload == worker("heartbeat")


def test_a_message_that_cannot_be_decoded_is_left_to_the_gossip(observer: Observer) -> None:
    on_message = _overheard(lambda *_: "told", observer)

    returned = on_message(None, Heard(ValueError("no JSON")))

    assert returned == "told"


def test_a_fault_of_ours_keeps_nothing_from_the_gossip(observer: Observer) -> None:
    on_message = _overheard(lambda *_: "done", observer)

    with patch.object(observer.membership, "receive", side_effect=ZeroDivisionError("planted")):
        returned = on_message(None, Heard(worker("heartbeat")))

    assert (returned, observer.faults) == ("done", 1)


# -- in an app


@pytest.fixture
def app() -> Celery:
    return Celery("shop", broker="memory://", set_as_current=False)


def test_to_install_twice_is_to_install_once(app: Celery) -> None:
    install(app)
    install(app)

    assert app.steps["consumer"] == {MembersStep}
    assert COMMAND in Panel.data
    assert Panel.meta[COMMAND].type == "inspect"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        # Letter by letter it would be a list, and a star among them.
        ({"election_actions": "shop.*"}, "give a list of strings; in a variable: a,b"),
        ({"election_actions": ["shop.*"], "election_urll": "redis://web1"}, "election_urll"),
        ({"election_actions": ["shop.*"], "election_url": "web1"}, "give a URL"),
        ({"election_actions": ["shop.*"], "election_min_level": "L9"}, "choose L0, L1, L2, L3"),
        ({"election_url": "redis://web1"}, "have no effect without election_actions"),
    ],
)
def test_a_setting_that_is_wrong_is_told_at_once(app: Celery, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=told):
        install(app, **settings)

    assert app.steps["consumer"] == set()


class Consumer:
    """What the step uses of a consumer of Celery's."""

    def __init__(self, *, has_gossip: bool) -> None:
        self.hostname = US
        self.pid = 1
        self.gossip = Gossip(enabled=has_gossip)
        self.celeriac: Any = None


class Gossip:
    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled
        self.heartbeat_interval = None

    def on_message(self, _prepare: object, _message: object) -> str:
        return "taken"


def test_the_step_listens_to_what_the_gossip_hears() -> None:
    consumer = Consumer(has_gossip=True)

    MembersStep(consumer)
    returned = consumer.gossip.on_message(None, Heard(worker("heartbeat")))

    assert returned == "taken"
    assert WORKER in consumer.celeriac.members


def test_without_gossip_there_is_no_step_and_the_command_says_so() -> None:
    consumer = Consumer(has_gossip=False)

    step = MembersStep(consumer)

    assert not step.include_if(consumer)
    state = type("State", (), {"consumer": consumer})
    assert _tell_members(state) == {"error": "the worker runs without gossip, and cannot see other workers"}


def test_without_celery_it_says_what_to_install() -> None:
    name = "celeriac.integrations.celery"
    kept = sys.modules.pop(name)

    try:
        with (
            patch.dict(sys.modules, {"celery": None}),
            pytest.raises(ImproperlyConfigured, match=r"pip install 'celery>=5\.6'"),
        ):
            import_module(name)
    finally:
        sys.modules[name] = kept


def test_celeriac_alone_does_not_load_celery() -> None:
    program = "import celeriac, sys; print('celery' in sys.modules, 'celeriac.integrations' in sys.modules)"

    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own

    assert done.stdout.split() == ["False", "False"]
