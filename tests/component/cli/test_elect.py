"""``celeriac elect`` holds an election, and says who won, or why nobody may have."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from celeriac.cli.root import app
from celeriac.errors import ConnectionLost
from celeriac.model.election import Level, Mode, RecordState
from celeriac.node.election import elected_task_id
from celeriac.programs.process import wait_until
from celeriac.worker.elector import election_key
from celeriac.worker.worker import Worker
from tests.component.cli.kit import HOSTILE, Cluster, heartbeat, is_harmless

REPORT = '{"task": "shop.report", "args": [7]}'
#: Nobody is counted, which takes a second and on a busy machine more.
QUIET = ("--id", "e1", "--force", "--yes", "--json")
#: Far more than an election takes, for a busy machine.
PATIENCE = 120.0
LONG = ("--timeout", str(PATIENCE))
#: Where nobody will win.
SHORT = ("--timeout", "0.2")


@contextmanager
def workers(cluster: Cluster, *names: str, **settings: Any) -> Iterator[list[Worker]]:
    """Run workers of ours, each as the app of a process of its own would."""
    with ExitStack() as stack:
        made = []
        for name in names:
            node = cluster.app(worker_mingle_timeout=0.05, **settings)
            worker = node.Worker(name, concurrency=1)
            worker.gossip.election_handlers["tidy"] = lambda _, mandate: mandate
            made.append(stack.enter_context(worker))
        yield made


def elections(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the arguments of the elections that were called."""
    requests = [msgspec.json.decode(body) for body in cluster.commands()]
    return [request["arguments"] for request in requests if request["method"] == "election"]


def is_done(cluster: Cluster, id_: str) -> bool:
    """Say whether what was elected for is done."""
    record = cluster.app().arbiter.read(election_key(id_))
    return record is not None and record.state is RecordState.DONE


def test_who_won_is_shown_with_its_token(cluster: Cluster) -> None:
    with workers(cluster, "a@1", "b@1"):
        result = cluster.run("elect", "tidy", "--id", "e1", "--yes", "--force", *LONG)

    assert result.exit_code == 0, result.stderr
    told = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert told["id"] == "e1"
    assert told["topic"] == "tidy"
    assert told["winner"] in ("a@1", "b@1")
    assert int(told["token"]) > 0
    assert "task" not in told


def test_the_winner_sends_the_task_under_the_id_that_is_shown(cluster: Cluster) -> None:
    with workers(cluster, "a@1", election_actions=("shop.*",)):
        result = cluster.run("elect", "task", "--action", REPORT, *QUIET, *LONG)

        told = json.loads(result.stdout)
        assert result.exit_code == 0, result.stderr
        assert told == {
            "id": "e1",
            "topic": "task",
            "mode": "once",
            "winner": "a@1",
            "token": told["token"],
            "task": elected_task_id("e1"),
        }
    sent = [message.headers["id"] for where, message in cluster.broker.published if where == ""]
    assert sent == [elected_task_id("e1")]


def test_an_election_without_an_id_gets_a_new_one_each_time(cluster: Cluster) -> None:
    results = [cluster.run("elect", "tidy", "--force", "-y", "--json", *SHORT) for _ in range(2)]

    first, second = [json.loads(result.stdout)["id"] for result in results]
    assert len(first) == 36
    assert first != second


def test_an_id_that_was_elected_for_before_says_who_won_then(cluster: Cluster) -> None:
    with workers(cluster, "a@1"):
        first = cluster.run("elect", "tidy", *QUIET, *LONG)
        # Who won is told before what it was elected for is done.
        assert wait_until(lambda: is_done(cluster, "e1"), patience=PATIENCE)

        again = cluster.run("elect", "tidy", *QUIET, "--timeout", "0.5")

    assert again.exit_code == 0
    assert json.loads(again.stdout) == json.loads(first.stdout)
    assert "Already decided: the action is done" in again.stderr
    assert "use another --id" in again.stderr


def test_an_arbiter_that_does_not_know_who_won_then_says_at_least_that_somebody_did(cluster: Cluster) -> None:
    arbiter = cluster.app().arbiter
    arbiter.claim("election/e1", "", ttl=30, mode=Mode.ONCE)

    result = cluster.run("elect", "tidy", *QUIET, *SHORT)

    assert result.exit_code == 0
    assert json.loads(result.stdout)["winner"] is None
    assert "Already decided: the action has not ended yet" in result.stderr


