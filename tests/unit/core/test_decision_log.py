"""How each entry of a log of decisions is judged in each state of a key."""

import pytest

from celeriac.core.decision_log import DecisionLog
from celeriac.model.decision import NOTHING, Entry, EntryKind, Verdict, Version
from celeriac.model.election import Mode, RecordState
from tests.unit.core.decision_reader import BEGIN, RETAIN, TTL, Reader


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


def test_a_holder_whose_clock_is_set_ahead_by_less_than_what_is_kept_renews_its_lease() -> None:
    reader = Reader()
    token = reader.claim()

    plans = []
    for ahead in (RETAIN - 1.0, RETAIN + 1.0):
        reader.now = ahead
        plans.append(reader.plan_renew(token))

    assert isinstance(plans[0], Entry)
    assert plans[1] is False


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
