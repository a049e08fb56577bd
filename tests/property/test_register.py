"""The laws of an arbiter, whatever is asked of it in whatever order; and bugs that break them are found.

Beside the register runs a ledger, that knows who was granted what, and until when.
"""

from collections.abc import Callable
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from celeriac.core.register import Register
from celeriac.model.election import Decision, Denied, Granted, Mode, Record, RecordState
from tests.property.effort import COSTLY
from tests.property.test_planted_bugs import UNTIL_FOUND

KEYS = ("alpha", "beta")
OWNERS = ("one", "two", "three")
RETAIN = 100.0

keys, owners, modes = st.sampled_from(KEYS), st.sampled_from(OWNERS), st.sampled_from(Mode)
ttls = st.sampled_from((1.0, 3.0, 10.0))
#: What of the last grant of a key is not right, in what somebody says who would change it.
mistakes = st.sampled_from(("", "", "", "owner", "token", "both"))


class Held:
    """One grant."""

    def __init__(self, owner: str, token: int, mode: Mode, ends_at: float) -> None:
        self.owner = owner
        self.token = token
        self.mode = mode
        self.ends_at = ends_at
        self.state = RecordState.HELD

    def keep(self, now: float, ttl: float) -> None:
        is_kept = self.mode is Mode.ONCE or self.state is not RecordState.HELD
        self.ends_at = now + (RETAIN if is_kept else ttl)


class RegisterMachine(RuleBasedStateMachine):
    """Any interleaving of what three owners can ask of two keys."""

    @initialize()
    def begin(self) -> None:
        self.now = 1000.0
        self.register = Register(retain=RETAIN)
        self.held: dict[str, Held] = {}
        self.notes: dict[str, bytes] = {}
        #: Every token that was given, in order.
        self.tokens: list[int] = [0]

    def standing(self, key: str) -> Held | None:
        held = self.held.get(key)
        return held if held is not None and self.now < held.ends_at else None

    def theirs(self, key: str, owner: str, token: int, *, may_be_done: bool = False) -> Held | None:
        held = self.standing(key)
        if held is None or (held.owner, held.token) != (owner, token):
            return None
        return held if may_be_done or held.state is RecordState.HELD else None

    @rule(seconds=st.sampled_from((0.5, 1.0, 2.0, 9.0, RETAIN)))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(key=keys, owner=owners, mode=modes, ttl=ttls, ahead=st.sampled_from((None, 0, 1, 50)))
    def claim(self, key: str, owner: str, mode: Mode, ttl: float, ahead: int | None) -> None:
        held = self.standing(key)
        floor = 0 if ahead is None else self.tokens[-1] + ahead

        decision = self.register.claim(key, owner, ttl=ttl, mode=mode, now=self.now, floor=floor)

        if held is None:
            assert isinstance(decision, Granted)
            # A2: above all that were given before, and above the floor.
            assert decision.token > max(self.tokens[-1], floor)
            self.tokens.append(decision.token)
            self.held[key] = held = Held(owner, decision.token, mode, 0.0)
            held.keep(self.now, ttl)
        elif held.owner == owner and held.state is RecordState.HELD:
            # A3: the same token, and the lease is prolonged, which the invariant sees.
            assert decision[0] == held.token
            assert isinstance(decision, Granted)
            held.keep(self.now, ttl)
        else:
            # A1 and A4: one owner at a time, and none after what is once or done.
            assert decision == Denied(held.owner, held.token, held.state, held.ends_at - self.now)
        if isinstance(decision, Granted):
            assert decision.note == self.notes.get(key, b"")

    @rule(key=keys, ttl=ttls, mistake=mistakes, note=st.sampled_from((None, b"", b"a", b"b")))
    def renew(self, key: str, ttl: float, mistake: str, note: bytes | None) -> None:
        owner, token = self.last_of(key, mistake)
        held = self.theirs(key, owner, token)

        is_done = self.register.renew(key, owner, token, ttl=ttl, now=self.now, note=note)

        assert is_done is (held is not None)
        if held is not None:
            held.keep(self.now, ttl)
            if note is not None:
                self.notes[key] = note

    @rule(key=keys, mistake=mistakes, is_failed=st.booleans())
    def finish(self, key: str, mistake: str, is_failed: bool) -> None:
        owner, token = self.last_of(key, mistake)
        held = self.theirs(key, owner, token, may_be_done=True)

        # A5: an answer that was lost is asked for again.
        is_done = [
            self.register.finish(key, owner, token, now=self.now, is_failed=is_failed) for _ in range(2)
        ]

        assert is_done == [held is not None] * 2
        if held is not None:
            held.state = RecordState.FAILED if is_failed else RecordState.DONE
            held.keep(self.now, 0.0)

    @rule(key=keys, mistake=mistakes, successor=st.none() | owners)
    def release(self, key: str, mistake: str, successor: str | None) -> None:
        owner, token = self.last_of(key, mistake)
        held = self.theirs(key, owner, token)
        is_theirs = held is not None and held.mode is not Mode.ONCE

        is_done = self.register.release(key, owner, token, now=self.now)

        assert is_done is is_theirs
        if held is not None and is_theirs:
            held.ends_at = self.now
        if successor is not None:
            self.claim(key, successor, Mode.LEASE, 10.0, None)

    def last_of(self, key: str, mistake: str) -> tuple[str, int]:
        """Return who was granted a key last, and the token; or what is not right."""
        held = self.held.get(key)
        if held is None:
            return OWNERS[0], self.tokens[-1]
        owner = held.owner if mistake in {"", "token"} else OWNERS[OWNERS.index(held.owner) - 1]
        return owner, held.token if mistake in {"", "owner"} else held.token - 1

    @invariant()
    def what_stands_is_what_was_granted(self) -> None:
        for key in KEYS:
            held, record = self.standing(key), self.register.read(key, self.now)

            assert (held is None) is (record is None)
            if held is not None and record is not None:
                assert record[1:5] == (held.owner, held.token, held.mode, held.state)
                assert record.remaining == held.ends_at - self.now
                assert record.note == self.notes.get(key, b"")
        assert {record.key for record in self.register.records(self.now)} == {
            key for key in KEYS if self.standing(key)
        }


