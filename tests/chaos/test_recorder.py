"""Recorders killed at every point, brokers that are killed, disks that are full: nothing recorded is lost.

``HYPOTHESIS_PROFILE=long`` kills at every point on each broker; else each broker has its share of them.
"""

import os
import resource
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import time

import pytest

from celeriac.programs.process import wait_until
from celeriac.store.event_log import EventLog
from celeriac.testing.brokers import RabbitServer, RedisServer
from tests.recorders import PATIENCE, Publisher, RecorderProcess, read_lawful, unexplained

POINTS = [
    *("append-before-write", "append-after-write", "sync-before-fsync", "sync-after-fsync"),
    *("roll-before-create", "roll-after-create"),
    *("seal-before-write", "seal-after-write", "seal-before-fsync", "seal-after-fsync"),
    *("seal-before-rename", "seal-after-rename", "seal-before-remove"),
]
#: Of ``make soak``.
IS_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
ACK_POINTS = ["ack-before-accept", "ack-after-accept"]
ON_RABBITMQ = [*POINTS, *ACK_POINTS] * 7 if IS_LONG else [*POINTS[1::3], *ACK_POINTS]
ON_REDIS = POINTS * 7 if IS_LONG else sorted({*POINTS} - {*POINTS[1::3]}, key=POINTS.index)[::2]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_killed_at_point_after_point_a_recorder_on_rabbitmq_loses_nothing(amqp_url: str, log: Path) -> None:
    promised = 0
    with Publisher(amqp_url) as publisher:
        with RecorderProcess(amqp_url, log) as recorder:  # makes the queue
            recorder.wait_until_it_records()
            recorder.end()
        with publisher.steadily():
            for point in ON_RABBITMQ:
                promised += _killed_at(point, amqp_url, log)
        publisher.publish(20)  # while no recorder runs
        with RecorderProcess(amqp_url, log) as recorder:
            recorder.wait_until_it_has_all_of(publisher)
            recorder.end()

    read = read_lawful(log)
    assert read.ids == {*publisher.published}
    assert len(read.events) >= promised
    assert not read.gaps


def test_killed_at_point_after_point_a_recorder_on_redis_loses_nothing_recorded_and_tells_of_the_rest(
    redis_url: str, log: Path
) -> None:
    promised = 0
    with Publisher(redis_url) as publisher:
        with publisher.steadily():
            for point in ON_REDIS:
                promised += _killed_at(point, redis_url, log)
        publisher.publish(20)
        with RecorderProcess(redis_url, log) as recorder:
            recorder.wait_until_it_records()
            publisher.publish(20)
            recorder.wait_until_it_has_all_of(publisher)
            recorder.end()

    read = read_lawful(log)
    assert promised + 100 <= len(read.events) < len(publisher.published)
    assert len(read.gaps) > 1
    # What was sent before the first of them listened is nobody's loss.
    first_at = min(event.local_received or 0.0 for event in read.events)
    publisher.published = {uuid: told for uuid, told in publisher.published.items() if told[0] >= first_at}
    assert not unexplained(publisher, read)


def _killed_at(point: str, url: str, log: Path) -> int:
    """Have a recorder die at a point; return how many events it had said that it recorded."""
    # The third time, so that there is something to lose.
    with RecorderProcess(url, log, point=point, visit=3) as recorder:
        recorder.wait_until_it_is_dead(point)
        recorded: int = recorder.told.get("recorded", 0)
        return recorded


def test_two_recorders_on_redis_that_are_killed_in_turn_have_together_all_that_was_sent(
    redis_url: str, log: Path
) -> None:
    def start(name: str) -> RecorderProcess:
        recorder = ends.enter_context(RecorderProcess(redis_url, log, name=name, log_segment_bytes=10**6))
        recorder.wait_until_it_records()
        return recorder

    with Publisher(redis_url) as publisher, ExitStack() as ends:
        recorders = {name: start(name) for name in ("left", "right")}
        with publisher.steadily():
            for name in ("left", "right", "left"):
                victim, both_record_at = recorders[name], time()
                # Only the victim has the events of the time in which the other was away.
                assert wait_until(partial(_has_recorded_since, victim, both_record_at), patience=PATIENCE)
                victim.kill()
                recorders[name] = start(name)
        for recorder in recorders.values():
            recorder.wait_until_it_has_all_of(publisher)
            recorder.end()

    read = read_lawful(log)
    assert read.ids == {*publisher.published}
    assert len(read.gaps) == 3
    assert len(EventLog(log).recorders()) == 2


