"""Tasks that were retried, delivered again or told of in their own words: read from all of their events.

The rules are those of :mod:`celeriac.core.facts` and the bounds those of :mod:`celeriac.core.history`, as
expressions over an array of events. Rows of it are in task order, so structs begin with what that order
compares.
"""

from collections.abc import Callable
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celeriac.core import facts, history
from celeriac.model.clock import NEW_INCARNATION, NO_CLOCK
from celeriac.model.events import (
    Custom,
    Failed,
    Received,
    Rejected,
    Retried,
    Revoked,
    Sent,
    Started,
    Succeeded,
    TaskEvent,
)
from celeriac.model.states import (
    BUILT_IN_STATES,
    FAILURE,
    PENDING,
    RECEIVED,
    REJECTED,
    RETRY,
    REVOKED,
    STARTED,
    SUCCESS,
)
from celeriac.pipeline.schema import COURSE_FIELDS, HISTORY

__all__ = ["odd_tasks"]

_KINDS: Final[dict[str, type[TaskEvent]]] = {
    kind.subject: kind for kind in (Sent, Received, Started, Succeeded, Failed, Retried, Rejected, Revoked)
}
_STATES: Final = {
    "sent": PENDING,
    "received": RECEIVED,
    "started": STARTED,
    "succeeded": SUCCESS,
    "failed": FAILURE,
    "retried": RETRY,
    "rejected": REJECTED,
    "revoked": REVOKED,
}
_PHASES: Final = {
    "sent": "queued",
    "received": "received",
    "succeeded": "done",
    "failed": "done",
    "revoked": "done",
    "retried": "retry_wait",
}
#: What identifies an event of a task, and orders it: ``core.order.task_key``.
_KEY: Final = ("at", "stamp", "host", "pid", "type", "retries")
#: Of two contents of one identity, which is a forgery or a bug, the greatest is kept: whichever was recorded
#: last is up to chance.
_REST: Final = ("name", "queue", "root_id", "parent_id", "runtime", "eta_at", "requeue", "row", "clock")


def odd_tasks(events: DataFrame) -> DataFrame:
    """Return the tasks of events, with all columns of their table but ``day``."""
    # Celery: each receiver overwrites the clock of task-sent with its own.
    stamp = F.when(F.col("type") == "sent", F.lit(NO_CLOCK).cast("bigint")).otherwise(F.col("clock"))
    event = F.struct(*(stamp.alias(c) if c == "stamp" else F.col(c) for c in (*_KEY, *_REST)))
    collected = events.groupBy("uuid").agg(
        F.array_sort(F.collect_list(event)).alias("all"), F.min("seen_at").alias("seen_at")
    )
    stages: tuple[Callable[[DataFrame], DataFrame], ...] = (
        _distinct,
        _bounded,
        _spoken,
        _weighed,
        _decided,
        _told,
    )
    return reduce(lambda frame, stage: frame.transform(stage), stages, collected)


def _distinct(tasks: DataFrame) -> DataFrame:
    """Leave one event of each identity: of two recorders that have it, or where it came twice."""
    every = F.col("all")

    def is_last(event: Column, place: Column) -> Column:
        after = F.get(every, place + 1)
        return after.isNull() | ~_is_same(after, event)

    tasks = tasks.select("uuid", "seen_at", "all", F.filter(every, is_last).alias("kept"))

    def mended(event: Column) -> Column:
        doubles = F.filter(every, lambda other: _is_same(other, event))
        clock = F.array_max(F.transform(doubles, lambda other: other["clock"]))
        return F.when(event["type"] == "sent", event.withField("clock", clock)).otherwise(event)

    is_clean = F.size("all") == F.size("kept")
    events = F.when(is_clean, F.col("kept")).otherwise(F.transform("kept", mended))
    return tasks.select("uuid", "seen_at", events.alias("events"))


def _is_same(one: Column, other: Column) -> Column:
    return reduce(lambda a, b: a & b, (one[name] == other[name] for name in reversed(_KEY)))


