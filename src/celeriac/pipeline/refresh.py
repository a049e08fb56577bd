"""The tables, brought up to date with new rows of the log.

No row is changed where it is. Files that hold a task of which there is news are written again without it, and
the task as it is now is in a new file; all other files stay part of the tables as they are. So what a refresh
costs is up to what is new, and to the files that are hit.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from celeriac.model.table import INNER_COLUMNS
from celeriac.pipeline import beat, failure, fault, gap
from celeriac.pipeline.anomaly import anomalies
from celeriac.pipeline.attempt import attempts
from celeriac.pipeline.event import narrow
from celeriac.pipeline.fold import MAX_BROADCAST, events_of, odd_of, plain_or_noted
from celeriac.pipeline.intake import UnusedSegment
from celeriac.pipeline.plain import texts
from celeriac.pipeline.rollup import by_hour, by_minute
from celeriac.pipeline.row import day_of as day_of_moment
from celeriac.pipeline.schema import table_schema
from celeriac.pipeline.warehouse import FILE, Warehouse, day_of
from celeriac.pipeline.worker import sessions
from celeriac.pipeline.workflow import workflows
from celeriac.store.manifest import Manifest, PartFile

__all__ = ["Refresh"]

#: Tables that are made at once: small ones leave most of a machine idle.
_AT_ONCE: Final = 3
_MINUTE, _HOUR = 60, 3600
#: What segments that could not be used are told as.
_OF_SEGMENTS: Final = ("damaged", "too_new")
_SLOT: Final = "slot"


class Refresh:
    """Makes the files that are new, and notes those that are dropped; to publish is up to its caller."""

    def __init__(
        self, spark: SparkSession, warehouse: Warehouse, manifest: Manifest | None, *, run: str
    ) -> None:
        self._spark = spark
        self._warehouse = warehouse
        self._old = {} if manifest is None else manifest.tables
        self._run = run
        self._copies = f"{run}-copy"
        #: Files that are not part of their table any more.
        self.dropped: set[str] = set()

    @property
    def runs(self) -> tuple[str, str]:
        """The names under which files are written: what is new, and what is copied."""
        return self._run, self._copies

    # -- the tasks

    def tasks(self, raw: DataFrame, recorders: Sequence[str]) -> None:
        """Fold new rows, and the events of the tasks they are of."""
        new = narrow(raw, recorders)
        ids = new.select("uuid").distinct()
        hit = self._hit("tasks", self._files_of("tasks"), ids, "uuid")
        events = new
        if hit:
            again = self._warehouse.read("tasks", hit).join(ids, "uuid", "left_semi")
            events = new.unionByName(events_of(again))
        known = texts(events).persist()
        try:
            self._warehouse.stage(plain_or_noted(events, known), "tasks", self._run)
        finally:
            known.unpersist()
        with self._warehouse.noted("tasks", self._run) as noted:
            if noted is not None:
                odd = F.broadcast(noted.ids) if noted.rows <= MAX_BROADCAST else noted.ids
                self._warehouse.stage(odd_of(events, odd), "tasks", self._run)
        if hit:
            self._copy("tasks", hit, self._touched().select("uuid"), "uuid")

    def _touched(self) -> DataFrame:
        """Return the tasks of which there is news, as they are now."""
        return self._warehouse.read("tasks", self._warehouse.written("tasks", self._run))

    # -- what follows

    def others(
        self,
        raw: DataFrame,
        fresh: DataFrame,
        recorders: Sequence[str],
        *,
        texts: Sequence[str],
        unused: Sequence[UnusedSegment],
        used: Sequence[str],
    ) -> None:
        """Make all tables but the tasks.

        ``raw`` are all rows that were read, ``fresh`` those that never were before. ``texts`` are the
        columns in which a text may be too long, ``unused`` the segments that could not be used, and ``used``
        the paths of those that could.
        """
        found = raw.select(day_of_moment(F.col("received_at")).alias("day")).distinct().collect()
        days = sorted(row["day"] for row in found)

        def of_workers() -> None:
            self._merge("beats", beat.beats(raw), days, beat.merged)
            beats = self._warehouse.read("beats", self._current("beats", days))
            self._replace("workers", sessions(beats), days)

        self._at_once(
            self._attempts_and_rollups,
            self._workflows,
            lambda: self._merge("failures", failure.failures(raw, recorders), days, failure.merged),
            of_workers,
            lambda: self._merge("gaps", gap.gaps(raw), days, gap.merged),
            lambda: self.faults(fault.faults(fresh, recorders, texts=texts), days, unused=unused, used=used),
        )
        self._anomalies()

    def faults(
        self,
        new: DataFrame | None,
        days: Sequence[str],
        *,
        unused: Sequence[UnusedSegment],
        used: Sequence[str],
    ) -> None:
        """Add what was wrong, and forget what was wrong with segments that are right now."""
        told = [(each.kind, each.path, None, each.rows, each.text, each.day) for each in unused]
        is_of_segment = F.col("kind").isin(*_OF_SEGMENTS)
        touched = {*days, *(each.day for each in unused)}
        known = self._files_of("faults")
        if known and used:
            now_right = is_of_segment & F.col("source").isin(*used)
            found = self._warehouse.read("faults", known).where(now_right).select("day").distinct().collect()
            touched |= {row["day"] for row in found}
        old = self._warehouse.read("faults", self._files_of("faults", touched))
        gone = [*used, *(each.path for each in unused)]
        old = old.where(~(is_of_segment & F.col("source").isin(*gone))) if gone else old
        rows = old.unionByName(self._spark.createDataFrame(told, table_schema("faults")))
        self._replace("faults", fault.merged(rows if new is None else rows.unionByName(new)), touched)

    def _attempts_and_rollups(self) -> None:
        touched = self._touched()
        self._warehouse.stage(attempts(touched), "attempts", self._run)
        days = {day_of(each) for each in self._dropped_of("tasks")}
        old = self._files_of("attempts", days)
        ids = touched.select("uuid")
        hit = self._hit("attempts", old, ids, "uuid")
        before = self._warehouse.read("attempts", hit).join(ids, "uuid", "left_semi")
        if hit:
            self._copy("attempts", hit, ids, "uuid")
        new = self._warehouse.written("attempts", self._run)
        days = {day_of(each) for each in (*new, *hit)}
        now = self._warehouse.read("attempts", new)
        # Days without a roll-up are rolled up as a whole, whatever is new of them.
        has_old = bool(self._files_of("rollups_minute", days))
        slots = self._slots(before.unionByName(now), "counted_at", _MINUTE) if has_old else []
        self._roll_up(_Roll("rollups_minute", "attempts", "counted_at", _MINUTE, by_minute), days, slots)
        hours = {(day, None if minute is None else minute * _MINUTE // _HOUR) for day, minute in slots}
        self._roll_up(_Roll("rollups_hour", "rollups_minute", "begin_at", _HOUR, by_hour), days, list(hours))

    def _slots(self, rows: DataFrame, column: str, span: int) -> list[tuple[str, int | None]]:
        """Return the minutes of which there is news, by day."""
        found = rows.select("day", _slot_of(column, span)).distinct().collect()
        return [(row["day"], row[_SLOT]) for row in found]

    def _roll_up(self, of: "_Roll", days: set[str], slots: Sequence[tuple[str, int | None]]) -> None:
        """Make the rows anew of minutes or hours of which there is news; the others are copied."""
        table, source, column, span, roll = of
        rows = self._warehouse.read(source, self._current(source, days))
        old = self._files_of(table, days)
        if not old:
            self._replace(table, roll(rows), days)
            return
        news = F.broadcast(self._spark.createDataFrame(list(slots), f"news_day string, news_{_SLOT} bigint"))
        is_news = (F.col("news_day") == F.col("day")) & F.col(f"news_{_SLOT}").eqNullSafe(F.col(_SLOT))
        known = [slot for _, slot in slots if slot is not None]
        if len(known) == len(slots) and known:
            # Files say from when to when they are, so that most of a day need not be read.
            rows = rows.where(F.col(column).between(min(known) * span, (max(known) + 1) * span))
        rows = rows.withColumn(_SLOT, _slot_of(column, span)).join(news, is_news, "left_semi").drop(_SLOT)
        kept = self._warehouse.read(table, old).withColumn(_SLOT, _slot_of("begin_at", span))
        kept = kept.join(news, is_news, "left_anti").drop(_SLOT)
        self._replace(table, roll(rows).unionByName(kept), days)

    def _workflows(self) -> None:
        touched = self._touched()
        if not self._files_of("tasks"):
            self._warehouse.stage(workflows(touched), "workflows", self._run)
            return
        hit = self._dropped_of("tasks")
        before = self._warehouse.read("tasks", hit).join(touched.select("uuid"), "uuid", "left_semi")
        roots = F.explode(F.array_distinct(F.array(_root(), F.col("uuid")))).alias("root_id")
        keys = touched.select("uuid", "root_id").unionByName(before.select("uuid", "root_id"))
        keys = keys.select(roots).distinct()
        tasks = self._warehouse.read("tasks", self._current("tasks")).drop(*INNER_COLUMNS)
        members = tasks.withColumn("key", _root()).join(
            keys.withColumnRenamed("root_id", "key"), "key", "left_semi"
        )
        self._warehouse.stage(workflows(members.drop("key")), "workflows", self._run)
        hit = self._hit("workflows", self._files_of("workflows"), keys, "root_id")
        if hit:
            self._copy("workflows", hit, keys, "root_id")

    def _anomalies(self) -> None:
        """Look at all tables: what is usual, and who came back, is known from other days too."""
        minutes = self._dropped_or_new("rollups_minute")
        read = self._warehouse.read
        found = anomalies(
            tasks=read("tasks", self._current("tasks")),
            hours=read("rollups_hour", self._current("rollups_hour")),
            # But what is too much for a minute is known from that minute.
            minutes=read("rollups_minute", self._current("rollups_minute", minutes)),
            workers=read("workers", self._current("workers")),
            gaps=read("gaps", self._current("gaps")),
        )
        old = read("anomalies", self._files_of("anomalies"))
        is_kept = (F.col("kind") == "retry_storm") & ~F.col("day").isin(*minutes)
        self._replace("anomalies", found.unionByName(old.where(is_kept)), None)

    # -- files

    def _files_of(self, table: str, days: Iterable[str] | None = None) -> list[PartFile]:
        """Return the files of a table as it was published."""
        parts = self._old.get(table, {})
        wanted = parts if days is None else set(days)
        return [each for day, files in parts.items() if day in wanted for each in files]

    def _current(self, table: str, days: Iterable[str] | None = None) -> list[PartFile]:
        """Return the files of a table as it is going to be."""
        wanted = None if days is None else set(days)
        new = [each for run in self.runs for each in self._warehouse.written(table, run)]
        old = [each for each in self._files_of(table) if each.path not in self.dropped]
        return [each for each in (*old, *new) if wanted is None or day_of(each) in wanted]

    def _dropped_of(self, table: str) -> list[PartFile]:
        return [each for each in self._files_of(table) if each.path in self.dropped]

    def _dropped_or_new(self, table: str) -> set[str]:
        """Return the days of a table that are not as they were."""
        new = [each for run in self.runs for each in self._warehouse.written(table, run)]
        return {day_of(each) for each in (*new, *self._dropped_of(table))}

    def _hit(self, table: str, files: Sequence[PartFile], keys: DataFrame, column: str) -> list[PartFile]:
        """Return those of some files that have a row with one of some keys."""
        if not files:
            return []
        rows = self._warehouse.read(table, files, with_file=True).select(column, FILE)
        found = rows.join(keys, column, "left_semi").select(FILE).distinct().collect()
        names = {self._warehouse.name(row[FILE]) for row in found}
        return [each for each in files if each.path in names]

    def _copy(self, table: str, files: Sequence[PartFile], keys: DataFrame, column: str) -> None:
        """Drop files, and have their rows again without those of some keys."""
        kept = self._warehouse.read(table, files).join(keys, column, "left_anti")
        self._warehouse.stage(kept, table, self._copies)
        self.dropped |= {each.path for each in files}

    def _merge(
        self, table: str, new: DataFrame, days: Sequence[str], merged: Callable[[DataFrame], DataFrame]
    ) -> None:
        """Add rows to those of the same days; each is there once."""
        old = self._files_of(table, days)
        rows = merged(new.unionByName(self._warehouse.read(table, old))) if old else new
        self._replace(table, rows, days)

    def _replace(self, table: str, rows: DataFrame, days: Iterable[str] | None) -> None:
        """Have other rows of some days, or of all."""
        self._warehouse.stage(rows, table, self._run)
        self.dropped |= {each.path for each in self._files_of(table, days)}

    def _at_once(self, *makes: Callable[[], None]) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            try:
                for made in [pool.submit(make) for make in makes]:
                    made.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


class _Roll(NamedTuple):
    """How one table is rolled up from another."""

    table: str
    source: str
    #: The moment in it, and the seconds that become one.
    column: str
    span: int
    roll: Callable[[DataFrame], DataFrame]


def _slot_of(column: str, span: int) -> Column:
    """Return the minute or hour of a moment, counted from 1970; null of none."""
    return F.floor(F.col(column) / F.lit(span)).cast("bigint").alias(_SLOT)


def _root() -> Column:
    """Return the first task of a task's workflow: itself, if it names none."""
    return F.coalesce("root_id", "uuid")
