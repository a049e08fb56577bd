"""Elections decided by a real Redis: by the rules of the register, over restarts, as far as it promises."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from celeriac.config import Settings
from celeriac.core.register import Register
from celeriac.errors import AccessRefused, CallerError, ConnectionLost, ImproperlyConfigured
from celeriac.model.election import Decision, Granted, Level, Mode, Record
from celeriac.programs.port import LOOPBACK, ReservedPort
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer, ValkeyServer
from celeriac.transport import redis_arbiter
from celeriac.transport.redis_arbiter import RedisArbiter
from celeriac.transport.redis_arbiter_script import MAX_LEASES
from celeriac.transport.redis_link import RedisLink
from celeriac.transport.redis_script import Script
from tests.arbiter_contract import LONG, claimed, granted, some_key
from tests.interop.test_redis_sentinel import Sentinel
from tests.links import PATIENCE, frozen
from tests.property.test_planted_bugs import UNTIL_FOUND

ALWAYS = {"appendonly": "yes", "appendfsync": "always"}
PASSWORD = "open-sesame"  # noqa: S105 - of a server that lives as long as its test
#: The keys of Redis for a key of an election.
RECORD, NOTE, EPOCH, INDEX = (f"{{celeriac}}:{name}" for name in ("el:key", "note:key", "epoch", "leases"))

NewArbiter = Callable[..., RedisArbiter]


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    """What is entered here is closed at the end of the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def new_arbiter(ends: ExitStack) -> NewArbiter:
    def new(url: str, **settings: Any) -> RedisArbiter:
        arbiter = RedisArbiter(Settings(broker_url=url, **settings))
        ends.callback(arbiter.close)
        return arbiter

    return new


@pytest.fixture
def arbiter(redis_url: str, new_arbiter: NewArbiter) -> RedisArbiter:
    return new_arbiter(redis_url)


@pytest.fixture
def client(redis_url: str, ends: ExitStack) -> redis.Redis:
    client: redis.Redis = ends.enter_context(redis.Redis.from_url(redis_url))
    return client


# -- the rules are those of the register

KEYS = ("alpha", "beta")
OWNERS = ("one", "two")
TTL, RETAIN = 1000.0, 100_000.0
#: Half of the time of a lease, a lease, and what is kept.
PAUSES = (TTL / 2, TTL * 2, RETAIN * 2)


class Step(NamedTuple):
    """Something that is asked of both."""

    verb: str
    key: str
    owner: str
    mode: Mode
    #: What is not right in what is said of the last grant of the key.
    mistake: str
    #: How far a floor is ahead of the highest token.
    ahead: int
    note: bytes | None
    pause: float


steps = st.builds(
    Step,
    st.sampled_from(("claim", "claim", "renew", "finish", "fail", "release", "pause")),
    st.sampled_from(KEYS),
    st.sampled_from(OWNERS),
    st.sampled_from(Mode),
    st.sampled_from(("", "", "", "owner", "token")),
    st.integers(0, 2),
    st.sampled_from((None, b"", b"note \x00\xff")),
    st.sampled_from(PAUSES),
)


