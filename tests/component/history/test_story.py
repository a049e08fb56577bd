"""One task, one workflow, and workers, from the tables and from the log."""

from pathlib import Path

import pytest

from celeriac import history
from celeriac.errors import CallerError
from celeriac.history import story as stories
from celeriac.model.answer import TaskStory
from celeriac.model.events import Custom, Extra
from celeriac.model.table import INNER_COLUMNS
from celeriac.store.segment import Segment
from celeriac.views.story import kind_texts, timeline, unread_text
from celeriac.views.task import TaskEventRow
from tests.event_logs import damage_at, failed, received, seal, started, succeeded
from tests.warehouses import MIDNIGHT, attempt, publish, task

DAY = 86_400.0
#: A reference is the place of its recorder times this, and the number of the event.
BASE = 2**48


# -- a task


def published(root: Path, log: Path | str, **rows: int) -> Path:
    """Publish a task that was tried twice, whose events are where the rows say."""
    publish(
        root,
        {
            "tasks": [task("t1", retries=1, attempts=2, **rows), task("t2")],
            "attempts": [
                attempt("t1", 1, counted_at=MIDNIGHT + 9),
                attempt("t1", outcome="RETRY"),
                attempt("t2"),
            ],
            "failures": [
                {"uuid": "t1", "raised_at": MIDNIGHT + 3, "outcome": "RETRY", "exception": "ValueError('ä')"}
            ],
        },
        log=str(log),
        recorders=("gone", "b", "a"),
    )
    return root


def sealed(log: Path) -> Segment:
    """Seal a log of the recorder whose place is 2: events 5 to 7."""
    events = [
        received("t1", args="(1, 'ä')", kwargs="{}"),
        failed("t1", exception="ValueError('no')", traceback="Traceback\n  line"),
        succeeded("t1", result="'done'"),
    ]
    return seal(log, events, recorder="a", first=5)


def test_a_task_is_told_with_its_attempts_failures_and_payload(tmp_path: Path) -> None:
    sealed(tmp_path / "log")
    rows = {"description_row": 2 * BASE + 5, "error_row": 2 * BASE + 6, "result_row": 2 * BASE + 7}
    root = published(tmp_path / "warehouse", tmp_path / "log", **rows)

    with history.open(root) as warehouse:
        story = warehouse.task("t1")

    assert story.task["name"] == "shop.pay"
    assert not {*INNER_COLUMNS} & {*story.task}
    assert [(each["retries"], each["outcome"]) for each in story.attempts] == [(0, "RETRY"), (1, "SUCCESS")]
    assert [each["exception"] for each in story.failures] == ["ValueError('ä')"]
    assert story.payload == {
        "args": "(1, 'ä')",
        "kwargs": "{}",
        "result": "'done'",
        "exception": "ValueError('no')",
        "traceback": "Traceback\n  line",
    }
    assert story.notes == []


def test_the_log_may_be_elsewhere_by_now(tmp_path: Path) -> None:
    sealed(tmp_path / "moved")
    root = published(tmp_path / "warehouse", tmp_path / "log", result_row=2 * BASE + 7)

    with history.open(root, log=tmp_path / "moved") as warehouse:
        story = warehouse.task("t1")

    assert story.payload == {"result": "'done'"}


@pytest.mark.parametrize("row", [2 * BASE + 99, 1 * BASE + 5, 7 * BASE + 5])
def test_what_the_log_has_no_more_is_said(tmp_path: Path, row: int) -> None:
    sealed(tmp_path / "log")
    root = published(tmp_path / "warehouse", tmp_path / "log", description_row=row, result_row=2 * BASE + 7)

    with history.open(root) as warehouse:
        story = warehouse.task("t1")

    assert story.payload == {"result": "'done'"}
    (note,) = story.notes
    assert "the event with args and kwargs was removed from the log" in note


