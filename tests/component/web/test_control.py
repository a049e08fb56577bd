import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from celeriac.errors import ConnectionLost
from celeriac.model.events import MAX_ID_CHARS, Event, Failed, Received, Started, Succeeded
from celeriac.model.events import Sent as SentEvent
from celeriac.store.audit import Audit
from celeriac.web.access import Access
from celeriac.web.action import MAX_TASKS, Actions
from tests.component.cli.kit import Cluster
from tests.component.web.kit import Rig, served

SENDER: dict[str, Any] = {"hostname": "w1@lab", "pid": 1, "local_received": 1_790_000_000.0}


def received(uuid: str, clock: int = 1, **fields: Any) -> Received:
    told = {"name": "shop.pay", "args": "(1, 'two')", "kwargs": "{'three': 3}", **fields}
    return Received(timestamp=1_790_000_000.0, clock=clock, uuid=uuid, **SENDER, **told)


def ended(uuid: str, clock: int = 1, **fields: Any) -> list[Event]:
    """Return the events of a task that was sent to ``mail``, and failed."""
    at: dict[str, Any] = {"clock": clock, "uuid": uuid, **SENDER}
    sent = SentEvent(
        **{**at, "hostname": "client@lab"}, timestamp=1_790_000_000.0, name="shop.pay", queue="mail"
    )
    failed = Failed(**at, timestamp=1_790_000_001.0, exception="ValueError()", traceback="")
    return [sent, received(uuid, clock, **fields), failed]


