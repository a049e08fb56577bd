"""From events to tasks, by the rules of the in-memory state.

A task is a function of the set of its events, and what the rules need of them is in ``course`` or
``history``. So new events are joined to a task by folding them together with the events it has: there is no
other merge.

To fold many events in one step Spark would have to sum them up twice, for the plain tasks and to know the odd
ones. So there are two steps: :func:`plain_or_noted` gives the plain tasks and names the odd ones, and
:func:`odd_of` folds those. :func:`fold` is both at once.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from celeriac.pipeline.event import COLUMNS
from celeriac.pipeline.odd import odd_tasks
from celeriac.pipeline.plain import history, plain_tasks, sums, texts, with_texts
from celeriac.pipeline.row import day_of
from celeriac.pipeline.schema import table_schema

__all__ = ["MAX_BROADCAST", "NOTED", "events_of", "fold", "odd_of", "plain_or_noted"]

#: Ids of odd tasks that each executor is sent, some 100 MB; more are joined by a shuffle.
MAX_BROADCAST: Final = 1_000_000
#: The day of a row that is no task, and only names one.
NOTED: Final = "noted"


def fold(events: DataFrame) -> DataFrame:
    """Return the tasks of events: the same for any order of events, and however often one is among them."""
    told = plain_or_noted(events, texts(events))
    is_noted = F.col("day") == NOTED
    return told.where(~is_noted).unionByName(odd_of(events, told.where(is_noted)))


def plain_or_noted(events: DataFrame, known: DataFrame) -> DataFrame:
    """Return the plain tasks of events, and a row of the day :data:`NOTED` with the id of each other one.

    ``known`` are the :func:`~celeriac.pipeline.plain.texts` of the events.
    """
    tasks = plain_tasks(with_texts(sums(events), known))
    return _rows(tasks, F.when(F.col("is_odd"), NOTED).otherwise(day_of(F.col("seen_at"))))


def odd_of(events: DataFrame, noted: DataFrame) -> DataFrame:
    """Return the tasks of events that are noted by their ids."""
    wanted = events.join(noted.select("uuid"), "uuid", "left_semi")
    return _rows(odd_tasks(wanted), day_of(F.col("seen_at")))


def _rows(tasks: DataFrame, day: Column) -> DataFrame:
    schema: StructType = table_schema("tasks")
    return tasks.withColumn("day", day).select(*schema.names).to(schema)


def events_of(tasks: DataFrame) -> DataFrame:
    """Return the events of tasks, as :func:`celeriac.pipeline.event.narrow` gives them."""
    told = tasks.select("uuid", "seen_at", F.explode(history()).alias("event"))
    return told.select("uuid", *(F.col("event")[name].alias(name) for name in COLUMNS), "seen_at")
