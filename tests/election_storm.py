"""Processes that stand in elections, and a storm of faults that goes over them."""

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Event
from time import monotonic

from celeriac.app import Celeriac
from celeriac.errors import NetworkError
from celeriac.model.election import Mode
from celeriac.programs.process import wait_until
from celeriac.programs.service import Service
from celeriac.testing.brokers import RabbitServer, RedisServer
from celeriac.worker.elector import election_key
from tests.cables import Cable
from tests.fenced_sink import FencedSink

__all__ = ["LEASE", "PATIENCE", "Candidate", "Server", "Storm"]

Server = RedisServer | RabbitServer

PROGRAM = Path(__file__).parent / "peers" / "candidate.py"
LEASE = "lease"
#: Of the lease, and of an election in mode takeover.
TTL = 2.0
#: Between two faults, and between two elections.
FAULT_EVERY, CALL_EVERY = 2.0, 0.22
#: How long a fault lasts: from half as long as a grant to more than twice as long.
SHORTEST, LONGEST = 1.0, 5.0
#: How long a leader is harmed at most until another leads.
LONGEST_ABSENCE = 30.0
#: Who wrote as leader so recently leads. On a busy machine it may write but once in a while.
LEADS = 1.0
#: Far more than needed, for a busy machine.
PATIENCE = 240.0


class Candidate(Service):
    """A process that stands in elections, with a cable of its own to the broker."""

    name = "candidate"
    start_patience = 180.0

    def __init__(self, number: int, cable: Cable, server: Server, *, sink: Path, journal: Path) -> None:
        super().__init__()
        self.hostname = f"candidate-{number}@chaos"
        self.cable = cable
        self.is_harmed = False
        self._told = {"name": self.hostname, "sink": str(sink), "journal": str(journal), "ttl": TTL}
        self._url = cable.url_of(server.url, port=server.port)
        self._starts = 0

    def start(self) -> None:
        """Start, as a new boot; it is up before it has found its broker."""
        self._starts += 1
        super().start()

    @property
    def is_heard(self) -> bool:
        """Whether it has found its broker since it was first started."""
        return f"{self.hostname} ready." in self.log()

    def _command(self) -> list[str]:
        return [sys.executable, str(PROGRAM)]

    def _environment(self) -> dict[str, str]:
        return dict(os.environ) | {
            "CELERIAC_BROKER_URL": self._url,
            "CELERIAC_ELECTION_TTL": str(TTL),
            "CANDIDATE": json.dumps(self._told),
        }

    def _is_ready(self) -> bool:
        return self.log().count(" is up as ") == self._starts


