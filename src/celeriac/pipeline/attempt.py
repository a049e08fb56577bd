"""One row for each attempt of each task, by the rules of :mod:`celeriac.core.attempt`.

Nearly all tasks are plain, and have a course: one receipt, one start and one end at most, all of one process
and in order. That is their attempt. The events of the others are put in the order of their process and
shared out among the attempts, and each attempt is read from its own; all of it row by row, without a shuffle.
"""

from collections.abc import Callable
from math import inf
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celeriac.model.clock import NEW_INCARNATION, NO_CLOCK
from celeriac.model.states import FAILURE, REJECTED, RETRY, REVOKED, SUCCESS
from celeriac.model.table import TABLES

__all__ = ["attempts"]

_COLUMNS: Final = [column.name for column in TABLES["attempts"].columns]
_TASK: Final = ("uuid", "name", "queue", "day")
#: The fields of an event that matter here, those first that :func:`celeriac.core.order.task_key` orders by.
_FIELDS: Final = ("at", "clock", "host", "pid", "type", "retries", "runtime", "eta_at")
#: The types of events that end a task, and the states they give.
_ENDS: Final = {"succeeded": SUCCESS, "failed": FAILURE, "revoked": REVOKED}
#: What else may happen to an attempt, and which process tried: that of the highest that was told, the last of
#: them. The end of the task outranks them all.
_RANKS: Final = {"rejected": 0, "retried": 1, "received": 2, "started": 3}
_RANK_OF_END: Final = 4
_ON_HAND: Final = ("received", "started", "rejected")


def attempts(tasks: DataFrame) -> DataFrame:
    """Return the attempts of tasks, from their ``course`` or ``history``."""
    is_plain = F.col("course").isNotNull()
    return _plain(tasks.where(is_plain)).unionByName(_odd(tasks.where(~is_plain)))


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


def _plain(tasks: DataFrame) -> DataFrame:
    is_received = F.col("received_at").isNotNull()
    told = F.coalesce("retries", F.lit(0))
    number = F.when(is_received, told).otherwise(F.lit(0))
    is_sent = told == number
    ended_at = F.coalesce(*(f"{kind}_at" for kind in _ENDS))
    return _read(
        tasks.where(F.coalesce("received_at", "started_at", ended_at).isNotNull()).select(
            *_TASK,
            "worker",
            "course.pid",
            number.alias("retries"),
            F.when(is_sent, F.col("sent_at")).alias("sent_at"),
            "received_at",
            "started_at",
            ended_at.alias("ended_at"),
            F.when(is_received | is_sent, F.col("course.eta_at")).alias("eta_at"),
            "runtime",
            F.coalesce(
                *(F.when(F.col(f"{kind}_at").isNotNull(), state) for kind, state in _ENDS.items())
            ).alias("outcome"),
        )
    )


# -- odd tasks
#
# No expression compares every event with every other: a task may be tried a thousand times. Mind what a
# lambda names: Spark puts what leads to a column that is used once into it, and works it out for each event.


def _odd(tasks: DataFrame) -> DataFrame:
    return _read(_chosen(_shared_out(_in_turn(_by_process(tasks)))))


def _by_process(tasks: DataFrame) -> DataFrame:
    """Return what each process told in task order, what clients told, and the number of the last attempt."""
    told = tasks.select(*_TASK, "state", F.sort_array(F.transform("history", _key)).alias("history"))
    placed = F.transform(
        "history",
        lambda event, place: F.struct(
            place.alias("place"),
            F.struct(event["host"], event["pid"]).alias("process"),
            *(event[field].alias(field) for field in _FIELDS),
        ),
    )
    told = told.withColumn("history", placed)
    final = F.coalesce(*(F.when(F.col("state") == state, kind) for kind, state in _ENDS.items()))
    ends = F.filter("history", lambda event: event["type"] == final)
    course = F.filter("history", lambda event: event["type"].isin(*_RANKS))
    told = told.select(
        *_TASK,
        "state",
        F.coalesce(_highest("history", lambda event, _: _number_received(event)), F.lit(0)).alias("last"),
        F.filter("history", lambda event: event["type"] == "sent").alias("sent"),
        # Of all that ended the task the one that gave it its state is left.
        F.sort_array(F.concat(course, F.slice(ends, -1, 1))).alias("course"),
    )
    processes = F.array_distinct(F.transform("course", lambda event: event["process"]))
    there = F.transform("processes", lambda one: F.filter("course", lambda event: event["process"] == one))
    return told.withColumn("processes", processes).withColumn("course", there)


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


def _highest(events: str, told: Callable[[Column, Column], Column]) -> Column:
    """Return the highest that is told of an event and its place; null if nothing is."""
    return F.array_max(F.transform(events, told))


def _number_received(event: Column) -> Column:
    return F.when(event["type"] == "received", event["retries"])


def _is_end(event: Column) -> Column:
    return event["type"].isin(*_ENDS)


