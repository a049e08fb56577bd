"""``celeriac call`` sends one task, and says its id."""

import json
from typing import Any

import pytest

from celeriac.model.message import Message
from celeriac.wire.names import task_queue
from celeriac.wire.task_request import decode, read_body
from tests.component.cli.kit import HOSTILE, Cluster, is_harmless


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CELERIAC_RESULT_BACKEND", raising=False)


def sent(cluster: Cluster) -> list[Message]:
    return [message for exchange, message in cluster.broker.published if exchange == ""]


def test_a_task_is_sent_with_its_arguments_and_its_id_is_shown(cluster: Cluster) -> None:
    result = cluster.run("call", "shop.add", "[2, 3]", "--kwargs", '{"fast": true}')

    [message] = sent(cluster)
    request = decode(message, max_bytes=10_000)
    assert (result.exit_code, result.stdout) == (0, f"{request.id}\n")
    arguments = read_body(request.body)
    assert (request.task, arguments.args, arguments.kwargs) == ("shop.add", (2, 3), {"fast": True})


def test_without_arguments_it_is_called_with_none(cluster: Cluster) -> None:
    cluster.run("call", "shop.add")

    [message] = sent(cluster)
    assert message.body.startswith(b"[[], {}, ")


def test_options_are_in_the_message(cluster: Cluster) -> None:
    options = ["--id", "t1", "--queue", "slow", "--priority", "3", "--eta", "2026-11-15T00:50:17Z"]

    result = cluster.run("call", "shop.add", *options, "--expires", "2026-11-15T01:00:00Z")

    [message] = sent(cluster)
    request = decode(message, max_bytes=10_000)
    assert result.stdout == "t1\n"
    assert (message.routing_key, message.priority, request.id) == ("slow", 3, "t1")
    assert (request.eta, request.expires) == (1_794_703_817.0, 1_794_704_400.0)


def test_times_may_be_seconds(cluster: Cluster) -> None:
    cluster.run("call", "shop.add", "--countdown", "5", "--expires", "60.5")

    [message] = sent(cluster)
    request = decode(message, max_bytes=10_000)
    assert request.eta is not None
    assert request.expires is not None
    assert request.expires - request.eta == pytest.approx(55.5)


def test_json_tells_id_and_task(cluster: Cluster) -> None:
    result = cluster.run("call", "shop.add", "--id", "t1", "--json")

    assert json.loads(result.stdout) == {"id": "t1", "task": "shop.add"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["shop.add", "2"], "Invalid ARGS. Use a JSON list"),
        (["shop.add", "[2"], "Invalid ARGS. Use a JSON list"),
        (["shop.add", "--kwargs", "[1]"], "Invalid --kwargs. Use a JSON object"),
        (["shop.add", "--eta", "tomorrow"], "eta is 'tomorrow'"),
        (["shop.add", "--id", ""], "task_id is ''"),
        (["shop.add", "--timeout", "5"], "Add --wait"),
        ([""], "task names are strings"),
    ],
)
def test_what_cannot_be_sent_is_a_mistake_in_usage(cluster: Cluster, arguments: list[str], told: str) -> None:
    result = cluster.run("call", *arguments)

    assert result.exit_code == 2
    assert told in result.stderr
    assert sent(cluster) == []


def test_to_wait_without_a_backend_is_a_mistake_in_the_configuration(cluster: Cluster) -> None:
    result = cluster.run("call", "shop.add", "--wait")

    assert result.exit_code == 78
    assert "--backend URL" in result.stderr
    assert sent(cluster) == []


def test_what_the_task_returned_is_shown_in_the_end(cluster: Cluster) -> None:
    def assemble(**_: Any) -> Any:
        return cluster.app(result_backend="rpc://")

    worker = cluster.app(result_backend="rpc://")

    def answer(message: Message) -> None:
        request = decode(message, max_bytes=10_000)
        worker.backend.store_result(request.id, 5, reply_to=request.reply_to)

    connection = worker.connection()
    connection.subscribe(task_queue(worker.conf, "celery"), answer)
    cluster.follow(connection)

    result = cluster.run(
        "call", "shop.add", "[2, 3]", "--wait", "--timeout", "30", "--json", assemble=assemble
    )

    worker.close()
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert (told["state"], told["result"]) == ("SUCCESS", 5)
    assert "sent shop.add as" in result.stderr


def test_a_task_that_does_not_end_in_time_has_a_code_of_its_own(cluster: Cluster) -> None:
    result = cluster.run(
        "call",
        "shop.add",
        "--wait",
        "--timeout",
        "0.01",
        assemble=lambda **_: cluster.app(result_backend="rpc://"),
    )

    assert result.exit_code == 69


def test_where_nobody_waits_nothing_is_to_come(cluster: Cluster) -> None:
    cluster.run("call", "shop.add", assemble=lambda **_: cluster.app(result_backend="rpc://"))

    [message] = sent(cluster)
    assert (message.reply_to, message.headers["ignore_result"]) == ("", True)


def test_hostile_text_in_an_argument_emits_no_escape_code(cluster: Cluster) -> None:
    result = cluster.run("call", HOSTILE, HOSTILE, "--id", HOSTILE)

    assert result.exit_code != 0
    assert is_harmless(result.output)
