"""``celeriac inspect`` and ``celeriac status`` tell who answered, and who did not."""

import json

import pytest
from typer.main import get_command

from celeriac.cli.inspect import inspect
from celeriac.node.inspect import Inspect
from tests.component.cli.kit import HOSTILE, Cluster, heartbeat, is_harmless, lines

METHODS = sorted(get_command(inspect).commands)  # type: ignore[attr-defined]
#: Long enough for a busy machine, as nobody knows who will not answer.
QUICK = ("--timeout", "3")


def test_each_node_is_told_with_what_it_answered(cluster: Cluster) -> None:
    cluster.add_node("b@1")
    cluster.add_node("a@1")

    result = cluster.run("inspect", "ping", *QUICK)

    assert result.exit_code == 0
    assert result.stdout == "a@1:\n  pong\nb@1:\n  pong\n"
    assert result.stderr == ""


def test_answers_can_be_had_as_json(cluster: Cluster) -> None:
    cluster.add_node("a@1")

    result = cluster.run("inspect", "ping", "--json", *QUICK)

    assert json.loads(result.stdout) == {"a@1": {"ok": "pong"}}


def test_only_the_nodes_that_are_named_are_asked(cluster: Cluster) -> None:
    for name in ("a@1", "b@1", "c@1"):
        cluster.add_node(name)

    by_name = cluster.run("inspect", "ping", "--json", "-d", "a@1,b@1", "--destination", "c@1", *QUICK)
    by_pattern = cluster.run("inspect", "ping", "--json", "--pattern", "b*", *QUICK)
    by_expression = cluster.run(
        "inspect", "ping", "--json", "--pattern", "[bc]@1", "--matcher", "pcre", *QUICK
    )

    assert set(json.loads(by_name.stdout)) == {"a@1", "b@1", "c@1"}
    assert set(json.loads(by_pattern.stdout)) == {"b@1"}
    assert set(json.loads(by_expression.stdout)) == {"b@1", "c@1"}


def test_who_is_silent_or_absent_is_told_on_standard_error(cluster: Cluster) -> None:
    cluster.add_node("a@1")
    cluster.add_silent_node("quiet@1")

    result = cluster.run("inspect", "ping", "-d", "a@1,quiet@1,gone@1", *QUICK)

    assert result.exit_code == 1
    assert result.stdout == "a@1:\n  pong\n"
    assert lines(result.stderr) == [
        "silent: quiet@1 (sends events, but does not answer; try a longer --timeout)",
        "absent: gone@1 (named, but neither answers nor sends events)",
    ]


def test_when_nobody_answers_the_code_says_unavailable(cluster: Cluster) -> None:
    result = cluster.run("inspect", "ping", *QUICK)

    assert result.exit_code == 69
    assert result.stderr == "no node answered. Is a worker running on this broker? celeriac doctor checks\n"


def test_a_node_that_reports_an_error_fails_the_command(cluster: Cluster) -> None:
    def fail(**_: object) -> object:
        return {"error": HOSTILE}

    cluster.add_node("a@1", active=fail)

    result = cluster.run("inspect", "active", *QUICK)

    assert result.exit_code == 1
    assert result.stderr.startswith("error on a@1: \\x1b[31m")
    assert is_harmless(result.output)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_hostile_text_in_replies_emits_no_escape_code(cluster: Cluster, options: list[str]) -> None:
    def answer(**_: object) -> object:
        return [{"id": HOSTILE, "name": HOSTILE, HOSTILE: HOSTILE}, {HOSTILE: [HOSTILE]}, HOSTILE]

    cluster.add_node("a@1", active=answer)

    result = cluster.run("inspect", "active", *QUICK, *options)

    assert result.exit_code == 0
    assert is_harmless(result.output)


def test_ids_are_passed_on_to_query_task(cluster: Cluster) -> None:
    cluster.add_node("a@1", query_task=lambda ids: {task: ["active", {}] for task in ids})

    result = cluster.run("inspect", "query_task", "t1", "t2", "--json", *QUICK)

    assert set(json.loads(result.stdout)["a@1"]) == {"t1", "t2"}


