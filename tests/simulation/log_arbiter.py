"""Who decides, where nobody does: a log that only keeps an order, and nodes that read it."""

from typing import TYPE_CHECKING, Final

from celeriac.core.decision_log import DecisionLog
from celeriac.core.election_effect import Claim, Finish, Release, Renew, Request
from celeriac.core.register import RETAIN
from celeriac.model.decision import Entry, EntryKind, Verdict
from celeriac.model.election import Decision, Granted, Mode
from tests.simulation.arbiters import SimulatedArbiter
from tests.simulation.checker import Checker, Identity
from tests.simulation.plan import ID, rng
from tests.simulation.world import Violation, World

if TYPE_CHECKING:
    from tests.simulation.node import Node

__all__ = ["LogArbiter"]

#: Wall clocks of nodes are wrong by up to an hour.
WALL_ERROR: Final = 3600.0
_EPOCH: Final = 1.7e9


class Reader:
    """What one process has read, and what it waits for."""

    def __init__(self, node: "Node", mark: int, wall_offset: float) -> None:
        self.node = node
        self.boot = node.boot
        self.log = DecisionLog(retain=RETAIN)
        #: How many entries were read, and how many must have been before anything is written.
        self.position = 0
        self.mark = mark
        #: When the last entry that is on its way arrives.
        self.last_at = 0.0
        self.wall_offset = wall_offset
        self.call = 0
        self.request: Request | None = None
        self.identity: Identity = (0, 0, 0)
        self.entry_id = ""
        self.written = 0
        #: The token that was drawn for a lease, in this call.
        self.ticket = 0

    def highest(self) -> int:
        """The highest token that it knows of."""
        floor = self.request.floor if isinstance(self.request, Claim) else 0
        return max(floor, self.log.last_token(ID))

    def plan(self, now: float) -> Entry | Decision | bool:
        """Return what to write so that what is wanted may come true, or the answer."""
        node, log = self.node, self.log
        owner, local, at = node.owner, node.local(), _EPOCH + now + self.wall_offset
        self.written += 1
        id_ = f"{node.index}.{self.boot}.{self.written}"
        match self.request:
            case Claim(key, mode, ttl, floor):
                return log.claim(
                    key, owner, ttl=ttl, mode=mode, now=local, at=at, id=id_, floor=floor, ticket=self.ticket
                )
            case Renew(key, token, ttl):
                return log.renew(key, owner, token, ttl=ttl, at=at, id=id_)
            case Finish(key, token, is_failed):
                return log.finish(key, owner, token, at=at, id=id_, is_failed=is_failed)
            case Release(key, token):
                return log.release(key, owner, token, at=at, id=id_)
            case None:
                return False


class LogArbiter(SimulatedArbiter):
    """A log, and the reader of each process: a stream of RabbitMQ.

    A lease draws its token from another log first, as leases have a log of their own there.
    What each reader makes of an entry is compared with what one makes of it that reads everything at once.
    """

    def __init__(self, world: World, checker: Checker) -> None:
        super().__init__(world, checker)
        self._entries: list[Entry] = []
        self._verdicts: list[Verdict] = []
        self._reference = DecisionLog(retain=RETAIN)
        self._readers: dict[int, Reader] = {}
        self._drawn = 0
        self._wall = rng(world.plan.seed, "log")

    def ask(self, node: "Node", call: int, request: Request) -> None:
        """Plan what was asked for, once the reader knows enough, and write it."""
        reader = self._readers.get(node.index)
        if reader is None or reader.boot != node.boot:
            reader = Reader(node, len(self._entries), self._wall.uniform(-WALL_ERROR, WALL_ERROR))
            self._readers[node.index] = reader
            self._bring(reader, reader.mark)
        reader.call, reader.request, reader.identity = call, request, node.identity
        # What an older call has written is no answer to this one: its lease would be counted from too late.
        reader.ticket, reader.entry_id = 0, ""
        if reader.position >= reader.mark:
            self._write(reader)

    def _write(self, reader: Reader) -> None:
        node, world = reader.node, self.world
        plan = reader.plan(world.now)
        if not isinstance(plan, Entry):
            reader.entry_id = ""
            world.at(world.now + 0.001, node.do, reader.boot, node.take, reader.call, plan)
            return
        highest = reader.highest()
        if plan.mode is Mode.LEASE and plan.kind in _GRANTS and reader.ticket <= highest:
            self.carry(node, self._draw, reader, reader.call, highest)
            return
        reader.entry_id = plan.id
        patience_ends_at = world.now + world.plan.patience / node.plan.rate
        self.carry(node, self._append, plan, reader.identity, patience_ends_at)

    def _draw(self, reader: Reader, call: int, highest: int) -> None:
        self._drawn = ticket = max(self._drawn, highest) + 1
        self.reply(reader.node, reader.boot, self._take_ticket, reader, call, ticket)

    def _take_ticket(self, reader: Reader, call: int, ticket: int) -> None:
        if reader.call == call and reader.node.is_waiting_for(call) and not reader.entry_id:
            reader.ticket = ticket
            self._write(reader)

    def _append(self, entry: Entry, identity: Identity, patience_ends_at: float) -> None:
        world = self.world
        world.met["late request"] += world.now > patience_ends_at
        offset = len(self._entries)
        verdict = self._reference.apply(offset, entry, now=world.now)
        self._entries.append(entry)
        self._verdicts.append(verdict)
        if world.transcript is not None:
            world.tell("log", f"{offset}: {entry.kind} {entry.owner} after {tuple(entry.prev)}: {verdict}")
        if verdict.is_valid:
            if entry.kind in _GRANTS:
                self.checker.granted(identity, verdict.token)
            elif entry.kind is EntryKind.FINISH:
                self.checker.finished()
        world.met["entry void"] += not verdict.is_valid
        for reader in self._readers.values():
            if reader.boot == reader.node.boot and reader.node.is_up:
                self._bring(reader, offset + 1)

    def _bring(self, reader: Reader, position: int) -> None:
        """Let a reader have all entries before a position, some time later, in order."""
        node, world = reader.node, self.world
        arrives_at = world.now + self._delay()
        held_until = max(node.cut_until, node.hush_until, node.stall_until)
        if world.now < held_until:
            world.met["read held"] += 1
            arrives_at += held_until - world.now
        reader.last_at = arrives_at = max(arrives_at, reader.last_at)
        world.at(arrives_at, node.do, reader.boot, self._read, reader, position)

    def _read(self, reader: Reader, position: int) -> None:
        node = reader.node
        was_ready = reader.position >= reader.mark
        while reader.position < position:
            offset = reader.position
            entry = self._entries[offset]
            reader.position += 1
            verdict = reader.log.apply(offset, entry, now=node.local())
            if verdict != self._verdicts[offset]:
                raise Violation("agreement", f"{node.label} takes entry {offset} for {verdict}")
            if entry.id == reader.entry_id:
                self._answer(reader, verdict)
        if not was_ready and reader.position >= reader.mark:
            reader.log.resume(node.local())
            if node.is_waiting_for(reader.call):
                self._write(reader)

    def _answer(self, reader: Reader, verdict: Verdict) -> None:
        node = reader.node
        reader.entry_id = ""
        if not node.is_waiting_for(reader.call):
            self.world.met["late reply"] += 1
        elif verdict.is_valid:
            is_claim = type(reader.request) is Claim
            node.take(reader.call, Granted(verdict.token, verdict.note) if is_claim else True)
        else:
            self._write(reader)  # somebody came first: again, with what is known now


_GRANTS: Final = frozenset({EntryKind.CLAIM, EntryKind.TAKEOVER})
