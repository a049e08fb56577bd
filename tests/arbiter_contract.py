"""What every arbiter promises, as tests that each implementation inherits.

A subclass has a fixture ``new_arbiter``: a function that makes arbiters as different processes have
them, all of one broker. Keys are new in each test, since some brokers outlive it.

Nobody sleeps until a lease is over. A second lease of the same length is granted after the first: once
somebody else can have that one, the time of the first has passed as well.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from uuid import uuid4

import pytest

from celeriac.errors import CallerError
from celeriac.model.election import Decision, Denied, Granted, Mode, Record, RecordState
from celeriac.programs.process import wait_until
from celeriac.transport.arbiter import MAX_KEY_CHARS, MAX_NOTE_BYTES, Arbiter

__all__ = ["LONG", "SHORT", "ArbiterContract", "NewArbiter", "claimed", "granted", "some_key"]

NewArbiter = Callable[[], Arbiter]

#: Far more than needed, for a busy machine.
PATIENCE = 60.0
#: A lease that is over soon, and one that no test outlives.
SHORT, LONG = 0.3, 600.0
MODES = [Mode.ONCE, Mode.TAKEOVER, Mode.LEASE]
REPLACED = [Mode.TAKEOVER, Mode.LEASE]


def some_key() -> str:
    """Return a key that no other test has."""
    return f"key-{uuid4()}"


def granted(
    arbiter: Arbiter,
    key: str,
    owner: str,
    *,
    mode: Mode = Mode.LEASE,
    ttl: float = LONG,
    floor: int = 0,
) -> Granted:
    """Claim what must be granted."""
    decision = arbiter.claim(key, owner, ttl=ttl, mode=mode, floor=floor)
    assert isinstance(decision, Granted), decision
    return decision


def claimed(arbiter: Arbiter, key: str, owner: str, *, mode: Mode = Mode.LEASE) -> Granted:
    """Claim a key until it is granted."""
    decisions: list[Decision] = []

    def is_granted() -> bool:
        decisions.append(arbiter.claim(key, owner, ttl=LONG, mode=mode))
        return isinstance(decisions[-1], Granted)

    assert wait_until(is_granted, patience=PATIENCE), decisions[-1]
    decision = decisions[-1]
    assert isinstance(decision, Granted)
    return decision


def outlast(arbiter: Arbiter, other: Arbiter) -> None:
    """Return when every short lease that was granted or renewed until now is over."""
    witness = some_key()
    granted(arbiter, witness, "witness", ttl=SHORT)
    claimed(other, witness, "successor")


def is_denied(arbiter: Arbiter, key: str, owner: str, *, mode: Mode) -> bool:
    return isinstance(arbiter.claim(key, owner, ttl=LONG, mode=mode), Denied)


def read(arbiter: Arbiter, key: str) -> Record:
    """Return the record of a key, which must be there."""
    record = arbiter.read(key)
    assert record is not None
    return record


class ArbiterContract:
    """Inherit from this, and have a fixture ``new_arbiter``."""

    # -- who is granted what

    def test_of_many_who_claim_a_key_at_once_one_is_granted_it(self, new_arbiter: NewArbiter) -> None:
        keys = [some_key() for _ in range(50)]
        arbiters = [new_arbiter() for _ in range(8)]
        barrier = Barrier(len(arbiters))

        def claim_all(number: int) -> list[Decision]:
            barrier.wait(PATIENCE)
            return [
                arbiters[number].claim(key, f"owner-{number}", ttl=LONG, mode=Mode.ONCE, timeout=PATIENCE)
                for key in keys
            ]

        with ThreadPoolExecutor(len(arbiters)) as pool:
            decided = list(pool.map(claim_all, range(len(arbiters))))

        tokens: set[int] = set()
        for decisions in zip(*decided, strict=True):
            ((owner, token),) = [
                (f"owner-{number}", each.token)
                for number, each in enumerate(decisions)
                if isinstance(each, Granted)
            ]
            denied = [each for each in decisions if isinstance(each, Denied)]
            assert {(each.owner, each.token, each.state) for each in denied} == {
                (owner, token, RecordState.HELD)
            }
            tokens.add(token)
        assert len(tokens) == len(keys)

    def test_one_arbiter_serves_many_threads(self, new_arbiter: NewArbiter) -> None:
        arbiter, key = new_arbiter(), some_key()
        barrier = Barrier(8)

        def claim(number: int) -> Decision:
            barrier.wait(PATIENCE)
            return arbiter.claim(key, f"owner-{number}", ttl=LONG, mode=Mode.LEASE, timeout=PATIENCE)

        with ThreadPoolExecutor(8) as pool:
            decisions = list(pool.map(claim, range(8)))

        assert sum(isinstance(each, Granted) for each in decisions) == 1

    def test_tokens_rise_over_all_keys_and_modes(self, new_arbiter: NewArbiter) -> None:
        arbiters = [new_arbiter() for _ in range(3)]

        tokens = [
            granted(arbiters[number % 3], some_key(), f"owner-{number}", mode=MODES[number % 3]).token
            for number in range(30)
        ]

        assert tokens == sorted(set(tokens))
        assert tokens[0] > 0

    @pytest.mark.parametrize("mode", MODES)
    def test_the_owner_is_granted_its_key_again_under_the_same_token(
        self, new_arbiter: NewArbiter, mode: Mode
    ) -> None:
        arbiter, other, key = new_arbiter(), new_arbiter(), some_key()
        first = granted(arbiter, key, "owner", mode=mode)
        granted(arbiter, some_key(), "owner", mode=mode)

        again = [granted(each, key, "owner", mode=mode, floor=first.token) for each in (arbiter, other)]

        assert again == [first, first]

    @pytest.mark.parametrize("mode", REPLACED)
    def test_the_claim_of_the_owner_prolongs_the_lease(self, new_arbiter: NewArbiter, mode: Mode) -> None:
        arbiter, other, key = new_arbiter(), new_arbiter(), some_key()
        granted(arbiter, key, "owner", mode=mode, ttl=SHORT)

        token = granted(arbiter, key, "owner", mode=mode, ttl=LONG).token
        outlast(arbiter, other)

        assert is_denied(other, key, "other", mode=mode)
        assert arbiter.renew(key, "owner", token, ttl=LONG)

    def test_who_is_denied_learns_who_has_the_key(self, new_arbiter: NewArbiter) -> None:
        arbiter, other, key = new_arbiter(), new_arbiter(), some_key()
        token = granted(arbiter, key, "owner").token

        denied = other.claim(key, "other", ttl=SHORT, mode=Mode.LEASE)

        assert isinstance(denied, Denied)
        assert denied[:3] == ("owner", token, RecordState.HELD)
        assert 0 < denied.remaining <= LONG * 1.1

    def test_an_owner_of_another_boot_is_another(self, new_arbiter: NewArbiter) -> None:
        arbiter, key = new_arbiter(), some_key()
        granted(arbiter, key, "web1.7.boot-1", mode=Mode.ONCE)

        assert is_denied(arbiter, key, "web1.7.boot-2", mode=Mode.ONCE)

    def test_the_token_is_above_the_floor(self, new_arbiter: NewArbiter) -> None:
        arbiter, other = new_arbiter(), new_arbiter()
        known = granted(arbiter, some_key(), "owner").token

        above = granted(arbiter, some_key(), "owner", floor=known + 1000).token
        after = granted(other, some_key(), "owner").token

        assert known + 1000 < above < after

    # -- what time does

    def test_what_is_granted_once_is_granted_to_nobody_else_though_its_time_is_over(
        self, new_arbiter: NewArbiter
    ) -> None:
        arbiter, other, key = new_arbiter(), new_arbiter(), some_key()
        first = granted(arbiter, key, "owner", mode=Mode.ONCE, ttl=SHORT)

        arbiter.close()
        outlast(new_arbiter(), other)

        assert [is_denied(other, key, "other", mode=mode) for mode in MODES] == [True] * 3
        assert granted(other, key, "owner", mode=Mode.ONCE, ttl=SHORT) == first

    @pytest.mark.parametrize("mode", REPLACED)
    def test_an_owner_whose_time_is_over_is_replaced_under_a_higher_token(
        self, new_arbiter: NewArbiter, mode: Mode
    ) -> None:
        arbiter, other, key = new_arbiter(), new_arbiter(), some_key()
        first = granted(arbiter, key, "owner", mode=mode, ttl=SHORT)

        second = claimed(other, key, "other", mode=mode)

        assert second.token > first.token
        assert is_denied(arbiter, key, "owner", mode=mode)
        assert not arbiter.renew(key, "owner", first.token, ttl=LONG)
        assert not arbiter.finish(key, "owner", first.token)
        assert not arbiter.release(key, "owner", first.token)
        assert read(arbiter, key)[1:3] == ("other", second.token)

    @pytest.mark.parametrize("mode", REPLACED)
    def test_a_lease_that_is_renewed_goes_on(self, new_arbiter: NewArbiter, mode: Mode) -> None:
        arbiter, other, key = new_arbiter(), new_arbiter(), some_key()

        def is_renewed() -> bool:
            token = granted(arbiter, key, "owner", mode=mode, ttl=SHORT).token
            return arbiter.renew(key, "owner", token, ttl=LONG)

        # Not at the first try where somebody kept us from asking for as long as the lease.
        assert wait_until(is_renewed, patience=PATIENCE)
        outlast(arbiter, other)

        assert is_denied(other, key, "other", mode=mode)

    def test_a_renewal_can_shorten_a_lease(self, new_arbiter: NewArbiter) -> None:
        arbiter, other, key = new_arbiter(), new_arbiter(), some_key()
        token = granted(arbiter, key, "owner", ttl=LONG).token

        assert arbiter.renew(key, "owner", token, ttl=SHORT)

        assert claimed(other, key, "other").token > token

    # -- notes

    @pytest.mark.parametrize("end", ["expiry", "release"])
    def test_a_note_is_there_for_who_follows(self, new_arbiter: NewArbiter, end: str) -> None:
        arbiter, other, key = new_arbiter(), new_arbiter(), some_key()
        note = b'{"sent": "\x00\xff\r\n"}'
        first = granted(arbiter, key, "owner", ttl=LONG)

        ttl = SHORT if end == "expiry" else LONG
        assert arbiter.renew(key, "owner", first.token, ttl=ttl, note=note)
        if end == "release":
            assert arbiter.release(key, "owner", first.token)
        second = claimed(other, key, "other")

        assert (first.note, second.note) == (b"", note)
        assert read(arbiter, key).note == note

    def test_a_note_stays_until_there_is_another(self, new_arbiter: NewArbiter) -> None:
        arbiter, key = new_arbiter(), some_key()
        token = granted(arbiter, key, "owner").token
        notes = []

        for note in (b"one", None, b"two", b"", None):
            assert arbiter.renew(key, "owner", token, ttl=LONG, note=note)
            notes.append(granted(arbiter, key, "owner").note)

        assert notes == [b"one", b"one", b"two", b"", b""]

    def test_who_has_lost_a_lease_leaves_no_note(self, new_arbiter: NewArbiter) -> None:
        arbiter, other, key = new_arbiter(), new_arbiter(), some_key()
        first = granted(arbiter, key, "owner", ttl=LONG)
        assert arbiter.renew(key, "owner", first.token, ttl=LONG, note=b"mine")
        assert arbiter.release(key, "owner", first.token)

        assert not arbiter.renew(key, "owner", first.token, ttl=LONG, note=b"late")

        assert granted(other, key, "other").note == b"mine"

    def test_a_note_may_be_as_long_as_is_said_and_no_longer(self, new_arbiter: NewArbiter) -> None:
        arbiter, key = new_arbiter(), some_key()
        token = granted(arbiter, key, "owner").token
        longest = bytes(MAX_NOTE_BYTES)

        assert arbiter.renew(key, "owner", token, ttl=LONG, note=longest)
        with pytest.raises(CallerError, match="store it elsewhere and leave a reference"):
            arbiter.renew(key, "owner", token, ttl=LONG, note=longest + b"x")

        assert granted(arbiter, key, "owner").note == longest

    # -- ends

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("is_failed", [False, True])
    def test_what_is_finished_is_granted_to_nobody(
        self, new_arbiter: NewArbiter, mode: Mode, is_failed: bool
    ) -> None:
        arbiter, other, key = new_arbiter(), new_arbiter(), some_key()
        state = RecordState.FAILED if is_failed else RecordState.DONE
        tokens: list[int] = []

        def is_finished() -> bool:
            tokens.append(granted(arbiter, key, "owner", mode=mode, ttl=SHORT).token)
            return arbiter.finish(key, "owner", tokens[-1], is_failed=is_failed)

        assert wait_until(is_finished, patience=PATIENCE)
        outlast(arbiter, other)

        token = tokens[-1]
        for owner in ("owner", "other"):
            denied = other.claim(key, owner, ttl=LONG, mode=mode)
            assert isinstance(denied, Denied)
            assert denied[:3] == ("owner", token, state)
        assert not arbiter.renew(key, "owner", token, ttl=LONG)
        assert not arbiter.release(key, "owner", token)

    def test_to_finish_twice_is_to_finish_once(self, new_arbiter: NewArbiter) -> None:
        arbiter, other, key = new_arbiter(), new_arbiter(), some_key()
        token = granted(arbiter, key, "owner", mode=Mode.TAKEOVER).token

        done = [each.finish(key, "owner", token) for each in (arbiter, arbiter, other)]

        assert done == [True] * 3
        assert read(other, key).state is RecordState.DONE

    @pytest.mark.parametrize("mode", REPLACED)
    def test_what_is_released_is_granted_at_once(self, new_arbiter: NewArbiter, mode: Mode) -> None:
        arbiter, other, key = new_arbiter(), new_arbiter(), some_key()
        token = granted(arbiter, key, "owner", mode=mode).token

        released = [arbiter.release(key, "owner", token) for _ in range(2)]

        assert released == [True, False]
        assert other.read(key) is None
        assert granted(other, key, "other", mode=mode).token > token

    def test_what_is_granted_once_is_not_released(self, new_arbiter: NewArbiter) -> None:
        arbiter, other, key = new_arbiter(), new_arbiter(), some_key()
        token = granted(arbiter, key, "owner", mode=Mode.ONCE).token

        assert not arbiter.release(key, "owner", token)

        assert is_denied(other, key, "other", mode=Mode.ONCE)
        assert arbiter.finish(key, "owner", token)

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize(("owner", "step"), [("owner", 1), ("owner", -1), ("other", 0)])
    def test_who_has_not_the_owner_and_the_token_right_changes_nothing(
        self, new_arbiter: NewArbiter, mode: Mode, owner: str, step: int
    ) -> None:
        arbiter, key = new_arbiter(), some_key()
        token = granted(arbiter, key, "owner", mode=mode).token
        before = read(arbiter, key)

        done = [
            arbiter.renew(key, owner, token + step, ttl=SHORT, note=b"wrong"),
            arbiter.finish(key, owner, token + step),
            arbiter.release(key, owner, token + step),
        ]

        assert done == [False] * 3
        after = read(arbiter, key)
        assert after._replace(remaining=0) == before._replace(remaining=0)
        assert after.remaining > SHORT

    # -- reading

    def test_of_a_key_that_nobody_claimed_nothing_is_known(self, new_arbiter: NewArbiter) -> None:
        arbiter, key = new_arbiter(), some_key()

        done = [
            arbiter.renew(key, "owner", 1, ttl=LONG, note=b"note"),
            arbiter.finish(key, "owner", 1),
            arbiter.release(key, "owner", 1),
        ]

        assert arbiter.read(key) is None
        assert done == [False] * 3
        assert granted(arbiter, key, "owner").note == b""

    @pytest.mark.parametrize("mode", MODES)
    def test_a_record_is_read_as_it_was_granted(self, new_arbiter: NewArbiter, mode: Mode) -> None:
        arbiter, other, key = new_arbiter(), new_arbiter(), some_key()
        token = granted(arbiter, key, "owner", mode=mode, ttl=120.5).token

        record = read(other, key)

        assert record[:6] == (key, "owner", token, mode, RecordState.HELD, 120.5)
        assert record.note == b""
        assert record.remaining > 60
        assert record.since > 1.7e9

    def test_the_leases_are_those_that_are_held(self, new_arbiter: NewArbiter) -> None:
        arbiter, other = new_arbiter(), new_arbiter()
        keys = {name: some_key() for name in ("held", "over", "free", "done", "once", "takeover")}
        tokens = {
            name: granted(arbiter, keys[name], "owner", ttl=SHORT if name == "over" else LONG).token
            for name in ("held", "over", "free", "done")
        }
        granted(arbiter, keys["once"], "owner", mode=Mode.ONCE)
        granted(arbiter, keys["takeover"], "owner", mode=Mode.TAKEOVER)
        arbiter.renew(keys["held"], "owner", tokens["held"], ttl=LONG, note=b"note")
        arbiter.release(keys["free"], "owner", tokens["free"])
        arbiter.finish(keys["done"], "owner", tokens["done"])

        def held() -> list[Record]:
            return [record for record in other.leases() if record.key in keys.values()]

        assert wait_until(lambda: len(held()) == 1, patience=PATIENCE)
        (record,) = held()
        assert record[:6] == (keys["held"], "owner", tokens["held"], Mode.LEASE, RecordState.HELD, LONG)
        assert record.note == b"note"

    # -- limits, and ends

    @pytest.mark.parametrize("key", ["", "k" * (MAX_KEY_CHARS + 1), "a\nb", "\ud800"])
    def test_what_cannot_be_a_key_is_the_callers_to_mend(self, new_arbiter: NewArbiter, key: str) -> None:
        arbiter = new_arbiter()

        for call in (
            lambda: arbiter.claim(key, "owner", ttl=LONG, mode=Mode.ONCE),
            lambda: arbiter.renew(key, "owner", 1, ttl=LONG),
            lambda: arbiter.finish(key, "owner", 1),
            lambda: arbiter.release(key, "owner", 1),
            lambda: arbiter.read(key),
        ):
            with pytest.raises(CallerError, match="printable"):
                call()

    @pytest.mark.parametrize("key", ["k" * MAX_KEY_CHARS, "ä{}*?:/ €🌳".ljust(MAX_KEY_CHARS, "🌳")])
    def test_a_key_may_be_as_long_as_is_said_and_of_any_script(
        self, new_arbiter: NewArbiter, key: str
    ) -> None:
        arbiter, other = new_arbiter(), new_arbiter()

        first = granted(arbiter, key, "öwner €", mode=Mode.LEASE)

        assert read(other, key)[:3] == (key, "öwner €", first.token)
        assert key in [record.key for record in other.leases()]
        assert is_denied(other, key, "other", mode=Mode.LEASE)
        assert arbiter.release(key, "öwner €", first.token)

    @pytest.mark.parametrize("ttl", [0.0, -1.0, float("nan"), float("inf")])
    def test_what_is_no_time_is_the_callers_to_mend(self, new_arbiter: NewArbiter, ttl: float) -> None:
        arbiter, key = new_arbiter(), some_key()

        with pytest.raises(CallerError, match="seconds"):
            arbiter.claim(key, "owner", ttl=ttl, mode=Mode.LEASE)
        with pytest.raises(CallerError, match="seconds"):
            arbiter.renew(key, "owner", 1, ttl=ttl)

        assert arbiter.read(key) is None

    def test_after_its_end_an_arbiter_can_be_asked_again(self, new_arbiter: NewArbiter) -> None:
        arbiter, key = new_arbiter(), some_key()
        first = granted(arbiter, key, "owner")

        arbiter.close()
        arbiter.close()

        assert granted(arbiter, key, "owner") == first
        assert arbiter.read(key) is not None

    def test_the_level_comes_with_its_reason(self, new_arbiter: NewArbiter) -> None:
        arbiter = new_arbiter()

        level = arbiter.look()

        assert level is arbiter.level
        assert len(arbiter.reason) > 20