class Sent:
    """Takes tasks instead of a broker."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.id = "new-id"

    def __call__(self, *call: Any, **options: Any) -> "Sent":
        self.calls.append((*call, options))
        return self


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def operator(rig: Rig, sent: Sent, audit: Path) -> Iterator[httpx.Client]:
    actions = Actions(rig.board, rig.app.control, Audit(audit), send=sent)
    with served(rig, Access(allow_control=True), actions) as client:
        yield client


def lines(audit: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in audit.read_text().splitlines()] if audit.exists() else []


def test_a_dry_run_says_whom_it_would_concern_and_does_nothing(
    rig: Rig, operator: httpx.Client, sent: Sent, audit: Path
) -> None:
    rig.put(received("open"), *ended("failed", 2), received("good", 3))
    rig.put(Succeeded(timestamp=1_790_000_001.0, clock=4, uuid="good", result="1", **SENDER))
    rig.put(Started(timestamp=1_790_000_001.0, clock=5, uuid="open", **SENDER))

    order = {"filter": {"name": "shop.*"}, "dry_run": True}
    revoked = operator.post("/api/v1/control/revoke", json=order).json()
    unknown = operator.post(
        "/api/v1/control/revoke", json={"ids": ["open", "x", "x"], "dry_run": True}
    ).json()
    retried = operator.post("/api/v1/control/retry", json={**order, "queue": "bulk"}).json()

    assert (revoked["targets"], revoked["is_dry_run"]) == (["open"], True)
    assert (revoked["states"], revoked["queues"]) == ({"STARTED": 1}, [])
    assert {each["uuid"]: each["reason"] for each in revoked["refused"]} == {
        "good": "already finished: SUCCESS", "failed": "already finished: FAILURE",
    }  # fmt: skip
    assert (unknown["targets"], unknown["states"]) == (["open", "x"], {"STARTED": 1, "not in memory": 1})
    assert sorted(retried["targets"]) == ["failed", "good"]
    assert retried["states"] == {"FAILURE": 1, "SUCCESS": 1}
    assert retried["queues"] == ["bulk", "bulk"]
    assert retried["refused"] == [{"uuid": "open", "reason": "not finished: STARTED"}]
    assert (sent.calls, lines(audit)) == ([], [])


def test_a_task_is_sent_once_more_with_the_arguments_that_its_events_told(
    rig: Rig, operator: httpx.Client, sent: Sent, audit: Path
) -> None:
    rig.put(*ended("good"), *ended("cut", 2, args="(1, ...)"), *ended("object", 3, args="(<Job 1>,)"))
    rig.put(*ended("odd", 4, args="({[1]},)"))

    ids = ["good", "cut", "object", "odd", "none", "good"]
    done = operator.post("/api/v1/control/retry", json={"ids": ids}).json()

    assert sent.calls == [("shop.pay", [1, "two"], {"three": 3}, {"queue": "mail"})]
    assert done["replies"] == {"good": "sent as new-id to mail"}
    assert {each["uuid"]: each["reason"] for each in done["refused"]} == {
        "cut": "arguments in its events are truncated",
        "object": "arguments in its events are not literals",
        "odd": "arguments in its events are not literals",
        "none": "not in memory",
    }
    assert [(line["user"], line["action"]) for line in lines(audit)] == [
        ("anyone here", "retry"), ("anyone here", "retry done"),
    ]  # fmt: skip
    assert (lines(audit)[0]["targets"], lines(audit)[0]["queues"]) == (["good"], ["mail"])


def test_a_filter_says_from_when_to_when(rig: Rig, operator: httpx.Client) -> None:
    rig.put(*ended("one"), *ended("two", 2))
    rig.put(Failed(timestamp=1_790_000_500.0, clock=9, uuid="two", exception="x", traceback="", **SENDER))

    def found(**span: float) -> list[str]:
        order = {"filter": {"name": "shop.*", **span}, "dry_run": True}
        return sorted(operator.post("/api/v1/control/retry", json=order).json()["targets"])

    assert found() == ["one", "two"]
    assert found(since=1_790_000_100) == ["two"]
    assert found(until=1_790_000_100.5) == ["one"]
    assert found(since=1_790_000_001, until=1_790_000_001) == []


def test_workers_are_commanded_and_their_answers_told(
    rig: Rig, operator: httpx.Client, audit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("celeriac.web.action._PATIENCE", 8.0)
    asked: list[tuple[str, dict[str, Any]]] = []

    def handler(command: str) -> Any:
        def obey(**arguments: Any) -> dict[str, str]:
            asked.append((command, arguments))
            return {"ok": "so it is"}

        return obey

    with Cluster() as cluster:
        cluster.broker = rig.broker
        cluster.add_node("w1@lab", revoke=handler("revoke"), pool_grow=handler("pool_grow"))
        done = operator.post("/api/v1/control/revoke", json={"ids": ["a"], "terminate": True}).json()
        grown = operator.post("/api/v1/control/pool-grow", json={"workers": ["w1@lab"], "n": 2}).json()

    assert asked == [
        ("revoke", {"task_id": ["a"], "terminate": True, "signal": "SIGTERM"}),
        ("pool_grow", {"n": 2}),
    ]
    assert done["replies"] == grown["replies"] == {"w1@lab": "{'ok': 'so it is'}"}
    assert [line["action"] for line in lines(audit)] == [
        "terminate", "terminate done", "pool-grow", "pool-grow done",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "order"),
    [
        ("revoke", {}),
        ("revoke", {"ids": ["a"], "filter": {"name": "x"}}),
        ("revoke", {"filter": {}}),
        ("revoke", {"ids": ["a"], "signal": "; rm"}),
        ("revoke", {"ids": ["a"] * (MAX_TASKS + 1)}),
        ("retry", {"ids": [""]}),
        ("retry", {"ids": ["a"], "queue": ""}),
        ("retry", {"ids": ["a"], "queue": "ma\x1bil"}),
        ("revoke", {"ids": ["a"], "queue": "mail"}),
        ("revoke", {"filter": {"since": -1}}),
        ("rate-limit", {"task": "a", "rate": "often"}),
        ("pool-grow", {"n": 0}),
        ("shutdown", {}),
        ("shutdown", {"workers": []}),
        ("revoke", {"ids": ["a"], "surprise": 1}),
    ],
)
def test_what_is_not_meant_clearly_is_refused(
    operator: httpx.Client, audit: Path, path: str, order: dict[str, Any]
) -> None:
    answer = operator.post(f"/api/v1/control/{path}", json=order)

    assert answer.status_code in (400, 422)
    assert lines(audit) == []


def test_what_cannot_be_noted_is_not_done(rig: Rig, operator: httpx.Client, sent: Sent, audit: Path) -> None:
    rig.put(*ended("good"))
    audit.mkdir()

    answer = operator.post("/api/v1/control/retry", json={"ids": ["good"]})

    assert answer.status_code == 503
    assert "the action was not run" in answer.json()["detail"]
    assert sent.calls == []


def test_a_task_is_not_sent_with_what_stands_for_a_secret_nor_without_its_arguments(
    rig: Rig, operator: httpx.Client, sent: Sent
) -> None:
    rig.put(*ended("masked", kwargs="{'password': '**'}"), *ended("dropped", 2, args=None))

    done = operator.post("/api/v1/control/retry", json={"ids": ["masked", "dropped"]}).json()

    assert sent.calls == []
    assert {each["uuid"]: each["reason"] for each in done["refused"]} == {
        "masked": "secrets in its arguments are masked",
        "dropped": "no arguments in its events",
    }


def test_what_could_not_be_sent_is_told_beside_what_was(
    rig: Rig, operator: httpx.Client, audit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.put(*ended("first"), *ended("second", 2))

    def fail_later(self: Sent, *call: Any, **_: Any) -> Sent:
        if self.calls:
            raise ConnectionLost("the broker is away")
        self.calls.append(call)
        return self

    monkeypatch.setattr(Sent, "__call__", fail_later)
    done = operator.post("/api/v1/control/retry", json={"ids": ["first", "second"]}).json()

    assert done["replies"] == {"first": "sent as new-id to mail"}
    assert done["refused"] == [{"uuid": "second", "reason": "cannot be sent: the broker is away"}]
    noted = json.loads(audit.read_text().splitlines()[-1])
    assert noted["refused"] == {"second": "cannot be sent: the broker is away"}


def test_the_longest_id_there_is_can_be_named_as_it_is(
    rig: Rig, operator: httpx.Client, audit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("celeriac.web.action._PATIENCE", 0.01)
    longest = "\x1b/?#" * (MAX_ID_CHARS // 4)
    rig.put(received(longest))

    (task,) = operator.get("/api/v1/tasks", params={"root": longest}).json()["tasks"]
    operator.post("/api/v1/control/revoke", json={"ids": [task["key"]], "terminate": True})

    assert lines(audit)[0]["targets"] == [longest]
