"""``celeriac probe`` says in one line whether one worker works."""

import pytest

from celeriac.cli.quick_probe import quick_probe
from tests.component.cli.kit import HOSTILE, Cluster, is_harmless

QUEUES = [{"name": "celery"}, {"name": "mail"}]


def test_probe_passes_a_worker_that_answers_and_consumes(cluster: Cluster) -> None:
    cluster.add_node("w1@lab", active_queues=lambda **_: QUEUES)

    result = cluster.run("probe", "-d", "w1@lab", "--timeout", "60")

    assert (result.exit_code, result.stdout) == (0, "w1@lab: seen, answers, consumes from celery, mail\n")


def test_probe_fails_a_worker_that_consumes_from_no_queue(cluster: Cluster) -> None:
    cluster.add_node("w1@lab", active_queues=lambda **_: [])

    result = cluster.run("probe", "-d", "w1@lab", "--timeout", "60")

    assert (result.exit_code, result.stdout) == (1, "w1@lab: seen, answers, but consumes from no queue\n")


def test_probe_fails_a_worker_that_is_not_there(cluster: Cluster) -> None:
    cluster.add_node("other@lab", active_queues=lambda **_: QUEUES)

    result = cluster.run("probe", "-d", "w1@lab", "--timeout", "0.1")

    assert result.exit_code == 1
    assert result.stdout == "w1@lab: not seen: no heartbeat and no answer within 100 ms\n"


def test_probe_fails_a_worker_that_sends_heartbeats_and_does_not_answer(cluster: Cluster) -> None:
    cluster.add_silent_node("w1@lab")

    result = cluster.run("probe", "-d", "w1@lab", "--timeout", "2")

    assert result.exit_code == 1
    assert result.stdout == "w1@lab: seen by its heartbeat, but no answer within 2 s\n"


def test_probe_fails_a_node_that_runs_no_tasks(cluster: Cluster) -> None:
    cluster.add_recorder("recorder@lab")

    result = cluster.run("probe", "-d", "recorder@lab", "--timeout", "0.1")

    assert result.exit_code == 1


def test_names_of_queues_emit_no_escape_code(cluster: Cluster) -> None:
    cluster.add_node("w1@lab", active_queues=lambda **_: [{"name": HOSTILE}])

    result = cluster.run("probe", "-d", "w1@lab", "--timeout", "60")

    assert "x1b[31m" in result.stdout
    assert is_harmless(result.stdout)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--help"],
        ["-d"],
        ["-d", "w@h", "--debug"],
        ["-d", "w@h", "extra"],
        ["-d", "w@h", "--timeout", "soon"],
        ["-d", "w@h", "--timeout", "-1"],
        ["-d", "w@h", "--timeout", "inf"],
        ["-d", "w@h", "-b", "rediss://127.0.0.1:1/0"],
        ["-d", "w@h", "-b", "redis://127.0.0.1:1/0?socket_timeout=5"],
        ["-d", "w@h", "-b", "sentinel://127.0.0.1:1"],
        ["-d", "w@h", "-b", "amqp://127.0.0.1:1//;amqp://127.0.0.1:2//"],
        ["-d", "w@h", "--config", "/nowhere/celeriac.toml"],
    ],
    ids=" ".join,
)
def test_what_is_not_plain_is_left_to_the_command(arguments: list[str]) -> None:
    assert quick_probe(arguments) is None


@pytest.mark.parametrize("scheme", ["redis", "amqp"])
def test_a_broker_that_is_not_there_ends_a_probe_with_69(
    scheme: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = quick_probe(["-d", "w@h", f"--broker={scheme}://:hush@127.0.0.1:1/0"])

    printed = capsys.readouterr()
    assert code == 69
    assert printed.out == ""
    assert printed.err.startswith(f"error: lost the broker at {scheme}://:**@127.0.0.1:1/0: ")
    assert printed.err.endswith(". Start it, or name another with --broker URL\n")
