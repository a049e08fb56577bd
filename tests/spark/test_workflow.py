from collections.abc import Iterable
from random import Random
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from celeriac.pipeline.schema import table_schema
from celeriac.pipeline.workflow import MAX_TRACED, workflows
from tests.spark.frames import rows

DAY = 1_794_614_400.0  # 2026-11-14 00:00 UTC

Fields = dict[str, Any]


def _task(
    uuid: str, root: str | None = None, parent: str | None = None, *, end: float = 0.0, **given: Any
) -> Fields:
    """Return a task that began with the day and succeeded ``end`` seconds later."""
    moments = {"first_at": DAY, "last_at": DAY + end, "succeeded_at": DAY + end, "seen_at": DAY + 1}
    about = {
        "name": f"shop.{uuid}",
        "root_id": root,
        "parent_id": parent,
        "state": "SUCCESS",
        "phase": "done",
    }
    return {"uuid": uuid, **about, **moments, **given}


def _frame(spark: SparkSession, tasks: Iterable[Fields]) -> DataFrame:
    schema = table_schema("tasks")
    return spark.createDataFrame([tuple(task.get(name) for name in schema.names) for task in tasks], schema)


def _open(end: float) -> Fields:
    return {"state": "STARTED", "phase": "running", "succeeded_at": None, "last_at": DAY + end}


def test_workflows_are_told_as_their_tasks_ran(spark: SparkSession) -> None:
    tasks = [
        _task("alone", "alone"),
        _task("free"),
        # A chain with a branch that ended earlier, in all states that a task can end in.
        _task("a", "a", end=1, runtime=0.5, name="'; DROP TABLE tasks; --"),
        _task("b", "a", "a", end=5, started_at=DAY + 2),
        _task("c", "a", "b", end=9, seen_at=DAY - 1, runtime=4.0),
        _task("d", "a", "a", end=3, state="FAILURE", failed_at=DAY + 3),
        _task("e", "a", "d", end=4, state="REVOKED", revoked_at=DAY + 4),
        _task("f", "a", "e", state="REJECTED", state_at=DAY + 4),
        _task("g", "a", "f", **_open(20)),
        # Nobody saw the first task; its child did not end.
        _task("h", "ghost", "ghost", **_open(2)),
        # A parent that is not there, one that is the task itself, and a first task with a parent.
        _task("i", "i", "k", end=1),
        _task("j", "i", "nobody", end=2),
        _task("k", "i", "k", end=3),
        # Two that sent each other, and one that they sent.
        _task("o", "o", end=1),
        _task("p", "o", "q", end=2),
        _task("q", "o", "p", end=3),
        _task("r", "o", "q", end=4),
        # Nothing but a circle.
        _task("s", "lost", "t"),
        _task("t", "lost", "s", end=1),
        # No event told a moment.
        _task("ü", "ü", first_at=None, last_at=None, succeeded_at=None),
        _task("üb", "ü", "ü", first_at=None, last_at=None, succeeded_at=None),
    ]

    made = workflows(_frame(spark, Random(5).sample(tasks, len(tasks))))

    assert made.schema.simpleString() == table_schema("workflows").simpleString()
    names = (
        "tasks", "succeeded", "failed", "open", "depth", "critical_path", "critical_run", "makespan", "day",
    )  # fmt: skip
    found = {row["root_id"]: row for row in rows(made)}
    assert {root: tuple(row[name] for name in names) for root, row in found.items()} == {
        "a": (7, 3, 3, 1, 5, ["a", "b", "c"], 7.5, 20.0, "2026-11-13"),
        "ghost": (1, 0, 0, 1, 1, ["h"], None, 2.0, "2026-11-14"),
        "i": (3, 3, 0, 0, 2, ["i", "k"], None, 3.0, "2026-11-14"),
        "o": (4, 4, 0, 0, 1, ["p", "q", "r"], None, 4.0, "2026-11-14"),
        "lost": (2, 2, 0, 0, 1, ["s", "t"], None, 1.0, "2026-11-14"),
        "ü": (2, 2, 0, 0, 2, ["ü", "üb"], None, None, "2026-11-14"),
    }
    assert found["a"]["name"] == "'; DROP TABLE tasks; --"
    assert found["ghost"]["name"] is None
    assert (found["a"]["begin_at"], found["a"]["end_at"]) == (DAY, DAY + 20)


def _chain(root: str, length: int) -> list[Fields]:
    ids = [root, *(f"{root}-{number:04}" for number in range(1, length))]
    parents = [None, *ids]
    return [
        _task(uuid, root, parent, end=end, runtime=1.0)
        for end, (uuid, parent) in enumerate(zip(ids, parents, strict=False))
    ]


def _walked(tasks: list[Fields]) -> tuple[int, list[str]]:
    """Return depth and critical path of one workflow, one step after the other."""
    parents = {task["uuid"]: task["parent_id"] for task in tasks}

    def line(uuid: str | None) -> list[str]:
        return [] if uuid is None else [*line(parents[uuid]), uuid]

    last = max(tasks, key=lambda task: (task["succeeded_at"], task["uuid"]))
    return max(len(line(task["uuid"])) for task in tasks), line(last["uuid"])


def test_lines_are_followed_in_any_tree_up_to_the_size_that_is_traced(spark: SparkSession) -> None:
    random = Random(11)
    trees = [_chain("long", MAX_TRACED)]
    for number in range(60):
        ids = [f"w{number}-{place}" for place in range(random.randint(2, 25))]
        tree = [_task(ids[0], ids[0], end=random.randint(0, 9))]
        tree += [
            _task(uuid, ids[0], random.choice(ids[:place]), end=random.randint(0, 9))
            for place, uuid in enumerate(ids[1:], 1)
        ]
        trees.append(tree)
    tasks = [task for tree in (*trees[1:], _chain("huge", MAX_TRACED + 1)) for task in tree]

    made = {row["root_id"]: row for row in rows(workflows(_frame(spark, [*trees[0], *tasks])))}

    told = {
        root: (row["depth"], row["critical_path"])
        for root, row in made.items()
        if root not in {"huge", "long"}
    }
    assert told == {tree[0]["uuid"]: _walked(tree) for tree in trees[1:]}
    assert made["long"]["critical_path"] == [task["uuid"] for task in trees[0]]
    assert (made["long"]["depth"], made["long"]["critical_run"]) == (MAX_TRACED, float(MAX_TRACED))
    assert [made["huge"][name] for name in ("tasks", "name", "depth", "critical_path", "critical_run")] == [
        MAX_TRACED + 1, "shop.huge", None, None, None,
    ]  # fmt: skip
