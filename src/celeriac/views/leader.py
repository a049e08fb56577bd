"""Rows for who leads what, and for who was elected."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from celeriac.model.election import Level, Record
from celeriac.node.term import lease_key
from celeriac.views.text import visible
from celeriac.views.unit import Seconds, Timestamp

__all__ = ["ElectionRow", "LeaderRow", "leader_rows", "level_text", "node_of"]

_NAME_CHARS: Final = 80
#: Of an owner, after the name of the node: the process and the boot.
_PARTS_AFTER_NODE: Final = 2


class LeaderRow(NamedTuple):
    """A lease that is held. Every text is safe to show; None is not known."""

    name: str
    #: The node that leads.
    leader: str
    #: When its lease was granted, as ISO 8601.
    since: Timestamp | None
    #: Higher than that of every leader before.
    token: int | None
    ttl: Seconds
    #: Until another may lead, if nothing is renewed.
    remaining: Seconds


class ElectionRow(NamedTuple):
    """An election, and who won it if that is known."""

    id: str
    topic: str
    mode: str
    #: The node that won.
    winner: str | None = None
    token: int | None = None
    #: The id of the task that the winner sends, where it sends one.
    task: str | None = None


def leader_rows(leases: Iterable[Record]) -> list[LeaderRow]:
    """Return who leads what, by name."""
    rows = [
        LeaderRow(
            name=visible(each.key.removeprefix(lease_key("")), _NAME_CHARS),
            leader=node_of(each.owner),
            since=_moment(each.since),
            token=each.token or None,
            ttl=each.ttl,
            remaining=round(each.remaining, 1),
        )
        for each in leases
    ]
    return sorted(rows)


def level_text(level: Level, reason: str, *, min_level: Level) -> str:
    """Return in one line how far the promise of one leader holds, and why."""
    mark = f", below election_min_level ({min_level.name}), no leases granted" if level < min_level else ""
    return f"level {level.name}{mark}: {visible(reason)}"


def node_of(owner: str) -> str:
    """Return the node that an owner is a boot of."""
    return visible(owner.rsplit(".", _PARTS_AFTER_NODE)[0], _NAME_CHARS)


def _moment(at: float) -> str | None:
    if not at:
        return None
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):  # whoever reaches the arbiter may write any number
        return None
