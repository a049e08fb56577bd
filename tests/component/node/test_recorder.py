"""A recorder on a broker in memory: what it takes, what it tells, and how it ends."""

import zlib
from collections.abc import Callable, Sequence
from threading import Event as Flag
from threading import Thread
from typing import Any

import pytest

from celeriac.app import Celeriac
from celeriac.core.redaction import Redactor
from celeriac.errors import AccessRefused, DiskError
from celeriac.model.events import Event, Gap, TaskEvent
from celeriac.model.message import Exchange, Message
from celeriac.node.reception import Reception
from celeriac.node.recorder import Progress, Recorder
from celeriac.node.rehearsal import Rehearsal
from celeriac.node.scribe import Opened
from celeriac.programs.process import wait_until
from celeriac.transport.memory import MemoryBroker
from celeriac.wire.event import Gate
from tests.builders import body, task

PATIENCE = 120.0
EVENTS = Exchange("celeryev", "topic", is_durable=True)


class Found:
    """What a disk holds that was opened."""

    recorder = "one-123456"
    last_received_at: float | None = None
    damage: tuple[str, ...] = ()


class Disk:
    """A disk that keeps events in memory, and fails or waits when told to."""

    def __init__(self) -> None:
        self.found = Found()
        self.events: list[Event] = []
        self.recorded = self.sealed = self.pending_seals = 0
        self.open_trouble: DiskError | None = None
        self.trouble: BaseException | None = None
        self.seal_trouble: DiskError | None = None
        self.lost_since: float | None = None
        self.may_open, self.may_write = Flag(), Flag()
        self.may_open.set()
        self.may_write.set()
        self.is_closed = False
        self._added: list[Event] = []

    def open(self) -> Opened:
        self.may_open.wait(PATIENCE)
        if self.open_trouble is not None:
            raise self.open_trouble
        return self.found

    def append(self, events: Sequence[Event]) -> None:
        self.may_write.wait(PATIENCE)
        if self.trouble is not None:
            raise self.trouble
        self._added += events

    def sync(self) -> None:
        self.events += self._added
        self._added = []
        self.recorded = len(self.events)

    def take_lost(self) -> float | None:
        lost_since, self.lost_since = self.lost_since, None
        return lost_since

    def tick(self) -> None:
        if self.seal_trouble is not None:
            self.pending_seals = 1
            raise self.seal_trouble
        self.pending_seals = 0

    def close(self) -> None:
        self.is_closed = True


class Runs:
    """A recorder in a thread of its own."""

    def __init__(
        self,
        broker: MemoryBroker,
        disk: Disk,
        *,
        on_turn: Callable[[Progress], object] | None = None,
        **settings: Any,
    ) -> None:
        self.broker = broker
        self.disk = disk
        self.told: list[Progress] = []
        self.error: BaseException | None = None
        self.app = Celeriac(broker, environ={}, broker_retry_cap=0.2, **settings)
        self.recorder = Recorder(
            self.app.connection(),
            disk,
            settings=self.app.conf,
            clock=self.app.clock,
            name="one",
            on_turn=on_turn or self.told.append,
        )
        self._thread = Thread(target=self._run, daemon=True)

    def start(self) -> "Runs":
        self._thread.start()
        assert self.broker.wait_for_subscriber()
        return self

    def publish(self, *uuids: str) -> None:
        with self.app.connection() as link:
            for uuid in uuids:
                link.publish(EVENTS, body(task("started", uuid)), routing_key="task.started")

    def wait_for(self, recorded: int) -> None:
        assert wait_until(lambda: self.recorder.progress.recorded >= recorded, patience=PATIENCE)

    def wait_until_state(self, state: str) -> Progress:
        assert wait_until(lambda: self.recorder.progress.state == state, patience=PATIENCE)
        return self.recorder.progress

    def stop(self) -> None:
        self.recorder.stop()
        self.join()

    def join(self) -> None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    @property
    def uuids(self) -> list[str]:
        return [event.uuid for event in self.disk.events if isinstance(event, TaskEvent)]

    @property
    def gaps(self) -> list[Gap]:
        return [event for event in self.disk.events if isinstance(event, Gap)]

    def _run(self) -> None:
        try:
            self.recorder.run()
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.error = error


def fail(_: Progress) -> None:
    raise OSError("no space left")


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


def test_what_comes_is_recorded_in_order_and_the_log_is_closed(broker: MemoryBroker) -> None:
    runs = Runs(broker, Disk()).start()
    runs.publish("a", "b", "c")
    runs.wait_for(3)

    runs.stop()

    assert (runs.uuids, runs.error, runs.disk.is_closed) == (["a", "b", "c"], None, True)
    assert runs.recorder.progress.state == "stopped"
    assert runs.told[-1].state == "stopped"


