"""From events to tasks, by the rules of the in-memory state.

A task is a function of the set of its events, and what the rules need of them is in ``history``. So new
events are joined to a task by folding them together with the events it has: there is no other merge.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from celeriac.pipeline.event import COLUMNS
from celeriac.pipeline.odd import odd_tasks
from celeriac.pipeline.plain import plain_tasks, sums, texts, with_texts
from celeriac.pipeline.schema import table_schema

__all__ = ["MAX_BROADCAST", "day_of", "events_of", "fold", "folded"]

#: Ids of odd tasks that each executor is sent, some 100 MB; more are joined by a shuffle.
MAX_BROADCAST: Final = 1_000_000


def fold(events: DataFrame) -> DataFrame:
    """Return the tasks of events.

    The same for any order of events, and however often one is among them. To write the tasks, :func:`folded`
    is quicker.
    """
    told = with_texts(sums(events), texts(events))
    return _joined(told, events, told.where("is_odd").select("uuid"))


@contextmanager
def folded(events: DataFrame) -> Iterator[DataFrame]:
    """Give the tasks of events as :func:`fold` does, and keep what is needed twice while they are used."""
    known = texts(events).persist(StorageLevel.MEMORY_AND_DISK)
    summed = sums(events).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        told = with_texts(summed, known)
        odd = told.where("is_odd").select("uuid")
        is_few = odd.count() <= MAX_BROADCAST
        yield _joined(told, events, F.broadcast(odd) if is_few else odd)
    finally:
        summed.unpersist()
        known.unpersist()


def _joined(told: DataFrame, events: DataFrame, odd: DataFrame) -> DataFrame:
    tasks = plain_tasks(told).unionByName(odd_tasks(events.join(odd, "uuid", "left_semi")))
    schema = table_schema("tasks")
    return tasks.withColumn("day", day_of(F.col("seen_at"))).select(*schema.names).to(schema)


def events_of(tasks: DataFrame) -> DataFrame:
    """Return the events of tasks, as :func:`celeriac.pipeline.event.narrow` gives them."""
    told = tasks.select("uuid", "seen_at", F.explode("history").alias("event"))
    return told.select("uuid", *(F.col("event")[name].alias(name) for name in COLUMNS), "seen_at")


def day_of(at: Column) -> Column:
    """Return the UTC date of a moment, whatever the time zone of the session: ``2026-11-14``."""
    days = F.floor(at / 86_400).cast("int")
    return F.date_from_unix_date(days).cast("string")
