"""Elections at a real RabbitMQ: in streams, and without them."""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from celeriac.config import Settings
from celeriac.errors import AccessRefused, CallerError, ConnectionLost, ImproperlyConfigured
from celeriac.model.election import Denied, Granted, Level, Mode, RecordState
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RabbitServer
from celeriac.testing.rabbit import RabbitNode
from celeriac.transport.amqp_arbiter import AmqpArbiter
from celeriac.transport.amqp_stream import StreamArbiter
from celeriac.transport.amqp_stream_link import StreamBehind, StreamLink
from tests.arbiter_contract import LONG, SHORT, claimed, granted, outlast, some_key

PATIENCE = 60.0

NewArbiter = Callable[..., AmqpArbiter]


@pytest.fixture
def new_arbiter() -> Iterator[NewArbiter]:
    """A function that makes arbiters, which end with the test."""
    with ExitStack() as ends:

        def new(url: str, **options: object) -> AmqpArbiter:
            arbiter = AmqpArbiter(replace(Settings(broker_url=url), **options))  # type: ignore[arg-type]
            ends.callback(arbiter.close)
            return arbiter

        yield new


@pytest.fixture(scope="module")
def old_rabbit() -> Iterator[RabbitServer]:
    """A RabbitMQ without streams."""
    with RabbitServer(has_streams=False) as server:
        yield server


def is_granted(
    arbiter: AmqpArbiter, key: str, owner: str, *, mode: Mode = Mode.LEASE, ttl: float = LONG
) -> bool:
    return isinstance(arbiter.claim(key, owner, ttl=ttl, mode=mode), Granted)


def is_lost(call: Callable[[], object]) -> bool:
    """Say whether a call raises that the link is lost."""
    try:
        call()
    except ConnectionLost:
        return True
    return False


def is_answered(call: Callable[[], object]) -> bool:
    return not is_lost(call)


def is_written_down(server: RabbitServer) -> bool:
    """Say whether the server would know after a crash that it has streams: it notes the first one late."""
    notes = server.folder.glob("data/*/coordination/*/names.dets")
    return any(b"rabbit_stream_coordinator" in note.read_bytes() for note in notes)


# -- streams


def test_all_who_claim_at_once_get_tokens_of_their_own_and_all_readers_see_the_same(
    amqp_url: str, new_arbiter: NewArbiter
) -> None:
    arbiters = [new_arbiter(amqp_url) for _ in range(5)]
    keys = {number: [some_key() for _ in range(40)] for number in range(5)}

    def claim_all(number: int) -> list[int]:
        arbiter = arbiters[number]
        tokens = []
        for place, key in enumerate(keys[number]):
            mode = (Mode.ONCE, Mode.TAKEOVER, Mode.LEASE)[place % 3]
            decision = arbiter.claim(key, f"owner-{number}", ttl=LONG, mode=mode, timeout=PATIENCE)
            assert isinstance(decision, Granted)
            tokens.append(decision.token)
        return tokens

    with ThreadPoolExecutor(5) as pool:
        tokens = list(pool.map(claim_all, range(5)))

    everyone = [token for own in tokens for token in own]
    assert len(set(everyone)) == len(everyone) == 200
    assert all(own == sorted(own) for own in tokens)
    seen = [
        [reader.read(key) for own in keys.values() for key in own]
        for reader in [new_arbiter(amqp_url) for _ in range(4)]
    ]
    plain = [[record and record._replace(remaining=0.0) for record in records] for records in seen]
    assert plain[0] == plain[1] == plain[2] == plain[3]
    assert [record and record.token for record in seen[0]] == everyone


