from collections import Counter
from random import Random
from typing import Any

from celeriac.core.state import ClusterState
from celeriac.core.tally import Tally
from celeriac.model.events import TaskEvent
from celeriac.testing.histories import regular_history
from tests.event_logs import failed, received, succeeded
from tests.spark.task_events import wild_history


def counted(**limits: Any) -> tuple[ClusterState, Tally]:
    state, tally = ClusterState(now=lambda: 0.0, **limits), Tally()
    state.on_task = lambda task, event, _: tally.take(task, event)
    state.on_forget = tally.leave
    return state, tally


def test_tasks_are_counted_by_state_and_name_as_events_come() -> None:
    state, tally = counted()

    for event in (received("a"), received("b", name="mail"), succeeded("a", 1.0), failed("c", 1.0)):
        state.apply(event)

    assert tally.counts == Counter(
        {("SUCCESS", "shop.pay"): 1, ("RECEIVED", "mail"): 1, ("FAILURE", None): 1}
    )
    assert tally.by_state == {"SUCCESS": 1, "RECEIVED": 1, "FAILURE": 1}
    assert tally.by_name == {"shop.pay": 1, "mail": 1, None: 1}


def test_whatever_comes_a_task_is_counted_as_what_it_is() -> None:
    state, tally = counted()
    random = Random(7)
    for number in range(300):
        for event in random.choice((regular, wild))(random, number):
            state.apply(event)

    told = Counter((task.state, task.name) for task in state.tasks.values())

    assert tally.counts == told


def wild(random: Random, number: int) -> list[TaskEvent]:
    return wild_history(random, f"wild-{number}")


def regular(random: Random, _: int) -> list[TaskEvent]:
    made = regular_history(random, redelivery=random.random() < 0.3)
    return random.sample(made, random.randrange(1, len(made) + 1))


def test_an_event_that_came_before_counts_once() -> None:
    state, tally = counted()

    for _ in range(3):
        state.apply(received("a"))

    assert tally.by_state == {"RECEIVED": 1}


def test_tasks_that_are_forgotten_are_counted_no_more_and_nothing_is_left_of_their_names() -> None:
    state, tally = counted(max_tasks_in_memory=2)

    for number in range(10):
        state.apply(received(f"task-{number}", number, name=f"name-{number}"))

    assert tally.by_name == {"name-8": 1, "name-9": 1}
    state.clear(ready=False)
    assert tally.counts == Counter()
