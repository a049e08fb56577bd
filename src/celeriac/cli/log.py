"""``celeriac log``: the contents, integrity and retention of an event log."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.format_option import PLAIN, Output
from celeriac.cli.log_reading import LogPlace, open_log, say_damage
from celeriac.cli.option import add_command, add_common
from celeriac.cli.progress import Progress
from celeriac.cli.session import Session
from celeriac.cli.time_range import Since, Until, read_range
from celeriac.core.retention import beyond_size, merges, plan
from celeriac.errors import CallerError
from celeriac.store.new_file import new_file
from celeriac.views.format import format_size
from celeriac.views.log import (
    HourRow,
    RecorderRow,
    SegmentRow,
    count_text,
    finding_rows,
    hour_rows,
    recorder_rows,
    segment_rows,
    stat_dict,
    stat_lines,
    type_rows,
    verified_dict,
    verified_text,
)
from celeriac.views.measure import read_size, read_span

if TYPE_CHECKING:
    from celeriac.store.event_log import EventLog

__all__ = ["log"]

#: How large a segment becomes by merging: more than half a million typical events.
_TARGET_BYTES: Final = 16 * 1024 * 1024
_STDOUT: Final = "-"

log = typer.Typer(no_args_is_help=True)
add_common(
    log,
    help="Manage an event log: contents, integrity, retention, export.",
)


class Form(StrEnum):
    """What an export is written as."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


