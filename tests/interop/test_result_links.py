"""Results as they come over a real link to Redis."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from uuid import uuid4

import pytest
import redis

from celeriac.core.waiting import Read, Subscribe, Unsubscribe, WaitingList
from celeriac.errors import AccessRefused, ConnectionLost
from celeriac.model.result import Failure, ResultMeta
from celeriac.programs.port import LOOPBACK
from celeriac.testing.brokers import RedisServer
from celeriac.transport import redis_results
from celeriac.transport.redis_link import wait_for
from celeriac.transport.redis_results import RedisResultLink
from celeriac.transport.result_link import Arrived
from tests.links import MIB, PATIENCE, Place, arrivals, confirm, confirmed, drained, frozen, metas, success

PASSWORD = "open-sesame"  # noqa: S105 - of a server that lives as long as its test


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    """What is called back here ends with the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def place(redis_url: str, ends: ExitStack) -> Place:
    """A place on the server that tests share. Ids are new in each test: channels span databases."""
    return Place(redis_url, ends)


@pytest.fixture
def task_id() -> str:
    return str(uuid4())


# -- told


def test_what_is_stored_after_the_confirmation_is_told(place: Place, task_id: str) -> None:
    link = place.link()
    confirm(link, task_id)

    place.write(success(task_id))

    with redis.Redis.from_url(place.url) as client:
        size = client.strlen(f"celery-task-meta-{task_id}")
    assert drained(link, lambda news: bool(metas(news))) == [Arrived(success(task_id), size)]


def test_each_state_of_a_task_is_told_in_order(place: Place, task_id: str) -> None:
    link = place.link()
    confirm(link, task_id)
    failure = ResultMeta(task_id, "FAILURE", Failure("ValueError", ("planned",), "builtins"), "Traceback…")

    for meta in (ResultMeta(task_id, "STARTED"), ResultMeta(task_id, "PROGRESS", 50), failure):
        place.write(meta)

    states = arrivals(link, 3)
    assert [meta.status for meta in states] == ["STARTED", "PROGRESS", "FAILURE"]
    assert states[-1] == failure


def test_what_nobody_subscribed_to_is_not_told(place: Place, task_id: str) -> None:
    link = place.link()
    confirm(link, task_id)

    place.write(success(f"{task_id}-another"))
    place.write(success(task_id))

    assert arrivals(link, 1) == [success(task_id)]


def test_what_was_unsubscribed_is_told_no_more(place: Place, task_id: str) -> None:
    link = place.link()
    other = f"{task_id}-another"
    confirm(link, task_id, other)

    link.unsubscribe([task_id])
    place.write(success(task_id))
    place.write(success(other))

    assert arrivals(link, 1) == [success(other)]


def test_each_subscription_is_confirmed_once_though_it_was_given_up_meanwhile(
    place: Place, task_id: str
) -> None:
    link = place.link()
    link.subscribe([task_id])
    link.unsubscribe([task_id])
    link.subscribe([task_id])
    link.subscribe([f"{task_id}-last"])

    news = drained(link, lambda news: f"{task_id}-last" in confirmed(news))

    assert confirmed(news) == [task_id, task_id, f"{task_id}-last"]
    place.write(success(task_id))
    assert arrivals(link, 1) == [success(task_id)]


def test_a_task_that_is_watched_given_up_and_watched_again_is_armed_by_its_own_confirmation(
    place: Place, task_id: str
) -> None:
    link = place.link()
    waiting = WaitingList(random=lambda: 0.5)
    waiting.connect(0.0)
    effects = [
        *waiting.watch("first", [task_id], now=0.0),
        *waiting.unwatch("first", now=0.0),
        *waiting.watch("second", [task_id], now=0.0),
    ]
    for effect in effects:
        assert isinstance(effect, Subscribe | Unsubscribe)
        (link.subscribe if isinstance(effect, Subscribe) else link.unsubscribe)(effect.task_ids)

    ids = confirmed(drained(link, lambda news: confirmed(news) == [task_id, task_id]))

    assert waiting.confirm(ids[:1], now=0.0) == []
    assert waiting.confirm(ids[1:], now=0.0) == [Read((task_id,))]


