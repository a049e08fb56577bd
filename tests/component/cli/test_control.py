"""``celeriac control`` asks before it changes anything, and tells what each node answered."""

import json
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from celeriac.cli.root import app
from tests.component.cli.kit import HOSTILE, Cluster, is_harmless

#: Long enough for a busy machine, as nobody knows who will not answer.
QUICK = ("--timeout", "3")


def ok(**_: object) -> object:
    return {"ok": "as you wish"}


def sent_arguments(cluster: Cluster, command: str) -> dict[str, Any]:
    """Return the arguments of the last command of a name."""
    requests = [msgspec.json.decode(body) for body in cluster.commands()]
    arguments: dict[str, Any] = next(
        request["arguments"] for request in reversed(requests) if request["method"] == command
    )
    return arguments


def test_with_yes_a_command_is_sent_and_answers_are_told(cluster: Cluster) -> None:
    cluster.add_node("a@1", revoke=ok)
    cluster.add_node("b@1", revoke=ok)

    result = cluster.run("control", "revoke", "t1", "t2", "--yes", *QUICK)

    assert result.exit_code == 0
    assert result.stdout == "a@1: as you wish\nb@1: as you wish\n"
    assert sent_arguments(cluster, "revoke") == {
        "task_id": ["t1", "t2"],
        "terminate": False,
        "signal": "SIGTERM",
    }


def test_somebody_at_a_terminal_is_told_whom_it_concerns_and_asked(cluster: Cluster) -> None:
    cluster.add_node("a@1", revoke=ok)
    cluster.add_node("b@1", revoke=ok)

    result = cluster.run("control", "revoke", "t1", "--terminate", *QUICK, is_attended=True, answer="y\n")

    assert result.exit_code == 0
    assert (
        "About to revoke task t1, and terminate those that run with SIGTERM, on 2 nodes: a@1, b@1\n"
        in result.stderr
    )
    assert "Continue? [y/N]" in result.stderr
    assert result.stdout == "a@1: as you wish\nb@1: as you wish\n"


def test_who_does_not_say_yes_sends_nothing(cluster: Cluster) -> None:
    cluster.add_node("a@1", revoke=ok)

    result = cluster.run("control", "revoke", "t1", *QUICK, is_attended=True, answer="n\n")

    assert result.exit_code == 1
    assert "nothing was sent" in result.stderr
    assert not cluster.has_sent("revoke")


def test_who_says_nothing_at_all_sends_nothing(cluster: Cluster) -> None:
    cluster.add_node("a@1", revoke=ok)

    result = cluster.run("control", "revoke", "t1", *QUICK, is_attended=True, answer="")

    assert result.exit_code == 1
    assert not cluster.has_sent("revoke")


def test_without_a_terminal_a_command_is_refused_and_the_flag_is_named(cluster: Cluster) -> None:
    result = cluster.run("control", "shutdown")

    assert result.exit_code == 2
    assert result.stderr == (
        "error: Cannot ask before it would shut down the workers: there is no terminal. Confirm with --yes\n"
    )
    assert cluster.commands() == []


def test_when_nobody_is_there_nobody_is_asked(cluster: Cluster) -> None:
    result = cluster.run("control", "revoke", "t1", *QUICK, is_attended=True, answer="y\n")

    assert result.exit_code == 69
    assert "no node answered of all nodes, so nothing was sent" in result.stderr
    assert not cluster.has_sent("revoke")


def test_a_node_that_cannot_do_it_fails_the_command(cluster: Cluster) -> None:
    cluster.add_node("a@1", rate_limit=ok)
    cluster.add_node("b@1", rate_limit=lambda **_: {"error": HOSTILE})

    result = cluster.run("control", "rate_limit", "shop.pay", "10/m", "-y", *QUICK)

    assert result.exit_code == 1
    assert result.stdout.startswith("a@1: as you wish\nb@1: error: \\x1b[31m")
    assert is_harmless(result.output)


def test_a_node_that_refuses_is_named_and_fails_the_command(cluster: Cluster) -> None:
    cluster.add_node("a@1", pool_grow=ok)
    cluster.add_node("b@1")

    result = cluster.run("control", "pool_grow", "-y", *QUICK)

    assert result.exit_code == 1
    assert "b@1: error: unknown command 'pool_grow'" in result.stdout


def test_a_node_that_refuses_a_command_without_a_reply_is_named_too(cluster: Cluster) -> None:
    cluster.add_node("a@1", shutdown=lambda: None)
    cluster.add_node("b@1")

    result = cluster.run("control", "shutdown", "-y", *QUICK)

    assert result.exit_code == 1
    assert result.stdout.startswith("b@1: error: unknown command 'shutdown'")
    assert "a@1" not in result.output