def test_a_log_that_is_gone_or_damaged_costs_the_payload_and_nothing_else(tmp_path: Path) -> None:
    segment = sealed(tmp_path / "log")
    damage_at(tmp_path / "log" / segment.path, 40)
    damaged = published(tmp_path / "damaged", tmp_path / "log", result_row=2 * BASE + 7)
    gone = published(tmp_path / "gone", "nosuchscheme://nowhere", result_row=2 * BASE + 7)

    with history.open(damaged) as warehouse:
        of_damaged = warehouse.task("t1")
    with history.open(gone) as warehouse:
        of_gone = warehouse.task("t1")

    assert of_damaged.payload == of_gone.payload == {}
    assert "checksum" in of_damaged.notes[0]
    assert "cannot read the log, which has the arguments and the result" in of_gone.notes[0]
    assert len(of_damaged.attempts) == len(of_gone.attempts) == 2


@pytest.mark.parametrize("uuid", ["t3", "", "' OR '1'='1", "t%"])
def test_a_task_that_nobody_heard_of_is_refused(tmp_path: Path, uuid: str) -> None:
    root = published(tmp_path, "nowhere")

    with history.open(root) as warehouse, pytest.raises(CallerError, match="check the id"):
        warehouse.task(uuid)


# -- its events

COURSE = {
    "sent_clock": 9, "sent_pid": 3, "sent_row": 2 * BASE + 5, "pid": 7, "received_clock": 4,
    "received_row": 2 * BASE + 6, "started_clock": 5, "started_row": 2 * BASE + 7, "ended_clock": 6,
    "ended_row": 2 * BASE + 8,
}  # fmt: skip
PLAIN = {
    "course": COURSE, "history": None, "client": "gen1@web", "queue": "fast", "sent_at": MIDNIGHT + 1,
    "received_at": MIDNIGHT + 2, "started_at": MIDNIGHT + 3, "succeeded_at": MIDNIGHT + 4,
}  # fmt: skip


def kept(type_: str, at: float, clock: int, row: int, **fields: object) -> dict[str, object]:
    told = {"type": type_, "at": MIDNIGHT + at, "clock": clock, "row": row}
    return told | {"host": "w1@lab", "pid": 7, "retries": 0} | fields


def story_of(root: Path, log: Path | str, **fields: object) -> TaskStory:
    publish(root, {"tasks": [task("t1", **fields)]}, log=str(log), recorders=("gone", "b", "a"))
    with history.open(root) as warehouse:
        return warehouse.task("t1")


def test_a_task_of_which_each_thing_happened_once_has_its_events_in_logical_order(tmp_path: Path) -> None:
    story = story_of(tmp_path, tmp_path / "none", **PLAIN)

    assert timeline(story) == [
        TaskEventRow("task-sent", MIDNIGHT + 1, 9, "gen1@web", 3, "to fast"),
        TaskEventRow("task-received", MIDNIGHT + 2, 4, "w1@lab", 7, ""),
        TaskEventRow("task-started", MIDNIGHT + 3, 5, "w1@lab", 7, ""),
        TaskEventRow("task-succeeded", MIDNIGHT + 4, 6, "w1@lab", 7, "in 1 s"),
    ]
    assert story.unread == 4
    assert "4 of 4 events" in unread_text(story)


def test_what_its_events_say_beside_is_read_from_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    seal(log, [received("t1", args="(1,)"), started("t1")], recorder="a", first=6)
    seal(log, [succeeded("t1", result="'done'", runtime=2.0), succeeded("t1")], recorder="a", first=8)
    seal(log, [received("t1", args="(2,)")], recorder="b", first=6)

    story = story_of(tmp_path / "warehouse", log, **PLAIN, result_row=2 * BASE + 8)

    assert [row.detail for row in timeline(story)] == ["to fast", "", "", "in 2 s, 'done'"]
    assert [event.get("args") for event in story.events] == [None, "(1,)", None, None]
    assert (story.unread, story.payload, story.notes) == (1, {"result": "'done'"}, [])


def test_one_that_was_tried_twice_or_tells_of_itself_has_all_its_events(tmp_path: Path) -> None:
    events = [
        kept("received", 1, 1, BASE + 1, name="shop.pay"),
        kept("retried", 2, 2, BASE + 2),
        kept("received", 3, 3, BASE + 3, retries=1, host="w2@lab"),
        kept("progress\x1b[2J", 4, 4, BASE + 4),
        kept("rejected", 5, 5, BASE + 5, requeue=True),
    ]

    story = story_of(tmp_path, "nosuchscheme://nowhere", history=events)

    assert [(row.type, row.node, row.detail) for row in timeline(story)] == [
        ("task-received", "w1@lab", ""),
        ("task-retried", "w1@lab", ""),
        ("task-received", "w2@lab", "retry 1"),
        ("task-progress\\x1b[2J", "w1@lab", ""),
        ("task-rejected", "w1@lab", "given back to the broker"),
    ]
    assert story.unread == 5
    assert "cannot read the log, which has the arguments and the result" in story.notes[0]