def test_thousands_are_subscribed_told_and_read(place: Place, task_id: str) -> None:
    link = place.link()
    task_ids = [f"{task_id}-{number}" for number in range(2500)]
    confirm(link, *task_ids)

    with redis.Redis.from_url(place.url) as client, client.pipeline(transaction=False) as pipeline:
        for each in task_ids:
            document = json.dumps({"status": "SUCCESS", "result": 3, "task_id": each})
            pipeline.set(f"celery-task-meta-{each}", document).publish(f"celery-task-meta-{each}", document)
        pipeline.execute()
    told = arrivals(link, len(task_ids))
    link.read([*task_ids, f"{task_id}-absent"])

    assert told == [success(each) for each in task_ids]
    assert arrivals(link, len(task_ids)) == told
    link.unsubscribe(task_ids)
    assert link.drain(0.0) == []


# -- read


def test_what_is_stored_is_read_and_what_is_not_makes_no_news(place: Place, task_id: str) -> None:
    place.write(success(task_id))
    link = place.link()

    link.read([f"{task_id}-absent", task_id])
    link.read([f"{task_id}-absent"])
    link.read([task_id])

    assert arrivals(link, 2) == [success(task_id)] * 2


def test_nothing_is_nothing_to_ask_for(place: Place, task_id: str) -> None:
    link = place.link()

    link.subscribe([])
    link.unsubscribe([])
    link.read([])

    confirm(link, task_id)
    assert link.drain(0.0) == []


def test_a_prefix_is_that_of_every_key_and_channel(redis_url: str, ends: ExitStack, task_id: str) -> None:
    place = Place(redis_url, ends, result_backend_transport_options={"global_keyprefix": "team"})
    link = place.link()
    confirm(link, task_id)

    place.write(success(task_id))
    told = arrivals(link, 1)
    link.read([task_id])

    with redis.Redis.from_url(redis_url) as client:
        assert client.keys("*") == [f"team_celery-task-meta-{task_id}".encode()]
    assert told == arrivals(link, 1) == [success(task_id)]


def test_a_long_value_arrives_whole(place: Place, task_id: str) -> None:
    link = place.link()
    confirm(link, task_id)
    long = success(task_id, "x" * (20 * MIB))

    place.write(long)
    told = arrivals(link, 1)
    link.read([task_id])

    assert told == arrivals(link, 1) == [long]


def test_a_value_that_is_too_long_is_told_by_its_fault(redis_url: str, ends: ExitStack, task_id: str) -> None:
    Place(redis_url, ends).write(success(task_id, "x" * 2000))
    link = Place(redis_url, ends, result_max_bytes=1000).link()

    link.read([task_id])

    (meta,) = arrivals(link, 1)
    assert meta.task_id == task_id
    assert "result_max_bytes" in meta.fault


@pytest.mark.parametrize("document", [b"", b"\x80\x04\x95.", b"{", b"[]", b'{"status": 1}'])
def test_what_cannot_be_read_is_told_with_its_task(place: Place, task_id: str, document: bytes) -> None:
    link = place.link()
    confirm(link, task_id)

    with redis.Redis.from_url(place.url) as client:
        client.publish(f"celery-task-meta-{task_id}", document)
        client.rpush(f"celery-task-meta-{task_id}-list", "no text")
    link.read([f"{task_id}-list"])

    (meta,) = arrivals(link, 1)
    assert meta.task_id == task_id
    assert meta.fault


# -- waiting


def test_where_nothing_comes_a_drain_ends_with_its_time(place: Place, task_id: str) -> None:
    link = place.link()
    confirm(link, task_id)

    assert (link.drain(0.0), link.drain(0.05)) == ([], [])


def test_an_interrupt_ends_a_drain_that_waits(place: Place) -> None:
    link = place.link()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(link.drain, 10 * PATIENCE)
        link.interrupt()

        assert waiting.result(PATIENCE) == []


def test_an_interrupt_ends_the_next_drain_and_no_other(place: Place, task_id: str) -> None:
    link = place.link()
    confirm(link, task_id)
    link.interrupt()
    link.interrupt()

    interrupted = link.drain(10 * PATIENCE)
    place.write(success(task_id))

    assert (interrupted, arrivals(link, 1)) == ([], [success(task_id)])


def test_an_interrupt_harms_no_link_that_is_closed_or_was_never_open(place: Place) -> None:
    never, closed = RedisResultLink(place.settings), place.link()
    closed.close()
    closed.close()

    for link in (never, closed):
        link.interrupt()
        with pytest.raises(ConnectionLost, match="not open"):
            link.drain(0.0)
    never.close()


