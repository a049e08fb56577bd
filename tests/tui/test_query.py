"""What is typed into the search box says which tasks are wanted."""

import pytest

from celeriac.model.states import FAILURE, RECEIVED, REJECTED, RETRY, REVOKED, SUCCESS
from celeriac.tui.query import read_query
from celeriac.views.task_list import TaskFilter

#: 2026-11-14T10:00Z.
NOW = 1_794_650_400.0


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("", TaskFilter()),
        ("   ", TaskFilter()),
        ("lovelace", TaskFilter(text="lovelace")),
        ("ada lovelace", TaskFilter(text="ada lovelace")),
        ("state:FAILURE", TaskFilter(states=frozenset({FAILURE}))),
        ("name:shop.* worker:w1@*", TaskFilter(name="shop.*", worker="w1@*")),
        ("NAME:shop.* x state:SUCCESS y", TaskFilter(frozenset({SUCCESS}), name="shop.*", text="x y")),
        ("root:abc", TaskFilter(root="abc")),
        ("since:-1h", TaskFilter(since=NOW - 3600)),
        ("since:2026-11-14T09:30Z until:-90s x", TaskFilter(since=NOW - 1800, until=NOW - 90, text="x")),
        ('UNTIL:"2026-11-14 11:00+01:00"', TaskFilter(until=NOW)),
    ],
)
def test_words_with_a_key_narrow_by_it_and_all_others_are_one_text(query: str, wanted: TaskFilter) -> None:
    assert read_query(query, now=NOW) == wanted


@pytest.mark.parametrize(
    ("query", "states"),
    [
        ("state:fail", {"FAIL", FAILURE}),
        ("state:re", {"RE", RECEIVED, RETRY, REVOKED, REJECTED}),
        ("state:SUCCESS,retry", {SUCCESS, RETRY}),
        ("state:SUCCESS state:RETRY", {SUCCESS, RETRY}),
        ("state:PROGRESS", {"PROGRESS"}),
    ],
)
def test_a_state_may_be_begun_or_made_up_and_there_may_be_several(query: str, states: set[str]) -> None:
    assert read_query(query, now=NOW).states == states


@pytest.mark.parametrize(
    "query",
    ["state:", "name:", "worker: root:", 'name:""', '"', "state:,", "since:-", "since:-1", "until:2026-"],
)
def test_what_is_typed_in_part_says_nothing_yet(query: str) -> None:
    assert read_query(query, now=NOW) == TaskFilter()


def test_quotes_hold_blanks_together_and_keep_a_colon_in_a_text() -> None:
    wanted = read_query('name:"my task" "state:FAILURE or" http://x', now=NOW)

    assert wanted == TaskFilter(name="my task", text="state:FAILURE or http://x")
