"""One row for each attempt of each task, by the rules of :mod:`celeriac.core.attempt`.

Nearly all tasks are plain: one receipt, one start and one end at most, all of one process and in order. Their
attempt is read straight from their events. The events of the others are put in the order of their process and
shared out among the attempts, and each attempt is read from its own.
"""

from collections.abc import Callable
from functools import reduce
from itertools import combinations
from math import inf
from operator import add, and_
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructField, StructType

from celeriac.model.clock import NEW_INCARNATION, NO_CLOCK
from celeriac.model.states import FAILURE, REJECTED, RETRY, REVOKED, SUCCESS
from celeriac.model.table import TABLES
from celeriac.pipeline.schema import HISTORY, table_schema

__all__ = ["NEEDED", "attempts"]

_COLUMNS: Final = [column.name for column in TABLES["attempts"].columns]
_TASK: Final = ("uuid", "name", "queue", "day")
#: The fields of an event that matter here, those first that :func:`celeriac.core.order.task_key` orders by.
_FIELDS: Final = ("at", "clock", "host", "pid", "type", "retries", "runtime", "eta_at")
#: What of ``tasks`` attempts are made from. Files that are read with this schema are read for it alone.
NEEDED: Final = StructType(
    [
        *(table_schema("tasks")[name] for name in (*_TASK, "state")),
        StructField("history", ArrayType(StructType([HISTORY[name] for name in _FIELDS]))),
    ]
)
#: The types of events that end a task, and the states they give.
_ENDS: Final = {"succeeded": SUCCESS, "failed": FAILURE, "revoked": REVOKED}
#: What else may happen to an attempt, and which process tried: that of the highest that was told, the last of
#: them. The end of the task outranks them all.
_RANKS: Final = {"rejected": 0, "retried": 1, "received": 2, "started": 3}
_RANK_OF_END: Final = 4
_ON_HAND: Final = ("received", "started", "rejected")
#: The events of a plain task that a worker told, in their order.
_BY_A_WORKER: Final = ("received", "started", "ended")


def attempts(tasks: DataFrame) -> DataFrame:
    """Return the attempts of tasks, from their ``history``."""
    seen = _seen(tasks)
    return _plain(seen).unionByName(_odd(seen.where(_where(~F.col("is_plain")))))


def _read(known: DataFrame) -> DataFrame:
    """Return rows of the table from what is known of each attempt; a moment that is not may be 0 or NaN."""
    moments = ("sent_at", "received_at", "started_at", "ended_at", "eta_at")
    known = known.withColumns({name: _if_known(F.col(name)) for name in moments})
    # The greatest of several skips what is null.
    ready = F.greatest(F.coalesce("sent_at", "received_at"), "eta_at")
    ran = F.col("ended_at") - F.col("started_at")
    runtime = F.col("runtime")
    is_measured = (F.col("outcome") == SUCCESS) & (runtime >= 0) & (runtime < inf)
    waited = F.col("started_at") - ready
    made = {
        "wait": F.when(waited.isNotNull(), F.greatest(F.lit(0.0), waited)),
        "run": F.when(is_measured, runtime).when(ran >= 0, ran),
        "counted_at": F.coalesce("ended_at", "started_at", "received_at"),
    }
    return known.withColumns(made).select(*_COLUMNS)


def _if_known(moment: Column) -> Column:
    return F.when((moment > 0) & (moment < inf), moment)


# -- plain tasks


def _seen(tasks: DataFrame) -> DataFrame:
    """Add what the events of a task tell if it is plain, and whether it is."""
    types = F.col("history.type")
    kinds = ("sent", "received", "started", *_ENDS)
    placed = tasks.select(
        *_TASK, "state", "history", *(F.array_position(types, kind).cast("int").alias(kind) for kind in kinds)
    )
    placed = placed.withColumn("ended", F.greatest(*_ENDS))
    fields = {
        "sent": ("at", "retries", "eta_at"),
        "received": ("at", "clock", "host", "pid", "retries", "eta_at"),
        "started": ("at", "clock", "host", "pid"),
        "ended": ("at", "clock", "host", "pid", "type", "runtime"),
    }
    # A place is 0 where there is no such event: before the array, which gives null.
    told = placed.select(
        *_TASK,
        "state",
        "history",
        (F.size("history") == reduce(add, ((F.col(kind) > 0).cast("int") for kind in kinds))).alias(
            "is_single"
        ),
        (reduce(add, ((F.col(kind) > 0).cast("int") for kind in _ENDS)) <= 1).alias("is_one_end"),
        *(
            F.get("history", F.col(slot) - 1)[field].alias(f"{slot}_{field}")
            for slot, named in fields.items()
            for field in named
        ),
    )
    fits = reduce(and_, [F.col("is_single"), F.col("is_one_end"), *_in_order()])
    return told.withColumn("is_plain", F.coalesce(fits, F.lit(False)))


