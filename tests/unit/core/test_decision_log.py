"""How each entry is judged in each state of a key, and what a node plans by what it has read."""

from itertools import count

import pytest

from celeriac.core.decision_log import DecisionLog, max_age_of, silence_of
from celeriac.model.decision import NOTHING, Entry, EntryKind, Verdict, Version
from celeriac.model.election import Denied, Mode, Record, RecordState

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


@pytest.fixture
def reader() -> Reader:
    return Reader()


def entry(kind: EntryKind, owner: str, prev: Version, *, at: float = BEGIN, mode: Mode = Mode.LEASE) -> Entry:
    return Entry(kind, "some-id", "key", owner, mode, TTL, at, prev)


# -- how entries are judged

#: By state, the kinds that are valid of the owner and of another, if they name the present version.
VALID = {
    "held": ({"takeover", "renew", "finish", "release"}, {"takeover"}),
    "once": ({"renew", "finish"}, set()),
    "done": ({"finish"}, set()),
    "failed": ({"finish"}, set()),
    "free": ({"claim"}, {"claim"}),
}


@pytest.mark.parametrize("kind", [kind for kind in EntryKind if kind is not EntryKind.MARK])
@pytest.mark.parametrize("state", list(VALID))
@pytest.mark.parametrize("owner", ["one", "two"])
def test_an_entry_is_valid_where_the_state_allows_it(
    reader: Reader, state: str, owner: str, kind: EntryKind
) -> None:
    token = reader.put(state)
    version = Version(token, 0 if state in {"held", "once"} else 1)
    mode = Mode.ONCE if state == "once" else Mode.LEASE

    verdict = reader.write(entry(kind, owner, version, mode=mode))

    own, foreign = VALID[state]
    assert verdict.is_valid == (kind.value in (own if owner == "one" else foreign))


@pytest.mark.parametrize("kind", [kind for kind in EntryKind if kind is not EntryKind.MARK])
@pytest.mark.parametrize("state", list(VALID))
def test_an_entry_that_presupposes_what_is_over_changes_nothing(
    reader: Reader, state: str, kind: EntryKind
) -> None:
    token = reader.put(state)
    old = NOTHING if state in {"held", "once"} else Version(token, 0)
    before = reader.log._find("key")

    verdict = reader.write(entry(kind, "one", old))

    assert verdict == Verdict(False)
    assert reader.log._find("key") == before


@pytest.mark.parametrize(
    ("kind", "state", "version"),
    [
        (EntryKind.CLAIM, RecordState.HELD, Version(1, 0)),
        (EntryKind.TAKEOVER, RecordState.HELD, Version(21, 0)),
        (EntryKind.RENEW, RecordState.HELD, Version(7, 3)),
        (EntryKind.FINISH, RecordState.DONE, Version(7, 3)),
        (EntryKind.RELEASE, None, Version(7, 3)),
    ],
)
def test_of_a_key_whose_beginning_is_lost_any_entry_makes_a_record(
    kind: EntryKind, state: RecordState | None, version: Version
) -> None:
    log = DecisionLog(retain=RETAIN)
    prev = NOTHING if kind is EntryKind.CLAIM else Version(7, 2)

    verdict = log.apply(0 if kind is EntryKind.CLAIM else 20, entry(kind, "one", prev), now=0.0)

    known = log._find("key")
    assert known is not None
    assert verdict == Verdict(True, version.token)
    assert (known.owner, known.state, known.version) == ("one", state, version)


def test_who_starts_late_is_put_right_by_the_next_valid_entry() -> None:
    log = DecisionLog(retain=RETAIN)
    # Before the first that is read, "one" was granted 7 and renewed it: this takeover came too late.
    log.apply(20, entry(EntryKind.TAKEOVER, "two", Version(7, 2)), now=0.0)

    verdict = log.apply(21, entry(EntryKind.RENEW, "one", Version(7, 3)), now=0.0)
    late = log.apply(22, entry(EntryKind.TAKEOVER, "three", Version(7, 3)), now=0.0)

    known = log._find("key")
    assert known is not None
    assert (verdict.is_valid, late.is_valid) == (True, False)
    assert (known.owner, known.version) == ("one", Version(7, 4))


def test_the_same_entry_twice_counts_once(reader: Reader) -> None:
    token = reader.claim()
    renewal = reader.plan_renew(token)

    verdicts = [reader.write(renewal).is_valid for _ in range(2)]

    assert verdicts == [True, False]
    assert reader.write(reader.plan_renew(token)).is_valid


