"""What a node plans by what it has read of a log of decisions."""

import pytest

from celeriac.core.decision_log import max_age_of, silence_of
from celeriac.model.decision import NOTHING, Entry, EntryKind, Version
from celeriac.model.election import Denied, Mode, RecordState
from tests.unit.core.decision_reader import BEGIN, RETAIN, TTL, Reader


@pytest.fixture
def reader() -> Reader:
    return Reader()


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

    assert isinstance(early, Denied)
    assert early[:3] == ("one", token, RecordState.HELD)
    assert early.remaining == pytest.approx(0.01)
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

    assert isinstance(denied, Denied)
    assert denied[:3] == ("one", token, RecordState.HELD)
    assert denied.remaining == pytest.approx(silence_of(TTL))
    reader.now += silence_of(TTL) + 0.01
    assert isinstance(reader.plan_claim(owner="two"), Entry)


@pytest.mark.parametrize("state", ["once", "done", "failed"])
def test_what_stands_is_denied_until_it_has_stood_for_long(reader: Reader, state: str) -> None:
    token = reader.put(state)
    name = RecordState.HELD if state == "once" else RecordState(state)

    reader.now = RETAIN - 1
    denied = reader.plan_claim(owner="two", mode=Mode.ONCE)
    reader.now = RETAIN + 1

    assert isinstance(denied, Denied)
    assert denied[:3] == ("one", token, name)
    assert denied.remaining == pytest.approx(1.0)
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
