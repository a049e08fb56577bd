"""Schedulers that share a schedule: one leads and sends, each tick once, and another goes on after it."""

import logging
from collections.abc import Callable, Iterator
from itertools import pairwise
from threading import Thread
from typing import Any

import pytest

from celeriac.app import Celeriac
from celeriac.errors import AccessRefused, ConnectionLost
from celeriac.node.beat import Scheduler
from celeriac.node.schedule_entry import read_schedule
from celeriac.node.term import lease_key
from celeriac.node.tick_sender import TickSender
from celeriac.programs.process import wait_until
from celeriac.transport.memory import MemoryBroker, MemoryConnection

#: A whole multiple of the interval.
BEGIN = 1_790_000_000.0
INTERVAL = 10.0
#: So near to the next tick that schedulers look often.
NEARLY = INTERVAL - 0.02
PATIENCE = 120.0
#: A busy machine may keep a thread from renewing for more than a second.
TTL = 3.0


class Scene:
    """An arbiter, a broker of tasks, a clock, and schedulers with an entry of ten seconds."""

    def __init__(self) -> None:
        self.arbiter = MemoryBroker("arbiter")
        self.broker = MemoryBroker("tasks")
        self.now = BEGIN + NEARLY
        self.connect: Callable[[], MemoryConnection] = self.broker.connect
        self._running: list[tuple[Scheduler, Thread, Celeriac]] = []

    def add(self, **entry: Any) -> Scheduler:
        """Start one more scheduler."""
        schedule = {"report": {"task": "shop.report", "schedule": INTERVAL, **entry}}
        app = Celeriac(
            self.arbiter, environ={}, beat_schedule=schedule, broker_retry_base=0.01, broker_retry_cap=0.02
        )
        scheduler = Scheduler(
            "beat",
            read_schedule(app.conf, now=self.now),
            leadership=lambda: app.leadership("beat", ttl=TTL),
            leader=lambda: self.leader,
            sender=TickSender(lambda: self.connect(), settings=app.conf),  # noqa: PLW0108 (tests replace it)
            settings=app.conf,
            tasks=app.tasks,
            origin="here",
            wall_time=lambda: self.now,
        )
        thread = Thread(target=scheduler.run)
        self._running.append((scheduler, thread, app))
        thread.start()
        return scheduler

    def end(self, scheduler: Scheduler) -> None:
        """Stop a scheduler, and wait until it has ended."""
        ended = next(each for each in self._running if each[0] is scheduler)
        self._running.remove(ended)
        scheduler.stop()
        ended[1].join()
        ended[2].close()

    def end_all(self) -> None:
        """Stop all that still run."""
        self.arbiter.start()
        for scheduler, _, _ in list(self._running):
            self.end(scheduler)

    @property
    def leader(self) -> str:
        record = self._record()
        return record.owner if record is not None else ""

    @property
    def note(self) -> bytes:
        record = self._record()
        return record.note if record is not None else b""

    @property
    def token(self) -> int:
        record = self._record()
        return record.token if record is not None else 0

    @property
    def ticks(self) -> list[float]:
        """The ticks that were sent, in their order."""
        return [message.headers["beat_tick"] - BEGIN for _, message in self.broker.published]  # type: ignore[operator]

    @property
    def tokens(self) -> list[Any]:
        return [message.headers["fencing"] for _, message in self.broker.published]

    @property
    def ids(self) -> list[Any]:
        return [message.headers["id"] for _, message in self.broker.published]

    def await_leader(self) -> None:
        """Wait until somebody leads, and has noted that the entry is there."""
        assert wait_until(lambda: b"report" in self.note, patience=PATIENCE)

    def await_ticks(self, *ticks: float) -> None:
        """Wait until these were sent, and no others."""
        assert wait_until(lambda: self.ticks == list(ticks), patience=PATIENCE), self.ticks

    def _record(self) -> Any:
        return Celeriac(self.arbiter, environ={}).arbiter.read(lease_key("beat"))


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.end_all()


# -- one of several


