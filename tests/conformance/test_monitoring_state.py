"""Monitoring and events: the state of a cluster, compared with Celery's State on the same events."""

import gc
import pickle
import weakref
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from celery.events import state as stock

from celeriac import State
from celeriac.core import ranking
from celeriac.core.worker import HEARTBEAT_EXPIRE_WINDOW
from tests.builders import AT, WORKER, Fields, task, worker


def fill(state: Any, events: list[Fields]) -> Any:
    """Give a state the events, as a receiver hands them out, each a second after the last."""
    for number, event in enumerate(events):
        at = AT + number
        state.event({**event, "clock": number + 1, "timestamp": at, "local_received": at})
    return state


def both(events: list[Fields], **options: Any) -> tuple[State, Any]:
    """Return our state and Celery's, of the same events."""
    return fill(State(now=lambda: AT, **options), events), fill(stock.State(**options), events)


def uuids(listed: Any) -> list[str]:
    return [uuid for uuid, _ in listed]


#: A root task with one child, both of one worker.
FAMILY = [
    task("received", "root", name="shop.pay", root_id="root"),
    task("received", "child", name="shop.ship", root_id="root", parent_id="root"),
    task("started", "child"),
    task("started", "root"),
    task("succeeded", "root", result="1", runtime=0.5),
]


def test_082_a_worker_is_offline_when_its_heartbeats_stop() -> None:
    """A worker silent for `HEARTBEAT_EXPIRE_WINDOW` percent of its frequency is OFFLINE, before it ONLINE."""
    now = AT
    state = State(now=lambda: now)
    state.event(worker("heartbeat", freq=2.0, local_received=AT))

    statuses = []
    for seconds in (0.0, 3.9, 4.0):
        now = AT + seconds
        statuses.append(state.workers[WORKER].status_string)

    assert statuses == ["ONLINE", "ONLINE", "OFFLINE"]
    assert HEARTBEAT_EXPIRE_WINDOW == stock.HEARTBEAT_EXPIRE_WINDOW == 200


def test_083_a_worker_has_the_fields_of_its_heartbeat() -> None:
    """A worker has active, processed, loadavg, sw_ident, sw_ver and sw_sys of its last heartbeat."""
    ours, theirs = both([worker("online"), worker("heartbeat", active=3, processed=9)])

    names = ("active", "processed", "sw_ident", "sw_ver", "sw_sys", "freq", "pid")
    fields = [{name: getattr(state.workers[WORKER], name) for name in names} for state in (ours, theirs)]

    assert fields[0] == fields[1]
    assert (fields[0]["active"], fields[0]["processed"]) == (3, 9)
    assert list(ours.workers[WORKER].loadavg or ()) == theirs.workers[WORKER].loadavg == [2.55, 1.6, 0.73]


@pytest.mark.parametrize("child_first", [False, True])
def test_084_tasks_know_their_parent_their_root_and_their_children(child_first: bool) -> None:
    """A task has `parent_id`, `parent`, `root` and `children`, in whichever order the tasks became known."""
    events = FAMILY[1::-1] if child_first else FAMILY[:2]
    ours, theirs = both(events)

    for state in (ours, theirs):
        child, root = state.tasks["child"], state.tasks["root"]

        assert (child.parent_id, child.parent, child.root) == ("root", root, root)
        assert set(root.children) == {child}


def test_085_children_keep_no_task_alive() -> None:
    """The children of a task do not keep the tasks in memory."""
    ours, _ = both(FAMILY, max_tasks_in_memory=2)
    child = weakref.ref(ours.tasks["child"])

    fill(ours, [task("started", "root"), task("received", "other")])
    gc.collect()

    assert child() is None
    assert set(ours.tasks["root"].children) == set()


def test_086_the_tasks_and_workers_without_recent_events_are_forgotten() -> None:
    """`max_workers_in_memory` and `max_tasks_in_memory` bound the state, and the most recently used stay."""
    events = [task("received", f"t{number}", hostname=f"w{number}") for number in range(4)]
    events += [worker("heartbeat", hostname=f"w{number}") for number in range(4)]
    ours, theirs = both(events, max_workers_in_memory=3, max_tasks_in_memory=2)
    plain = State()

    kept = [(set(state.tasks), set(state.workers)) for state in (ours, theirs)]

    assert kept[0] == kept[1] == ({"t2", "t3"}, {"w1", "w2", "w3"})
    assert (plain.max_workers_in_memory, plain.max_tasks_in_memory) == (5000, 10_000)