# -- a link that breaks


@pytest.fixture
def own_place(own_redis: RedisServer, ends: ExitStack) -> Place:
    return Place(own_redis.url_of(1), ends)


@pytest.mark.parametrize("kind", ["pubsub", "normal"])
def test_a_link_that_an_operator_closes_while_it_drains_is_lost(
    own_redis: RedisServer, own_place: Place, task_id: str, kind: str
) -> None:
    link = own_place.link()
    confirm(link, task_id)

    with ThreadPoolExecutor(1) as pool:
        draining = pool.submit(link.drain, PATIENCE)
        assert own_redis.client_kill(kind) > 0

        with pytest.raises(ConnectionLost, match="lost the result store at redis://"):
            draining.result()


def test_after_a_server_is_killed_a_clone_finds_what_was_kept(ends: ExitStack, task_id: str) -> None:
    with RedisServer({"appendonly": "yes", "appendfsync": "always"}) as server:
        place = Place(server.url_of(1), ends)
        link = place.link()
        confirm(link, task_id)
        place.write(success(task_id))
        assert arrivals(link, 1) == [success(task_id)]

        server.kill()
        with pytest.raises(ConnectionLost):
            drained(link, lambda _: False)
        with pytest.raises(ConnectionLost, match="refused"):
            link.clone().open()
        server.start()

        clone = link.clone()
        ends.callback(clone.close)
        clone.open()
        confirm(clone, task_id)
        clone.read([task_id])
        assert arrivals(clone, 1) == [success(task_id)]
        assert clone.address == link.address


def test_what_is_asked_and_not_answered_is_a_lost_link(
    own_redis: RedisServer, own_place: Place, task_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_results, "_PATIENCE", 0.2)
    link = own_place.link()

    with frozen(own_redis):
        link.read([task_id])

        with pytest.raises(ConnectionLost, match="no answer within"):
            drained(link, lambda _: False)


def test_an_answer_that_waits_for_us_is_no_silence(
    own_place: Place, task_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_place.write(success(task_id))
    link = own_place.link()
    link.read([task_id])
    assert link._asking is not None
    assert wait_for([link._asking], PATIENCE)

    monkeypatch.setattr(redis_results, "_PATIENCE", 0.0)

    assert arrivals(link, 1) == [success(task_id)]


@pytest.mark.parametrize("password", ["", "open-barley"])
def test_a_wrong_password_is_refused(ends: ExitStack, password: str) -> None:
    with RedisServer() as server:
        with server.client() as client:
            client.config_set("requirepass", PASSWORD)
        login = f":{password}@" if password else ""
        place = Place(f"redis://{login}{LOOPBACK}:{server.port}/0", ends)

        with pytest.raises(AccessRefused, match=r"access refused by the result store at redis://") as caught:
            place.link()
        with pytest.raises(AccessRefused):
            place.store.read(["a"], timeout=PATIENCE)

        assert not password or password not in str(caught.value)
        right = Place(f"redis://:{PASSWORD}@{LOOPBACK}:{server.port}/0", ends)
        right.write(success("a"))
        assert PASSWORD not in right.link().address


def test_who_may_not_listen_is_refused(own_redis: RedisServer, ends: ExitStack, task_id: str) -> None:
    with own_redis.client() as client:
        client.execute_command(
            "ACL", "SETUSER", "reader", "on", f">{PASSWORD}", "~*", "+@all", "resetchannels"
        )
    place = Place(f"redis://reader:{PASSWORD}@{LOOPBACK}:{own_redis.port}/0", ends)
    link = place.link()

    with pytest.raises(AccessRefused, match="NOPERM"):
        confirm(link, task_id)


def test_a_unix_socket_leads_to_the_same_place(ends: ExitStack, task_id: str) -> None:
    with RedisServer() as server:
        path = server.folder / "redis.sock"
        server._settings |= {"unixsocket": str(path), "unixsocketperm": "700"}
        server.restart()
        place = Place(f"redis+socket://{path}?virtual_host=3", ends)
        link = place.link()
        confirm(link, task_id)

        place.write(success(task_id))

        assert arrivals(link, 1) == [success(task_id)]
        with server.client(3) as client:
            assert client.exists(f"celery-task-meta-{task_id}") == 1
