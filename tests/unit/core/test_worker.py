"""What the events of a worker say of it, and when it is alive."""

from typing import Any

import pytest

from celeriac.core.state import ClusterState
from celeriac.core.worker import Worker, heartbeat_expires
from celeriac.errors import CallerError
from celeriac.model.events import Other, Started, WorkerEvent, WorkerHeartbeat, WorkerOffline, WorkerOnline

NOW = 1000.0


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def say(
    kind: type[WorkerEvent], clock: int, *, pid: int = 7, moment: float = NOW, **fields: Any
) -> WorkerEvent:
    fields = {"freq": 2.0, "active": 0, **fields}
    return kind(timestamp=moment, clock=clock, hostname="w@x", pid=pid, **fields)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def state(clock: Clock) -> ClusterState:
    return ClusterState(now=clock)


@pytest.fixture
def told(state: ClusterState) -> list[str]:
    """Return what the state tells of joins, leaves and drift."""
    heard: list[str] = []
    state.on_node_join = lambda worker: heard.append(f"join {worker.id}")
    state.on_node_leave = lambda worker: heard.append(f"leave {worker.hostname}")
    state.on_drift = lambda worker: heard.append(f"drift {worker.drift}")
    return heard


def worker_of(state: ClusterState) -> Worker:
    return state.workers["w@x"]


def test_a_worker_is_alive_for_twice_its_frequency(state: ClusterState, clock: Clock) -> None:
    state.apply(say(WorkerHeartbeat, 1), NOW)

    clock.now = NOW + 3.9
    assert [worker.hostname for worker in state.alive_workers()] == ["w@x"]
    clock.now = NOW + 4.0
    assert list(state.alive_workers()) == []
    assert worker_of(state).status_string == "OFFLINE"


def test_liveness_goes_by_the_time_of_receipt(state: ClusterState) -> None:
    state.apply(say(WorkerHeartbeat, 1, moment=NOW - 3600), NOW)

    assert worker_of(state).alive


def test_an_event_without_a_time_of_receipt_is_no_sign_of_life(state: ClusterState) -> None:
    state.apply(say(WorkerHeartbeat, 1))

    assert not worker_of(state).alive
    assert worker_of(state).heartbeat_expires is None
    assert worker_of(state).active == 0


def test_the_last_four_heartbeats_are_kept_in_order(state: ClusterState) -> None:
    for beat in (1, 2, 5, 3, 4, 6):
        state.apply(say(WorkerHeartbeat, beat), NOW + beat)

    assert worker_of(state).heartbeats == [NOW + 3, NOW + 4, NOW + 5, NOW + 6]


def test_a_task_event_and_an_election_message_are_signs_of_life(state: ClusterState, clock: Clock) -> None:
    state.apply(say(WorkerHeartbeat, 1), NOW)
    state.apply(Started(timestamp=NOW, clock=2, hostname="w@x", pid=7, uuid="t"), NOW + 10)
    clock.now = NOW + 13
    after_task = worker_of(state).alive
    state.apply(Other(timestamp=NOW, clock=3, hostname="w@x", group="worker", subject="elect"), NOW + 20)
    clock.now = NOW + 23

    assert (after_task, worker_of(state).alive) == (True, True)


def test_a_worker_known_by_its_tasks_alone_is_alive_for_two_minutes(
    state: ClusterState, clock: Clock
) -> None:
    state.apply(Started(timestamp=NOW, clock=2, hostname="w@x", pid=7, uuid="t"), NOW)

    clock.now = NOW + 119
    assert worker_of(state).alive
    assert not worker_of(state).is_member


def test_a_heartbeat_on_request_does_not_change_the_frequency(state: ClusterState) -> None:
    state.apply(say(WorkerHeartbeat, 1, active=3, processed=9, loadavg=(1.0, 2.0, 3.0)), NOW)
    state.apply(say(WorkerHeartbeat, 2, freq=5.0, active=None), NOW)

    worker = worker_of(state)
    assert (worker.freq, worker.active, worker.processed, worker.loadavg) == (2.0, 3, 9, (1.0, 2.0, 3.0))


def test_an_older_event_does_not_undo_a_newer_one(state: ClusterState) -> None:
    state.apply(say(WorkerHeartbeat, 9, processed=90), NOW)
    state.apply(say(WorkerHeartbeat, 5, processed=50), NOW)

    assert (worker_of(state).processed, worker_of(state).clock) == (90, 9)


def test_joins_and_leaves_alternate_whatever_is_repeated(state: ClusterState, told: list[str]) -> None:
    for event in (
        say(WorkerOnline, 1),
        say(WorkerOnline, 2),
        say(WorkerHeartbeat, 3),
        say(WorkerOffline, 4),
        say(WorkerOffline, 4),
        say(WorkerOnline, 1, pid=8, moment=NOW + 5),
    ):
        state.apply(event, NOW)

    assert told == ["join w@x.7", "leave w@x", "join w@x.8"]


