from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from celeriac.model.events import Received, Retried, Sent, Started, WorkerHeartbeat
from celeriac.model.states import RECEIVED, SUCCESS
from celeriac.node.worker_setup import WorkerSetup
from celeriac.views.text import visible
from tests.component.web.kit import Rig, served
from tests.component.web.kit import rig as rig_of
from tests.warehouses import MIDNIGHT, publish, rollup


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
    assert told["parent"] == {"uuid": "root", "key": "root", "name": "shop.pay", "state": SUCCESS}
    assert [(each["uuid"], each["kin"], each["depth"], each["more"]) for each in told["family"]["rows"]] == [
        ("root", "parent", 0, 0), ("child", "self", 1, 0),
    ]  # fmt: skip
    assert (told["children"], told["more_children"]) == ([], 0)


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
    # It watches for some seconds: five at the least count.
    assert 2 / 60 <= told["now"]["received"] <= 2 / 5
    assert 0.24 < told["now"]["run_p50"] < 0.26
    assert len(told["last_hour"]) == 120
    # Nobody watched an hour ago: that is not to say that nothing happened.
    assert told["last_hour"][0]["received"] is None
    assert any(point["received"] for point in told["last_hour"])


def test_workers_are_told_with_what_they_are_held_for(rig: Rig, ask: httpx.Client) -> None:
    rig.send("worker-online", freq=2.0, active=0, processed=7, sw_ident="py-celery", sw_ver="5.7.0")
    rig.send("worker-offline", freq=2.0)
    rig.arrived()

    (worker,) = ask.get("/api/v1/workers").json()["workers"]

    assert (worker["name"], worker["liveness"], worker["reason"]) == ("w1@lab", "LEFT", "shut down cleanly")
    assert (worker["processed"], worker["software"]) == (7, "py-celery 5.7.0")


def test_workers_are_listed_by_name_a_page_at_a_time_whatever_becomes_of_them(
    rig: Rig, ask: httpx.Client
) -> None:
    rig.put(*(beat(name) for name in ("d@lab", "b/2@lab", "a@lab", "c d&e@lab", "e@lab")))

    pages = [ask.get("/api/v1/workers", params={"limit": 2}).json()]
    rig.put(beat("a0@lab"), beat("c@lab"))
    while pages[-1]["next"] is not None:
        pages.append(ask.get("/api/v1/workers", params={"limit": 2, "after": pages[-1]["next"]}).json())

    assert [[each["key"] for each in page["workers"]] for page in pages] == [
        ["a@lab", "b/2@lab"], ["c d&e@lab", "c@lab"], ["d@lab", "e@lab"],
    ]  # fmt: skip
    assert ask.get("/api/v1/workers", params={"after": "e@lab"}).json() == {"workers": [], "next": None}
    for wrong in ({"limit": 0}, {"limit": 1001}):
        assert ask.get("/api/v1/workers", params=wrong).status_code == 422


def beat(hostname: str) -> WorkerHeartbeat:
    return WorkerHeartbeat(hostname=hostname, pid=1, timestamp=1.0, clock=1, local_received=1.0)


def test_one_worker_says_its_queues_and_pool_when_it_is_asked_and_not_each_time(tmp_path: Path) -> None:
    asked: list[str] = []

    def ask_setup(name: str) -> WorkerSetup:
        asked.append(name)
        return WorkerSetup(("celery", "ma\x1bil"), 8, "", asked_at=5.0)

    with rig_of(tmp_path, ask_setup=ask_setup) as rig, served(rig) as ask:
        rig.put(beat("w1@lab"), beat("w2@lab"))
        told = [ask.get(f"/api/v1/workers/{name}").json() for name in ("w1@lab", "w1@lab", "w2@lab")]
        (worker,) = (each for each in rig.board.sight().workers if each.key == "w1@lab")
        rig.board.setup(worker, is_changed=True)
        of_one_that_left = rig.board.setup(worker._replace(liveness="LEFT"), is_changed=True)

    assert [each["name"] for each in told] == ["w1@lab", "w1@lab", "w2@lab"]
    assert told[0]["setup"] == {"queues": ["celery", "ma\\x1bil"], "pool": 8, "reason": "", "asked_at": 5.0}
    assert asked == ["w1@lab", "w2@lab", "w1@lab"]
    assert of_one_that_left is None


