"""Where results are kept: what the settings say of it, as kombu and Celery read them."""

from typing import Any

import pytest

from celeriac.config import Settings
from celeriac.errors import ImproperlyConfigured
from celeriac.transport.redis_dial import StoreDialer, batched


def options_of(url: str, timeout: float | None = None, **settings: Any) -> dict[str, Any]:
    """Return what a link would be made with."""
    dialer = StoreDialer(Settings(result_backend=url, **settings))
    channel = dialer._read_options(dialer._ways[0], timeout)
    options: dict[str, Any] = channel.pool.connection_kwargs
    return options | {"class": channel.pool.connection_class.__name__}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://web1", {"host": "web1", "port": 6379, "db": 0, "class": "Connection"}),
        ("redis://:s%3Fcret@web1:1/3", {"password": "s?cret", "port": 1, "db": 3}),
        ("redis://me:secret@web1/3", {"username": "me", "password": "secret"}),
        ("redis+socket:///run/redis.sock", {"path": "/run/redis.sock", "db": 0}),
        ("redis+socket:///run/redis.sock?virtual_host=2", {"path": "/run/redis.sock", "db": 2}),
        ("redis://web1/2?socket_timeout=7", {"socket_timeout": 7.0, "db": 2}),
        ("redis://web1/2?socket_keepalive=true&socket_connect_timeout=9", {"socket_connect_timeout": 9.0}),
        ("rediss://web1", {"class": "SSLConnection", "ssl_cert_reqs": "required"}),
        ("rediss://web1/0?ssl_ca_certs=ca.pem&socket_timeout=7", {"ssl_ca_certs": "ca.pem"}),
    ],
)
def test_a_url_is_read_as_celery_reads_it(url: str, expected: dict[str, object]) -> None:
    options = options_of(url)

    assert {name: options[name] for name in expected} == expected


def test_the_settings_of_the_broker_have_no_say() -> None:
    options = options_of(
        "redis://web1/2",
        broker_url="rediss://web2/1",
        broker_use_ssl=True,
        broker_transport_options={"client_name": "broker"},
        result_backend_transport_options={"client_name": "results"},
    )

    assert (options["class"], options["host"], options["client_name"]) == ("Connection", "web1", "results")


def test_tls_may_be_a_setting() -> None:
    options = options_of("redis://web1", redis_backend_use_ssl={"ssl_ca_certs": "ca.pem"})

    assert (options["class"], options["ssl_ca_certs"]) == ("SSLConnection", "ca.pem")


def test_the_time_that_a_caller_has_is_shared_by_all_that_is_tried() -> None:
    sentinels = "sentinel://web1:1;sentinel://web2:1"
    master = {"result_backend_transport_options": {"master_name": "cluster"}}

    waits = [
        options_of("redis://web1", 3.0)["socket_timeout"],
        options_of("redis://web1;redis://web2;redis://web3", 3.0)["socket_timeout"],
        options_of(sentinels, 3.0, **master)["socket_timeout"],
    ]

    assert waits == [3.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (None, "result_backend has no host: give a URL such as"),
        ("amqp://web1//", "is not a Redis URL"),
        ("nope://web1", "uses an unavailable transport"),
        ("redis://web1/0?unheard_of=1", "cannot use"),
        ("redis://web1/0?socket_timeout=long", "socket_timeout in result_backend is 'long'"),
        ("redis://:hun/ter@web1:6379/0", "invalid result_backend .*: check the port"),
    ],
)
def test_what_cannot_be_used_is_a_mistake_in_the_settings(url: str | None, problem: str) -> None:
    settings = Settings(result_backend=url)

    with pytest.raises(ImproperlyConfigured, match=problem) as caught:
        StoreDialer(settings)

    assert "hun" not in str(caught.value)


@pytest.mark.parametrize("url", ["redis://web1/celery", "sentinel://web1:1"])
def test_what_is_found_wrong_later_is_told_with_the_names_of_the_settings(url: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="result_backend_transport_options"):
        options_of(url)


def test_many_ids_are_portioned() -> None:
    task_ids = [str(number) for number in range(1201)]

    portions = list(batched(task_ids))

    assert [len(portion) for portion in portions] == [500, 500, 201]
    assert [task_id for portion in portions for task_id in portion] == task_ids
    assert list(batched([])) == []
