"""How far a Redis can be trusted, by what it tells of itself."""

from typing import Any

import pytest

from celeriac.model.election import Level
from celeriac.transport.redis_arbiter_level import standing_of

ALONE = [
    b"# Replication\r\nrole:master\r\nconnected_slaves:0\r\n",
    b"# Cluster\r\ncluster_enabled:0\r\n",
    b"# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n",
    b"# Persistence\r\naof_enabled:1\r\n",
]
PAIRS: list[Any] = [[b"save", b""], [b"appendfsync", b"always"], [b"no-appendfsync-on-rewrite", b"no"]]


@pytest.mark.parametrize(
    "settings", [PAIRS, [{name: value} for name, value in PAIRS]], ids=["older", "newer"]
)
def test_settings_are_read_in_each_protocol_of_redis(settings: list[Any]) -> None:
    standing = standing_of([*ALONE, *settings], is_sentinel=False)

    assert standing.level is Level.L3


@pytest.mark.parametrize("unknown", [None, [], {}])
@pytest.mark.parametrize("place", [1, 2])
def test_a_setting_that_is_not_told_counts_as_worse(unknown: object, place: int) -> None:
    settings = [unknown if number == place else pair for number, pair in enumerate(PAIRS)]

    standing = standing_of([*ALONE, *settings], is_sentinel=False)

    assert standing.level is Level.L2


@pytest.mark.parametrize("place", range(4))
def test_where_a_part_of_what_is_asked_is_not_told_nothing_is_promised(place: int) -> None:
    infos = [None if number == place else info for number, info in enumerate(ALONE)]
    empty = [b"" if number == place else info for number, info in enumerate(ALONE)]

    refused = standing_of([*infos, *PAIRS], is_sentinel=False)
    silent = standing_of([*empty, *PAIRS], is_sentinel=False)

    assert refused.level is Level.L1
    assert silent.level is Level.L1


def test_through_sentinel_nothing_is_promised() -> None:
    standing = standing_of([*ALONE, *PAIRS], is_sentinel=True)

    assert standing.level is Level.L1
