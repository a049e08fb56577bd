"""Questions about attempts, answered from the roll-ups: how many, how they ended, how long they took."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from celeriac.errors import CallerError
from celeriac.history.edition import Edition
from celeriac.history.sketch import spread
from celeriac.history.span import WIDTHS, By, Span
from celeriac.model.answer import AttemptTimes, Spread, Top

__all__ = ["COLUMNS", "RANKINGS", "Per", "Ranking", "attempt_times", "times_per", "top_names"]

Ranking = Literal["slowest", "failing", "retried"]
Per = Literal["task", "worker", "queue"]

#: Where the roll-ups have the names of what attempts are told apart by.
COLUMNS: Final[dict[Per, str]] = {"task": "name", "worker": "worker", "queue": "queue"}

_HOURS: Final = """
    SELECT * FROM {rollups_hour} AS h WHERE h.begin_at >= $hours_from AND h.begin_at < $hours_to
"""
_MINUTES: Final = """
    SELECT * FROM {rollups_minute} AS m WHERE m.begin_at >= $since AND m.begin_at < $until
    AND (m.begin_at < $hours_from OR m.begin_at >= $hours_to)
"""
#: What is a glob, and not the name itself.
_GLOB: Final = re.compile(r"[*?\[]")
_COUNTS: Final = (
    "sum(r.attempts)::BIGINT, sum(r.succeeded)::BIGINT, sum(r.failed)::BIGINT, sum(r.retried)::BIGINT, "
    "sum(r.revoked)::BIGINT, sum(r.waits)::BIGINT, sum(r.wait_sum), max(r.wait_max), "
    "sum(r.runs)::BIGINT, sum(r.run_sum), max(r.run_max)"
)
_WAIT_SKETCHES: Final = "list(r.wait_sketch) FILTER (WHERE r.waits > 0 AND r.wait_sketch IS NOT NULL)"
_RUN_SKETCHES: Final = "list(r.run_sketch) FILTER (WHERE r.runs > 0 AND r.run_sketch IS NOT NULL)"
_TIMES: Final = f"""
    SELECT CASE WHEN $width > 0 THEN floor(r.begin_at / $width) * $width END AS bucket,
        {_COUNTS}, {_WAIT_SKETCHES}, {_RUN_SKETCHES}
    FROM (%s) AS r WHERE %s GROUP BY bucket ORDER BY bucket
"""  # noqa: S608 - of our own text alone
#: What names are sorted by, and what those have that are sorted at all.
RANKINGS: Final[dict[Ranking, tuple[str, str]]] = {
    "slowest": ("sum(r.run_sum) / sum(r.runs)", "sum(r.runs) > 0"),
    "failing": ("sum(r.failed)", "sum(r.failed) > 0"),
    "retried": ("sum(r.retried)", "sum(r.retried) > 0"),
}
_RANKED: Final = f"""
    SELECT r.%(column)s, {_COUNTS} FROM (%(rows)s) AS r WHERE %(tests)s
    GROUP BY r.%(column)s HAVING %(has_any)s
    ORDER BY %(key)s DESC, sum(r.attempts) DESC, r.%(column)s LIMIT $limit
"""  # noqa: S608 - of our own text alone
_NAMED: Final = f"""
    SELECT r.%(column)s, %(waits)s, {_RUN_SKETCHES} FROM (%(rows)s) AS r
    WHERE (%(tests)s) AND (list_contains($names, r.%(column)s) OR ($has_null AND r.%(column)s IS NULL))
    GROUP BY r.%(column)s
