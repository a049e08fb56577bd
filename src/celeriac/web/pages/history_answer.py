"""The answers of the page of the history. Each asks in a thread, and returns what shows its answer."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeGuard

from nicegui import events, ui

from celeriac.history import Warehouse
from celeriac.history.times import Per, Ranking
from celeriac.model.answer import Top
from celeriac.views.format import (
    UNKNOWN,
    format_count,
    format_duration,
    format_iso,
    format_percent,
    format_timestamp,
)
from celeriac.views.history import (
    ComparisonRow,
    LatencyRow,
    PartRow,
    SessionRow,
    TopRow,
    comparison_rows,
    latency_rows,
    part_rows,
    session_rows,
    top_rows,
)
from celeriac.web.pages.history_query import MOST_CHARS, PER, HistoryQuery, Range
from celeriac.web.pages.part import Tile, columns, empty, section, table
from celeriac.web.pages.trend import LatencyCharts
from celeriac.web.pages.visit import Visit, path_of

__all__ = ["ANSWERS", "Question", "range_text"]

Show = Callable[[], Any]

#: Rows that a page can show; the tables have more, and celeriac history tells them all.
_MOST_ROWS: Final = 500
#: Tasks, workers or queues that are told apart; each costs the merging of its sketches.
_MOST_PARTS: Final = 200
_NOTHING: Final = (
    "No attempts match. Widen the time range or remove a filter. To update the tables: celeriac pipeline run"
)
_WAITS: Final = (("wait_p50", "Wait p50"), ("wait_p95", "Wait p95"), ("wait_p99", "Wait p99"))
_RUNS: Final = (
    ("run_p50", "Run p50"),
    ("run_p95", "Run p95"),
    ("run_p99", "Run p99"),
    ("run_max", "Longest"),
)
_COUNTS: Final = (("attempts", "Attempts"), ("failed", "Failed"), ("retried", "Retried"))
_MEASURES: Final = tuple((name, label, "right") for name, label in (*_COUNTS, *_WAITS, *_RUNS))
_LATENCY: Final = columns(("at", "Time (UTC)"), *_MEASURES)
#: What those that are told apart are called, and what one of them is told apart by in turn.
_PARTS: Final[dict[Per, tuple[str, Per]]] = {
    "task": ("Task", "worker"),
    "worker": ("Worker", "task"),
    "queue": ("Queue", "task"),
}
#: Whoever chose what is told apart finds it where it was, though the page is made anew.
_APART: Final = "#apart"
_TO_APART: Final = (
    f"if (location.hash === '{_APART}') document.querySelector('[data-apart]')?.scrollIntoView()"
)
_TOP: Final = columns(
    ("name", "Task"),
    ("attempts", "Attempts", "right"),
    ("failed", "Failed", "right"),
    ("failed_share", "Failure rate", "right"),
    ("retried", "Retried", "right"),
    ("run_mean", "Run mean", "right"),
    *((name, label, "right") for name, label in _RUNS),
)
_COMPARED: Final = columns(
    ("measure", "Measure"),
    ("left", "Baseline", "right"),
    ("right", "Current", "right"),
    ("change", "Change", "right"),
)
_SESSIONS: Final = columns(
    ("worker", "Worker"),
    ("pid", "Process", "right"),
    ("begin", "First seen"),
    ("end", "Last seen"),
    ("ending", "Ending"),
    ("restart", "Restart"),
    ("active_max", "Max active", "right"),
    ("processed", "Processed", "right"),
    ("load_max", "Max load", "right"),
    ("drift", "Clock offset", "right"),
    ("software", "Software"),
)
_RANKINGS: Final[dict[Ranking, tuple[str, str]]] = {
    "slowest": ("Slowest by mean run time", "No tasks ran in this range."),
    "failing": ("Most failures", "No tasks failed in this range."),
    "retried": ("Most retries", "No tasks were retried in this range."),
}
#: A change of less than a tenth is none.
_MUCH: Final = 0.1
#: From here on nobody thinks in percent.
_MANY_TIMES: Final = 10


class Question(NamedTuple):
    """What is asked, and where."""

    warehouse: Warehouse
    query: HistoryQuery
    #: The moment that is shown.
    now: float
    visit: Visit


# -- latency


def _latency(question: Question) -> Show:
    warehouse, query, now, _ = question
    by = query.times(now)
    since, until = query.span(now)
    narrow, per = _narrowed(query), query.parts
    whole = warehouse.latency(since=since, until=until, **narrow)
    times = warehouse.latency(since=since, until=until, by=by, **narrow) if by else []
    parts = warehouse.latency_per(per, since, until, limit=_MOST_PARTS + 1, **narrow)

    def show() -> None:
        rows = latency_rows(whole)
        if not rows or not rows[0].attempts:
            empty(_NOTHING, mark="latency")
            return
        _whole_tiles(rows[0])
        if by is not None and times:
            with section("Over time"):
                LatencyCharts().show(times, by)
        listed = latency_rows(reversed(times)) if times else rows
        with section("Table"):
            _rows("Attempts, queue wait and run time", _LATENCY, [_latency_row(each) for each in listed])
        with section("Breakdown").props("data-apart"):
            _told_apart(question, per, parts)
        ui.run_javascript(_TO_APART)

    return show


def _told_apart(question: Question, per: Per, parts: list[Top]) -> None:
    query, visit = question.query, question.visit

    def address(**changed: str) -> str:
        return visit.link("/history", **HistoryQuery(**(query._asdict() | changed)).address())

    def to(name: str | None) -> str | None:
        return address(**{per: name, "per": _PARTS[per][1]}) if _can_be_asked_for(name) else None

    def choose(chosen: events.ValueChangeEventArguments[str]) -> None:
        ui.navigate.to(address(per=chosen.value) + _APART)

    with ui.element("div").classes("filters"):
        select = ui.select(PER, label="Group by", value=per, on_change=choose)
        select.props('dense outlined options-dense aria-label="Group by"')
    if not parts:
        empty(_NOTHING, mark="apart")
        return
    told = parts[:_MOST_PARTS]
    rows = [_part_row(row, to(each.name)) for row, each in zip(part_rows(told), told, strict=True)]
    _rows(f"By {per}", columns(("name", _PARTS[per][0]), *_MEASURES), rows, links=("name",))
    if len(parts) > _MOST_PARTS:
        ui.label(f"The {_MOST_PARTS} with the most attempts.").classes("faint hint")


def _can_be_asked_for(name: str | None) -> TypeGuard[str]:
    """Say whether an address can ask for a name: for none it cannot, nor for one that is longer."""
    return name is not None and 0 < len(name) <= MOST_CHARS


def _whole_tiles(row: LatencyRow) -> None:
    with ui.element("div").classes("tiles is-many"):
        Tile("Attempts", mark="attempts").show(format_count(row.attempts))
        Tile("Failed", mark="failed").show(format_count(row.failed), is_bad=row.failed > 0)
        Tile("Retried", mark="retried").show(format_count(row.retried))
        for kind, name in (("wait", "Queue wait"), ("run", "Run time")):
            for quantile in ("p50", "p95", "p99"):
                mark = f"{kind}_{quantile}"
                Tile(f"{name} {quantile}", mark=mark).show(format_duration(getattr(row, mark)))


def _latency_row(row: LatencyRow) -> dict[str, Any]:
    at = "all" if row.at is None else row.at.replace("T", " ").replace("Z", "")
    return {"at": at, **_measures(row)}


def _part_row(row: PartRow, to: str | None) -> dict[str, Any]:
    return {"name": row.name, "name_to": to, **_measures(row)}


def _measures(row: LatencyRow | PartRow) -> dict[str, str]:
    counts = {name: format_count(getattr(row, name)) for name, _ in _COUNTS}
    return counts | {name: format_duration(getattr(row, name)) for name, _ in (*_WAITS, *_RUNS)}


# -- rankings


def _top(question: Question) -> Show:
    warehouse, query, now, visit = question
    since, until = query.span(now)
    ranked = {by: warehouse.top(by, since, until) for by in _RANKINGS}

    def to(name: str | None) -> str | None:
        if not _can_be_asked_for(name):
            return None
        asked = query._replace(tab="latency", task=name, worker="", queue="")
        return visit.link("/history", **asked.address())

    def show() -> None:
        for by, found in ranked.items():
            title, none = _RANKINGS[by]
            with section(title).props(f"data-ranking={by}"):
                if not found:
                    empty(none, mark=by)
                    continue
                rows = [
                    _top_row(row, to(each.name)) for row, each in zip(top_rows(found), found, strict=True)
                ]
                _rows(title, _TOP, rows, links=("name",))

    return show


def _top_row(row: TopRow, to: str | None) -> dict[str, Any]:
    durations = {
        name: format_duration(getattr(row, name)) for name in ("run_mean", *(name for name, _ in _RUNS))
    }
    return {
        "name": row.name,
        "name_to": to,
        "attempts": format_count(row.attempts),
        "failed": format_count(row.failed),
        "failed_share": format_percent(row.failed_share),
        "retried": format_count(row.retried),
        **durations,
    }


# -- comparison


def _compare(question: Question) -> Show:
    warehouse, query, now, _ = question
    then, asked = query.other_span(now), query.span(now)
    found = warehouse.compare(then, asked, **_narrowed(query))
    rows = comparison_rows(found)

    def show() -> None:
        if not found.left_times.attempts and not found.right_times.attempts:
            empty(_NOTHING, mark="compare")
            return
        with section("Comparison"):
            ui.label(f"Baseline: {range_text(then)}. Current: {range_text(asked)}.").classes(
                "faint hint"
            ).props("data-compared")
            _rows("Comparison", _COMPARED, [_compared_row(each) for each in rows], states=("change",))

    return show


def _compared_row(row: ComparisonRow) -> dict[str, Any]:
    return {
        "measure": row.measure,
        "left": _measure_text(row.measure, row.left),
        "right": _measure_text(row.measure, row.right),
        "change": _change_text(row),
        "change_class": _change_class(row),
    }


def _measure_text(measure: str, value: float | None) -> str:
    if measure == "failure rate":
        return format_percent(value)
    if measure in ("attempts", "failed", "retried"):
        return format_count(value)
    return format_duration(value)


def _change_text(row: ComparisonRow) -> str:
    if row.ratio is None:
        return "new" if row.right and not row.left else UNKNOWN
    if row.ratio == 1:
        return "same"
    return f"{row.ratio:,.3g} times" if row.ratio >= _MANY_TIMES else f"{100 * (row.ratio - 1):+.1f} %"


def _change_class(row: ComparisonRow) -> str:
    """Return whether something got better or worse; how many attempts there are is neither."""
    if row.measure == "attempts":
        return "change"
    if row.ratio is None:
        return "change is-worse" if row.right and not row.left else "change"
    if row.ratio > 1 + _MUCH:
        return "change is-worse"
    return "change is-better" if row.ratio < 1 - _MUCH else "change"


# -- sessions of workers


def _sessions(question: Question) -> Show:
    warehouse, query, now, visit = question
    found = list(warehouse.workers(*query.span(now)))
    rows = list(zip(session_rows(found), [each.worker for each in found], strict=True))

    def show() -> None:
        if not rows:
            empty("No worker sessions in this range.", mark="sessions")
            return
        with section("Worker sessions"):
            _rows(
                "Worker sessions",
                _SESSIONS,
                [_session_row(row, name, visit) for row, name in rows],
                links=("worker",),
                states=("ending",),
            )

    return show


def _session_row(row: SessionRow, name: str, visit: Visit) -> dict[str, Any]:
    return {
        "worker": row.worker,
        "worker_to": visit.link(path_of("workers", name)),
        "pid": UNKNOWN if row.pid is None else str(row.pid),
        "begin": format_iso(row.begin),
        "end": format_iso(row.end),
        "ending": row.ending,
        "ending_class": "state state-lost" if row.ending == "lost" else "state",
        "restart": row.restart,
        "active_max": format_count(row.active_max),
        "processed": format_count(row.processed),
        "load_max": UNKNOWN if row.load_max is None else f"{row.load_max:.2f}",
        "drift": format_duration(row.drift),
        "software": row.software,
    }


# -- what they share


def _narrowed(query: HistoryQuery) -> dict[str, Any]:
    """Return what names attempts have to fit, as the warehouse is asked."""
    return {"task": query.task or None, "worker": query.worker or None, "queue": query.queue or None}


def _rows(label: str, columns: list[dict[str, Any]], rows: list[dict[str, Any]], **kinds: Any) -> None:
    made = table(columns, label=label, **kinds)
    made.rows = [{"id": number, **row} for number, row in enumerate(rows[:_MOST_ROWS])]
    if len(rows) > _MOST_ROWS:
        ui.label(f"First {_MOST_ROWS} of {len(rows):,} rows.").classes("faint hint")


def range_text(range_: Range) -> str:
    """Return from when to when."""
    since, until = range_
    begin = "start" if since is None else format_timestamp(since)
    return f"{begin} to {'end' if until is None else format_timestamp(until)}"


#: By the name of the tab.
ANSWERS: Final[dict[str, Callable[[Question], Show]]] = {
    "latency": _latency,
    "top": _top,
    "compare": _compare,
    "sessions": _sessions,
}