def test_times_of_workers_are_listed_a_page_at_a_time(ask: httpx.Client, tmp_path: Path) -> None:
    times = [("w2 x@lab", 5.25, 7), ("w1@lab", 1.0, 8), ("w2 x@lab", 5.25, None), ("w1@lab", 0.1 + 0.2, 9)]
    rows = [
        {"worker": name, "begin_at": MIDNIGHT + at, "end_at": MIDNIGHT + 90, "pid": pid, "ending": "open",
         "is_restart": False}
        for name, at, pid in times
    ]  # fmt: skip
    publish(tmp_path / "warehouse", {"workers": rows})

    def told(**query: Any) -> Any:
        return ask.get("/api/v1/history/workers", params=query).json()

    pages = [told(limit=1)]
    while pages[-1]["next"] is not None:
        pages.append(told(limit=1, after=pages[-1]["next"]))

    assert [[(each["worker"], each["pid"]) for each in page["sessions"]] for page in pages] == [
        [("w1@lab", 9)], [("w1@lab", 8)], [("w2 x@lab", None)], [("w2 x@lab", 7)],
    ]  # fmt: skip
    assert told(limit=4)["next"] is None
    assert "`next`" in told(after="w1@lab")["detail"]


def test_more_times_than_anybody_reads_are_refused_with_what_to_do(ask: httpx.Client, tmp_path: Path) -> None:
    publish(tmp_path / "warehouse", {"rollups_hour": [rollup(MIDNIGHT, runs=[1.0])], "rollups_minute": []})

    def told(**query: Any) -> httpx.Response:
        return ask.get("/api/v1/history/latency", params={"until": MIDNIGHT + 3600, **query})

    assert "use longer intervals" in told(by="minute", since=MIDNIGHT - 60 * 50_000).json()["detail"]
    assert "the range has no start" in told(by="hour").json()["detail"]
    assert [each["attempts"] for each in told(by="hour", since=MIDNIGHT).json()] == [1]
    assert [each["attempts"] for each in told(by="day").json()] == [1]
    assert [each["attempts"] for each in told().json()] == [1]


def test_two_times_are_compared_for_one_worker_and_queue(ask: httpx.Client, tmp_path: Path) -> None:
    rows = [
        rollup(MIDNIGHT, runs=[1.0, 3.0]),
        rollup(MIDNIGHT + 3600, runs=[2.0], worker="w2@lab", queue="mail"),
    ]
    publish(tmp_path / "warehouse", {"rollups_hour": rows, "rollups_minute": []})
    spans = {"a_until": MIDNIGHT + 3600, "b_since": MIDNIGHT + 3600}

    def told(**query: Any) -> tuple[float, float]:
        first = ask.get("/api/v1/history/compare", params={**spans, **query}).json()[0]
        assert first["measure"] == "attempts"
        return first["left"], first["right"]

    assert told() == (2, 1)
    assert told(worker="w2@*") == (0, 1)
    assert told(queue="celery") == (2, 0)


def test_what_is_not_there_is_told_with_what_to_do(ask: httpx.Client) -> None:

    missing = ask.get("/api/v1/tasks/none")
    past = ask.get("/api/v1/overview", params={"at": 1_790_000_000})
    tables = ask.get("/api/v1/history/top")

    assert (missing.status_code, past.status_code, tables.status_code) == (404, 400, 400)
    assert "/api/v1/history/tasks/" in missing.json()["detail"]
    assert "--log" in past.json()["detail"]
    assert "celeriac pipeline run" in tables.json()["detail"]


