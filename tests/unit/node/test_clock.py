"""The clock that threads share."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from celeriac import CallerError, SharedClock

THREADS = 8
TURNS = 1_000


@pytest.fixture(autouse=True)
def _switch_threads_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


class SlowInteger(int):
    """A number that is added and compared slowly, so that another thread has its turn in the middle."""

    def __add__(self, other: int) -> "SlowInteger":
        return SlowInteger(int(self) + other)

    def __lt__(self, other: int) -> bool:
        return int(self) < int(other)


class SlowName(str):
    """A name that is found as slowly."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(str(self))


def run_at_once(turn: Callable[[int], int]) -> list[int]:
    """Let each thread take all its turns at the same time as the others; return what they got."""
    start = Barrier(THREADS)

    def run() -> list[int]:
        start.wait()
        return [turn(number) for number in range(TURNS)]

    with ThreadPoolExecutor(THREADS) as pool:
        futures = [pool.submit(run) for _ in range(THREADS)]
    return [stamp for future in futures for stamp in future.result()]


def test_threads_that_count_at_once_get_no_stamp_twice() -> None:
    clock = SharedClock(SlowInteger(0))

    stamps = run_at_once(lambda _: clock.forward())

    assert sorted(stamps) == list(range(1, THREADS * TURNS + 1))


def test_threads_that_count_and_adjust_at_once_get_no_stamp_twice() -> None:
    clock = SharedClock(SlowInteger(0))

    stamps = run_at_once(lambda turn: clock.adjust(clock.value + 1) if turn % 2 else clock.forward())

    assert len(set(stamps)) == THREADS * TURNS


def test_messages_received_at_once_are_each_counted() -> None:
    clock = SharedClock(SlowInteger(0))

    run_at_once(lambda _: clock.receive(0, peer="w@h"))

    assert clock.value == THREADS * TURNS


def test_refusals_at_once_are_each_counted() -> None:
    clock = SharedClock(SlowInteger(0))

    run_at_once(lambda _: clock.receive("abc", peer=SlowName("w@h")))

    assert clock.rejected == {"w@h": THREADS * TURNS}


def test_client_events_received_at_once_get_no_stamp_twice() -> None:
    clock = SharedClock(SlowInteger(10))

    stamps = run_at_once(lambda _: clock.receive_client())

    assert len(set(stamps)) == THREADS * TURNS


def test_it_starts_where_it_is_told() -> None:
    clock = SharedClock(41)

    stamp = clock.forward()

    assert stamp == 42


def test_it_begins_where_the_cluster_left_off() -> None:
    clock = SharedClock()

    value = clock.start([100, "junk", None], persisted=70)

    assert value == clock.value == 100


def test_it_refuses_to_start_from_what_is_no_clock() -> None:
    with pytest.raises(CallerError, match="initial_value"):
        SharedClock(-1)
