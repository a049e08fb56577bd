"""Rows for what the tables of the pipeline tell. Every text is safe to show; moments are ISO 8601 in UTC."""

from collections.abc import Iterable, Sequence
from heapq import nsmallest
from math import isfinite
from typing import Final, NamedTuple

from celeriac.errors import CallerError
from celeriac.model.answer import (
    AttemptTimes,
    Comparison,
    Spread,
    TableSize,
    Top,
    WorkerSession,
)
from celeriac.views.cell import moment_of, name_text, number_of, text_of
from celeriac.views.format import format_count, format_duration, format_percent
from celeriac.views.plot import bar, column_chart
from celeriac.views.text import number_text, visible
from celeriac.views.unit import Bytes, Count, Seconds, Share, Timestamp

__all__ = [
    "ComparisonRow",
    "LatencyRow",
    "PartRow",
    "SessionPage",
    "SessionRow",
    "TableRow",
    "TopRow",
    "comparison_rows",
    "comparison_texts",
    "latency_plot",
    "latency_rows",
    "part_rows",
    "session_page",
    "session_rows",
    "table_rows",
    "top_plot",
    "top_rows",
]

#: Measures that are counts; all but the share are durations.
_COUNTED: Final = ("attempts", "failed", "retried")
_HEIGHT: Final = 8
_RANKED_BY: Final = {"slowest": "mean run time", "failing": "failed", "retried": "retried"}


class LatencyRow(NamedTuple):
    """The attempts of a time. Durations are seconds."""

    at: Timestamp | None
    attempts: Count
    failed: Count
    retried: Count
    wait_p50: Seconds | None
    wait_p95: Seconds | None
    wait_p99: Seconds | None
    run_p50: Seconds | None
    run_p95: Seconds | None
    run_p99: Seconds | None
    run_max: Seconds | None


class PartRow(NamedTuple):
    """The attempts of a task, a worker or a queue. Durations are seconds."""

    name: str
    attempts: Count
    failed: Count
    retried: Count
    wait_p50: Seconds | None
    wait_p95: Seconds | None
    wait_p99: Seconds | None
    run_p50: Seconds | None
    run_p95: Seconds | None
    run_p99: Seconds | None
    run_max: Seconds | None


class TopRow(NamedTuple):
    """The attempts of the tasks of a name. Durations are seconds."""

    name: str
    attempts: Count
    failed: Count
    failed_share: Share | None
    retried: Count
    run_mean: Seconds | None
    run_p50: Seconds | None
    run_p95: Seconds | None
    run_p99: Seconds | None
    run_max: Seconds | None


class ComparisonRow(NamedTuple):
    """One measure of two sides; ``ratio`` is the right by the left."""

    measure: str
    left: float | None
    right: float | None
    ratio: float | None


class SessionRow(NamedTuple):
    """A time that a worker process was there."""

    worker: str
    pid: int | None
    begin: Timestamp | None
    end: Timestamp | None
    ending: str
    restart: str
    active_max: int | None
    processed: Count | None
    load_max: float | None
    drift: Seconds | None
    software: str


class SessionPage(NamedTuple):
    """A part of a list."""

    sessions: list[SessionRow]
    #: To be given for the next page; None if this was the last.
    next: str | None


class TableRow(NamedTuple):
    """How large a table is."""

    table: str
    rows: Count
    days: Count
    first: str | None
    last: str | None
    files: Count
    bytes: Bytes


def latency_rows(found: Iterable[AttemptTimes]) -> list[LatencyRow]:
    """Return a row for each time."""
    return [
        LatencyRow(moment_of(each.at), each.attempts, each.failed, each.retried, *_durations(each))
        for each in found
    ]


def part_rows(found: Iterable[Top]) -> list[PartRow]:
    """Return a row for each task, worker or queue."""
    return [
        PartRow(name_text(name), times.attempts, times.failed, times.retried, *_durations(times))
        for name, times in found
    ]


def _durations(times: AttemptTimes) -> list[float | None]:
    wait, run = times.wait, times.run
    return [number_of(each) for each in (wait.p50, wait.p95, wait.p99, run.p50, run.p95, run.p99, run.max)]


def latency_plot(found: Sequence[AttemptTimes], *, step: float, width: int) -> list[str]:
    """Return lines that show p95 of waits and of runs, from the first time to the last."""
    if not found:
        return []
    lines: list[str] = []
    for title, spreads in (
        ("queue wait", [each.wait for each in found]),
        ("run time", [each.run for each in found]),
    ):
        points = [(each.at or 0.0, spread.p95) for each, spread in zip(found, spreads, strict=True)]
        most = max((value for _, value in points if value is not None and isfinite(value)), default=None)
        lines += [f"{title} p95, up to {format_duration(most, unknown='unknown')}"]
        lines += [f"▕{line}" for line in column_chart(points, width=width - 1, height=_HEIGHT, step=step)]
        lines += [""]
    return [*lines, f"{moment_of(found[0].at)} to {moment_of((found[-1].at or 0.0) + step)}"]


