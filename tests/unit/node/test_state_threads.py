"""The state among threads: frozen, cleared, and fed by several at once."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Barrier, Event

import pytest

from celeriac import State, Task
from tests.builders import AT, WORKER, body, task, worker

THREADS = 8


@pytest.fixture
def _switch_threads_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def at_once(run: Callable[[int], object]) -> None:
    """Call a function in eight threads at the same time, each with its number."""
    start = Barrier(THREADS)

    def begin(number: int) -> None:
        start.wait()
        run(number)

    with ThreadPoolExecutor(THREADS) as pool:
        futures = [pool.submit(begin, number) for number in range(THREADS)]
    for future in futures:
        future.result()


# -- freezing and clearing


def test_freeze_while_returns_what_the_function_returns() -> None:
    state = State()

    returned = state.freeze_while(lambda *args, **kwargs: (args, kwargs), 1, 2, three=3)

    assert returned == ((1, 2), {"three": 3})


@pytest.mark.usefixtures("_switch_threads_often")
def test_no_event_of_another_thread_counts_while_the_state_is_frozen() -> None:
    state, stop, running = State(), Event(), Barrier(THREADS + 1)
    counts: set[int] = set()

    def feed(number: int) -> None:
        for turn in count():
            state.event(task("started", f"t{number}", timestamp=AT + turn % 100))
            if turn == 0:
                running.wait()
            if stop.is_set():
                break

    with ThreadPoolExecutor(THREADS) as pool:
        feeders = [pool.submit(feed, number) for number in range(THREADS)]
        running.wait()
        for _ in range(5):
            counts.add(state.freeze_while(_distinct_counts, state))
        stop.set()

    assert [feeder.result() for feeder in feeders] == [None] * THREADS
    assert counts == {1}


def _distinct_counts(state: State) -> int:
    """Look at the state often enough for other threads to have their turns in between."""
    return len({state.event_count for _ in range(20_000)})


def test_freeze_while_clears_afterwards_if_asked() -> None:
    state = State()
    state.event(task("succeeded"))

    seen = state.freeze_while(lambda: list(state.tasks), clear_after=True)

    assert seen == ["t1"]
    assert list(state.tasks) == []
    assert state.event_count == 0


def test_freeze_while_clears_also_after_a_function_that_raises() -> None:
    state = State()
    state.event(task("succeeded"))

    with pytest.raises(ZeroDivisionError):
        state.freeze_while(lambda: 1 / 0, clear_after=True)

    assert list(state.tasks) == []


def test_freeze_while_keeps_everything_unless_asked() -> None:
    state = State()
    state.event(task("succeeded"))

    state.freeze_while(lambda: None)

    assert list(state.tasks) == ["t1"]
    assert state.event_count == 1


def three_tasks_and_a_worker() -> State:
    """Return a state with a task that runs, one that ended, and one that waits for another try."""
    state = State()
    state.event(worker("online"))
    state.event(task("received", "runs"))
    state.event(task("succeeded", "ended"))
    state.event(task("retried", "waits"))
    return state


def test_clear_tasks_forgets_the_tasks_that_have_ended() -> None:
    state = three_tasks_and_a_worker()

    state.clear_tasks()

    assert set(state.tasks) == {"runs", "waits"}


def test_clear_tasks_forgets_all_tasks_if_told_not_to_ask_whether_they_are_ready() -> None:
    state = three_tasks_and_a_worker()

    state.clear_tasks(ready=False)

    assert set(state.tasks) == set()


def test_clear_tasks_keeps_the_workers_and_the_counts() -> None:
    state = three_tasks_and_a_worker()

    state.clear_tasks(ready=False)

    assert list(state.workers) == [WORKER]
    assert (state.event_count, state.task_count) == (4, 1)


@pytest.mark.parametrize(("ready", "left"), [(True, {"runs", "waits"}), (False, set())])
def test_clear_forgets_workers_counts_and_the_tasks_as_clear_tasks_does(ready: bool, left: set[str]) -> None:
    state = three_tasks_and_a_worker()

    state.clear(ready)

    assert set(state.tasks) == left
    assert list(state.workers) == []
    assert (state.event_count, state.task_count) == (0, 0)


def test_a_forgotten_task_leaves_no_child_behind() -> None:
    state = State()
    state.event(task("received", "parent"))
    state.event(task("received", "child", parent_id="parent"))
    state.event(task("succeeded", "child", timestamp=AT + 1))

    state.clear_tasks()

    assert state.tasks["parent"].children == set()


def test_a_state_that_was_cleared_takes_events_again() -> None:
    state = three_tasks_and_a_worker()
    state.clear(ready=False)

    returned = state.event(task("received", "new", name="shop.pay"))

    assert returned == ((state.tasks["new"], True), "received")
    assert state.task_types() == ["shop.pay"]


# -- threads


@pytest.mark.usefixtures("_switch_threads_often")
def test_threads_that_feed_dicts_at_once_lose_nothing() -> None:
    state = State()

    def feed(number: int) -> None:
        for turn in range(200):
            state.event(task("received", f"{number}-{turn}", hostname=f"w{number}@h", name="shop.pay"))
            state.event(task("succeeded", f"{number}-{turn}", hostname=f"w{number}@h", timestamp=AT + 1))

    at_once(feed)

    assert (state.event_count, state.task_count) == (THREADS * 400, THREADS * 200)
    assert len(state.tasks_by_type["shop.pay"]) == THREADS * 200
    assert {task.state for task in state.tasks.values()} == {"SUCCESS"}


@pytest.mark.usefixtures("_switch_threads_often")
def test_threads_that_feed_bodies_of_one_task_at_once_lose_nothing() -> None:
    state = State()

    def feed(number: int) -> None:
        for turn in range(100):
            state.receive(body([task("started", "t1", pid=number, clock=turn + 1), {}]), received_at=AT)

    at_once(feed)

    assert state.event_count == state.tasks["t1"].executions == THREADS * 100
    assert dict(state.gate.refused) == {"type": THREADS * 100}


@pytest.mark.usefixtures("_switch_threads_often")
def test_a_thread_may_clear_while_others_feed() -> None:
    state = State()

    def feed(number: int) -> None:
        for turn in range(200):
            if number:
                state.event(task("received", f"{number}-{turn}", parent_id=f"{number}-{turn - 1}"))
            else:
                state.clear(ready=False)

    at_once(feed)

    assert state.event_count == state.task_count <= (THREADS - 1) * 200
    assert all(isinstance(known, Task) for _, known in state.tasks_by_time())


@pytest.mark.usefixtures("_switch_threads_often")
def test_a_thread_may_ask_while_others_feed() -> None:
    state = State(max_tasks_in_memory=50)
    answers: list[object] = []

    def feed_or_ask(number: int) -> None:
        for turn in range(200):
            if number:
                state.event(task("received", f"{number}-{turn}", name=f"n{turn}", parent_id="parent"))
                continue
            answers.append(list(state.tasks_by_time(limit=10)))
            answers.append(state.task_types())
            answers.append(list(state.tasks_by_worker(WORKER)))
            answers.append(list(state.itertasks()))
            answers.append(list(state.alive_workers()))
            answers.append(state.children_of("parent"))

    at_once(feed_or_ask)

    assert len(answers) == 6 * 200
    assert len(state.tasks) == 50
