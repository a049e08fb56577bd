"""What a broker says of itself: product and version, its clock, and which of our questions it refuses."""

import re
from collections.abc import Mapping, Sequence
from time import time
from typing import Final, NamedTuple

from celeriac.config import Settings
from celeriac.transport.base import Connection
from celeriac.transport.kombu_link import KombuLink
from celeriac.transport.redis_link import Command, RedisLink

__all__ = ["BrokerReport", "read_broker"]

_TIMEOUT: Final = 5.0
#: How INFO names a database that has keys.
_DATABASE: Final = re.compile(r"db(\d{1,5})")
#: Databases that are looked into: as many as a Redis has that nobody has set up.
_MOST_DATABASES: Final = 16


class BrokerReport(NamedTuple):
    """What was learnt; None and empty texts are what the broker does not say."""

    driver: str
    version: str = ""
    #: Seconds that our clock is ahead of the server's.
    skew: float | None = None
    #: Of Redis, whether it has a log of writes.
    has_log: bool | None = None
    #: Of Redis, other databases in which workers declared the queues of their commands.
    other_databases: tuple[int, ...] = ()
    #: Uses of it that were refused.
    refused: tuple[str, ...] = ()


def read_broker(connection: Connection) -> BrokerReport:
    """Ask the broker of a connection. Raises NetworkError if it cannot be reached or refuses our user."""
    if connection.driver == "redis":
        return _read_redis(connection.settings)
    connection.open()
    said = connection.server_properties() if isinstance(connection, KombuLink) else {}
    version = f"{said.get('product', '')} {said.get('version', '')}".strip()
    return BrokerReport(connection.driver, version)


def _read_redis(settings: Settings) -> BrokerReport:
    from celeriac.transport.redis_dial import RedisDialer  # noqa: PLC0415 - redis-py takes long to load

    uses: Mapping[str, Command] = {
        "INFO": ("INFO",),
        "TIME": ("TIME",),
        "CONFIG GET": ("CONFIG", "GET", "appendfsync"),
        "LLEN": ("LLEN", settings.task_default_queue),
        "EVAL": ("EVAL", "return 1", 0),
    }
    dialer = RedisDialer(settings)
    try:
        link = dialer.dial(_TIMEOUT)
        try:
            before = time()
            answers = dict(zip(uses, link.attempt_all([*uses.values()], timeout=_TIMEOUT), strict=True))
            asked_at = (before + time()) / 2
            info = _info(answers["INFO"])
            databases = _other_databases(link, info, settings)
        finally:
            link.close()
    finally:
        dialer.close()
    name = "Valkey" if "valkey_version" in info else "Redis"
    number = info.get("valkey_version") or info.get("redis_version", "")
    return BrokerReport(
        "redis",
        version=f"{name} {number}".strip(),
        skew=_skew(answers["TIME"], asked_at),
        has_log={"0": False, "1": True}.get(info.get("aof_enabled", "")),
        other_databases=databases,
        refused=tuple(use for use, answer in answers.items() if answer is None),
    )


def _info(answer: bytes | None) -> dict[str, str]:
    lines = (answer or b"").decode(errors="replace").splitlines()
    return {name: value for name, colon, value in (line.partition(":") for line in lines) if colon}


def _skew(answer: Sequence[bytes] | None, asked_at: float) -> float | None:
    try:
        return None if answer is None else asked_at - int(answer[0]) - int(answer[1]) / 1e6
    except (ValueError, IndexError):
        return None


def _other_databases(link: RedisLink, info: Mapping[str, str], settings: Settings) -> tuple[int, ...]:
    own = _database(settings)
    if own is None:
        return ()
    matches = [_DATABASE.fullmatch(name) for name in info]
    numbers = [int(each[1]) for each in matches if each is not None]
    others = [number for number in numbers if number != own][:_MOST_DATABASES]
    prefix = settings.broker_transport_options.get("global_keyprefix") or ""
    # Celery: a worker that lives has the queue of its commands bound; the last one removes the binding.
    key = f"{prefix}_kombu.binding.{settings.control_exchange}.pidbox"
    found = []
    for number in others:
        is_selected, is_there = link.attempt_all([("SELECT", number), ("EXISTS", key)], timeout=_TIMEOUT)
        if is_selected is not None and is_there:
            found.append(number)
    return tuple(found)


def _database(settings: Settings) -> int | None:
    """Return the database that the URL names; None where something else does."""
    address = settings.broker_url.partition("://")[2].partition("?")[0]
    number = address.partition("/")[2] or "0"
    return int(number) if number.isdecimal() else None
