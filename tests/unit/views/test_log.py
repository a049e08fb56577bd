"""What a log consists of becomes rows, and nothing in them moves a cursor."""

from typing import Any

import pytest

from celeriac.store.segment import Segment
from celeriac.store.upkeep import Finding, LogStat, RecorderStat, Verified
from celeriac.views.log import (
    FindingRow,
    HourRow,
    RecorderRow,
    SegmentRow,
    finding_rows,
    hour_rows,
    moment_text,
    recorder_rows,
    segment_rows,
    stat_dict,
    stat_lines,
    type_rows,
    verified_dict,
    verified_text,
)

HOSTILE = "\x1b[31m\r\n\u202ex"
#: 2026-11-14T10:00Z.
TEN = 1_794_650_400.0


def segment(first: int, last: int, *, recorder: str = "web-1", hour: int = 10) -> Segment:
    path = f"events/date=2026-11-14/hour={hour:02d}/{recorder}.{first}.parquet"
    begin_at = TEN + (hour - 10) * 3600 + first
    return Segment(
        recorder, first, last, 0, last - first + 1, begin_at, begin_at + 5, 7, path, 100 * (last - first + 1)
    )


def log_stat(recorders: list[RecorderStat] | None = None, **counts: Any) -> LogStat:
    recorder = RecorderStat("web-1", 2, 90, 10, 4500, 800, 1, 100, TEN, TEN + 3600)
    usual = LogStat("s3://bucket/history", recorders or [recorder], 0, 0, 0, 0, 0, 0)
    return usual._replace(**counts)


# -- segments


def test_a_segment_is_shown_with_what_its_name_tells() -> None:
    (row,) = segment_rows([segment(1, 4)])

    assert row == SegmentRow(
        "2026-11-14T10", "web-1", 0, 4, 400, 1, 4, "2026-11-14T10:00:01+00:00", "2026-11-14T10:00:06+00:00",
        "events/date=2026-11-14/hour=10/web-1.1.parquet",
    )  # fmt: skip


def test_segments_are_shown_by_hour_then_recorder_then_number() -> None:
    given = [segment(9, 9, hour=11), segment(5, 8), segment(1, 4), segment(1, 2, recorder="app-1")]

    rows = segment_rows(given)

    assert [(row.hour[-2:], row.recorder, row.first) for row in rows] == [
        ("10", "app-1", 1), ("10", "web-1", 1), ("10", "web-1", 5), ("11", "web-1", 9),
    ]  # fmt: skip


def test_an_hour_adds_up_the_segments_of_a_recorder() -> None:
    rows = hour_rows([segment(5, 8), segment(1, 4), segment(1, 2, recorder="app-1")])

    begin, end, later = (f"2026-11-14T10:00:{second}+00:00" for second in ("01", "06", "10"))
    assert rows == [
        HourRow("2026-11-14T10", "app-1", 1, 2, 200, 1, 2, begin, end),
        HourRow("2026-11-14T10", "web-1", 2, 8, 800, 1, 8, begin, later),
    ]


def test_a_segment_that_lies_elsewhere_is_of_no_hour() -> None:
    (row,) = segment_rows([segment(1, 4)._replace(path="web-1.1.parquet")])

    assert row.hour == ""


# -- how large it is


def test_a_recorder_is_shown_with_what_is_sealed_and_what_is_not() -> None:
    assert recorder_rows(log_stat()) == [
        RecorderRow(
            "web-1", 2, 100, 10, 5300, 1, 100, "2026-11-14T10:00:00+00:00", "2026-11-14T11:00:00+00:00"
        )
    ]


def test_what_is_nothing_to_tell_is_not_told() -> None:
    names = [name for name, _ in stat_lines(log_stat(), None)]

    assert names == ["log", "events", "bytes", "bytes per event", "first", "last", "segments"]


def test_what_is_wrong_is_told_with_what_helps() -> None:
    told = dict(stat_lines(log_stat(missing=1200, set_aside=1, superseded=3), {"cluster-gap": 2}))

    assert told["gaps"] == "2"
    assert told["missing"] == "1,200 events; celeriac log verify lists them"
    assert told["set aside"] == "1 file, in damaged/"
    assert told["superseded"] == "3 files left over; celeriac log compact removes such"


def test_what_retention_left_of_some_events_is_told() -> None:
    told = dict(stat_lines(log_stat(trimmed=800, removed=1), None))

    assert told["trimmed"] == "800 events, of which those of tasks that failed are kept"
    assert told["removed"] == "1 event, by retention"


def test_programs_are_told_numbers() -> None:
    told = stat_dict(log_stat(), {"task-sent": 98, "cluster-gap": 2})

    assert (told["events"], told["bytes"], told["bytes_per_event"]) == (100, 5300, 50.0)
    assert (told["gaps"], told["types"]) == (2, {"task-sent": 98, "cluster-gap": 2})


def test_types_that_nobody_counted_are_not_told() -> None:
    assert not {"types", "gaps"} & stat_dict(log_stat(), None).keys()


def test_types_are_shown_most_frequent_first_and_the_rare_ones_together() -> None:
    types = {f"task-{number:02d}": 100 - number for number in range(50)} | {HOSTILE: 1000}

    rows = type_rows(types)

    assert rows[:2] == [("\\x1b[31m\\r\\n\\u202ex", 1000), ("task-00", 100)]
    assert len(rows) == 41
    assert rows[-1] == ("other", sum(range(51, 62)))
    assert sum(count for _, count in rows) == sum(types.values())


def test_a_log_with_nothing_in_it_has_no_size_of_an_event() -> None:
    empty = RecorderStat("web-1", 0, 0, 0, 0, 128, 0, 0, None, None)

    told = stat_dict(log_stat([empty]), None)

    assert (told["bytes_per_event"], told["first"], told["last"]) == (None, None, None)


# -- whether it is sound


def test_a_sound_log_is_told_in_one_line() -> None:
    assert verified_text(Verified(3, 1, 1200, 4096, [])) == (
        "1,200 events in 3 segments and 1 file not sealed yet, 4 KiB: sound"
    )


def test_what_costs_events_comes_first_and_is_counted() -> None:
    untidy = Finding("foreign", "events/x", "not a Celeriac segment", "move it away", is_harmful=False)
    lost = Finding("missing", HOSTILE, "events 3-7 are missing", "bring them back")
    verified = Verified(3, 0, 1200, 4096, [untidy, lost])

    first, second = finding_rows(verified)

    assert first == FindingRow(
        "damage", "missing", "\\x1b[31m\\r\\n\\u202ex", "events 3-7 are missing", "bring them back"
    )
    assert second.weight == "note"
    assert verified_text(verified).endswith(": 1 damaged")
    assert verified_dict(verified)["is_sound"] is False


def test_what_is_only_untidy_leaves_a_log_sound() -> None:
    untidy = Finding("superseded", "events/x", "it is not read", "run celeriac log compact", is_harmful=False)

    assert verified_text(Verified(1, 0, 1, 1, [untidy])).endswith(": sound")


# -- texts


@pytest.mark.parametrize("at", [None, 0.0, 1e300, float("inf"), float("nan")])
def test_a_moment_that_cannot_be_is_not_shown(at: float | None) -> None:
    assert moment_text(at) is None
