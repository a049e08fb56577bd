from typing import Any

import httpx

from celeriac.model.events import Received, Retried, Sent, Started
from celeriac.model.states import RECEIVED, SUCCESS
from tests.unit.web.kit import Rig


def test_tasks_are_listed_heard_of_last_first_a_page_at_a_time(rig: Rig, ask: httpx.Client) -> None:
    for number in range(5):
        rig.run_task(f"task-{number}")
    rig.arrived()

    first = ask.get("/api/v1/tasks", params={"limit": 2}).json()
    second = ask.get("/api/v1/tasks", params={"limit": 2, "before": first["next"]}).json()
    third = ask.get("/api/v1/tasks", params={"limit": 2, "before": second["next"]}).json()

    pages = [[task["uuid"] for task in page["tasks"]] for page in (first, second, third)]
    assert pages == [["task-4", "task-3"], ["task-2", "task-1"], ["task-0"]]
    assert third["next"] is None


def test_tasks_are_found_by_state_name_worker_and_text(rig: Rig, ask: httpx.Client) -> None:
    rig.run_task("a", "shop.pay", args="('Lovelace',)")
    rig.run_task("b", "mail.send")
    rig.send("task-received", uuid="c", name="shop.ship", args="(1,)", kwargs="{}")
    rig.arrived()

    def found(**query: str) -> set[str]:
        return {task["uuid"] for task in ask.get("/api/v1/tasks", params=query).json()["tasks"]}

    assert found(state=SUCCESS) == {"a", "b"}
    assert found(state=RECEIVED, name="shop.*") == {"c"}
    assert found(name="shop.*") == {"a", "c"}
    assert found(worker="w1@*") == {"a", "b", "c"}
    assert found(worker="w2@*") == set()
    assert found(text="lovelace") == {"a"}


def test_what_is_secret_is_neither_shown_nor_found(rig: Rig, ask: httpx.Client) -> None:
    rig.run_task("a", kwargs="{'password': 'hunter2'}")
    rig.arrived()

    page = ask.get("/api/v1/tasks")
    detail = ask.get("/api/v1/tasks/a")
    searched = ask.get("/api/v1/tasks", params={"text": "hunter2"}).json()

    assert "hunter2" not in page.text + detail.text
    assert detail.json()["kwargs"] == "{'password': '**'}"
    assert searched["tasks"] == []


def test_a_task_is_told_with_its_events_attempts_and_relatives(rig: Rig, ask: httpx.Client) -> None:
    rig.run_task("root")
    rig.run_task("child", parent_id="root", root_id="root")
    rig.arrived()

    told = ask.get("/api/v1/tasks/child").json()

    assert [event["type"] for event in told["events"]] == ["task-received", "task-started", "task-succeeded"]
    assert [(each["number"], each["outcome"], each["run"]) for each in told["attempts"]] == [
        (0, SUCCESS, 0.25)
    ]
    assert told["parent"] == {"uuid": "root", "name": "shop.pay", "state": SUCCESS}


def test_a_task_was_sent_before_it_was_received_whatever_clock_our_receiver_gave_that(
    rig: Rig, ask: httpx.Client
) -> None:
    common: dict[str, Any] = {"uuid": "a", "hostname": "w1@lab", "pid": 1, "local_received": 1_790_000_000.0}
    rig.put(
        Received(timestamp=10.0, clock=5, **common),
        Started(timestamp=11.0, clock=6, **common),
        Retried(timestamp=12.0, clock=7, **common),
        Sent(timestamp=12.0, clock=98, retries=1, **common),
        Received(timestamp=13.0, clock=9, retries=1, **common),
        Sent(timestamp=9.0, clock=99, **common),
    )

    told = ask.get("/api/v1/tasks/a").json()["events"]

    assert [event["type"].removeprefix("task-") for event in told] == [
        "sent", "received", "started", "retried", "sent", "received",
    ]  # fmt: skip


