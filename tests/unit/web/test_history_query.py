"""What is asked of the history, as the address of the page has it."""

import pytest

from celeriac.errors import CallerError
from celeriac.web.pages.history_query import HistoryQuery, input_text, moment_of

NOW = 1_794_614_400.0


@pytest.mark.parametrize(
    "query",
    [
        HistoryQuery(),
        HistoryQuery(tab="top", range="month"),
        HistoryQuery(task="shop.*", worker="w1@lab", queue="mail", by="day", per="queue"),
        HistoryQuery(tab="compare", range="exact", since=NOW - 60, until=NOW, against="yesterday"),
        HistoryQuery(tab="compare", against="exact", other_since=NOW - 60, other_until=NOW),
    ],
)
def test_an_address_is_read_back_as_what_was_asked(query: HistoryQuery) -> None:
    assert HistoryQuery(**query.address()).checked() == query


def test_the_whole_is_said_in_an_address_as_empty_texts_are_left_out() -> None:
    assert HistoryQuery(by="").address() == {"by": "none"}


def test_what_is_not_known_is_as_usual() -> None:
    wrong = HistoryQuery("x", "t" * 1000, range="y", since=None, until=None, by="z", per="v", against="w")

    assert wrong.checked() == HistoryQuery(task="t" * 200)
    assert HistoryQuery(since=float("inf"), until=-1.0).checked().span(NOW) == (None, NOW)


def test_times_end_at_the_moment_that_is_shown() -> None:
    assert HistoryQuery(range="hour").span(NOW) == (NOW - 3600, NOW)
    assert HistoryQuery(since=NOW - 60, until=NOW + 60).checked().span(NOW) == (NOW - 60, NOW)


@pytest.mark.parametrize(
    ("against", "expected"),
    [
        ("before", (NOW - 7200, NOW - 3600)),
        ("yesterday", (NOW - 90_000, NOW - 86_400)),
        ("last-week", (NOW - 608_400, NOW - 604_800)),
        ("exact", (None, NOW - 10)),
    ],
)
def test_a_time_is_compared_with_another(against: str, expected: tuple[float | None, float]) -> None:
    query = HistoryQuery(range="hour", against=against, other_until=NOW - 10)

    assert query.other_span(NOW) == expected


def test_a_time_without_a_beginning_is_compared_with_none() -> None:
    with pytest.raises(CallerError, match="needs a start"):
        HistoryQuery(until=NOW).checked().other_span(NOW)


def test_no_more_times_are_told_apart_than_can_be_read() -> None:
    assert HistoryQuery(range="month", by="hour").times(NOW) == "hour"
    assert HistoryQuery(range="month", by="").times(NOW) is None
    with pytest.raises(CallerError, match="43,200 intervals"):
        HistoryQuery(range="month", by="minute").times(NOW)
    with pytest.raises(CallerError, match="the range has no start"):
        HistoryQuery(until=NOW).checked().times(NOW)
    assert HistoryQuery(until=NOW, by="day").checked().times(NOW) == "day"


def test_a_moment_of_a_field_is_in_utc() -> None:
    assert input_text(NOW) == "2026-11-14T00:00:00"
    assert moment_of("2026-11-14T00:00:00") == NOW
    assert moment_of(None) is moment_of("") is None
    with pytest.raises(CallerError, match="Invalid time"):
        moment_of("soon")