def test_attempts_are_told_apart_by_task_worker_or_queue(ask: httpx.Client, tmp_path: Path) -> None:
    rows = [
        rollup(MIDNIGHT, runs=[1.0, 3.0], waits=[0.5], failed=1),
        rollup(MIDNIGHT, "mail.send", runs=[2.0], worker="w2@lab", queue="\x1b[1mmail"),
    ]
    publish(tmp_path / "warehouse", {"rollups_hour": rows})

    def told(**query: Any) -> Any:
        return ask.get("/api/v1/history/breakdown", params=query).json()

    assert told()[0] == {
        "name": "shop.pay", "attempts": 2, "failed": 1, "retried": 0,
        "wait_p50": 0.5, "wait_p95": 0.5, "wait_p99": 0.5,
        "run_p50": 1.0, "run_p95": 3.0, "run_p99": 3.0, "run_max": 3.0,
    }  # fmt: skip
    assert [each["name"] for each in told(per="worker")] == ["w1@lab", "w2@lab"]
    assert [each["name"] for each in told(per="queue", task="mail.*")] == [visible("\x1b[1mmail", 90)]
    assert [each["name"] for each in told(limit=1)] == ["shop.pay"]
    assert told(since=MIDNIGHT + 3600) == []
    for wrong in ({"per": "name"}, {"limit": 201}, {"limit": 0}):
        assert ask.get("/api/v1/history/breakdown", params=wrong).status_code == 422


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


#: Ids and names that are shown alike: what sets them apart is cut, or was spelled out.
TWINS = ["\x1b" * 5 + "/..?#" * 30 + end for end in "ab"] + ["evil\n", "evil\\n"]


def test_tasks_that_are_shown_alike_are_told_apart_by_their_keys(rig: Rig, ask: httpx.Client) -> None:
    for twin in TWINS:
        rig.run_task(twin)
        rig.run_task(f"of {twin}", root_id=twin, parent_id=twin)
    rig.arrived()

    listed = {task["key"]: task for task in ask.get("/api/v1/tasks").json()["tasks"]}
    details = [ask.get(f"/api/v1/tasks/{quote(twin, safe='')}").json() for twin in TWINS]
    children = [ask.get(f"/api/v1/tasks/{quote(f'of {twin}', safe='')}").json() for twin in TWINS]
    workflows = [ask.get(f"/api/v1/workflows/{quote(twin, safe='')}").json() for twin in TWINS]

    assert listed.keys() == {*TWINS, *(f"of {twin}" for twin in TWINS)}
    assert len({listed[twin]["uuid"] for twin in TWINS}) == 2
    assert [told["task"]["key"] for told in details] == TWINS
    assert [told["task"]["worker_key"] for told in details] == ["w1@lab"] * 4
    assert [[child["key"] for child in told["children"]] for told in details] == [
        [f"of {twin}"] for twin in TWINS
    ]
    assert [(told["parent"]["key"], told["root_key"]) for told in children] == [
        (twin, twin) for twin in TWINS
    ]
    assert [told["root_key"] for told in workflows] == TWINS
    assert [[task["key"] for task in told["tasks"]] for told in workflows] == [
        [twin, f"of {twin}"] for twin in TWINS
    ]
    shown = [text for told in workflows for text in (told["root_id"], *told["critical_path"])]
    shown += [task["uuid"] for told in workflows for task in told["tasks"]]
    assert all(text.isprintable() and len(text) <= 120 for text in shown)


def test_workers_that_are_shown_alike_are_told_apart_by_their_keys(rig: Rig, ask: httpx.Client) -> None:
    rig.put(
        *(
            WorkerHeartbeat(hostname=twin, pid=number, timestamp=1.0, clock=1, local_received=1.0)
            for number, twin in enumerate(TWINS)
        )
    )

    told = [ask.get(f"/api/v1/workers/{quote(twin, safe='')}").json() for twin in TWINS]

    assert [(worker["key"], worker["pid"]) for worker in told] == [
        (twin, number) for number, twin in enumerate(TWINS)
    ]
    assert {worker["key"] for worker in ask.get("/api/v1/workers").json()["workers"]} == set(TWINS)
    assert len({worker["name"] for worker in told}) == 2
