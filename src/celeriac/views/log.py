"""Rows for what a log holds, and for what is wrong with it."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, tzinfo
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from celeriac.views.format import format_size
from celeriac.views.text import number_text, visible
from celeriac.views.unit import Bytes, Count, Timestamp

if TYPE_CHECKING:
    from celeriac.store.segment import Segment
    from celeriac.store.upkeep import LogStat, Verified

__all__ = [
    "FindingRow",
    "HourRow",
    "RecorderRow",
    "SegmentRow",
    "count_text",
    "finding_rows",
    "hour_rows",
    "moment_text",
    "recorder_rows",
    "segment_rows",
    "stat_dict",
    "stat_lines",
    "type_rows",
    "verified_dict",
    "verified_text",
]

_HOUR: Final = re.compile(r"date=(\d{4}-\d\d-\d\d)/hour=(\d\d)/")
#: The type of the events that tell of times when nobody listened.
_GAP: Final = "cluster-gap"
#: Types that are shown by name; a peer may make up any number of them.
_MOST_TYPES: Final = 40
#: Said of how many events several recorders have.
_EACH: Final = ", all recorders added up: one that two of them saw is there twice"


class HourRow(NamedTuple):
    """What one recorder received in an hour. Every text is safe to show; moments are ISO 8601 in UTC."""

    #: Of the first event of each segment; the hour is one of UTC, as in the folders of a log.
    hour: str
    recorder: str
    segments: Count
    events: Count
    bytes: Bytes
    #: The numbers that its recorder gave to the first event and the last.
    first: int
    last: int
    #: When the events happened, by the clocks of their senders.
    since: Timestamp | None
    until: Timestamp | None


class SegmentRow(NamedTuple):
    """One sealed file. Every text is safe to show; moments are ISO 8601 in UTC."""

    hour: str
    recorder: str
    #: How many times it was merged or thinned out.
    generation: int
    events: Count
    bytes: Bytes
    first: int
    last: int
    since: Timestamp | None
    until: Timestamp | None
    path: str


class RecorderRow(NamedTuple):
    """What there is of one recorder. Every text is safe to show; moments are ISO 8601 in UTC."""

    recorder: str
    segments: Count
    events: Count
    #: Events that are recorded, and not in a segment yet.
    unsealed: Count
    bytes: Bytes
    first: int
    last: int
    since: Timestamp | None
    until: Timestamp | None


class FindingRow(NamedTuple):
    """Something that is not as it should be. Every text is safe to show."""

    #: ``damage`` if events are lost by it, or may be; else ``note``.
    weight: str
    kind: str
    where: str
    what: str
    fix: str


def segment_rows(segments: "Iterable[Segment]") -> list[SegmentRow]:
    """Return a row for each segment, by hour, recorder and number."""
    rows = [
        SegmentRow(
            hour=_hour_of(each.path),
            recorder=visible(each.recorder, 90),
            generation=each.generation,
            events=each.rows,
            bytes=each.size,
            first=each.first,
            last=each.last,
            since=moment_text(each.begin_at, UTC),
            until=moment_text(each.end_at, UTC),
            path=visible(each.path, 400),
        )
        for each in segments
    ]
    return sorted(rows, key=lambda row: (row.hour, row.recorder, row.first, row.path))


def hour_rows(segments: "Iterable[Segment]") -> list[HourRow]:
    """Return a row for each hour and recorder."""
    rows = []
    for (hour, recorder), group in groupby(segment_rows(segments), lambda row: (row.hour, row.recorder)):
        parts = list(group)
        rows.append(
            HourRow(
                hour=hour,
                recorder=recorder,
                segments=len(parts),
                events=sum(part.events for part in parts),
                bytes=sum(part.bytes for part in parts),
                first=min(part.first for part in parts),
                last=max(part.last for part in parts),
                since=min((part.since for part in parts if part.since), default=None),
                until=max((part.until for part in parts if part.until), default=None),
            )
        )
    return rows


def recorder_rows(stat: "LogStat") -> list[RecorderRow]:
    """Return a row for each recorder."""
    return [
        RecorderRow(
            recorder=visible(each.recorder, 90),
            segments=each.segments,
            events=each.rows + each.unsealed_rows,
            unsealed=each.unsealed_rows,
            bytes=each.bytes + each.unsealed_bytes,
            first=each.first,
            last=each.last,
            since=moment_text(each.begin_at, UTC),
            until=moment_text(each.end_at, UTC),
        )
        for each in stat.recorders
    ]


def stat_lines(stat: "LogStat", types: Mapping[str, int] | None) -> list[tuple[str, str]]:
    """Return what is known of a log, by name; ``types`` are counted only if somebody read all of it."""
    per_event = stat.bytes_per_event
    lines = {
        "log": visible(stat.url),
        "events": f"{stat.rows:,}" + (_EACH if len(stat.recorders) > 1 else ""),
        "bytes": f"{stat.bytes:,} ({format_size(stat.bytes)})",
        "bytes per event": "" if per_event is None else number_text(round(per_event, 1)),
        "first": moment_text(stat.begin_at) or "",
        "last": moment_text(stat.end_at) or "",
        "segments": f"{stat.segments:,}",
        "gaps": "" if types is None else f"{types.get(_GAP, 0):,}",
        "removed": _counted(stat.removed, "event", ", by retention"),
        "trimmed": _counted(stat.trimmed, "event", ", of which those of tasks that failed are kept"),
        "missing": _counted(stat.missing, "event", "; celeriac log verify lists them"),
        "set aside": _counted(stat.set_aside, "file", ", in damaged/"),
        "superseded": _counted(stat.superseded, "file", " left over; celeriac log compact removes such"),
        "foreign": _counted(stat.foreign, "file", ", none of ours"),
    }
    return [(name, text) for name, text in lines.items() if text]


def stat_dict(stat: "LogStat", types: Mapping[str, int] | None) -> dict[str, object]:
    """Return what is known of a log, for JSON."""
    told: dict[str, object] = {
        "log": stat.url,
        "events": stat.rows,
        "bytes": stat.bytes,
        "bytes_per_event": stat.bytes_per_event,
        "first": moment_text(stat.begin_at, UTC),
        "last": moment_text(stat.end_at, UTC),
        "segments": stat.segments,
        "removed": stat.removed,
        "trimmed": stat.trimmed,
        "missing": stat.missing,
        "set_aside": stat.set_aside,
        "superseded": stat.superseded,
        "foreign": stat.foreign,
        "recorders": [row._asdict() for row in recorder_rows(stat)],
    }
    return told if types is None else told | {"gaps": types.get(_GAP, 0), "types": dict(type_rows(types))}


def type_rows(types: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return how many events there are of each type, the most frequent first; the rare ones together."""
    ordered = sorted(types.items(), key=lambda item: (-item[1], item[0]))
    rows = [(visible(name, 60), count) for name, count in ordered[:_MOST_TYPES]]
    rest = sum(count for _, count in ordered[_MOST_TYPES:])
    return [*rows, ("other", rest)] if rest else rows


