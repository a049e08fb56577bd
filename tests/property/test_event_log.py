"""Whatever a log went through, it has the rows that a plain list of them says it should."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from celeriac.model.events import Event, Failed, Received
from celeriac.store.columns import event_moment
from celeriac.store.event_log import EventLog
from celeriac.store.segment import Segment
from celeriac.store.upkeep import apply_retention, merge_small, verify
from tests.event_logs import HOUR_AT, failed, heartbeat, received, seal, started, unsealed
from tests.property.effort import ON_DISK

HOUR = 3600.0
#: Long after all of it.
LATER = HOUR_AT + 100 * HOUR
_urls = (f"memory://property/{number}" for number in count())


@dataclass
class Row:
    """An event, as a list of them would have it."""

    recorder: str
    number: int
    event: Event
    is_sealed: bool
    #: Rows are read by this, then by recorder and number.
    key: float


@dataclass
class Draft:
    """What a log is made of: for each recorder files of events, of which the last few are not sealed."""

    files: dict[str, list[list[Event]]]
    unsealed: dict[str, int]
    rows: list[Row] = field(default_factory=list)

    def write(self, url: str, spool: Path) -> None:
        """Make the log, and the list that it is compared with."""
        for recorder, files in self.files.items():
            number, key = 1, 0.0
            for place, events in enumerate(files, 1):
                is_sealed = place <= len(files) - self.unsealed[recorder]
                if is_sealed:
                    seal(url, events, recorder=recorder, first=number)
                else:
                    unsealed(
                        spool.parent,
                        [events[:1], events[1:]] if events[1:] else [events],
                        recorder=recorder,
                        first=number,
                    )
                for event in events:
                    key = max(key, event.local_received or 0.0)
                    self.rows.append(Row(recorder, number, event, is_sealed, key))
                    number += 1
        self.rows.sort(key=lambda row: (row.key, row.recorder, row.number))


def _events(step: st.SearchStrategy[float]) -> st.SearchStrategy[list[list[Event]]]:
    """Return files of events; from one to the next the clock goes on by a step."""
    uuids = st.sampled_from(("t1", "t2", "t3"))
    names = st.sampled_from(("shop.pay", "mail.send", None))
    hosts = st.sampled_from(("celery@a", "celery@b"))
    kinds = st.one_of(
        st.tuples(st.just(started), st.fixed_dictionaries({"uuid": uuids})),
        st.tuples(st.just(failed), st.fixed_dictionaries({"uuid": uuids})),
        st.tuples(st.just(received), st.fixed_dictionaries({"uuid": uuids, "name": names})),
        st.tuples(st.just(heartbeat), st.fixed_dictionaries({"hostname": hosts})),
    )
    files = st.lists(st.lists(st.tuples(kinds, step), min_size=1, max_size=3), min_size=1, max_size=4)
    return files.map(_timed)


def _timed(files: list[list[tuple[tuple[Any, dict[str, Any]], float]]]) -> list[list[Event]]:
    at = 0.0
    made: list[list[Event]] = []
    for file in files:
        made.append([])
        for (kind, fields), step in file:
            at = max(0.0, at + step)
            made[-1].append(kind(at=at, **fields))
    return made


@st.composite
def drafts(draw: st.DrawFn, *, is_steady: bool = True) -> Draft:
    steps = [0.0, 0.25, 7.0, 900.0, HOUR, 3 * HOUR] + ([] if is_steady else [-5.0, -2 * HOUR])
    files = {
        recorder: draw(_events(st.sampled_from(steps)))
        for recorder in draw(st.sampled_from((("a",), ("a", "b"), ("a", "b", "c"))))
    }
    waiting = {recorder: draw(st.integers(0, 2)) for recorder in files}
    return Draft(files, {recorder: min(waiting[recorder], len(files[recorder])) for recorder in files})


@contextmanager
def written(draft: Draft) -> Iterator[EventLog]:
    """Make a log for as long as it is looked at."""
    draft.rows.clear()
    with TemporaryDirectory() as folder:
        spool = Path(folder) / "spool"
        log = EventLog(next(_urls), spool=spool)
        draft.write(log.place.url, spool)
        yield log
        for name in log.place.names(""):
            log.place.remove(name)


def expected(rows: Sequence[Row]) -> list[tuple[str, int]]:
    return [(row.recorder, row.number) for row in rows]


def found(log: EventLog, **asked: Any) -> list[tuple[str, int]]:
    columns = ["recorder", "sequence"]
    return [
        (row["recorder"], row["sequence"])
        for batch in log.batches(**asked, columns=columns)
        for row in batch.to_pylist()
    ]


# -- reading


@ON_DISK
@given(drafts(is_steady=False))
def test_every_row_is_read_once_in_the_order_of_receipt(draft: Draft) -> None:
    with written(draft) as log:
        numbers, events = found(log), list(log.read())

        assert numbers == expected(draft.rows)
        assert events == [row.event for row in draft.rows]
        assert log.damage == []


@st.composite
def selections(draw: st.DrawFn) -> dict[str, Any]:
    moment = st.sampled_from([HOUR_AT + at for at in (0.0, 0.25, 0.5, 7.0, 7.25, 900.0, HOUR, 2 * HOUR)])
    since, until = sorted((draw(moment), draw(moment)))
    asked = {
        "since": since,
        "until": until,
        "types": draw(st.sampled_from((("task-*",), ("*-failed", "worker-*"), ("x",)))),
        "worker": draw(st.sampled_from(("celery@*", "*@b", "celery@web1"))),
        "task": draw(st.sampled_from(("*", "shop.*", "t1"))),
    }
    # One or two: more of them leave nothing to look at.
    chosen = draw(st.lists(st.sampled_from(("task", "until", "since", "types", "worker")), max_size=2))
    return {name: asked[name] for name in chosen}


def selected(rows: Sequence[Row], asked: dict[str, Any]) -> list[Row]:
    """Return the rows that are asked for, looked at one by one."""
    kept: list[Row] = []
    heard: set[str] = set()
    since, until = asked.get("since", 0.0), asked.get("until", LATER)
    for row in rows:
        event, task = row.event, asked.get("task")
        uuid = str(event.get("uuid", ""))
        if task is not None:
            if isinstance(event, Received) and event.name is not None and fnmatchcase(event.name, task):
                heard.add(uuid)
            if uuid not in (*heard, task):
                continue
        fits = any(fnmatchcase(event.type, glob) for glob in asked.get("types", ("*",)))
        fits = fits and fnmatchcase(event.hostname, asked.get("worker", "*"))
        if fits and since <= event_moment(event) <= until:
            kept.append(row)
    return kept


@ON_DISK
@given(drafts(), selections())
def test_what_is_selected_is_what_a_look_at_each_row_selects(draft: Draft, asked: dict[str, Any]) -> None:
    # What a segment that is not opened would have taught of names is not known.
    is_blind = "task" in asked and asked["task"] != "t1" and "since" in asked
    with written(draft) as log:
        if is_blind:
            asked = {name: value for name, value in asked.items() if name not in ("since", "until")}

        rows = selected(draft.rows, asked)

        assert found(log, **asked) == expected(rows)
        assert list(log.read(**asked)) == [row.event for row in rows]


# -- upkeep


@ON_DISK
@given(drafts(is_steady=False), st.sampled_from((1, 20_000, 40_000, 10**9)))
def test_merging_changes_no_row_and_no_order(draft: Draft, target: int) -> None:
    with written(draft) as log:
        before = len(log.segments())

        report = merge_small(log, now=LATER, target_bytes=target)

        assert found(log) == expected(draft.rows)
        assert len(log.segments()) == before - report.merged + report.made
        assert verify(log).findings == []


def newest(segment: Segment) -> float:
    """Return the latest receipt that the name of a segment allows for."""
    _, date, hour, _ = segment.path.split("/")
    begin = datetime.fromisoformat(f"{date.removeprefix('date=')}T{hour.removeprefix('hour=')}:00:00+00:00")
    end = begin.timestamp() + HOUR
    return min(max(segment.end_at, end), end + HOUR)


def kept_by_age(
    rows: Sequence[Row], segments: Sequence[Segment], keep: float, keep_failures: float, now: float
) -> list[Row]:
    """Return the rows that should live, looked at one by one."""
    bad = {row.event.uuid for row in rows if isinstance(row.event, Failed)}
    kept: list[Row] = []
    for row in rows:
        if not row.is_sealed:
            kept.append(row)
            continue
        (segment,) = (
            each
            for each in segments
            if each.recorder == row.recorder and each.first <= row.number <= each.last
        )
        age = now - newest(segment)
        lives = keep_failures if row.event.get("uuid") in bad else keep
        if age <= lives:
            kept.append(row)
    return kept


runs = st.lists(
    st.tuples(st.sampled_from((0.0, 0.5, 1.0, 2.5, 4.0, 9.0)), st.booleans()), min_size=1, max_size=3
)


@ON_DISK
@given(
    drafts(),
    st.sampled_from((0.0, HOUR, 3 * HOUR)),
    st.sampled_from((0.0, 2 * HOUR, 50 * HOUR)),
    runs,
)
def test_after_retention_exactly_the_rows_that_should_live_are_there(
    draft: Draft, keep: float, longer: float, times: list[tuple[float, bool]]
) -> None:
    with written(draft) as log:
        now, rows = HOUR_AT, list(draft.rows)
        for hours, is_merged in times:
            now += hours * HOUR
            if is_merged:
                merge_small(log, now=now)
            rows = kept_by_age(rows, log.segments(), keep, keep + longer, now)

            report = apply_retention(log, keep=keep, keep_failures=keep + longer, now=now)

            assert sorted(found(log)) == sorted(expected(rows))
            assert (log.damage, report.damage, verify(log).findings) == ([], [], [])


@ON_DISK
@given(drafts(), st.integers(0, 200_000))
def test_after_retention_by_size_the_rest_fits_and_nothing_younger_went(draft: Draft, limit: int) -> None:
    with written(draft) as log:
        before = log.segments()

        apply_retention(log, keep=None, max_bytes=limit, now=LATER)

        after = log.segments()
        gone = [segment for segment in before if segment not in after]
        assert sum(segment.size for segment in after) <= limit
        hours = [segment.path.rpartition("/")[0] for segment in gone]
        assert all(segment.path.rpartition("/")[0] >= max(hours) for segment in after if hours)
        assert not gone or sum(segment.size for segment in after) + max(each.size for each in gone) > limit
        assert (log.damage, verify(log).findings) == ([], [])


# -- damage


@ON_DISK
@given(drafts(), st.data())
def test_whatever_happens_to_one_segment_is_found_and_costs_no_other_row(draft: Draft, data: Any) -> None:
    with written(draft) as log:
        segments = log.segments()
        if not segments:
            return
        segment = data.draw(st.sampled_from(segments))
        content = log.place.read(segment.path)
        at = data.draw(st.integers(0, len(content) - 1))
        flipped = bytes([content[at] ^ (1 << data.draw(st.integers(0, 7)))])
        damage = {
            "flip": content[:at] + flipped + content[at + 1 :],
            "truncate": content[:at],
            "zero": content[:at] + bytes(len(content) - at),
            "remove": None,
        }[data.draw(st.sampled_from(("flip", "truncate", "zero", "remove")))]
        if damage is None:
            log.place.remove(segment.path)
        else:
            log.place.write(segment.path, damage)

        read, report = found(log), verify(log)

        mine = set(range(segment.first, segment.last + 1))
        left = [row for row in draft.rows if row.recorder != segment.recorder or row.number not in mine]
        if damage == content:
            left = draft.rows
        assert read == expected(left)
        # The last one of a recorder leaves no hole.
        is_unseen = damage is None and not any(
            row.recorder == segment.recorder and row.number > segment.last for row in draft.rows
        )
        is_sound = is_unseen or damage == content
        assert (report.is_sound, not log.damage) == (is_sound, is_sound)
