"""Tasks of which each thing happened once: nearly all, so nearly all of the time goes here.

Spark is quick where an aggregate is of numbers alone. So texts are 64-bit hashes until the tasks are
there, ids are two numbers each, and an event is kept in the columns of its *slot*: sent, received, started
and ended. A hash of all that an event says, the least and the greatest of it in each slot, tells whether
there was more than one; such a task is *odd*, as is one of two worker processes, one whose events are not in
order, or of which a slot cannot tell, and :mod:`celeriac.pipeline.odd` reads it from its events.
"""

from collections.abc import Iterable, Mapping
from functools import reduce
from itertools import combinations
from operator import or_
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from celeriac.model.clock import NEW_INCARNATION, NO_CLOCK
from celeriac.model.states import FAILURE, PENDING, RECEIVED, REVOKED, STARTED, SUCCESS
from celeriac.pipeline.schema import COURSE_FIELDS, HISTORY

__all__ = ["MAX_TEXTS", "history", "plain_tasks", "sums", "texts", "with_texts"]

#: Names of tasks, hosts and queues that are held in the memory of each executor: 100 MB of them. An honest
#: cluster has thousands. Tasks with others are read from their events, which is slow and right.
MAX_TEXTS: Final = 1_000_000

_SENT, _RECEIVED, _STARTED, _SUCCEEDED, _FAILED, _REVOKED, _ODD = range(1, 8)
_KINDS: Final = {
    "sent": _SENT,
    "received": _RECEIVED,
    "started": _STARTED,
    "succeeded": _SUCCEEDED,
    "failed": _FAILED,
    "revoked": _REVOKED,
}
_SELF, _OTHER, _UNREADABLE = 1, 2, 3
#: Java's $ also matches before a line's end.
_UUID: Final = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\z"
#: What is summed up of each slot, and which of these are hashes of texts. A worker is one process.
_KEPT: Final[dict[str, tuple[str, ...]]] = {
    "sent": ("at", "clock", "host", "pid", "row", "queue"),
    "received": ("at", "clock", "row"),
    "started": ("at", "clock", "row"),
    "ended": ("at", "clock", "row", "runtime", "kind"),
    "worker": ("host", "pid"),
    "described": ("name", "retries", "eta_at", "root", "root_1", "root_2", "parent", "parent_1", "parent_2"),
}
_TEXTS: Final = ("sent_host", "sent_queue", "worker_host", "described_name")
#: The slots that worker processes tell of.
_BY_A_WORKER: Final = ("received", "started", "ended")


def texts(events: DataFrame) -> DataFrame:
    """Return the names of tasks, hosts and queues by their hashes.

    Two texts of one hash are both left out, and so are those beyond :data:`MAX_TEXTS`: always the same ones.
    """
    together = events.select("host", "name", "queue").distinct()
    text = F.explode(F.array("host", "name", "queue")).alias("text")
    by_hash = together.select(text).where(F.col("text").isNotNull()).groupBy(F.xxhash64("text").alias("hash"))
    told = by_hash.agg(F.min("text").alias("text"), F.max("text").alias("last"))
    return told.where(F.col("text") == F.col("last")).select("hash", "text").orderBy("hash").limit(MAX_TEXTS)


def sums(events: DataFrame) -> DataFrame:
    """Return one row of numbers for each task; ``is_odd`` where they cannot tell what became of it."""
    coded = _coded(events)
    kind = F.col("kind")
    slots = {
        "sent": kind == _SENT,
        "received": kind == _RECEIVED,
        "started": kind == _STARTED,
        "ended": (kind >= _SUCCEEDED) & (kind <= _REVOKED),
        "worker": kind >= _RECEIVED,
        "described": kind <= _RECEIVED,
    }
    #: What is the same of all events of a slot, if it was filled once.
    hashes = {"worker": F.xxhash64("host", "pid"), "described": F.col("description")}
    kept: list[Column] = [
        F.max(F.when(is_in, F.col(column))).alias(f"{slot}_{column}")
        for slot, is_in in slots.items()
        for column in _KEPT[slot]
    ]
    for slot, is_in in slots.items():
        told = F.when(is_in, hashes.get(slot, F.col("identity")))
        kept += [F.min(told).alias(f"{slot}_least"), F.max(told).alias(f"{slot}_most")]
    # Celery: a retry names the task as its own parent, which no column of the table says.
    is_odd = (kind == _ODD) | (F.col("root") == _UNREADABLE) | F.col("parent").isin(_SELF, _UNREADABLE)
    kept.append(F.max(is_odd).alias("has_odd"))
    kept.append(F.min("seen_at").alias("seen_at"))
    summed = coded.groupBy("uuid").agg(*kept)
    several = (F.coalesce(F.col(f"{s}_least") != F.col(f"{s}_most"), F.lit(False)) for s in slots)
    is_odd = reduce(or_, [F.col("has_odd"), *several, *_out_of_order()])
    spare = [f"{slot}_{end}" for slot in slots for end in ("least", "most")]
    return summed.withColumn("is_odd", is_odd).drop("has_odd", *spare)


