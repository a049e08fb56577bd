"""The language of the search box: ``state:FAILURE name:shop.* worker:w1@* any text``."""

import re
from typing import Final

from celeriac.model.states import BUILT_IN_STATES
from celeriac.views.task_list import TaskFilter

__all__ = ["read_query"]

_WORD: Final = re.compile(
    r'(?P<key>state|name|worker|root):(?P<value>"[^"]*"?|\S*)|(?P<text>"[^"]*"?|\S+)', re.IGNORECASE
)


def read_query(query: str) -> TaskFilter:
    """Return which tasks a query asks for: those that fit every word of it.

    ``name:`` and ``worker:`` take globs, ``state:`` the beginning of a name or several parted by commas,
    ``root:`` the id of a workflow; quotes hold blanks together. All other words are one text. Nothing that
    anybody can type is an error: a key without a value says nothing.
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
    )


def _states(value: str) -> set[str]:
    wanted = [each.strip().upper() for each in value.split(",") if each.strip()]
    known = {state for state in BUILT_IN_STATES for each in wanted if state.startswith(each)}
    return known | set(wanted)  # a state that somebody made up counts by its whole name