def _bounded(tasks: DataFrame) -> DataFrame:
    """Part the events by their types, each within the bound of its type."""
    parts = {subject: F.filter("events", _is_of(subject)) for subject in _KINDS}
    parts["custom"] = F.filter("events", lambda e: ~e["type"].isin(*_KINDS))
    tasks = tasks.select("uuid", "seen_at", "events", *(part.alias(name) for name, part in parts.items()))
    capped = [_capped(F.col(subject), history.CAPS[kind]).alias(subject) for subject, kind in _KINDS.items()]
    capped.append(_capped_customs(F.col("custom"), history.CAPS[Custom]).alias("custom"))
    tasks = tasks.select("uuid", "seen_at", "events", *capped)
    kept = F.array_sort(F.concat(*(F.col(name) for name in parts)))
    is_within = F.size("events") <= min(history.CAPS.values())
    return tasks.withColumn("events", F.when(is_within, F.col("events")).otherwise(kept))


def _is_of(subject: str) -> Callable[[Column], Column]:
    return lambda event: event["type"] == subject


def _capped(same: Column, cap: int) -> Column:
    """Keep the first and the last event, and between them those of the latest attempts."""
    ranked = F.transform(
        F.slice(same, 2, F.size(same) - 2),
        lambda e: F.struct(e["retries"].alias("attempt"), e.alias("event")),
    )
    between = F.transform(F.slice(F.array_sort(ranked), 2 - cap, cap - 2), lambda e: e["event"])
    ends = F.concat(F.slice(same, 1, 1), F.slice(same, -1, 1))
    return F.when(F.size(same) <= cap, same).otherwise(F.array_sort(F.concat(ends, between)))


def _capped_customs(same: Column, cap: int) -> Column:
    """Keep the first, the latest, and the last of each host, which is all that can decide a state."""
    by_host = F.array_sort(
        F.transform(
            same,
            lambda e: F.struct(e["host"].alias("host"), _is_state(e["type"]).alias("like"), e.alias("event")),
        )
    )

    def lasts(sorted_: Column) -> Column:
        def is_last(one: Column, place: Column) -> Column:
            after = F.get(sorted_, place + 1)
            is_of_it = (after["host"] == one["host"]) & (after["like"] == one["like"])
            return after.isNull() | ~is_of_it

        return F.transform(F.filter(sorted_, is_last), lambda one: one["event"])

    of_hosts = F.reverse(F.slice(F.reverse(F.array_sort(_let(by_host, lasts))), 1, cap))
    latest = F.slice(F.reverse(same), 1, cap - 2)
    kept = F.array_sort(F.array_distinct(F.concat(F.slice(same, 1, 1), latest, of_hosts)))
    return F.when(F.size(same) <= cap, same).otherwise(kept)


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """Work a value out once, for an expression that needs it many times."""
    return F.transform(F.array(value), body)[0]


def _is_state(subject: Column) -> Column:
    return F.upper(subject).isin(*sorted(BUILT_IN_STATES))


def _spoken(tasks: DataFrame) -> DataFrame:
    """Add the event that speaks for each type: the last one, and of descriptions that of the last attempt."""
    last = {name: F.try_element_at(F.col(name), F.lit(-1)) for name in _KINDS}
    for name in ("sent", "received"):
        last[name] = _of_last_attempt(F.col(name))
    parents = F.filter(
        F.concat(F.col("sent"), F.col("received")),
        # Celery: a retry names the task as its own parent; an earlier attempt knows better.
        lambda e: e["parent_id"].isNotNull() & (e["parent_id"] != F.col("uuid")),
    )
    return tasks.select(
        "*",
        *(event.alias(f"last_{name}") for name, event in last.items()),
        _of_last_attempt(parents)["parent_id"].alias("parent_id"),
        F.filter("custom", lambda e: ~_is_state(e["type"])).alias("customs"),
    )


def _of_last_attempt(events: Column) -> Column:
    ranked = F.transform(events, lambda e: F.struct(e["retries"].alias("attempt"), e.alias("event")))
    return F.array_max(ranked)["event"]


