"""Rows in a database are those of the full state, whatever the snapshots, their order, and who took them."""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from celeriac import State
from celeriac.model.events import Event, TaskEvent, WorkerEvent, WorkerHeartbeat, WorkerOffline, WorkerOnline
from celeriac.store.database_camera import DatabaseCamera
from tests.property.strategies import events_of, with_and_without_bounds
from tests.snapshots import expected_tasks, state_of, stored_tasks, stored_workers

#: Each makes a database, some cameras and a dozen snapshots.
few = settings(max_examples=15)

clusters = events_of(st.sampled_from(("task-1", "p", "q\0")))
worker_events = st.lists(
    st.builds(
        lambda kind, **fields: kind(**fields),
        st.sampled_from((WorkerOnline, WorkerHeartbeat, WorkerHeartbeat, WorkerOffline)),
        timestamp=st.sampled_from((0.0, 1.0, 2.0, 3.0)),
        clock=st.sampled_from((0, 1, 2, 5000)),
        hostname=st.sampled_from(("a@x", "b@x")),
        pid=st.sampled_from((1, 2)),
        active=st.sampled_from((None, 1, 2)),
        sw_sys=st.sampled_from((None, "Linux", "\0")),
    ),
    min_size=1,
    max_size=12,
)


@contextmanager
def cameras(count: int) -> Iterator[list[DatabaseCamera]]:
    """Have some cameras on one database in memory."""
    made = [DatabaseCamera("sqlite://", redact=False) for _ in range(count)]
    for camera in made[1:]:
        camera._engine = made[0]._engine
    try:
        yield made
    finally:
        made[0].close()


def pieces(events: list[Event], random: Random) -> list[State]:
    """Return states of beginnings and of parts of a stream, which have all of it together; some twice."""
    cuts = sorted(random.randrange(len(events) + 1) for _ in range(3))
    parts = [events[: cuts[1]], events[cuts[0] : cuts[2]], events[cuts[1] :], events[: cuts[0]]]
    states = [state_of(random.sample(part, len(part))) for part in parts]
    states += random.sample(states, 2)
    random.shuffle(states)
    return states


@few
@given(clusters, st.randoms(use_true_random=False))
def test_rows_of_tasks_do_not_depend_on_the_snapshots(events: list[TaskEvent], random: Random) -> None:
    def law() -> None:
        with cameras(3) as several:
            for state in pieces(list(events), random):
                random.choice(several).on_shutter(state)

            rows = stored_tasks(several[0])

        expected = expected_tasks(state_of(events))
        assert rows.keys() == {uuid.replace("\0", "␀") for uuid in expected}
        for uuid, row in expected.items():
            assert rows[uuid.replace("\0", "␀")] == row

    with_and_without_bounds(law)


@few
@given(worker_events, st.randoms(use_true_random=False))
def test_rows_of_workers_do_not_depend_on_the_order_of_snapshots(
    events: list[WorkerEvent], random: Random
) -> None:
    states = pieces(list(events), random)

    seen = []
    for _ in range(3):
        with cameras(2) as several:
            for state in random.sample(states, len(states)):
                random.choice(several).on_shutter(state)
            seen.append(stored_workers(several[0]))

    assert seen[0] == seen[1] == seen[2]
    assert set(seen[0]) == {event.hostname for event in events}


@few
@given(clusters, st.randoms(use_true_random=False))
def test_a_snapshot_that_is_taken_again_by_anybody_changes_nothing(
    events: list[TaskEvent], random: Random
) -> None:
    state = state_of(events)
    with cameras(2) as (one, other):
        one.on_shutter(state)
        with one.engine.connect() as connection:
            before = connection.exec_driver_sql("SELECT * FROM celeriac_tasks ORDER BY uuid").all()

        for camera in random.sample((one, other, other), 3):
            camera.on_shutter(state)

        with one.engine.connect() as connection:
            after = connection.exec_driver_sql("SELECT * FROM celeriac_tasks ORDER BY uuid").all()
    assert before == after