def test_a_stream_that_the_broker_has_not_yet_at_hand_is_asked_for_until_it_has(
    amqp_url: str, new_arbiter: NewArbiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    # RabbitMQ does so by itself, but only now and then, where many make a stream at once.
    follow, refusals = StreamLink.follow, iter(range(3))

    def be_late(link: StreamLink, name: str, **options: Any) -> None:
        if next(refusals, None) is not None:
            raise StreamBehind(f"no replica of {name}")
        follow(link, name, **options)

    monkeypatch.setattr(StreamLink, "follow", be_late)

    assert is_granted(new_arbiter(amqp_url), some_key(), "owner")
    assert next(refusals, None) is None


def test_what_was_granted_outlives_a_broker_that_is_killed(
    hurt_rabbit: RabbitServer, new_arbiter: NewArbiter
) -> None:
    holder, other = new_arbiter(hurt_rabbit.url), new_arbiter(hurt_rabbit.url)
    once, lease = some_key(), some_key()
    first = granted(holder, once, "owner", mode=Mode.ONCE)
    term = granted(holder, lease, "owner")
    assert holder.renew(lease, "owner", term.token, ttl=LONG, note=b"note")
    assert not is_granted(other, once, "other", mode=Mode.ONCE)

    assert wait_until(lambda: is_written_down(hurt_rabbit), patience=PATIENCE)
    hurt_rabbit.kill()
    with pytest.raises(ConnectionLost):
        holder.renew(lease, "owner", term.token, ttl=LONG)
    hurt_rabbit.start()

    assert wait_until(lambda: is_answered(lambda: other.read(once)), patience=PATIENCE)
    assert wait_until(lambda: is_answered(lambda: holder.read(once)), patience=PATIENCE)
    assert granted(holder, once, "owner", mode=Mode.ONCE) == first
    assert not is_granted(other, once, "other", mode=Mode.ONCE)
    assert holder.renew(lease, "owner", term.token, ttl=LONG)
    record = other.read(lease)
    assert record is not None
    assert (record.token, record.note) == (term.token, b"note")
    assert granted(other, some_key(), "other").token > term.token


def test_a_link_that_was_closed_is_made_anew_within_a_call(
    rabbit_server: RabbitNode, amqp_url: str, new_arbiter: NewArbiter
) -> None:
    arbiter, key = new_arbiter(amqp_url), some_key()
    first = granted(arbiter, key, "owner")

    rabbit_server.close_connections()

    assert arbiter.renew(key, "owner", first.token, ttl=LONG)


def test_who_was_cut_off_does_not_count_that_as_silence(amqp_url: str, new_arbiter: NewArbiter) -> None:
    challenger, witness, key = new_arbiter(amqp_url), new_arbiter(amqp_url), some_key()
    holder = new_arbiter(amqp_url)
    granted(holder, key, "owner", ttl=SHORT)
    assert not is_granted(challenger, key, "other")

    # For longer than the lease the challenger hears nothing; then it has a new link.
    challenger.close()
    outlast(holder, witness)
    denied = challenger.claim(key, "other", ttl=LONG, mode=Mode.LEASE)

    assert isinstance(denied, Denied)
    assert denied.remaining > 0
    assert claimed(challenger, key, "other").token > denied.token


def test_a_renewal_that_a_challenger_has_not_read_is_heeded(amqp_url: str, new_arbiter: NewArbiter) -> None:
    holder, witness, key = new_arbiter(amqp_url), new_arbiter(amqp_url), some_key()
    challenger = StreamArbiter(Settings(broker_url=amqp_url))
    token = granted(holder, key, "owner", ttl=SHORT).token
    assert isinstance(challenger.claim(key, "other", ttl=LONG, mode=Mode.LEASE), Denied)

    # The challenger asks nothing meanwhile, so that it does not read either.
    assert holder.renew(key, "owner", token, ttl=LONG)
    outlast(holder, witness)
    decision = challenger.claim(key, "other", ttl=LONG, mode=Mode.LEASE)
    challenger.close()

    assert isinstance(decision, Denied)
    assert decision.owner == "owner"


def test_what_is_no_entry_harms_nobody(amqp_url: str, new_arbiter: NewArbiter) -> None:
    arbiter, other, key = new_arbiter(amqp_url), new_arbiter(amqp_url), some_key()
    token = granted(arbiter, key, "owner").token
    settings = Settings(broker_url=amqp_url)

    with StreamLink(settings, timeout=PATIENCE) as link:
        for body in (b"", b"garbage", b'{"v": 1, "kind": "release"}', b"x" * 1_000_000):
            for name in ("celeriac.leases", "celeriac.decisions"):
                link.write(name, body)
        assert link.unconfirmed(PATIENCE) == 0

    assert wait_until(lambda: is_answered(lambda: other.read(key)), patience=PATIENCE)
    assert not is_granted(other, key, "other")
    assert arbiter.renew(key, "owner", token, ttl=LONG)
    assert is_granted(other, some_key(), "other", mode=Mode.ONCE)


def test_a_stream_that_was_deleted_is_made_and_read_anew(amqp_url: str, new_arbiter: NewArbiter) -> None:
    arbiter, key = new_arbiter(amqp_url), some_key()
    tokens = [granted(arbiter, some_key(), "owner", mode=Mode.ONCE).token for _ in range(5)]

    with StreamLink(Settings(broker_url=amqp_url), timeout=PATIENCE) as link:
        for name in ("celeriac.leases", "celeriac.decisions"):
            link.delete_queue(name)

    def claim_again() -> bool:
        decision = arbiter.claim(key, "owner", ttl=LONG, mode=Mode.LEASE, floor=tokens[-1], timeout=1.0)
        return isinstance(decision, Granted) and decision.token > tokens[-1]

    assert wait_until(lambda: is_answered(claim_again), patience=PATIENCE)
    assert claim_again()


def test_nodes_that_keep_records_for_another_time_are_refused(amqp_url: str, new_arbiter: NewArbiter) -> None:
    new_arbiter(amqp_url).look()
    other = new_arbiter(amqp_url, election_retain=3600.0)

    with pytest.raises(AccessRefused, match="use the same election_retain on all nodes"):
        other.look()


def test_a_lease_that_would_be_forgotten_is_refused(amqp_url: str, new_arbiter: NewArbiter) -> None:
    arbiter = new_arbiter(amqp_url)

    with pytest.raises(CallerError, match="give up to 21,600"):
        arbiter.claim(some_key(), "owner", ttl=86_400.0, mode=Mode.LEASE)


@pytest.mark.parametrize(("nodes", "level"), [(1, Level.L2), (3, Level.L3)])
def test_the_level_is_that_of_the_cluster(
    amqp_url: str, new_arbiter: NewArbiter, nodes: int, level: Level
) -> None:
    arbiter = new_arbiter(amqp_url, election_broker_nodes=nodes)
    before = arbiter.level, arbiter.reason

    looked = arbiter.look()

    assert before == (Level.L1, "RabbitMQ was not checked for streams yet")
    assert looked is arbiter.level is level
    assert "streams of RabbitMQ" in arbiter.reason


def test_another_broker_decides_where_one_is_named(amqp_url: str, new_arbiter: NewArbiter) -> None:
    key = some_key()
    options = {"visibility_timeout": 60}

    arbiter = new_arbiter("redis://127.0.0.1:1/0", election_url=amqp_url, broker_transport_options=options)
    first = granted(arbiter, key, "owner", mode=Mode.ONCE)

    assert granted(new_arbiter(amqp_url), key, "owner", mode=Mode.ONCE) == first


def test_a_broker_that_is_not_there_is_no_reason_to_decide_otherwise(
    new_arbiter: NewArbiter, caplog: pytest.LogCaptureFixture
) -> None:
    arbiter = new_arbiter("amqp://guest:guest@127.0.0.1:1//")

    with pytest.raises(ConnectionLost, match="lost the arbiter"):
        arbiter.claim(some_key(), "owner", ttl=LONG, mode=Mode.ONCE)

    assert caplog.records == []
    assert arbiter.level is Level.L1


# -- without streams


def test_without_streams_one_holds_a_key_and_the_operator_is_told_once(
    old_rabbit: RabbitServer, new_arbiter: NewArbiter, caplog: pytest.LogCaptureFixture
) -> None:
    arbiter, other, key = new_arbiter(old_rabbit.url), new_arbiter(old_rabbit.url), some_key()

    with caplog.at_level(logging.WARNING, "celeriac"):
        decisions = [arbiter.claim(key, "owner", ttl=LONG, mode=Mode.LEASE) for _ in range(2)]
        level = arbiter.look()
        (told,) = caplog.messages
    denied = other.claim(key, "other", ttl=LONG, mode=Mode.LEASE)
    own = arbiter.claim(key, "another", ttl=LONG, mode=Mode.LEASE)

    assert decisions == [Granted(0), Granted(0)]
    assert denied == Denied("", 0, RecordState.HELD, LONG)
    assert own == Denied("owner", 0, RecordState.HELD, LONG)
    assert level is Level.L1
    assert "can elect two winners" in arbiter.reason
    assert "has no streams" in told


@pytest.mark.parametrize("mode", [Mode.LEASE, Mode.TAKEOVER])
def test_without_streams_a_key_is_free_once_it_is_released(
    old_rabbit: RabbitServer, new_arbiter: NewArbiter, mode: Mode
) -> None:
    arbiter, other, key = new_arbiter(old_rabbit.url), new_arbiter(old_rabbit.url), some_key()
    assert is_granted(arbiter, key, "owner", mode=mode)

    wrong = [arbiter.release(key, "other", 0), arbiter.release(key, "owner", 1)]
    released = [arbiter.release(key, "owner", 0) for _ in range(2)]

    assert wrong == [False, False]
    assert released == [True, False]
    assert is_granted(other, key, "other", mode=mode)


@pytest.mark.parametrize("mode", list(Mode))
def test_without_streams_nobody_is_granted_what_is_done(
    old_rabbit: RabbitServer, new_arbiter: NewArbiter, mode: Mode
) -> None:
    arbiter, other, key = new_arbiter(old_rabbit.url), new_arbiter(old_rabbit.url), some_key()
    assert is_granted(arbiter, key, "owner", mode=mode)

    finished = arbiter.finish(key, "owner", 0)
    arbiter.close()
    denied = other.claim(key, "other", ttl=LONG, mode=mode)

    assert finished
    assert isinstance(denied, Denied)
    assert denied.state is RecordState.DONE
    record = other.read(key)
    assert record is not None
    assert record.state is RecordState.DONE


def test_without_streams_what_was_granted_once_outlives_its_owner(
    old_rabbit: RabbitServer, new_arbiter: NewArbiter
) -> None:
    arbiter, other, key = new_arbiter(old_rabbit.url), new_arbiter(old_rabbit.url), some_key()
    assert is_granted(arbiter, key, "owner", mode=Mode.ONCE)

    arbiter.close()

    assert not arbiter.release(key, "owner", 0)
    assert not is_granted(other, key, "other", mode=Mode.ONCE)


def test_without_streams_a_lease_ends_with_its_link(
    old_rabbit: RabbitServer, new_arbiter: NewArbiter
) -> None:
    arbiter, other, key = new_arbiter(old_rabbit.url), new_arbiter(old_rabbit.url), some_key()
    assert is_granted(arbiter, key, "owner")
    assert arbiter.renew(key, "owner", 0, ttl=LONG)
    assert [record.key for record in arbiter.leases()] == [key]
    assert not is_granted(other, key, "other")

    old_rabbit.close_connections()

    def is_free() -> bool:
        try:
            return is_granted(other, key, "other")
        except ConnectionLost:
            return False

    assert wait_until(is_free, patience=PATIENCE)
    assert wait_until(lambda: is_answered(arbiter.look), patience=PATIENCE)
    assert not arbiter.renew(key, "owner", 0, ttl=LONG)


def test_without_streams_there_are_no_notes(old_rabbit: RabbitServer, new_arbiter: NewArbiter) -> None:
    arbiter, key = new_arbiter(old_rabbit.url), some_key()
    assert is_granted(arbiter, key, "owner")

    with pytest.raises(ImproperlyConfigured, match="election_url"):
        arbiter.renew(key, "owner", 0, ttl=LONG, note=b"note")

    assert arbiter.renew(key, "owner", 0, ttl=LONG)


def test_a_long_key_of_any_script_is_held_without_streams(
    old_rabbit: RabbitServer, new_arbiter: NewArbiter
) -> None:
    arbiter, other, key = new_arbiter(old_rabbit.url), new_arbiter(old_rabbit.url), "🌳" * 200

    assert is_granted(arbiter, key, "owner")

    assert not is_granted(other, key, "other")
    assert is_granted(other, "🌳" * 199, "other")


def test_streams_are_used_once_they_are_there(old_rabbit: RabbitServer, new_arbiter: NewArbiter) -> None:
    # The last of the file: afterwards the server has streams.
    arbiter = new_arbiter(old_rabbit.url)
    before = arbiter.look()

    old_rabbit.ctl("enable_feature_flag", "stream_queue")
    old_rabbit.close_connections()
    after = wait_until(lambda: is_answered(arbiter.look) and arbiter.level is Level.L2, patience=PATIENCE)

    assert before is Level.L1
    assert after
