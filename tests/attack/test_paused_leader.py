"""A leader on RabbitMQ is stopped for longer than its lease: no two lead at once, and its token is refused.

The storm of ``tests/chaos/test_election.py`` does this to five candidates among other faults.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from time import monotonic

import pytest

from celeriac.app import Celeriac
from celeriac.model.election import Record
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RabbitServer
from tests.clocks import SkewedClock
from tests.contenders import LEASE, Contender, overlaps
from tests.live import IS_LONG

PATIENCE = 120.0
ROUNDS = 50 if IS_LONG else 3
TTL = 2.0


class Ring:
    """Two contenders, of which the one that leads is stopped until the other leads."""

    def __init__(self, url: str, clock: SkewedClock, stack: ExitStack, **settings: str) -> None:
        self.app = Celeriac(url, environ={}, **settings)
        stack.callback(self.app.close)
        self.contenders = [stack.enter_context(Contender(url, clock, ttl=TTL, **settings)) for _ in range(2)]

    def leader(self) -> Contender:
        """Return the contender that leads."""
        found: list[Contender] = []

        def is_found() -> bool:
            found[:] = [each for each in self.contenders if each.last.term]
            return bool(found)

        assert wait_until(is_found, patience=PATIENCE)
        return found[0]

    def record(self) -> tuple[Contender, Record]:
        """Return the contender that leads, and what the arbiter knows of it."""
        while True:
            leader, record = self.leader(), self.app.arbiter.read(LEASE)
            if record is not None and f".{leader.pid}." in record.owner:
                return leader, record

    def pause(self, leader: Contender, *, after: Callable[[], object] = bool) -> None:
        """Stop the leader for longer than its lease, until the other leads; then let it look again."""
        (other,) = (each for each in self.contenders if each is not leader)
        leader.signal(signal.SIGSTOP)
        lease_ends_at = monotonic() + TTL
        assert wait_until(lambda: bool(other.last.term) and monotonic() > lease_ends_at, patience=PATIENCE)
        after()
        paused = leader.last
        leader.signal(signal.SIGCONT)
        assert wait_until(lambda: leader.last.before > paused.after, patience=PATIENCE)


@pytest.fixture
def clock(tmp_path: Path) -> SkewedClock:
    return SkewedClock(tmp_path / "clock")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_leader_that_was_stopped_leads_no_more_and_its_token_is_refused(
    amqp_url: str, clock: SkewedClock, stack: ExitStack
) -> None:
    ring = Ring(amqp_url, clock, stack)
    arbiter, refused = ring.app.arbiter, []

    for _ in range(ROUNDS):
        leader, record = ring.record()

        def use_token(record: Record = record) -> None:
            owner, token = record.owner, record.token
            refused.append(not arbiter.renew(LEASE, owner, token, ttl=TTL, note=b"stale"))
            refused.append(not arbiter.release(LEASE, owner, token))

        ring.pause(leader, after=use_token)

    terms = sorted({(look.token, look.term) for each in ring.contenders for look in each.looks if look.term})
    print(
        f"{ROUNDS} stops of the leader, {len(terms)} terms, {refused.count(True)} of {len(refused)} refused"
    )
    assert overlaps(ring.contenders) == []
    assert refused == [True] * 2 * ROUNDS
    assert len({token for token, _ in terms}) == len(terms) > ROUNDS
    final = arbiter.read(LEASE)
    assert final is None or final.note != b"stale"


@pytest.mark.skipif(not IS_LONG, reason="a RabbitMQ without streams takes long to start: make soak")
def test_without_streams_no_two_lead_at_once_though_a_leader_is_stopped(
    clock: SkewedClock, stack: ExitStack
) -> None:
    rabbit = stack.enter_context(RabbitServer(has_streams=False))
    ring = Ring(rabbit.url, clock, stack, election_min_level="L1")

    for _ in range(ROUNDS // 5):
        leader = ring.leader()
        # The lock is the connection's: the broker has to notice that nobody answers there.
        Thread(target=rabbit.close_connections, daemon=True).start()
        ring.pause(leader)

    assert overlaps(ring.contenders) == []