def test_an_event_of_another_task_is_not_taken_for_one_of_it(tmp_path: Path) -> None:
    seal(tmp_path / "log", [succeeded("t2", result="'of another'")], recorder="a", first=8)

    story = story_of(tmp_path / "warehouse", tmp_path / "log", **PLAIN, result_row=2 * BASE + 8)

    assert (story.unread, story.payload) == (4, {})
    assert "the event with result was removed from the log" in story.notes[0]


def test_a_task_in_many_files_is_read_from_the_last_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stories, "_MOST_FILES", 2)
    events = [kept("progress", number, number, 2 * BASE + number) for number in range(1, 6)]
    for number in range(1, 6):
        seal(tmp_path / "log", [custom(number)], recorder="a", first=number)

    story = story_of(tmp_path / "warehouse", tmp_path / "log", history=events)

    assert [row.detail for row in timeline(story)] == ["", "", "", "step=4", "step=5"]
    assert story.unread == 3


def custom(step: int) -> Custom:
    told = {"timestamp": MIDNIGHT + step, "clock": step, "hostname": "w1@lab", "local_received": MIDNIGHT}
    return Custom(uuid="t1", subject="progress", extra=Extra(step=step), **told)  # type: ignore[arg-type]


# -- a workflow


def member(uuid: str, parent: str | None, begin: float, end: float, **fields: object) -> dict[str, object]:
    moments = {"first_at": MIDNIGHT + begin, "last_at": MIDNIGHT + end}
    return task(uuid, root_id="root", parent_id=parent, **moments, **fields)


def workflow(root: Path) -> Path:
    """Publish a root that sent b and c, of which c sent d; e lost its parent; f and g are each other's."""
    summary = {
        "root_id": "root",
        "name": "shop.order",
        "tasks": 7,
        "succeeded": 5,
        "failed": 1,
        "open": 1,
        "begin_at": MIDNIGHT + 1,
        "end_at": MIDNIGHT + 20,
        "critical_path": ["root", "c", "d"],
        "critical_run": 9.5,
    }
    publish(
        root,
        {
            "tasks": [
                task("other"),
                member("root", None, 1, 5, name="shop.order"),
                member("c", "root", 3, 9, state="FAILURE", runtime=None, started_at=4.0, failed_at=6.5),
                member("b", "root", 2, 4),
                # Seen a day later.
                member("d", "c", 10, 20, day="2026-11-15", state="STARTED", phase="running", runtime=None),
                member("e", "nobody", 6, 7),
                member("f", "g", 7, 8),
                member("g", "f", 8, 9),
            ],
            "workflows": [summary],
        },
    )
    return root


@pytest.mark.parametrize("uuid", ["root", "d"])
def test_a_workflow_is_told_as_a_tree_with_its_critical_path(tmp_path: Path, uuid: str) -> None:
    with history.open(workflow(tmp_path)) as warehouse:
        story = warehouse.workflow(uuid)

    assert (story.root_id, story.name, story.size, story.makespan) == ("root", "shop.order", 7, 19.0)
    assert (story.succeeded, story.failed, story.open) == (5, 1, 1)
    assert (story.critical_path, story.is_cut) == (("root", "c", "d"), False)
    assert [(each.uuid, each.depth) for each in story.tasks] == [
        ("root", 0),
        ("b", 1),
        ("c", 1),
        ("d", 2),
        ("e", 1),
        ("f", 0),
        ("g", 1),
    ]
    assert [each.uuid for each in story.tasks if each.is_critical] == ["root", "c", "d"]
    assert [each.run for each in story.tasks[:4]] == [1.0, 1.0, 2.5, None]


def test_of_a_large_workflow_the_earliest_tasks_are_told_and_all_counted(tmp_path: Path) -> None:
    with history.open(workflow(tmp_path)) as warehouse:
        story = warehouse.workflow("root", limit=2)

    assert [each.uuid for each in story.tasks] == ["root", "b"]
    assert (story.size, story.is_cut) == (7, True)


