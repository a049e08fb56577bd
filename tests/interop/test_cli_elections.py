"""``celeriac elect`` and ``celeriac leaders`` beside a real Redis and a worker of ours in its own process."""

import json
import subprocess
from collections.abc import Iterator

import pytest

from celeriac.app import Celeriac
from celeriac.node.election import elected_task_id
from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleriacWorker
from tests.program import own_environment, run_program
from tests.tidy.repository import ROOT

SHOP = ROOT / "examples" / "shop.py"
PRICE = '{"task": "shop.price", "args": [3, 2.5]}'


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    """A Redis that is trusted with elections."""
    with RedisServer({"appendonly": "yes", "appendfsync": "always"}) as server:
        yield server


@pytest.fixture
def app(redis: RedisServer) -> Iterator[Celeriac]:
    """An app of another process than the commands are."""
    app = Celeriac(redis.url, redis.url, hostname="web1@lab", environ={})
    yield app
    app.close()


def run(redis: RedisServer, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return run_program(*arguments, env=own_environment(CELERIAC_BROKER_URL=redis.url))


def test_a_worker_is_elected_and_its_task_is_run(
    redis: RedisServer, app: Celeriac, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CELERIAC_ELECTION_ACTIONS", "shop.*")
    command = ("elect", "task", "--action", PRICE, "--id", "e1", "--force", "--yes", "--json")

    with CeleriacWorker(SHOP, url=redis.url, backend=redis.url, hostname="shop@localhost"):
        first = run(redis, *command, "--timeout", "60")
        again = run(redis, *command, "--timeout", "0.5")
        value = app.AsyncResult(elected_task_id("e1")).get(timeout=60)

    assert (first.returncode, first.stderr) == (0, "")
    told = json.loads(first.stdout)
    assert (told["winner"], told["task"]) == ("shop@localhost", elected_task_id("e1"))
    assert json.loads(again.stdout) == told
    assert "Already decided: the action is done" in again.stderr
    assert value == 7.5


def test_who_leads_is_told_to_another_process(redis: RedisServer, app: Celeriac) -> None:
    with app.leadership("nightly-report") as leader:
        result = run(redis, "leaders", "--json")

    told = json.loads(result.stdout)
    assert result.returncode == 0, result.stderr
    assert told["level"] == "L3"
    assert [(row["name"], row["leader"], row["token"]) for row in told["leaders"]] == [
        ("nightly-report", "web1@lab", leader.token)
    ]


def test_a_redis_that_keeps_nothing_is_told_as_such() -> None:
    with RedisServer({"save": ""}) as forgetful:
        shown = run(forgetful, "leaders")
        result = run(forgetful, "elect", "tidy", "--force", "--yes", "--timeout", "0.2")

    assert shown.stderr == 'No leases held. A program acquires one with app.leadership("name")\n'
    assert shown.stdout.startswith("level L1, below election_min_level (L2), no leases granted: Redis stores")
    assert result.returncode == 69
    assert "level L1, below election_min_level (L2)" in result.stderr