def test_query_task_without_an_id_says_what_is_missing(cluster: Cluster) -> None:
    result = cluster.run("inspect", "query-task")

    assert result.exit_code == 2
    assert "Missing argument 'ID'" in result.stderr


def test_an_argument_too_many_is_not_ignored(cluster: Cluster) -> None:
    result = cluster.run("inspect", "ping", "w1")

    assert result.exit_code == 2
    assert "unexpected extra argument" in result.stderr
    assert cluster.commands() == []


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_one_that_nodes_can_be_asked(method: str) -> None:
    assert callable(getattr(Inspect, method.replace("-", "_")))


@pytest.mark.parametrize("method", sorted({*METHODS} - {"query-task"}))
def test_every_method_is_sent_under_its_name(cluster: Cluster, method: str) -> None:
    cluster.run("inspect", method, "--timeout", "0")

    assert cluster.has_sent(method.replace("-", "_"))


def test_methods_have_the_names_of_celery_too(cluster: Cluster) -> None:
    cluster.run("inspect", "active_queues", "--timeout", "0")
    cluster.run("control", "enable_events", "--yes", "--timeout", "0")
    cluster.run("control", "disable-events", "--yes", "--timeout", "0")

    assert [cluster.has_sent(name) for name in ("active_queues", "enable_events", "disable_events")] == [
        True
    ] * 3


def test_attributes_are_passed_on_to_registered(cluster: Cluster) -> None:
    cluster.add_node("a@1", registered=lambda **given: given["taskinfoitems"])

    result = cluster.run("inspect", "registered", "rate_limit", "--json", *QUICK)

    assert json.loads(result.stdout) == {"a@1": ["rate_limit"]}


# -- status


def test_status_shows_nodes_with_what_their_heartbeats_tell(cluster: Cluster) -> None:
    cluster.add_node("celery@web1")
    cluster.add_speaker(heartbeat("celery@web1"), hostname="b@1")

    result = cluster.run("status", "--listen", "2", *QUICK)

    assert result.exit_code == 0
    head, bare, full = lines(result.stdout)
    assert head.split() == ["NAME", "STATUS", "ACTIVE", "PROCESSED", "LOAD", "VERSION", "EVENTS", "NOTE"]
    assert bare.split() == ["b@1", "online"]
    assert full.split() == ["celery@web1", "online", "1", "7", "2.55", "1.6", "0.73", "py-celery", "5.7.0"]


def test_status_as_json_has_numbers(cluster: Cluster) -> None:
    cluster.add_speaker(heartbeat("celery@web1"), hostname="celery@web1")

    result = cluster.run("status", "--json", *QUICK)

    (row,) = json.loads(result.stdout)
    assert (row["name"], row["status"], row["processed"]) == ("celery@web1", "online", 7)
    assert row["load"] == [2.55, 1.6, 0.73]


def test_status_shows_who_is_silent_and_fails(cluster: Cluster) -> None:
    cluster.add_node("a@1")
    cluster.add_silent_node("quiet@1")

    result = cluster.run("status", "--listen", "2", *QUICK)

    assert result.exit_code == 1
    assert ["quiet@1", "silent"] in [line.split()[:2] for line in lines(result.stdout)]
    assert "silent: quiet@1" in result.stderr


def test_status_of_a_node_that_is_not_there_says_absent(cluster: Cluster) -> None:
    result = cluster.run("status", "-d", "gone@1", "--listen", "0", *QUICK)

    assert result.exit_code == 69
    assert lines(result.stdout)[1].split() == ["gone@1", "absent"]


def test_status_of_an_empty_cluster_says_so(cluster: Cluster) -> None:
    result = cluster.run("status", "--listen", "0", *QUICK)

    assert result.exit_code == 69
    assert result.stdout == ""
    assert "no node answered" in result.stderr


def test_a_hostile_name_in_a_heartbeat_emits_no_escape_code(cluster: Cluster) -> None:
    cluster.add_node("a@1")
    cluster.add_silent_node(HOSTILE)

    result = cluster.run("status", "--listen", "2", *QUICK)

    assert "\\x1b[31m" in result.stdout
    assert is_harmless(result.output)
