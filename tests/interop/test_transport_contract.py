"""The links to real brokers keep the contract, and say in our words what is wrong."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import pytest

from celeriac.config import Settings
from celeriac.errors import AccessRefused, ConnectionLost, ImproperlyConfigured
from celeriac.programs.port import LOOPBACK, ReservedPort
from celeriac.testing.brokers import RedisServer
from celeriac.testing.rabbit import RabbitNode
from celeriac.transport.base import Connection
from celeriac.transport.connect import connect as connect_to
from tests.contract import (
    Connect,
    ConnectionContract,
    Listener,
    OwnQueueContract,
    RedeliveryContract,
    body,
    queue_of,
    some_exchange,
)

Way = Literal["open", "publish", "subscribe"]
PASSWORD = "open-sesame"  # noqa: S105 - of a server that lives as long as its test
REQUIRED = {"requirepass": PASSWORD}


@pytest.fixture
def links() -> Iterator[ExitStack]:
    """What is entered here is closed at the end of the test."""
    with ExitStack() as stack:
        yield stack


class TestRedis(ConnectionContract, OwnQueueContract):
    """Redis, by its sockets."""

    @pytest.fixture
    def connect(self, redis_url: str, links: ExitStack) -> Connect:
        return lambda: links.enter_context(connect_to(Settings(broker_url=redis_url)))


class TestRabbitMQ(ConnectionContract, OwnQueueContract, RedeliveryContract):
    """RabbitMQ, by the batches of its socket."""

    @pytest.fixture
    def connect(self, rabbit_server: RabbitNode, links: ExitStack) -> Connect:
        # One virtual host for all: names are new in each test, and a host takes its time to make.
        return lambda: links.enter_context(connect_to(Settings(broker_url=rabbit_server.url)))


class TestKombuFiles(RedeliveryContract):
    """Files, by what all transports of kombu share: unlike its memory they give back what was not taken."""

    @pytest.fixture
    def connect(self, tmp_path: Path, links: ExitStack) -> Connect:
        folders = {"data_folder_in": str(tmp_path), "data_folder_out": str(tmp_path)}
        settings = Settings(broker_url="filesystem://", broker_transport_options=folders)
        return lambda: links.enter_context(connect_to(settings))


# -- a broker that is not there


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port where nobody listens."""
    port = ReservedPort()
    yield port.number
    port.release()


def use(link: Connection, way: Way) -> None:
    """Use a link for the first time, in one of the ways there are."""
    news = some_exchange("fanout")
    match way:
        case "open":
            link.open()
        case "publish":
            link.publish(news, body(1))
        case "subscribe":
            link.subscribe(queue_of(news), print)


@pytest.mark.parametrize("way", ["open", "publish", "subscribe"])
@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_a_broker_that_is_not_there_is_a_lost_connection_told_without_the_password(
    scheme: str, way: Way, nobody: int
) -> None:
    link = connect_to(Settings(broker_url=f"{scheme}://user:{PASSWORD}@{LOOPBACK}:{nobody}/0"))

    with pytest.raises(ConnectionLost) as caught:
        use(link, way)

    assert f"{scheme}://user:**@{LOOPBACK}:{nobody}/0" in str(caught.value)
    assert "refused" in str(caught.value)
    assert PASSWORD not in str(caught.value)
    link.close()


@pytest.mark.parametrize("broker", ["redis_url", "amqp_url"])
def test_each_broker_of_a_list_is_tried(broker: str, nobody: int, request: pytest.FixtureRequest) -> None:
    url: str = request.getfixturevalue(broker)
    scheme = url.partition(":")[0]
    absent = f"{scheme}://{LOOPBACK}:{nobody}/0"
    news = some_exchange("fanout")

    with connect_to(Settings(broker_url=f"{absent};{absent};{url}")) as link:
        listener = Listener(link, queue_of(news))
        link.publish(news, body(1))

        assert listener.drain(1) == [1]


def test_a_database_that_redis_does_not_have_is_no_lost_connection(redis_server: RedisServer) -> None:
    link = connect_to(Settings(broker_url=f"redis://{LOOPBACK}:{redis_server.port}/celery"))

    with pytest.raises(ImproperlyConfigured, match="is not a number"):
        link.open()


def test_sentinel_without_the_name_of_a_master_is_a_mistake_in_the_settings(nobody: int) -> None:
    link = connect_to(Settings(broker_url=f"sentinel://{LOOPBACK}:{nobody}"))

    with pytest.raises(ImproperlyConfigured, match="master_name"):
        link.open()


# -- a broker that refuses us


class PasswordRedis(RedisServer):
    """A Redis server that wants a password."""

    def __init__(self) -> None:
        super().__init__(REQUIRED)

    def url_with(self, password: str) -> str:
        login = f":{password}@" if password else ""
        return f"redis://{login}{LOOPBACK}:{self.port}/0"

    def _is_ready(self) -> bool:
        return "Ready to accept connections" in self.log()


@pytest.fixture(scope="module")
def password_redis() -> Iterator[PasswordRedis]:
    with PasswordRedis() as server:
        yield server


@pytest.mark.parametrize("way", ["open", "publish", "subscribe"])
@pytest.mark.parametrize("password", ["", "open-barley"])
def test_redis_refuses_a_wrong_password(password_redis: PasswordRedis, password: str, way: Way) -> None:
    link = connect_to(Settings(broker_url=password_redis.url_with(password)))

    with pytest.raises(AccessRefused, match="access refused by") as caught:
        use(link, way)

    assert not password or password not in str(caught.value)
    link.close()


def test_redis_takes_the_right_password(password_redis: PasswordRedis) -> None:
    news = some_exchange("fanout")

    with connect_to(Settings(broker_url=password_redis.url_with(PASSWORD))) as link:
        listener = Listener(link, queue_of(news))
        link.publish(news, body(1))

        assert listener.drain(1) == [1]


@pytest.mark.parametrize("way", ["open", "publish", "subscribe"])
@pytest.mark.parametrize("login", ["guest:open-barley", "nobody:guest"])
def test_rabbitmq_refuses_a_wrong_user_or_password(rabbit_server: RabbitNode, login: str, way: Way) -> None:
    link = connect_to(Settings(broker_url=f"amqp://{login}@{LOOPBACK}:{rabbit_server.port}//"))

    with pytest.raises(AccessRefused, match="access refused by") as caught:
        use(link, way)

    assert "open-barley" not in str(caught.value)
    link.close()


def test_rabbitmq_refuses_an_exchange_that_is_of_another_kind(amqp_url: str) -> None:
    news = some_exchange("fanout")
    with connect_to(Settings(broker_url=amqp_url)) as link:
        link.publish(news, body(1))
    other = connect_to(Settings(broker_url=amqp_url))

    with pytest.raises(AccessRefused, match="access refused by"):
        other.publish(news._replace(type="direct"), body(1))

    other.close()


def test_redis_refuses_what_a_user_may_not(own_redis: RedisServer) -> None:
    with own_redis.client() as client:
        client.execute_command(
            "ACL", "SETUSER", "reader", "on", f">{PASSWORD}", "~*", "&*", "+@all", "-publish"
        )
    link = connect_to(Settings(broker_url=f"redis://reader:{PASSWORD}@{LOOPBACK}:{own_redis.port}/0"))
    link.publish(some_exchange("fanout"), body(1))

    with pytest.raises(AccessRefused, match="NOPERM"):
        link.unconfirmed(10.0)

    link.close()
