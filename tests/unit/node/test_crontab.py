"""Crontabs: by the calendar of a zone, also on the days on which clocks are changed."""

from datetime import UTC, datetime
from math import inf
from zoneinfo import ZoneInfo

import pytest

from celeriac.core.beat import Span
from celeriac.errors import ImproperlyConfigured
from celeriac.node.crontab import Calendar, crontab

BERLIN = ZoneInfo("Europe/Berlin")


def ticks(calendar: Calendar, begin: str, count: int) -> list[str]:
    """Return some ticks after a moment, by the clocks of Berlin."""
    at, found = datetime.fromisoformat(begin).timestamp(), []
    for _ in range(count):
        at = calendar.next_after(at)
        found.append(datetime.fromtimestamp(at, BERLIN).isoformat())
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*/20 * * * *", ["2026-05-01T10:20:00+02:00", "2026-05-01T10:40:00+02:00"]),
        ("0 3 * * *", ["2026-05-02T03:00:00+02:00", "2026-05-03T03:00:00+02:00"]),
        ("30 9 * * mon-fri", ["2026-05-04T09:30:00+02:00", "2026-05-05T09:30:00+02:00"]),
        ("0 0 1 jan *", ["2027-01-01T00:00:00+01:00", "2028-01-01T00:00:00+01:00"]),
    ],
)
def test_a_crontab_is_due_by_the_calendar_of_its_zone(text: str, expected: list[str]) -> None:
    calendar = Calendar(text, BERLIN)

    found = ticks(calendar, "2026-05-01T10:00:00+02:00", 2)

    assert found == expected


# -- days on which clocks are changed: 2026-03-29 at 02:00, and 2026-10-25 at 03:00


def test_what_is_due_in_the_hour_that_is_left_out_is_due_once_at_its_end() -> None:
    calendar = Calendar("30 2 * * *", BERLIN)

    found = ticks(calendar, "2026-03-28T12:00:00+01:00", 2)

    assert found == ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]


def test_two_that_were_due_in_the_hour_that_is_left_out_are_one_tick() -> None:
    calendar = Calendar("0,30 2 * * *", BERLIN)

    found = ticks(calendar, "2026-03-28T12:00:00+01:00", 2)

    assert found == ["2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"]


def test_what_is_due_at_an_hour_that_comes_twice_is_due_in_the_first() -> None:
    calendar = Calendar("30 2 * * *", BERLIN)

    found = ticks(calendar, "2026-10-24T12:00:00+02:00", 2)

    assert found == ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]


def test_what_was_due_in_the_first_of_two_hours_is_not_due_in_the_second() -> None:
    calendar = Calendar("30 2 * * *", BERLIN)

    found = ticks(calendar, "2026-10-25T02:15:00+01:00", 1)

    assert found == ["2026-10-26T02:30:00+01:00"]


def test_what_is_due_each_hour_is_due_in_both_of_two_and_not_in_the_one_that_is_left_out() -> None:
    calendar = Calendar("30 * * * *", BERLIN)

    autumn = ticks(calendar, "2026-10-25T01:45:00+02:00", 3)
    spring = ticks(calendar, "2026-03-29T01:00:00+01:00", 2)

    assert autumn == ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:30:00+01:00"]
    assert spring == ["2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"]


# -- the latest


def test_the_latest_of_a_gap_is_told_with_how_many_were_before_it() -> None:
    calendar = Calendar("*/5 * * * *", UTC)

    assert calendar.latest(after=0.0, until=1799.0) == Span(1500.0, 4)
    assert calendar.latest(after=0.0, until=299.0) is None
    assert calendar.latest(after=0.0, until=300.0) == Span(300.0, 0)


@pytest.mark.parametrize(("text", "latest"), [("* * * * *", 1e9 - 40), ("0 0 1 1 *", 978307200.0)])
def test_the_latest_of_a_very_long_gap_is_found(text: str, latest: float) -> None:
    calendar = Calendar(text, UTC)

    span = calendar.latest(after=0.0, until=1e9)

    assert span is not None
    assert span.at == latest


def test_a_day_that_never_comes_is_never_due() -> None:
    calendar = Calendar("0 0 31 2 1", UTC, needs_both_days=True)

    assert calendar.next_after(0.0) == inf
    assert calendar.latest(after=0.0, until=1e9) is None


# -- what is given


@pytest.mark.parametrize(
    "text", ["", "* * * *", "* * * * * *", "61 * * * *", "* * 31 2 *", "often", "*/0 * * * *"]
)
def test_what_is_no_crontab_is_refused_with_the_fix(text: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="invalid crontab"):
        Calendar(text, UTC)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (crontab(), "* * * * *"),
        (crontab(0, 3), "0 3 * * *"),
        (crontab(minute="*/15"), "*/15 * * * *"),
        (crontab(minute=[0, 30], hour=range(9, 12)), "0,30 9,10,11 * * *"),
        (crontab(0, 0, day_of_week="mon-fri"), "0 0 * * 1-5"),
        (crontab(0, 0, day_of_week="Sunday"), "0 0 * * 0"),
        (crontab(0, "22-3"), "0 0,1,2,3,22,23 * * *"),
        (crontab(0, "20-4/3"), "0 2,20,23 * * *"),
        (crontab(0, 0, day_of_week="fri-mon"), "0 0 * * 0,1,5,6"),
        (crontab(0, 0, day_of_month="1,15", month_of_year="jan,jul"), "0 0 1,15 1,7 *"),
    ],
)
def test_arguments_of_a_crontab_mean_what_they_mean_to_celery(given: crontab, text: str) -> None:
    assert given.text() == text


@pytest.mark.parametrize(
    "given", [crontab(minute=60), crontab(hour="later"), crontab(day_of_month=0), crontab(minute="1-")]
)
def test_a_bad_argument_of_a_crontab_is_refused_by_its_name(given: crontab) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"crontab .* is .*give a number from"):
        given.text()


def test_days_of_a_crontab_must_both_fit_and_those_of_a_text_one_of_them() -> None:
    both = Calendar(crontab(0, 0, day_of_month=13, day_of_week="fri").text(), BERLIN, needs_both_days=True)
    one = Calendar("0 0 13 * fri", BERLIN)

    assert ticks(both, "2026-05-01T00:00:00+02:00", 1) == ["2026-11-13T00:00:00+01:00"]
    assert ticks(one, "2026-05-01T00:00:00+02:00", 2) == [
        "2026-05-08T00:00:00+02:00",
        "2026-05-13T00:00:00+02:00",
    ]
