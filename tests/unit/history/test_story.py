"""One task, one workflow, and workers, from the tables and from the log."""

from pathlib import Path

import pytest

from celeriac import history
from celeriac.errors import CallerError
from celeriac.model.table import INNER_COLUMNS
from celeriac.store.segment import Segment
from tests.event_logs import damage_at, failed, received, seal, succeeded
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
    assert "args and kwargs is not in the log" in note


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
    assert "the log cannot be read" in of_gone.notes[0]
    assert len(of_damaged.attempts) == len(of_gone.attempts) == 2


@pytest.mark.parametrize("uuid", ["t3", "", "' OR '1'='1", "t%"])
def test_a_task_that_nobody_heard_of_is_refused(tmp_path: Path, uuid: str) -> None:
    root = published(tmp_path, "nowhere")

    with history.open(root) as warehouse, pytest.raises(CallerError, match="mend the id"):
        warehouse.task(uuid)


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