def _has_recorded_since(recorder: RecorderProcess, timestamp: float) -> bool:
    return (recorder.told["last_event_at"] or 0.0) >= timestamp


def test_a_redis_that_is_killed_again_and_again_costs_nothing_recorded_and_leaves_gaps(
    own_redis: RedisServer, log: Path
) -> None:
    _kill_again_and_again(own_redis, log, times=20 if IS_LONG else 2)


def test_a_rabbitmq_that_is_killed_again_and_again_costs_nothing_recorded_and_leaves_gaps(
    hurt_rabbit: RabbitServer, log: Path
) -> None:
    _kill_again_and_again(hurt_rabbit, log, times=20 if IS_LONG else 2)


def _kill_again_and_again(server: RedisServer | RabbitServer, log: Path, *, times: int) -> None:
    promised: set[str] = set()
    with RecorderProcess(server.url, log) as recorder:
        recorder.wait_until_it_records()
        for number in range(times):
            with Publisher(server.url, first=1000 * number) as publisher:
                publisher.publish(20)
                recorder.wait_until_it_has_all_of(publisher)
                promised |= publisher.published.keys()
                server.kill()
            server.restart()
            gaps = number + 1
            assert wait_until(partial(_has_told_of, recorder, gaps), patience=PATIENCE)
        recorder.end()

    read = read_lawful(log)
    assert promised == read.ids
    assert len(read.gaps) == times


def _has_told_of(recorder: RecorderProcess, gaps: int) -> bool:
    return bool(recorder.told["gaps"] >= gaps and recorder.told["state"] == "recording")


def test_a_full_disk_on_rabbitmq_costs_nothing(amqp_url: str, log: Path) -> None:
    with RecorderProcess(amqp_url, log) as recorder, Publisher(amqp_url) as publisher:
        recorder.wait_until_it_records()
        publisher.publish(10)
        assert wait_until(lambda: recorder.told["recorded"] >= 50, patience=PATIENCE)
        limits = _limit_files(recorder, 1)
        publisher.publish(50)
        assert wait_until(lambda: recorder.told["state"] == "disk", patience=PATIENCE)
        _limit_files(recorder, limits)
        assert wait_until(lambda: recorder.told["recorded"] >= 300, patience=PATIENCE)
        recorder.end()

    read = read_lawful(log)
    assert read.ids == {*publisher.published}
    assert not read.gaps


def test_a_full_disk_on_redis_costs_what_memory_has_no_room_for_and_that_is_counted(
    redis_url: str, log: Path
) -> None:
    with (
        RecorderProcess(redis_url, log, log_pending_limit=100) as recorder,
        Publisher(redis_url) as publisher,
    ):
        recorder.wait_until_it_records()
        publisher.publish(10)
        assert wait_until(lambda: recorder.told["recorded"] >= 50, patience=PATIENCE)
        limits = _limit_files(recorder, 1)
        publisher.publish(50)
        assert wait_until(lambda: recorder.told["state"] == "dropping", patience=PATIENCE)
        assert wait_until(lambda: recorder.told["dropped"] >= 100, patience=PATIENCE)
        _limit_files(recorder, limits)
        assert wait_until(
            lambda: recorder.told["gaps"] >= 1 and recorder.told["state"] == "recording", patience=PATIENCE
        )
        publisher.publish(10)
        recorder.end()

    read = read_lawful(log)
    lost = {*publisher.published} - read.ids
    assert len(lost) == recorder.told["dropped"]
    assert [gap.reason.partition(" ")[0] for gap in read.gaps] == [str(len(lost))]
    assert not unexplained(publisher, read)


def _limit_files(recorder: RecorderProcess, size: int) -> int:
    """Let the files of a process grow to a size and no more, as a full disk does; return the old one."""
    old, hard = resource.prlimit(recorder.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(recorder.pid, resource.RLIMIT_FSIZE, (size, hard))
    return old
