"""Connections that programs pass in become ours, with all that they say of the broker."""

import ssl
from typing import Any

import kombu
import pytest

from celeriac import CallerError, Celeriac, EventDispatcher, EventReceiver, MemoryBroker, Settings
from celeriac.transport.accept import accept_connection
from celeriac.transport.amqp import AmqpConnection
from celeriac.transport.kombu import KombuConnection
from celeriac.transport.redis import RedisConnection

PATIENCE = 120.0
PHRASE = "p;w"


@pytest.mark.parametrize(
    ("url", "kind", "expected"),
    [
        ("amqp://ann:p%40ss@rabbit:5673/shop", AmqpConnection, "amqp://ann:p%40ss@rabbit:5673/shop"),
        ("amqp://", AmqpConnection, "amqp://guest:guest@localhost:5672//"),
        ("redis://:p%2Fw@cache:6380/3", RedisConnection, "redis://:p%2Fw@cache:6380/3"),
        ("sentinel://a:1/0;sentinel://b:2/0", RedisConnection, "sentinel://a:1/0;sentinel://b:2/0"),
        ("memory://", KombuConnection, "memory://localhost//"),
    ],
)
def test_kombu_connection_becomes_one_of_ours_to_the_same_broker(
    url: str, kind: type[KombuConnection], expected: str
) -> None:
    given = kombu.Connection(url)

    connection, settings = accept_connection(given, None)

    assert type(connection) is kind
    assert settings.broker_url == expected
    assert not given.connected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            kombu.Connection("amqp://a//", alternates=["amqp://b//"]),
            "amqp://guest:guest@a:5672//;amqp://guest:guest@b:5672//",
        ),
        (
            kombu.Connection(["redis://a/2", "redis://b:6380/2"]),
            "redis://a:6379/2;redis://b:6380/2",
        ),
        (
            kombu.Connection("amqp://a:5673//;amqp://bob:b@b/shop", userid="ann", password=PHRASE),
            "amqp://ann:p%3Bw@a:5673//;amqp://bob:b@b:5672/shop",
        ),
        (
            kombu.Connection("a;b", userid="ann", password=PHRASE, port=5673, virtual_host="shop"),
            "amqp://ann:p%3Bw@a:5673/shop;amqp://ann:p%3Bw@b:5673/shop",
        ),
    ],
    ids=("alternates", "list", "credentials", "hosts"),
)
def test_all_brokers_of_a_kombu_connection_are_kept(given: kombu.Connection, expected: str) -> None:
    _, settings = accept_connection(given, None)

    assert settings.broker_url == expected


def test_short_heartbeat_of_a_kombu_connection_stays_on() -> None:
    given = kombu.Connection("amqp://", heartbeat=0.5)

    _, settings = accept_connection(given, None)

    assert settings.broker_heartbeat == 1


@pytest.mark.parametrize(
    "options",
    [{"credential_provider": object()}, {"password": lambda: "secret"}],
    ids=("provider", "password"),
)
def test_kombu_connection_without_a_fixed_password_is_refused(options: dict[str, Any]) -> None:
    given = kombu.Connection("amqp://", **options)

    with pytest.raises(CallerError, match="pass a connection with userid and password"):
        accept_connection(given, None)


def test_parameters_of_a_kombu_connection_are_kept() -> None:
    tls = {"ca_certs": "/ca.pem", "cert_reqs": ssl.CERT_REQUIRED}
    given = kombu.Connection(
        "redis://cache:6379/0",
        ssl=tls,
        transport_options={"global_keyprefix": "shop:"},
        connect_timeout=7,
        heartbeat=30,
        login_method="EXTERNAL",
    )

    _, settings = accept_connection(given, Settings(event_exchange="shop"))

    assert settings == Settings(
        event_exchange="shop",
        broker_url=settings.broker_url,
        broker_use_ssl=tls,
        broker_transport_options={"global_keyprefix": "shop:"},
        broker_connection_timeout=7,
        broker_heartbeat=30,
        broker_login_method="EXTERNAL",
    )


def test_kombu_connection_that_names_no_heartbeat_gets_that_of_the_settings() -> None:
    given = kombu.Connection("amqp://", heartbeat=None)

    _, settings = accept_connection(given, Settings(broker_heartbeat=17))

    assert settings.broker_heartbeat == 17


@pytest.mark.parametrize("broker", ["redis://127.0.0.1:1/0", "amqp://", "memory://", MemoryBroker()])
def test_connection_of_an_app_brings_the_settings_of_its_app(broker: str | MemoryBroker) -> None:
    app = Celeriac(broker, environ={}, event_exchange="shop")

    _, settings = accept_connection(app.connection(), None)
    _, again = accept_connection(app.connection().clone(), None)

    assert settings is again is app.conf


def test_dispatcher_and_receiver_on_the_connection_of_an_app_use_its_exchange() -> None:
    broker = MemoryBroker()
    app = Celeriac(broker, environ={}, event_exchange="shop")
    seen: list[str] = []

    with EventReceiver(app.connection(), {"*": lambda event: seen.append(event.type)}) as receiver:
        with pytest.raises(TimeoutError):
            receiver.capture(None, 0, False)
        with EventDispatcher(app.connection(), enabled=True) as dispatcher:
            dispatcher.send("worker-online")
        receiver.capture(1, PATIENCE, False)

    assert seen == ["worker-online"]
    assert [exchange for exchange, _ in broker.published] == ["shop"]


def test_connection_without_settings_gets_the_defaults() -> None:
    given = MemoryBroker().connect()

    connection, settings = accept_connection(given, None)

    assert connection is given
    assert settings == Settings()


@pytest.mark.parametrize(
    "given", [None, "amqp://", Celeriac(MemoryBroker(), environ={})], ids=("none", "url", "app")
)
@pytest.mark.parametrize("kind", [EventDispatcher, EventReceiver])
def test_anything_else_is_refused_with_the_fix(kind: Any, given: object) -> None:
    with pytest.raises(CallerError, match=r"pass app\.connection\(\) or a kombu\.Connection"):
        kind(given)


def test_dispatcher_and_receiver_of_an_app_take_a_kombu_connection() -> None:
    app = Celeriac(MemoryBroker(), environ={}, hostname="shop@web")
    given = kombu.Connection("memory://")
    seen: list[object] = []

    with app.events.Receiver(given, handlers={"*": seen.append}) as receiver:
        with pytest.raises(TimeoutError):
            receiver.capture(None, 0, False)
        with app.events.Dispatcher(given, enabled=True) as dispatcher:
            dispatcher.send("worker-online", custom_field="value")
        receiver.capture(1, PATIENCE, False)

    [event] = seen
    assert (event["hostname"], event["custom_field"]) == ("shop@web", "value")  # type: ignore[index]
    assert receiver.clock is dispatcher.clock is app.clock