def test_a_workflow_is_told_from_any_of_its_tasks(rig: Rig, ask: httpx.Client) -> None:
    rig.run_task("root")
    rig.run_task("left", parent_id="root", root_id="root")
    rig.run_task("right", parent_id="root", root_id="root")
    rig.run_task("last", parent_id="right", root_id="root")
    rig.arrived()

    told = ask.get("/api/v1/workflows/left").json()

    assert told["root_id"] == "root"
    assert [(task["uuid"], task["depth"]) for task in told["tasks"]] == [
        ("root", 0), ("left", 1), ("right", 1), ("last", 2),
    ]  # fmt: skip
    assert told["critical_path"] == ["root", "right", "last"]


def test_the_overview_counts_tasks_by_state_and_what_happens_now(rig: Rig, ask: httpx.Client) -> None:
    rig.run_task("a")
    rig.send("task-received", uuid="b", name="shop.ship", args="()", kwargs="{}")
    rig.arrived()

    told = ask.get("/api/v1/overview").json()

    assert told["tasks_by_state"] == {SUCCESS: 1, RECEIVED: 1}
    assert told["now"]["received"] * 60 == 2
    assert 0.24 < told["now"]["run_p50"] < 0.26
    assert len(told["last_hour"]) == 120


def test_workers_are_told_with_what_they_are_held_for(rig: Rig, ask: httpx.Client) -> None:
    rig.send("worker-online", freq=2.0, active=0, processed=7, sw_ident="py-celery", sw_ver="5.7.0")
    rig.send("worker-offline", freq=2.0)
    rig.arrived()

    (worker,) = ask.get("/api/v1/workers").json()

    assert (worker["name"], worker["liveness"], worker["reason"]) == ("w1@lab", "LEFT", "said farewell")
    assert (worker["processed"], worker["software"]) == (7, "py-celery 5.7.0")


def test_what_is_not_there_is_told_with_what_to_do(ask: httpx.Client) -> None:

    missing = ask.get("/api/v1/tasks/none")
    past = ask.get("/api/v1/overview", params={"at": 1_790_000_000})
    tables = ask.get("/api/v1/history/top")

    assert (missing.status_code, past.status_code, tables.status_code) == (404, 400, 400)
    assert "/api/v1/history/tasks/" in missing.json()["detail"]
    assert "--log" in past.json()["detail"]
    assert "celeriac pipeline run" in tables.json()["detail"]


def test_what_was_said_of_an_election_is_told_without_its_secrets(rig: Rig, ask: httpx.Client) -> None:
    action = {"task": "shop.login", "kwargs": {"password": "hunter2"}}
    rig.send("worker-elect", id="e1", topic="task", action=action, cver=1)
    rig.arrived()

    told = ask.get("/api/v1/cluster")

    assert [event["type"] for event in told.json()["elections"]] == ["worker-elect"]
    assert "hunter2" not in told.text


def test_no_page_has_a_task_twice_though_tasks_speak_meanwhile(rig: Rig, ask: httpx.Client) -> None:
    for number in range(6):
        rig.run_task(f"task-{number}")
    rig.arrived()

    first = ask.get("/api/v1/tasks", params={"limit": 3}).json()
    rig.send("task-progress", uuid="task-3")
    rig.send("task-progress", uuid="task-0")
    rig.arrived()
    second = ask.get("/api/v1/tasks", params={"limit": 3, "before": first["next"]}).json()

    assert [task["uuid"] for task in first["tasks"]] == ["task-5", "task-4", "task-3"]
    assert [task["uuid"] for task in second["tasks"]] == ["task-2", "task-1"]


def test_an_id_may_have_slashes_and_odd_characters_are_spelled_out(rig: Rig, ask: httpx.Client) -> None:
    rig.run_task("a/b", "evil\u202ename", root_id="a/b")
    rig.arrived()

    told = ask.get("/api/v1/tasks/a%2Fb").json()
    workflow = ask.get("/api/v1/workflows/a/b").json()

    assert told["task"]["uuid"] == "a/b"
    assert workflow["tasks"][0]["name"] == "evil\\u202ename"
