"""The brokers without a socket keep the contract of every link to a broker."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from celeriac.config import Settings
from celeriac.errors import ConnectionLost, ImproperlyConfigured
from celeriac.transport.amqp import AmqpConnection
from celeriac.transport.base import Connection
from celeriac.transport.connect import connect as connect_to
from celeriac.transport.kombu import KombuConnection
from celeriac.transport.memory import MemoryBroker
from celeriac.transport.redis import RedisConnection
from tests.contract import (
    DEFAULT,
    Connect,
    ConnectionContract,
    Listener,
    OwnQueueContract,
    RedeliveryContract,
    kept_queue,
    publish,
    queue_of,
    some_exchange,
)


class TestMemoryBroker(ConnectionContract, OwnQueueContract, RedeliveryContract):
    """The broker of our own."""

    @pytest.fixture
    def connect(self) -> Connect:
        return MemoryBroker().connect


class TestKombuMemory(ConnectionContract):
    """The one that kombu brings along."""

    @pytest.fixture
    def connect(self) -> Iterator[Connect]:
        with ExitStack() as stack:

            def new() -> Connection:
                return stack.enter_context(connect_to(Settings(broker_url="memory://")))

            yield new


# -- which way leads to which broker


@pytest.mark.parametrize(
    ("url", "kind", "driver"),
    [
        ("memory://", KombuConnection, "memory"),
        ("redis://127.0.0.1:1/0", RedisConnection, "redis"),
        ("rediss://127.0.0.1:1/0", RedisConnection, "redis"),
        ("sentinel://127.0.0.1:1", RedisConnection, "redis"),
        ("amqp://127.0.0.1:1//", AmqpConnection, "amqp"),
        ("amqps://127.0.0.1:1//", AmqpConnection, "amqp"),
        ("pyamqp://127.0.0.1:1//", AmqpConnection, "amqp"),
    ],
)
def test_each_url_has_its_way(url: str, kind: type[Connection], driver: str) -> None:
    link = connect_to(Settings(broker_url=url))

    assert type(link) is kind
    assert link.driver == driver


@pytest.mark.parametrize("url", ["nope://127.0.0.1", "rediz://127.0.0.1/0", "librabbitmq://127.0.0.1//"])
def test_an_unknown_transport_is_a_mistake_in_the_settings(url: str) -> None:
    settings = Settings(broker_url=url)

    with pytest.raises(ImproperlyConfigured, match="uses an unavailable transport"):
        connect_to(settings)


@pytest.mark.parametrize("error", [KeyError("node"), NameError("name 'x' is not defined")], ids=repr)
def test_fault_of_a_library_on_connecting_is_not_a_missing_transport(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    connection = KombuConnection(Settings(broker_url="memory://"))
    monkeypatch.setattr(connection._kombu, "ensure_connection", fail)

    with pytest.raises(type(error)):
        connection.open()


@pytest.mark.parametrize(
    ("url", "package"), [("kafka://127.0.0.1", "confluentkafka"), ("zookeeper://127.0.0.1", "zookeeper")]
)
def test_a_transport_without_its_library_names_the_package(url: str, package: str) -> None:
    settings = Settings(broker_url=url)

    with pytest.raises(ImproperlyConfigured, match=rf"pip install 'kombu\[{package}\]'"):
        connect_to(settings).open()


@pytest.mark.parametrize("url", ["amqp://guest:hunter@127.0.0.1:many//", "redis://:hun/ter@127.0.0.1:6379/0"])
def test_a_url_that_cannot_be_read_is_a_mistake_in_the_settings_and_told_without_its_password(
    url: str,
) -> None:
    settings = Settings(broker_url=url)

    with pytest.raises(ImproperlyConfigured, match="check the port, and percent-encode") as caught:
        connect_to(settings)

    assert "hun" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_an_address_holds_no_password() -> None:
    link = connect_to(Settings(broker_url="amqp://guest:secret@127.0.0.1:1//"))

    assert link.address == "amqp://guest:**@127.0.0.1:1//"


# -- the broker in memory, cut and stopped


def test_a_cut_loses_every_link_and_what_waits_for_it() -> None:
    broker = MemoryBroker()
    news = some_exchange("fanout")
    listener = Listener(broker.connect(), queue_of(news))
    broker.connect().publish(news, b"{}")

    broker.cut()

    with pytest.raises(ConnectionLost):
        listener.link.drain(0)
    with pytest.raises(ConnectionLost):
        listener.link.publish(news, b"{}")
    assert listener.messages == []


def test_a_broker_that_is_away_takes_no_new_link_until_it_is_back() -> None:
    broker = MemoryBroker()
    broker.stop()

    with pytest.raises(ConnectionLost, match="is cut"):
        broker.connect().open()

    broker.start()
    broker.connect().open()


def test_a_durable_queue_outlives_a_cut_and_others_do_not() -> None:
    broker = MemoryBroker()
    news = some_exchange("fanout")
    durable = queue_of(news)._replace(is_durable=True, is_exclusive=False, is_auto_deleted=False)
    fleeting = queue_of(news)
    for queue in (durable, fleeting):
        Listener(broker.connect(), queue)
    broker.connect().publish(news, b'{"number": 1}')

    broker.cut()

    assert Listener(broker.connect(), durable).drain(1) == [1]
    assert Listener(broker.connect(), fleeting).link.drain(0) == 0


def test_what_was_taken_and_not_acknowledged_at_a_cut_comes_again_before_all_else() -> None:
    broker = MemoryBroker()
    queue = kept_queue()
    listener = Listener(broker.connect(), queue, acknowledges=True)
    publish(broker.connect(), DEFAULT, 1, 2, 3, routing_key=queue.name)
    listener.failures = [RuntimeError("on purpose")]
    with pytest.raises(RuntimeError, match="on purpose"):
        listener.link.drain(0)

    broker.cut()

    publish(broker.connect(), DEFAULT, 4, routing_key=queue.name)
    assert Listener(broker.connect(), queue, acknowledges=True).drain(4) == [1, 2, 3, 4]