def _in_turn(told: DataFrame) -> DataFrame:
    """Put the events of each process into the order of its clock, where that tells."""

    def is_off(clocks: Column) -> Column:
        fell = F.transform(clocks, lambda clock, place: F.get(clocks, place - 1) - clock > NEW_INCARNATION)
        return F.array_contains(clocks, NO_CLOCK) | F.coalesce(F.array_max(fell), F.lit(False))

    def turned(there: Column, is_off: Column) -> Column:
        return F.transform(
            there,
            lambda event: F.struct(
                F.when(is_off, NO_CLOCK).otherwise(event["clock"]).alias("turn"),
                *(event[field].alias(field) for field in ("place", *_FIELDS)),
            ),
        )

    clocks = F.transform("course", lambda there: F.transform(there, lambda event: event["clock"]))
    ordered = F.zip_with("course", "is_off", lambda there, off: F.sort_array(turned(there, off)))
    told = told.withColumn("clocks", clocks).withColumn("is_off", F.transform("clocks", is_off))
    return told.withColumn("course", ordered)


def _shared_out(told: DataFrame) -> DataFrame:
    """Return a row for each attempt with its events, and with what tells which process tried."""
    receipts = F.transform(
        "course",
        lambda there: F.struct(
            F.transform(there, _number_received).alias("numbers"),
            F.exists(there, _is_end).alias("has_final"),
        ),
    )
    told = told.withColumn("receipts", receipts)
    told = told.withColumn("starts", F.zip_with("course", "receipts", _numbers_started))
    told = told.withColumn(
        "receipts",
        F.zip_with("receipts", "starts", lambda known, starts: known.withField("starts", starts)),
    )
    numbered = F.flatten(F.zip_with("course", "receipts", _numbered))
    known = F.filter(numbered, lambda event: event["number"].isNotNull())
    told = told.withColumn("course", F.sort_array(known))
    told = told.withColumn("numbers", F.transform("course", lambda event: event["number"]))
    told = told.withColumn("backwards", F.reverse("numbers"))

    def of_number(number: Column) -> Column:
        first = F.array_position("numbers", number)
        end = F.size("numbers") + 2 - F.array_position("backwards", number)
        return F.slice("course", first.cast("int"), (end - first).cast("int"))

    courses = F.transform(F.array_distinct("numbers"), of_number)
    told = told.select(*_TASK, "state", "last", "sent", F.explode(courses).alias("course"))
    told = told.withColumn("number", F.get("course", F.lit(0))["number"])
    told = told.withColumns(
        {
            "by": _highest("course", lambda event, _: _claim(event)),
            "sent": F.array_max(F.filter("sent", lambda event: event["retries"] == F.col("number"))),
            "received": _highest(
                "course", lambda event, _: F.when(event["type"] == "received", event["place"])
            ),
        }
    )
    # A start, a receipt or the end of the task makes an attempt; other events if they are all there is.
    return told.where((F.col("by.rank") >= _RANKS["received"]) | F.col("state").isin(RETRY, REJECTED))


def _number_so_far(receipts: Column, place: Column) -> Column:
    """Return the highest number that a process has received up to a place, or what it must be without."""
    so_far = F.array_max(F.slice(receipts["numbers"], F.lit(1), place + 1))
    return F.coalesce(so_far, F.when((F.col("last") == 0) | receipts["has_final"], F.col("last")))


def _numbers_started(there: Column, receipts: Column) -> Column:
    """Return for each event of a process that is a start the number of its attempt."""
    return F.transform(
        there, lambda event, place: F.when(event["type"] == "started", _number_so_far(receipts, place))
    )


def _numbered(there: Column, receipts: Column) -> Column:
    """Add to each event of a process the number of its attempt, first of all; null if that is not known."""
    kept = ("turn", "place", "type", "host", "pid", "at", "eta_at", "runtime")

    def numbered(event: Column, place: Column) -> Column:
        started = F.when(
            event["type"] == "retried", F.array_max(F.slice(receipts["starts"], F.lit(1), place + 1))
        )
        number = (
            F.when(event["type"] == "received", event["retries"])
            .when(_is_end(event), F.col("last"))
            .otherwise(F.coalesce(started, _number_so_far(receipts, place)))
        )
        return F.struct(number.alias("number"), *(event[field].alias(field) for field in kept))

    return F.transform(there, numbered)


def _claim(event: Column) -> Column:
    """Return how good a claim an event is that its process tried, and the process."""
    rank = F.when(_is_end(event), _RANK_OF_END)
    for kind, height in _RANKS.items():
        rank = rank.when(event["type"] == kind, height)
    return F.struct(
        rank.alias("rank"),
        event["place"].alias("place"),
        event["host"].alias("host"),
        event["pid"].alias("pid"),
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
    after = F.transform(
        "there", lambda event, place: F.when((event["type"] == "retried") & (place > begin), place)
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
    return _highest("there", lambda event, place: F.when(is_meant(event["type"], place), place))