class Storm:
    """Calls elections, and harms those who stand in them."""

    def __init__(
        self, server: Server, sink: FencedSink, candidates: list[Candidate], app: Celeriac, random: Random
    ) -> None:
        self.server = server
        self.sink = sink
        self.candidates = candidates
        self.app = app
        #: Elections by their ids: when each was first called.
        self.called_at: dict[str, float] = {}
        #: Faults that happened, by kind; those that struck whoever led have their own.
        self.faults: Counter[str] = Counter()
        self._random = random
        self._is_broker_harmed = False
        self._calm = Event()
        self._threads = ThreadPoolExecutor(4 * len(candidates))
        self._doings: list[Future[None]] = []

    def is_gathered(self) -> bool:
        """Say whether all can be called to elections, and one of them leads."""
        return all(each.is_heard for each in self.candidates) and self.leader() is not None

    # -- elections

    def call_all(self, elections: int) -> None:
        """Call elections, in both modes by turns."""
        for number in range(elections):
            mode = Mode.ONCE if number % 2 else Mode.TAKEOVER
            self.call(f"{mode}-{number}")
            if self._calm.wait(CALL_EVERY):
                return

    def call(self, key: str) -> None:
        """Call an election, for the first time or once more; a broker that is away is waited for."""
        mode, _, number = key.partition("-")
        called_at = self.called_at.setdefault(key, monotonic())
        # How long the winner takes to act.
        action = {"called_at": called_at, "seconds": 0.15 * (int(number) % 7)}
        until = monotonic() + PATIENCE
        while True:
            try:
                self.app.control.election(key, "effect", action, mode=mode, force=True)
            except NetworkError:
                if monotonic() >= until:
                    raise
            else:
                return
            if self._calm.wait(0.1):
                return

    def settle(self) -> list[str]:
        """Wait until all elections have ended, and return those that have not.

        They are called once more: all who heard of one may have been killed, or nobody was there to hear.
        """
        left = list(self.called_at)
        until = monotonic() + PATIENCE
        while monotonic() < until and (left := [key for key in left if not self._has_ended(key)]):
            for key in left:
                self.call(key)
            wait_until(lambda: all(map(self._has_ended, left)), patience=3 * TTL)
        return left

    def _has_ended(self, key: str) -> bool:
        """Say whether an election is over: of mode once it is decided, else somebody has acted."""
        if key.startswith(Mode.TAKEOVER):
            return key in self.sink.highest
        try:
            return self.app.arbiter.read(election_key(key)) is not None
        except NetworkError:
            return False  # RabbitMQ takes links a moment before it has its streams again

    # -- faults

    def rage(self, elections: int) -> None:
        """Do harm every two seconds, until all elections are called and every harm has been done."""
        calling = self._threads.submit(self.call_all, elections)
        until = monotonic() + PATIENCE + elections
        for strike, is_at_leader in self._plan():
            if calling.done() and self.is_enough():
                break
            assert monotonic() < until, f"{self.faults}, {len(self.called_at)} elections called"
            strike(is_at_leader)
            self._calm.wait(FAULT_EVERY)
        calling.result()

    def is_enough(self) -> bool:
        """Say whether what the storm is to show has happened."""
        return (
            all(self.faults[kind] for kind in ("kill", "pause", "cut", "hold", "deafen", "restart"))
            and all(self.faults[f"{kind} of the leader"] for kind in ("kill", "pause"))
            and any(each.cable.ended_links for each in self.candidates)
            and any(each.cable.held_bytes for each in self.candidates)
            # Somebody wrote late, and only the sink kept it out.
            and any(not each.is_taken for each in self.sink.attempts)
            # Who led was replaced again and again.
            and len({each.token for each in self.sink.taken(LEASE)}) > len(self.candidates)
        )

    def heal(self) -> None:
        """Undo all harm, and wait until it is undone."""
        self._calm.set()
        for doing in self._doings:
            doing.result()
        self._calm.clear()

    def close(self) -> None:
        """Begin nothing more."""
        self._calm.set()
        self._threads.shutdown()

    def leader(self) -> Candidate | None:
        """Return who leads, as the sink sees it."""
        last = next((each for each in reversed(self.sink.attempts) if each.key == LEASE), None)
        if last is None or not last.is_taken or last.arrived_at < monotonic() - LEADS:
            return None
        return next(each for each in self.candidates if last.boot.startswith(f"{each.hostname}/"))

    def _plan(self) -> Iterator[tuple[Callable[[bool], None], bool]]:
        """Return faults without end, and whether each is aimed at the leader."""
        some = [
            *((strike, share) for strike in (self._kill, self._pause) for share in (0.0, 1.0)),
            *((strike, 0.5) for strike in (self._cut, self._hold, self._deafen)),
        ]
        bag = [*some, (self._restart, 0.0)]
        while True:
            self._random.shuffle(bag)
            for strike, share in bag:
                yield strike, self._random.random() < share
            # RabbitMQ takes long to start, and an arbiter that is away decides nothing.
            bag = [*some * (1 if isinstance(self.server, RedisServer) else 2), (self._restart, 0.0)]

    def _kill(self, is_at_leader: bool) -> None:
        self._harm("kill", is_at_leader, lambda one: one.kill(), lambda one: one.start())

    def _pause(self, is_at_leader: bool) -> None:
        self._harm(
            "pause",
            is_at_leader,
            lambda one: one.signal(signal.SIGSTOP),
            lambda one: one.signal(signal.SIGCONT),
        )

    def _cut(self, is_at_leader: bool) -> None:
        self._harm("cut", is_at_leader, lambda one: one.cable.cut(), lambda one: one.cable.mend())

    def _hold(self, is_at_leader: bool) -> None:
        self._harm("hold", is_at_leader, lambda one: one.cable.hold(), lambda one: one.cable.mend())

    def _deafen(self, is_at_leader: bool) -> None:
        self._harm("deafen", is_at_leader, lambda one: one.cable.deafen(), lambda one: one.cable.mend())

    def _harm(
        self,
        kind: str,
        is_at_leader: bool,
        begin: Callable[[Candidate], object],
        end: Callable[[Candidate], object],
    ) -> None:
        if is_at_leader:
            wait_until(lambda: self.leader() is not None, patience=5 * TTL)
        sound = [each for each in self.candidates if not each.is_harmed]
        leader = self.leader()
        is_at_leader = is_at_leader and leader in sound
        if not sound:
            return
        one = leader if is_at_leader and leader is not None else self._random.choice(sound)
        one.is_harmed = True
        seconds = self._random.uniform(2 * TTL if is_at_leader else SHORTEST, LONGEST)
        begun_at = monotonic()
        begin(one)
        self.faults[kind] += 1
        if is_at_leader:
            self.faults[f"{kind} of the leader"] += 1

        def undo() -> None:
            self._calm.wait(seconds)
            if is_at_leader:  # on a busy machine it takes longer until another leads
                wait_until(lambda: self._is_replaced(one, since=begun_at), patience=LONGEST_ABSENCE)
            end(one)
            one.is_harmed = False

        self._doings.append(self._threads.submit(undo))

    def _is_replaced(self, one: Candidate, *, since: float) -> bool:
        """Say whether another has written as leader, or the storm is over."""
        return self._calm.is_set() or any(
            each.arrived_at > since and not each.boot.startswith(f"{one.hostname}/")
            for each in self.sink.taken(LEASE)[-100:]
        )

    def _restart(self, _: bool) -> None:
        if self._is_broker_harmed:
            return
        self._is_broker_harmed = True
        self.faults["restart"] += 1
        seconds = self._random.uniform(0, SHORTEST)

        def restart() -> None:
            self.server.kill()
            self._calm.wait(seconds)
            self.server.start()
            self._is_broker_harmed = False

        self._doings.append(self._threads.submit(restart))
