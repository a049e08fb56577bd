"""A task is sent once more to its own queue, or to one that somebody names, and never to any other."""

import json
from typing import Any

import pytest

from celeriac.web.resend import Plan, plan_resends
from tests.builders import task
from tests.component.cli.kit import Cluster
from tests.component.web.kit import PATIENCE, Rig

#: What a worker says of its queues, and how many that makes.
SEVERAL = [
    ([{"name": "mail"}, {"name": "bulk"}], "2 queues"),
    ([], "0 queues"),
    ([{"name": "ma\x1bil"}], "1 queue"),
    ([{"name": 7}, "mail"], "0 queues"),
    ("mail", "0 queues"),
]


def put(rig: Rig, uuid: str, *, queue: str | None = None, worker: str = "w1@lab") -> None:
    """Have a task that failed; what it was sent to is told if ``queue`` is."""
    state = rig.board.watcher.state
    if queue is not None:
        state.event(task("sent", uuid, hostname="client@lab", name="shop.pay", queue=queue))
    state.event(task("received", uuid, hostname=worker, name="shop.pay", args="(1,)", kwargs="{}"))
    state.event(task("failed", uuid, hostname=worker, exception="ValueError()", traceback=""))


def planned(rig: Rig, *, queue: str | None = None, told: Any = None, patience: float = PATIENCE) -> Plan:
    """Plan to send all tasks, while a worker says something of its queues."""
    tasks = list(rig.board.watcher.state.tasks.values())
    with Cluster() as cluster:
        cluster.broker = rig.broker
        cluster.add_node("w1@lab", active_queues=lambda: told)
        return plan_resends(tasks, rig.app.control, queue=queue, patience=patience)


def queues(plan: Plan) -> dict[str, str]:
    return {each.task.uuid: each.queue for each in plan.resends}


def test_it_goes_where_it_was_sent_to_or_to_the_only_queue_of_its_worker(rig: Rig) -> None:
    put(rig, "told", queue="mail")
    put(rig, "untold")

    plan = planned(rig, told=[{"name": "bulk"}])

    assert queues(plan) == {"told": "mail", "untold": "bulk"}
    assert plan.refused == {}


@pytest.mark.parametrize(("told", "said"), SEVERAL)
def test_where_its_worker_does_not_tell_one_queue_it_goes_nowhere(rig: Rig, told: Any, said: str) -> None:
    put(rig, "told", queue="mail")
    put(rig, "untold")

    plan = planned(rig, told=told)

    assert queues(plan) == {"told": "mail"}
    assert plan.refused == {
        "untold": f"queue unknown, and its worker consumes from {said}: choose a queue, or set "
        "task_send_sent_event in the programs that send tasks"
    }


def test_a_worker_that_is_silent_or_has_no_name_that_one_can_have_leaves_it_unknown(rig: Rig) -> None:
    put(rig, "silent", worker="gone@lab")
    put(rig, "hostile", worker="w\n@lab")
    put(rig, "masked", queue="ma\x1bil", worker="gone@lab")

    plan = planned(rig, patience=0.01)

    assert plan.resends == []
    assert set(plan.refused) == {"silent", "hostile", "masked"}
    assert all("its worker does not reply" in reason for reason in plan.refused.values())


def test_of_more_workers_than_a_request_can_name_all_are_asked(rig: Rig) -> None:
    for number in range(300):
        put(rig, f"t{number}", worker=f"{number}{'x' * 240}@lab")

    plan = planned(rig, patience=0.01)

    assert len(plan.refused) == 300
    sent = [
        json.loads(message.body) for exchange, message in rig.broker.published if exchange == "celery.pidbox"
    ]
    assert [each["destination"] for each in sent if each["method"] == "active_queues"] == [None]


def test_a_queue_that_is_named_is_that_of_all_and_nobody_is_asked(rig: Rig) -> None:
    put(rig, "told", queue="mail")
    put(rig, "untold")

    plan = planned(rig, queue="bulk", told=[{"name": "other"}])

    assert queues(plan) == {"told": "bulk", "untold": "bulk"}
