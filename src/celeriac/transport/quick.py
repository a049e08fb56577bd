"""A connection for one request and its replies, by libraries that load in a tenth of the time.

kombu and redis-py take 0.2 s of CPU to load, which a program that asks one question a minute, such as a probe
of Kubernetes, would spend on nothing. So a plain URL, with no option of a transport and no TLS, is read
here as kombu reads it. For all other settings :func:`quick_connect` returns None, and the caller takes
:func:`celeriac.transport.connect.connect`.
"""

from importlib import import_module
from typing import Final, NamedTuple, cast
from urllib.parse import unquote, urlsplit

from celeriac.config import Settings
from celeriac.transport.base import Connection

__all__ = ["BrokerAddress", "parse_address", "quick_connect"]

#: By scheme of the URL: the module and class, and the usual port.
_WAYS: Final = {
    "redis": ("celeriac.transport.quick_redis", "QuickRedis", 6379),
    "amqp": ("celeriac.transport.quick_amqp", "QuickAmqp", 5672),
    "pyamqp": ("celeriac.transport.quick_amqp", "QuickAmqp", 5672),
}


class BrokerAddress(NamedTuple):
    """The parts of a plain URL."""

    scheme: str
    host: str
    port: int
    user: str
    password: str
    #: The virtual host, or the number of the database; empty for the usual one.
    path: str


def quick_connect(settings: Settings) -> Connection | None:
    """Return a connection that publishes commands and takes replies and events, and does nothing else.

    None where the settings need more than a plain URL says.
    """
    address = parse_address(settings)
    if address is None:
        return None
    module, name, _ = _WAYS[address.scheme]
    # A part of a connection: what a call needs (:class:`celeriac.node.call.Caller`).
    return cast("Connection", getattr(import_module(module), name)(settings, address))


def parse_address(settings: Settings) -> BrokerAddress | None:
    """Return where the broker is, None unless the URL and its settings are plain."""
    url = settings.broker_url
    if settings.broker_transport_options or settings.broker_use_ssl or settings.broker_login_method:
        return None
    scheme = url.partition(":")[0]
    if scheme not in _WAYS or ";" in url or "?" in url or "#" in url:
        return None
    try:
        parts = urlsplit(url)
        port = parts.port or _WAYS[scheme][2]
    except ValueError:  # kombu's way says what is wrong
        return None
    path = unquote(parts.path.removeprefix("/"))
    if scheme == "redis" and not (path or "0").removeprefix("/").isdecimal():
        return None
    return BrokerAddress(
        scheme,
        parts.hostname or "localhost",
        port,
        unquote(parts.username or ""),
        unquote(parts.password or ""),
        path,
    )
