"""Wall clocks that are set forward and back under workers, recorders and leaders: nothing is doubled or lost.

Periodic tasks are in ``tests/unit/core/test_beat.py`` and ``tests/component/node/test_beat.py``.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import pytest

from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from tests.clocks import SkewedClock, SkewedWorker
from tests.contenders import Contender
from tests.fleet import OUR_APP, PATIENCE, come_true, running
from tests.interop.conftest import BROKERS
from tests.live import IS_LONG
from tests.recorders import Publisher, RecorderProcess, read_lawful
from tests.stage import Stage, lines
from tests.watcher import Watcher

HOUR = 3600.0
#: By how much a clock is wrong, one after the other; the last is none.
JUMPS = [*islice(cycle([HOUR, -2 * HOUR, 30.0, -30.0, 400 * 24 * HOUR, -HOUR]), 60 if IS_LONG else 5), 0.0]

#: Entries in streams of RabbitMQ have timestamps of wall clocks. A leader whose clock is set further ahead
#: may step down at its next renewal: ``celeriac.core.decision_log`` says why.
STREAM_CLOCK_ERROR = 6 * HOUR


@pytest.fixture
def clock(tmp_path: Path) -> SkewedClock:
    return SkewedClock(tmp_path / "clock")


@pytest.fixture(params=BROKERS)
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("redis_url" if request.param == "redis" else "amqp_url"))


# -- a worker


def skewed(stage: Stage, clock: SkewedClock, hostname: str) -> SkewedWorker:
    """Return a worker with a clock of its own, which listens to the queue of all."""
    worker = SkewedWorker(
        OUR_APP,
        url=stage.url,
        backend=stage.backend,
        hostname=hostname,
        arguments=("-Q", "celery"),
        concurrency=2,
        # It takes no more tasks than it runs.
        environment={"CELERIAC_WORKER_PREFETCH_MULTIPLIER": "1"},
    )
    worker.clock = clock
    return worker


def test_a_worker_works_and_sends_heartbeats_whatever_its_clock_says(
    url: str, redis_url: str, clock: SkewedClock, tmp_path: Path
) -> None:
    file = tmp_path / "ran"
    with ExitStack() as stack:
        stage = stack.enter_context(Stage.on(url, redis_url))
        watcher = stack.enter_context(Watcher(stage.app))
        stack.enter_context(running(worker := skewed(stage, clock, "skewed@ours")))
        for number, jump in enumerate(JUMPS):
            clock.set(jump)
            text = f"task {number}"
            assert stage.send("record", str(file), text, queue="celery").get(timeout=PATIENCE) == text
            watcher.wait_for(partial(_has_heard_beats, watcher, watcher.types["worker-heartbeat"] + 1))
            assert worker.hostname in {each.hostname for each in watcher.state.alive_workers()}
        errors = worker.errors()

    assert errors == []
    assert lines(file) == [
        f"{word} task {number}" for number in range(len(JUMPS)) for word in ("begin", "end")
    ]


def _has_heard_beats(watcher: Watcher, count: int) -> bool:
    return watcher.types["worker-heartbeat"] >= count


def test_tasks_that_wait_for_their_eta_follow_the_clock_and_run_once(
    url: str, redis_url: str, clock: SkewedClock, tmp_path: Path
) -> None:
    file = tmp_path / "ran"
    with Stage.on(url, redis_url) as stage, running(worker := skewed(stage, clock, "skewed@ours")):
        send = partial(stage.send, "record", str(file), queue="celery")
        early, late = send("early", countdown=HOUR), send("late", countdown=20 * HOUR)
        expiring = send("expiring", countdown=HOUR, expires=HOUR / 2)
        ask = stage.ask(worker)
        assert come_true(lambda: len(ask.scheduled()[worker.hostname]) == 3)

        clock.set(-HOUR)
        assert send("now").get(timeout=PATIENCE) == "now"
        assert len(ask.scheduled()[worker.hostname]) == 3
        clock.set(2 * HOUR)
        assert early.get(timeout=PATIENCE) == "early"
        assert come_true(lambda: expiring.state == "REVOKED")
        clock.set(0.0)
        assert send("again").get(timeout=PATIENCE) == "again"
        waiting = [each["request"]["id"] for each in ask.scheduled()[worker.hostname]]

    assert waiting == [late.id]
    assert [line for line in lines(file) if line.startswith("begin")] == [
        "begin now",
        "begin early",
        "begin again",
    ]


@pytest.mark.parametrize(("of_holder", "of_other"), [(0.0, 2 * HOUR), (-2 * HOUR, 0.0)])
def test_no_worker_on_redis_takes_a_task_from_another_that_runs_it_because_of_a_clock(
    redis_url: str, tmp_path: Path, of_holder: float, of_other: float
) -> None:
    file, until = tmp_path / "ran", tmp_path / "until"
    clocks = [SkewedClock(tmp_path / name) for name in ("holder", "other")]
    clocks[0].set(of_holder)
    clocks[1].set(of_other)
    with ExitStack() as stack:
        stage = stack.enter_context(Stage.on(redis_url, redis_url))
        send = partial(stage.send, queue="celery")
        stack.enter_context(running(holder := skewed(stage, clocks[0], "holder@ours")))
        held = [send("hold", str(file), str(number), str(until)) for number in range(2)]
        assert come_true(lambda: len(lines(file)) == 2)
        # It looks for tasks of workers that are gone as soon as it begins to take tasks.
        stack.enter_context(running(other := skewed(stage, clocks[1], "other@ours")))
        for number in range(20):
            assert send("record", str(file), f"after {number}").get(timeout=PATIENCE) == f"after {number}"
        until.touch()
        results = [each.get(timeout=PATIENCE) for each in held]
        errors = [*holder.errors(), *other.errors()]

    begun = sorted(line for line in lines(file) if line in ("begin 0", "begin 1"))
    assert results == ["0", "1"]
    assert errors == []
    assert begun == ["begin 0", "begin 1"]


# -- a recorder


def test_a_recorder_counts_each_event_once_whatever_its_clock_says(
    url: str, clock: SkewedClock, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with Publisher(url) as publisher, RecorderProcess(url, log, clock=clock) as recorder:
        recorder.wait_until_it_records()
        for jump in JUMPS:
            clock.set(jump)
            sealed = recorder.told["segments"]
            publisher.publish(5)
            enough = len(publisher.published)
            assert wait_until(partial(_has_recorded, recorder, enough), patience=PATIENCE), recorder.told
            # A segment is sealed by its age, or when the clock was set.
            assert wait_until(partial(_has_sealed, recorder, sealed + 1), patience=PATIENCE)
        recorder.end()

    read = read_lawful(log)
    assert read.ids == {*publisher.published}
    assert read.gaps == []


def _has_sealed(recorder: RecorderProcess, segments: int) -> bool:
    return bool(recorder.told["segments"] >= segments)


def _has_recorded(recorder: RecorderProcess, events: int) -> bool:
    return bool(recorder.told["recorded"] >= events)


@pytest.mark.parametrize(("before", "after"), [(0.0, -HOUR), (HOUR, 0.0), (0.0, HOUR), (-HOUR, 0.0)])
def test_a_gap_covers_the_outage_though_the_clock_is_set_in_it(
    own_redis: RedisServer, clock: SkewedClock, tmp_path: Path, before: float, after: float
) -> None:
    log = tmp_path / "log"
    clock.set(before)
    with RecorderProcess(own_redis.url, log, clock=clock) as recorder:
        recorder.wait_until_it_records()
        with Publisher(own_redis.url) as publisher:
            publisher.publish()
            assert wait_until(partial(_has_recorded, recorder, 5), patience=PATIENCE)
            own_redis.kill()
        killed_at = time.time()
        assert wait_until(lambda: recorder.told["state"] == "link", patience=PATIENCE)
        clock.set(after)
        back_at = time.time()
        own_redis.start()
        assert wait_until(lambda: recorder.told["gaps"] == 1, patience=PATIENCE)
        recorder.end()

    (gap,) = read_lawful(log).gaps
    assert gap.since <= killed_at <= back_at <= gap.until


# -- leaders


@pytest.fixture(params=BROKERS)
def kept_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker that keeps what it grants."""
    if request.param == "amqp":
        yield request.getfixturevalue("amqp_url")
        return
    with RedisServer({"appendonly": "yes", "appendfsync": "everysec"}) as server:
        yield server.url


