"""Every law of the outbox is seen to fail: bugs are planted in it, and the machine must find each."""

from collections.abc import Callable
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from celeriac.core.outbox import Outbox, Parcel
from tests.property.test_outbox import OutboxMachine
from tests.property.test_planted_bugs import UNTIL_FOUND

_close_batch, _shrink, _take = Outbox.close_batch, Outbox._shrink, Outbox.take


def put_back_behind(self: Outbox) -> None:
    """Send what was lost after what came later."""
    self._outgoing.extend(self._on_the_way)
    self._on_the_way.clear()


def put_back_in_reverse(self: Outbox) -> None:
    """Forget that a deque turns around what it is given on the left."""
    self._outgoing.extendleft(self._on_the_way)
    self._on_the_way.clear()


def put_back_twice(self: Outbox) -> None:
    """Forget that it is no longer on its way."""
    self._outgoing.extendleft(reversed(self._on_the_way))


def put_back_nothing(self: Outbox) -> None:
    """Take what was written for what has arrived."""
    self.confirm(0)


def put_back_but_one(self: Outbox) -> None:
    """Take the message in hand for lost, and only that."""
    while len(self._on_the_way) > 1:
        self._count -= len(self._on_the_way.popleft().events)
    self._outgoing.extendleft(self._on_the_way)
    self._on_the_way.clear()


def confirm_one_too_many(self: Outbox, unconfirmed: int) -> None:
    """Forget a message that has not arrived."""
    while self._on_the_way and len(self._on_the_way) >= unconfirmed:
        self._count -= len(self._on_the_way.popleft().events)


def confirm_the_newest(self: Outbox, unconfirmed: int) -> None:
    """Forget at the wrong end."""
    while len(self._on_the_way) > unconfirmed:
        self._count -= len(self._on_the_way.pop().events)


def confirm_without_counting(self: Outbox, unconfirmed: int) -> None:
    """Keep the room of what has gone."""
    while len(self._on_the_way) > unconfirmed:
        self._on_the_way.popleft()


def take_and_forget(self: Outbox) -> Parcel | None:
    """Trust every publish."""
    parcel = self._outgoing.popleft() if self._outgoing else None
    self._count -= len(parcel.events) if parcel else 0
    return parcel


def take_again(self: Outbox) -> Parcel | None:
    """Give out what is on its way while nothing else is there."""
    parcel = _take(self)
    return parcel or (self._on_the_way[-1] if self._on_the_way else None)


def take_the_newest(self: Outbox) -> Parcel | None:
    """Leave by the door one came in."""
    parcel = self._outgoing.pop() if self._outgoing else None
    if parcel:
        self._on_the_way.append(parcel)
    return parcel


def put_ahead_of_the_batch(self: Outbox, routing_key: str, group: str, event: bytes) -> Parcel:
    """Let a single event overtake those gathered before it."""
    parcel = Parcel(routing_key, group, (event,))
    self._outgoing.append(parcel)
    self._grow()
    return parcel


def close_one_short(self: Outbox, group: str | None = None) -> None:
    """Lose the event that came while the batch was being sent."""
    for name in list(self._batches) if group is None else [group]:
        if len(self._batches.get(name, ())) > 1:
            del self._batches[name][-1]
            self._count -= 1
    _close_batch(self, group)


def have_no_limit(self: Outbox) -> None:
    """Grow for as long as the broker is away."""


def drop_the_newest(self: Outbox) -> None:
    """Keep old news."""
    while self._count > self.limit and self._outgoing:
        parcel = self._outgoing.pop()
        self._count -= len(parcel.events)
        self.dropped[parcel.group] += len(parcel.events)
    _shrink(self)


def drop_without_a_word(self: Outbox) -> None:
    """Count nothing."""
    _shrink(self)
    self.dropped.clear()


def count_messages(self: Outbox) -> None:
    """Count a batch that had to go as one event."""
    before = self.dropped.copy()
    _shrink(self)
    for group in self.dropped:
        self.dropped[group] = min(self.dropped[group], before[group] + 1)


def withdraw_the_last(self: Outbox, parcel: Parcel) -> None:
    """Forget that others put something in meanwhile."""
    if self._outgoing and parcel:
        self._count -= len(self._outgoing.pop().events)


def withdraw_without_counting(self: Outbox, parcel: Parcel) -> None:
    """Keep the room of what has gone."""
    if any(waiting is parcel for waiting in self._outgoing):
        self._outgoing.remove(parcel)


def adopt_what_waits(self: Outbox, other: Outbox) -> None:
    """Leave behind what the other one has on its way."""
    self.close_batch()
    other.close_batch()
    other._on_the_way.clear()
    while (parcel := other.take()) is not None:
        other.confirm(0)
        self._outgoing.append(parcel)
        self._count += len(parcel.events)
    other._count = 0
    self._shrink()


def adopt_a_copy(self: Outbox, other: Outbox) -> None:
    """Leave everything where it was, too."""
    other.put_back()
    other.close_batch()
    self.close_batch()
    self._outgoing.extend(other._outgoing)
    self._count += len(other)
    self._shrink()


def adopt_without_limit(self: Outbox, other: Outbox) -> None:
    """Forget that there may be no room for two."""
    with patch.object(Outbox, "_shrink", have_no_limit):
        adopt_a_copy(self, other)
    other._outgoing.clear()
    other._count = 0


def adopt_ahead_of_a_batch(self: Outbox, other: Outbox) -> None:
    """Let what is taken over overtake what we are gathering."""
    other.put_back()
    other.close_batch()
    self._outgoing.extend(other._outgoing)
    self._count += len(other)
    other._outgoing.clear()
    other._count = 0
    self._shrink()


#: By what is to be changed: the bugs.
PLANTED: dict[str, list[Callable[..., object]]] = {
    "put": [put_ahead_of_the_batch],
    "close_batch": [close_one_short],
    "take": [take_and_forget, take_again, take_the_newest],
    "confirm": [confirm_one_too_many, confirm_the_newest, confirm_without_counting],
    "put_back": [put_back_behind, put_back_in_reverse, put_back_twice, put_back_nothing, put_back_but_one],
    "withdraw": [withdraw_the_last, withdraw_without_counting],
    "adopt": [adopt_what_waits, adopt_a_copy, adopt_without_limit, adopt_ahead_of_a_batch],
    "_shrink": [have_no_limit, drop_the_newest, drop_without_a_word, count_messages],
}
CASES = [pytest.param(name, bug, id=bug.__name__) for name, bugs in PLANTED.items() for bug in bugs]
#: Long runs: one of fifty steps shows more than five of ten, and a bug is found after a fifth of the time.
SEARCHING = settings(UNTIL_FOUND, stateful_step_count=50)


@pytest.mark.parametrize(("name", "bug"), CASES)
def test_the_planted_bug_is_found(name: str, bug: Callable[..., object]) -> None:
    planted = patch.object(Outbox, name, bug)

    with planted, pytest.raises((AssertionError, ValueError)):
        run_state_machine_as_test(OutboxMachine, settings=SEARCHING)


def test_the_machine_finds_nothing_where_no_bug_is_planted() -> None:
    careful = settings(SEARCHING, max_examples=200, stateful_step_count=20)

    run_state_machine_as_test(OutboxMachine, settings=careful)