def test_a_restart_without_farewell_is_a_leave_and_a_join(state: ClusterState, told: list[str]) -> None:
    state.apply(say(WorkerOnline, 50), NOW)
    state.apply(say(WorkerOnline, 1, pid=8, moment=NOW + 5), NOW + 5)

    assert told == ["join w@x.7", "leave w@x", "join w@x.8"]


def test_a_stale_heartbeat_does_not_bring_back_who_left(state: ClusterState, told: list[str]) -> None:
    state.apply(say(WorkerOnline, 1), NOW)
    state.apply(say(WorkerOffline, 9), NOW + 1)
    state.apply(say(WorkerHeartbeat, 5), NOW + 2)
    state.apply(Started(timestamp=NOW, clock=6, hostname="w@x", pid=7, uuid="t"), NOW + 2)

    assert told == ["join w@x.7", "leave w@x"]
    assert not worker_of(state).alive


def test_the_late_farewell_of_an_old_process_does_not_end_the_new_one(state: ClusterState) -> None:
    state.apply(say(WorkerOnline, 1, pid=8, moment=NOW + 5), NOW + 5)
    state.apply(say(WorkerOffline, 99, pid=7, moment=NOW + 4), NOW + 5)

    assert worker_of(state).alive
    assert worker_of(state).pid == 8


def test_a_worker_that_left_stays_listed_with_or_without_a_listener(state: ClusterState) -> None:
    state.apply(say(WorkerOnline, 1), NOW)
    state.apply(say(WorkerOffline, 2), NOW)

    assert list(state.workers) == ["w@x"]
    assert worker_of(state).has_left


def test_drift_is_told_once_for_a_host(state: ClusterState, told: list[str]) -> None:
    for beat, drift in enumerate((1.0, 17.0, 1.0, 30.0), 1):
        state.apply(say(WorkerHeartbeat, beat, moment=NOW - drift), NOW)

    assert told == ["join w@x.7", "drift 17.0"]


def test_the_workers_heard_of_least_recently_go_first(clock: Clock) -> None:
    state = ClusterState(now=clock, max_workers_in_memory=2)
    for name in ("a", "b", "a", "c"):
        state.apply(WorkerHeartbeat(timestamp=NOW, clock=1, hostname=name), NOW)

    assert list(state.workers) == ["a", "c"]


@pytest.mark.parametrize("limit", ["max_workers_in_memory", "max_tasks_in_memory"])
def test_a_state_that_could_hold_nothing_is_refused(limit: str, clock: Clock) -> None:
    with pytest.raises(CallerError, match="at least 1"):
        ClusterState(now=clock, **{limit: 0})  # type: ignore[arg-type]


def test_a_heartbeat_expires_after_a_share_of_its_frequency() -> None:
    assert heartbeat_expires(100.0, 2.0) == 104.0
    assert heartbeat_expires(100.0, 2.0, 50) == 101.0


def test_a_container_restarted_under_the_same_pid_is_alive_again(
    state: ClusterState, told: list[str]
) -> None:
    state.apply(say(WorkerOnline, 4990, pid=1), NOW)
    state.apply(say(WorkerOffline, 5000, pid=1), NOW)
    state.apply(say(WorkerOnline, 1, pid=1, moment=NOW + 10, processed=0), NOW + 10)

    assert worker_of(state).alive
    assert (worker_of(state).clock, worker_of(state).processed) == (1, 0)
    assert told == ["join w@x.1", "leave w@x", "join w@x.1"]


def test_a_container_that_crashed_is_described_by_the_new_process(state: ClusterState) -> None:
    state.apply(say(WorkerHeartbeat, 5000, pid=1, active=9), NOW)
    state.apply(say(WorkerHeartbeat, 3, pid=1, moment=NOW + 10, active=1), NOW + 10)

    assert (worker_of(state).active, worker_of(state).clock) == (1, 3)


def test_a_forged_farewell_with_a_huge_clock_does_not_hold_a_worker_down(state: ClusterState) -> None:
    state.apply(say(WorkerHeartbeat, 10), NOW)
    state.apply(say(WorkerOffline, 2**53 - 1), NOW + 1)
    state.apply(say(WorkerHeartbeat, 12, moment=NOW + 2), NOW + 2)

    assert worker_of(state).alive


def test_a_member_that_is_forgotten_has_left(clock: Clock) -> None:
    heard: list[str] = []
    state = ClusterState(now=clock, max_workers_in_memory=1)
    state.on_node_join = lambda worker: heard.append(f"join {worker.hostname}")
    state.on_node_leave = lambda worker: heard.append(f"leave {worker.hostname}")
    for name in ("a", "b", "a"):
        state.apply(WorkerHeartbeat(timestamp=NOW, clock=1, hostname=name), NOW)

    assert heard == ["join a", "leave a", "join b", "leave b", "join a"]
