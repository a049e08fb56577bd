"""State and replies become rows."""

from celeriac import State
from celeriac.node.inspect import Replies
from celeriac.views.cluster import (
    StatusRow,
    WorkerRow,
    node_names,
    status_rows,
    task_rows,
    totals,
    worker_rows,
)
from celeriac.views.text import cells
from tests.builders import AT, task, worker

HOSTILE = "\x1b[31m\r\n\u202ex"


def state_of(*events: dict[str, object]) -> State:
    state = State(now=lambda: AT + 1)
    for event in events:
        state.event({**event, "local_received": AT})
    return state


def test_a_worker_is_shown_with_what_its_heartbeats_tell() -> None:
    state = state_of(worker("heartbeat"))

    assert worker_rows(state) == [
        WorkerRow("celery@web1", "online", 1, 7, (2.55, 1.6, 0.73), "py-celery 5.7.0", 19036)
    ]


def test_workers_that_are_online_come_first() -> None:
    state = state_of(
        worker("heartbeat", hostname="c@1"),
        worker("online", hostname="a@1"),
        worker("offline", hostname="a@1", clock=26),
        worker("heartbeat", hostname="b@1"),
    )

    assert [(row.name, row.status) for row in worker_rows(state)] == [
        ("b@1", "online"),
        ("c@1", "online"),
        ("a@1", "left"),
    ]


def test_a_worker_that_is_not_heard_of_any_more_is_offline() -> None:
    state = State(now=lambda: AT + 1000)
    state.event({**worker("heartbeat"), "local_received": AT})

    assert worker_rows(state)[0].status == "offline"


def test_a_task_is_shown_with_what_became_of_it() -> None:
    state = state_of(
        task("received", "t1", name="shop.pay", clock=1),
        task("succeeded", "t1", result="42", runtime=0.125, clock=2),
        task("received", "t2", name="shop.mail", clock=3),
        task("failed", "t2", exception="ValueError('x')", clock=4),
    )

    failed, succeeded = task_rows(state)

    assert succeeded == ("t1", "shop.pay", "SUCCESS", "celery@web1", 1, 0.125, "42")
    assert failed == ("t2", "shop.mail", "FAILURE", "celery@web1", 1, None, "ValueError('x')")


def test_only_as_many_tasks_are_shown_as_were_asked_for() -> None:
    state = state_of(*(task("started", f"t{number}", clock=number) for number in range(1, 6)))

    assert [row.uuid for row in task_rows(state, limit=2)] == ["t5", "t4"]


def test_totals_count_tasks_by_state_the_furthest_first() -> None:
    state = state_of(
        worker("heartbeat"),
        task("received", "t1"),
        task("started", "t2"),
        task("succeeded", "t3"),
        task("succeeded", "t4"),
        task("progress", "t5"),
    )

    sums = totals(state)

    assert (sums.events, sums.workers, sums.workers_online, sums.tasks) == (6, 1, 1, 5)
    assert list(sums.tasks_by_state.items()) == [
        ("SUCCESS", 2),
        ("STARTED", 1),
        ("RECEIVED", 1),
        ("PROGRESS", 1),
    ]


def test_a_flood_of_custom_states_does_not_flood_the_totals() -> None:
    state = state_of(*(task(f"odd{number}", f"t{number}") for number in range(100)))

    sums = totals(state)

    assert len(sums.tasks_by_state) == 21
    assert sums.tasks_by_state["other"] == 80


def test_status_shows_who_answered_and_who_did_not() -> None:
    replies = Replies()
    replies["celery@web1"] = {"ok": "pong"}
    replies.errors["b@1"] = "no memory\x1b"
    replies.silent = ["c@1"]
    replies.absent = ["d@1"]

    rows = status_rows(replies, state_of(worker("heartbeat")).workers, {"celery@web1": False, "x@1": True})

    assert rows == [
        StatusRow("b@1", "error", note="no memory\\x1b"),
        StatusRow("c@1", "silent"),
        StatusRow("celery@web1", "online", 1, 7, (2.55, 1.6, 0.73), "py-celery 5.7.0", "off"),
        StatusRow("d@1", "absent"),
    ]


def test_cells_are_texts_and_empty_where_nothing_is_known() -> None:
    row = StatusRow("a@1", "online", 1, None, (2.55, 1.6, 0.73))

    assert cells(row) == ["a@1", "online", "1", "", "2.55 1.6 0.73", "", "", ""]


def test_of_many_names_only_some_are_shown() -> None:
    assert node_names(["b", "a"]) == "a, b"
    assert node_names([f"n{number:02}" for number in range(12)]).endswith("n09 and 2 more")


def test_hostile_text_in_any_row_is_made_visible() -> None:
    state = state_of(
        worker("heartbeat", hostname=HOSTILE, sw_ident=HOSTILE, sw_ver=HOSTILE),
        task("received", HOSTILE, name=HOSTILE, hostname=HOSTILE),
        task("failed", HOSTILE, exception=HOSTILE, hostname=HOSTILE),
        task(HOSTILE, "t2", hostname=HOSTILE),
    )
    replies = Replies()
    replies[HOSTILE] = {}
    replies.errors["x"] = HOSTILE

    rows = [*worker_rows(state), *task_rows(state), *status_rows(replies, state.workers, {})]
    shown = [cell for row in rows for cell in cells(row)] + [*totals(state).tasks_by_state]

    assert len(rows) == 5
    assert all(cell.isprintable() for cell in shown)
