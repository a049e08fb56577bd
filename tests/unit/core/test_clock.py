"""The Lamport clock, case by case; its laws are in the property tests."""

import pytest

from celeriac import CallerError, LamportClock
from celeriac.core.clock import CEILING, MAX_FAR, MAX_JUMP, MAX_REJECTED


def test_a_stamp_is_one_more_than_the_last() -> None:
    clock = LamportClock()

    assert [clock.forward(), clock.forward(), clock.value] == [1, 2, 2]


def test_adjusting_passes_the_greater_of_both() -> None:
    clock = LamportClock(10)

    assert [clock.adjust(3), clock.adjust(100), clock.adjust(5.0)] == [11, 101, 102]


@pytest.mark.parametrize("odd", ["abc", None, 2**100, 1e308, float("inf"), -1, True, CEILING])
def test_adjusting_to_what_is_no_clock_only_counts(odd: object) -> None:
    clock = LamportClock(10)

    assert clock.adjust(odd) == 11


@pytest.mark.parametrize("odd", [-1, CEILING, 1.5, "7", None])
def test_a_clock_cannot_begin_outside_its_domain(odd: object) -> None:
    with pytest.raises(CallerError, match="initial_value"):
        LamportClock(odd)  # type: ignore[arg-type]


def test_one_entry_is_a_heap_too() -> None:
    assert LamportClock.sort_heap([(3, "a@x", {"topic": 1})]) == (3, "a@x", {"topic": 1})


def test_equal_clocks_go_to_the_lowest_id_without_comparing_the_rest() -> None:
    heap = [(3, "b@x", {"a": 1}), (3, "a@x", {"b": 2}), (4, "0@x", {})]

    assert LamportClock.sort_heap(heap)[1] == "a@x"


def test_an_empty_heap_has_no_first_entry() -> None:
    with pytest.raises(CallerError, match="at least one entry"):
        LamportClock.sort_heap([])


def test_one_node_cannot_agree_with_itself() -> None:
    clock = LamportClock(10)

    adopted = [clock.receive(10 + MAX_JUMP * 4 + n, peer="a@x", alive=5) for n in range(5)]

    assert adopted == [False] * 5
    assert clock.rejected == {"a@x": 5}


def test_most_of_the_nodes_alive_are_enough() -> None:
    clock = LamportClock(10)
    far = MAX_JUMP * 4

    adopted = [clock.receive(far, peer=peer, alive=3) for peer in ("a@x", "b@x")]

    assert adopted == [False, True]


def test_three_nodes_that_are_far_apart_do_not_agree() -> None:
    clock = LamportClock(10)

    adopted = [clock.receive(MAX_JUMP * 4 * n, peer=f"{n}@x", alive=9) for n in (1, 2, 3)]

    assert adopted == [False] * 3


def test_what_is_remembered_of_peers_is_bounded() -> None:
    clock = LamportClock()

    for number in range(MAX_REJECTED + 10):
        clock.receive(MAX_JUMP * 4 * (number + 1), peer=f"{number}@x", alive=10**6)

    assert len(clock.rejected) == MAX_REJECTED
    assert len(clock._far) <= MAX_FAR


def test_the_event_of_a_client_is_stamped_just_below_us() -> None:
    fresh, busy = LamportClock(), LamportClock(10)

    assert [fresh.receive_client(), busy.receive_client()] == [0, 9]
    assert [fresh.value, busy.value] == [1, 11]


def test_the_start_is_the_median_of_three_replies_and_the_most_of_two() -> None:
    assert LamportClock().start([5, 7, 2**51]) == 7
    assert LamportClock().start([5, 7]) == 7
    assert LamportClock().start([5, 2**52, "x"], persisted=6) == 6
    assert LamportClock(9).start([]) == 9
