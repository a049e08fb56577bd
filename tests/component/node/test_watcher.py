from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event as Flag
from threading import current_thread
from time import time

import pytest

from celeriac.app import Celeriac
from celeriac.core.member import Liveness
from celeriac.core.redaction import Redactor
from celeriac.errors import CallerError
from celeriac.model.events import Event, Extra, Other, Sent
from celeriac.node.watcher import MAX_LISTENERS, MAX_LISTENERS_OF_OWNER, Listener, Watcher
from celeriac.programs.process import wait_until
from celeriac.store.event_log import EventLog
from celeriac.transport.memory import MemoryBroker
from tests.event_logs import HOUR_AT, heartbeat, received, seal, succeeded

PATIENCE = 20.0


@pytest.fixture
def app() -> Celeriac:
    return Celeriac(MemoryBroker(), hostname="watcher@lab", environ={})


def take(listener: Listener, events: list[Event]) -> list[Event]:
    """Add what came, of which nothing may have been lost."""
    came, overlooked = listener.taken()
    assert overlooked == 0
    events += came
    return events


def test_events_that_come_are_in_the_state_counted_and_given_to_who_listens(app: Celeriac) -> None:
    with Watcher(app.events, hostname=app.hostname, redactor=Redactor()) as watcher:
        assert wait_until(lambda: watcher.is_receiving, patience=PATIENCE)
        dispatcher = app.events.Dispatcher(hostname="w1@lab")
        with watcher.listening() as listener:
            dispatcher.send("worker-online", freq=2.0)
            dispatcher.send("task-received", uuid="a", name="shop.pay")
            events: list[Event] = []
            assert wait_until(lambda: len(take(listener, events)) == 2, patience=PATIENCE)

    assert [event.type for event in events] == ["worker-online", "task-received"]
    assert watcher.scene.tally.by_state == {"RECEIVED": 1}
    assert watcher.presences()["w1@lab"].liveness is Liveness.ALIVE
    assert not watcher.is_receiving
    watcher.check()


def test_the_policy_of_a_task_counts_though_it_was_named_just_before(app: Celeriac) -> None:
    watcher = Watcher(app.events, hostname=app.hostname, redactor=Redactor({"bank.*": "drop"}))
    told = "password='abc'"
    came: list[Event] = [
        received("a", name="bank.pay", args=told),
        succeeded("a", 1.0, result="fine"),
        received("b", name="shop.pay", args=told),
        succeeded("b", 1.0, result="fine"),
    ]

    with watcher.listening() as listener:
        assert watcher.receiver.on_events is not None
        watcher.receiver.on_events(came)
        heard, _ = listener.taken()

    tasks = watcher.state.tasks
    assert (tasks["a"].args, tasks["a"].result) == (None, None)
    assert (tasks["b"].args, tasks["b"].result) == ("password='**'", "fine")
    assert [event.get("args", event.get("result")) for event in heard] == [
        None,
        None,
        "password='**'",
        "fine",
    ]


def test_what_was_recorded_before_it_began_is_known_too(app: Celeriac, tmp_path: Path) -> None:
    seal(tmp_path, [received("old"), received("older", -7200.0)], recorder="rec-1")

    with Watcher(
        app.events,
        hostname=app.hostname,
        redactor=Redactor(),
        log=EventLog(tmp_path),
        settle=0.0,
        wall=lambda: HOUR_AT + 60,
    ) as watcher:
        assert wait_until(lambda: watcher.has_recalled, patience=PATIENCE)

    assert set(watcher.state.tasks) == {"old"}
    assert watcher.scene.tally.by_state == {"RECEIVED": 1}
    # A series that began anew with what was in it before would be counted twice.
    assert not watcher.scene.series.events
    # What the log says nothing of is not known, though it was less than an hour ago.
    assert watcher.scene.watched(HOUR_AT - 1800, HOUR_AT - 1500) == 0
    assert watcher.scene.watched(HOUR_AT + 60, HOUR_AT + 90) == 30


