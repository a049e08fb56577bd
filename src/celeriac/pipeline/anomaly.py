"""What looks wrong in the tables."""

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from celeriac.core.worker import HEARTBEAT_DRIFT_MAX, heartbeat_expires
from celeriac.model.table import TABLES
from celeriac.pipeline.plain import history

__all__ = ["GAP_SECONDS", "SLOW_FACTOR", "SLOW_RUNS", "STORM_RETRIES", "anomalies"]

#: Retries of one task name in a minute that make a storm, if they are half of the attempts: below that, one
#: bad batch would be one.
STORM_RETRIES: Final = 50
#: How many times as long as usual is slow.
SLOW_FACTOR: Final = 3.0
#: Runs that a mean is made of, on either side: of fewer, one that waited for a lock decides.
SLOW_RUNS: Final = 20
#: A shorter gap is a link that was made again at once.
GAP_SECONDS: Final = 1.0


def anomalies(
    *, tasks: DataFrame, hours: DataFrame, minutes: DataFrame, workers: DataFrame, gaps: DataFrame
) -> DataFrame:
    """Return what looks wrong in tables, each filed under the day of the row that shows it.

    - ``stuck_task``: a worker received the task or started it, it never ended, and that process was lost,
      went offline, or its node came back as another. At the moment it was gone; the value is the seconds
      that it had the task.
    - ``retry_storm``: in one minute a task name had :data:`STORM_RETRIES` retries or more, and they were half
      of its attempts at least. The value is how many.
    - ``slow_task``: in one hour the mean run time of a task name was :data:`SLOW_FACTOR` times its mean in
      all other hours given, or more.
    - ``clock_drift``: the clock of a worker is off by more than
      :data:`~celeriac.core.worker.HEARTBEAT_DRIFT_MAX` seconds, as ``Worker.is_drifting`` has it.
    - ``gap``: a recorder did not listen for :data:`GAP_SECONDS` or longer.

    ``hours`` and ``minutes`` are the roll-ups. The more hours are given, the better is the mean; and
    ``workers`` are to reach past the tasks' day, or one that was lost after midnight is not found.
    """
    found = (
        _stuck(tasks, workers),
        _storms(minutes),
        _slow(hours),
        _drifts(workers),
        _told_gaps(gaps),
    )
    return reduce(DataFrame.unionByName, found)


def _stuck(tasks: DataFrame, workers: DataFrame) -> DataFrame:
    """Return the tasks that were on a process when it was gone."""
    held = (
        tasks.where(F.col("phase").isin("received", "running") & F.col("worker").isNotNull())
        .select("uuid", "name", "worker", "day", _holder().alias("holder"))
        .where(F.col("holder").isNotNull())
        .select("uuid", "name", "worker", "day", "holder.pid", F.col("holder.at").alias("held_at"))
    )
    process = Window.partitionBy("worker", "pid")
    sessions = workers.select(
        "worker",
        F.col("pid").alias("session_pid"),
        "begin_at",
        "end_at",
        "is_restart",
        # Who fell silent and was heard again has its tasks still.
        (F.col("begin_at") == F.max("begin_at").over(process)).alias("is_last"),
        F.col("ending").isin("lost", "offline").alias("is_over"),
        F.coalesce(F.col("drift"), F.lit(0.0)).alias("drift"),
    )
    # By the recorder's clock, as sessions are.
    held_at, is_same = F.col("held_at") + F.col("drift"), F.col("session_pid") == F.col("pid")
    # A worker may be killed with a task it received after its last heartbeat.
    is_gone = (
        is_same
        & F.col("is_last")
        & F.col("is_over")
        & (F.col("end_at") + F.lit(heartbeat_expires(0.0)) >= held_at)
    )
    is_again = is_same & F.col("is_restart") & (F.col("begin_at") > held_at)
    is_next = ~is_same & (F.col("begin_at") > held_at)
    # A node of the same name does not replace a process that is heard of after it began.
    is_replaced = F.col("next_at") > F.coalesce("heard_at", F.lit(0.0))
    replaced_at = F.when(is_replaced, F.greatest("first_next_at", "heard_at"))
    gone = (
        held.join(sessions, "worker")
        .groupBy("uuid", "name", "worker", "pid", "day")
        .agg(
            F.min(F.when(is_gone, F.greatest("end_at", held_at)).when(is_again, F.col("begin_at"))).alias(
                "over_at"
            ),
            F.max(F.when(is_same, F.col("end_at"))).alias("heard_at"),
            F.min(F.when(is_next, F.col("begin_at"))).alias("first_next_at"),
            F.max(F.when(is_next, F.col("begin_at"))).alias("next_at"),
            F.coalesce(F.max(F.when(is_same, held_at)), F.max("held_at")).alias("here_at"),
        )
        .withColumn("gone_at", F.least("over_at", replaced_at))
        .where(F.col("gone_at").isNotNull())
        .withColumn("after", F.col("gone_at") - F.col("here_at"))
    )
    text = F.format_string(
        "%s was on %s, process %d, which was lost after %.1f s; its outcome is unknown",
        F.coalesce("name", F.lit("a task")),
        "worker",
        "pid",
        "after",
    )
    return gone.select(
        *_columns("stuck_task", "gone_at", "uuid", value=F.col("after"), usual=F.lit(None), text=text)
    )


