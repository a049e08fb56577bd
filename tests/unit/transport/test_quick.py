"""A plain URL is read as kombu reads it; what is not plain is left to kombu."""

from typing import Any

import pytest
from kombu.utils.url import parse_url

from celeriac.config import Settings
from celeriac.transport.quick import parse_address


@pytest.mark.parametrize(
    "url",
    [
        "redis://host",
        "redis://host/",
        "redis://host:7000/3",
        "redis://:hu%2Fsh@host/0",
        "redis://user:hush@host:7000/12",
        "amqp://host",
        "amqp://host//",
        "amqp://guest:guest@127.0.0.1:5672//",
        "pyamqp://user:p%40ss@host:5673/shop",
        "amqp://user@host/a%2Fb",
    ],
)
def test_a_plain_url_is_read_as_kombu_reads_it(url: str) -> None:
    address = parse_address(Settings(broker_url=url))
    theirs = parse_url(url)

    assert address is not None
    assert (address.scheme, address.host, address.user or None, address.password or None) == (
        theirs["transport"],
        theirs["hostname"],
        theirs["userid"],
        theirs["password"],
    )
    assert address.port == (theirs["port"] or {"redis": 6379}.get(address.scheme, 5672))
    assert address.path == (theirs["virtual_host"] or "")


@pytest.mark.parametrize(
    "settings",
    [
        {"broker_url": "rediss://host/0"},
        {"broker_url": "sentinel://host"},
        {"broker_url": "redis+socket:///tmp/redis.sock"},
        {"broker_url": "redis://host/name"},
        {"broker_url": "redis://host/0?socket_timeout=5"},
        {"broker_url": "redis://one/0;redis://two/0"},
        {"broker_url": "redis://host:many/0"},
        {"broker_url": "amqps://host//"},
        {"broker_url": "memory://"},
        {"broker_url": "redis://host/0", "broker_transport_options": {"global_keyprefix": "shop"}},
        {"broker_url": "redis://host/0", "broker_use_ssl": True},
        {"broker_url": "amqp://host//", "broker_login_method": "EXTERNAL"},
    ],
    ids=str,
)
def test_settings_that_are_not_plain_are_left_to_kombu(settings: dict[str, Any]) -> None:
    assert parse_address(Settings(**settings)) is None
