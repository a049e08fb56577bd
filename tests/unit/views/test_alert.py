"""What needs somebody to look, and what does not."""

from collections import Counter

import pytest

from celeriac.core.pulse import Times, Window
from celeriac.store.recorder_status import RecorderStatus
from celeriac.views.alert import (
    Alert,
    failure_alerts,
    queue_alerts,
    recorder_alerts,
    table_alerts,
    worst_first,
)
from celeriac.views.recorder import recorder_rows

NOW = 1_790_000_000.0
HOUR = 3600.0


def window(**events: int) -> Window:
    return Window(NOW - 300, 300.0, Counter(events), Times(), Times())


def recorder(name: str, state: str = "recording", *, age: float = 1.0, error: str = "") -> RecorderStatus:
    return RecorderStatus(
        name=name, recorder=f"{name}-1", log="here", pid=1, started_at=0.0, updated_at=NOW - age, state=state,
        last_error=error,
    )  # fmt: skip


def of_recorders(*statuses: RecorderStatus) -> list[Alert]:
    return recorder_alerts(recorder_rows(statuses, as_of=NOW))


def test_many_failures_lead_to_the_tasks_that_failed() -> None:
    (alert,) = failure_alerts(window(failed=20, succeeded=30))

    assert alert == Alert(
        "error", "40 % of 50 tasks failed in the last 5 minutes", "tasks", "state=FAILURE&last=300"
    )


@pytest.mark.parametrize(("failed", "succeeded"), [(0, 0), (9, 0), (10, 41)])
def test_few_failures_need_nobody(failed: int, succeeded: int) -> None:
    assert failure_alerts(window(failed=failed, succeeded=succeeded)) == []


def test_tasks_that_would_wait_for_long_are_told_with_the_longest_queue_first() -> None:
    queues = {"celery": 50, "bulk": 1150, "empty": 0}

    (alert,) = queue_alerts(queues, ended=300, watched=300.0)

    text = "Backlog: 1,200 tasks in bulk, celery, about 20 min at the current rate"
    assert alert == Alert("warning", text, "workers")


def test_where_no_task_ends_those_that_wait_are_an_error() -> None:
    (alert,) = queue_alerts({"celery": 100}, ended=0, watched=300.0)

    assert alert.level == "error"
    assert alert.text == "Backlog: 100 tasks in celery, and no task finished in the last 5 minutes"


@pytest.mark.parametrize(
    ("length", "ended", "watched"),
    [
        (99, 0, 300.0),  # few
        (600, 300, 300.0),  # many, and soon done
        (5000, 0, 59.0),  # nobody has watched for long enough to know
    ],
)
def test_queues_that_are_short_or_soon_empty_need_nobody(length: int, ended: int, watched: float) -> None:
    assert queue_alerts({"celery": length}, ended=ended, watched=watched) == []


def test_of_queues_that_nobody_knows_nothing_is_told() -> None:
    assert queue_alerts(None, ended=0, watched=300.0) == []
    assert queue_alerts({}, ended=0, watched=300.0) == []


def test_recorders_that_are_well_or_were_never_there_need_nobody() -> None:
    assert of_recorders() == []
    assert of_recorders(recorder("a"), recorder("b")) == []


def test_a_recorder_that_fell_silent_is_an_error_where_no_other_records() -> None:
    (alert,) = of_recorders(recorder("a", age=90.0, error="disk full"), recorder("old", "stopped", age=9e5))

    text = "Events are not recorded: recorder a: no status update for 90 seconds: disk full"
    assert alert == Alert("error", text, "cluster")


def test_a_recorder_in_trouble_is_a_warning_while_another_records() -> None:
    (alert,) = of_recorders(recorder("a"), recorder("b\n", "dropping"))

    text = "Recorder b\\n: disk full or read-only, dropping events"
    assert alert == Alert("warning", text, "cluster")


def test_a_recorder_that_was_given_up_needs_nobody_while_another_records() -> None:
    stopped, renamed = recorder("b", "stopped"), recorder("c", age=25 * HOUR)

    assert of_recorders(recorder("a"), stopped, renamed) == []


def test_a_recorder_that_has_been_dead_for_a_year_is_told_as_long_as_no_other_records() -> None:
    (alert,) = of_recorders(recorder("a", "failed", age=365 * 24 * HOUR))

    assert alert.text == "Events are not recorded: recorder a: stopped with an error"


def test_tables_are_old_when_a_nightly_run_is_overdue() -> None:
    assert table_alerts(None, as_of=NOW) == []
    assert table_alerts(NOW - 25 * HOUR, as_of=NOW) == []
    (alert,) = table_alerts(NOW - 30 * HOUR, as_of=NOW)
    assert alert == Alert(
        "warning",
        "History tables are 1 d 6 h old. Update them: celeriac pipeline run",
        "history",
    )


def test_errors_come_before_warnings() -> None:
    alerts = [Alert("warning", "a", "x"), Alert("error", "b", "x"), Alert("error", "c", "x")]

    assert [each.text for each in worst_first(alerts)] == ["b", "c", "a"]