def test_a_token_is_the_place_in_the_log_and_never_0(reader: Reader) -> None:
    tokens = [reader.claim(f"key-{number}") for number in range(3)]

    assert tokens == [1, 2, 3]


def test_a_floor_lifts_all_tokens_after_it(reader: Reader) -> None:
    overtaken = reader.plan_claim("other")

    above = reader.write(reader.plan_claim(floor=1000)).token
    verdict = reader.write(overtaken)
    after = reader.claim("other")

    assert above == 1001
    assert not verdict.is_valid
    assert after == 1003


def test_a_mark_draws_a_token_of_its_own(reader: Reader) -> None:
    first = reader.claim()

    drawn = [
        reader.write(reader.log.mark(at=reader.at, id=f"mark-{floor}", floor=floor)).token
        for floor in (0, 0, 500)
    ]

    assert [first, *drawn] == [1, 2, 3, 501]
    assert reader.claim("other") == 502


def test_a_ticket_is_the_token(reader: Reader) -> None:
    plan = reader.log.claim("key", "one", ttl=TTL, mode=Mode.LEASE, now=0.0, at=BEGIN, id="id", ticket=77)

    assert reader.write(plan) == Verdict(True, 77)
    assert reader.log.last_token("key") == 77


def test_a_ticket_that_is_not_above_the_last_token_is_refused(reader: Reader) -> None:
    token = reader.claim()
    reader.write(reader.plan_release(token))

    stale = entry(EntryKind.CLAIM, "two", Version(token, 1))._replace(ticket=token)

    assert not reader.write(stale).is_valid
    assert reader.claim(owner="two") > token


# -- what is planned


@pytest.mark.parametrize("mode", list(Mode))
def test_the_owner_that_claims_again_renews(reader: Reader, mode: Mode) -> None:
    token = reader.claim(mode=mode)
    reader.now = TTL * 0.9

    plan = reader.plan_claim(mode=mode)
    verdict = reader.write(plan)

    assert isinstance(plan, Entry)
    assert plan.kind is EntryKind.RENEW
    assert verdict.token == token
    reader.now += TTL * 0.9
    assert isinstance(reader.plan_claim(owner="two", mode=mode), Denied)


@pytest.mark.parametrize("mode", [Mode.LEASE, Mode.TAKEOVER])
def test_another_takes_over_once_nothing_was_read_for_longer_than_the_lease(
    reader: Reader, mode: Mode
) -> None:
    token = reader.claim(mode=mode)
    limit = silence_of(TTL)

    reader.now = limit - 0.01
    early = reader.plan_claim(owner="two", mode=mode)
    reader.now = limit
    plan = reader.plan_claim(owner="two", mode=mode)

    assert early == Denied("one", token, RecordState.HELD, pytest.approx(0.01))
    assert isinstance(plan, Entry)
    assert (plan.kind, plan.prev) == (EntryKind.TAKEOVER, Version(token, 0))
    assert limit > TTL
    assert reader.write(plan).token > token


def test_a_takeover_is_void_if_a_renewal_came_first(reader: Reader) -> None:
    token = reader.claim()
    renewal = reader.plan_renew(token)
    reader.now = TTL * 2
    takeover = reader.plan_claim(owner="two")

    verdicts = [reader.write(plan).is_valid for plan in (renewal, takeover)]

    assert verdicts == [True, False]
    record = reader.read()
    assert record is not None
    assert record.owner == "one"


def test_a_renewal_is_void_if_a_takeover_came_first(reader: Reader) -> None:
    token = reader.claim()
    renewal = reader.plan_renew(token)
    reader.now = TTL * 2
    takeover = reader.plan_claim(owner="two")

    verdicts = [reader.write(plan).is_valid for plan in (takeover, renewal)]

    assert verdicts == [True, False]
    assert reader.plan_renew(token) is False
    assert reader.plan_finish(token) is False
    assert reader.plan_release(token) is False


def test_who_was_deaf_does_not_take_that_for_silence(reader: Reader) -> None:
    token = reader.claim()
    reader.now = TTL * 5

    reader.log.resume(reader.now)
    denied = reader.plan_claim(owner="two")

    assert denied == Denied("one", token, RecordState.HELD, pytest.approx(silence_of(TTL)))
    reader.now += silence_of(TTL) + 0.01
    assert isinstance(reader.plan_claim(owner="two"), Entry)