def finding_rows(verified: "Verified") -> list[FindingRow]:
    """Return what was found, what costs events first."""
    rows = [
        FindingRow(
            weight="damage" if each.is_harmful else "note",
            kind=each.kind,
            where=visible(each.where, 400),
            what=visible(each.what, 400),
            fix=visible(each.fix, 400),
        )
        for each in verified.findings
    ]
    return sorted(rows, key=lambda row: row.weight)


def verified_text(verified: "Verified") -> str:
    """Return in one line what was looked at, and how it is."""
    damage = sum(each.is_harmful for each in verified.findings)
    looked = f"{count_text(verified.rows, 'event')} in {count_text(verified.segments, 'segment')}"
    looked += f" and {count_text(verified.unsealed, 'file')} not sealed yet, {format_size(verified.bytes)}"
    return f"{looked}: {'sound' if verified.is_sound else f'{damage} damaged'}"


def verified_dict(verified: "Verified") -> dict[str, object]:
    """Return what was looked at and what was found, for JSON."""
    return {
        "is_sound": verified.is_sound,
        "events": verified.rows,
        "segments": verified.segments,
        "unsealed": verified.unsealed,
        "bytes": verified.bytes,
        "findings": [row._asdict() for row in finding_rows(verified)],
    }


def moment_text(at: float | None, zone: tzinfo | None = None) -> str | None:
    """Return a moment as ISO 8601 to the second, in the zone given or else our own; None for none."""
    if not at:
        return None
    try:
        return datetime.fromtimestamp(at, UTC).astimezone(zone).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):  # a peer may say any number
        return None


def count_text(count: int, what: str) -> str:
    """Return how many there are of something: ``1 file``, ``2 files``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _counted(count: int, what: str, told: str) -> str:
    return f"{count_text(count, what)}{told}" if count else ""


def _hour_of(path: str) -> str:
    found = _HOUR.search(path)
    return "" if found is None else f"{found[1]}T{found[2]}"