class Pair:
    """A register and a Redis that are asked the same; tokens are compared by their order."""

    def __init__(self, arbiter: RedisArbiter, client: redis.Redis) -> None:
        self.arbiter = arbiter
        self.client = client
        self.register = Register(retain=RETAIN)
        self.now = 0.0
        #: Those of the register and those of Redis, from the first grant on.
        self.tokens: list[tuple[int, int]] = [(0, 0)]
        #: By key, who was granted it last, and those two.
        self.last: dict[str, tuple[str, int, int]] = {}

    def ordinal(self, token: int, *, is_ours: bool) -> int:
        return [pair[0 if is_ours else 1] for pair in self.tokens].index(token)

    def take(self, step: Step) -> None:
        """Ask both, and see that they agree."""
        match step.verb:
            case "pause":
                self.pause(step.pause)
            case "claim":
                self.claim(step)
            case _:
                owner, ours, theirs = self.last.get(step.key, (step.owner, 0, 0))
                if step.mistake == "owner":
                    owner = OWNERS[OWNERS.index(owner) - 1]
                if step.mistake == "token":
                    ours, theirs = self.tokens[0]
                said = step._replace(owner=owner)
                assert self.change(said, ours) is self.change_there(said, theirs), step
        for key in KEYS:
            assert self.seen(self.arbiter.read(key), is_ours=False) == self.seen(
                self.register.read(key, self.now), is_ours=True
            )
        held = [each for each in self.register.records(self.now) if each[3:5] == ("lease", "held")]
        listed = sorted(str(self.seen(each, is_ours=False)) for each in self.arbiter.leases())
        assert listed == sorted(str(self.seen(each, is_ours=True)) for each in held)

    def claim(self, step: Step) -> None:
        floor, floor_there = (token + step.ahead for token in self.tokens[-1])
        theirs = self.arbiter.claim(step.key, step.owner, ttl=TTL, mode=step.mode, floor=floor_there)
        ours = self.register.claim(step.key, step.owner, ttl=TTL, mode=step.mode, now=self.now, floor=floor)
        if isinstance(ours, Granted) and isinstance(theirs, Granted) and ours.token > floor:
            assert theirs.token > floor_there
            self.tokens.append((ours.token, theirs.token))
            self.last[step.key] = (step.owner, ours.token, theirs.token)
        assert self.told(ours, is_ours=True) == self.told(theirs, is_ours=False)

    def told(self, decision: Decision, *, is_ours: bool) -> object:
        ordinal = self.ordinal(decision.token, is_ours=is_ours)
        if isinstance(decision, Granted):
            return (ordinal, decision.note)
        # What is left is compared by hundreds of seconds: the clock of the server goes on.
        return (ordinal, decision.owner, decision.state, round(decision.remaining / 100))

    def seen(self, record: Record | None, *, is_ours: bool) -> object:
        if record is None:
            return None
        return record._replace(
            token=self.ordinal(record.token, is_ours=is_ours),
            since=0.0,
            remaining=float(round(record.remaining / 100)),
        )

    def change(self, step: Step, token: int) -> bool:
        register, key, owner, now = self.register, step.key, step.owner, self.now
        match step.verb:
            case "renew":
                return register.renew(key, owner, token, ttl=TTL, now=now, note=step.note)
            case "release":
                return register.release(key, owner, token, now=now)
            case _:
                return register.finish(key, owner, token, now=now, is_failed=step.verb == "fail")

    def change_there(self, step: Step, token: int) -> bool:
        arbiter, key, owner = self.arbiter, step.key, step.owner
        match step.verb:
            case "renew":
                return arbiter.renew(key, owner, token, ttl=TTL, note=step.note)
            case "release":
                return arbiter.release(key, owner, token)
            case _:
                return arbiter.finish(key, owner, token, is_failed=step.verb == "fail")

    def pause(self, seconds: float) -> None:
        """Let time pass: at the server each record loses so much of what it had left."""
        self.now += seconds
        for name in self.client.keys("{celeriac}:el:*"):
            left = int(self.client.pttl(name))
            self.client.pexpire(name, left - int(seconds * 1000))


def take_all(pair: Callable[[], Pair], taken: list[Step]) -> None:
    both = pair()
    for step in taken:
        both.take(step)


# Not few: what goes wrong takes a grant, something that is done with it, and somebody who sees it.
histories = st.lists(steps, min_size=12, max_size=30)
law = given(histories)(take_all)
search = settings(UNTIL_FOUND)(given(histories)(take_all))


@pytest.fixture
def pair(redis_url: str, client: redis.Redis, new_arbiter: NewArbiter) -> Callable[[], Pair]:
    """A register and a Redis that know nothing yet."""
    arbiter = new_arbiter(redis_url, election_retain=RETAIN)

    def fresh() -> Pair:
        client.flushdb()
        return Pair(arbiter, client)

    return fresh


def test_redis_decides_as_the_register_does(pair: Callable[[], Pair]) -> None:
    law(pair)


