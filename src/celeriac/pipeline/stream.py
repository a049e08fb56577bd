"""What is new in a log, taken as it comes, by Structured Streaming."""

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Lock
from typing import Final
from urllib.parse import unquote

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from celeriac.errors import CeleriacError
from celeriac.pipeline.intake import Intake
from celeriac.pipeline.session import is_remote
from celeriac.pipeline.warehouse import escaped
from celeriac.store.disk import At
from celeriac.store.segment import EVENTS

__all__ = ["followed"]

#: How often it is looked whether to stop.
_LOOK_EVERY: Final = 0.2
#: What Spark says of files of any kind.
_FILES: Final = "path string, modificationTime timestamp, length bigint, content binary"


def followed(
    spark: SparkSession,
    intake: Intake,
    *,
    checkpoint: str,
    interval: float,
    stop: Event,
    take: Callable[[Sequence[str] | None], object],
    at: At,
) -> None:
    """Give the names of new segments to ``take``, every ``interval`` seconds, until ``stop`` is set.

    The first time it gives None, for all that are not in the tables. Which were given is kept in
    ``checkpoint``. Names that were given when it was killed are given again.
    """
    if is_remote(spark):
        # There what takes a batch runs on the server, out of our reach.
        _looked(interval=interval, stop=stop, take=take, at=at)
        return
    failures: list[BaseException] = []
    busy, is_begun = Lock(), Event()

    def take_batch(batch: DataFrame, _number: int) -> None:
        with busy:
            try:
                _go_on(stop)
                # What an earlier stream had to leave out, such as a damaged segment, may be well now.
                take(_names(batch) if is_begun.is_set() else None)
                is_begun.set()
                at("before-commit")
            except BaseException as error:
                # Spark tells it as a text; whoever waits is to have it as it is.
                failures.append(error)
                raise

    if intake.place.is_local:
        Path(intake.place.url, EVENTS).mkdir(parents=True, exist_ok=True)
    query = (
        _paths(spark, intake.events)
        .writeStream.foreachBatch(take_batch)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=f"{max(int(interval * 1000), 1)} milliseconds")
        .start()
    )
    try:
        while not stop.is_set() and query.isActive:
            query.awaitTermination(_LOOK_EVERY)  # type: ignore[arg-type] # fractions are fine
    except StreamingQueryException:
        failure = failures[0] if failures else None
        if isinstance(failure, CeleriacError):
            raise failure from None
        if not isinstance(failure, _Stopped):
            raise
    finally:
        # A batch that is under way is ended first: to stop in the middle would have to be undone.
        with busy:
            query.stop()


def _paths(spark: SparkSession, events: str) -> DataFrame:
    """Return the names of files as they come. None is opened, so none that is damaged ends the stream."""
    return (
        spark.readStream.format("binaryFile")
        .schema(_FILES)
        .options(recursiveFileLookup="true", pathGlobFilter="*.parquet")
        # A segment that was merged before its turn is in another, which has its own.
        .option("ignoreMissingFiles", "true")
        .load(escaped(events))
        .select("path")
    )


class _Stopped(Exception):
    """A batch is not begun any more, and so is not noted as done."""


def _go_on(stop: Event) -> None:
    if stop.is_set():
        raise _Stopped


def _names(batch: DataFrame) -> list[str]:
    return sorted(_name(row["path"]) for row in batch.distinct().collect())


def _looked(*, interval: float, stop: Event, take: Callable[[Sequence[str] | None], object], at: At) -> None:
    """Do the same by looking at the log, without a checkpoint: which events the tables have is enough."""
    while not stop.is_set():
        take(None)
        at("before-commit")
        stop.wait(interval)


def _name(path: str) -> str:
    """Return the name of a segment that Spark calls by its address: ``events/date=…/hour=…/….parquet``."""
    return "/".join(unquote(path).split("/")[-4:])
