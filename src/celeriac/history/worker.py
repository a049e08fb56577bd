"""Questions about workers: when each of their processes was there."""

from typing import Any, Final

from celeriac.history.edition import Edition
from celeriac.history.span import Days, Span, day_of
from celeriac.model.answer import WorkerSession

__all__ = ["worker_sessions"]

_SESSIONS: Final = """
    SELECT w.worker, w.pid, w.begin_at, w.end_at, w.ending, w.is_restart, w.active_max, w.processed,
        w.load_max, w.drift, w.software
    FROM {workers} AS w ORDER BY w.worker, w.pid, w.begin_at
"""
#: How a session ends that goes on in the next day.
_CUT: Final = "midnight"
#: Seconds between two parts of one session: nobody speaks at the very moment of midnight.
_MOST_SILENCE: Final = 600.0
_DAY: Final = 86_400.0


def worker_sessions(edition: Edition, span: Span) -> list[WorkerSession]:
    """Return the times of a span in which worker processes were there, by worker and beginning.

    What was cut at midnight is put together, as far as the day before and the day after the span.
    """
    days = Days(
        "" if span.since is None else day_of(max(span.since - _DAY, 0.0)),
        "" if span.until is None else day_of(span.until + _DAY),
    )
    joined: list[WorkerSession] = []
    for row in edition.ask(_SESSIONS, {}, {"workers": days}):
        part = WorkerSession(*row)
        if joined and _goes_on(joined[-1], part):
            joined[-1] = _joined(joined[-1], part)
        else:
            joined.append(part)
    found = [each for each in joined if each.end_at >= span.begin_at and each.begin_at < span.end_at]
    return sorted(found, key=lambda each: (each.worker, each.begin_at))


def _goes_on(before: WorkerSession, after: WorkerSession) -> bool:
    is_same = (before.worker, before.pid) == (after.worker, after.pid)
    return is_same and before.ending == _CUT and after.begin_at - before.end_at < _MOST_SILENCE


def _joined(before: WorkerSession, after: WorkerSession) -> WorkerSession:
    return before._replace(
        end_at=after.end_at,
        ending=after.ending,
        active_max=_most(before.active_max, after.active_max),
        processed=_most(before.processed, after.processed),
        load_max=_most(before.load_max, after.load_max),
        # It is the least of what was measured.
        drift=min((each for each in (before.drift, after.drift) if each is not None), default=None),
        software=after.software or before.software,
    )


def _most(one: Any, other: Any) -> Any:
    return max((each for each in (one, other) if each is not None), default=None)