def test_a_cut_is_mended_and_recorded_as_a_gap(broker: MemoryBroker) -> None:
    runs = Runs(broker, Disk()).start()
    runs.publish("a")
    runs.wait_for(1)

    broker.stop()
    runs.wait_until_state("link")
    broker.start()
    runs.wait_until_state("recording")
    runs.publish("b")
    runs.wait_for(3)
    runs.stop()

    (gap,) = runs.gaps
    assert runs.uuids == ["a", "b"]
    assert gap.attempts > 0
    assert gap.since <= gap.until
    assert "is cut" in gap.reason


def test_the_time_before_the_start_is_a_gap_if_there_is_a_log(broker: MemoryBroker) -> None:
    disk = Disk()
    disk.found.last_received_at = 1000.0
    runs = Runs(broker, disk).start()

    runs.wait_for(1)
    runs.stop()

    (gap,) = runs.gaps
    assert (gap.since, gap.reason) == (1000.0, "no recorder was running")


def test_events_that_come_while_the_log_is_opened_are_recorded_behind_the_gap_of_the_restart(
    broker: MemoryBroker,
) -> None:
    disk = Disk()
    disk.may_open.clear()
    disk.found.last_received_at = 1000.0
    runs = Runs(broker, disk).start()

    runs.publish("a", "b")
    assert wait_until(lambda: runs.recorder.progress.pending == 2, patience=PATIENCE)
    state = runs.recorder.progress.state
    disk.may_open.set()
    runs.wait_for(3)
    runs.stop()

    gap, first, _ = disk.events
    assert state == "starting"
    assert isinstance(gap, Gap)
    assert (gap.since, gap.reason, runs.uuids) == (1000.0, "no recorder was running", ["a", "b"])
    assert gap.until <= (first.local_received or 0.0)


def test_a_recorder_that_is_stopped_while_the_log_is_opened_records_the_events_that_came(
    broker: MemoryBroker,
) -> None:
    disk = Disk()
    disk.may_open.clear()
    runs = Runs(broker, disk).start()
    runs.publish("a")
    assert wait_until(lambda: runs.recorder.progress.pending == 1, patience=PATIENCE)

    runs.recorder.stop()
    disk.may_open.set()
    runs.join()

    assert (runs.uuids, runs.error, disk.is_closed) == (["a"], None, True)
    assert runs.told[-1].state == "stopped"


def test_events_that_find_no_room_while_the_log_is_opened_are_counted_in_a_gap(broker: MemoryBroker) -> None:
    disk = Disk()
    disk.may_open.clear()
    runs = Runs(broker, disk, log_pending_limit=2).start()

    runs.publish("a", "b", "c")
    assert wait_until(lambda: runs.recorder.progress.dropped == 1, patience=PATIENCE)
    disk.may_open.set()
    runs.wait_for(3)
    runs.stop()

    (gap,) = runs.gaps
    assert runs.uuids == ["a", "b"]
    assert gap.reason.startswith("1 events dropped, because they could not be written")


def test_a_link_that_is_lost_while_the_log_is_opened_is_a_gap_behind_that_of_the_restart(
    broker: MemoryBroker,
) -> None:
    disk = Disk()
    disk.may_open.clear()
    disk.found.last_received_at = 1000.0
    runs = Runs(broker, disk).start()
    runs.publish("a")
    assert wait_until(lambda: runs.recorder.progress.pending == 1, patience=PATIENCE)

    broker.stop()
    runs.wait_until_state("link")
    broker.start()
    runs.wait_until_state("starting")
    disk.may_open.set()
    runs.wait_for(3)
    runs.stop()

    restart, loss = runs.gaps
    assert (restart.since, restart.reason, runs.uuids) == (1000.0, "no recorder was running", ["a"])
    assert restart.until <= loss.since
    assert "is cut" in loss.reason


def test_a_log_that_cannot_be_opened_ends_the_recorder_with_the_reason(broker: MemoryBroker) -> None:
    disk = Disk()
    disk.may_open.clear()
    disk.open_trouble = DiskError("the disk is full")
    runs = Runs(broker, disk).start()

    disk.may_open.set()
    runs.join()

    assert runs.error is disk.open_trouble
    assert runs.told == []


