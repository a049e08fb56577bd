"""A list with a limit is the beginning of the sorted list, whatever happened since the last one was read."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celeriac import State
from celeriac.core import ranking
from celeriac.core.order import display_key
from celeriac.core.ranking import Ranking
from celeriac.core.task import Task
from celeriac.model.events import Received, Succeeded, TaskEvent
from tests.property.test_planted_bugs import UNTIL_FOUND

#: What is done to a state: an event, "clear" of what has ended, or a list that is read.
Step = TaskEvent | str | tuple[int, bool, str]

#: Few values, so that events collide in every way they can.
_about: dict[str, st.SearchStrategy[Any]] = {
    "timestamp": st.sampled_from((1.0, 2.0, 3.0)),
    "clock": st.integers(0, 30),
    "hostname": st.sampled_from(("a@x", "b@x")),
    "uuid": st.sampled_from([f"t{number:02}" for number in range(15)]),
}
_received = st.builds(Received, name=st.sampled_from(("x", "y")), **_about)
_ended = st.builds(Succeeded, **_about)
_lists = st.tuples(
    st.sampled_from((0, 1, 2, 3, 7)), st.booleans(), st.sampled_from(("time", "type", "worker"))
)
#: Events with reads in between.
stories = st.lists(st.one_of(_received, _received, _ended, _lists, _lists, st.just("clear")), max_size=60)


def in_order(tasks: list[Task], *, newest_first: bool) -> list[str]:
    """Return the ids of tasks, sorted by the latest event and then by id."""
    found = [(display_key(task.latest), task.uuid) for task in tasks if task.latest is not None]
    return [uuid for _, uuid in sorted(found, reverse=newest_first)]


def check_law(story: list[Step], max_tasks: int) -> None:
    """Read the lists of a story, and compare each with the sorted tasks."""
    state = State(max_tasks_in_memory=max_tasks)
    for step in story:
        if isinstance(step, str):
            state.clear_tasks()
        elif isinstance(step, tuple):
            limit, newest_first, kind = step
            tasks = list(state.tasks.values())
            if kind == "time":
                listed = state.tasks_by_time(limit, newest_first)
            elif kind == "type":
                tasks = [task for task in tasks if task.name == "x"]
                listed = state.tasks_by_type("x", limit, newest_first)
            else:
                tasks = [task for task in tasks if task.host == "a@x"]
                listed = state.tasks_by_worker("a@x", limit, newest_first)
            assert [uuid for uuid, _ in listed] == in_order(tasks, newest_first=newest_first)[:limit]
        else:
            state.event(step)


def with_short_lists(law: Callable[[], None]) -> None:
    """Check a law where nearly every list leaves out some tasks, and is made again now and then."""
    with patch.object(ranking, "MIN_KEYS", 2):
        law()


@given(stories, st.sampled_from((2, 5, 100)))
def test_a_list_with_a_limit_is_the_beginning_of_the_sorted_list(story: list[Step], max_tasks: int) -> None:
    with_short_lists(lambda: check_law(story, max_tasks))


def keep_outdated(self: Ranking, key: Any) -> Task | None:
    """Take a key for current whatever its task did since."""
    return self._tasks.get(key[-1])


def leave_the_bound(self: Ranking, limit: int) -> None:
    """Take a list of some tasks for that of all."""
    _rebuild(self, limit)
    self._bound = None


_rebuild = Ranking._rebuild


def see_nothing_new(_: Ranking) -> None:
    """Add no task that changed."""


@pytest.mark.parametrize(
    ("method", "bug"),
    [("_task_of", keep_outdated), ("_rebuild", leave_the_bound), ("_add_changed", see_nothing_new)],
)
def test_the_law_finds_a_planted_bug(method: str, bug: Any) -> None:
    @UNTIL_FOUND
    @given(stories, st.sampled_from((2, 5, 100)))
    def search(story: list[Step], max_tasks: int) -> None:
        with_short_lists(lambda: check_law(story, max_tasks))

    with patch.object(Ranking, method, bug), pytest.raises(AssertionError):
        search()
