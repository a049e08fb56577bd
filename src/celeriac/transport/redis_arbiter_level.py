"""How far a Redis can be trusted with who was elected, by how it is set up."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from celeriac.model.election import Level
from celeriac.transport.redis_link import Command

__all__ = ["QUESTIONS", "Standing", "standing_of"]

#: What is asked, in one go. Servers that somebody else runs often refuse CONFIG.
QUESTIONS: Final[tuple[Command, ...]] = (
    ("INFO", "replication"),
    ("INFO", "cluster"),
    ("INFO", "memory"),
    ("INFO", "persistence"),
    ("CONFIG", "GET", "save"),
    ("CONFIG", "GET", "appendfsync"),
    ("CONFIG", "GET", "no-appendfsync-on-rewrite"),
)
#: How many of them tell of the server, and not of its settings.
_INFOS: Final = 4


class Standing(NamedTuple):
    """A level, and why."""

    level: Level
    reason: str


def standing_of(answers: Sequence[Any], *, is_sentinel: bool) -> Standing:
    """Return the level by the answers to :data:`QUESTIONS`, None for one that was refused."""
    infos = answers[:_INFOS]
    if any(info is None for info in infos):
        return Standing(Level.L1, "Redis settings are not readable: allow the user INFO and CONFIG GET")
    told = _lines(infos)
    loss = _reason_to_lose(told, is_sentinel=is_sentinel)
    if loss:
        return Standing(Level.L1, loss)
    settings = [None if answer is None else _setting(answer) for answer in answers[_INFOS:]]
    return _by_disk(told.get("aof_enabled") == "1", *settings)


def _reason_to_lose(told: dict[str, str], *, is_sentinel: bool) -> str:
    """Return why a grant can vanish while the disk lives; empty if it cannot."""
    single = "name a single Redis in election_url"
    if is_sentinel:
        return f"Sentinel can promote a replica that lacks the last grants: {single}"
    if told.get("cluster_enabled") != "0":
        return f"Redis Cluster can promote a replica that lacks the last grants: {single}"
    if told.get("role") != "master":
        return f"Redis is a replica, and can lack the last grants: {single} that is a primary"
    if told.get("connected_slaves") != "0":
        return f"Redis has replicas, and a promoted replica can lack the last grants: {single}"
    if told.get("maxmemory") != "0" and told.get("maxmemory_policy") != "noeviction":
        return (
            "Redis may evict grants when memory is short: set maxmemory-policy to noeviction, or name "
            "another Redis in election_url"
        )
    return ""


def _by_disk(has_log: bool, save: str | None, fsync: str | None, is_lax: str | None) -> Standing:
    """Return what is true of a single Redis: a restart brings back what is on its disk."""
    if not has_log:
        return _without_log(save)
    if fsync is None or is_lax is None:
        return Standing(
            Level.L2,
            "Redis AOF with an unknown fsync policy: allow the user CONFIG GET, and set appendfsync to "
            "always",
        )
    if fsync != "always":
        return Standing(
            Level.L2,
            (
                "Redis AOF without `appendfsync always`: a crash can lose the last second of writes; set "
                "appendfsync to always"
            ),
        )
    if is_lax != "no":
        return Standing(
            Level.L2,
            "Redis AOF does not fsync during a rewrite: set no-appendfsync-on-rewrite to no",
        )
    return Standing(Level.L3, "a single Redis writes each grant to disk before it answers")


def _without_log(save: str | None) -> Standing:
    advice = "set appendonly to yes and appendfsync to always"
    if save is None:
        return Standing(
            Level.L1,
            f"Redis has no AOF, and its snapshot settings are not readable: {advice}, or allow the user "
            "CONFIG GET",
        )
    if not save:
        return Standing(Level.L1, f"Redis stores nothing on disk, so a restart loses the leaders: {advice}")
    return Standing(
        Level.L2, f"Redis writes periodic snapshots, so a crash loses the grants since the last one: {advice}"
    )


def _lines(infos: Sequence[bytes]) -> dict[str, str]:
    told = {}
    for line in b"\n".join(infos).decode(errors="replace").splitlines():
        name, _, value = line.strip().partition(":")
        told[name] = value
    return told


def _setting(answer: Mapping[bytes, bytes] | Sequence[bytes]) -> str | None:
    """Return a setting; None if the server has none of that name."""
    # Names and values in turn, where the link speaks the older protocol.
    values = list(answer.values()) if isinstance(answer, Mapping) else answer[1::2]
    return values[0].decode(errors="replace") if values else None