def test_a_chord_in_the_tables_is_told_and_its_critical_path_leads_through_who_ended_last(
    tmp_path: Path,
) -> None:
    summary = {
        "root_id": "root", "tasks": 4, "succeeded": 4, "failed": 0, "open": 0, "begin_at": MIDNIGHT,
        "end_at": MIDNIGHT + 9, "critical_path": ["root", "b", "body"], "critical_run": 4.0,
    }  # fmt: skip
    tries = [kept("started", 6, 6, 1), kept("started", 8, 8, 2)]
    rows = [
        member("root", None, 0, 1, succeeded_at=MIDNIGHT + 1),
        member("a", "root", 1, 5, succeeded_at=MIDNIGHT + 5, runtime=3.0),
        member("b", "root", 1, 4, succeeded_at=MIDNIGHT + 4, runtime=2.0),
        # It was heard of while a ran, and first tried after that.
        member("body", "b", 4, 9, succeeded_at=MIDNIGHT + 9, started_at=MIDNIGHT + 8, history=tries),
    ]
    publish(tmp_path, {"tasks": rows, "workflows": [summary]})

    with history.open(tmp_path) as warehouse:
        story = warehouse.workflow("root")
        cut = warehouse.workflow("root", limit=3)

    assert kind_texts(story.tasks) == ["", "group of 2", "group of 2", "chord body"]
    assert (story.critical_path, story.critical_run) == (("root", "a", "body"), 5.0)
    assert [each.uuid for each in story.tasks if each.is_critical] == ["root", "a", "body"]
    assert (cut.critical_path, {*kind_texts(cut.tasks)}) == (("root", "b", "body"), {""})


def test_a_task_that_sent_no_other_is_a_workflow_of_one(tmp_path: Path) -> None:
    with history.open(workflow(tmp_path)) as warehouse:
        story = warehouse.workflow("other")

    assert [each.uuid for each in story.tasks] == ["other"]
    assert (story.size, story.succeeded, story.failed, story.open) == (1, 1, 0, 0)
    assert (story.critical_path, story.critical_run) == (("other",), 1.0)


# -- workers


def session(
    worker: str, pid: int, begin: float, end: float, ending: str, **fields: object
) -> dict[str, object]:
    moments = {"begin_at": MIDNIGHT + begin, "end_at": MIDNIGHT + end}
    return {"worker": worker, "pid": pid, **moments, "ending": ending, "is_restart": False, **fields}


def test_a_session_that_was_cut_at_midnight_is_one_and_those_of_other_times_are_left_out(
    tmp_path: Path,
) -> None:
    rows = [
        session("w1", 1, 80_000, DAY - 2, "midnight", active_max=5, processed=10, drift=0.2, load_max=None),
        session(
            "w1", 1, DAY + 3, DAY + 90, "offline", day="2026-11-15", active_max=2, processed=30, drift=0.1
        ),
        # The same pid again, much later.
        session("w1", 1, DAY + 9000, DAY + 9100, "open", day="2026-11-15", is_restart=True),
        session("w1", 2, DAY + 5000, DAY + 5100, "lost", day="2026-11-15"),
        session("büro", 3, 0, 50, "offline"),
    ]
    publish(tmp_path, {"workers": rows})

    with history.open(tmp_path) as warehouse:
        everyone = warehouse.workers()
        later = warehouse.workers(since=MIDNIGHT + DAY, until=MIDNIGHT + DAY + 5000)

    told = [(each.worker, each.pid, each.begin_at - MIDNIGHT, each.end_at - MIDNIGHT) for each in everyone]
    assert told == [
        ("büro", 3, 0.0, 50.0),
        ("w1", 1, 80_000.0, DAY + 90),
        ("w1", 2, DAY + 5000, DAY + 5100),
        ("w1", 1, DAY + 9000, DAY + 9100),
    ]
    assert [each.ending for each in everyone] == ["offline", "offline", "lost", "open"]
    joined = everyone[1]
    assert (joined.active_max, joined.processed, joined.drift, joined.load_max) == (5, 30, 0.1, None)
    assert later == [joined]