def top_rows(found: Iterable[Top]) -> list[TopRow]:
    """Return a row for each name."""
    return [
        TopRow(
            name_text(each.name),
            each.times.attempts,
            each.times.failed,
            number_of(each.times.failed_share),
            each.times.retried,
            *(number_of(value) for value in (each.times.run.mean, *each.times.run[2:6])),
        )
        for each in found
    ]


def top_plot(found: Sequence[Top], *, by: str, width: int) -> list[str]:
    """Return a bar for each name."""
    values = [_ranked(each, by) for each in found]
    names = [name_text(each.name) for each in found]
    column = min(max(map(len, names), default=0), 50)
    most = max(values, default=0.0)
    told = [format_duration(value) if by == "slowest" else number_text(value) for value in values]
    room = max(10, width - column - max(map(len, told), default=0) - 2)
    return [
        f"{visible(name, column):<{column}} {bar(value, most, width=room)} {text}"
        for name, value, text in zip(names, values, told, strict=True)
    ] + ([f"by {_RANKED_BY[by]}"] if found else [])


def _ranked(each: Top, by: str) -> float:
    if by == "slowest":
        return each.times.run.mean or 0.0
    return float(each.times.failed if by == "failing" else each.times.retried)


def comparison_rows(found: Comparison) -> list[ComparisonRow]:
    """Return a row for each measure."""
    left, right = found.left_times, found.right_times
    pairs: list[tuple[str, float | None, float | None]] = [
        ("attempts", left.attempts, right.attempts),
        ("failed", left.failed, right.failed),
        ("failure rate", left.failed_share, right.failed_share),
        ("retried", left.retried, right.retried),
        *_pairs("wait", left.wait, right.wait),
        *_pairs("run", left.run, right.run),
    ]
    return [
        ComparisonRow(
            name,
            number_of(one),
            number_of(other),
            number_of(other / one) if one and other is not None else None,
        )
        for name, one, other in pairs
    ]


def comparison_texts(rows: Iterable[ComparisonRow]) -> list[tuple[str, str, str, float | None]]:
    """Return the rows of a comparison as people read them: each measure has its unit."""
    return [
        (row.measure, _measure_text(row.measure, row.left), _measure_text(row.measure, row.right), row.ratio)
        for row in rows
    ]


def _measure_text(measure: str, value: float | None) -> str:
    if measure == "failed share":
        return format_percent(value)
    return format_count(value) if measure in _COUNTED else format_duration(value)


def _pairs(name: str, left: Spread, right: Spread) -> list[tuple[str, float | None, float | None]]:
    return [
        (f"{name} {measure}", getattr(left, measure), getattr(right, measure))
        for measure in ("mean", "p50", "p95", "p99", "max")
    ]


def session_page(found: Iterable[WorkerSession], *, after: str | None = None, limit: int = 50) -> SessionPage:
    """Return the times after those of the page that ``after`` was given with, by worker and beginning.

    Raises CallerError for what no page gave.
    """
    last = None if after is None else _place_of(after)
    left = (each for each in found if last is None or _place(each) > last)
    first = nsmallest(limit + 1, left, key=_place)
    if len(first) <= limit:
        return SessionPage(session_rows(first), None)
    worker, begin_at, pid = _place(first[limit - 1])
    return SessionPage(session_rows(first[:limit]), f"{begin_at!r} {pid} {worker}")


def _place(session: WorkerSession) -> tuple[str, float, int]:
    return session.worker, session.begin_at, session.pid or 0


def _place_of(text: str) -> tuple[str, float, int]:
    try:
        begin_at, pid, worker = text.split(" ", 2)
        return worker, float(begin_at), int(pid)
    except ValueError:
        raise CallerError("Invalid after. Use the value of `next` from the previous page.") from None


def session_rows(found: Iterable[WorkerSession]) -> list[SessionRow]:
    """Return a row for each time that a worker process was there."""
    return [
        SessionRow(
            name_text(each.worker),
            each.pid,
            moment_of(each.begin_at),
            moment_of(each.end_at),
            text_of(each.ending),
            "yes" if each.is_restart else "",
            each.active_max,
            each.processed,
            number_of(each.load_max),
            number_of(each.drift),
            text_of(each.software),
        )
        for each in found
    ]


def table_rows(found: Iterable[TableSize]) -> list[TableRow]:
    """Return a row for each table."""
    return [
        TableRow(each.name, each.rows, each.days, each.first_day, each.last_day, each.files, each.bytes)
        for each in found
    ]
