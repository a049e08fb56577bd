"""The jobs of the pipeline: from what is new in a log to tables that are published all at once."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from time import monotonic, time
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from celeriac.core.coverage import join
from celeriac.errors import CallerError, CeleriacError
from celeriac.pipeline.compaction import compacted
from celeriac.pipeline.estimate import estimate
from celeriac.pipeline.intake import Chunk, Gone, Intake, covered_spans, partly
from celeriac.pipeline.mirror import Mirror
from celeriac.pipeline.refresh import Refresh
from celeriac.pipeline.report import Compacted, Estimate, Report, Verified
from celeriac.pipeline.session import reason_of
from celeriac.pipeline.stream import followed
from celeriac.pipeline.verification import verified
from celeriac.pipeline.warehouse import Staged, Superseded, Warehouse, changed, new_run
from celeriac.store.catalogue import span_of
from celeriac.store.disk import At, pass_by
from celeriac.store.manifest import Manifest, PartFile
from celeriac.store.segment import Segment

__all__ = ["Pipeline"]

#: Is told how many events are done, and of how many.
Progress = Callable[[int, int], object]

#: About 16 million tasks: what fits on the disk of a small machine while it is sorted.
_CHUNK_EVENTS: Final = 64_000_000
#: Of fewer events a rate says little.
_MEASURED_EVENTS: Final = 100_000
#: Segments that are merged while they are read are looked for again so often.
_TRIES: Final = 5
#: How much of the work is done when a phase is.
_CHECKED, _FOLDED, _MADE = 0.05, 0.6, 0.95
_CHECKPOINT: Final = "checkpoint"
_GONE: Final = (
    "segments of the log were removed while the job read them: celeriac log compact may be running; run "
    "the job again when it has finished. The published tables are unchanged"
)


class Pipeline:
    """Keeps the tables of a warehouse up to date with a log.

    ``log`` and ``warehouse`` are folders or URLs. What is published at any moment is right as far as it goes,
    whatever becomes of the job; to run it again goes on from there. ``chunk_events`` are taken at once,
    ``mirror`` is ``delta`` or ``iceberg`` to have the tables in that format too. ``progress`` is told events,
    and ``at`` each point that a job passes: ``chunk-read``, ``tasks-staged``, ``before-publish``,
    ``after-publish``, and ``before-commit`` of a stream.
    """

    def __init__(
        self,
        spark: SparkSession,
        log: str | Path,
        warehouse: str | Path,
        *,
        chunk_events: int = _CHUNK_EVENTS,
        mirror: str | None = None,
        progress: Progress | None = None,
        at: At = pass_by,
    ) -> None:
        if chunk_events < 1:
            raise CallerError("chunk_events must be at least 1")
        self._spark = spark
        self._intake = Intake(spark, log)
        self._warehouse = Warehouse(spark, warehouse)
        self._mirror = None if mirror is None else Mirror(spark, self._warehouse, mirror)
        self._chunk_events = chunk_events
        self._progress = progress
        self._at = at
        self._done = self._total = 0

    def run(self) -> Report:
        """Take in all segments that are new, and return what was done. To do it again changes nothing.

        Raises DiskError while another job writes to the warehouse, and CeleriacError if Spark fails.
        """
        with self._begun():
            return self._new()

    def backfill(self, since: float | None = None, until: float | None = None) -> Report:
        """Read the segments of a time again, whether they are in the tables or not. Nothing counts twice."""
        with self._begun():
            wanted = self._intake.within(since, until)
            return self._all(lambda: wanted, is_again=True)

    def follow(self, interval: float, stop: Event) -> Report:
        """Take in what is new, every so many seconds, until ``stop`` is set."""
        report = Report()

        def take() -> None:
            # One batch at a time, so that the tables can be compacted in between.
            with self._warehouse.alone(stop=stop):
                report.add(self._new())

        with self._told(), self._warehouse.alone(f"{_CHECKPOINT}.lock"):
            followed(
                self._spark,
                self._intake,
                checkpoint=f"{self._warehouse.root}/{_CHECKPOINT}",
                is_resumed=any(self._warehouse.place.names(_CHECKPOINT)),
                interval=interval,
                stop=stop,
                take=take,
                at=self._at,
            )
        return report

    def compact(self) -> Compacted:
        """Write the days of tables that consist of many small files as one file each."""
        with self._begun():
            return compacted(self._spark, self._warehouse, publish=self._publish_others)

    def verify(self, sample: int = 1000) -> Verified:
        """Fold the events of some tasks in memory, and compare them with the table."""
        with self._told():
            try:
                return verified(self._spark, self._intake, self._warehouse, sample=sample)
            except Gone:
                raise CeleriacError(_GONE) from None

    def explain(self) -> Estimate:
        """Return what a run would read now, how Spark would go about it, and how long it may take."""
        with self._told():
            return estimate(self._intake, self._warehouse)

    # -- how a job goes

    @contextmanager
    def _begun(self) -> Iterator[None]:
        """Be alone with the warehouse, and tell what Spark refuses."""
        with self._told(), self._warehouse.alone():
            yield

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (PySparkException, Py4JError, OSError) as error:
            if _is_interrupted(error):
                raise KeyboardInterrupt from None
            if isinstance(error, OSError):
                raise
            raise CeleriacError(
                f"Spark failed: {reason_of(error)}. The published tables are unchanged; fix the error and "
                "run the job again, which continues from there"
            ) from error

    def _all(self, find: Callable[[], list[Segment]], *, is_again: bool = False) -> Report:
        """Take what is found, chunk by chunk, until there is nothing left that was not tried."""
        report, tried, tries_left = Report(), set[str](), _TRIES
        self._done = self._total = 0
        while True:
            found = [segment for segment in find() if segment.path not in tried]
            self._total = self._done + sum(segment.rows for segment in found)
            chunk = self._first(found)
            if not chunk:
                break
            try:
                done = self._take(chunk, is_again=is_again)
            except Gone:
                # What was there a moment ago is part of something else now.
                tries_left -= 1
                if is_again or not tries_left:
                    raise CeleriacError(_GONE) from None
                continue
            except Superseded:
                tries_left -= 1
                if not tries_left:
                    raise
                continue
            tried |= {segment.path for segment in chunk}
            report.add(done)
        if self._mirror is not None:
            self._mirror.write()
        return report

    def _new(self) -> Report:
        """Take the segments that are not in the tables yet, of those that are in the log now.

        What is sealed meanwhile waits for the next time: else a recorder that seals faster than a chunk is
        taken would keep us for ever. What is merged meanwhile begins with a number that was there.
        """
        last: dict[str, int] = {}
        for segment in self._intake.segments():
            last[segment.recorder] = max(segment.last, last.get(segment.recorder, 0))

        def find() -> list[Segment]:
            new = self._intake.new(covered_spans(self._warehouse.manifest()))
            return [segment for segment in new if segment.first <= last.get(segment.recorder, -1)]

        return self._all(find)

    def _first(self, found: Sequence[Segment]) -> list[Segment]:
        """Return as many segments as are taken at once, one at least."""
        chunk: list[Segment] = []
        rows = 0
        for segment in found:
            rows += segment.rows
            if chunk and rows > self._chunk_events:
                break
            chunk.append(segment)
        return chunk

    def _take(self, segments: Sequence[Segment], *, is_again: bool) -> Report:
        """Bring the tables up to date with some segments, and publish them."""
        manifest, clock = self._warehouse.manifest(), _Clock()
        self._warehouse.clean(manifest, now=time())
        chunk = self._intake.checked(segments)
        self._at("chunk-read")
        clock.lap("check")
        self._tell(chunk, _CHECKED)
        if not chunk.segments and not self._is_news(manifest, chunk):
            return Report(faults=[each.text for each in chunk.unused], seconds=clock.seconds)
        refresh = Refresh(self._spark, self._warehouse, manifest, run=new_run(time()))
        is_published = False
        try:
            recorders, events = self._make(refresh, manifest, chunk, clock, is_again=is_again)
            staged = self._warehouse.staged(refresh.runs)
            made = self._next(
                manifest,
                refresh,
                chunk,
                staged=staged,
                recorders=recorders,
                events=events,
                seconds=clock.total,
            )
            self._at("before-publish")
            self._warehouse.publish(made, staged)
            is_published = True
            self._at("after-publish")
        except (PySparkException, Py4JError, OSError):
            # Somebody may have merged what we were reading.
            if self._intake.is_gone(chunk.segments):
                raise Gone from None
            raise
        finally:
            if not is_published:
                self._warehouse.discard(refresh.runs)
        clock.lap("publish")
        self._tell(chunk, 1.0)
        self._done += sum(segment.rows for segment in segments)
        tasks = self._warehouse.written("tasks", refresh.runs[0])
        return Report(
            events=events,
            tasks=sum(
                each.rows for each in _files(staged, "tasks") if each.path in {one.path for one in tasks}
            ),
            chunks=1,
            segments=len(chunk.segments),
            faults=[each.text for each in chunk.unused],
            days=set(staged.tables.get("tasks", {})),
            seconds=clock.seconds,
        )

    def _make(
        self, refresh: Refresh, manifest: Manifest | None, chunk: Chunk, clock: "_Clock", *, is_again: bool
    ) -> tuple[tuple[str, ...], int]:
        """Write all tables; return all recorders, and how many events were new."""
        known = () if manifest is None else manifest.recorders
        if not chunk.segments:
            refresh.faults(None, (), unused=chunk.unused, used=())
            return known, 0
        covered = covered_spans(manifest)
        named = {segment.recorder for segment in chunk.segments}
        recorders = (*known, *sorted(named - set(known)))
        raw = self._intake.raw(chunk.segments)
        fresh = self._intake.fresh(raw, chunk.segments, covered)
        events = fresh.count() if partly(chunk.segments, covered) else chunk.rows
        read = raw if is_again else fresh
        refresh.tasks(read, recorders)
        self._at("tasks-staged")
        clock.lap("tasks")
        self._tell(chunk, _FOLDED)
        refresh.others(
            read,
            fresh,
            recorders,
            texts=self._intake.long_texts(chunk.segments),
            unused=chunk.unused,
            used=[segment.path for segment in chunk.segments],
        )
        clock.lap("tables")
        self._tell(chunk, _MADE)
        return recorders, events

    def _next(
        self,
        manifest: Manifest | None,
        refresh: Refresh,
        chunk: Chunk,
        *,
        staged: Staged,
        recorders: tuple[str, ...],
        events: int,
        seconds: float,
    ) -> Manifest:
        spans = join([*covered_spans(manifest), *map(span_of, chunk.segments)])
        covered: dict[str, tuple[tuple[int, int], ...]] = {}
        for span in spans:
            covered[span.recorder] = (*covered.get(span.recorder, ()), (span.first, span.last))
        rate = events / seconds if seconds and events >= _MEASURED_EVENTS else None
        return changed(
            manifest,
            staged,
            refresh.dropped,
            log=self._intake.place.url,
            recorders=recorders,
            covered=covered,
            events=events + (0 if manifest is None else manifest.events),
            rate=rate or (None if manifest is None else manifest.rate),
        )

    def _publish_others(self, manifest: Manifest, staged: Staged, dropped: set[str]) -> None:
        """Publish the same rows in other files."""
        self._at("before-publish")
        made = changed(
            manifest,
            staged,
            dropped,
            log=manifest.log,
            recorders=manifest.recorders,
            covered=manifest.covered,
            events=manifest.events,
            rate=manifest.rate,
        )
        self._warehouse.publish(made, staged)
        self._at("after-publish")

    def _is_news(self, manifest: Manifest | None, chunk: Chunk) -> bool:
        """Say whether a segment that cannot be used is not told of yet."""
        files = (
            []
            if manifest is None
            else [each for day in manifest.tables.get("faults", {}).values() for each in day]
        )
        known = {(row["kind"], row["source"]) for row in self._warehouse.read("faults", files).collect()}
        return any((each.kind, each.path) not in known for each in chunk.unused)

    def _tell(self, chunk: Chunk, share: float) -> None:
        if self._progress is not None:
            self._progress(self._done + int(chunk.rows * share), self._total)


def _is_interrupted(error: BaseException | None) -> bool:
    """Say whether an error is what came of Ctrl-C: whoever tidies up then finds no Spark to do it with."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _files(staged: Staged, table: str) -> list[PartFile]:
    return [each for files in staged.tables.get(table, {}).values() for each in files]


class _Clock:
    """How long phases take."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = monotonic()

    def lap(self, phase: str) -> None:
        """End a phase."""
        now = monotonic()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._since
        self._since = now

    @property
    def total(self) -> float:
        """Seconds so far."""
        return sum(self.seconds.values())
