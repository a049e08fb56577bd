"""Workers that run tasks without sending task events."""

from celeriac.core.task_event_check import MAX_WORKERS, TaskEventCheck

W = "celery@w1"


def check_of(*counts: int | None, pid: int = 7) -> TaskEventCheck:
    check = TaskEventCheck()
    beat(check, *counts, pid=pid)
    return check


def beat(check: TaskEventCheck, *counts: int | None, pid: int = 7) -> None:
    for count in counts:
        check.take_heartbeat(W, pid, count)


def test_worker_that_runs_tasks_without_events_sends_none() -> None:
    assert check_of(10, 11, 11, 11).sends(W) is False
    assert check_of(0, 3, 5, 9).sends(W) is False


def test_idle_worker_is_unknown() -> None:
    assert check_of(10, 10, 10, 10, 10, 10).sends(W) is None
    assert check_of(None, None, None).sends(W) is None
    assert TaskEventCheck().sends("celery@unknown") is None


def test_task_events_may_arrive_after_the_heartbeat_that_counts_them() -> None:
    check = check_of(10, 11, 11)
    check.take_task_event(W)
    beat(check, 11, 11, 11, 11)

    assert check.sends(W) is True


def test_worker_whose_task_events_were_turned_off_is_found() -> None:
    check = check_of(10)
    check.take_task_event(W)
    beat(check, 11, 12, 13)
    assert check.sends(W) is True

    beat(check, 14)
    assert check.sends(W) is False


def test_worker_whose_task_events_were_turned_on_is_cleared() -> None:
    check = check_of(10, 11, 12, 13)
    check.take_task_event(W)

    assert check.sends(W) is True


def test_restarted_worker_is_checked_again() -> None:
    check = check_of(10, 11, 12, 13)
    beat(check, 0, pid=8)
    assert check.sends(W) is None

    beat(check, 1, 1, 1, pid=8)
    assert check.sends(W) is False


def test_lower_count_of_the_same_process_is_a_new_baseline() -> None:
    assert check_of(10, 11, 11, 3, 3, 3, 3).sends(W) is None


def test_heartbeats_without_a_count_change_nothing() -> None:
    assert check_of(10, None, 11, None, None, 11, None).sends(W) is None
    assert check_of(10, None, 11, None, 11, 11).sends(W) is False


def test_event_gap_starts_the_comparison_again() -> None:
    check = check_of(10, 11, 11)
    check.take_gap()
    beat(check, 20, 20, 20, 20)

    assert check.sends(W) is None


def test_worker_that_shut_down_is_forgotten() -> None:
    check = check_of(10, 11, 12, 13)
    check.forget(W)
    check.forget("celery@unknown")

    assert check.sends(W) is None


def test_memory_is_bounded() -> None:
    check = TaskEventCheck()
    for count in (0, 1, 2, 3):
        for number in range(MAX_WORKERS + 1):
            check.take_heartbeat(f"w{number}", 1, count)
    check.take_task_event("somebody")

    assert check.sends(f"w{MAX_WORKERS - 1}") is False
    assert check.sends(f"w{MAX_WORKERS}") is None
    assert check.sends("somebody") is None
