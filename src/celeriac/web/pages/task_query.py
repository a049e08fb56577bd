"""Which tasks a page is asked for: as its address says it, as views keep it, and as lists take it."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlencode

from celeriac.model.events import MAX_ID_CHARS
from celeriac.views.task_list import TaskFilter

__all__ = ["BUILT_IN_VIEWS", "MOST_CHARS", "TaskQuery", "local_text", "read_local"]

#: As much as the API takes of a text.
MOST_CHARS: Final = 200
_MOST_STATES: Final = 30
_END: Final = 4_102_444_800
#: What people look for most, by name.
BUILT_IN_VIEWS: Final = {
    "Failed": "state=FAILURE",
    "Running": "state=STARTED",
    "Waiting": "state=PENDING&state=RECEIVED",
    "Retried": "state=RETRY",
    "Failed (15 min)": "state=FAILURE&last=900",
}


class TaskQuery(NamedTuple):
    """What is asked for. An empty text asks for nothing."""

    states: tuple[str, ...] = ()
    name: str = ""
    worker: str = ""
    text: str = ""
    #: Of the workflow of this task.
    root: str = ""
    #: The seconds before the moment that is shown; or from one moment to another.
    last: int | None = None
    since: float | None = None
    until: float | None = None

    @classmethod
    def read(cls, asked: Mapping[str, Sequence[str]]) -> "TaskQuery":
        """Return what an address asks for. What it cannot ask for is left out: anyone can write one."""

        def first(name: str, most: int = MOST_CHARS) -> str:
            return (asked.get(name) or [""])[0][:most]

        states = dict.fromkeys(each[:MOST_CHARS] for each in asked.get("state", ()) if each)
        last = _moment(first("last"))
        return cls(
            states=tuple(states)[:_MOST_STATES],
            name=first("name"),
            worker=first("worker"),
            text=first("text"),
            root=first("root", MAX_ID_CHARS),
            last=None if not last else int(last),
            since=_moment(first("since")),
            until=_moment(first("until")),
        )

    @classmethod
    def parse(cls, text: str) -> "TaskQuery":
        """Return what a view asks for."""
        return cls.read(parse_qs(text, max_num_fields=100))

    @property
    def asked(self) -> dict[str, list[str]]:
        """The same as an address says it."""
        told = {
            "state": list(self.states),
            **{name: [getattr(self, name)] for name in ("name", "worker", "text", "root")},
            **{name: [_number(getattr(self, name))] for name in ("last", "since", "until")},
        }
        return {name: values for name, values in told.items() if any(values)}

    def __str__(self) -> str:
        return urlencode(self.asked, doseq=True)

    def wanted(self, as_of: float) -> TaskFilter:
        """Return it as lists take it."""
        return TaskFilter(
            frozenset(self.states),
            self.name or None,
            self.worker or None,
            self.text or None,
            self.since if self.last is None else as_of - self.last,
            self.until if self.last is None else None,
            self.root or None,
        )


def _moment(text: str) -> float | None:
    try:
        told = float(text)
    except ValueError:
        return None
    return told if isfinite(told) and 0 <= told < _END else None


def _number(told: float | None) -> str:
    return "" if told is None else f"{told:.0f}" if told == int(told) else f"{told}"


def read_local(text: object) -> float | None:
    """Return the moment that somebody chose, in UTC; None for what is none."""
    try:
        return _moment(str(datetime.fromisoformat(str(text)).replace(tzinfo=UTC).timestamp()))
    except (ValueError, OverflowError):
        return None


def local_text(at: float | None) -> str:
    """Return a moment as a field has it in which one is chosen."""
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
