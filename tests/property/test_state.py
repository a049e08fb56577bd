"""The cluster state holds what its tasks say, in bounds, whatever arrives."""

from collections.abc import Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from celeriac import State
from celeriac.core import facts
from celeriac.core.order import display_key
from celeriac.model.events import Received, TaskEvent
from celeriac.model.states import READY_STATES
from tests.property.effort import COSTLY
from tests.property.strategies import events_of, with_and_without_bounds

Events = list[TaskEvent]
#: Events of several tasks that are each other's parents.
clusters = events_of(st.sampled_from(("task-1", "p", "q", "r", "s")))

#: Events of one task that nearly all have one identity, so that one replaces another.
rivals: st.SearchStrategy[Events] = st.lists(
    st.builds(
        Received,
        timestamp=st.sampled_from((1.0, 2.0)),
        clock=st.just(1),
        hostname=st.just("a@x"),
        uuid=st.just("task-1"),
        name=st.sampled_from(("x", "y")),
        parent_id=st.sampled_from((None, "p", "q")),
        retries=st.sampled_from((0, 1)),
    ),
    max_size=6,
)


def state_of(events: Sequence[TaskEvent], *, max_tasks: int = 100) -> State:
    state = State(max_tasks_in_memory=max_tasks)
    for event in events:
        state.event(event)
    return state


def picture(state: State) -> dict[str, dict[str, object]]:
    """Return all that can be asked of the tasks."""
    return {
        uuid: task.as_dict()
        | {"worker": task.host, "phase": task.phase, "conflict": task.conflict, "extra": task.extra}
        | {"deliveries": task.deliveries, "executions": task.executions, "redelivered": task.redelivered}
        | {"parent": task.parent and task.parent.uuid, "latest": task.latest and display_key(task.latest)}
        for uuid, task in state.tasks.items()
    }


@COSTLY
@given(clusters, st.randoms(use_true_random=False))
def test_the_picture_does_not_depend_on_the_order_of_arrival(events: Events, random: Random) -> None:
    shuffled = random.sample(events, len(events)) + events[:3]

    one, other = picture(state_of(shuffled)), picture(state_of(events))

    assert one.keys() == other.keys()
    for uuid, seen in one.items():
        assert seen == other[uuid]


@COSTLY
@given(clusters)
def test_clocks_of_receivers_change_the_display_order_only(events: Events) -> None:
    other_receiver = [replace(event, local_clock=number) for number, event in enumerate(events)]

    one, other = picture(state_of(events)), picture(state_of(other_receiver))

    for uuid, seen in one.items():
        assert seen | {"latest": None} == other[uuid] | {"latest": None}


def check_filters(events: Events) -> None:
    """Compare what each task remembers for lists with its facts, after each event."""
    state = State()
    for event in events:
        state.event(event)
        task = state.tasks[event.uuid]
        known = facts.read(task.history)
        assert (task.name, task.host) == (known.name, known.worker)
        assert task.parent_link == facts.parent_link(task.history)


@COSTLY
@given(clusters)
def test_what_lists_are_filtered_by_is_what_the_facts_say(events: Events) -> None:
    with_and_without_bounds(lambda: check_filters(events))


@given(rivals)
def test_filters_follow_an_event_that_replaces_another(events: Events) -> None:
    check_filters(events)


@COSTLY
@given(clusters, st.integers(1, 3))
def test_children_are_the_tasks_in_memory_and_nothing_leaks(events: Events, max_tasks: int) -> None:
    state = state_of(events, max_tasks=max_tasks)

    for uuid in ("task-1", "p", "q", "r", "s"):
        assert state.children_of(uuid) == {t for t in state.tasks.values() if t.parent_link == uuid}
    assert {child for ids in state._children.values() for child in ids} <= set(state.tasks)
    assert all(state._children.values())


@COSTLY
@given(clusters, st.integers(1, 3))
def test_the_tasks_kept_are_those_last_heard_of(events: Events, max_tasks: int) -> None:
    state = state_of(events, max_tasks=max_tasks)

    heard = list(dict.fromkeys(event.uuid for event in reversed(events)))
    assert list(state.tasks) == heard[:max_tasks][::-1]


@COSTLY
@given(clusters, st.integers(0, 6), st.booleans())
def test_a_limit_gives_the_beginning_of_the_whole_list(
    events: Events, limit: int, newest_first: bool
) -> None:
    state = state_of(events)

    whole = list(state.tasks_by_time(reverse=newest_first))

    assert list(state.tasks_by_time(limit, newest_first)) == whole[:limit]
    latest = [display_key(task.latest) for _, task in whole if task.latest is not None]
    assert latest == sorted(latest, reverse=newest_first)
    for name in state.task_types():
        of_name = [(uuid, task) for uuid, task in whole if task.name == name]
        assert list(state.tasks_by_type(name, limit, newest_first)) == of_name[:limit]
        assert state.tasks_by_type[name] == {task for _, task in of_name}
    for host in state.workers:
        of_host = [(uuid, task) for uuid, task in whole if task.host == host]
        assert list(state.tasks_by_worker(host, limit, newest_first)) == of_host[:limit]


@COSTLY
@given(clusters, st.booleans())
def test_clearing_forgets_what_it_says(events: Events, ready: bool) -> None:
    state = state_of(events)
    open_tasks = [uuid for uuid, task in state.tasks.items() if task.state not in READY_STATES]

    state.clear_tasks(ready=ready)

    assert list(state.tasks) == (open_tasks if ready else [])
    assert {child for ids in state._children.values() for child in ids} <= set(state.tasks)