def test_a_new_id_was_never_decided_before(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celeriac.cli.elect.uuid4", lambda: "e1")
    cluster.app().arbiter.claim("election/e1", "a@1.7.boot", ttl=30, mode=Mode.ONCE)

    result = cluster.run("elect", "tidy", "--force", "--yes", "--json", *SHORT)

    assert result.exit_code == 0
    assert json.loads(result.stdout)["winner"] == "a@1"
    assert result.stderr == (
        "No worker reported in time. The arbiter has the winner: the action has not ended yet\n"
    )


def test_the_mode_is_told_to_the_workers(cluster: Cluster) -> None:
    cluster.run("elect", "tidy", "--mode", "takeover", "--force", "-y", "--id", "e1", *SHORT)

    assert elections(cluster) == [{"id": "e1", "topic": "tidy", "action": None, "mode": "takeover"}]


def test_the_action_is_told_as_it_is(cluster: Cluster) -> None:
    cluster.run("elect", "tidy", "--action", '{"room": [1, 2]}', "--force", "-y", "--id", "e1", *SHORT)

    assert elections(cluster) == [{"id": "e1", "topic": "tidy", "action": {"room": [1, 2]}}]


def test_a_task_is_told_as_celery_writes_it(cluster: Cluster) -> None:
    cluster.run("elect", "task", "--action", REPORT, "--force", "-y", "--id", "e1", *SHORT)

    (told,) = elections(cluster)
    assert told["action"] == {
        "task": "shop.report",
        "args": [7],
        "kwargs": {},
        "options": {"task_id": elected_task_id("e1")},
        "subtask_type": None,
        "immutable": False,
    }


# -- nobody wins


def test_when_nobody_says_so_the_likely_reasons_are_told(cluster: Cluster) -> None:
    with workers(cluster, "a@1"):
        result = cluster.run("elect", "task", "--action", REPORT, "--id", "e1", "-y", "--force", *SHORT)

    assert result.exit_code == 69
    assert result.stdout.splitlines()[:3] == ["id      e1", "topic   task", "mode    once"]
    assert "winner" not in result.stdout
    assert "No worker reported a win within 200 ms" in result.stderr
    assert "election_actions names the task" in result.stderr
    assert "a Celery worker may have won" in result.stderr


def test_a_topic_that_nobody_has_a_handler_for_is_a_likely_reason(cluster: Cluster) -> None:
    result = cluster.run("elect", "sweep", "--force", "-y", *SHORT)

    assert result.exit_code == 69
    assert "no handler for 'sweep'" in result.stderr


def test_a_level_that_is_too_low_is_told_with_its_reason(cluster: Cluster) -> None:
    cluster.broker.arbiter.level = Level.L1
    cluster.broker.arbiter.reason = "it is made of sand: build on rock"

    result = cluster.run("elect", "tidy", "--force", "-y", *SHORT)

    assert result.exit_code == 69
    assert "- level L1, below election_min_level (L2)" in result.stderr
    assert "it is made of sand: build on rock" in result.stderr


def test_an_arbiter_that_cannot_be_asked_is_told(cluster: Cluster) -> None:
    def away() -> bool:
        raise ConnectionLost("the arbiter is on holiday")

    cluster.broker.arbiter._is_up = away

    result = cluster.run("elect", "tidy", "--force", "-y", *SHORT)

    assert result.exit_code == 69
    assert "Cannot query the arbiter: the arbiter is on holiday" in result.stderr


@pytest.mark.parametrize(
    "fields",
    [
        {"eid": "another", "winner": "b@1", "inc": "b@1.1.x", "token": 3, "expires_in": 5},
        {"eid": "e1", "winner": "b@1", "inc": "b@1.1.x", "token": "three", "expires_in": 5},
        {"eid": "e1"},
    ],
)
def test_what_is_said_of_another_election_or_cannot_be_read_makes_nobody_win(
    cluster: Cluster, fields: dict[str, Any]
) -> None:
    said = {**heartbeat("b@1"), "type": "cluster-elected", **fields}
    cluster.add_node("b@1", election=lambda **_: cluster.publish(said))

    result = cluster.run("elect", "tidy", "--id", "e1", "--force", "-y", "--timeout", "0.5")

    assert result.exit_code == 69
    assert "winner" not in result.stdout


def test_a_winner_of_hostile_name_emits_no_escape_code(cluster: Cluster) -> None:
    said = {
        **heartbeat(HOSTILE),
        "type": "cluster-elected",
        "eid": "e1",
        "winner": HOSTILE,
        "inc": "b@1.1.x",
        "token": 3,
        "expires_in": 5,
    }
    cluster.add_node("b@1", election=lambda **_: cluster.publish(said))

    result = cluster.run("elect", "tidy", "--id", "e1", "--force", "-y", *LONG)

    assert result.exit_code == 0
    assert "winner  \\x1b[31m" in result.stdout
    assert is_harmless(result.output)


# -- what is refused


def test_an_election_among_too_few_of_celerys_is_refused_and_the_flag_is_named(cluster: Cluster) -> None:
    for name in ("a@1", "b@1"):
        cluster.add_speaker(heartbeat(name), hostname=name)

    result = cluster.run("elect", "tidy", "--yes")

    assert result.exit_code == 2
    assert "2 answered" in result.stderr
    assert "--force" in result.stderr
    assert elections(cluster) == []


def test_an_election_that_nobody_would_take_part_in_is_refused(cluster: Cluster) -> None:
    cluster.add_node("a@1")

    result = cluster.run("elect", "tidy", "--yes")

    assert result.exit_code == 2
    assert "no worker with gossip answered" in result.stderr
    assert elections(cluster) == []


def test_an_election_that_no_worker_may_act_in_is_refused_with_the_reason(cluster: Cluster) -> None:
    with workers(cluster, "a@1"):
        result = cluster.run("elect", "task", "--action", REPORT, "--id", "e1", "--yes")

    assert result.exit_code == 2
    assert "task shop.report is not listed in election_actions (a@1)" in result.stderr


def test_an_election_among_enough_of_celerys_is_held(cluster: Cluster) -> None:
    for name in ("a@1", "b@1", "c@1"):
        cluster.add_speaker(heartbeat(name), hostname=name)

    cluster.run("elect", "tidy", "--yes", "--id", "e1", *SHORT)

    assert [each["id"] for each in elections(cluster)] == ["e1"]


def test_without_a_terminal_it_is_refused_and_the_flag_is_named(cluster: Cluster) -> None:
    result = cluster.run("elect", "tidy", "--id", "e1")

    assert result.exit_code == 2
    assert result.stderr == (
        "error: Cannot ask before it would hold election e1 on tidy: there is no terminal. "
        "Confirm with --yes\n"
    )
    assert cluster.commands() == []


def test_who_does_not_say_yes_holds_no_election(cluster: Cluster) -> None:
    cluster.add_node("a@1")

    result = cluster.run("elect", "tidy", "--id", "e1", is_attended=True, answer="n\n")

    assert result.exit_code == 1
    assert "About to hold election e1 on tidy, on 1 node: a@1" in result.stderr
    assert elections(cluster) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["tidy", "--action", "{"], "Invalid --action: not JSON"),
        (["task"], "Topic task needs the task: --action"),
        (["task", "--action", "[]"], "Topic task needs the task: --action"),
        (["task", "--action", '{"args": [1]}'], "a signature is a dict of task"),
        (
            ["task", "--action", '{"task": "shop.report", "arg": [7]}'],
            "Invalid --action: unknown key 'arg'",
        ),
        (["tidy", "--id", "x" * 181], "an election id has up to 180 printable characters"),
        (["tidy", "--id", ""], "an election id has up to 180 printable characters"),
        (
            ["tidy", "--action", json.dumps("x" * 20_000)],
            "bytes, more than the limit of 16,384: store it elsewhere and send a",
        ),
        (["tidy", "--mode", "lease"], "--mode"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(
    cluster: Cluster, arguments: list[str], told: str
) -> None:
    result = cluster.run("elect", *arguments, "--yes", "--force")

    assert result.exit_code == 2
    assert told in result.stderr
    assert cluster.commands() == []


def test_a_broker_that_is_away_is_told(cluster: Cluster) -> None:
    cluster.broker.stop()

    result = cluster.run("elect", "tidy", "--yes", "--force")

    assert result.exit_code == 69
    assert result.stderr.startswith("error: ")


def test_control_has_no_second_way_to_hold_an_election() -> None:
    result = CliRunner().invoke(app, ["control", "election", "e1", "tidy"], obj=None)

    assert result.exit_code == 2
    assert "No such command 'election'" in result.output
