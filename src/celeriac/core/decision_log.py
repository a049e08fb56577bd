"""Decisions out of a log that everybody writes to and reads: who holds which key, by one rule for all.

There is no arbiter here, and no clock of one: a log puts entries in order, every node folds them with
:class:`DecisionLog`, and so all come to the same judgement. To drive it, with a broker or in a simulation::

    plan = log.claim("beat", "node-1", ttl=15, mode=Mode.LEASE, now=now, at=wall_time, id=unique)
    if isinstance(plan, Entry):      # else it is the answer already: a Decision, or a bool
        ...                          # append it to the log; then each node, for each entry in order:
        verdict = log.apply(offset, entry, now=now)
        if verdict.is_valid:         # of our own entry: Granted(verdict.token, verdict.note), or True
            ...
        else:                        # somebody came first: plan again, with what is known now
            ...

``renew``, ``finish`` and ``release`` are planned alike. ``now`` is the reader's own steady clock, ``at`` its
wall clock, offsets count up from 0. Plan nothing before all is applied that was in the log when the reading
began, or began again: a reader writes a MARK, waits until it has read it, and calls
:meth:`DecisionLog.resume`.

*One holder.* Each entry names the version of the key that its writer has read, and is valid only if nobody
came first. A version is a token and how often the grant was changed; it only rises. So at any place in the
log a key has one holder at most. Tokens are places in the log, lifted above what any owner has known.

*Leases need no common clock.* A challenger that has read nothing new of a grant for :func:`silence_of` its
time, by its own clock, writes TAKEOVER of exactly the version it has read. A renewal that came first, read or
not, makes it void. If none did, the holder's last one was sent before the challenger read it, and the holder
has stopped by :func:`~celeriac.core.election_rules.deadline_of`. To have been deaf can therefore make a
challenger fail, and do no harm; that it counts anew after a loss only spares the holder a needless race.

*Readers that start late agree.* The log loses what is older than :func:`max_age_of`. Entries carry all that a
record consists of, and a record counts as unknown to all once the next entry's stamp is more than ``keep``
after its own. On a key that a reader knows nothing of it takes any entry for valid. That can be wrong: then a
valid one came first, and all that follow on that one presuppose a higher version than the wrong one did.
Hence the rule is not that an entry names the present version, but that it presupposes more than the last
valid one did. For who has read all it is the same: there is no version between what an entry presupposes and
what it makes of it. So the next valid entry puts a late reader right. If none comes within ``keep``, the
wrong record is forgotten. But a claim on what everybody else has forgotten presupposes nothing, so it does
not put right a late reader whose wrong record is younger; that one can be wrong once more. Hence three times
``keep``: then all that a wrong record may rest on is in the log. Stamps are of wall clocks, which may be
wrong by six hours. A node whose clock is ahead by more than ``retain`` undoes what is kept for so long, as
it does
wherever nodes say when something expires.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from celeriac.core.election_rules import CLOCK_ERROR
from celeriac.model.decision import NOTHING, Entry, EntryKind, Verdict, Version
from celeriac.model.election import Decision, Denied, Mode, Record, RecordState

__all__ = ["MAX_KEYS", "DecisionLog", "max_age_of", "silence_of"]

#: Keys that are remembered, about 60 MB. Beyond it those are forgotten that ended longest ago, before their
#: time: they can be granted again. Then those that were longest silent. Readers forget the same ones.
MAX_KEYS: Final = 100_000
#: For so long a record is known at least.
_KEEP_LEAST: Final = 3600.0
#: A note that has not been said for so long is said again with the next renewal: the log loses its beginning.
_SAY_AGAIN: Final = 1800.0
#: How far wall clocks may be wrong, with the time that an entry takes to get into the log.
_WALL_ERROR: Final = 6 * 3600.0
#: Entries that a token is given for.
_GRANTING: Final = (EntryKind.CLAIM, EntryKind.TAKEOVER)
_DRAWING: Final = (EntryKind.MARK, *_GRANTING)


def silence_of(ttl: float) -> float:
    """Return for how long nothing must have been read of a grant before it is taken over."""
    return ttl * (1 + 2 * CLOCK_ERROR)


def max_age_of(retain: float) -> float:
    """Return for how long a log must have entries so that readers agree who start late."""
    return 3 * max(retain, _KEEP_LEAST) + 2 * _WALL_ERROR


class _Standing(NamedTuple):
    """What is known of a key."""

    owner: str
    version: Version
    #: What the last valid entry presupposed.
    base: Version
    mode: Mode
    #: None: anybody may have it.
    state: RecordState | None
    ttl: float
    #: By the stamps of entries: of the last one, of the grant, and of the last one with the note.
    touched_at: float
    since: float
    noted_at: float
    note: bytes
    #: When the last entry was read, by our clock.
    read_at: float

    @property
    def is_open(self) -> bool:
        """Whether it is held, and can be taken over."""
        return self.state is RecordState.HELD and self.mode is not Mode.ONCE


class DecisionLog:
    """What one reader makes of a log. Of ``once``, and of what is done, a record stands for ``retain``."""

    def __init__(self, *, retain: float, max_keys: int = MAX_KEYS) -> None:
        self.retain = retain
        #: After so long, by stamps, a record counts as unknown.
        self.keep = max(retain, _KEEP_LEAST)
        #: How many keys were forgotten before their time.
        self.dropped = 0
        self._max_keys = max_keys
        #: Those that can be taken over, and all others; each by when it was last touched.
        self._open: OrderedDict[str, _Standing] = OrderedDict()
        self._ended: OrderedDict[str, _Standing] = OrderedDict()
        self._resumed_at = float("-inf")
        #: Of the last entry that was applied.
        self._offset = -1
        #: How far tokens are above places in the log, at least.
        self._lift = 0

    def resume(self, now: float) -> None:
        """Count nobody as silent for what we may have missed: from now on we read all."""
        self._resumed_at = now

    # -- what is read

    def apply(self, offset: int, entry: Entry, *, now: float) -> Verdict:
        """Judge the next entry of the log, and note what it changes."""
        self._offset = offset
        is_too_low = entry.kind in _DRAWING and not entry.ticket and entry.lift < self._lift
        self._lift = max(self._lift, entry.lift)
        if is_too_low:
            return Verdict(False)  # its token would be below one that may have been given
        if entry.kind is EntryKind.MARK:
            return Verdict(True, offset + 1 + entry.lift)
        known = self._known(entry.key, entry.at)
        if known is not None and not self._is_valid(entry, known):
            return Verdict(False)
        changed = self._changed(offset, entry, known, now)
        if changed.version <= entry.prev:
            return Verdict(False)
        self._keep(entry.key, changed)
        return Verdict(True, changed.version.token, changed.note)

    def _is_valid(self, entry: Entry, known: _Standing) -> bool:
        if entry.prev <= known.base:
            return False  # somebody came first
        if entry.prev != known.version:
            return True  # it follows on what we have not read; see above
        if entry.kind is EntryKind.CLAIM:
            return known.state is None or self._is_over(known, entry.at)
        if entry.kind is EntryKind.TAKEOVER:
            return known.is_open
        if known.owner != entry.owner or known.state is None:
            return False
        return entry.kind is EntryKind.FINISH or (
            known.state is RecordState.HELD
            and not (entry.kind is EntryKind.RELEASE and known.mode is Mode.ONCE)
        )

    def _changed(self, offset: int, entry: Entry, known: _Standing | None, now: float) -> _Standing:
        if entry.kind in _GRANTING:
            version = Version(entry.ticket or offset + 1 + entry.lift, 0)
        else:
            version = Version(entry.prev.token, entry.prev.seq + 1)
        state: RecordState | None = RecordState.HELD
        if entry.kind is EntryKind.RELEASE:
            state = None
        elif entry.kind is EntryKind.FINISH:
            state = RecordState.FAILED if entry.is_failed else RecordState.DONE
        is_same = known is not None and known.version.token == version.token
        forgotten = self._find(entry.key) if known is None else None
        return _Standing(
            owner=entry.owner,
            version=version,
            # What is forgotten is not to be followed on any more.
            base=entry.prev if forgotten is None else max(entry.prev, forgotten.version),
            mode=entry.mode,
            state=state,
            ttl=entry.ttl,
            touched_at=entry.at,
            since=known.since if known is not None and is_same else entry.at,
            noted_at=known.noted_at if known is not None and entry.note is None else entry.at,
            note=known.note if known is not None and entry.note is None else entry.note or b"",
            read_at=now,
        )

    def _is_over(self, known: _Standing, at: float) -> bool:
        """Say whether a record that stands for a while has stood for so long."""
        return not known.is_open and at - known.touched_at > self.retain

    # -- what is planned

    def claim(
        self,
        key: str,
        owner: str,
        *,
        ttl: float,
        mode: Mode,
        now: float,
        at: float,
        id: str,  # noqa: A002 (the noun of entries)
        floor: int = 0,
        ticket: int = 0,
    ) -> Entry | Decision:
        """Return what to write so that a key may be granted, or who has it.

        The token is above ``floor``. It is ``ticket`` where tokens are drawn from another log.
        """
        known, remembered = self._known(key, at), self._find(key)
        kind = EntryKind.CLAIM
        if known is not None and known.state is not None and not self._is_over(known, at):
            if known.owner == owner and known.state is RecordState.HELD:
                return self._renewal(key, known, ttl=ttl, at=at, id=id)
            if not known.is_open:
                remaining = self._remaining(known, now=now, at=at)
                return Denied(known.owner, known.version.token, known.state, remaining)
            kind = EntryKind.TAKEOVER
        note = None
        # Forgotten is not lost: a clock may have jumped, its note is there, and its token is not given again.
        if remembered is not None:
            remaining = self._remaining(remembered, now=now, at=at)
            if remembered.is_open and remembered.owner != owner and remaining > 0:
                return Denied(remembered.owner, remembered.version.token, RecordState.HELD, remaining)
            note = remembered.note or None
            floor = max(floor, remembered.version.token)
        prev = NOTHING if known is None else known.version
        lift = self._lift if ticket else self._lift_above(floor)
        return Entry(kind, id, key, owner, mode, ttl, at, prev, ticket, lift, note=note)

    def mark(self, *, at: float, id: str, floor: int = 0) -> Entry:  # noqa: A002
        """Return what to write to know that all is read, and to draw a token above ``floor``."""
        return Entry(EntryKind.MARK, id, "", "", Mode.ONCE, 0.0, at, lift=self._lift_above(floor))

    def renew(
        self,
        key: str,
        owner: str,
        token: int,
        *,
        ttl: float,
        at: float,
        id: str,  # noqa: A002
        note: bytes | None = None,
    ) -> Entry | bool:
        """Return what to write so that a lease lasts longer; False if it is not theirs."""
        known = self._held(key, owner, token, at)
        if known is None:
            return False
        return self._renewal(key, known, ttl=ttl, at=at, id=id, note=note)

    def finish(
        self,
        key: str,
        owner: str,
        token: int,
        *,
        at: float,
        id: str,  # noqa: A002
        is_failed: bool = False,
    ) -> Entry | bool:
        """Return what to write so that a key is done with; False if it is not theirs, True if it is done."""
        known = self._known(key, at)
        if known is None or known.state is None or (known.owner, known.version.token) != (owner, token):
            return False
        if known.state is (RecordState.FAILED if is_failed else RecordState.DONE):
            return True
        return self._change(EntryKind.FINISH, id, key, known, at=at)._replace(is_failed=is_failed)

    def release(self, key: str, owner: str, token: int, *, at: float, id: str) -> Entry | bool:  # noqa: A002
        """Return what to write so that others may have a key; False if it is not theirs to let go."""
        known = self._held(key, owner, token, at)
        if known is None or known.mode is Mode.ONCE:
            return False
        return self._change(EntryKind.RELEASE, id, key, known, at=at)

    def read(self, key: str, *, now: float, at: float) -> Record | None:
        """Return what stands of a key: nothing, if another may have it."""
        known = self._known(key, at)
        if known is None or known.state is None:
            return None
        remaining = self._remaining(known, now=now, at=at)
        if remaining <= 0:
            return None
        return Record(
            key,
            known.owner,
            known.version.token,
            known.mode,
            known.state,
            known.ttl,
            remaining,
            known.since,
            known.note,
        )

    def leases(self, *, now: float, at: float) -> list[Record]:
        """Return the leases that are held now."""
        records = [
            self.read(key, now=now, at=at) for key, known in self._open.items() if known.mode is Mode.LEASE
        ]
        return [record for record in records if record is not None]

    def _renewal(
        self,
        key: str,
        known: _Standing,
        *,
        ttl: float,
        at: float,
        id: str,  # noqa: A002
        note: bytes | None = None,
    ) -> Entry:
        if note is None and known.note and at - known.noted_at > _SAY_AGAIN:
            note = known.note
        return self._change(EntryKind.RENEW, id, key, known, at=at)._replace(ttl=ttl, note=note)

    def _change(self, kind: EntryKind, id: str, key: str, known: _Standing, *, at: float) -> Entry:  # noqa: A002
        """Return what changes a grant, with all that is to be known of it."""
        return Entry(kind, id, key, known.owner, known.mode, known.ttl, at, known.version, lift=self._lift)

    def _lift_above(self, floor: int) -> int:
        return max(self._lift, floor - self._offset - 1)

    # -- what is known

    def last_token(self, key: str) -> int:
        """Return the highest token that is known of a key, 0 for none."""
        remembered = self._find(key)
        return 0 if remembered is None else remembered.version.token

    def __len__(self) -> int:
        return len(self._open) + len(self._ended)

    def _find(self, key: str) -> _Standing | None:
        return self._open.get(key) or self._ended.get(key)

    def _known(self, key: str, at: float) -> _Standing | None:
        known = self._find(key)
        return None if known is None or at - known.touched_at > self.keep else known

    def _held(self, key: str, owner: str, token: int, at: float) -> _Standing | None:
        known = self._known(key, at)
        if known is None or known.state is not RecordState.HELD:
            return None
        return known if (known.owner, known.version.token) == (owner, token) else None

    def _remaining(self, known: _Standing, *, now: float, at: float) -> float:
        if not known.is_open:
            return self.retain - (at - known.touched_at)
        return silence_of(known.ttl) - (now - max(known.read_at, self._resumed_at))

    def _keep(self, key: str, changed: _Standing) -> None:
        self._open.pop(key, None)
        self._ended.pop(key, None)
        (self._open if changed.is_open else self._ended)[key] = changed
        if len(self) > self._max_keys:
            # Not the one at hand.
            has_older = len(self._ended) > (not changed.is_open)
            (self._ended if has_older else self._open).popitem(last=False)
            self.dropped += 1