def _out_of_order() -> Iterable[Column]:
    """Tell whether the time and the clock of the worker do not both say that one came after the other."""
    for one, other in combinations(_BY_A_WORKER, 2):
        at, later_at = F.col(f"{one}_at"), F.col(f"{other}_at")
        clock, later_clock = F.col(f"{one}_clock"), F.col(f"{other}_clock")
        is_turned = (clock > later_clock) & (clock != NO_CLOCK) & (later_clock != NO_CLOCK)
        yield F.coalesce((at >= later_at) | is_turned, F.lit(False))


def _coded(events: DataFrame) -> DataFrame:
    """Return events as numbers."""
    kind = F.lit(_ODD)
    for name, code in reversed(_KINDS.items()):
        kind = F.when(F.col("type") == name, F.lit(code)).otherwise(kind)
    coded = events.select(
        "uuid", "at", "clock", "pid", "retries", "runtime", "eta_at", "row", "seen_at",
        kind.alias("kind"),
        *(F.when(F.col(c).isNotNull(), F.xxhash64(c)).alias(c) for c in ("host", "name", "queue")),
        *_id_columns("root"),
        *_id_columns("parent"),
    )  # fmt: skip
    # A hash passes over what is null, so each null has a number of its own here. Celery: each receiver
    # overwrites the clock of task-sent with its own.
    stamp = F.when(F.col("kind") == _SENT, F.lit(NO_CLOCK).cast("bigint")).otherwise(F.col("clock"))
    number, real = F.lit(0).cast("bigint"), F.lit(-1.0)
    identity = F.xxhash64(
        "kind", "at", stamp, "host", "pid", F.coalesce("queue", number), F.coalesce("runtime", real)
    )
    ids = (F.coalesce(F.col(f"{kin}_{part}"), number) for kin in ("root", "parent") for part in (1, 2))
    description = F.xxhash64(
        F.coalesce("name", number), "retries", F.coalesce("eta_at", real), "root", "parent", *ids
    )
    return coded.withColumns({"identity": identity, "description": description})


def _id_columns(kin: str) -> Iterable[Column]:
    """Return the id of a relative as numbers: what it is, and the two halves of another's."""
    id_ = F.col(f"{kin}_id")
    code = (
        F.when(id_.isNull(), F.lit(0))
        .when(id_ == F.col("uuid"), F.lit(_SELF))
        .when(id_.rlike(_UUID), F.lit(_OTHER))
        .otherwise(F.lit(_UNREADABLE))
    )
    is_other = id_.isNotNull() & (id_ != F.col("uuid")) & id_.rlike(_UUID)
    digits = F.replace(id_, F.lit("-"), F.lit(""))
    halves = (F.conv(F.substring(digits, begin, 16), 16, -10).cast("bigint") for begin in (1, 17))
    first, second = (F.when(is_other, half) for half in halves)
    return code.alias(kin), first.alias(f"{kin}_1"), second.alias(f"{kin}_2")


def with_texts(summed: DataFrame, known: DataFrame) -> DataFrame:
    """Put texts where their hashes are; a task with a hash that is not known is odd."""
    missing = []
    for column in _TEXTS:
        of_column = F.broadcast(
            known.select(F.col("hash").alias(column), F.col("text").alias(f"{column}_text"))
        )
        summed = summed.join(of_column, column, "left")
        missing.append(F.col(column).isNotNull() & F.col(f"{column}_text").isNull())
    rest = [c for c in summed.columns if c not in _TEXTS and not c.endswith("_text") and c != "is_odd"]
    found = (F.col(f"{column}_text").alias(column) for column in _TEXTS)
    return summed.select(*rest, *found, reduce(or_, missing, F.col("is_odd")).alias("is_odd"))


def plain_tasks(told: DataFrame) -> DataFrame:
    """Return the tasks with all columns of their table but ``day``; of odd ones only the id is right."""
    told = told.withColumns({"root_id": _id("root"), "parent_id": _id("parent")})
    kind = F.col("ended_kind")
    is_received, is_started = (F.col(f"{slot}_at").isNotNull() for slot in ("received", "started"))
    attempts = F.when(is_received, F.col("described_retries") + 1).otherwise(F.lit(0).cast("bigint"))
    moments = [F.col(f"{slot}_at") for slot in ("sent", *_BY_A_WORKER)]
    told_moments = [F.when(at > 0, at) for at in moments]
    columns = {
        "uuid": F.col("uuid"),
        "name": F.col("described_name"),
        **_outcome(),
        "worker": F.col("worker_host"),
        "client": F.col("sent_host"),
        "queue": F.col("sent_queue"),
        "root_id": F.col("root_id"),
        "parent_id": F.col("parent_id"),
        "retries": F.col("described_retries"),
        "attempts": attempts,
        "deliveries": is_received.cast("bigint"),
        "executions": is_started.cast("bigint"),
        "is_redelivered": is_received.cast("bigint") > attempts,
        "is_conflict": F.lit(False),
        "sent_at": F.col("sent_at"),
        "received_at": F.col("received_at"),
        "started_at": F.col("started_at"),
        "succeeded_at": F.when(kind == _SUCCEEDED, F.col("ended_at")),
        "failed_at": F.when(kind == _FAILED, F.col("ended_at")),
        "retried_at": F.lit(None).cast("double"),
        "revoked_at": F.when(kind == _REVOKED, F.col("ended_at")),
        "rejected_at": F.lit(None).cast("double"),
        "runtime": F.col("ended_runtime"),
        "first_at": F.least(*told_moments),
        "last_at": F.greatest(*told_moments),
        "seen_at": F.col("seen_at"),
        "description_row": F.coalesce(F.col("received_row"), F.col("sent_row")),
        "result_row": F.when(kind == _SUCCEEDED, F.col("ended_row")),
        "error_row": F.when(kind == _FAILED, F.col("ended_row")),
        "course": _course(),
        "history": F.lit(None).cast(ArrayType(HISTORY).simpleString()),
    }
    return told.select(*(column.alias(name) for name, column in columns.items()), "is_odd")