def test_elections_that_were_recorded_are_known_after_a_restart_and_those_that_come_too(
    app: Celeriac, tmp_path: Path
) -> None:
    elect = Other(
        group="worker", subject="elect", hostname="w1@lab", pid=7, clock=5, timestamp=HOUR_AT,
        local_received=HOUR_AT, extra=Extra({"id": "e1"}),
    )  # fmt: skip
    seal(tmp_path, [elect, received("old")], recorder="rec-1")

    with Watcher(
        app.events,
        hostname=app.hostname,
        redactor=Redactor(),
        log=EventLog(tmp_path),
        wall=lambda: HOUR_AT + 60,
    ) as watcher:
        assert wait_until(lambda: watcher.has_recalled and watcher.is_receiving, patience=PATIENCE)
        app.events.Dispatcher(hostname="w1@lab").send("cluster-elected", eid="e1", winner="w1@lab")
        assert wait_until(lambda: len(watcher.scene.elections) == 2, patience=PATIENCE)

    assert [event.type for event in watcher.scene.elections] == ["worker-elect", "cluster-elected"]


class Recorded:
    """A log that others write while it is about to be read."""

    def __init__(self, *events: Event) -> None:
        self.events = list(events)
        self.reads = 0
        self.damage: list[str] = []

    def recorders(self) -> list[str]:
        return ["rec-1"]

    def read(self, *_: object, **__: object) -> Iterator[Event]:
        self.reads += 1
        return iter(list(self.events))


