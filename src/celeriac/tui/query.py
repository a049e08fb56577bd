"""The language of the search box: ``state:FAILURE name:shop.* worker:w1@* since:1h any text``."""

import re
from typing import Final

from celeriac.errors import CallerError
from celeriac.model.states import BUILT_IN_STATES
from celeriac.views.measure import read_time
from celeriac.views.task_list import TaskFilter

__all__ = ["read_query"]

_WORD: Final = re.compile(
    r'(?P<key>state|name|worker|root|since|until):(?P<value>"[^"]*"?|\S*)|(?P<text>"[^"]*"?|\S+)',
    re.IGNORECASE,
)


def read_query(query: str, *, now: float) -> TaskFilter:
    """Return which tasks a query asks for: those that fit every word of it.

    ``name:`` and ``worker:`` take globs, ``state:`` the beginning of a name or several parted by commas,
    ``root:`` the id of a workflow, ``since:`` and ``until:`` times, such as ``1h`` (ago) or ``now``; quotes
    hold blanks together. All other words are one text. Nothing that anybody can type is an error: a key
    without a value, and a time that is not complete, say nothing.
    """
    states: set[str] = set()
    told: dict[str, str] = {}
    texts: list[str] = []
    for word in _WORD.finditer(query):
        if word["key"] is None:
            texts.append(word["text"].strip('"'))
        elif word["key"].lower() == "state":
            states |= _states(word["value"].strip('"'))
        elif value := word["value"].strip('"'):
            told[word["key"].lower()] = value
    return TaskFilter(
        states=frozenset(states),
        name=told.get("name"),
        worker=told.get("worker"),
        text=" ".join(filter(None, texts)) or None,
        root=told.get("root"),
        since=_time(told.get("since"), now),
        until=_time(told.get("until"), now),
    )


def _time(value: str | None, now: float) -> float | None:
    try:
        return None if value is None else read_time(value, option="", now=now).at
    except CallerError:
        return None


def _states(value: str) -> set[str]:
    wanted = [each.strip().upper() for each in value.split(",") if each.strip()]
    known = {state for state in BUILT_IN_STATES for each in wanted if state.startswith(each)}
    return known | set(wanted)  # a state that somebody made up counts by its whole name