@pytest.mark.differs("Lists of tasks by time")
def test_087_there_is_no_task_heap() -> None:
    """`State` keeps tasks in order of logical time in a sorted list, `taskheap`."""
    ours, theirs = both(FAMILY)

    listed = [uuids(state.tasks_by_time()) for state in (ours, theirs)]

    assert listed[0] == listed[1] == ["root", "child"]
    assert not hasattr(ours, "taskheap")


def test_088_the_newest_tasks_are_found_without_a_look_at_all() -> None:
    """`tasks_by_time(limit=10)` takes no longer for more tasks in memory."""

    def count_looks(size: int) -> int:
        looks = 0
        rank = ranking.rank

        def count(known: Any) -> ranking.RankKey:
            nonlocal looks
            looks += 1
            return rank(known)

        state = fill(State(), [task("received", f"t{number:05}") for number in range(size)])
        uuids(state.tasks_by_time(limit=10))
        state.event(task("started", "t00000", clock=20_000))
        with patch.object(ranking, "rank", count):
            newest = uuids(state.tasks_by_time(limit=10))
        assert newest == ["t00000", *(f"t{number:05}" for number in range(size - 1, size - 10, -1))]
        return looks

    looks = [count_looks(size) for size in (100, 10_000)]

    assert 0 < looks[1] == looks[0]


@pytest.mark.differs("Lists of tasks by time")
def test_089_tasks_come_newest_first_up_to_a_limit() -> None:
    """`tasks_by_time` lists tasks newest first, or oldest first, up to a limit, which counts tasks."""
    events = [
        task(subject, f"t{number}") for number in range(5) for subject in ("received", "started", "succeeded")
    ]
    ours, theirs = both(events)

    limited = [uuids(state.tasks_by_time(limit=3)) for state in (ours, theirs)]

    assert uuids(ours.tasks_by_time()) == uuids(theirs.tasks_by_time()) == ["t4", "t3", "t2", "t1", "t0"]
    assert uuids(ours.tasks_by_time(reverse=False)) == ["t0", "t1", "t2", "t3", "t4"]
    assert limited == [["t4", "t3", "t2"], ["t4"]]


def test_090_a_state_is_asked_as_in_celery() -> None:
    """A state lists tasks by time, type and worker, names types and live workers, freezes and clears."""

    def ask(state: Any) -> tuple[Any, ...]:
        listed = (
            uuids(state.tasks_by_timestamp()),
            uuids(state.tasks_by_type("shop.pay")),
            {known.uuid for known in state.tasks_by_type["shop.ship"]},
            uuids(state.tasks_by_worker(WORKER, limit=1)),
            state.task_types(),
            state.freeze_while(lambda: len(state.tasks)),
        )
        state.clear()
        return (*listed, set(state.tasks), set(state.workers))

    answers = [ask(state) for state in both([worker("online"), *FAMILY])]
    ours = fill(State(now=lambda: AT), [worker("online")])

    assert answers[0] == answers[1]
    assert answers[0][-2:] == ({"child"}, set())
    assert [known.hostname for known in ours.alive_workers()] == [WORKER]


@pytest.mark.parametrize("make", [State, stock.State])
def test_091_a_state_calls_back(make: Any) -> None:
    """`State` has callbacks for events, joins and leaves; `event` returns its object, if new, and subject."""
    calls: list[str] = []
    state = make(
        lambda _, event: calls.append(event["type"]),
        on_node_join=lambda node: calls.append(f"join {node.hostname}"),
        on_node_leave=lambda node: calls.append(f"leave {node.hostname}"),
    )

    (node, node_is_new), node_subject = state.event(worker("online", local_received=AT))
    (known, task_is_new), task_subject = state.event(task("received", local_received=AT))
    state.event(worker("offline", local_received=AT))

    assert (node.hostname, node_is_new, node_subject) == (WORKER, True, "online")
    assert (known.uuid, task_is_new, task_subject) == ("t1", True, "received")
    assert calls == ["worker-online", f"join {WORKER}", "task-received", "worker-offline", f"leave {WORKER}"]


@pytest.mark.differs("Saving a State")
def test_092_a_state_is_saved_and_restored(tmp_path: Path) -> None:
    """`State` can be pickled, and takes its callback, workers, tasks and heap by position."""
    state = fill(State(), FAMILY)
    state.save(tmp_path / "state")

    restored = State().restore(tmp_path / "state")

    assert {uuid: known.as_dict() for uuid, known in restored.tasks.items()} == {
        uuid: known.as_dict() for uuid, known in state.tasks.items()
    }
    with pytest.raises(TypeError, match="save"):
        pickle.dumps(state)
    with pytest.raises(TypeError):
        State(None, {}, {})  # type: ignore[call-arg, arg-type]
