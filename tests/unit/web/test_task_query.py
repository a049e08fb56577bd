"""What the address of the list of tasks asks for."""

from urllib.parse import parse_qs

import pytest

from celeriac.model.events import MAX_ID_CHARS
from celeriac.views.task_list import TaskFilter
from celeriac.web.pages.task_query import BUILT_IN_VIEWS, MOST_CHARS, TaskQuery, local_text, read_local

FULL = TaskQuery(
    ("FAILURE", "P&=#"), "shop.*", "w@*", "a b&c=d", "root/1", None, 1_794_614_400.5, 1_794_614_460.0
)


def test_what_is_asked_for_is_read_back_from_its_address() -> None:
    assert TaskQuery.parse(str(FULL)) == FULL
    assert TaskQuery.parse(str(TaskQuery(last=300))) == TaskQuery(last=300)
    assert str(TaskQuery()) == ""


def test_lists_take_it_as_a_filter() -> None:
    assert TaskQuery().wanted(100.0) == TaskFilter()
    assert TaskQuery(("A",), last=30, since=5.0).wanted(100.0) == TaskFilter(frozenset({"A"}), since=70.0)
    assert FULL.wanted(1.0).until == 1_794_614_460.0


@pytest.mark.parametrize(
    "text", ["since=nan", "until=inf", "last=-3", "since=1e300", "last=x", "state=", "other=1", "=", "&&&"]
)
def test_what_cannot_be_asked_for_is_left_out(text: str) -> None:
    assert TaskQuery.parse(text) == TaskQuery()


def test_what_is_too_long_is_cut() -> None:
    told = TaskQuery.read({"text": ["x" * 9999], "state": [f"S{number}" for number in range(99)]})

    assert (len(told.text), len(told.states)) == (200, 30)


def test_views_ask_for_what_an_address_would() -> None:
    for text in BUILT_IN_VIEWS.values():
        assert str(TaskQuery.parse(text)) == text
        assert TaskQuery.parse(text).asked == parse_qs(text)


@pytest.mark.parametrize("text", ["", None, "soon", "2026-13-01T00:00:00", "9999-01-01T00:00:00"])
def test_a_moment_that_is_none_is_not_asked_for(text: object) -> None:
    assert read_local(text) is None


def test_a_moment_is_in_utc() -> None:
    assert read_local("2026-11-14T00:00:00") == 1_794_614_400.0
    assert local_text(1_794_614_400.0) == "2026-11-14T00:00:00"


def test_texts_are_cut_and_the_id_of_a_workflow_is_not() -> None:
    longest = "x" * MAX_ID_CHARS
    query = TaskQuery.read({name: [longest] for name in ("name", "worker", "text", "root")})

    assert (len(query.name), len(query.worker), len(query.text)) == (MOST_CHARS,) * 3
    assert query.root == longest
