"""Who saves, restores and goes on might never have stopped."""

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from celeriac import State
from celeriac.core import snapshot
from celeriac.core.snapshot import TaskRecord
from celeriac.model.events import Event, Gap, Other, WorkerHeartbeat, WorkerOffline, WorkerOnline
from celeriac.store.state_file import decode_state, encode_state
from tests.property.effort import COSTLY
from tests.property.strategies import events_of, with_and_without_bounds
from tests.property.test_planted_bugs import UNTIL_FOUND

_NODES: dict[str, st.SearchStrategy[Any]] = {
    "timestamp": st.sampled_from((0.0, 1.0, 2.0, 3.0, 50.0)),
    "clock": st.sampled_from((0, 1, 2, 3, 5000)),
    "hostname": st.sampled_from(("a@x", "b@x", "ü@x", "d@x")),
    "pid": st.sampled_from((0, 1, 2)),
}
_LOADS = {
    "freq": st.sampled_from((None, 2.0, 5.0)),
    "active": st.sampled_from((None, 0, 3)),
    "loadavg": st.sampled_from((None, (0.1, 1.0, 2.5))),
    "sw_ident": st.sampled_from((None, "py-celery")),
}
_gaps = st.builds(
    Gap, **_NODES, since=st.just(1.5), until=st.just(2.5), reason=st.just("reset"), attempts=st.integers(0, 2)
)
_of_workers = st.one_of(
    *(st.builds(kind, **_NODES, **_LOADS) for kind in (WorkerOnline, WorkerHeartbeat, WorkerOffline)),
    st.builds(Other, **_NODES, group=st.just("worker"), subject=st.just("elect")),
    _gaps,
)
_moments = st.sampled_from((None, 0.5, 1.0, 60.0, 61.5))
#: Events as they come, and when each came by our clock.
Stream = list[tuple[Event, float | None]]


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Return events of tasks, workers and gaps in any order."""
    tasks: list[Event] = list(draw(events_of(st.sampled_from(("task-1", "p", "q", "r", "s")))))
    workers = draw(st.lists(_of_workers, max_size=12))
    mixed = draw(st.permutations(tasks + workers))
    return [(event, draw(_moments)) for event in mixed]


def made(max_tasks: int, max_workers: int) -> State:
    return State(max_tasks_in_memory=max_tasks, max_workers_in_memory=max_workers, now=lambda: 62.0)


def play(state: State, stream: Stream) -> None:
    for event, received_at in stream:
        state.take([event], received_at)


def picture(state: State) -> dict[str, object]:
    """Return all that a state knows, and the order in which it would forget."""
    return {
        "counts": (state.event_count, state.task_count),
        "gaps": list(state.gaps),
        "tasks": [
            (
                task.as_dict() | {"worker": task.host, "phase": task.phase, "conflict": task.conflict},
                (task.history, task.latest, task.parent_link),
            )
            for task in state.tasks.values()
        ],
        "by time": [uuid for uuid, _ in state.tasks_by_time()],
        "children": {uuid: sorted(t.uuid for t in state.children_of(uuid)) for uuid in ("task-1", "p", "q")},
        "workers": [
            ({name: getattr(worker, name) for name in worker.__slots__[:-3]}, worker.seen_at, worker.alive)
            for worker in state.workers.values()
        ],
    }


def through_a_file(state: State) -> State:
    """Return a new state that was restored from what this one has saved."""
    limits = (state.max_tasks_in_memory, state.max_workers_in_memory)
    content = bytes(encode_state(snapshot.take(state, now=62.0)))
    read = decode_state(content, max_tasks=limits[0], max_workers=limits[1])
    resumed = made(*limits)
    snapshot.restore(resumed, read, now=lambda: 62.0)
    return resumed


def check_law(stream: Stream, cut: int, max_tasks: int, max_workers: int) -> None:
    whole, begun = made(max_tasks, max_workers), made(max_tasks, max_workers)
    play(whole, stream)
    play(begun, stream[:cut])

    resumed = through_a_file(begun)
    assert picture(resumed) == picture(begun)
    play(resumed, stream[cut:])

    assert picture(resumed) == picture(whole)


_cases = given(streams(), st.integers(0, 52), st.integers(1, 6), st.integers(1, 5))


@COSTLY
@_cases
def test_to_save_and_restore_and_go_on_is_never_to_have_stopped(
    stream: Stream, cut: int, max_tasks: int, max_workers: int
) -> None:
    with_and_without_bounds(lambda: check_law(stream, cut, max_tasks, max_workers))


def lose_the_order(state: Any, *, now: float) -> snapshot.Snapshot:
    """Save tasks by their names, not as they would be forgotten."""
    taken = _take(state, now=now)
    return taken._replace(tasks=sorted(taken.tasks, key=lambda task: task.uuid))


def lose_the_latest(state: Any, *, now: float) -> snapshot.Snapshot:
    """Take the last event of a history for the latest."""
    taken = _take(state, now=now)
    return taken._replace(tasks=[TaskRecord(*task[:2], task.history[-1]) for task in taken.tasks])


def lose_the_counts(state: Any, *, now: float) -> snapshot.Snapshot:
    """Count from the beginning."""
    return _take(state, now=now)._replace(task_count=0)


def lose_the_sight(state: Any, *, now: float) -> snapshot.Snapshot:
    """Forget who was heard of."""
    taken = _take(state, now=now)
    return taken._replace(workers=[replace(worker, seen_at=0.0) for worker in taken.workers])


_take = snapshot.take


@pytest.mark.parametrize("bug", [lose_the_order, lose_the_latest, lose_the_counts, lose_the_sight])
def test_the_law_finds_a_planted_bug(bug: Any) -> None:
    def law(stream: Stream, cut: int, max_tasks: int, max_workers: int) -> None:
        check_law(stream, cut, max_tasks, max_workers)

    search = UNTIL_FOUND(_cases(law))

    with patch.object(snapshot, "take", bug), pytest.raises(AssertionError):
        search()
