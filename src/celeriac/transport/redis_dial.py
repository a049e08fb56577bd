"""The way to a Redis server: kombu reads the URL and the options, and links are made by them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from redis.backoff import NoBackoff
from redis.connection import URL_QUERY_ARGUMENT_PARSERS
from redis.retry import Retry

from celeriac.config import Settings
from celeriac.errors import AccessRefused, ConnectionLost, ImproperlyConfigured
from celeriac.transport.kombu_link import KombuLink, Peer
from celeriac.transport.redis_link import RedisLink

__all__ = ["ArbiterDialer", "RedisDialer", "StoreDialer", "arbiter_dialer", "batched"]

#: Keys in one command: enough to be quick, and few enough for others to get their turn.
_MAX_KEYS: Final = 500

_PARSERS: Final[Mapping[str, Any]] = URL_QUERY_ARGUMENT_PARSERS
#: Options that kombu and Celery have both, but kombu not in a URL.
_LIFTED: Final = frozenset(
    {
        "health_check_interval",
        "retry_on_timeout",
        "socket_connect_timeout",
        "socket_keepalive",
        "socket_timeout",
    }
)
#: Those of an arbiter that is not the broker: no setting beside its URL has them.
_LIFTED_OF_ARBITERS: Final = _LIFTED | {"global_keyprefix", "master_name"}


class RedisDialer(KombuLink):
    """Makes links to a Redis server, or to the master that a Sentinel names.

    Where the settings name several servers, the first that can be reached is used. Of kombu
    nothing but its reading of the settings is used: no socket is its own.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        urls = self._kombu.alt
        is_sentinel = settings.broker_url.startswith("sentinel:")
        #: One for each server of which one is used; to Sentinels kombu finds its way by itself.
        self._ways = [self._kombu] if is_sentinel or len(urls) < 2 else [self._new_kombu(url) for url in urls]
        #: Waits that making a link can take: for each server, or for each Sentinel and the master.
        self._steps = max(1, len(urls)) + is_sentinel

    def dial(self, timeout: float | None = None) -> RedisLink:
        """Return a new link, made within about ``timeout`` seconds; from any thread or greenlet."""
        channel, link = self._dial(timeout)
        channel.close()
        return link

    def close(self) -> None:
        """Give back what kombu holds; to dial again is fine. Links that were made live on."""
        for way in self._ways:
            with suppress(*self._errors):
                way.release()

    def _dial(self, timeout: float | None = None) -> tuple[Any, RedisLink]:
        """Return a new link, with the channel of kombu that it was made by."""
        lost: ConnectionLost | None = None
        for way in self._ways:
            channel = self._read_options(way, timeout)
            try:
                return channel, self._link(channel)
            except ConnectionLost as error:
                lost = error
                channel.close()
            except AccessRefused:
                channel.close()
                raise
        raise lost or ConnectionLost(f"the {self.peer.name} URL has no host")

    def _read_options(self, way: Any, timeout: float | None) -> Any:
        """Return a channel of kombu, which holds every option of the URL and the settings."""
        try:
            channel = _quiet(way.transport.Channel)(way.transport)
            if timeout is not None:
                share = max(timeout, 0.001) / self._steps
                channel.socket_timeout = channel.socket_connect_timeout = share
            manager = getattr(channel.pool, "sentinel_manager", None)
        except (ValueError, TypeError):
            raise self._unusable() from None
        for sentinel in [] if manager is None else manager.sentinels:
            # When to try again is for who called us to say.
            sentinel.set_retry(Retry(NoBackoff(), 0))
        return channel

    def _link(self, channel: Any) -> RedisLink:
        return RedisLink(channel.pool, self.address, self.peer.name)

    def _options(self) -> dict[str, object]:
        patience = self.settings.broker_connection_timeout
        return {"socket_connect_timeout": patience, "socket_timeout": patience}

    def _tls(self) -> bool | Mapping[str, object]:
        chosen = self.settings.broker_use_ssl
        is_wanted = chosen is True or self.settings.broker_url.startswith("rediss:")
        # Celery: where no option is named, kombu speaks plain text, whatever the URL says.
        return {"ssl_cert_reqs": "required"} if is_wanted and not isinstance(chosen, Mapping) else chosen


