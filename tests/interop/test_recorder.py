"""A recorder between real brokers and a real disk."""

import json
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from time import monotonic
from typing import Any

import pytest

from celeriac.app import Celeriac
from celeriac.errors import AccessRefused, DiskError, ImproperlyConfigured
from celeriac.model.events import Event, Gap, TaskEvent
from celeriac.model.message import Exchange
from celeriac.node.record_source import record_queue
from celeriac.node.recorder import Recorder
from celeriac.node.scribe import Writer
from celeriac.programs.process import wait_until
from celeriac.store.event_log import EventLog
from celeriac.store.log_writer import LogWriter
from celeriac.testing.brokers import RabbitServer, RedisServer
from celeriac.transport.base import Connection
from tests.builders import body, task

PATIENCE = 60.0


class Running:
    """A recorder in a thread; what it raises is raised where it is stopped."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="recorder")

    def start(self, state: str = "recording") -> None:
        self._thread.start()
        assert wait_until(
            lambda: self.state in (state, "disk") or not self._thread.is_alive(), patience=PATIENCE
        )

    @property
    def state(self) -> str:
        return self.recorder.progress.state

    def wait_for(self, recorded: int) -> None:
        assert wait_until(lambda: self.recorder.progress.recorded >= recorded, patience=PATIENCE), (
            self.recorder.progress
        )

    def stop(self) -> None:
        self.recorder.stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self.recorder.run()
        except BaseException as error:  # noqa: BLE001 - raised by stop()
            self._error = error


class SlowWriter:
    """What writes a log, but not before it may, and not while there is trouble."""

    def __init__(self, writer: LogWriter) -> None:
        self.may_write = Flag()
        self.may_write.set()
        self.trouble: DiskError | None = None
        self._writer = writer

    def append(self, events: Sequence[Event]) -> None:
        assert self.may_write.wait(PATIENCE)
        if self.trouble is not None:
            raise self.trouble
        self._writer.append(events)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)


class Cluster:
    """An app on a broker with a log, and what is published to it."""

    def __init__(self, url: str, log: Path, **settings: Any) -> None:
        self.app = Celeriac(
            url, environ={}, log_url=str(log), log_recorder="one", broker_retry_cap=0.2, **settings
        )
        self.log = log
        self._link: Connection | None = None

    @contextmanager
    def recording(self, writer: Writer | None = None, **options: Any) -> Iterator[Running]:
        running = Running(self._recorder(writer) if writer else self.app.history.Recorder(**options))
        running.start()
        try:
            yield running
        finally:
            running.stop()

    def publish(self, *uuids: str, batch: bool = False) -> None:
        """Publish events that name their tasks, and return when the broker has them."""
        link = self._opened()
        events = [task("started", uuid) for uuid in uuids]
        for content in [events] if batch else events:
            link.publish(self._exchange(link), body(content), routing_key="task.multi")
        assert link.unconfirmed(PATIENCE) == 0

    def reconnect(self) -> None:
        self.close()

    def recorded(self) -> list[Event]:
        log = EventLog(str(self.log))
        events = list(log.read())
        assert log.damage == []
        return events

    def uuids(self) -> list[str]:
        return [event.uuid for event in self.recorded() if isinstance(event, TaskEvent)]

    def gaps(self) -> list[Gap]:
        return [event for event in self.recorded() if isinstance(event, Gap)]

    def queue_length(self) -> int | None:
        link = self._opened()
        return link.queue_length(record_queue(self.app.conf, "one", link.driver).name)

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link = None

    def _recorder(self, writer: Writer) -> Recorder:
        app = self.app
        return Recorder(app.connection(), writer, settings=app.conf, clock=app.clock, name="one")

    def _opened(self) -> Connection:
        self._link = self._link or self.app.connection()
        return self._link

    def _exchange(self, link: Connection) -> Exchange:
        return record_queue(self.app.conf, "one", link.driver).exchange


Make = Callable[..., Cluster]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """A function that makes a cluster on a broker, by its URL, with a log of its own."""
    with ExitStack() as stack:

        def made(url: str, **settings: Any) -> Cluster:
            cluster = Cluster(url, tmp_path / "log", **settings)
            stack.callback(cluster.close)
            return cluster

        yield made


@pytest.fixture(params=["redis_url", "amqp_url"])
def cluster(request: pytest.FixtureRequest, make: Make) -> Cluster:
    """Run the test on each broker."""
    return make(request.getfixturevalue(request.param))


def names(count: int, prefix: str = "t") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


@contextmanager
def disk_full(log: Path) -> Iterator[None]:
    """Have no file of this process grow, beyond what one of the recorder has by now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    largest = max(path.stat().st_size for path in (log / "spool").rglob("*.wal"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# -- both brokers


def test_what_is_published_is_recorded_in_order_and_sealed_at_the_end(cluster: Cluster) -> None:
    with cluster.recording() as running:
        cluster.publish(*names(500))
        cluster.publish(*names(5000, "b"), batch=True)
        running.wait_for(5500)

    assert cluster.uuids() == [*names(500), *names(5000, "b")]
    assert cluster.gaps() == []
    assert running.recorder.progress.segments == 1
    assert [path for path in (cluster.log / "spool").rglob("*.wal") if path.stat().st_size > 1000] == []


def test_all_that_was_received_is_recorded_when_it_is_told_to_stop(cluster: Cluster) -> None:
    with cluster.recording() as running:
        cluster.publish("first")
        running.wait_for(1)
        cluster.publish(*names(3000))

    recorded = cluster.uuids()
    kept = cluster.queue_length()

    assert recorded == ["first", *names(3000)][: len(recorded)]
    assert running.recorder.progress.recorded == len(recorded)
    # RabbitMQ keeps what we did not take.
    assert kept in (None, 3001 - len(recorded))


def test_a_message_that_nobody_can_read_is_counted_and_harms_nothing(cluster: Cluster) -> None:
    with cluster.recording() as running:
        link = cluster.app.connection()
        exchange = record_queue(cluster.app.conf, "one", link.driver).exchange
        link.publish(exchange, b"no event", routing_key="task.multi")
        link.unconfirmed(PATIENCE)
        link.close()
        cluster.publish("good")
        running.wait_for(1)

    assert (cluster.uuids(), running.recorder.progress.refused) == (["good"], 1)
    assert not cluster.queue_length()


def test_a_second_recorder_of_the_same_name_is_refused(cluster: Cluster) -> None:
    with cluster.recording():
        second = cluster.app.history.Recorder()

        with pytest.raises(ImproperlyConfigured, match="is already running"):
            second.run()


def test_two_recorders_of_two_names_each_record_everything(cluster: Cluster) -> None:
    with cluster.recording() as one, cluster.recording(name="two") as two:
        cluster.publish(*names(100))
        one.wait_for(100)
        two.wait_for(100)

    assert sorted(cluster.uuids()) == sorted(names(100) * 2)


def test_a_recorder_can_be_told_how_many_events_to_record(cluster: Cluster) -> None:
    recorder = cluster.app.history.Recorder()
    runner = Thread(target=recorder.run, kwargs={"limit": 10})
    runner.start()
    assert wait_until(lambda: recorder.progress.state == "recording", patience=PATIENCE)

    cluster.publish(*names(10))
    runner.join(PATIENCE)

    assert not runner.is_alive()
    assert cluster.uuids() == names(10)


def test_a_recorder_can_be_told_how_long_to_record(cluster: Cluster) -> None:
    recorder = cluster.app.history.Recorder()

    recorder.run(timeout=0.1)

    assert recorder.progress.state == "stopped"


# -- what is kept, and what is told


def test_on_rabbitmq_what_happens_while_no_recorder_runs_is_recorded_later_without_a_gap(
    make: Make, amqp_url: str
) -> None:
    cluster = make(amqp_url)
    with cluster.recording() as running:
        cluster.publish("before")
        running.wait_for(1)
    cluster.publish(*names(2000, "while"))

    with cluster.recording() as running:
        running.wait_for(2000)
        cluster.publish("after")
        running.wait_for(2001)

    assert cluster.uuids() == ["before", *names(2000, "while"), "after"]
    assert cluster.gaps() == []
    assert cluster.queue_length() == 0


def test_on_rabbitmq_a_queue_that_is_gone_is_a_gap(make: Make, amqp_url: str) -> None:
    cluster = make(amqp_url)
    with cluster.recording() as running:
        cluster.publish("before")
        running.wait_for(1)
    with cluster.app.connection() as link:
        link.delete_queue("celeriac.record.one")

    with cluster.recording() as running:
        running.wait_for(1)

    (before, gap) = cluster.recorded()
    assert isinstance(gap, Gap)
    assert (gap.since, gap.reason) == (
        before.local_received,
        "no queue stored events for the recorder",
    )


def test_on_rabbitmq_a_queue_that_was_full_is_a_gap(make: Make, amqp_url: str) -> None:
    cluster = make(amqp_url, log_queue_limit=5)
    with cluster.recording() as running:
        cluster.publish("before")
        running.wait_for(1)
    cluster.publish(*names(9))

    with cluster.recording() as running:
        running.wait_for(6)

    assert cluster.uuids() == ["before", *names(9)[4:]]
    assert ["log_queue_limit" in gap.reason for gap in cluster.gaps()] == [True]


def test_on_rabbitmq_a_queue_of_another_kind_is_told_with_what_to_do(make: Make, amqp_url: str) -> None:
    with make(amqp_url).recording():
        pass

    with pytest.raises(AccessRefused, match="log_queue_limit or log_queue_expires was changed"):
        make(amqp_url, log_queue_limit=7).app.history.Recorder().run()


def test_on_redis_the_time_in_which_no_recorder_ran_is_a_gap(make: Make, redis_url: str) -> None:
    cluster = make(redis_url)
    with cluster.recording() as running:
        cluster.publish("before")
        running.wait_for(1)
    cluster.publish("lost")

    with cluster.recording() as running:
        cluster.publish("after")
        running.wait_for(2)

    before, gap, after = cluster.recorded()
    assert isinstance(gap, Gap)
    assert (gap.since, gap.reason) == (before.local_received, "no recorder was running")
    assert cluster.uuids() == ["before", "after"]
    assert gap.until <= (after.local_received or 0.0)


def test_the_first_start_of_a_recorder_is_no_gap(cluster: Cluster) -> None:
    with cluster.recording():
        pass

    assert cluster.recorded() == []


# -- a broker that restarts


def test_on_redis_a_broker_that_restarts_is_a_gap_and_recording_goes_on(
    make: Make, own_redis: RedisServer
) -> None:
    cluster = make(own_redis.url)
    with cluster.recording() as running:
        cluster.publish("before")
        running.wait_for(1)
        own_redis.kill()
        assert wait_until(lambda: running.state == "link", patience=PATIENCE)
        own_redis.start()
        running.wait_for(2)
        cluster.reconnect()
        cluster.publish("after")
        running.wait_for(3)

    assert cluster.uuids() == ["before", "after"]
    assert len(cluster.gaps()) == 1


def test_on_rabbitmq_a_broker_that_restarts_is_a_gap_for_it_keeps_no_events(
    make: Make, hurt_rabbit: RabbitServer
) -> None:
    cluster = make(hurt_rabbit.url)
    with cluster.recording() as running:
        cluster.publish("before")
        running.wait_for(1)
        cluster.reconnect()
        hurt_rabbit.kill()
        assert wait_until(lambda: running.state == "link", patience=PATIENCE)
        hurt_rabbit.start()
        running.wait_for(2)
        cluster.publish("after")
        running.wait_for(3)

    (gap,) = cluster.gaps()
    assert "the broker restarted and does not persist events, or a recorder" in gap.reason
    assert cluster.uuids() == ["before", "after"]


# -- a disk that fails


def test_on_rabbitmq_nothing_is_taken_or_lost_while_the_disk_is_full(make: Make, amqp_url: str) -> None:
    cluster = make(amqp_url, log_pending_limit=50)
    with cluster.recording() as running:
        cluster.publish("first")
        running.wait_for(1)
        with disk_full(cluster.log):
            cluster.publish(*names(1000))
            assert wait_until(lambda: running.state == "disk", patience=PATIENCE)
            assert wait_until(lambda: (cluster.queue_length() or 0) > 0, patience=PATIENCE)
            stalled = running.recorder.progress
        running.wait_for(1001)

    assert stalled.recorded == 1
    assert "raise the file size limit" in stalled.last_error
    assert cluster.uuids() == ["first", *names(1000)]
    assert (running.recorder.progress.dropped, cluster.gaps(), cluster.queue_length()) == (0, [], 0)


def test_on_redis_what_finds_no_room_while_the_disk_is_full_is_counted_exactly(
    make: Make, redis_url: str
) -> None:
    cluster = make(redis_url, log_pending_limit=50)
    with cluster.recording() as running:
        cluster.publish("first")
        running.wait_for(1)
        with disk_full(cluster.log):
            cluster.publish(*names(200))
            assert wait_until(lambda: running.recorder.progress.dropped == 150, patience=PATIENCE)
            stalled = running.state
        running.wait_for(52)
        cluster.publish("last")
        running.wait_for(53)

    assert stalled == "dropping"
    assert cluster.uuids() == ["first", *names(50), "last"]
    (gap,) = cluster.gaps()
    assert gap.reason.startswith("150 events dropped, because they could not be written")


def test_on_rabbitmq_what_it_drops_while_the_disk_is_full_is_a_gap(make: Make, amqp_url: str) -> None:
    cluster = make(amqp_url, log_queue_limit=20)
    with cluster.recording() as running:
        cluster.publish("first")
        running.wait_for(1)
        with disk_full(cluster.log):
            cluster.publish("held")
            assert wait_until(lambda: running.state == "disk", patience=PATIENCE)
            cluster.publish(*names(100))
            assert wait_until(lambda: cluster.queue_length() == 20, patience=PATIENCE)
        running.wait_for(23)

    _, held, *_ = cluster.recorded()
    assert cluster.uuids() == ["first", "held", *names(100)[80:]]
    (gap,) = cluster.gaps()
    assert "log_queue_limit" in gap.reason
    assert gap.since <= (held.local_received or 0.0) <= gap.until


def test_on_rabbitmq_what_it_drops_while_the_recorder_is_slow_is_a_gap(make: Make, amqp_url: str) -> None:
    cluster = make(amqp_url, log_queue_limit=20, log_pending_limit=5000)
    writer = SlowWriter(cluster.app.history.writer())
    with cluster.recording(writer) as running:
        cluster.publish("first")
        running.wait_for(1)
        writer.may_write.clear()
        # More than may be on their way to it.
        cluster.publish(*names(2100))
        assert wait_until(lambda: cluster.queue_length() == 20, patience=PATIENCE)
        assert wait_until(lambda: running.recorder.progress.gaps > 0, patience=PATIENCE)
        writer.may_write.set()
        assert wait_until(lambda: "t2099" in cluster.uuids(), patience=PATIENCE)

    assert len(cluster.uuids()) < 2101
    assert "log_queue_limit" in cluster.gaps()[0].reason


def test_on_rabbitmq_a_gap_that_could_not_be_recorded_is_told_by_the_next_recorder(
    make: Make, amqp_url: str
) -> None:
    cluster = make(amqp_url)
    with cluster.recording() as running:
        cluster.publish("before")
        running.wait_for(1)
    with cluster.app.connection() as link:
        link.delete_queue("celeriac.record.one")
    writer = SlowWriter(cluster.app.history.writer())
    writer.trouble = DiskError("the disk is full")
    with pytest.raises(DiskError, match="gaps are reported again"), cluster.recording(writer) as running:
        assert wait_until(lambda: running.state == "disk", patience=PATIENCE)

    with cluster.recording() as running:
        cluster.publish("after")
        running.wait_for(2)
    with cluster.recording():
        pass

    before, gap, _ = cluster.recorded()
    assert isinstance(gap, Gap)
    assert gap.since == before.local_received
    assert cluster.uuids() == ["before", "after"]


def test_on_rabbitmq_a_recorder_that_is_paused_does_not_let_its_queue_expire(
    make: Make, amqp_url: str
) -> None:
    cluster = make(amqp_url, log_queue_expires=4.0)
    with cluster.recording() as running:
        cluster.publish("first")
        running.wait_for(1)
        with disk_full(cluster.log):
            cluster.publish("held")
            assert wait_until(lambda: running.state == "disk", patience=PATIENCE)
            cluster.publish(*names(10))
            over_at = monotonic() + 5.0
            assert wait_until(lambda: monotonic() > over_at, patience=PATIENCE)
        running.wait_for(12)

    assert cluster.uuids() == ["first", "held", *names(10)]
    assert cluster.gaps() == []


# -- two recorders of one name


def test_on_rabbitmq_a_second_recorder_of_one_name_with_another_log_is_refused(
    make: Make, amqp_url: str, tmp_path: Path
) -> None:
    cluster = make(amqp_url)
    # It waits no longer than for its own last link, which would be gone after two beats.
    second = make(amqp_url, broker_heartbeat=1).app.history.Recorder(tmp_path / "another")
    with cluster.recording() as running:
        with pytest.raises(ImproperlyConfigured, match=r"another recorder named 'one' .* with --name"):
            second.run()
        cluster.publish(*names(50))
        running.wait_for(50)

    assert cluster.uuids() == names(50)
    assert cluster.gaps() == []


def test_on_rabbitmq_a_recorder_waits_until_the_broker_has_noticed_that_the_last_one_is_gone(
    make: Make, amqp_url: str, tmp_path: Path
) -> None:
    cluster = make(amqp_url)
    with ExitStack() as stack:
        with cluster.recording():
            later = Running(cluster.app.history.Recorder(tmp_path / "another"))
            stack.callback(later.stop)
            later.start(state="link")
            assert wait_until(lambda: "--name" in later.recorder.progress.last_error, patience=PATIENCE)

        assert wait_until(lambda: later.state == "recording", patience=PATIENCE)
        assert later.recorder.progress.last_error == ""


# -- what the log says


def test_secrets_never_reach_the_disk(cluster: Cluster) -> None:
    with cluster.recording() as running:
        link = cluster.app.connection()
        exchange = record_queue(cluster.app.conf, "one", link.driver).exchange
        secret = json.dumps(
            task("received", "t1", name="shop.pay", kwargs="{'password': 'hunter2'}")
        ).encode()
        link.publish(exchange, secret, routing_key="task.received")
        link.unconfirmed(PATIENCE)
        link.close()
        running.wait_for(1)

    found = [path for path in cluster.log.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    assert found == []
    assert cluster.uuids() == ["t1"]