"""  # noqa: S608 - of our own text alone


def attempt_times(
    edition: Edition,
    span: Span,
    *,
    task: str | None = None,
    worker: str | None = None,
    queue: str | None = None,
    by: By | None = None,
) -> list[AttemptTimes]:
    """Return the attempts of a span of time, or of each minute, hour or UTC day in it that has some."""
    if by is not None and by not in WIDTHS:
        raise CallerError(f"invalid interval {by!r}: use {', '.join(WIDTHS)}, or None")
    rows, parameters = _rolled_up(span, by)
    tests, chosen = _tests(task, worker, queue)
    parameters |= {**chosen, "width": WIDTHS[by] if by else 0.0}
    found = edition.ask(_TIMES % (rows, tests), parameters)
    return [_times(row[0], row[1:12], *row[12:]) for row in found]


def _tests(task: str | None, worker: str | None, queue: str | None) -> tuple[str, dict[str, str]]:
    """Return what rows have to fulfil to be of a task, a worker and a queue, and the parameters of it."""
    chosen = {column: text for column, text in (("name", task), ("worker", worker), ("queue", queue)) if text}
    # A plain condition lets DuckDB pass over what files say they do not have.
    return " AND ".join(_test(column, text) for column, text in chosen.items()) or "true", chosen


def _test(column: str, text: str) -> str:
    """Return what a row has to fulfil to be of a name, or of names that fit."""
    if not _GLOB.search(text):
        return f"r.{column} = ${column}"
    # A name may look like a glob that does not fit it.
    return f"(r.{column} = ${column} OR r.{column} GLOB ${column})"


def top_names(edition: Edition, span: Span, *, by: Ranking, limit: int) -> list[Top]:
    """Return the names of tasks that come first in a ranking.

    ``slowest`` are those with the highest mean of run times, ``failing`` those that failed most often, and
    ``retried`` those that were tried again most often. Quantiles are told of run times alone.
    """
    if by not in RANKINGS:
        raise CallerError(f"invalid ranking {by!r}: use one of {', '.join(RANKINGS)}")
    rows, parameters = _rolled_up(span, None)
    key, has_any = RANKINGS[by]
    parts = {"rows": rows, "column": "name", "tests": "true", "key": key, "has_any": has_any, "waits": "NULL"}
    return _first_names(edition, parts, parameters, limit)


def times_per(
    edition: Edition,
    span: Span,
    *,
    per: Per,
    task: str | None = None,
    worker: str | None = None,
    queue: str | None = None,
    limit: int = 50,
) -> list[Top]:
    """Return the attempts of each task, worker or queue; of those that had most attempts, these first."""
    if per not in COLUMNS:
        raise CallerError(f"cannot group attempts by {per!r}: use one of {', '.join(COLUMNS)}")
    rows, parameters = _rolled_up(span, None)
    tests, chosen = _tests(task, worker, queue)
    parts = {
        "rows": rows,
        "column": COLUMNS[per],
        "tests": tests,
        "key": "sum(r.attempts)",
        "has_any": "true",
        "waits": _WAIT_SKETCHES,
    }
    return _first_names(edition, parts, parameters | chosen, limit)


def _first_names(
    edition: Edition, parts: Mapping[str, str], parameters: dict[str, object], limit: int
) -> list[Top]:
    """Return the names that come first, with their attempts; ``parts`` are those of the statements."""
    if limit < 1:
        raise CallerError(f"limit is the number of groups, at least 1, not {limit}")
    ranked = edition.ask(_RANKED % parts, parameters | {"limit": limit})
    if not ranked:
        return []
    names = [row[0] for row in ranked if row[0] is not None]
    # Only of those that are told: to merge the sketches of all names would take much longer.
    told: dict[str, object] = {"names": names or [""], "has_null": len(names) < len(ranked)}
    sketches = {name: both for name, *both in edition.ask(_NAMED % parts, parameters | told)}
    return [Top(row[0], _times(None, row[1:12], *sketches.get(row[0], (None, None)))) for row in ranked]


def nothing_at(at: float | None = None) -> AttemptTimes:
    """Return a time without attempts."""
    return AttemptTimes(at, 0, 0, 0, 0, 0, Spread(), Spread())


def _rolled_up(span: Span, by: By | None) -> tuple[str, dict[str, object]]:
    """Return a statement for all roll-ups of a span, and its parameters."""
    parts = span.parts(by)
    sources = [
        text for text, is_needed in ((_HOURS, parts.has_hours), (_MINUTES, parts.has_minutes)) if is_needed
    ]
    used: dict[str, object] = {}
    if parts.has_hours:
        used |= {"hours_from": parts.hours_from, "hours_to": parts.hours_to}
    if parts.has_minutes:
        used |= parts._asdict()
    return " UNION ALL BY NAME ".join(sources or [_MINUTES]), used or parts._asdict()


def _times(
    at: float | None,
    counts: Sequence[Any],
    wait_sketches: list[bytes] | None,
    run_sketches: list[bytes] | None,
) -> AttemptTimes:
    attempts, succeeded, failed, retried, revoked, waits, wait_sum, wait_max, runs, run_sum, run_max = counts
    return AttemptTimes(
        at,
        attempts or 0,
        succeeded or 0,
        failed or 0,
        retried or 0,
        revoked or 0,
        spread(waits or 0, wait_sum, wait_max, wait_sketches or ()),
        spread(runs or 0, run_sum, run_max, run_sketches or ()),
    )