@pytest.mark.parametrize("state", ["once", "done", "failed"])
def test_what_stands_is_denied_until_it_has_stood_for_long(reader: Reader, state: str) -> None:
    token = reader.put(state)
    name = RecordState.HELD if state == "once" else RecordState(state)

    reader.now = RETAIN - 1
    denied = reader.plan_claim(owner="two", mode=Mode.ONCE)
    reader.now = RETAIN + 1

    assert denied == Denied("one", token, name, pytest.approx(1.0))
    assert reader.read() is None
    assert reader.claim(owner="two", mode=Mode.ONCE) > token


def test_of_two_who_find_a_record_over_one_is_granted_it(reader: Reader) -> None:
    reader.put("done")
    reader.now = RETAIN + 1
    plans = [reader.plan_claim(owner=owner) for owner in ("two", "three")]

    verdicts = [reader.write(plan).is_valid for plan in plans]

    assert verdicts == [True, False]


def test_who_knew_a_record_and_who_forgot_it_are_not_both_granted_it(reader: Reader) -> None:
    # A stamp apart: for the one it is just not forgotten, for the other it just is.
    token = reader.put("free")
    reader.now = RETAIN - 0.1
    knowing = reader.plan_claim(owner="two")
    reader.now = RETAIN + 0.1
    forgetful = reader.plan_claim(owner="three")

    verdicts = [reader.write(plan).is_valid for plan in (forgetful, knowing)]

    assert isinstance(knowing, Entry)
    assert isinstance(forgetful, Entry)
    assert (knowing.prev, forgetful.prev) == (Version(token, 1), NOTHING)
    assert verdicts == [True, False]


def test_a_clock_that_jumps_ahead_does_not_end_a_lease(reader: Reader) -> None:
    token = reader.claim()

    denied = reader.log.claim(
        "key", "two", ttl=TTL, mode=Mode.LEASE, now=1.0, at=BEGIN + 10 * RETAIN, id="id"
    )

    assert isinstance(denied, Denied)
    assert denied.token == token


def test_what_is_released_is_claimed_under_a_higher_token(reader: Reader) -> None:
    token = reader.put("free")

    assert reader.read() is None
    assert reader.plan_release(token) is False
    assert reader.claim(owner="two") > token


def test_what_is_granted_once_is_not_released(reader: Reader) -> None:
    assert reader.plan_release(reader.claim(mode=Mode.ONCE)) is False


def test_to_finish_again_needs_no_entry(reader: Reader) -> None:
    token = reader.put("done")

    assert reader.plan_finish(token) is True
    assert reader.plan_finish(token, owner="two") is False
    assert reader.plan_finish(token + 1) is False


# -- notes


def test_a_note_goes_with_the_key_to_who_follows(reader: Reader) -> None:
    token = reader.claim()
    reader.write(reader.plan_renew(token, note=b"note"))
    reader.write(reader.plan_release(token))

    plan = reader.plan_claim(owner="two")

    assert isinstance(plan, Entry)
    assert plan.note == b"note"
    assert reader.write(plan).note == b"note"


def test_a_note_is_said_again_before_the_log_loses_it(reader: Reader) -> None:
    token = reader.claim()
    reader.write(reader.plan_renew(token, note=b"note"))

    soon = reader.plan_renew(token)
    reader.now = 3600.0
    later = reader.plan_renew(token)

    assert isinstance(soon, Entry)
    assert isinstance(later, Entry)
    assert (soon.note, later.note) == (None, b"note")
    assert max_age_of(0.0) > 3600.0


# -- limits


def test_beyond_its_limit_what_ended_longest_ago_is_forgotten() -> None:
    reader = Reader(max_keys=3)
    leases = [reader.claim("lease-1"), reader.claim("lease-2")]

    for number in range(3):
        reader.claim(f"once-{number}", mode=Mode.ONCE)

    assert len(reader.log) == 3
    assert reader.log.dropped == 2
    assert [reader.log.last_token(f"lease-{number}") for number in (1, 2)] == leases
    assert [reader.log.last_token(f"once-{number}") > 0 for number in range(3)] == [False, False, True]


def test_beyond_its_limit_with_leases_alone_the_longest_silent_is_forgotten() -> None:
    reader = Reader(max_keys=2)

    for number in range(3):
        reader.claim(f"lease-{number}")

    held = [record.key for record in reader.log.leases(now=reader.now, at=reader.at)]
    assert held == ["lease-1", "lease-2"]


def test_the_leases_are_those_that_are_held(reader: Reader) -> None:
    for mode in Mode:
        reader.claim(f"key-{mode}", mode=mode)
    reader.put("free")

    held = [record.key for record in reader.log.leases(now=reader.now, at=reader.at)]
    over = reader.log.leases(now=reader.now + 2 * TTL, at=reader.at)

    assert held == ["key-lease"]
    assert over == []
