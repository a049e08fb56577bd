"""Laws 1, 2, 5, 8 and 9: what is known of a task is a join-semilattice."""

from math import inf
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from celeriac import decode, encode, states
from celeriac.core import facts, history
from celeriac.core.history import merge
from celeriac.core.order import task_key
from celeriac.model.events import (
    Failed,
    Received,
    Rejected,
    Retried,
    Revoked,
    Sent,
    Started,
    Succeeded,
    TaskEvent,
)
from tests.property.effort import COSTLY
from tests.property.strategies import event_lists, fold, observe, with_and_without_bounds

Events = list[TaskEvent]


@COSTLY
@given(event_lists, event_lists)
def test_joining_is_commutative(one: Events, other: Events) -> None:
    def law() -> None:
        x, y = fold(one), fold(other)

        assert observe(merge(x, y)) == observe(merge(y, x))

    with_and_without_bounds(law)


@COSTLY
@given(event_lists, event_lists, event_lists)
def test_joining_is_associative(one: Events, two: Events, three: Events) -> None:
    def law() -> None:
        x, y, z = fold(one), fold(two), fold(three)

        assert observe(merge(merge(x, y), z)) == observe(merge(x, merge(y, z)))

    with_and_without_bounds(law)


@COSTLY
@given(event_lists)
def test_joining_with_itself_or_nothing_changes_nothing(events: Events) -> None:
    def law() -> None:
        x = fold(events)

        assert observe(merge(x, x)) == observe(merge(x, ())) == observe(merge((), x)) == observe(x)

    with_and_without_bounds(law)


@COSTLY
@given(event_lists, st.randoms(use_true_random=False))
def test_neither_order_nor_duplication_matters(events: Events, random: Random) -> None:
    def law() -> None:
        copies = random.choices(events, k=random.randrange(5)) if events else []
        shuffled = [*events, *copies]
        random.shuffle(shuffled)

        assert observe(fold(shuffled)) == observe(fold(events))

    with_and_without_bounds(law)


@COSTLY
@given(event_lists, event_lists)
def test_folding_in_parts_is_folding_the_whole(one: Events, other: Events) -> None:
    def law() -> None:
        assert observe(fold(one + other)) == observe(merge(fold(one), fold(other)))

    with_and_without_bounds(law)


@COSTLY
@given(event_lists)
def test_a_history_is_in_task_order_without_doubles_and_within_its_caps(events: Events) -> None:
    def law() -> None:
        past = fold(events)

        keys = [task_key(event) for event in past]
        assert keys == sorted(set(keys))
        for kind, cap in history.CAPS.items():
            assert len(facts.all_of(kind, past)) <= cap

    with_and_without_bounds(law)


@COSTLY
@given(event_lists, event_lists)
def test_what_ended_stays_ended(before: Events, after: Events) -> None:
    def law() -> None:
        was = facts.read(fold(before)).state
        becomes = facts.read(fold(before + after)).state

        if was == states.SUCCESS:
            assert becomes == states.SUCCESS
        if was == states.FAILURE:
            assert becomes in {states.FAILURE, states.SUCCESS}

    with_and_without_bounds(law)


@COSTLY
@given(event_lists, event_lists)
def test_the_first_time_never_rises_and_the_last_never_falls(before: Events, after: Events) -> None:
    def law() -> None:
        was, becomes = fold(before), fold(before + after)

        for kind in (Sent, Received, Started, Succeeded, Failed, Retried, Revoked, Rejected):
            times_were = [event.timestamp for event in facts.all_of(kind, was)]
            times_are = [event.timestamp for event in facts.all_of(kind, becomes)]
            if times_were:
                assert min(times_are, default=inf) <= min(times_were)
                assert max(times_are, default=-inf) >= max(times_were)

    with_and_without_bounds(law)


@COSTLY
@given(event_lists)
def test_a_history_survives_the_wire(events: Events) -> None:
    past = tuple(replace(event, local_clock=None) for event in fold(events))

    again = tuple(event for kept in past for event in decode(encode(kept)))

    assert again == past