def test_a_leader_leads_on_and_nobody_beside_it_whatever_the_clocks_say(
    kept_url: str, clock: SkewedClock, tmp_path: Path
) -> None:
    other_clock = SkewedClock(tmp_path / "other")
    jumps = [jump for jump in JUMPS if abs(jump) < STREAM_CLOCK_ERROR or kept_url.startswith("redis")]
    with ExitStack() as stack:
        # So long that a busy machine cannot keep it from renewing.
        leader = stack.enter_context(Contender(kept_url, clock, ttl=60.0))
        assert come_true(lambda: bool(leader.last.term))
        other = stack.enter_context(Contender(kept_url, other_clock, ttl=60.0))
        for jump in jumps:
            for moved, one in ((clock, leader), (other_clock, other)):
                moved.set(jump)
                last = one.last
                # Long enough for several looks, and a claim or a renewal.
                assert come_true(partial(_has_looked, one, last.after + 0.2))
        led = leader.looks
        denied = other.looks
        print(*(line for line in leader.log().splitlines() if not line.startswith("[")), sep="\n")

    assert len({look.term for look in led if look.term}) == 1
    assert led[-1].term
    assert {look.term for look in denied} == {0}


def _has_looked(contender: Contender, since: float) -> bool:
    return contender.last.before > since


def test_a_lease_ends_in_its_time_though_the_clock_of_who_held_it_was_set_back(
    kept_url: str, clock: SkewedClock, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        leader = stack.enter_context(Contender(kept_url, clock, ttl=3.0))
        assert come_true(lambda: bool(leader.last.term))
        clock.set(-HOUR)
        last = leader.last
        assert come_true(lambda: bool(leader.last.term) and leader.last.before > last.after)
        token = leader.last.token
        leader.signal(signal.SIGKILL)
        other = stack.enter_context(Contender(kept_url, SkewedClock(tmp_path / "other"), ttl=3.0))

        assert come_true(lambda: bool(other.last.term))
        assert other.last.token > token