def _in_order() -> list[Column]:
    """Tell whether what a worker told is of one process, and its clock and its time agree on the order."""
    agreed = []
    for one, other in combinations(_BY_A_WORKER, 2):
        at, later_at = F.col(f"{one}_at"), F.col(f"{other}_at")
        clock, later_clock = F.col(f"{one}_clock"), F.col(f"{other}_clock")
        fits = (
            (at < later_at)
            & ((clock <= later_clock) | (clock == NO_CLOCK) | (later_clock == NO_CLOCK))
            & (F.col(f"{one}_pid") == F.col(f"{other}_pid"))
            & (F.col(f"{one}_host") == F.col(f"{other}_host"))
        )
        agreed.append(at.isNull() | later_at.isNull() | fits)
    return agreed


def _where(condition: Column) -> Column:
    """Return a condition that Spark does not work out twice.

    It would put a plain one before all that leads to it, and so do all that for the condition, and again for
    the rows. It does not dare to with one that is not a function of the row alone.
    """
    return condition | (F.monotonically_increasing_id() < 0)


def _plain(seen: DataFrame) -> DataFrame:
    number = F.coalesce("received_retries", F.lit(0))
    is_sent = F.coalesce("sent_retries", F.lit(0)) == number
    is_tried = F.coalesce(*(f"{slot}_at" for slot in _BY_A_WORKER)).isNotNull()
    return _read(
        seen.where(_where(F.col("is_plain") & is_tried)).select(
            *_TASK,
            F.coalesce(*(f"{slot}_host" for slot in _BY_A_WORKER)).alias("worker"),
            F.coalesce(*(f"{slot}_pid" for slot in _BY_A_WORKER)).alias("pid"),
            number.alias("retries"),
            F.when(is_sent, F.col("sent_at")).alias("sent_at"),
            "received_at",
            "started_at",
            "ended_at",
            F.when(F.col("received_at").isNotNull(), F.col("received_eta_at"))
            .when(is_sent, F.col("sent_eta_at"))
            .alias("eta_at"),
            F.col("ended_runtime").alias("runtime"),
            F.coalesce(*(F.when(F.col("ended_type") == kind, state) for kind, state in _ENDS.items())).alias(
                "outcome"
            ),
        )
    )


# -- the others


def _odd(tasks: DataFrame) -> DataFrame:
    return _read(_chosen(_shared_out(_events(tasks))))


def _events(tasks: DataFrame) -> DataFrame:
    """Return the events that make up attempts, each with its place in the order of its task."""
    final = F.coalesce(*(F.when(F.col("state") == state, kind) for kind, state in _ENDS.items()))
    tasks = tasks.select(
        *_TASK, "state", F.sort_array(F.transform("history", _key)).alias("history"), final.alias("final")
    )
    number = _of(lambda event, _: F.when(event["type"] == "received", event["retries"]))
    final_place = _of(lambda event, place: F.when(event["type"] == F.col("final"), place))
    events = tasks.select(
        *_TASK,
        "state",
        F.coalesce(F.array_max(number), F.lit(0)).alias("last"),
        F.array_max(final_place).alias("final"),
        F.posexplode("history").alias("place", "event"),
    ).select(*_TASK, "state", "last", "place", _is("place", "final").alias("is_final"), "event.*")
    return events.where(F.col("type").isin("sent", *_RANKS) | F.col("is_final"))


def _key(event: Column) -> Column:
    """Return an event so that it sorts as :func:`celeriac.core.order.task_key` orders it."""
    # Celery: each receiver overwrites the clock of task-sent with its own.
    clock = F.when(event["type"] == "sent", NO_CLOCK).otherwise(event["clock"])
    mended = {
        "at": F.coalesce(_if_known(event["at"]), F.lit(0.0)),
        "clock": clock,
        "retries": F.coalesce(event["retries"], F.lit(0)),
    }
    return F.struct(*(mended.get(field, event[field]).alias(field) for field in _FIELDS))


def _of(told: Callable[[Column, Column], Column], events: str = "history") -> Column:
    return F.transform(events, told)


def _is(one: str, other: str) -> Column:
    return F.coalesce(F.col(one) == F.col(other), F.lit(False))