class StoreDialer(RedisDialer):
    """Makes links to where results are kept, by ``result_backend`` and the settings beside it."""

    peer = Peer("result store", "result_backend", "result_backend_transport_options")

    def __init__(self, settings: Settings) -> None:
        if settings.result_backend is None:
            raise ImproperlyConfigured(
                "result_backend has no host: give a URL such as redis://127.0.0.1:6379/0"
            )
        url, options = _lifted(settings.result_backend, "result_backend", _LIFTED)
        super().__init__(
            replace(
                settings,
                broker_url=url,
                broker_transport_options={**settings.result_backend_transport_options, **options},
                broker_use_ssl=settings.redis_backend_use_ssl,
            )
        )
        if self.library != "redis":
            raise ImproperlyConfigured(f"result_backend {self.address} is not a Redis URL: use redis://")


class ArbiterDialer(RedisDialer):
    """Makes links to the broker where that decides elections."""

    peer = Peer("arbiter")

    @property
    def is_sentinel(self) -> bool:
        """Whether it is Sentinels that say where the server is."""
        return self.settings.broker_url.startswith("sentinel:")

    @property
    def key_prefix(self) -> str:
        """What every key begins with, by the options."""
        prefix = self.settings.broker_transport_options.get("global_keyprefix") or ""
        if not isinstance(prefix, str):
            raise ImproperlyConfigured(
                f"global_keyprefix in {self.peer.options} is a {type(prefix).__name__}; give a string"
            )
        return prefix


class _OtherArbiterDialer(ArbiterDialer):
    """Makes links to what ``election_url`` names, where that is not the broker.

    The options of the broker hold, where Redis has them, and those in the URL above them. TLS is for
    the URL alone to say.
    """

    peer = Peer("arbiter", "election_url")

    def __init__(self, settings: Settings) -> None:
        place, options = _lifted(settings.election_url or "", "election_url", _LIFTED_OF_ARBITERS)
        super().__init__(
            replace(
                settings,
                broker_url=place,
                broker_transport_options={**settings.broker_transport_options, **options},
                broker_use_ssl=False,
            )
        )


def arbiter_dialer(settings: Settings) -> ArbiterDialer:
    """Return what makes links to who decides elections, a Redis."""
    dialer = (ArbiterDialer if settings.election_url is None else _OtherArbiterDialer)(settings)
    if dialer.library != "redis":
        raise ImproperlyConfigured(f"{dialer.peer.url} {dialer.address} is not a Redis URL: use redis://")
    return dialer


def _lifted(url: str, setting: str, names: frozenset[str]) -> tuple[str, dict[str, object]]:
    """Return a URL without the options in it that kombu takes beside it only, and those options.

    Celery: of a result store they may be in its URL, such as ``?socket_timeout=5``.
    """
    place, _, query = url.partition("?")
    given = dict(parse_qsl(query))
    lifted: dict[str, object] = {}
    for name in names & given.keys():
        value = given.pop(name)
        try:
            lifted[name] = _PARSERS[name](value) if name in _PARSERS else value
        except ValueError:
            raise ImproperlyConfigured(f"{name} in {setting} is {value!r}; give a number") from None
    if not lifted:
        return url, lifted
    return (f"{place}?{urlencode(given)}" if given else place), lifted


def batched(task_ids: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the ids in the portions that one command may carry."""
    for at in range(0, len(task_ids), _MAX_KEYS):
        yield tuple(task_ids[at : at + _MAX_KEYS])


class _Silent:
    """Stands where kombu would look whether the server is there: we see that by ourselves."""

    def ping(self) -> None:
        """Look for nothing."""


@cache
def _quiet(channel: type[Any]) -> type[Any]:
    """Return a kind of channel that makes no link of its own."""
    return type(channel.__name__, (channel,), {"client": _Silent()})
