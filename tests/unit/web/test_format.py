"""Numbers, moments and durations as pages write them."""

import pytest

from celeriac.web.pages.format import (
    clock_text,
    count_text,
    duration_text,
    moment_text,
    rate_text,
    state_class,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0 s"),
        (0.0000125, "12 µs"),
        (0.34, "340 ms"),
        (1.254, "1.25 s"),
        (-1.254, "-1.25 s"),
        (65.0, "1 min 5 s"),
        (119.7, "2 min 0 s"),
        (59.98, "1 min 0 s"),
        (7500.0, "2 h 5 min"),
        (3599.9, "1 h 0 min"),
        (90000.0, "1 d 1 h"),
    ],
)
def test_a_duration_has_the_digits_that_matter(seconds: float | None, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize("at", [None, float("nan"), float("inf"), -1e300, 1e300])
def test_a_moment_that_is_none_is_not_told(at: float | None) -> None:
    assert moment_text(at) == clock_text(at) == "-"


def test_moments_are_told_in_utc() -> None:
    assert moment_text(1_790_002_800.25) == "2026-09-21 15:00:00 UTC"
    assert clock_text(1_790_002_800.25) == "15:00:00.250"


def test_counts_and_rates() -> None:
    assert (count_text(1234567), count_text(None)) == ("1,234,567", "-")
    assert (rate_text(0.0), rate_text(3.214), rate_text(12345.6)) == ("0/s", "3.21/s", "12,346/s")


def test_a_state_that_a_task_made_up_chooses_no_class() -> None:
    assert state_class("SUCCESS") == "state state-success"
    assert state_class('x" onclick="alert(1)') == state_class(None) == "state"
