"""The rules of an arbiter: who is granted what. Redis runs them as a script; see redis_arbiter_script."""

from celeriac.model.election import Decision, Denied, Granted, Mode, Record, RecordState

__all__ = ["RETAIN", "Register"]

#: For so long nobody else is granted what was granted once, or is done: a week.
RETAIN = 7 * 24 * 3600.0


class Register:
    """One record for each key, changed in one step at a time; ``now`` is one clock, the arbiter's.

    A token is higher than all that were given before. A claim by the present owner gives the same
    token, and prolongs the lease. Of ``once``, and of what is done, a record stands for ``retain``
    seconds; any other can be replaced once its time is over.
    """

    def __init__(self, *, retain: float = RETAIN) -> None:
        self.retain = retain
        self.last_token = 0
        self._records: dict[str, Record] = {}
        #: Until when each stands.
        self._ends_at: dict[str, float] = {}
        #: What owners left, which outlives their leases.
        self._notes: dict[str, bytes] = {}

    def claim(
        self, key: str, owner: str, *, ttl: float, mode: Mode, now: float, floor: int = 0, since: float = 0.0
    ) -> Decision:
        """Grant a key, or say who has it. The token will be above ``floor``, the highest the owner knows."""
        record = self.read(key, now)
        if record is None:
            self.last_token = token = max(self.last_token, floor) + 1
            note = self._notes.get(key, b"")
            record = Record(key, owner, token, mode, RecordState.HELD, ttl, 0.0, since, note)
        elif record.owner != owner or record.state is not RecordState.HELD:
            return Denied(record.owner, record.token, record.state, record.remaining)
        self._keep(record, ttl if record.mode is not Mode.ONCE else self.retain, now)
        return Granted(record.token, record.note)

    def renew(
        self, key: str, owner: str, token: int, *, ttl: float, now: float, note: bytes | None = None
    ) -> bool:
        """Prolong a lease, and leave a note, if the key is still theirs."""
        record = self._held(key, owner, token, now)
        if record is None:
            return False
        if note is not None:
            self._notes[key] = note
            record = record._replace(note=note)
        self._keep(record, ttl if record.mode is not Mode.ONCE else self.retain, now)
        return True

    def finish(self, key: str, owner: str, token: int, *, now: float, is_failed: bool = False) -> bool:
        """Note that what was to be done is done, if the key is still theirs; to say so twice is fine."""
        record = self.read(key, now)
        if record is None or (record.owner, record.token) != (owner, token):
            return False
        state = RecordState.FAILED if is_failed else RecordState.DONE
        self._keep(record._replace(state=state), self.retain, now)
        return True

    def release(self, key: str, owner: str, token: int, *, now: float) -> bool:
        """Let others have the key, if it is still theirs; what is granted once is granted to nobody else."""
        record = self._held(key, owner, token, now)
        if record is None or record.mode is Mode.ONCE:
            return False
        del self._records[key], self._ends_at[key]
        return True

    def read(self, key: str, now: float) -> Record | None:
        """Return what stands of a key."""
        record = self._records.get(key)
        if record is None:
            return None
        remaining = self._ends_at[key] - now
        if remaining <= 0:
            del self._records[key], self._ends_at[key]
            return None
        return record._replace(remaining=remaining)

    def records(self, now: float) -> list[Record]:
        """Return all that stands."""
        read = [self.read(key, now) for key in list(self._records)]
        return [record for record in read if record is not None]

    def _held(self, key: str, owner: str, token: int, now: float) -> Record | None:
        record = self.read(key, now)
        if record is None or (record.owner, record.token, record.state) != (owner, token, RecordState.HELD):
            return None
        return record

    def _keep(self, record: Record, seconds: float, now: float) -> None:
        self._records[record.key] = record
        self._ends_at[record.key] = now + seconds
