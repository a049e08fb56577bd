"""Whatever happens, a recorder loses nothing unsaid, and accepts nothing that is not on the disk."""

from itertools import count

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from celeriac.core.recording import Dropped, Pause, Recording, Resume, Write
from celeriac.model.events import Event, Gap, Started
from tests.property.effort import COSTLY

LIMITS = st.integers(1, 12)


def event(number: int) -> Event:
    return Started(uuid=str(number), hostname="w1", timestamp=1.0, clock=1, pid=1, utcoffset=0)


def gap(dropped: int) -> Gap:
    return Gap(
        hostname="us",
        timestamp=1.0,
        clock=1,
        pid=1,
        utcoffset=0,
        since=1.0,
        until=1.0,
        reason=str(dropped),
        attempts=0,
    )


class _Recorder(RuleBasedStateMachine):
    """Receives, writes, fails, loses its link and begins again, in any order."""

    is_kept: bool

    def __init__(self) -> None:
        super().__init__()
        self.numbers = count()
        self.now = 0.0
        self.received: list[str] = []
        self.disk: list[Event] = []
        self.writing: list[Event] | None = None
        #: By ticket, the ids that came with it.
        self.tickets: dict[int, list[str]] = {}
        self.is_taking = True
        self.told = 0
        self.gone: list[str] = []

    @initialize(limit=LIMITS, most_bytes=LIMITS)
    def begin(self, limit: int, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.held: Recording[int] = Recording(
            limit=limit, interval=1.0, is_kept=self.is_kept, most_tickets=3, most_bytes=most_bytes
        )

    @precondition(lambda self: self.is_taking)
    @rule(size=st.integers(0, 5), length=st.integers(0, 3))
    def receive(self, size: int, length: int) -> None:
        made = [event(next(self.numbers)) for _ in range(size)]
        ids = [str(each["uuid"]) for each in made]
        ticket = next(self.numbers) if self.is_kept else None
        if ticket is not None:
            self.tickets[ticket] = ids
        before = self.held.pending
        self.held.receive(made, received_at=self.now, now=self.now, size=length, ticket=ticket)
        kept = self.held.pending - before
        self.received += ids[:kept]
        self.gone += ids[kept:]

    @rule(passed=st.floats(0, 3))
    def tick(self, passed: float) -> None:
        self.now += passed
        for effect in self.held.tick(self.now):
            match effect:
                case Write(events=events):
                    assert self.writing is None
                    self.writing = list(events)
                case Pause():
                    self.is_taking = False
                case Resume():
                    self.is_taking = True
                case Dropped(events=events):
                    self.told += events
                    self.held.put(gap(events), now=self.now)

    @precondition(lambda self: self.writing is not None)
    @rule()
    def write(self) -> None:
        assert self.writing is not None
        self.disk += self.writing
        self.writing = None
        on_disk = {str(each["uuid"]) for each in self.disk if isinstance(each, Started)}
        for ticket in self.held.written():
            assert on_disk.issuperset(self.tickets.pop(ticket))

    @precondition(lambda self: self.writing is not None)
    @rule()
    def fail(self) -> None:
        self.writing = None
        self.held.failed("the disk is full", now=self.now)

    @precondition(lambda self: self.is_kept)
    @rule()
    def lose(self) -> None:
        self.tickets.clear()
        self.held.lose()

    @invariant()
    def all_is_held_or_recorded_in_order_or_counted(self) -> None:
        if not hasattr(self, "held"):
            return
        recorded = [str(each["uuid"]) for each in self.disk if isinstance(each, Started)]
        assert recorded == self.received[: len(recorded)]
        gaps = sum(isinstance(each, Gap) for each in self.disk)
        assert self.held.recorded == len(self.disk) == len(recorded) + gaps
        assert self.held.dropped == len(self.gone)
        # A gap is of our own making, and may be beside the limit: one at a time, while half is free.
        assert self.is_kept or self.held.pending <= self.held.limit + 1

    def teardown(self) -> None:
        if not hasattr(self, "held"):
            return
        self.held.end()
        for _ in range(6):
            self.tick(passed=2.0)
            if self.writing is not None:
                self.write()
        recorded = [str(each["uuid"]) for each in self.disk if isinstance(each, Started)]
        assert self.held.is_empty
        assert recorded == self.received
        counted = sum(int(each.reason) for each in self.disk if isinstance(each, Gap))
        assert counted == self.told == len(self.gone)
        assert not self.tickets


class _OnRedis(_Recorder):
    is_kept = False


class _OnRabbit(_Recorder):
    is_kept = True


TestOnRedis = _OnRedis.TestCase
TestOnRabbit = _OnRabbit.TestCase
TestOnRedis.settings = COSTLY
TestOnRabbit.settings = COSTLY
