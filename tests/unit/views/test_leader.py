"""What an arbiter holds becomes rows."""

from typing import Any

import pytest

from celeriac.model.election import Level, Mode, Record, RecordState
from celeriac.views.leader import LeaderRow, leader_rows, level_text, node_of

HOSTILE = "\x1b[31m\r\n\u202ex"


def lease(
    key: str = "leader/tidy", owner: str = "celery@web1.lab.19036.3f6c6d526d5b", **fields: Any
) -> Record:
    usual = Record(key, owner, 7, Mode.LEASE, RecordState.HELD, 15.0, 12.3456, 1_794_703_817.25)
    return usual._replace(**fields)


def test_a_lease_is_shown_with_who_holds_it_and_since_when() -> None:
    rows = leader_rows([lease()])

    assert rows == [
        LeaderRow("tidy", "celery@web1.lab", "2026-11-15T00:50:17+00:00", 7, 15.0, 12.3),
    ]


def test_leases_are_shown_by_name() -> None:
    rows = leader_rows([lease("leader/b"), lease("leader/a"), lease("other/c")])

    assert [row.name for row in rows] == ["a", "b", "other/c"]


def test_what_an_arbiter_does_not_tell_is_not_shown() -> None:
    (row,) = leader_rows([lease(token=0, since=0.0)])

    assert (row.token, row.since) == (None, None)


@pytest.mark.parametrize("since", [1e300, float("inf"), -1e300])
def test_a_moment_that_cannot_be_is_not_shown(since: float) -> None:
    (row,) = leader_rows([lease(since=since)])

    assert row.since is None


def test_nothing_that_somebody_wrote_moves_a_cursor() -> None:
    (row,) = leader_rows([lease(f"leader/{HOSTILE}", f"{HOSTILE}.7.boot")])

    assert row.name == row.leader == "\\x1b[31m\\r\\n\\u202ex"


@pytest.mark.parametrize(
    ("owner", "node"),
    [("celery@web1.lab.7.boot", "celery@web1.lab"), ("gen7@web.7.boot", "gen7@web"), ("odd", "odd")],
)
def test_an_owner_is_a_boot_of_a_node(owner: str, node: str) -> None:
    assert node_of(owner) == node


@pytest.mark.parametrize(
    ("level", "text"),
    [
        (Level.L3, "level L3: on rock"),
        (Level.L2, "level L2: on rock"),
        (Level.L1, "level L1, below election_min_level (L2), no leases granted: on rock"),
    ],
)
def test_a_level_is_marked_if_it_is_below_the_least(level: Level, text: str) -> None:
    assert level_text(level, "on rock", min_level=Level.L2) == text
