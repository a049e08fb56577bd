"""``celeriac doctor`` reports on a cluster, and ends with a code that a script can use."""

import json
from pathlib import Path

import pytest

from celeriac.app import Celeriac
from tests.builders import task
from tests.component.cli.kit import Cluster, heartbeat

QUEUES = [{"name": "celery"}]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def add_worker(cluster: Cluster, name: str, *, events: bool, sent: bool = True) -> None:
    """Add a worker that beats when it is asked to, with these settings."""
    cluster.add_node(
        name,
        active_queues=lambda **_: QUEUES,
        conf=lambda **_: {"worker_send_task_events": events, "task_send_sent_event": sent},
        heartbeat=lambda **_: cluster.publish(heartbeat(name)),
    )


def test_doctor_passes_a_healthy_cluster(cluster: Cluster) -> None:
    add_worker(cluster, "w1@lab", events=True)

    result = cluster.run("doctor", "--listen", "0.2", "--timeout", "3")

    assert result.exit_code == 0, result.output
    assert "✓ workers        1 answers: w1@lab\n" in result.stdout
    assert "✓ task events    on: w1@lab\n" in result.stdout
    assert "✗" not in result.stdout


def test_doctor_fails_where_no_worker_answers(cluster: Cluster) -> None:
    cluster.add_recorder("recorder@lab")

    result = cluster.run("doctor", "--listen", "0", "--timeout", "0.2")

    assert result.exit_code == 1
    assert "✗ workers        none\n" in result.stdout
    assert "fix: celery -A PROJECT worker -E" in result.stdout


def test_doctor_names_a_worker_that_is_alive_and_does_not_answer(cluster: Cluster) -> None:
    add_worker(cluster, "w1@lab", events=True)
    cluster.add_silent_node("w2@lab")

    result = cluster.run("doctor", "--listen", "0", "--timeout", "3", "--json")

    (workers,) = [each for each in json.loads(result.stdout) if each["name"] == "workers"]
    assert result.exit_code == 1
    assert (workers["status"], workers["nodes"]) == ("failed", ["w2@lab"])


def test_a_recorder_is_no_worker_that_does_not_answer(cluster: Cluster) -> None:
    add_worker(cluster, "w1@lab", events=True)
    cluster._add("recorder@lab", {"heartbeat": lambda **_: cluster.publish(heartbeat("recorder@lab"))})

    result = cluster.run("doctor", "--listen", "0", "--timeout", "3", "--json")

    (workers,) = [each for each in json.loads(result.stdout) if each["name"] == "workers"]
    assert (workers["status"], workers["nodes"]) == ("ok", ["w1@lab"])


def test_doctor_says_that_sent_events_are_off_and_still_passes(cluster: Cluster) -> None:
    add_worker(cluster, "w1@lab", events=True, sent=False)

    result = cluster.run("doctor", "--listen", "0.1", "--timeout", "3")

    assert result.exit_code == 0
    assert "✗ sent events    off\n" in result.stdout
    assert "fix: task_send_sent_event = True" in result.stdout


def test_events_of_tasks_show_that_a_worker_sends_them(cluster: Cluster) -> None:
    def speak(**_: object) -> None:
        cluster.publish(heartbeat("w1@lab"))
        cluster.publish(task("started", hostname="w1@lab"))

    cluster.add_node("w1@lab", active_queues=lambda **_: QUEUES, heartbeat=speak)

    result = cluster.run("doctor", "--listen", "60", "--timeout", "3", "--json")

    events = [each for each in json.loads(result.stdout) if each["name"] == "task events"]
    assert [(each["status"], each["nodes"]) for each in events] == [("ok", ["w1@lab"])]


def test_a_broker_that_is_not_there_ends_it_with_69_and_a_report(cluster: Cluster) -> None:
    result = cluster.run("doctor", assemble=lambda **_: Celeriac("redis://:hush@127.0.0.1:1/0", environ={}))

    assert result.exit_code == 69
    assert "✗ broker         redis://:**@127.0.0.1:1/0\n" in result.stdout
    assert "✓ extras" in result.stdout
    assert "workers" not in result.stdout
    assert "hush" not in result.output
