"""A list with a limit costs what changed, not what is in memory."""

from collections.abc import Callable, Iterator
from unittest.mock import patch

import pytest

from celeriac import State
from celeriac.core import ranking
from celeriac.core.task import Task
from tests.builders import AT, task

COUNT = 2_000


class Looks:
    """Counts the tasks whose place was looked at."""

    def __init__(self) -> None:
        self.count = 0

    def rank(self, task: Task) -> ranking.RankKey:
        self.count += 1
        return _rank(task)

    def taken(self) -> int:
        """Return how many there were since the last call."""
        count, self.count = self.count, 0
        return count


_rank = ranking.rank


@pytest.fixture
def looks() -> Iterator[Looks]:
    looks = Looks()
    with patch.object(ranking, "rank", looks.rank):
        yield looks


def state_of(count: int, max_tasks: int = 100_000) -> State:
    """Return a state with tasks named by the order of their events."""
    state = State(max_tasks_in_memory=max_tasks)
    for number in range(count):
        start(state, number)
    return state


def start(state: State, number: int) -> None:
    state.event(task("received", f"t{number:07}", clock=number + 1, timestamp=AT + number, name="shop.pay"))


def newest(state: State, limit: int) -> list[str]:
    return [uuid for uuid, _ in state.tasks_by_time(limit)]


def oldest(state: State, limit: int) -> list[str]:
    return [uuid for uuid, _ in state.tasks_by_time(limit, reverse=False)]


@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize("kind", ["time", "type", "worker"])
def test_a_second_list_looks_at_few_tasks(kind: str, reverse: bool, looks: Looks) -> None:
    state = state_of(COUNT)
    reads: dict[str, Callable[[], Iterator[object]]] = {
        "time": lambda: state.tasks_by_time(10, reverse),
        "type": lambda: state.tasks_by_type("shop.pay", 10, reverse),
        "worker": lambda: state.tasks_by_worker("celery@web1", 10, reverse),
    }
    read = reads[kind]
    first = list(read())
    whole = looks.taken()

    for number in range(COUNT, COUNT + 5):
        start(state, number)
    again = list(read())

    assert looks.taken() <= 25
    assert whole >= COUNT
    assert len(first) == len(again) == 10


def test_a_list_of_the_newest_never_reads_all_tasks_again(looks: Looks) -> None:
    state = state_of(COUNT, max_tasks=COUNT)
    newest(state, 10)
    looks.taken()

    for number in range(COUNT, 3 * COUNT):
        start(state, number)
        if number % 50 == 0:
            assert newest(state, 10)[-1] == f"t{number - 9:07}"

    assert looks.taken() < 5 * 2 * COUNT


def test_one_task_with_many_events_does_not_push_the_others_out(looks: Looks) -> None:
    state = state_of(COUNT)
    newest(state, 10)
    looks.taken()

    for number in range(COUNT, 2 * COUNT):
        state.event(task("progress", "t0000000", clock=number, timestamp=AT + number))
        assert newest(state, 2) == ["t0000000", f"t{COUNT - 1:07}"]

    assert looks.taken() < 10 * COUNT


def test_the_oldest_are_read_again_ever_more_rarely(looks: Looks) -> None:
    state = state_of(COUNT, max_tasks=COUNT)
    oldest(state, 10)
    looks.taken()

    for number in range(COUNT, 3 * COUNT):
        start(state, number)
        assert oldest(state, 3)[0] == f"t{number + 1 - COUNT:07}"

    assert looks.taken() < 30 * 2 * COUNT


def test_the_kept_keys_are_bounded() -> None:
    with patch.object(ranking, "MAX_KEYS", 100):
        state = state_of(COUNT, max_tasks=COUNT)
        kept = state._ranking(False, None, None)
        most = 0

        for number in range(COUNT, 2 * COUNT):
            start(state, number)
            oldest(state, 3)
            most = max(most, len(kept._keys))

    assert 100 <= most <= 200


def test_a_longer_list_than_before_is_whole() -> None:
    state = state_of(COUNT)

    lengths = [len(newest(state, limit)) for limit in (1, 10, 500, 1000, 1001, COUNT + 1)]

    assert lengths == [1, 10, 500, 1000, 1001, COUNT]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_gives_no_tasks(limit: int) -> None:
    state = state_of(3)

    listed = newest(state, limit)

    assert listed == []


def test_a_callback_that_reads_a_list_misses_nothing_later() -> None:
    seen: list[list[str]] = []
    state = State(max_workers_in_memory=1, on_node_leave=lambda _: seen.append(newest(state, 5)))
    state.event(task("received", "a", hostname="one@h", clock=1))
    state.event({**task("online", hostname="one@h", clock=1), "type": "worker-online"})

    state.event(task("received", "b", hostname="two@h", clock=2))
    state.event(task("started", "a", hostname="two@h", clock=3))

    assert seen == [["a"]]
    assert newest(state, 5) == ["a", "b"]


def test_a_list_after_a_clear_has_what_came_since() -> None:
    state = state_of(20)
    newest(state, 5)
    state.clear(ready=False)

    for number in (5, 3):
        start(state, number)

    assert newest(state, 5) == ["t0000005", "t0000003"]
    assert oldest(state, 5) == ["t0000003", "t0000005"]
