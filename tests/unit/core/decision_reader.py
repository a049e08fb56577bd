"""A reader of a log of decisions, for tests of its rules."""

from itertools import count

from celeriac.core.decision_log import DecisionLog
from celeriac.model.decision import Entry, Verdict
from celeriac.model.election import Mode, Record

__all__ = ["BEGIN", "RETAIN", "TTL", "Reader"]

TTL = 10.0
RETAIN = 10_000.0
#: When all begins, by wall clocks.
BEGIN = 1e9


class Reader:
    """One reader, with a log of its own and a clock that both it and its stamps go by."""

    def __init__(self, **options: int) -> None:
        self.log = DecisionLog(retain=RETAIN, **options)
        self.now = 0.0
        self.places = count()
        self.ids = (f"id-{number}" for number in count())

    @property
    def at(self) -> float:
        return BEGIN + self.now

    def plan_claim(
        self, key: str = "key", owner: str = "one", *, mode: Mode = Mode.LEASE, floor: int = 0
    ) -> Entry | object:
        return self.log.claim(
            key, owner, ttl=TTL, mode=mode, now=self.now, at=self.at, id=next(self.ids), floor=floor
        )

    def write(self, plan: object) -> Verdict:
        assert isinstance(plan, Entry), plan
        return self.log.apply(next(self.places), plan, now=self.now)

    def claim(self, key: str = "key", owner: str = "one", *, mode: Mode = Mode.LEASE) -> int:
        """Have a key granted, and return the token."""
        verdict = self.write(self.plan_claim(key, owner, mode=mode))
        assert verdict.is_valid
        return verdict.token

    def plan_renew(self, token: int, owner: str = "one", note: bytes | None = None) -> Entry | bool:
        return self.log.renew("key", owner, token, ttl=TTL, at=self.at, id=next(self.ids), note=note)

    def plan_finish(self, token: int, owner: str = "one", *, is_failed: bool = False) -> Entry | bool:
        return self.log.finish("key", owner, token, at=self.at, id=next(self.ids), is_failed=is_failed)

    def plan_release(self, token: int, owner: str = "one") -> Entry | bool:
        return self.log.release("key", owner, token, at=self.at, id=next(self.ids))

    def read(self, key: str = "key") -> Record | None:
        return self.log.read(key, now=self.now, at=self.at)

    def put(self, state: str) -> int:
        """Bring the key into a state, and return the token of its last grant; 0 for none."""
        if state == "unknown":
            return 0
        token = self.claim(mode=Mode.ONCE if state == "once" else Mode.LEASE)
        if state == "free":
            self.write(self.plan_release(token))
        elif state in {"done", "failed"}:
            self.write(self.plan_finish(token, is_failed=state == "failed"))
        return token