def _outcome() -> dict[str, Column]:
    """Return what gives the state, and what it says."""
    kind = F.col("ended_kind")
    is_ended, is_received, is_started = (
        F.col(f"{slot}_at").isNotNull() for slot in ("ended", "received", "started")
    )
    is_running = F.when(is_received, _start_follows()).otherwise(is_started)

    def of_decider(column: str) -> Column:
        return (
            F.when(is_ended, F.col(f"ended_{column}"))
            .when(is_running, F.col(f"started_{column}"))
            .when(is_received, F.col(f"received_{column}"))
            .otherwise(F.col(f"sent_{column}"))
        )

    state = (
        F.when(kind == _SUCCEEDED, F.lit(SUCCESS))
        .when(kind == _FAILED, F.lit(FAILURE))
        .when(kind == _REVOKED, F.lit(REVOKED))
        .when(is_running, F.lit(STARTED))
        .when(is_received, F.lit(RECEIVED))
        .otherwise(F.lit(PENDING))
    )
    phase = (
        F.when(is_ended, F.lit("done"))
        .when(is_running, F.lit("running"))
        .when(is_received, F.lit("received"))
        .otherwise(F.lit("queued"))
    )
    return {"state": state, "phase": phase, "state_at": of_decider("at"), "clock": of_decider("clock")}


def _start_follows() -> Column:
    """Tell whether the start is later than the receipt, in the same process; as ``core.facts`` does."""
    start, receipt = F.col("started_clock"), F.col("received_clock")
    is_incomparable = (start == NO_CLOCK) | (receipt == NO_CLOCK) | (F.abs(start - receipt) > NEW_INCARNATION)
    is_later = F.when(is_incomparable, F.col("started_at") > F.col("received_at")).otherwise(start > receipt)
    return F.coalesce(is_later, F.lit(False))


def _id(kin: str) -> Column:
    """Return the id of a relative as text."""
    halves = (F.lpad(F.lower(F.hex(F.col(f"described_{kin}_{part}"))), 16, "0") for part in (1, 2))
    digits = F.concat(*halves)
    cuts = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    other = F.concat_ws("-", *(F.substring(digits, begin, size) for begin, size in cuts))
    code = F.col(f"described_{kin}")
    return F.when(code == _SELF, F.col("uuid")).when(code == _OTHER, other)


def _course() -> Column:
    """Return what :func:`history` needs beside the other columns."""
    renamed = {"pid": "worker_pid", "eta_at": "described_eta_at"}
    return F.struct(*(F.col(renamed.get(name, name)).alias(name) for name in COURSE_FIELDS.names))


def history() -> Column:
    """Return the events of a task of the table, wherever it has them."""
    ended = {"succeeded": "succeeded_at", "failed": "failed_at", "revoked": "revoked_at"}
    described = {name: F.col(name) for name in ("name", "retries", "root_id", "parent_id")}
    described["eta_at"] = F.col("course.eta_at")
    sent = {"host": F.col("client"), "pid": F.col("course.sent_pid"), "queue": F.col("queue"), **described}
    events = F.array(
        _event("sent", F.col("sent_at"), "sent", sent),
        _event("received", F.col("received_at"), "received", described),
        _event("started", F.col("started_at"), "started", {}),
        *(_event(kind, F.col(name), "ended", {"runtime": F.col("runtime")}) for kind, name in ended.items()),
    )
    return F.when(F.col("course").isNull(), F.col("history")).otherwise(F.array_compact(events))


def _event(kind: str, at: Column, slot: str, more: Mapping[str, Column]) -> Column:
    """Return an event of a course as an element of a history; null if there was none."""
    kept = {
        "type": F.lit(kind),
        "at": at,
        "clock": F.col(f"course.{slot}_clock"),
        "host": F.col("worker"),
        "pid": F.col("course.pid"),
        "retries": F.lit(0),
        "row": F.col(f"course.{slot}_row"),
        **more,
    }
    # PySpark takes a name of a type as it is; for a type it asks Java which session is active.
    types = {field.name: field.dataType.simpleString() for field in HISTORY.fields}
    event = F.struct(*(kept.get(name, F.lit(None)).cast(type_).alias(name) for name, type_ in types.items()))
    return F.when(at.isNotNull(), event)