def _holder() -> Column:
    """Return the last event of a worker's process that had the task on its hands: when, and which process."""
    theirs = F.filter(
        history(),
        lambda event: (
            event["type"].isin("received", "started") & (event["host"] == F.col("worker")) & (event["at"] > 0)
        ),
    )
    return F.array_max(F.transform(theirs, lambda event: F.struct(event["at"], event["clock"], event["pid"])))


def _storms(minutes: DataFrame) -> DataFrame:
    """Return the task names and minutes with more retries than anything explains."""
    counted = minutes.groupBy("name", "begin_at", "day").agg(
        F.sum("retried").alias("retried"), F.sum("attempts").alias("attempts")
    )
    is_storm = (F.col("retried") >= STORM_RETRIES) & (F.col("retried") * 2 >= F.col("attempts"))
    text = F.format_string("%d of %d attempts in a minute were retried", "retried", "attempts")
    limit = F.lit(float(STORM_RETRIES))
    return counted.where(is_storm).select(
        *_columns("retry_storm", "begin_at", "name", value=F.col("retried"), usual=limit, text=text)
    )


def _slow(hours: DataFrame) -> DataFrame:
    """Return the task names and hours in which they ran far longer than in all others."""
    # Decimals add up to the same whatever the order, and what is no number of seconds is left out.
    seconds = F.col("run_sum").try_cast("decimal(28,6)")
    counted = (
        hours.where(seconds.isNotNull())
        .groupBy("name", "begin_at", "day")
        .agg(F.sum("runs").alias("runs"), F.sum(seconds).alias("run_sum"))
    )
    of_name, of_hour = Window.partitionBy("name"), Window.partitionBy("name", "begin_at")

    def others(name: str) -> Column:
        return F.sum(name).over(of_name) - F.sum(name).over(of_hour)

    compared = counted.select(
        "*", others("runs").alias("other_runs"), others("run_sum").alias("other_sum")
    ).where((F.col("runs") >= SLOW_RUNS) & (F.col("other_runs") >= SLOW_RUNS))
    means = compared.withColumn("mean", F.col("run_sum").cast("double") / F.col("runs")).withColumn(
        "usual", F.col("other_sum").cast("double") / F.col("other_runs")
    )
    is_slow = (F.col("usual") > 0) & (F.col("mean") >= F.col("usual") * SLOW_FACTOR)
    text = F.format_string("mean run time %.3f s in this hour, %.3f s in other hours", "mean", "usual")
    return means.where(is_slow).select(
        *_columns("slow_task", "begin_at", "name", value=F.col("mean"), usual=F.col("usual"), text=text)
    )


def _drifts(workers: DataFrame) -> DataFrame:
    """Return the workers whose clock is off."""
    drift, limit = F.col("drift"), F.lit(float(HEARTBEAT_DRIFT_MAX))
    way = F.when(drift > 0, F.lit("behind")).otherwise(F.lit("ahead of"))
    text = F.format_string("its clock is %.1f s %s the clock of the recorder", F.abs(drift), way)
    return workers.where(F.abs(drift) > limit).select(
        *_columns("clock_drift", "begin_at", "worker", value=drift, usual=limit, text=text)
    )


def _told_gaps(gaps: DataFrame) -> DataFrame:
    """Return the gaps that are long enough to miss something."""
    length, limit = F.col("until_at") - F.col("since_at"), F.lit(GAP_SECONDS)
    text = F.format_string(
        "no events received for %.1f s: %s", length, F.coalesce("reason", F.lit("unknown reason"))
    )
    return gaps.where(length >= limit).select(
        *_columns("gap", "since_at", "recorder", value=length, usual=limit, text=text)
    )


def _columns(kind: str, at: str, subject: str, *, value: Column, usual: Column, text: Column) -> list[Column]:
    """Return the columns of the table."""
    told = {
        "kind": F.lit(kind),
        "noticed_at": F.col(at),
        "subject": F.col(subject),
        "value": value,
        "usual": usual,
        "text": text,
        "day": F.col("day"),
    }
    return [told[column.name].cast(column.type).alias(column.name) for column in TABLES["anomalies"].columns]
