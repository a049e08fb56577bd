"""Moments, spans, sizes and speeds are read as people mean them, or refused with what can be written."""

from datetime import timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from celeriac.errors import CallerError
from celeriac.views.measure import read_size, read_span, read_speed, read_time

#: 2026-11-14T10:00Z.
TEN = 1_794_650_400.0
EAST = timezone(timedelta(hours=2))


def moment(text: str) -> float:
    return read_time(text, option="--until", now=TEN, zone=EAST).at


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-11-14T10:00Z", TEN),
        ("2026-11-14T10:00:00.250+00:00", TEN + 0.25),
        ("2026-11-14T11:00+01:00", TEN),
        ("2026-11-14 12:00", TEN),
        ("2026-11-14T12", TEN),
        ("2026-11-14", TEN - 12 * 3600),
        ("20261114T1200", TEN),
        ("now", TEN),
        (" Now ", TEN),
        ("-2h", TEN - 7200),
        ("2h", TEN - 7200),
        ("90m", TEN - 5400),
        ("-1.5m", TEN - 90),
        ("-30s", TEN - 30),
        ("-1d", TEN - 86_400),
        ("-1w", TEN - 7 * 86_400),
        ("-1y", TEN - 365 * 86_400),
    ],
)
def test_a_moment_is_read_in_every_form(text: str, at: float) -> None:
    assert moment(text) == at


def test_a_moment_without_a_zone_is_local_and_that_is_said() -> None:
    told = read_time("2026-11-14T12:00", option="--since", now=TEN, zone=EAST)

    assert told.note == "--since 2026-11-14T12:00: local time, 2026-11-14T12:00:00+02:00"


@pytest.mark.parametrize("text", ["2026-11-14T10:00Z", "now", "-2h"])
def test_of_a_moment_that_can_mean_one_thing_nothing_is_said(text: str) -> None:
    assert read_time(text, option="--since", now=TEN).note == ""


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59Z", "9999-12-31T23:59-23:59", "2100-01-01T00:00Z"])
def test_a_moment_that_no_event_can_have_is_told_to_be_too_late(text: str) -> None:
    with pytest.raises(CallerError, match="Use a time before the year 2100"):
        moment(text)


def test_an_hour_that_comes_twice_is_said_as_it_was_taken() -> None:
    told = read_time("2026-10-25T02:30", option="--since", now=TEN, zone=ZoneInfo("Europe/Berlin"))

    assert told.note.endswith("2026-10-25T02:30:00+02:00")


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "7x", "-2", "-2 fortnights", "2026-13-01", "2026-11-14T25:00", "0001-01-01", "-9999y",
     "-1e5h", "1794650400", "\x1b[31m", "x" * 10_000],
)  # fmt: skip
def test_what_is_no_moment_is_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(CallerError) as refused:
        moment(text)

    told = str(refused.value)
    assert told.startswith("Invalid --until '")
    assert told.endswith("'. Use 7d, 2h, 2026-11-14T10:00Z or now.")
    assert told.isprintable()
    assert len(told) < 300


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30.0),
        ("15m", 900.0),
        ("12h", 43_200.0),
        ("90d", 7_776_000.0),
        ("1y", 31_536_000.0),
        ("0", None),
    ],
)
def test_a_span_is_read(text: str, seconds: float | None) -> None:
    assert read_span(text, option="--keep") == seconds


@pytest.mark.parametrize("text", ["", "90", "d", "-1d", "1 fortnight", "1M"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(CallerError, match=r"Invalid --keep .* Use 30s, .* or 0 for no limit"):
        read_span(text, option="--keep")


@pytest.mark.parametrize(
    ("text", "size"),
    [("1024", 1024), ("1k", 1024), ("10G", 10 * 2**30), ("1.5MB", 1_572_864), ("2GiB", 2**31), ("0", None)],
)
def test_a_size_is_read(text: str, size: int | None) -> None:
    assert read_size(text, option="--max-bytes") == size


@pytest.mark.parametrize("text", ["", "G", "-1", "10X", "ten"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(CallerError, match=r"Invalid --max-bytes .* Use 500M"):
        read_size(text, option="--max-bytes")


@pytest.mark.parametrize(("text", "speed"), [("10x", 10.0), ("0.5X", 0.5), ("2", 2.0), ("max", None)])
def test_a_speed_is_read(text: str, speed: float | None) -> None:
    assert read_speed(text, option="--speed") == speed


@pytest.mark.parametrize("text", ["", "0x", "-1x", "fast", "x"])
def test_what_is_no_speed_is_refused(text: str) -> None:
    with pytest.raises(CallerError, match=r"Invalid --speed .* Use 10x, 0.5x, or max"):
        read_speed(text, option="--speed")
