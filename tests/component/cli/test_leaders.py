"""``celeriac leaders`` says who leads what, and how far that can be relied on."""

import json

from celeriac.model.election import Level, Mode
from tests.component.cli.kit import HOSTILE, Cluster, is_harmless, lines


def test_who_leads_what_is_shown_with_the_level_below(cluster: Cluster) -> None:
    leader = cluster.app(hostname="web1@lab").leadership("nightly-report", ttl=30)

    with leader:
        result = cluster.run("leaders")

    head, row, level = lines(result.stdout)
    assert result.exit_code == 0
    assert head.split() == ["NAME", "LEADER", "SINCE", "TOKEN", "TTL", "REMAINING"]
    assert row.split()[:2] == ["nightly-report", "web1@lab"]
    assert f" {leader.token}  30 s " in row
    assert level == "level L3: decided within one process"


def test_the_same_rows_can_be_had_as_json(cluster: Cluster) -> None:
    with cluster.app(hostname="web1@lab").leadership("nightly-report", ttl=30) as leader:
        result = cluster.run("leaders", "--json")

    told = json.loads(result.stdout)
    (row,) = told.pop("leaders")
    assert told == {"level": "L3", "min_level": "L2", "reason": "decided within one process"}
    assert (row["name"], row["leader"], row["token"], row["ttl"]) == (
        "nightly-report",
        "web1@lab",
        leader.token,
        30.0,
    )
    assert row["since"].endswith("+00:00")
    assert 0 < row["remaining"] <= 30


def test_leaders_are_shown_by_name(cluster: Cluster) -> None:
    names = ["tidy", "beat", "nightly-report"]
    leaders = [cluster.app().leadership(name) for name in names]
    for each in leaders:
        each.elect()

    result = cluster.run("leaders", "--json")

    assert [row["name"] for row in json.loads(result.stdout)["leaders"]] == sorted(names)
    for each in leaders:
        each.resign()


def test_when_nobody_leads_it_says_so(cluster: Cluster) -> None:
    with cluster.app().leadership("nightly-report"):
        pass

    result = cluster.run("leaders")

    assert result.exit_code == 0
    assert result.stdout == "level L3: decided within one process\n"
    assert result.stderr == 'No leases held. A program acquires one with app.leadership("name")\n'


def test_when_nobody_leads_json_has_no_leaders(cluster: Cluster) -> None:
    result = cluster.run("leaders", "--json")

    assert json.loads(result.stdout)["leaders"] == []
    assert result.stderr == ""


def test_what_was_elected_once_leads_nothing(cluster: Cluster) -> None:
    arbiter = cluster.app().arbiter
    arbiter.claim("election/e1", "a@1.7.boot", ttl=30, mode=Mode.ONCE)

    result = cluster.run("leaders", "--json")

    assert json.loads(result.stdout)["leaders"] == []


def test_a_level_that_is_too_low_is_marked(cluster: Cluster) -> None:
    cluster.broker.arbiter.level = Level.L1
    cluster.broker.arbiter.reason = "it is made of sand: build on rock"

    result = cluster.run("leaders")

    assert result.exit_code == 0
    assert result.stdout == (
        "level L1, below election_min_level (L2), no leases granted: it is made of sand: build on rock\n"
    )


def test_a_leader_of_hostile_name_emits_no_escape_code(cluster: Cluster) -> None:
    cluster.app().arbiter.claim("leader/x", f"{HOSTILE}.7.boot", ttl=30, mode=Mode.LEASE)

    result = cluster.run("leaders")

    assert "\\x1b[31m" in result.stdout
    assert is_harmless(result.output)


def test_an_arbiter_that_is_away_is_told(cluster: Cluster) -> None:
    cluster.broker.stop()

    result = cluster.run("leaders")

    assert result.exit_code == 69
    assert result.stderr.startswith("error: ")


def test_an_arbiter_of_its_own_that_is_away_is_named_by_its_setting(cluster: Cluster) -> None:
    url = "redis://:a-password@127.0.0.1:1/0"

    result = cluster.run("leaders", assemble=lambda **_: cluster.app(election_url=url))

    assert result.exit_code == 69
    assert "redis://:**@127.0.0.1:1/0" in result.stderr
    assert result.stderr.endswith("Start it, or name another with the setting election_url\n")
    assert "a-password" not in result.stderr
