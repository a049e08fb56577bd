"""When worker processes were there, and how they went."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from celeriac.core.worker import HEARTBEAT_EXPIRE_WINDOW, heartbeat_expires
from celeriac.model.table import TABLES
from celeriac.pipeline.row import DAY_SECONDS

__all__ = ["MIN_FREQUENCY", "sessions"]

#: A worker that tells a shorter one is late more often than dead.
MIN_FREQUENCY: Final = 2.0
#: Silence within a minute is not seen, so that much more of it must pass before it means something.
_RESOLUTION: Final = 60.0

_PROCESS: Final = ("day", "worker", "pid")
#: What a process said in a minute, which is true of both halves of one that is cut.
_TOLD: Final = ("active", "processed", "load", "drift_min", "software")


def sessions(beats: DataFrame) -> DataFrame:
    """Return one row for each time that a worker process was there, within a day.

    A process that says offline ends its session, one that says online later than something else begins
    another, and so does one that is heard again after a silence: longer than a worker may be silent by
    :func:`~celeriac.core.worker.heartbeat_expires`, and a minute. What two recorders hear a moment apart is
    no second word: for as long as a worker may be silent an online repeats, and a beat trails its offline.

    ``ending`` is ``offline`` if it said so; ``lost`` if its node came back as another session, or others were
    heard after its silence; ``midnight`` if it was heard until then; else ``open``.

    ``drift`` is the least of receipt less timestamp: delays only add, so the clock of a worker is behind the
    recorder's by that much at most, and where it is negative, ahead by that much at least.

    Beats are one row for each process and minute (:func:`celeriac.pipeline.beat.merged`), of whole days.
    """
    return (
        beats.transform(_measured).transform(_cut).transform(_numbered).transform(_joined).transform(_ended)
    )


def _measured(beats: DataFrame) -> DataFrame:
    """Add how long each process may be silent: ``quiet`` as workers go, ``limit`` as minutes can tell."""
    freq = F.max("freq").over(Window.partitionBy(*_PROCESS))
    told = F.greatest(freq, F.lit(MIN_FREQUENCY)) * F.lit(HEARTBEAT_EXPIRE_WINDOW / 100)
    quiet = F.when(freq.isNull(), F.lit(heartbeat_expires(0.0))).otherwise(told)
    return beats.withColumn("quiet", quiet).withColumn("limit", F.col("quiet") + F.lit(_RESOLUTION))


def _cut(beats: DataFrame) -> DataFrame:
    """Cut a minute in two where the process came online in the midst of it.

    When it was last heard before that is not known, unless it said offline.
    """
    begin_at, end_at = F.col("first_at"), F.col("last_at")
    online_at, offline_at = F.col("online_at"), F.col("offline_at")
    is_back = F.coalesce(offline_at < online_at, F.lit(False))
    is_cut = is_back | F.coalesce(online_at > begin_at + F.col("quiet"), F.lit(False))
    left_at = F.when(is_back, offline_at)
    before = _piece(begin_at, F.coalesce(left_at, begin_at), F.lit(None), left_at)
    after = _piece(online_at, end_at, online_at, F.when(~is_back, offline_at))
    whole = _piece(begin_at, end_at, online_at, offline_at)
    pieces = F.when(is_cut, F.array(before, after)).otherwise(F.array(whole))
    return beats.select(*_PROCESS, *_TOLD, "quiet", "limit", F.inline(pieces))


def _piece(begin_at: Column, end_at: Column, online_at: Column, offline_at: Column) -> Column:
    return F.struct(
        begin_at.alias("begin_at"),
        end_at.alias("end_at"),
        online_at.cast("double").alias("online_at"),
        offline_at.cast("double").alias("offline_at"),
    )


def _numbered(pieces: DataFrame) -> DataFrame:
    """Give each piece the number of its session, from 1 for each process."""
    in_order = Window.partitionBy(*_PROCESS).orderBy("begin_at", "end_at")
    before_at, left_at = F.lag("end_at").over(in_order), F.lag("offline_at").over(in_order)
    greeted_at = F.lag("online_at").over(in_order)
    quiet, online_at = F.col("quiet"), F.col("online_at")
    is_silent = F.col("begin_at") - before_at > F.col("limit")
    is_after_offline = online_at.isNotNull() | (F.col("end_at") - left_at > quiet)
    is_repeated = F.coalesce(online_at - greeted_at <= quiet, F.lit(False))
    is_greeting = online_at.isNotNull() & ~is_repeated
    is_new = is_silent | F.when(left_at.isNull(), is_greeting).otherwise(is_after_offline)
    is_first = before_at.isNull()
    return (
        pieces.withColumn("is_new", (is_first | is_new).cast("int"))
        .withColumn("session", F.sum("is_new").over(in_order))
        .drop("is_new")
    )


def _joined(pieces: DataFrame) -> DataFrame:
    """Join the pieces of each session."""
    return pieces.groupBy(*_PROCESS, "session", "quiet", "limit").agg(
        F.min("begin_at").alias("begin_at"),
        F.max("end_at").alias("end_at"),
        F.max("offline_at").alias("offline_at"),
        F.max("active").alias("active_max"),
        F.max("processed").alias("processed"),
        F.max("load").alias("load_max"),
        F.min("drift_min").alias("drift"),
        F.max("software").alias("software"),
    )


def _ended(sessions: DataFrame) -> DataFrame:
    """Add how each session ended, and whether another process was there before it."""
    of_node = Window.partitionBy("day", "worker").orderBy("begin_at", "pid")
    earlier = of_node.rowsBetween(Window.unboundedPreceding, -1)
    end_at, limit = F.col("end_at"), F.col("limit")
    newest_at = F.max("end_at").over(Window.partitionBy("day"))
    next_at = F.max("begin_at").over(Window.partitionBy("day", "worker"))
    midnight_at = (F.unix_date(F.to_date("day")) + 1) * F.lit(DAY_SECONDS)
    was_told = F.coalesce(end_at - F.col("offline_at") <= F.col("quiet"), F.lit(False))
    ending = (
        F.when(was_told, F.lit("offline"))
        .when(next_at > end_at, F.lit("lost"))
        .when(midnight_at - end_at <= limit, F.lit("midnight"))
        .when(newest_at - end_at > limit, F.lit("lost"))
        .otherwise(F.lit("open"))
    )
    is_other = (F.min("pid").over(earlier) != F.col("pid")) | (F.max("pid").over(earlier) != F.col("pid"))
    left_before = F.max("offline_at").over(
        Window.partitionBy(*_PROCESS).orderBy("begin_at").rowsBetween(Window.unboundedPreceding, -1)
    )
    is_restart = F.coalesce(is_other, F.lit(False)) | left_before.isNotNull()
    made = sessions.withColumn("ending", ending).withColumn("is_restart", is_restart)
    return made.select([F.col(column.name) for column in TABLES["workers"].columns])
