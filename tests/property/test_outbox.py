"""The laws of the outbox, whatever is done to it in whatever order.

Two outboxes are tried at once, since one can take over what the other holds. Beside
each runs a plain ledger, that knows what was put in and what became of it.
"""

from collections import Counter
from itertools import count

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from celeriac.core.outbox import Outbox, Parcel
from tests.property.effort import COSTLY

groups = st.sampled_from(("task", "worker"))


class Ledger:
    """What was put into one outbox, and where it is now."""

    def __init__(self, name: str, *, limit: int, batch_limit: int) -> None:
        self.name = name
        self.box = Outbox(limit=limit, batch_limit=batch_limit)
        #: Put in, and neither confirmed nor withdrawn nor taken over.
        self.owed: set[bytes] = set()
        #: Taken and not confirmed, oldest first.
        self.out: list[Parcel] = []
        #: Put back, and to be taken again in this order before anything else.
        self.returned: list[Parcel] = []

    @property
    def out_events(self) -> list[bytes]:
        return [event for parcel in self.out for event in parcel.events]

    def settle(self) -> None:
        """Note what had to go for want of room."""
        kept = set(contents(self.box))
        self.out = [parcel for parcel in self.out if kept.issuperset(parcel.events)]
        self.returned = [parcel for parcel in self.returned if kept.issuperset(parcel.events)]


def contents(box: Outbox) -> list[bytes]:
    """Return the events in an outbox, in the order they would leave if all were put back, and change nothing.

    That they do leave so is seen at the end of each run.
    """
    parcels = [event for parcel in (*box._on_the_way, *box._outgoing) for event in parcel.events]
    return parcels + [event for batch in box._batches.values() for event in batch]


def emptied(box: Outbox) -> list[bytes]:
    """Return the events that come out of an outbox when it is emptied after a loss of the link."""
    box.put_back()
    box.close_batch()
    events: list[bytes] = []
    while (parcel := box.take()) is not None:
        events += parcel.events
        assert len(events) <= box.limit
    return events


def line(event: bytes) -> tuple[bytes, bytes]:
    """Return the outbox and the group an event was put in by: within those it has its place."""
    origin, group, _ = event.split(b"-")
    return origin, group


def place(event: bytes) -> int:
    return int(event.rpartition(b"-")[2])


def is_in_order(events: list[bytes]) -> bool:
    """Say whether those of one line are in the order they were put in, none of them twice."""
    lines: dict[tuple[bytes, bytes], list[int]] = {}
    for event in events:
        lines.setdefault(line(event), []).append(place(event))
    return all(places == sorted(set(places)) for places in lines.values())


