"""Lists of tasks, also of more than are looked at first."""

from collections.abc import Callable
from typing import Any

import pytest

from celeriac.core.task import Task
from celeriac.node.state import State
from celeriac.views import task_list
from celeriac.views.task_list import TaskFilter, fitting_tasks, task_page
from tests.event_logs import failed, received


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it look further after a few tasks."""
    monkeypatch.setattr(task_list, "_REACHES", (5, 12))


def filled(count: int) -> State:
    """Have tasks of which every seventh failed."""
    state = State()
    for number in range(count):
        state.event(received(f"task-{number}", float(number)))
        if number % 7 == 0:
            state.event(failed(f"task-{number}", number + 0.5))
    return state


def paged(state: State, wanted: TaskFilter, limit: int, between: Callable[[], object] = list) -> list[str]:
    """Return the ids on all pages, one after the other."""
    ids: list[str] = []
    before = None
    while True:
        page = task_page(state, wanted, before=before, limit=limit)
        ids += [task.uuid for task in page.tasks]
        if page.next is None:
            return ids
        before = page.next
        between()


@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 12, 13, 40])
@pytest.mark.parametrize("limit", [1, 3, 4, 5, 50])
def test_the_pages_have_all_tasks_once_heard_of_last_first(count: int, limit: int) -> None:
    state = filled(count)

    assert paged(state, TaskFilter(), limit) == [f"task-{number}" for number in reversed(range(count))]


@pytest.mark.parametrize("limit", [1, 2, 5, 50])
def test_tasks_that_fit_are_found_however_far_back_they_are(limit: int) -> None:
    state = filled(40)

    found = paged(state, TaskFilter(frozenset({"FAILURE"})), limit)

    assert found == ["task-35", "task-28", "task-21", "task-14", "task-7", "task-0"]
    assert paged(state, TaskFilter(name="mail.*"), limit) == []


def test_a_task_that_is_heard_of_again_is_on_no_later_page() -> None:
    state = filled(40)
    spoken = iter(range(40))

    def speak() -> None:
        number = next(spoken)
        state.event(failed(f"task-{number}", 100.0 + number))

    found = paged(state, TaskFilter(), 4, speak)

    assert len(found) == len(set(found))
    assert set(found) >= {f"task-{number}" for number in range(10, 40)}


def test_tasks_that_speak_while_they_are_looked_at_are_on_no_later_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = filled(40)
    plain_fit = task_list._Fit.__call__
    moment = iter(range(100, 1000))

    def fit(self: Any, task: Task) -> bool:
        # Each third task is heard of just after it was taken for the list.
        if int(task.uuid.removeprefix("task-")) % 3 == 0:
            state.event(failed(task.uuid, float(next(moment))))
        return plain_fit(self, task)

    monkeypatch.setattr(task_list._Fit, "__call__", fit)

    found = paged(state, TaskFilter(), 4)

    assert len(found) == len(set(found))
    assert set(found) >= {f"task-{number}" for number in range(40) if number % 3}


def test_no_more_tasks_are_chosen_than_are_wanted() -> None:
    state = filled(40)

    chosen = fitting_tasks(state, TaskFilter(frozenset({"FAILURE"})), most=2)

    assert [task.uuid for task in chosen] == ["task-35", "task-28"]