TestRegister = RegisterMachine.TestCase
TestRegister.settings = COSTLY

# -- planted bugs

_claim, _renew, _finish, _read = Register.claim, Register.renew, Register.finish, Register.read


def claim_without_extension(
    self: Register, key: str, owner: str, *, now: float, **options: float
) -> Decision:
    """Answer the owner with its token, and a lease that ends as before."""
    ends_at = self._ends_at.get(key) if self.read(key, now) else None
    decision = _claim(self, key, owner, now=now, **options)  # type: ignore[arg-type]
    if ends_at is not None:
        self._ends_at[key] = ends_at
    return decision


def claim_by_a_counter_of_the_key(
    self: Register, key: str, owner: str, *, now: float, floor: int = 0, **options: float
) -> Decision:
    """Count the grants of each key for itself."""
    if self.read(key, now) is None:
        self.last_token = self._notes.get(f"count of {key}", b"").count(b"x")
        self._notes[f"count of {key}"] = b"x" * (self.last_token + 1)
    return _claim(self, key, owner, now=now, floor=floor, **options)  # type: ignore[arg-type]


def claim_below_the_floor(
    self: Register, key: str, owner: str, *, floor: int = 0, **options: float
) -> Decision:
    """Forget that others know of higher tokens."""
    return _claim(self, key, owner, floor=floor * 0, **options)  # type: ignore[arg-type]


def claim_anew(self: Register, key: str, owner: str, *, now: float, **options: float) -> Decision:
    """Give the owner a new token."""
    record = self.read(key, now)
    if record is not None and record.owner == owner and record.state is RecordState.HELD:
        del self._records[key]
    return _claim(self, key, owner, now=now, **options)  # type: ignore[arg-type]