def test_damage_is_told(broker: MemoryBroker, caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    disk.found.damage = ("one file was torn",)

    Runs(broker, disk).start().stop()

    assert "recorder: one file was torn" in caplog.messages


def test_a_disk_that_is_slow_keeps_nobody_from_receiving(broker: MemoryBroker) -> None:
    disk = Disk()
    disk.may_write.clear()
    runs = Runs(broker, disk, log_sync_interval=0.001).start()

    runs.publish(*map(str, range(100)))

    assert wait_until(lambda: runs.recorder.progress.pending == 100, patience=PATIENCE)
    disk.may_write.set()
    runs.stop()
    assert runs.uuids == [str(number) for number in range(100)]


def test_what_could_not_be_recorded_is_told_at_the_end(broker: MemoryBroker) -> None:
    disk = Disk()
    disk.trouble = DiskError("the disk is full")
    runs = Runs(broker, disk).start()
    runs.publish("a", "b")
    runs.wait_until_state("disk")
    assert wait_until(lambda: runs.recorder.progress.pending == 2, patience=PATIENCE)

    runs.stop()

    assert isinstance(runs.error, DiskError)
    assert str(runs.error) == "received but not recorded: 2 events, they are lost: the disk is full"
    assert disk.is_closed


def test_events_that_were_lost_after_they_were_recorded_are_a_gap(
    broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk()
    disk.lost_since = 1_700_000_000.0

    runs = Runs(broker, disk).start()

    runs.publish("t1")
    runs.wait_for(2)
    runs.stop()

    (gap,) = runs.gaps
    assert gap.since == 1_700_000_000.0
    assert "removed or unmounted" in gap.reason
    assert gap.reason in caplog.text


def test_a_segment_that_cannot_be_sealed_is_told_and_keeps_nothing_from_being_recorded(
    broker: MemoryBroker,
) -> None:
    disk = Disk()
    disk.seal_trouble = DiskError("the object store is away")
    runs = Runs(broker, disk).start()
    assert wait_until(lambda: runs.recorder.progress.last_error != "", patience=PATIENCE)

    runs.publish("a")
    runs.wait_for(1)
    during = runs.recorder.progress
    disk.seal_trouble = None

    assert (during.state, during.last_error) == ("recording", "the object store is away")
    assert wait_until(lambda: runs.recorder.progress.last_error == "", patience=PATIENCE)
    runs.stop()


def test_a_fault_of_ours_ends_it_and_is_raised(broker: MemoryBroker) -> None:
    disk = Disk()
    disk.trouble = RuntimeError("on purpose")
    runs = Runs(broker, disk).start()

    runs.publish("a")
    runs.join()

    assert runs.error is disk.trouble
    assert disk.is_closed


def test_a_broker_that_refuses_us_later_ends_it_and_what_came_is_recorded(broker: MemoryBroker) -> None:
    disk = Disk()
    runs = Runs(broker, disk, log_sync_interval=60.0).start()
    runs.publish("a")
    assert wait_until(lambda: runs.recorder.progress.pending == 1, patience=PATIENCE)

    def refuse() -> int:
        raise AccessRefused("no longer")

    broker.join = refuse  # type: ignore[method-assign]
    broker.cut()
    runs.join()

    assert isinstance(runs.error, AccessRefused)
    assert runs.uuids == ["a"]


def test_a_display_that_fails_ends_nothing_and_is_told_once(
    broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    runs = Runs(broker, Disk(), on_turn=fail)
    runs.start()
    runs.publish("a")
    runs.wait_for(1)

    runs.stop()

    assert (runs.uuids, runs.error) == (["a"], None)
    assert caplog.messages.count("recorder: cannot write the recorder status: no space left") == 1


def test_a_message_is_as_long_as_it_was_before_it_was_compressed(broker: MemoryBroker) -> None:
    app = Celeriac(broker, environ={})
    reception = Reception(
        settings=app.conf,
        clock=app.clock,
        hostname="us",
        gate=Gate(),
        state=None,
        routing_key="#",
        node_id=None,
    )
    content = body(task("failed", "t1", traceback="x" * 10_000))
    headers = {"compression": "application/x-gzip"}

    events = reception.read(Message(zlib.compress(content), headers=headers))
    length = reception.body_bytes
    nothing = reception.read(Message(b"no gzip", headers=headers))

    assert ([event["uuid"] for event in events], length) == (["t1"], len(content))
    assert (nothing, reception.body_bytes) == ([], 0)


# -- a rehearsal


def test_a_rehearsal_tells_what_would_be_masked_and_shows_no_secret(broker: MemoryBroker) -> None:
    rehearsal = Rehearsal(Redactor(tasks={"shop.*": "drop"}, names=(), hash_key=b"key"))
    app = Celeriac(broker, environ={})
    events = [
        task("received", "t1", name="bank.pay", kwargs="{'password': 'hunter2'}"),
        task("received", "t2", name="shop.pay", kwargs="{'amount': 1}"),
    ]

    rehearsal.append(app.events.Receiver().gate.decode(body(events)))

    (masked, *policies) = rehearsal.masked()
    assert (masked.field, masked.values) == ("kwargs", 1)
    assert "hunter2" not in masked.example
    assert [each.rule for each in policies] == ["dropped"]
    assert rehearsal.recorded == 2