@pytest.mark.parametrize(
    ("script", "right", "wrong"),
    [
        ("CLAIM", "mode == 'once' and retain or lease", "lease"),
        ("CLAIM", "keep(mode, name, tonumber(", "local _ = record or keep(mode, name, tonumber("),
        ("CLAIM", " or record.state ~= 'held'", ""),
        ("CLAIM", "math.max(tonumber(epoch) + 1, tonumber(floor) + 1, clock)", "tonumber(epoch) + 1"),
        ("CLAIM", "token, mode = record.token, record.mode", "token = record.token"),
        ("CLAIM", "redis.call('ZADD'", "redis.call('ZCARD', index_key) --"),
        ("RENEW", "record.mode == 'once' and retain or lease", "lease"),
        ("RENEW", "redis.call('DEL', note_key)", ""),
        ("FINISH", "redis.call('PEXPIRE', record_key, retain)", ""),
        ("RELEASE", " or record.mode == 'once'", ""),
        ("RELEASE", "not is_held(owner, token)", "not record or record.state ~= 'held'"),
    ],
)
def test_a_bug_that_is_planted_in_a_script_is_found(
    pair: Callable[[], Pair], script: str, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text: str = getattr(redis_arbiter, script).text
    assert right in text
    monkeypatch.setattr(redis_arbiter, script, Script(text.replace(right, wrong)))

    with pytest.raises((AssertionError, ValueError)):
        search(pair)


# -- keys


def test_the_keys_are_those_of_the_namespace_and_what_ends_by_itself_is_the_record(
    arbiter: RedisArbiter, client: redis.Redis
) -> None:
    token = granted(arbiter, "key", "owner").token
    arbiter.renew("key", "owner", token, ttl=LONG, note=b"note")

    left = {name: client.pttl(name) for name in (RECORD, NOTE, EPOCH, INDEX)}

    assert len(client.keys("*")) == len(left)
    assert 0 < left.pop(RECORD) <= LONG * 1000
    assert set(left.values()) == {-1}
    assert client.get(EPOCH) == str(token).encode()


def test_namespaces_and_prefixes_elect_for_themselves(redis_url: str, new_arbiter: NewArbiter) -> None:
    arbiters = [
        new_arbiter(redis_url),
        new_arbiter(redis_url, election_namespace="shop"),
        new_arbiter(redis_url, broker_transport_options={"global_keyprefix": "blue-"}),
        new_arbiter("memory://", election_url=f"{redis_url}?global_keyprefix=green-&socket_timeout=7"),
    ]

    for number, arbiter in enumerate(arbiters):
        granted(arbiter, "key", f"owner-{number}")

    with redis.Redis.from_url(redis_url) as client:
        records = sorted(name.decode() for name in client.keys("*:el:*"))
    assert records == [
        "blue-{celeriac}:el:key",
        "green-{celeriac}:el:key",
        "{celeriac}:el:key",
        "{shop}:el:key",
    ]
    assert [[record.owner for record in each.leases()] for each in arbiters] == [
        [f"owner-{number}"] for number in range(4)
    ]


def test_the_list_of_leases_has_an_end_and_leases_beyond_it_stay_valid(
    arbiter: RedisArbiter, client: redis.Redis
) -> None:
    first = granted(arbiter, "key", "owner", ttl=LONG)
    client.zadd(INDEX, {f"other-{number}": 9e15 + number for number in range(MAX_LEASES - 1)})

    granted(arbiter, "later", "owner", ttl=LONG * 2)

    assert client.zcard(INDEX) == MAX_LEASES
    assert [record.key for record in arbiter.leases()] == ["later"]
    assert granted(arbiter, "key", "owner", ttl=LONG) == first


def test_leases_that_are_over_leave_the_list(arbiter: RedisArbiter, client: redis.Redis) -> None:
    client.zadd(INDEX, {f"over-{number}": 1000 + number for number in range(10)})

    granted(arbiter, "key", "owner")

    assert client.zrange(INDEX, 0, -1) == [b"key"]


# -- what is no record


@pytest.mark.parametrize(
    "change",
    [
        {"owner": None},
        {"token": "many"},
        {"token": "-7"},
        {"token": "7" * 17},
        {"token": None},
        {"mode": "always"},
        {"state": "HELD"},
        {"ttl": "0x10"},
        {"since": ""},
    ],
    ids=str,
)
def test_a_record_that_nobody_of_us_wrote_grants_nothing_and_is_named(
    arbiter: RedisArbiter, client: redis.Redis, change: dict[str, str | None]
) -> None:
    token = granted(arbiter, "key", "owner").token
    for name, value in change.items():
        if value is None:
            client.hdel(RECORD, name)
        else:
            client.hset(RECORD, name, value)
    before = client.hgetall(RECORD)

    for call in (
        lambda: arbiter.claim("key", "owner", ttl=LONG, mode=Mode.LEASE),
        lambda: arbiter.claim("key", "other", ttl=LONG, mode=Mode.LEASE),
        lambda: arbiter.renew("key", "owner", token, ttl=LONG, note=b"note"),
        lambda: arbiter.finish("key", "owner", token),
        lambda: arbiter.release("key", "owner", token),
        lambda: arbiter.read("key"),
        arbiter.leases,
    ):
        with pytest.raises(AccessRefused, match=r"'{celeriac}:el:key' .* delete it"):
            call()

    assert client.hgetall(RECORD) == before
    assert client.get(EPOCH) == str(token).encode()


def test_a_record_without_an_end_is_none_of_ours(arbiter: RedisArbiter, client: redis.Redis) -> None:
    granted(arbiter, "key", "owner")
    client.persist(RECORD)

    with pytest.raises(AccessRefused, match="is not an election record"):
        arbiter.claim("key", "owner", ttl=LONG, mode=Mode.LEASE)


@pytest.mark.parametrize("name", [RECORD, NOTE, EPOCH, INDEX])
def test_a_key_of_another_kind_grants_nothing_and_is_named(
    arbiter: RedisArbiter, client: redis.Redis, name: str
) -> None:
    client.rpush(name, "rubbish")

    with pytest.raises(AccessRefused, match=name):
        arbiter.claim("key", "owner", ttl=LONG, mode=Mode.LEASE)

    assert client.keys("*") == [name.encode()]


@pytest.mark.parametrize("epoch", ["many", "1.5", "", "9007199254740991", "9" * 30])
def test_a_last_token_that_cannot_be_grants_nothing(
    arbiter: RedisArbiter, client: redis.Redis, epoch: str
) -> None:
    client.set(EPOCH, epoch)

    with pytest.raises(AccessRefused, match=EPOCH):
        arbiter.claim("key", "owner", ttl=LONG, mode=Mode.LEASE)

    assert arbiter.read("key") is None


def test_a_floor_that_no_clock_explains_uses_up_no_tokens(arbiter: RedisArbiter, client: redis.Redis) -> None:
    first = granted(arbiter, some_key(), "owner").token

    with pytest.raises(AccessRefused, match="find the source of that token"):
        arbiter.claim("key", "owner", ttl=LONG, mode=Mode.LEASE, floor=2**63 - 1)
    with pytest.raises(CallerError, match="invalid floor"):
        arbiter.claim("key", "owner", ttl=LONG, mode=Mode.LEASE, floor=-1)

    assert client.get(EPOCH) == str(first).encode()
    assert granted(arbiter, "key", "owner").token < first + 366 * 24 * 3600 * 1_000_000


# -- restarts


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_restart_of_a_redis_that_writes_at_once_forgets_nothing(
    is_killed: bool, new_arbiter: NewArbiter
) -> None:
    with RedisServer(ALWAYS) as server:
        arbiter = new_arbiter(server.url)
        keys = [some_key() for _ in range(20)]
        tokens = [granted(arbiter, key, f"owner of {key}", mode=Mode.ONCE).token for key in keys]
        lease = granted(arbiter, "lease", "owner")
        assert arbiter.renew("lease", "owner", lease.token, ttl=LONG, note=b"note")

        if is_killed:
            server.kill()
            server.start()
        else:
            server.restart()

        again = [granted(arbiter, key, f"owner of {key}", mode=Mode.ONCE).token for key in keys]
        denied = arbiter.claim(keys[0], "other", ttl=LONG, mode=Mode.ONCE)
        assert again == tokens
        assert denied[:2] == (f"owner of {keys[0]}", tokens[0])
        assert [(each.owner, each.token, each.note) for each in arbiter.leases()] == [
            ("owner", lease.token, b"note")
        ]
        assert granted(arbiter, some_key(), "owner").token > lease.token


def test_tokens_rise_though_a_restart_forgets_everything(
    own_redis: RedisServer, new_arbiter: NewArbiter
) -> None:
    arbiter = new_arbiter(own_redis.url)
    before = [granted(arbiter, some_key(), "owner").token for _ in range(10)]
    # Ahead of the clock, as after a clock that was set back.
    ahead = granted(arbiter, some_key(), "owner", floor=before[-1] + 3600 * 1_000_000).token

    own_redis.restart()

    after = granted(arbiter, some_key(), "owner").token
    told = granted(arbiter, some_key(), "owner", floor=ahead).token
    assert before[-1] < after
    assert ahead < told


def test_a_claim_whose_answer_was_lost_is_answered_with_the_same_token(
    arbiter: RedisArbiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted(arbiter, some_key(), "owner")
    exchange = RedisLink.exchange
    lost: list[Any] = []

    def lose(link: RedisLink, commands: Any, *, timeout: float) -> list[Any]:
        answers = exchange(link, commands, timeout=timeout)
        if commands[0][0] == "EVAL" and not lost:
            lost.extend(answers)
            raise ConnectionLost("on purpose")
        return answers

    monkeypatch.setattr(RedisLink, "exchange", lose)

    token = granted(arbiter, "key", "owner", mode=Mode.ONCE).token

    assert int(lost[0][1]) == token


# -- a server that cannot be reached


def test_a_server_that_hangs_holds_nobody_for_longer_than_the_time_given(
    own_redis: RedisServer, new_arbiter: NewArbiter
) -> None:
    arbiter, fresh = new_arbiter(own_redis.url), new_arbiter(own_redis.url)
    first = granted(arbiter, "key", "owner")

    with frozen(own_redis):
        for asked in (arbiter, fresh):
            with pytest.raises(ConnectionLost, match="the arbiter at redis://"):
                asked.claim("key", "owner", ttl=LONG, mode=Mode.LEASE, timeout=0.2)
            with pytest.raises(ConnectionLost):
                asked.renew("key", "owner", first.token, ttl=LONG, timeout=0.2)
            with pytest.raises(ConnectionLost):
                asked.finish("key", "other", first.token, timeout=0.2)
            with pytest.raises(ConnectionLost):
                asked.release("key", "other", first.token, timeout=0.2)
        with pytest.raises(ConnectionLost):
            fresh.read("key")

    assert granted(arbiter, "key", "owner") == first
    assert granted(fresh, "key", "owner") == first


def test_a_server_that_is_away_is_used_as_soon_as_it_is_back(
    own_redis: RedisServer, new_arbiter: NewArbiter
) -> None:
    arbiter = new_arbiter(own_redis.url)
    first = granted(arbiter, "key", "owner").token

    own_redis.kill()
    with pytest.raises(ConnectionLost, match="lost the arbiter"):
        arbiter.renew("key", "owner", first, ttl=LONG)
    own_redis.start()

    assert not arbiter.renew("key", "owner", first, ttl=LONG)
    assert granted(arbiter, "key", "owner").token > first


def test_a_server_that_is_not_there_is_told_at_once_and_without_the_password(new_arbiter: NewArbiter) -> None:
    port = ReservedPort()
    arbiter = new_arbiter("memory://", election_url=f"redis://user:{PASSWORD}@{LOOPBACK}:{port.number}/0")

    with pytest.raises(ConnectionLost, match="refused") as caught:
        arbiter.look()

    port.release()
    assert PASSWORD not in str(caught.value)
    assert (arbiter.level, arbiter.reason) == (Level.L1, "the settings of Redis were not checked yet")


def test_a_broker_that_is_no_redis_is_a_mistake_in_the_settings() -> None:
    with pytest.raises(ImproperlyConfigured, match="is not a Redis URL"):
        RedisArbiter(Settings(broker_url="amqp://web1//"))


# -- how far it can be trusted

SAVES = {"save": "3600 1"}
CONFIGURATIONS: list[tuple[dict[str, str], Level, str]] = [
    ({}, Level.L1, "stores nothing on disk"),
    (SAVES, Level.L2, "writes periodic snapshots"),
    ({"appendonly": "yes", "appendfsync": "everysec"}, Level.L2, "set appendfsync to always"),
    ({"appendonly": "yes", "appendfsync": "no"}, Level.L2, "set appendfsync to always"),
    (ALWAYS, Level.L3, "before it answers"),
    (ALWAYS | {"no-appendfsync-on-rewrite": "yes"}, Level.L2, "set no-appendfsync-on-rewrite to no"),
    (ALWAYS | {"maxmemory": "100mb", "maxmemory-policy": "volatile-lru"}, Level.L1, "may evict grants"),
    (ALWAYS | {"maxmemory": "100mb", "maxmemory-policy": "noeviction"}, Level.L3, "before it answers"),
    (ALWAYS | {"cluster-enabled": "yes", "databases": "1"}, Level.L1, "Redis Cluster"),
]


@pytest.mark.parametrize(("settings", "level", "reason"), CONFIGURATIONS)
def test_the_level_is_as_redis_is_set_up(
    settings: dict[str, str], level: Level, reason: str, new_arbiter: NewArbiter
) -> None:
    with RedisServer(settings) as server:
        arbiter = new_arbiter(server.url)

        assert arbiter.look() is level

        assert reason in arbiter.reason


def test_valkey_is_looked_at_and_decides_as_redis_does(new_arbiter: NewArbiter) -> None:
    with ValkeyServer(ALWAYS) as server:
        arbiter = new_arbiter(server.url)

        first = granted(arbiter, "key", "owner", mode=Mode.ONCE)

        assert arbiter.level is Level.L3
        assert granted(arbiter, "key", "owner", mode=Mode.ONCE) == first


def test_the_level_is_known_before_the_first_answer_and_looked_at_again_after_a_reconnect(
    new_arbiter: NewArbiter,
) -> None:
    with RedisServer(ALWAYS) as server:
        arbiter = new_arbiter(server.url)
        granted(arbiter, "key", "owner")
        first = arbiter.level
        server.configure("appendfsync", "everysec")
        granted(arbiter, "key", "owner")
        same = arbiter.level

        server.restart()

        granted(arbiter, "key", "owner")
        assert (first, same, arbiter.level) == (Level.L3, Level.L3, Level.L2)


def test_with_replicas_a_grant_can_vanish(new_arbiter: NewArbiter) -> None:
    options = {"shutdown-timeout": "0"}
    with (
        RedisServer(ALWAYS | options) as master,
        RedisServer(ALWAYS | options | {"replicaof": f"{LOOPBACK} {master.port}"}) as replica,
    ):
        arbiter, other = new_arbiter(master.url), new_arbiter(replica.url)

        assert wait_until(lambda: arbiter.look() is Level.L1, patience=PATIENCE)
        assert other.look() is Level.L1

        assert "has replicas" in arbiter.reason
        assert "is a replica" in other.reason
        with pytest.raises(ConnectionLost, match="READONLY"):
            other.claim("key", "owner", ttl=LONG, mode=Mode.LEASE)


@pytest.mark.parametrize("way", ["broker", "election_url"])
def test_through_sentinel_a_grant_can_vanish(
    way: str, own_redis: RedisServer, new_arbiter: NewArbiter
) -> None:
    # Of its own: through Sentinel it is the first database, in which another test may have left anything.
    with Sentinel(own_redis) as sentinel:
        if way == "broker":
            arbiter = new_arbiter(sentinel.url, broker_transport_options={"master_name": "cluster"})
        else:
            arbiter = new_arbiter("memory://", election_url=f"{sentinel.url}?master_name=cluster")
        key = some_key()

        token = granted(arbiter, key, "owner").token

        assert arbiter.level is Level.L1
        assert "Sentinel" in arbiter.reason
        assert arbiter.release(key, "owner", token)


@pytest.mark.parametrize(
    ("settings", "rights", "level", "reason"),
    [
        (ALWAYS, ["-config"], Level.L2, "unknown fsync policy"),
        ({}, ["-config"], Level.L1, "its snapshot settings are not readable"),
        (SAVES, ["-config"], Level.L1, "its snapshot settings are not readable"),
        (ALWAYS, ["-info"], Level.L1, "settings are not readable"),
    ],
)
def test_what_redis_does_not_tell_counts_as_worse(
    settings: dict[str, str], rights: list[str], level: Level, reason: str, new_arbiter: NewArbiter
) -> None:
    with RedisServer(settings) as server:
        arbiter = new_arbiter(as_user(server, "+@all", *rights))

        granted(arbiter, "key", "owner")
        (link,) = arbiter._caller._idle
        granted(arbiter, "key", "owner")

        assert arbiter.level is level
        assert reason in arbiter.reason
        assert list(arbiter._caller._idle) == [link]


def as_user(server: RedisServer, *rights: str) -> str:
    """Make a user of some rights, and return how it comes in."""
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "elector", "on", f">{PASSWORD}", "~{celeriac}:*", *rights)
    return f"redis://elector:{PASSWORD}@{LOOPBACK}:{server.port}/0"


def test_a_user_who_may_do_what_is_needed_and_no_more_can_elect(new_arbiter: NewArbiter) -> None:
    needed = "eval info config|get time type pttl pexpire get set del hmget hset zadd zrem zrange"
    ranges = "zremrangebyscore zremrangebyrank select"
    with RedisServer(ALWAYS) as server:
        rights = [f"+{name}" for name in f"{needed} {ranges}".split()]
        arbiter = new_arbiter(as_user(server, "-@all", *rights))

        token = granted(arbiter, "key", "owner").token

        assert arbiter.renew("key", "owner", token, ttl=LONG, note=b"note")
        assert [record.note for record in arbiter.leases()] == [b"note"]
        assert arbiter.release("key", "owner", token)
        assert arbiter.finish("key", "owner", granted(arbiter, "key", "owner").token)
        assert arbiter.level is Level.L3


@pytest.mark.parametrize("rights", [["+@all", "-eval"], ["+@all", "resetkeys", "~other:*"]])
def test_a_user_who_may_not_elect_is_told_so(
    own_redis: RedisServer, rights: list[str], new_arbiter: NewArbiter
) -> None:
    arbiter = new_arbiter(as_user(own_redis, *rights))

    with pytest.raises(AccessRefused, match="access refused by"):
        arbiter.claim("key", "owner", ttl=LONG, mode=Mode.LEASE)


def test_a_server_without_scripts_can_decide_nothing_and_that_is_told(new_arbiter: NewArbiter) -> None:
    with RedisServer({"rename-command": 'EVAL ""'}) as server:
        arbiter = new_arbiter(server.url)

        with pytest.raises(AccessRefused, match="does not run scripts: allow EVAL"):
            arbiter.claim("key", "owner", ttl=LONG, mode=Mode.LEASE)


def test_what_one_process_is_granted_another_can_have_when_it_is_over(
    redis_url: str, new_arbiter: NewArbiter, client: redis.Redis
) -> None:
    token = granted(new_arbiter(redis_url), "key", "owner").token

    client.pexpire(RECORD, 1)

    assert claimed(new_arbiter(redis_url), "key", "other").token > token