class Waits:
    """What the thread that recalls waits for, and what happens meanwhile."""

    def __init__(self, watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> None:
        self.does_wait = Flag()
        self.meanwhile: Callable[[], object] = lambda: None
        self._wait = watcher._is_ending.wait
        monkeypatch.setattr(watcher._is_ending, "wait", self._take)

    def _take(self, seconds: float) -> bool:
        if current_thread().name == "watch-recall":
            self.does_wait.set()
            if seconds == SETTLE:
                self.meanwhile()
        return self._wait(seconds)


SETTLE = 0.001


@pytest.fixture
def log() -> Recorded:
    return Recorded(received("old"))


@pytest.fixture
def watcher(app: Celeriac, log: Recorded) -> Watcher:
    return Watcher(
        app.events,
        hostname=app.hostname,
        redactor=Redactor(),
        log=log,
        settle=SETTLE,
        wall=lambda: HOUR_AT + 60,
    )


def test_what_is_recorded_before_events_come_to_us_is_known(
    watcher: Watcher, log: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits(watcher, monkeypatch)
    capture = watcher.receiver.capture

    def capture_late() -> None:
        # Whoever does not wait for us has read the log by then.
        assert wait_until(lambda: waits.does_wait.is_set() or log.reads > 0, patience=PATIENCE)
        log.events.append(received("between"))
        capture()

    monkeypatch.setattr(watcher.receiver, "capture", capture_late)
    with watcher:
        assert wait_until(lambda: watcher.has_recalled, patience=PATIENCE)

    assert set(watcher.state.tasks) == {"old", "between"}


def test_what_the_recorder_has_and_has_not_written_when_events_come_to_us_is_known(
    watcher: Watcher, log: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits(watcher, monkeypatch)
    waits.meanwhile = lambda: log.events.append(received("grouped"))

    with watcher:
        assert wait_until(lambda: watcher.has_recalled, patience=PATIENCE)

    assert set(watcher.state.tasks) == {"old", "grouped"}


def test_what_came_to_us_and_is_in_the_log_counts_once(
    watcher: Watcher, log: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits(watcher, monkeypatch)
    # The clock of a task that was sent is put in by whoever receives it.
    came, written = (
        [
            heartbeat(),
            Sent(uuid="new", hostname="c@lab", timestamp=HOUR_AT, clock=clock, local_received=HOUR_AT),
        ]
        for clock in (7, 9)
    )

    def come() -> None:
        watcher._take(came)
        log.events += written

    waits.meanwhile = come
    with watcher:
        assert wait_until(lambda: watcher.has_recalled, patience=PATIENCE)

    assert watcher.state.event_count == 3
    assert watcher.scene.pulse.window(HOUR_AT, 5.0).events == {"received": 1, "sent": 1}
    assert not watcher._fresh


def test_one_that_never_receives_reads_nothing_and_ends() -> None:
    app = Celeriac("redis://127.0.0.1:1/0", environ={}, hostname="watcher@lab")
    log = Recorded(received("old"))
    with Watcher(app.events, hostname=app.hostname, redactor=Redactor(), log=log) as watcher:
        assert wait_until(lambda: watcher.has_recalled, patience=PATIENCE)

    assert log.reads == 0


def test_a_worker_that_leaves_is_told_as_such(app: Celeriac) -> None:
    begun_at = time()
    with Watcher(app.events, hostname=app.hostname, redactor=Redactor()) as watcher:
        assert wait_until(lambda: watcher.is_receiving, patience=PATIENCE)
        dispatcher = app.events.Dispatcher(hostname="w1@lab")
        dispatcher.send("worker-online", freq=2.0)
        dispatcher.send("worker-offline", freq=2.0)
        assert wait_until(
            lambda: watcher.presences().get("w1@lab", (None,))[0] is Liveness.LEFT, patience=PATIENCE
        )
        presence = watcher.presences()["w1@lab"]

    assert presence.reason == "shut down cleanly"
    assert presence.since_at >= begun_at - 1


def test_streams_of_events_are_bounded_for_each_owner_and_in_all(app: Celeriac) -> None:
    watcher = Watcher(app.events, hostname=app.hostname, redactor=Redactor())
    owners = [f"owner-{number // MAX_LISTENERS_OF_OWNER}" for number in range(MAX_LISTENERS)]
    with ExitStack() as stack:
        for owner in owners[:MAX_LISTENERS_OF_OWNER]:
            stack.enter_context(watcher.listening(owner))
        of_owner, of_other = watcher.refusal(owners[0]), watcher.refusal(owners[-1])
        with pytest.raises(CallerError, match="16 event streams are open for owner-0: close one first"):
            stack.enter_context(watcher.listening(owners[0]))
        for owner in owners[MAX_LISTENERS_OF_OWNER:]:
            stack.enter_context(watcher.listening(owner))
        in_all = watcher.refusal("another")

    assert "for owner-0" in of_owner
    assert of_other == ""
    assert in_all == "64 event streams are open: close one first"
    assert watcher.refusal(owners[0]) == ""


def test_what_ends_the_reception_is_raised_where_somebody_sees_it() -> None:
    app = Celeriac("redis://127.0.0.1:1/0", environ={}, hostname="watcher@lab")

    with (
        Watcher(app.events, hostname=app.hostname, redactor=Redactor()) as watcher,
        pytest.raises(ConnectionError),
    ):
        watcher.wait()


def test_while_there_is_no_link_nobody_watches_and_then_a_gap_says_so() -> None:
    broker = MemoryBroker()
    app = Celeriac(broker, hostname="watcher@lab", environ={})
    with Watcher(app.events, hostname=app.hostname, redactor=Redactor()) as watcher:
        assert wait_until(lambda: watcher.is_receiving, patience=PATIENCE)
        linked = watcher.scene.deaf_since()

        broker.stop()

        assert linked is None
        assert wait_until(lambda: watcher.scene.deaf_since() is not None, patience=PATIENCE)
        until = time() + 3600.0
        assert watcher.scene.watched(until - 60.0, until) == 0.0
        broker.start()
        assert wait_until(lambda: len(watcher.state.gaps) == 1, patience=PATIENCE)
        assert watcher.scene.deaf_since() is None
        assert watcher.scene.watched(until - 60.0, until) == 60.0