def _weighed(tasks: DataFrame) -> DataFrame:
    """Add whether the last attempt gave up, and its receipts."""
    received, retried = F.col("last_received"), F.col("retried")
    # One retry may have come twice, once with its timestamp mended: its stamp tells.
    stamps = F.transform(
        retried, lambda e: F.struct(e["host"], e["pid"], e["clock"], F.when(e["clock"] == NO_CLOCK, e["at"]))
    )
    gave_up = (
        F.when(F.size(retried) >= history.CAPS[Retried], _key(F.col("last_retried")) > _key(received))
        .when(F.size(retried) <= received["retries"], F.lit(False))
        .otherwise(F.size(F.array_distinct(stamps)) > received["retries"])
    )
    live = F.filter("received", lambda e: e["retries"] == received["retries"])
    return tasks.select(
        "*",
        F.when(received.isNotNull(), gave_up).otherwise(F.lit(False)).alias("gave_up"),
        live.alias("live"),
    )


def _key(event: Column) -> Column:
    return F.struct(*(event[name].alias(name) for name in _KEY))


def _decided(tasks: DataFrame) -> DataFrame:
    """Add the event that gives the state."""
    open_ended = F.filter(
        "events",
        lambda e: e["type"].isin("started", "retried") | (~e["type"].isin(*_KINDS) & ~_is_state(e["type"])),
    )
    open_attempt = F.when(F.col("gave_up"), F.col("last_retried")).otherwise(
        F.coalesce(_last_custom(), _last_start(), F.col("last_received"))
    )
    attempt = F.when(F.col("last_received").isNull(), F.try_element_at(open_ended, F.lit(-1)))
    decided = F.coalesce(
        F.col("last_succeeded"),
        F.col("last_failed"),
        F.col("last_revoked"),
        attempt.otherwise(open_attempt),
        F.col("last_rejected"),
        F.col("last_sent"),
    )
    return tasks.select("*", decided.alias("decided"))


def _last_custom() -> Column:
    """Return the last custom state told by a host after it received the attempt."""
    after = F.filter(
        "customs",
        lambda c: F.exists("live", lambda r: (r["host"] == c["host"]) & (c["at"] >= r["at"])),
    )
    return F.try_element_at(after, F.lit(-1))


def _last_start() -> Column:
    """Return the last start in a process that had received the attempt before."""
    most = facts.MAX_COMPARED

    def first_of_each(receipts: Column) -> Column:
        return F.filter(receipts, lambda e, i: (i < most) | ~_is_same_process(F.get(receipts, i - most), e))

    def last_of_each(starts: Column) -> Column:
        def is_among(event: Column, place: Column) -> Column:
            later = F.get(starts, place + most)
            return later.isNull() | ~_is_same_process(later, event)

        return F.filter(starts, is_among)

    def following(receipts: Column) -> Column:
        starts = _let(_by_process(F.col("started")), last_of_each)
        told = F.filter(starts, lambda s: F.exists(receipts, lambda r: _follows(s, r)))
        return F.array_max(F.transform(told, lambda e: e["event"]))

    receipts = _let(_by_process(F.col("live")), first_of_each)
    return F.when(F.size("started") > 0, _let(receipts, following))


def _by_process(events: Column) -> Column:
    return F.array_sort(
        F.transform(
            events, lambda e: F.struct(e["host"].alias("host"), e["pid"].alias("pid"), e.alias("event"))
        )
    )


def _is_same_process(one: Column, other: Column) -> Column:
    return (one["pid"] == other["pid"]) & (one["host"] == other["host"])


def _follows(start: Column, receipt: Column) -> Column:
    one, other = start["event"], receipt["event"]
    is_incomparable = (
        (one["clock"] == NO_CLOCK)
        | (other["clock"] == NO_CLOCK)
        | (F.abs(one["clock"] - other["clock"]) > NEW_INCARNATION)
    )
    is_later = F.when(is_incomparable, one["at"] > other["at"]).otherwise(one["clock"] > other["clock"])
    return _is_same_process(start, receipt) & is_later