@pytest.mark.parametrize("options", [{"answer": "y\n", "is_attended": True}, {}])
def test_a_node_without_tasks_spoils_no_command_to_all_workers(
    cluster: Cluster, options: dict[str, Any]
) -> None:
    cluster.add_node("a@1", enable_events=ok)
    cluster.add_recorder("b@1")

    result = cluster.run("control", "enable_events", *([] if options else ["-y"]), *QUICK, **options)

    assert result.exit_code == 0
    assert result.stdout.endswith("a@1: as you wish\n")
    assert "b@1" not in result.output


def test_a_named_node_that_does_not_answer_is_told(cluster: Cluster) -> None:
    cluster.add_node("a@1", pool_grow=ok)

    result = cluster.run("control", "pool_grow", "2", "-y", "-d", "a@1,gone@1", *QUICK)

    assert result.exit_code == 1
    assert "no answer from gone@1: the command may have run there or not" in result.stderr


def test_answers_can_be_had_as_json(cluster: Cluster) -> None:
    cluster.add_node("a@1", pool_shrink=ok)

    result = cluster.run("control", "pool_shrink", "-y", "--json", *QUICK)

    assert json.loads(result.stdout) == {"a@1": {"ok": "as you wish"}}


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        (["revoke_by_stamped_headers", "a=1", "a=2", "b=x=y"], {"headers": {"a": ["1", "2"], "b": ["x=y"]}}),
        (["rate_limit", "shop.pay", "10/m"], {"task_name": "shop.pay", "rate_limit": "10/m"}),
        (["time_limit", "shop.pay", "--soft", "5"], {"task_name": "shop.pay", "soft": 5.0, "hard": None}),
        (["pool_grow", "3"], {"n": 3}),
        (["pool_shrink"], {"n": 1}),
        (["pool_restart", "--module", "shop", "--reload"], {"modules": ["shop"], "reload": True}),
        (["autoscale", "9", "3"], {"max": 9, "min": 3}),
        (["add_consumer", "fast", "--routing-key", "k"], {"queue": "fast", "routing_key": "k"}),
        (["cancel_consumer", "fast"], {"queue": "fast"}),
        (["enable_events"], {}),
        (["disable_events"], {}),
        (["heartbeat"], {}),
        (["shutdown"], {}),
    ],
)
def test_every_command_is_sent_with_its_arguments(
    cluster: Cluster, arguments: list[str], sent: dict[str, object]
) -> None:
    cluster.run("control", *arguments, "--yes", "--timeout", "0")

    assert sent.items() <= sent_arguments(cluster, arguments[0]).items()


def test_a_command_for_some_nodes_goes_to_those_alone(cluster: Cluster) -> None:
    cluster.run("control", "shutdown", "-y", "-d", "a@1")
    cluster.run("control", "shutdown", "-y", "--pattern", "web*")

    first, second = [msgspec.json.decode(body) for body in cluster.commands()]
    assert first["destination"] == ["a@1"]
    assert (second["pattern"], second["matcher"]) == ("web*", "glob")


def test_a_command_without_a_reply_says_whom_it_was_sent_to(cluster: Cluster) -> None:
    result = cluster.run("control", "shutdown", "-y", "-d", "a@1")

    assert result.exit_code == 0
    assert result.stderr == "sent to a@1; nodes do not reply to this command\n"


def test_a_heartbeat_changes_nothing_so_nobody_is_asked(cluster: Cluster) -> None:
    cluster.add_node("a@1", heartbeat=lambda: None)

    result = cluster.run("control", "heartbeat", *QUICK)

    assert result.exit_code == 0
    assert result.stdout == "a@1: done\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["revoke_by_stamped_headers", "novalue"], "Use KEY=VALUE"),
        (["shutdown", "--pattern", "[", "--matcher", "pcre"], "the pattern is invalid"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(
    cluster: Cluster, arguments: list[str], told: str
) -> None:
    result = cluster.run("control", *arguments, "--yes")

    assert result.exit_code == 2
    assert told in result.stderr
    assert cluster.commands() == []


def test_the_broker_may_be_named_before_and_after_the_command() -> None:
    places = [
        ["-b", "nosuch://x", "control", "heartbeat"],
        ["control", "-b", "nosuch://x", "heartbeat"],
        ["control", "heartbeat", "-b", "nosuch://x"],
    ]

    results = [CliRunner().invoke(app, arguments) for arguments in places]

    assert [result.exit_code for result in results] == [78, 78, 78]
    assert all("nosuch://x" in result.stderr for result in results)