def test_of_several_one_sends_each_tick_with_its_token(scene: Scene) -> None:
    schedulers = [scene.add() for _ in range(3)]
    scene.await_leader()

    for number in (1, 2, 3):
        scene.now = BEGIN + number * INTERVAL + NEARLY
        scene.await_ticks(*(each * INTERVAL for each in range(1, number + 1)))

    assert scene.tokens == [scene.token] * 3
    assert len(set(scene.ids)) == 3
    assert sorted(scheduler.counts["sent"] for scheduler in schedulers) == [0, 0, 3]


def test_an_entry_that_is_new_is_not_sent_before_its_next_tick(scene: Scene) -> None:
    scene.now = BEGIN + INTERVAL
    scene.add()
    scene.await_leader()

    scene.now = BEGIN + 2 * INTERVAL

    scene.await_ticks(20.0)


def test_who_follows_tells_who_leads(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.add()
    scene.await_leader()

    with caplog.at_level(logging.INFO):
        scene.add()

        owner = scene.leader
        assert wait_until(
            lambda: f"beat: {owner} is leader; this process is on standby" in caplog.text, patience=PATIENCE
        )


def test_a_leader_that_is_told_to_stop_lets_another_lead_at_once(scene: Scene) -> None:
    first = scene.add()
    scene.await_leader()

    scene.end(first)

    assert scene.leader == ""


def test_the_next_leader_goes_on_where_the_last_one_ended_with_a_higher_token(scene: Scene) -> None:
    first = scene.add()
    scene.await_leader()
    scene.now = BEGIN + INTERVAL
    scene.await_ticks(10.0)
    scene.end(first)

    scene.now = BEGIN + 4 * INTERVAL + NEARLY
    second = scene.add()

    # Of the three that were missed the latest.
    scene.await_ticks(10.0, 40.0)
    assert second.counts["skipped"] == 2
    assert scene.tokens[0] < scene.tokens[1]


def test_a_tick_that_was_sent_is_not_sent_again_by_the_next_leader(scene: Scene) -> None:
    first = scene.add()
    scene.await_leader()
    scene.now = BEGIN + INTERVAL
    scene.await_ticks(10.0)
    scene.end(first)
    scene.now = BEGIN + NEARLY  # its clock is behind

    scene.add()
    scene.await_leader()
    scene.now = BEGIN + 2 * INTERVAL

    scene.await_ticks(10.0, 20.0)


def test_a_tick_that_was_noted_and_not_sent_is_sent_by_nobody_else(scene: Scene) -> None:
    first = scene.add()
    scene.await_leader()
    scene.broker.stop()
    scene.now = BEGIN + INTERVAL
    assert wait_until(lambda: str(BEGIN + INTERVAL).encode() in scene.note, patience=PATIENCE)
    scene.end(first)
    scene.broker.start()

    scene.add()
    scene.await_leader()
    scene.now = BEGIN + 2 * INTERVAL

    scene.await_ticks(20.0)
    assert first.counts["missed"] == 1


def test_a_clock_that_was_set_back_is_told(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.add()
    scene.await_leader()
    scene.now = BEGIN + INTERVAL
    scene.await_ticks(10.0)

    scene.now = BEGIN - 3600

    assert wait_until(
        lambda: "beat: the last tick of entry 'report' is 3610 seconds ahead of this" in caplog.text,
        patience=PATIENCE,
    )
    assert scene.ticks == [10.0]


def test_a_clock_that_is_set_forward_and_back_sends_the_latest_tick_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = scene.add()
    scene.await_leader()

    scene.now = BEGIN + 3600
    scene.await_ticks(3600.0)
    scene.now = BEGIN + INTERVAL
    assert wait_until(lambda: "ahead of this clock" in caplog.text, patience=PATIENCE)
    scene.now = BEGIN + 3600 + INTERVAL
    scene.await_ticks(3600.0, 3610.0)

    assert scheduler.counts["skipped"] == 359


def test_a_tick_that_has_expired_is_missed(scene: Scene) -> None:
    first = scene.add(options={"expires": 3})
    scene.await_leader()
    scene.end(first)
    scene.now = BEGIN + INTERVAL + 5

    second = scene.add(options={"expires": 3})

    assert wait_until(lambda: second.counts["missed"] == 1, patience=PATIENCE)
    scene.now = BEGIN + 2 * INTERVAL
    scene.await_ticks(20.0)


# -- the arbiter is away


def test_nothing_is_sent_that_could_not_be_noted_and_after_doubt_another_term_begins(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = scene.add()
    scene.await_leader()
    token = scene.token
    scene.arbiter.is_up = False

    scene.now = BEGIN + INTERVAL
    assert wait_until(lambda: "cannot record due ticks" in caplog.text, patience=PATIENCE)
    sent_meanwhile = scene.ticks
    scene.arbiter.is_up = True

    assert sent_meanwhile == []
    assert wait_until(lambda: scene.token > token, patience=PATIENCE)
    # On a busy machine the lease may have ended before the arbiter was back.
    assert wait_until(lambda: scheduler.counts["sent"] + scheduler.counts["missed"] == 1, patience=PATIENCE)
    assert scene.ticks == [10.0] * scheduler.counts["sent"]


def test_a_leader_that_cannot_reach_the_arbiter_for_long_sends_nothing(scene: Scene) -> None:
    scheduler = scene.add()
    scene.await_leader()
    scene.arbiter.is_up = False

    scene.now = BEGIN + INTERVAL

    assert wait_until(lambda: scheduler.counts["missed"] == 1, patience=PATIENCE)
    assert scene.ticks == []
    scene.arbiter.is_up = True
    scene.await_leader()


# -- the broker is away


def test_a_tick_is_sent_when_the_broker_is_back(scene: Scene) -> None:
    scene.add()
    scene.await_leader()
    scene.broker.stop()
    scene.now = BEGIN + INTERVAL
    assert wait_until(lambda: str(BEGIN + INTERVAL).encode() in scene.note, patience=PATIENCE)

    scene.broker.start()

    scene.await_ticks(10.0)


def test_a_tick_that_cannot_be_sent_before_the_next_is_missed(scene: Scene) -> None:
    scheduler = scene.add()
    scene.await_leader()
    scene.broker.stop()
    scene.now = BEGIN + INTERVAL + NEARLY
    assert wait_until(lambda: str(BEGIN + INTERVAL).encode() in scene.note, patience=PATIENCE)

    scene.now = BEGIN + 2 * INTERVAL

    assert wait_until(lambda: scheduler.counts["missed"] == 1, patience=PATIENCE)
    scene.broker.start()
    scene.await_ticks(20.0)


def test_a_tick_that_may_have_been_sent_is_not_sent_again(scene: Scene) -> None:
    class Doubtful(MemoryConnection):
        def unconfirmed(self, timeout: float = 0.0) -> int:  # noqa: ARG002
            raise ConnectionLost("cut")

    scene.connect = lambda: Doubtful(scene.broker)
    scheduler = scene.add()
    scene.await_leader()

    for number in (1, 2):
        scene.now = BEGIN + number * INTERVAL
        assert wait_until(lambda count=number: scheduler.counts["unknown"] == count, patience=PATIENCE)  # type: ignore[misc]

    assert scene.ticks == [10.0, 20.0]


# -- the end


def test_what_keeps_it_from_leading_is_raised() -> None:
    def refuse() -> Any:
        raise AccessRefused("no right to elect")

    app = Celeriac(MemoryBroker(), environ={})
    scheduler = Scheduler(
        "beat",
        {},
        leadership=refuse,
        leader=lambda: "",
        sender=TickSender(app.connection, settings=app.conf),
        settings=app.conf,
        tasks={},
        origin="here",
    )

    with pytest.raises(AccessRefused, match="no right to elect"):
        scheduler.run()


def test_ticks_rise_and_tokens_never_fall_however_often_the_leader_changes(scene: Scene) -> None:
    current = scene.add()
    scene.await_leader()

    for number in range(1, 4):
        scene.now = BEGIN + number * INTERVAL
        assert wait_until(lambda at=scene.now: scene.ticks[-1:] == [at - BEGIN], patience=PATIENCE)  # type: ignore[misc]
        follower = scene.add()
        scene.end(current)
        current = follower

    assert all(one < other for one, other in pairwise(scene.ticks))
    assert all(one < other for one, other in pairwise(scene.tokens))