def _told(tasks: DataFrame) -> DataFrame:
    """Return the columns of the table."""
    decided, received, sent = F.col("decided"), F.col("last_received"), F.col("last_sent")
    description = F.coalesce(received, sent)
    attempts = F.coalesce(received["retries"] + 1, F.lit(0).cast("bigint"))
    deliveries, executions = F.size("received").cast("bigint"), F.size("started").cast("bigint")
    moments = F.filter(F.transform("events", lambda e: e["at"]), lambda at: at > 0)
    columns = {
        "uuid": F.col("uuid"),
        "name": description["name"],
        "state": _state(),
        "phase": _phase(),
        "worker": _worker(),
        "client": sent["host"],
        "queue": sent["queue"],
        "root_id": description["root_id"],
        "parent_id": F.col("parent_id"),
        "retries": description["retries"],
        "attempts": attempts,
        "deliveries": deliveries,
        "executions": executions,
        "is_redelivered": deliveries > attempts,
        "is_conflict": _is_conflict(),
        "sent_at": sent["at"],
        "received_at": received["at"],
        **{
            f"{name}_at": F.col(f"last_{name}")["at"]
            for name in ("started", "succeeded", "failed", "retried", "revoked", "rejected")
        },
        "state_at": decided["at"],
        "clock": F.coalesce(decided["clock"], F.lit(NO_CLOCK).cast("bigint")),
        "runtime": F.col("last_succeeded")["runtime"],
        "first_at": F.array_min(moments),
        "last_at": F.array_max(moments),
        "seen_at": F.col("seen_at"),
        "description_row": description["row"],
        "result_row": F.col("last_succeeded")["row"],
        "error_row": F.coalesce(F.col("last_failed"), F.col("last_retried"))["row"],
        "course": F.lit(None).cast(COURSE_FIELDS.simpleString()),
        "history": F.transform(
            "events", lambda e: F.struct(*(e[field.name].alias(field.name) for field in HISTORY.fields))
        ),
    }
    return tasks.select(*(column.alias(name) for name, column in columns.items()))


def _state() -> Column:
    kind = F.col("decided")["type"]
    state = F.upper(kind)
    for name, told in _STATES.items():
        state = F.when(kind == name, F.lit(told)).otherwise(state)
    return F.coalesce(state, F.lit(PENDING))


def _phase() -> Column:
    """Return where the task is now; requeued if the process that has it gave it back last."""
    decided, received = F.col("decided"), F.col("last_received")
    kind = decided["type"]
    on_hand = F.filter(
        "events", lambda e: e["type"].isin("received", "started", "rejected") & _is_same_process(e, received)
    )
    last = F.try_element_at(on_hand, F.lit(-1))
    was_requeued = F.coalesce(last["requeue"], F.lit(False))  # of a rejection alone it is told
    phase = F.lit("running")
    for name, told in _PHASES.items():
        phase = F.when(kind == name, F.lit(told)).otherwise(phase)
    is_open = ~kind.isin("sent", "succeeded", "failed", "revoked", "retried")
    return (
        F.when(kind.isNull(), F.lit("queued"))
        .when((kind == "rejected") & F.coalesce(decided["requeue"], F.lit(False)), F.lit("requeued"))
        .when(kind == "rejected", F.lit("done"))
        .when(is_open & was_requeued, F.lit("requeued"))
        .otherwise(phase)
    )


def _worker() -> Column:
    decided, received = F.col("decided"), F.col("last_received")
    of_workers = F.filter("events", lambda e: e["type"] != "sent")
    return (
        F.when(decided["type"].isin("succeeded", "failed", "revoked", "retried"), decided["host"])
        .when(received.isNotNull(), received["host"])
        .otherwise(F.try_element_at(of_workers, F.lit(-1))["host"])
    )


def _is_conflict() -> Column:
    succeeded, failed = F.col("last_succeeded").isNotNull(), F.col("last_failed").isNotNull()
    return (succeeded & failed) | ((succeeded | failed) & (F.col("gave_up") | (F.size("succeeded") > 1)))