All = Annotated[bool, typer.Option("--all", help="One row per segment, with its path.")]
Quick = Annotated[
    bool,
    typer.Option("--quick", help="Read file names only: no counts of event types and gaps."),
]
SetAside = Annotated[
    bool,
    typer.Option("--set-aside", help="Move damaged segments to damaged/, so that they are not read again."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")]
Keep = Annotated[
    str | None,
    typer.Option(
        "--keep", metavar="SPAN", help="Retention of events, such as 90d. Default: the setting log_keep."
    ),
]
KeepFailures = Annotated[
    str | None,
    typer.Option(
        "--keep-failures",
        metavar="SPAN",
        help="Retention of events of failed tasks, such as 1y. Default: the setting log_keep_failures.",
    ),
]
MaxBytes = Annotated[
    str | None,
    typer.Option(
        "--max-bytes",
        metavar="SIZE",
        help="Maximum size, such as 10G; the oldest events go first. Default: the setting log_max_bytes.",
    ),
]
Format_ = Annotated[Form, typer.Option("--format", "-o", help="Output format.")]
Target = Annotated[str, typer.Option("--output", metavar="FILE", help="Output file; - for stdout.")]
Types = Annotated[
    list[str] | None,
    typer.Option("--type", "-t", metavar="GLOB", help="Only this event type, such as 'task-*'. Repeatable."),
]
TaskPattern = Annotated[
    str | None, typer.Option("--task", metavar="GLOB", help="Only tasks with this name or id.")
]
WorkerPattern = Annotated[
    str | None, typer.Option("--worker", metavar="GLOB", help="Only events of this node.")
]


@add_command(log, "ls")
def ls(
    session: Session,
    *,
    place: LogPlace = None,
    since: Since = None,
    until: Until = None,
    is_each: All = False,
    out: Output = PLAIN,
) -> Code:
    """List sealed segments: events and size, by hour and recorder.

    The hour (UTC) is the one in which the first event of a segment was received. Only file names are read.

    For example:
      celeriac log ls
      celeriac log ls s3://bucket/history --since 1d
      celeriac log ls --all --json | jq -r '.[].path'
    """
    begin_at, end_at = read_range(since, until)
    history = open_log(session, place)
    segments = history.segments(begin_at, end_at)
    if is_each:
        out.write_rows(SegmentRow, segment_rows(segments))
    else:
        out.write_rows(HourRow, hour_rows(segments))
    if not segments:
        from celeriac.store.upkeep import stat as stat_of  # noqa: PLC0415  (needs the extra)

        when = "yet" if begin_at is None and end_at is None else "in this time range"
        unsealed = sum(each.unsealed_rows for each in stat_of(history).recorders)
        output.say(f"No sealed segments {when}; {count_text(unsealed, 'event')} not sealed yet")
    return Code.OK


@add_command(log, "stat")
def stat(session: Session, *, place: LogPlace = None, quick: Quick = False, out: Output = PLAIN) -> Code:
    """Show the size of an event log and its contents: events, recorders, gaps, event types.

    For example:
      celeriac log stat
      celeriac log stat --quick --json | jq .bytes_per_event
    """
    history = open_log(session, place)  # first: it says so if the extra is missing
    from celeriac.store.upkeep import stat as stat_of  # noqa: PLC0415  (needs the extra)

    told = stat_of(history)
    types = None if quick else _types(history)
    if not out.write_object(stat_dict(told, types)):
        for name, text in stat_lines(told, types):
            output.write(f"{name:<15}  {text}")
        output.write("")
        out.write_rows(RecorderRow, recorder_rows(told))
        if types:
            output.write("")
            output.write_table(("TYPE", "EVENTS"), type_rows(types), {})
    return say_damage(() if quick else history.damage)


@add_command(log, "verify")
def verify(
    session: Session, *, place: LogPlace = None, set_aside: SetAside = False, out: Output = PLAIN
) -> Code:
    """Verify an event log: read every byte, and name each problem with its fix.

    Checks checksums, rows, and the sequence numbers of each recorder. The exit code is 1 if events are or
    may be lost. Leftovers without loss are notes.

    For example:
      celeriac log verify
      celeriac log verify s3://bucket/history --json | jq '.findings[].fix'
    """
    history = open_log(session, place)  # first: it says so if the extra is missing
    from celeriac.store.upkeep import verify as verified_of  # noqa: PLC0415  (needs the extra)

    with Progress("verifying") as progress:
        verified = verified_of(history, set_aside=set_aside, progress=progress)
    if not out.write_object(verified_dict(verified)):
        for row in finding_rows(verified):
            output.write(f"{row.weight}: {row.kind}: {row.where}: {row.what}")
            output.write(f"  fix: {row.fix}")
        output.write(verified_text(verified))
    return Code.OK if verified.is_sound else Code.FAILED


@add_command(log, "compact")
def compact(
    session: Session,
    *,
    place: LogPlace = None,
    dry_run: DryRun = False,
    keep: Keep = None,
    keep_failures: KeepFailures = None,
    max_bytes: MaxBytes = None,
    out: Output = PLAIN,
) -> Code:
    """Merge small segments, and remove events beyond their retention.

    Retention is set by log_keep, log_keep_failures and log_max_bytes, or by options; 0 removes the limit.
    Recorders and readers may run meanwhile. Run it once a day.

    For example:
      celeriac log compact --dry-run
      celeriac log compact --keep 90d --keep-failures 1y --max-bytes 10G
    """
    settings = session.app.conf
    limits: dict[str, Any] = {
        "keep": settings.log_keep if keep is None else read_span(keep, option="--keep"),
        "keep_failures": settings.log_keep_failures
        if keep_failures is None
        else read_span(keep_failures, option="--keep-failures"),
        "max_bytes": settings.log_max_bytes
        if max_bytes is None
        else read_size(max_bytes, option="--max-bytes"),
    }
    history = open_log(session, place)
    done, damage = (_foretold if dry_run else _compacted)(history, limits, now=time())
    if not out.write_object({"is_dry_run": dry_run, **done, "damage": damage}):
        _tell_compacted(done, is_foretold=dry_run)
        if limits["keep"] is None and limits["max_bytes"] is None:
            output.say("No retention: set log_keep or log_max_bytes, or use --keep or --max-bytes")
    return say_damage(damage)


@add_command(log, "export")
def export(
    session: Session,
    *,
    place: LogPlace = None,
    form: Format_ = Form.JSONL,
    target: Target = _STDOUT,
    since: Since = None,
    until: Until = None,
    types: Types = None,
    task: TaskPattern = None,
    worker: WorkerPattern = None,
) -> Code:
    """Export events of an event log: JSON lines, CSV, or one Parquet file.

    Values are redacted as in the log. A file appears whole or not at all, readable by you alone. Damaged
    parts are named, all else is written, and the exit code is 1.

    For example:
      celeriac log export --since 1d --type 'task-*' | jq .runtime
      celeriac log export -o csv --output failures.csv --type task-failed
      celeriac log export s3://bucket/history -o parquet --output november.parquet --since 2026-11-01
    """
    if form is Form.PARQUET and target == _STDOUT and sys.stdout.isatty():
        raise CallerError("Cannot write Parquet to a terminal. Use --output FILE")
    begin_at, end_at = read_range(since, until)
    history = open_log(session, place)  # first: it says so if the extra is missing
    from celeriac.store.upkeep import export as exported  # noqa: PLC0415  (needs the extra)

    with Progress("exporting") as progress, _opened(target) as file:
        parts = exported(
            history,
            form.value,
            since=begin_at,
            until=end_at,
            types=types or (),
            task=task,
            worker=worker,
            progress=progress,
        )
        for part in parts:
            file.write(part)
        file.flush()
    return say_damage(history.damage)


def _tell_compacted(done: dict[str, int], *, is_foretold: bool) -> None:
    verb = "would be " if is_foretold else ""
    merged = f"{count_text(done['merged'], 'segment')} {verb}merged into {done['made']:,}"
    output.write(merged if done["merged"] else f"{merged}: segments of one hour are merged once it is over")
    removed = f"{count_text(done['dropped'], 'segment')} {verb}removed"
    output.write(f"{removed}, and {done['trimmed']:,} {verb}trimmed to failures")
    gone = f"{count_text(done['events_removed'], 'event')} and {format_size(done['bytes_freed'])}"
    if not is_foretold:
        output.write(f"{gone} removed")
    elif done["trimmed"]:
        output.write(f"{gone} would be removed, and the events without a failure of trimmed segments")
    else:
        output.write(f"{gone} would be removed")


def _types(history: "EventLog") -> Counter[str]:
    """Count the events of each type."""
    counts: Counter[str] = Counter()
    with Progress("counting") as progress:
        for batch in history.batches(columns=["type"], progress=progress):
            for each in batch.column("type").value_counts().to_pylist():
                counts[each["values"]] += each["counts"]
    return counts


def _compacted(
    history: "EventLog", limits: dict[str, Any], *, now: float
) -> tuple[dict[str, int], list[str]]:
    from celeriac.store.upkeep import apply_retention, merge_small  # noqa: PLC0415  (needs the extra)

    # In this order: what takes less room by being merged need not go for its size.
    with Progress("merging") as progress:
        merged = merge_small(history, now=now, target_bytes=_TARGET_BYTES, progress=progress)
    with Progress("removing") as progress:
        retained = apply_retention(history, **limits, now=now, progress=progress)
    done = {
        "merged": merged.merged,
        "made": merged.made,
        "dropped": retained.dropped,
        "trimmed": retained.trimmed,
        "events_removed": retained.rows_removed,
        "bytes_freed": merged.bytes_before - merged.bytes_after + retained.bytes_removed,
    }
    return done, list(dict.fromkeys([*merged.damage, *retained.damage]))


def _foretold(history: "EventLog", limits: dict[str, Any], *, now: float) -> tuple[dict[str, int], list[str]]:
    """Return what would be done, by the names of the segments there are."""
    catalogue = history.catalogue()
    pieces = catalogue.pieces()
    runs = merges(pieces, target_bytes=_TARGET_BYTES, now=now, gone=catalogue.marks["nothing"])
    found = plan(
        pieces,
        keep=limits["keep"],
        keep_failures=limits["keep_failures"],
        now=now,
        trimmed=catalogue.marks["failures"],
    )
    left = [piece for piece in pieces if piece not in found.drop]
    too_much = beyond_size(left, max_bytes=limits["max_bytes"])
    rows = {segment.path: segment.rows for segment in catalogue.segments}
    going = [*found.drop, *too_much]
    done = {
        "merged": sum(map(len, runs)),
        "made": len(runs),
        "dropped": len(going),
        "trimmed": len([piece for piece in found.trim if piece not in too_much]),
        # Of what is dropped: how much of the rest is left is known only once it is read.
        "events_removed": sum(rows[piece.path] for piece in going),
        "bytes_freed": sum(piece.size for piece in going),
    }
    return done, []


@contextmanager
def _opened(target: str) -> Iterator[BinaryIO]:
    """Have somewhere to write to; a file has its name only once all is in it."""
    if target == _STDOUT:
        yield sys.stdout.buffer
        return
    with new_file(Path(target), fix="name another with --output") as file:
        yield file
