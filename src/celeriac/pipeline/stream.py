"""What is new in a log, taken as it comes, by Structured Streaming."""

from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock
from typing import Final

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
    is_resumed: bool,
    interval: float,
    stop: Event,
    take: Callable[[], object],
    at: At,
) -> None:
    """Call ``take`` whenever there are new segments, looking every ``interval`` seconds.

    If it ``is_resumed`` it does so at once too, or what was mended meanwhile would wait for something new. It
    ends when ``stop`` is set. Which segments it was called for is kept in ``checkpoint``: after a kill it is
    called for them again. What is to be taken it finds by itself, so that a segment which could not be used,
    and was brought back from a copy since, is taken too.
    """
    if is_remote(spark):
        # There what takes a batch runs on the server, out of our reach.
        _looked(interval=interval, stop=stop, take=take, at=at)
        return
    failures: list[BaseException] = []
    busy = Lock()

    def take_batch(_batch: DataFrame, _number: int) -> None:
        with busy:
            try:
                _go_on(stop)
                take()
                at("before-commit")
            except BaseException as error:
                # Spark tells it as a text; whoever waits is to have it as it is.
                failures.append(error)
                raise

    if intake.place.is_local:
        Path(intake.place.url, EVENTS).mkdir(parents=True, exist_ok=True)
    if is_resumed:
        take()
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


def _looked(*, interval: float, stop: Event, take: Callable[[], object], at: At) -> None:
    """Do the same by looking at the log, without a checkpoint: which events the tables have is enough."""
    while not stop.is_set():
        take()
        at("before-commit")
        stop.wait(interval)