def claim_again_what_is_done(
    self: Register, key: str, owner: str, *, now: float, **options: float
) -> Decision:
    """Grant its owner what it has done before."""
    record = self.read(key, now)
    if record is not None and record.owner == owner:
        self._records[key] = record._replace(state=RecordState.HELD)
    return _claim(self, key, owner, now=now, **options)  # type: ignore[arg-type]


def keep_once_for_a_lease(self: Register, record: Record, seconds: float, now: float) -> None:
    """Let another replace what was granted once when its time is over."""
    is_held = record.state is RecordState.HELD
    self._records[record.key] = record
    self._ends_at[record.key] = now + (record.ttl if record.mode is Mode.ONCE and is_held else seconds)


def forget_what_is_done(
    self: Register, key: str, owner: str, token: int, *, now: float, **options: bool
) -> bool:
    """Keep what is done no longer than a lease."""
    is_done = _finish(self, key, owner, token, now=now, **options)
    if is_done:
        self._ends_at[key] = now + self._records[key].ttl
    return is_done


def finish_once(
    self: Register, key: str, owner: str, token: int, *, now: float, is_failed: bool = False
) -> bool:
    """Take an answer that was lost for a mistake."""
    record = self.read(key, now)
    is_held = record is not None and record.state is RecordState.HELD
    return is_held and _finish(self, key, owner, token, now=now, is_failed=is_failed)


def renew_by_name(self: Register, key: str, owner: str, token: int, **options: float) -> bool:
    """Believe whoever has the name of the owner."""
    record = self._records.get(key)
    return _renew(self, key, owner, record.token if record else token, **options)  # type: ignore[arg-type]


def release_once(self: Register, key: str, owner: str, token: int, *, now: float) -> bool:
    """Let go what was granted for good."""
    record = self.read(key, now)
    if record is None or record[1:3] != (owner, token) or record.state is not RecordState.HELD:
        return False
    del self._records[key], self._ends_at[key]
    return True


def release_with_its_note(self: Register, key: str, owner: str, token: int, *, now: float) -> bool:
    """Forget what was left for who follows."""
    record = self.read(key, now)
    if record is None or record[1:3] != (owner, token) or record.state is not RecordState.HELD:
        return False
    if record.mode is Mode.ONCE:
        return False
    del self._records[key], self._ends_at[key]
    self._notes.pop(key, None)
    return True


def read_one_too_long(self: Register, key: str, now: float) -> Record | None:
    """Let a lease stand a while after its end."""
    return _read(self, key, now - 0.5)


#: By what is to be changed: the bugs.
PLANTED: dict[str, list[Callable[..., object]]] = {
    "claim": [
        claim_without_extension,
        claim_by_a_counter_of_the_key,
        claim_below_the_floor,
        claim_anew,
        claim_again_what_is_done,
    ],
    "renew": [renew_by_name],
    "finish": [forget_what_is_done, finish_once],
    "release": [release_once, release_with_its_note],
    "read": [read_one_too_long],
    "_keep": [keep_once_for_a_lease],
}
CASES = [pytest.param(name, bug, id=bug.__name__) for name, bugs in PLANTED.items() for bug in bugs]
SEARCHING = settings(UNTIL_FOUND, stateful_step_count=30)


@pytest.mark.parametrize(("name", "bug"), CASES)
def test_the_planted_bug_is_found(name: str, bug: Callable[..., object]) -> None:
    planted = patch.object(Register, name, bug)

    with planted, pytest.raises(AssertionError):
        run_state_machine_as_test(RegisterMachine, settings=SEARCHING)


def test_the_machine_finds_nothing_where_no_bug_is_planted() -> None:
    careful = settings(SEARCHING, max_examples=200)

    run_state_machine_as_test(RegisterMachine, settings=careful)