def _shared_out(events: DataFrame) -> DataFrame:
    """Return the events of each attempt, with what tells which process tried."""
    is_sent, is_receipt = F.col("type") == "sent", F.col("type") == "received"
    # One shuffle for all that follows. What a client told is of no process.
    events = events.repartition("uuid").withColumn("host", F.when(~is_sent, F.col("host")))
    process = Window.partitionBy("uuid", "host", "pid")
    fell = F.lag("clock").over(process.orderBy("place")) - F.col("clock") > NEW_INCARNATION
    events = events.withColumn("is_off", (F.col("clock") == NO_CLOCK) | F.coalesce(fell, F.lit(False)))
    events = events.withColumns(
        {
            "turn": F.when(F.max("is_off").over(process), F.lit(NO_CLOCK)).otherwise(F.col("clock")),
            "is_certain": (F.col("last") == 0) | F.max("is_final").over(process),
        }
    )
    so_far = process.orderBy("turn", "place").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    highest = F.max(F.when(is_receipt, F.col("retries"))).over(so_far)
    number = (
        F.when(is_sent | is_receipt, F.col("retries"))
        .when(F.col("is_final"), F.col("last"))
        .otherwise(F.coalesce(highest, F.when(F.col("is_certain"), F.col("last"))))
    )
    rank = F.when(F.col("is_final"), _RANK_OF_END)
    for kind, height in _RANKS.items():
        rank = rank.when(F.col("type") == kind, height)
    kept = ("turn", "place", "type", "host", "pid", "at", "eta_at", "runtime")
    events = events.withColumns({"number": number, "rank": rank})
    return (
        events.where(F.col("number").isNotNull())
        .groupBy("uuid", "number")
        .agg(
            *(F.first(name).alias(name) for name in ("name", "queue", "day", "state", "last")),
            F.max(F.when(~is_sent, F.struct("rank", "place", "host", "pid"))).alias("by"),
            F.max(F.when(is_sent, F.struct("place", "at", "eta_at"))).alias("sent"),
            F.max(F.when(is_receipt, F.col("place"))).alias("received"),
            F.collect_list(F.when(~is_sent, F.struct(*kept))).alias("course"),
        )
        # A start, a receipt or the end of the task makes an attempt; other events if they are all there is.
        .where(
            (F.col("by.rank") >= _RANKS["received"])
            | (F.col("by").isNotNull() & F.col("state").isin(RETRY, REJECTED))
        )
    )


def _chosen(shared: DataFrame) -> DataFrame:
    """Pick the events that speak for an attempt from those of the process that tried."""
    there = F.filter(
        "course", lambda event: (event["host"] == F.col("by.host")) & (event["pid"] == F.col("by.pid"))
    )
    state = F.when(F.col("number") < F.col("last"), RETRY).otherwise(F.col("state"))
    told = shared.withColumns({"there": F.sort_array(there), "state": state})
    told = told.withColumn("final", _last(lambda kind, _: kind.isin(*_ENDS)))
    before = F.coalesce("final", F.size("there"))
    told = told.withColumn("start", _last(lambda kind, place: (kind == "started") & (place < before)))
    before = F.coalesce("start", "final", F.size("there"))
    told = told.withColumn("receipt", _last(lambda kind, place: (kind == "received") & (place < before)))
    begin = F.coalesce("start", "receipt", F.lit(-1))
    after = _of(
        lambda event, place: F.when((event["type"] == "retried") & (place > begin), place), events="there"
    )
    told = told.withColumns(
        {"retry": F.array_min(after), "hand": _last(lambda kind, _: kind.isin(*_ON_HAND))}
    )
    hand = F.get("there", F.col("hand"))
    is_rejected = (hand["type"] == "rejected") & (hand["place"] > F.coalesce("received", F.lit(-1)))
    is_final, is_retry = F.col("final").isNotNull(), F.col("state") == RETRY
    end = F.when(is_final, F.col("final")).when(is_retry, F.col("retry")).when(is_rejected, F.col("hand"))
    outcome = F.when(is_final | is_retry, F.col("state")).when(is_rejected, REJECTED)
    told = told.withColumns({"end": end, "outcome": outcome})
    receipt, ended = F.get("there", F.col("receipt")), F.get("there", F.col("end"))
    return told.select(
        *_TASK,
        F.col("by.host").alias("worker"),
        F.col("by.pid").alias("pid"),
        F.col("number").alias("retries"),
        F.col("sent.at").alias("sent_at"),
        receipt["at"].alias("received_at"),
        F.get("there", F.col("start"))["at"].alias("started_at"),
        ended["at"].alias("ended_at"),
        F.when(F.col("receipt").isNotNull(), receipt["eta_at"])
        .otherwise(F.col("sent.eta_at"))
        .alias("eta_at"),
        ended["runtime"].alias("runtime"),
        "outcome",
    )


def _last(is_meant: Callable[[Column, Column], Column]) -> Column:
    """Return the last place, from 0, of an event of the process whose type and place are meant."""
    return F.array_max(
        _of(lambda event, place: F.when(is_meant(event["type"], place), place), events="there")
    )
