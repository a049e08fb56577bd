"""Tasks that were sent by tasks, as one."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from celeriac.model.states import FAILURE, REVOKED, SUCCESS
from celeriac.model.table import TABLES
from celeriac.pipeline.row import day_of

__all__ = ["MAX_TRACED", "workflows"]

#: Tasks of a workflow whose lines are followed. More are counted, and an array of them is never made:
#: anyone can send a million tasks with one root.
MAX_TRACED: Final = 1000


def workflows(tasks: DataFrame) -> DataFrame:
    """Return one row for each first task that sent others, filed under the day its earliest task was seen.

    Tasks are all tasks of the workflows, one row each; a workflow whose first task nobody saw is one too. The
    critical path leads from the task that ended last up to the first one. A task whose parent is unknown
    hangs under the first. One that is its own ancestor is in no line, and a path that meets it ends there.
    """
    of_root = Window.partitionBy("root_id")
    node = F.struct("uuid", "parent_id", "ended_at", "last_at", "run")
    is_traced = F.count(F.lit(1)).over(of_root) <= MAX_TRACED
    made = (
        tasks.transform(_members)
        .withColumn("node", F.when(is_traced, node))
        .groupBy("root_id")
        .agg(*_totals(), F.sort_array(F.collect_list("node")).alias("nodes"))
        .transform(_traced)
        .withColumn("makespan", F.col("end_at") - F.col("begin_at"))
        .withColumn("day", day_of(F.col("seen_at")))
    )
    return made.select([F.col(column.name).cast(column.type) for column in TABLES["workflows"].columns])


def _members(tasks: DataFrame) -> DataFrame:
    """Return the tasks that are of a workflow: those with the root of another, and these roots."""
    is_child = F.col("root_id").isNotNull() & (F.col("root_id") != F.col("uuid"))
    ended_at = (
        F.when(F.col("state") == SUCCESS, F.col("succeeded_at"))
        .when(F.col("state") == FAILURE, F.col("failed_at"))
        .when(F.col("state") == REVOKED, F.col("revoked_at"))
        .when(F.col("phase") == "done", F.col("state_at"))
    )
    took = ended_at - F.col("started_at")
    columns: list[str | Column] = [
        "uuid",
        "name",
        "parent_id",
        "state",
        (F.col("phase") == "done").alias("is_done"),
        "first_at",
        "last_at",
        "seen_at",
        ended_at.alias("ended_at"),
        F.coalesce("runtime", F.when(took >= 0, took)).alias("run"),
    ]
    children = tasks.where(is_child).select("root_id", *columns)
    roots = tasks.where(~is_child).select(F.col("uuid").alias("root_id"), *columns)
    return children.unionByName(roots.join(children.select("root_id").distinct(), "root_id", "left_semi"))


def _totals() -> list[Column]:
    is_success = F.col("state") == SUCCESS
    return [
        F.count(F.lit(1)).alias("tasks"),
        F.count_if(is_success).alias("succeeded"),
        F.count_if(F.col("is_done") & ~is_success).alias("failed"),
        F.count_if(~F.col("is_done")).alias("open"),
        F.min("first_at").alias("begin_at"),
        F.max("last_at").alias("end_at"),
        F.min("seen_at").alias("seen_at"),
        F.max(F.when(F.col("uuid") == F.col("root_id"), F.col("name"))).alias("name"),
    ]


def _traced(workflows: DataFrame) -> DataFrame:
    """Follow the lines of workflows. In ``nodes`` are their tasks, which places there, from 1, stand for."""
    # With a function, which is not worked out anew for each task as the plain field would be.
    ids = F.transform("nodes", lambda node: node["uuid"])
    numbered = workflows.withColumn("ids", ids)
    root = F.array_position(F.col("ids"), F.col("root_id"))
    told = F.transform("nodes", lambda node: F.array_position(F.col("ids"), node["parent_id"]))

    def parent(told: Column, place: Column) -> Column:
        # 0 is the end of a line. The first task has no parent, whatever it says.
        is_known = (told > 0) & (told != place + 1)
        return F.when(place + 1 == F.col("root"), F.lit(0)).when(is_known, told).otherwise(F.col("root"))

    linked = numbered.select("*", root.alias("root"), told.alias("told")).withColumn(
        "parents", F.transform("told", parent)
    )
    walked = linked.withColumn("path", F.transform(_path(), lambda place: _at("nodes", place)))
    runs = F.filter("path.run", lambda run: run.isNotNull())
    total = F.aggregate(runs, F.lit(0.0), lambda whole, run: whole + run)
    is_traced = F.size("nodes") > 0
    return walked.select(
        "*",
        F.when(is_traced, _depth()).alias("depth"),
        F.when(is_traced, F.col("path.uuid")).alias("critical_path"),
        F.when(is_traced & (F.size(runs) > 0), total).alias("critical_run"),
    )


def _at(array: str, place: Column) -> Column:
    return F.get(F.col(array), place.cast("int") - 1)


def _last() -> Column:
    """Return the place of the task that ended last; where none has, of the one heard of last."""

    def key(node: Column, place: Column) -> Column:
        return F.struct(node["ended_at"], node["last_at"], (place + 1).cast("bigint").alias("place"))

    return F.array_max(F.transform("nodes", key))["place"]


def _path() -> Column:
    """Return the places from the first task to the one that ended last: as many steps as there are tasks."""

    def step(path: Column, _: Column) -> Column:
        above = _at("parents", F.get(path, F.lit(0)))
        is_end = (above == 0) | F.array_contains(path, above)
        return F.when(is_end, path).otherwise(F.concat(F.array(above), path))

    return F.aggregate("nodes", F.array(_last()), step)


def _depth() -> Column:
    """Return the most tasks in a line.

    Each round doubles how far a task looks up its line. After as many as there are digits in the number of
    tasks, who has not come to its end goes in circles.
    """

    def look(seen: Column, _: Column) -> Column:
        def further(above: Column) -> Column:
            return F.coalesce(F.get(seen["above"], above.cast("int") - 1), F.lit(0))

        def longer(length: Column, place: Column) -> Column:
            above = F.get(seen["above"], place)
            return length + F.coalesce(F.get(seen["lengths"], above.cast("int") - 1), F.lit(0))

        return F.struct(
            F.transform(seen["above"], further).alias("above"),
            F.transform(seen["lengths"], longer).alias("lengths"),
        )

    def length(seen: Column) -> Column:
        ends = F.arrays_zip(seen["above"].alias("above"), seen["lengths"].alias("lengths"))
        lines = F.filter(ends, lambda each: each["above"] == 0)
        return F.array_max(F.transform(lines, lambda each: each["lengths"]))

    start = F.struct(
        F.col("parents").alias("above"),
        F.transform("parents", lambda _: F.lit(1).cast("bigint")).alias("lengths"),
    )
    rounds = F.sequence(F.lit(1), F.length(F.bin(F.size("parents"))))
    return F.coalesce(F.aggregate(rounds, start, look, length), F.lit(1))
