"""What is too old or too much goes, failures later, and that it went is no loss."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from celeriac.model.events import Started
from celeriac.store.event_log import EventLog
from celeriac.store.upkeep import apply_retention, merge_small, verify
from tests.component.store.test_compaction import Deadly, Killed, with_a_new_column
from tests.event_logs import HOUR_AT, damage_at, failed, heartbeat, received, seal, started, succeeded, times
from tests.event_logs import unsealed as write_ahead

HOUR = 3600.0
DAY = 24 * HOUR


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    """Three hours: a task that fails in the second, one that succeeds, and a worker."""
    root = tmp_path / "log"
    seal(root, [received("bad", at=1), received("good", at=2), heartbeat(at=3)])
    seal(root, [failed("bad", at=HOUR), succeeded("good", at=HOUR + 1)], first=4)
    seal(root, [heartbeat(at=2 * HOUR)], first=6)
    return EventLog(root)


def now(hours: float) -> float:
    """Return a moment at which all of the first so many hours is older than a day."""
    return HOUR_AT + hours * HOUR + DAY + 1


def test_what_is_young_enough_stays(log: EventLog) -> None:
    report = apply_retention(log, keep=DAY, now=now(1) - 1)

    assert report == (0, 0, 0, 0, [])
    assert len(list(log.read())) == 6


def test_hours_go_as_they_become_too_old(log: EventLog) -> None:
    size = log.segments()[0].size

    report = apply_retention(log, keep=DAY, now=now(1))

    assert report == (1, 0, 3, size, [])
    assert times(list(log.read())) == [HOUR, HOUR + 1, 2 * HOUR]
    assert (log.damage, verify(log).findings) == ([], [])
    assert apply_retention(log, keep=DAY, now=now(3)).dropped == 2
    assert list(log.read()) == []


def test_events_of_tasks_that_failed_stay_longer_than_all_else(log: EventLog) -> None:
    told: list[tuple[int, int]] = []

    report = apply_retention(
        log, keep=DAY, keep_failures=9 * DAY, now=now(3), progress=lambda *each: told.append(each)
    )

    assert (report.dropped, report.trimmed, report.rows_removed, report.damage) == (1, 2, 4, [])
    assert times(list(log.read())) == [1, HOUR]
    assert (log.damage, verify(log).findings) == ([], [])
    assert told[-1] == (12, 12)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_a_failure_that_is_not_sealed_yet_saves_what_was(log: EventLog) -> None:
    write_ahead(Path(log.place.url), [[failed("good", at=9 * HOUR)]], first=7)

    apply_retention(log, keep=DAY, keep_failures=9 * DAY, now=now(3))

    assert times(list(log.read())) == [1, 2, HOUR, HOUR + 1, 9 * HOUR]


def test_what_was_trimmed_is_not_read_again_and_goes_when_its_time_comes(log: EventLog) -> None:
    apply_retention(log, keep=DAY, keep_failures=9 * DAY, now=now(3))
    before = log.segments()

    again = apply_retention(log, keep=DAY, keep_failures=9 * DAY, now=now(3))

    assert (again, log.segments()) == ((0, 0, 0, 0, []), before)
    assert apply_retention(log, keep=DAY, keep_failures=9 * DAY, now=now(2) + 8 * DAY).dropped == 2
    assert list(log.read()) == []
    assert log.damage == []


def test_what_is_left_of_hours_that_were_trimmed_can_be_merged(log: EventLog) -> None:
    root = Path(log.place.url)
    for number in range(3):
        at = 5 * HOUR + number
        seal(root, [failed(f"bad{number}", at=at), started("good", at=at)], first=7 + 2 * number)
    apply_retention(log, keep=DAY, keep_failures=9 * DAY, now=now(6))

    merge_small(log, now=now(6))

    assert times(list(log.read())) == [1, HOUR, 5 * HOUR, 5 * HOUR + 1, 5 * HOUR + 2]
    assert [segment.rows for segment in log.segments()] == [1, 1, 3]
    assert (log.damage, verify(log).findings) == ([], [])
    assert apply_retention(log, keep=DAY, keep_failures=9 * DAY, now=now(6)).trimmed == 0


def test_beyond_its_size_the_oldest_of_a_log_goes(log: EventLog) -> None:
    sizes = [segment.size for segment in log.segments()]

    report = apply_retention(log, keep=None, max_bytes=sizes[1] + sizes[2], now=now(0))

    assert (report.dropped, report.bytes_removed) == (1, sizes[0])
    assert times(list(log.read())) == [HOUR, HOUR + 1, 2 * HOUR]
    assert log.damage == []


def test_while_some_of_a_log_cannot_be_read_nothing_is_trimmed(log: EventLog) -> None:
    damage_at(Path(log.place.url) / log.segments()[1].path, 60)

    report = apply_retention(log, keep=DAY, keep_failures=9 * DAY, now=now(3))

    assert (report.trimmed, report.dropped) == (0, 0)
    assert "retention removed nothing" in report.damage[-1]
    assert times(list(log.read())) == [1, 2, 3, 2 * HOUR]


def test_what_is_lost_for_good_does_not_stop_it(log: EventLog) -> None:
    (Path(log.place.url) / log.segments()[1].path).unlink()

    report = apply_retention(log, keep=DAY, keep_failures=9 * DAY, now=now(3))

    assert (report.dropped, report.damage) == (2, [])


@pytest.mark.parametrize("calls", range(8))
def test_whenever_it_is_killed_only_what_should_go_is_gone_and_the_next_run_ends_it(
    log: EventLog, calls: int
) -> None:
    url = Path(log.place.url)
    log.place = Deadly(log.place, calls)
    with pytest.raises(Killed):
        apply_retention(log, keep=DAY, keep_failures=9 * DAY, now=now(3))
    fresh = EventLog(url)

    left = times(list(fresh.read()))

    assert {1, HOUR} <= set(left)
    assert (fresh.damage, verify(fresh).is_sound) == ([], True)
    apply_retention(fresh, keep=DAY, keep_failures=9 * DAY, now=now(3))
    assert times(list(fresh.read())) == [1, HOUR]
    assert verify(fresh).findings == []


YEAR = 365 * DAY


def old_clock(event: Started, received_at: float) -> Started:
    return replace(event, local_received=received_at)


def test_what_was_received_by_a_clock_that_was_not_set_yet_is_as_old_as_its_senders_say(
    tmp_path: Path,
) -> None:
    log = EventLog(tmp_path)
    seal(tmp_path, [old_clock(started("a", at=1), 30.0), started("b", at=2)])

    before = apply_retention(log, keep=YEAR, now=HOUR_AT + 10)
    after = apply_retention(log, keep=YEAR, now=HOUR_AT + YEAR + 3 * HOUR)

    assert (before.dropped, after.dropped) == (0, 1)


def test_what_no_clock_tells_the_age_of_is_as_old_as_what_came_next_and_stays_until_there_is_such(
    tmp_path: Path,
) -> None:
    log = EventLog(tmp_path)
    nameless = replace(old_clock(started("a"), 30.0), timestamp=20.0)
    seal(tmp_path, [nameless])
    alone = apply_retention(log, keep=YEAR, now=HOUR_AT + 9 * YEAR)
    seal(tmp_path, [started("b", at=2)], first=2)

    before = apply_retention(log, keep=YEAR, now=HOUR_AT + 10)
    after = apply_retention(log, keep=YEAR, now=HOUR_AT + YEAR + 3 * HOUR)

    assert (alone.dropped, before.dropped, after.dropped) == (0, 0, 2)


def test_a_segment_with_columns_that_are_not_known_is_not_trimmed(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    seal(tmp_path, [failed("bad", at=1), succeeded("good", at=2)])
    newer = with_a_new_column(tmp_path, log.segments()[0])

    report = apply_retention(log, keep=DAY, keep_failures=9 * DAY, now=now(1))

    assert (report.trimmed, log.segments()) == (0, [newer])
    assert "upgrade Celeriac; the segment is not trimmed" in report.damage[0]


def test_events_that_are_nowhere_keep_nothing_from_being_trimmed(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    seal(tmp_path, [failed("bad", at=1), succeeded("good", at=2)], last=4)

    report = apply_retention(log, keep=DAY, keep_failures=9 * DAY, now=now(1))

    assert (report.trimmed, report.rows_removed, report.damage) == (1, 1, [])
    assert (times(list(log.read())), log.damage) == ([1], [])
