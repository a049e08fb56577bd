"""Durations, sizes, timestamps, rates and counts as people read them."""

from datetime import UTC, timedelta, timezone

import pytest

from celeriac.views.format import (
    format_count,
    format_duration,
    format_iso,
    format_percent,
    format_rate,
    format_size,
    format_time,
    format_timestamp,
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
        (119.7, "2 min"),
        (59.98, "1 min"),
        (7500.0, "2 h 5 min"),
        (3599.9, "1 h"),
        (90000.0, "1 d 1 h"),
        (1e9, "11,574 d 1 h"),
    ],
)
def test_format_duration_shows_three_significant_digits(seconds: float | None, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1 KiB"),
        (1_572_864, "1.5 MiB"),
        (5 * 2**40, "5 TiB"),
        (2**60, "1,024 PiB"),
    ],
)
def test_format_size_uses_the_largest_binary_unit(size: int | None, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize("at", [None, float("nan"), float("inf"), -1e300, 1e300])
def test_invalid_timestamps_are_unknown(at: float | None) -> None:
    assert format_timestamp(at) == format_time(at) == "-"


def test_timestamps_name_their_time_zone() -> None:
    at, paris = 1_790_002_800.25, timezone(timedelta(hours=2), "CEST")

    assert format_timestamp(at) == "2026-09-21 15:00:00 UTC"
    assert format_timestamp(at, paris) == "2026-09-21 17:00:00 CEST"
    assert (format_time(at, UTC), format_time(at, paris)) == ("15:00:00.250", "17:00:00.250")


@pytest.mark.parametrize("text", ["2026-09-21T15:00:00Z", "2026-09-21T17:00:00.250+02:00"])
def test_format_iso_converts_to_utc(text: str) -> None:
    assert format_iso(text) == "2026-09-21 15:00:00 UTC"


def test_counts_rates_and_shares() -> None:
    assert (format_count(1234567), format_count(None)) == ("1,234,567", "-")
    assert (format_rate(0.0), format_rate(3.214), format_rate(12345.6)) == ("0/s", "3.21/s", "12,346/s")
    assert (format_percent(0.125), format_percent(None)) == ("12.5 %", "-")


def test_callers_choose_the_text_for_unknown_values() -> None:
    formats = (format_count, format_duration, format_iso, format_percent, format_rate, format_size)

    assert {each(None, unknown="") for each in (*formats, format_time, format_timestamp)} == {""}
