"""Failures of the drain loop: what is logged, and when waits end with an error."""

import logging

import pytest

from celeriac.errors import ConnectionLost
from celeriac.node.drain_failure import (
    FAILURE_LIMIT,
    FAILURE_SPAN,
    DrainFailures,
    drain_error,
)

#: Seconds between failures so that as many as the limit take as long as the span.
STEP = FAILURE_SPAN / (FAILURE_LIMIT - 1)


@pytest.fixture(autouse=True)
def _every_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def levels(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.levelname for record in caplog.records]


def test_a_loss_is_logged_once_until_the_connection_is_back(caplog: pytest.LogCaptureFixture) -> None:
    failures = DrainFailures()

    for _ in range(3):
        failures.log_loss(ConnectionLost("cut"))
    failures.log_return()
    failures.log_return()
    failures.log_loss(ConnectionLost("cut again"))

    assert levels(caplog) == ["WARNING", "INFO", "WARNING"]


def test_equal_errors_are_logged_once_and_another_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    failures = DrainFailures()

    for error in (ValueError("a"), ValueError("a"), ValueError("b"), ValueError("b")):
        failures.add(error, 0.0)

    assert levels(caplog) == ["ERROR", "ERROR"]
    assert all(record.exc_info for record in caplog.records)


def test_errors_in_a_row_end_waits_with_an_error_that_names_the_last() -> None:
    failures = DrainFailures()
    error = ValueError("a bug")

    ends = [failures.add(error, number * STEP) for number in range(2 * FAILURE_LIMIT)]

    assert [end is not None for end in ends] == ([False] * (FAILURE_LIMIT - 1) + [True]) * 2
    last = ends[-1]
    assert last is not None
    assert "ValueError: a bug" in str(last)
    assert last.__cause__ is error


def test_any_number_of_errors_in_less_than_the_span_ends_no_wait() -> None:
    failures = DrainFailures()

    ends = [failures.add(ValueError("a bug"), 0.0) for _ in range(10 * FAILURE_LIMIT)]
    ends.append(failures.add(ValueError("a bug"), FAILURE_SPAN - 0.1))
    late = failures.add(ValueError("a bug"), FAILURE_SPAN)

    assert ends == [None] * len(ends)
    assert late is not None


def test_errors_before_a_good_connection_do_not_count() -> None:
    failures = DrainFailures()

    ends = []
    for _ in range(FAILURE_LIMIT):
        ends += [failures.add(ValueError("a bug"), number * STEP) for number in range(FAILURE_LIMIT - 1)]
        failures.reset()

    assert ends == [None] * len(ends)


@pytest.mark.parametrize("error", [ConnectionLost("cut"), ConnectionResetError("reset")])
def test_a_lost_connection_ends_no_wait(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    failures = DrainFailures()

    ends = [failures.add(error, number * FAILURE_SPAN) for number in range(3 * FAILURE_LIMIT)]

    assert ends == [None] * len(ends)
    assert levels(caplog) == ["WARNING"]


def test_another_error_of_the_system_is_a_warning_and_ends_waits(caplog: pytest.LogCaptureFixture) -> None:
    failures = DrainFailures()

    ends = [failures.add(OSError("no file left"), number * STEP) for number in range(FAILURE_LIMIT)]

    assert "OSError: no file left" in str(ends[-1])
    assert levels(caplog) == ["WARNING"]


def test_the_error_of_all_waits_has_its_cause() -> None:
    cause = RuntimeError("no room")

    error = drain_error("nothing drains", cause)

    assert str(error).startswith("nothing drains; the task may still finish: fix the cause, then wait")
    assert error.__cause__ is cause