class OutboxMachine(RuleBasedStateMachine):
    """Any interleaving of what can be done to two outboxes."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = count()
        self.parcels: list[Parcel] = []
        self.waiting_before: dict[str, list[bytes]] = {}

    @initialize(limit=st.integers(1, 6), batch_limit=st.integers(1, 4), old_limit=st.integers(1, 6))
    def begin(self, limit: int, batch_limit: int, old_limit: int) -> None:
        self.new = Ledger("new", limit=limit, batch_limit=batch_limit)
        self.old = Ledger("old", limit=old_limit, batch_limit=batch_limit)

    def of(self, is_old: bool) -> Ledger:
        """Choose an outbox, and remember what waits in it."""
        ledger = self.old if is_old else self.new
        held = contents(ledger.box)
        self.waiting_before = {ledger.name: [e for e in held if e not in set(ledger.out_events)]}
        return ledger

    def event(self, ledger: Ledger, group: str) -> bytes:
        event = f"{ledger.name}-{group}-{next(self.numbers)}".encode()
        ledger.owed.add(event)
        self.waiting_before[ledger.name].append(event)
        return event

    # -- what can be done

    @rule(is_old=st.booleans(), group=groups)
    def put(self, is_old: bool, group: str) -> None:
        ledger = self.of(is_old)

        event = self.event(ledger, group)
        parcel = ledger.box.put(f"{group}.x", group, event)

        assert parcel == Parcel(f"{group}.x", group, (event,))
        self.parcels.append(parcel)
        ledger.settle()

    @rule(is_old=st.booleans(), group=groups)
    def put_in_batch(self, is_old: bool, group: str) -> None:
        ledger = self.of(is_old)

        ledger.box.put_in_batch(group, self.event(ledger, group))

        ledger.settle()

    @rule(is_old=st.booleans(), group=st.none() | groups)
    def close_batch(self, is_old: bool, group: str | None) -> None:
        ledger = self.of(is_old)

        ledger.box.close_batch(group)

    @rule(is_old=st.booleans())
    def take(self, is_old: bool) -> None:
        ledger = self.of(is_old)
        held = set(contents(ledger.box))

        parcel = ledger.box.take()

        if parcel is None:
            assert not ledger.returned
            return
        assert held.issuperset(parcel.events)
        assert set(parcel.events).isdisjoint(ledger.out_events)
        assert {line(event)[1].decode() for event in parcel.events} == {parcel.group}
        assert parcel.routing_key == (f"{parcel.group}.multi" if parcel.is_batch else f"{parcel.group}.x")
        if ledger.returned:
            assert parcel == ledger.returned.pop(0)
        ledger.out.append(parcel)
        assert is_in_order(ledger.out_events)

    @rule(is_old=st.booleans(), unconfirmed=st.integers(0, 3))
    def confirm(self, is_old: bool, unconfirmed: int) -> None:
        ledger = self.of(is_old)
        arrived = max(0, len(ledger.out) - unconfirmed)

        ledger.box.confirm(unconfirmed)

        for parcel in ledger.out[:arrived]:
            ledger.owed.difference_update(parcel.events)
        del ledger.out[:arrived]

    @rule(is_old=st.booleans())
    def put_back(self, is_old: bool) -> None:
        ledger = self.of(is_old)

        ledger.box.put_back()

        ledger.returned = ledger.out + ledger.returned
        ledger.out = []
        self.waiting_before = {}

    @precondition(lambda self: self.parcels)
    @rule(is_old=st.booleans(), data=st.data())
    def withdraw(self, is_old: bool, data: st.DataObject) -> None:
        ledger = self.of(is_old)
        parcel = data.draw(st.sampled_from(self.parcels))
        is_waiting = parcel.events[0] in self.waiting_before[ledger.name]

        ledger.box.withdraw(parcel)

        if is_waiting:
            ledger.owed.difference_update(parcel.events)
            ledger.returned = [each for each in ledger.returned if each is not parcel]
            self.waiting_before[ledger.name].remove(parcel.events[0])

    @rule()
    def adopt(self) -> None:
        self.of(is_old=False)
        theirs = contents(self.old.box)
        before = self.waiting_before.pop(self.new.name) + theirs

        self.new.box.adopt(self.old.box)

        self.old.owed.difference_update(theirs)
        self.old.out, self.old.returned = [], []
        self.new.owed.update(theirs)
        self.new.settle()
        waiting = contents(self.new.box)[len(self.new.out_events) :]
        assert waiting == before[len(before) - len(waiting) :]
        assert contents(self.old.box) == []

    # -- what holds after each of them

    @invariant()
    def no_outbox_exceeds_its_limit_and_each_counts_what_it_holds(self) -> None:
        for ledger in (self.new, self.old):
            assert len(ledger.box) == len(contents(ledger.box)) <= ledger.box.limit
            assert ledger.box.on_the_way == len(ledger.out)

    @invariant()
    def nothing_is_lost_but_what_is_counted_by_group(self) -> None:
        for ledger in (self.new, self.old):
            held = contents(ledger.box)

            assert ledger.owed.issuperset(held)
            lost = Counter(line(event)[1].decode() for event in ledger.owed.difference(held))
            assert lost == ledger.box.dropped

    @invariant()
    def what_is_held_leaves_in_the_order_it_was_put_in(self) -> None:
        for ledger in (self.new, self.old):
            assert is_in_order(contents(ledger.box))

    @invariant()
    def what_had_to_go_is_the_oldest_of_what_waited(self) -> None:
        for ledger in (self.new, self.old):
            held = set(contents(ledger.box)) - set(ledger.out_events)
            for event in self.waiting_before.get(ledger.name, ()):
                if event not in held and event not in ledger.out_events:
                    newer = [e for e in held if line(e) == line(event)]
                    assert all(place(event) < place(e) for e in newer)

    def teardown(self) -> None:
        for ledger in (self.new, self.old):
            held = contents(ledger.box)

            assert emptied(ledger.box) == held
            ledger.box.confirm(0)
            assert len(ledger.box) == 0


TestOutbox = OutboxMachine.TestCase
TestOutbox.settings = COSTLY
