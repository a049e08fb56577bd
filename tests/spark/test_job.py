"""From a log to published tables: whatever the way, the tables are the same."""

from collections import defaultdict
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from celeriac import history
from celeriac.core.order import task_key
from celeriac.errors import DiskError, ImproperlyConfigured
from celeriac.model.events import TaskEvent
from celeriac.pipeline import warehouse as warehouse_module
from celeriac.pipeline.job import Pipeline
from celeriac.pipeline.warehouse import RETIRED_AGE, Warehouse, paths_of
from celeriac.programs.process import wait_until
from celeriac.store.event_log import EventLog
from celeriac.store.manifest import Manifest, write_manifest
from celeriac.store.place import Place
from celeriac.store.segment import Segment
from celeriac.store.upkeep import merge_small
from tests.event_logs import damage_at, seal
from tests.live import IS_LONG
from tests.spark.published import BEGIN_AT, INTERPRETED, QUICK, events_of, manifest_of, tables_of, write_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS = 60
PATIENCE = 300.0


@pytest.fixture(scope="module", name="spark")
def interpreted(spark: "SparkSession") -> "SparkSession":
    """A Spark that does not compile what it runs: that takes minutes, and these frames are small."""
    session = spark.newSession()
    for name in INTERPRETED.keys() - QUICK.keys():
        session.conf.set(name, INTERPRETED[name])
    return session


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # A name that Spark would take for a pattern, or for something encoded.
    folder = tmp_path_factory.mktemp("a log [1] {x} 50%20")
    write_log(folder, events_of(TASKS))
    return folder


@pytest.fixture(scope="module")
def whole(spark: "SparkSession", log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of the log, by one run that took it all at once."""
    warehouse = tmp_path_factory.mktemp("tables of [it]") / "w"
    report = Pipeline(spark, log, warehouse).run()
    assert report.chunks == 1
    return warehouse


def test_a_run_fills_every_table(whole: Path) -> None:
    tables = tables_of(whole)

    assert {name for name, rows in tables.items() if rows} >= {
        *("tasks", "attempts", "rollups_minute", "rollups_hour", "failures", "beats", "workers"),
        *("workflows", "gaps", "anomalies"),
    }
    assert len(tables["tasks"]) == TASKS
    assert {row[0] for row in tables["tasks"]} == {"2026-11-14", "2026-11-15"}
    files = {path.relative_to(whole).as_posix() for path in whole.rglob("*.parquet")}
    assert files == set(paths_of(manifest_of(whole)))


@pytest.mark.parametrize("has_log", [True, False])
def test_each_event_of_a_task_is_told_from_its_row_and_read_from_where_that_says(
    log: Path, whole: Path, tmp_path: Path, has_log: bool
) -> None:
    expected = defaultdict(set)
    for event in EventLog(log).read():
        if isinstance(event, TaskEvent):
            expected[event.uuid].add(task_key(event))

    with history.open(whole, log=log if has_log else tmp_path / "none") as warehouse:
        stories = {uuid: warehouse.task(uuid) for uuid in expected}

    assert {uuid: {*map(task_key, story.events)} for uuid, story in stories.items()} == expected
    assert all(story.unread == (0 if has_log else len(story.events)) for story in stories.values())


def test_a_run_after_a_run_has_nothing_to_do(spark: "SparkSession", log: Path, whole: Path) -> None:
    before = manifest_of(whole)

    report = Pipeline(spark, log, whole).run()

    assert report.events == report.chunks == 0
    assert manifest_of(whole) == before


@pytest.fixture(scope="module")
def in_chunks(spark: "SparkSession", log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same by a run that took it in two parts."""
    warehouse = tmp_path_factory.mktemp("in_chunks")
    report = Pipeline(spark, log, warehouse, chunk_events=len(events_of(TASKS)) // 2 + 1).run()
    assert report.chunks == 2
    assert report.events == len(events_of(TASKS))
    return warehouse


@pytest.mark.skipif(not IS_LONG, reason="it takes long: make soak")
def test_files_that_no_table_has_any_more_are_kept_for_readers_and_then_removed(
    spark: "SparkSession", in_chunks: Path
) -> None:
    manifest = manifest_of(in_chunks)
    warehouse = Warehouse(spark, in_chunks)

    warehouse.clean(manifest, now=manifest.published_at)
    kept = {path for path in manifest.retired if (in_chunks / path).exists()}
    warehouse.clean(manifest, now=manifest.published_at + RETIRED_AGE + 1)

    assert kept == set(manifest.retired) != set()
    assert not any((in_chunks / path).exists() for path in manifest.retired)
    assert tables_of(in_chunks, manifest)["tasks"]


def test_a_log_taken_in_parts_and_read_again_gives_the_same_tables(
    spark: "SparkSession", log: Path, whole: Path, in_chunks: Path
) -> None:
    before = tables_of(in_chunks)

    Pipeline(spark, log, in_chunks).backfill(BEGIN_AT, BEGIN_AT + 3600)

    assert manifest_of(in_chunks).events == manifest_of(whole).events
    assert before == tables_of(whole)
    assert tables_of(in_chunks) == tables_of(whole)


def test_what_is_sealed_during_a_run_waits_for_the_next_one(spark: "SparkSession", tmp_path: Path) -> None:
    log, warehouse = tmp_path / "log", tmp_path / "warehouse"
    events = events_of(4)
    half = len(events) // 2
    write_log(log, events[:half], segments=1)

    def seal_meanwhile(point: str) -> None:
        if point == "before-publish":
            seal(log, events[half:], recorder="rec-1", first=half + 1)

    report = Pipeline(spark, log, warehouse, at=seal_meanwhile).run()
    again = Pipeline(spark, log, warehouse).run()

    assert (report.chunks, report.events) == (1, half)
    assert again.events == len(events) - half


def test_a_log_that_is_merged_between_two_runs_gives_the_same_tables_and_compaction_changes_none(
    spark: "SparkSession", whole: Path, tmp_path: Path
) -> None:
    log, warehouse = tmp_path / "log", tmp_path / "warehouse"
    events = events_of(TASKS)
    half = len(events) // 2
    write_log(log, events[:half], segments=2)
    Pipeline(spark, log, warehouse).run()
    seal(log, events[half:], recorder="rec-1", first=half + 1)
    merged = merge_small(EventLog(log), now=BEGIN_AT + 10**6)

    report = Pipeline(spark, log, warehouse).run()

    assert merged.made
    assert report.events == len(events) - half
    assert tables_of(warehouse) == tables_of(whole)
    compacted = Pipeline(spark, log, warehouse).compact()
    assert compacted.files_after < compacted.files_before
    assert tables_of(warehouse) == tables_of(whole)
    assert all(len(files) == 1 for days in manifest_of(warehouse).tables.values() for files in days.values())
    assert not Pipeline(spark, log, warehouse).verify(TASKS).differences


def test_a_stream_gives_the_same_tables(
    spark: "SparkSession", log: Path, whole: Path, tmp_path: Path
) -> None:
    stop = Event()
    expected = manifest_of(whole).events

    def is_done() -> bool:
        return (tmp_path / "current.json").exists() and manifest_of(tmp_path).events >= expected

    def watch() -> None:
        assert wait_until(is_done, patience=PATIENCE)
        stop.set()

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    report = Pipeline(spark, log, tmp_path).follow(0.1, stop)
    watcher.join()

    assert report.events == expected
    assert tables_of(tmp_path) == tables_of(whole)


def test_segments_that_are_damaged_or_too_new_are_told_and_the_run_goes_on_and_is_mended_later(
    spark: "SparkSession", whole: Path, tmp_path: Path
) -> None:
    log, warehouse = tmp_path / "log", tmp_path / "warehouse"
    segments = write_log(log, events_of(TASKS))
    victim, other = log / segments[1].path, log / segments[2].path
    sound = {path: path.read_bytes() for path in (victim, other)}
    damage_at(victim, len(sound[victim]) // 2)
    later = of_a_later_version(other, segments[2])

    report = Pipeline(spark, log, warehouse).run()
    again = Pipeline(spark, log, warehouse).run()
    told = tables_of(warehouse)["faults"]
    later.unlink()
    for path, content in sound.items():
        path.write_bytes(content)
    mended = Pipeline(spark, log, warehouse).run()

    assert len(report.faults) == len(again.faults) == 2
    assert again.chunks == 0
    assert {row[1:3] for row in told} == {
        ("damaged", segments[1].path),
        ("too_new", str(later.relative_to(log))),
    }
    assert mended.events == segments[1].rows + segments[2].rows
    # What was too new is gone for good under that name, and stays told.
    tables = tables_of(warehouse)
    assert [row[1] for row in tables.pop("faults")] == ["too_new"]
    assert tables == {name: rows for name, rows in tables_of(whole).items() if name != "faults"}


def of_a_later_version(path: Path, segment: Segment) -> Path:
    """Replace a segment by one that says it is of a version that nobody knows yet; return where it is."""
    table = pq.read_table(pa.BufferReader(path.read_bytes()))
    later = table.replace_schema_metadata({**table.schema.metadata, b"celeriac.schema": b"99"})
    return rewritten(path, segment, later)


def rewritten(path: Path, segment: Segment, table: pa.Table) -> Path:
    """Replace a segment by another table under a name that fits it; return where it is."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    content = sink.getvalue().to_pybytes()
    made = path.with_name(segment._replace(crc=crc32(content)).name)
    path.unlink()
    made.write_bytes(content)
    return made


def test_a_segment_that_spark_could_not_read_is_told_and_the_run_goes_on(
    spark: "SparkSession", tmp_path: Path
) -> None:
    log, warehouse = tmp_path / "log", tmp_path / "warehouse"
    segments = write_log(log, events_of(TASKS))
    victim = log / segments[1].path
    table = pq.read_table(pa.BufferReader(victim.read_bytes()))
    as_text = table.set_column(
        table.schema.get_field_index("timestamp"), "timestamp", table["timestamp"].cast(pa.string())
    )
    rewritten(victim, segments[1], as_text.replace_schema_metadata(table.schema.metadata))

    report = Pipeline(spark, log, warehouse).run()

    assert [text.partition("damaged: ")[2] for text in report.faults] == [
        "timestamp is string, and not double; it was left out"
    ]
    assert report.events == sum(each.rows for each in segments) - segments[1].rows


def test_what_was_published_stays_though_to_publish_failed_in_the_end(
    spark: "SparkSession", log: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written_and_lost(place: Place, manifest: Manifest) -> None:
        write_manifest(place, manifest)
        raise DiskError("the folder cannot be synced")

    with monkeypatch.context() as patch:
        patch.setattr(warehouse_module, "write_manifest", written_and_lost)
        with pytest.raises(DiskError, match="cannot be synced"):
            Pipeline(spark, log, tmp_path).run()
    again = Pipeline(spark, log, tmp_path).run()

    assert again.chunks == 0
    assert tables_of(tmp_path) == tables_of(whole)


def test_a_log_that_is_merged_while_a_run_writes_is_read_again(
    spark: "SparkSession", whole: Path, tmp_path: Path
) -> None:
    log, warehouse = tmp_path / "log", tmp_path / "warehouse"
    write_log(log, events_of(TASKS))
    merged: list[object] = []

    def merge(point: str) -> None:
        if point == "tasks-staged" and not merged:
            merged.append(merge_small(EventLog(log), now=BEGIN_AT + 10**6))

    report = Pipeline(spark, log, warehouse, at=merge).run()

    assert report.events == manifest_of(whole).events
    assert tables_of(warehouse)["tasks"] == tables_of(whole)["tasks"]


@pytest.mark.skipif(not IS_LONG, reason="it takes long: make soak")
def test_tables_are_compacted_while_a_stream_runs_which_takes_what_was_mended_too(
    spark: "SparkSession", whole: Path, tmp_path: Path
) -> None:
    log, warehouse = tmp_path / "log", tmp_path / "warehouse"
    segments = write_log(log, events_of(TASKS))
    last, victim = log / segments[-1].path, log / segments[1].path
    sound, kept = victim.read_bytes(), last.read_bytes()
    damage_at(victim, len(sound) // 2)
    last.unlink()
    stop = Event()
    first = sum(each.rows for each in segments) - segments[1].rows - segments[-1].rows
    stream = Thread(target=lambda: Pipeline(spark, log, warehouse).follow(0.1, stop), daemon=True)

    stream.start()
    try:
        assert wait_until(lambda: published(warehouse) == first, patience=PATIENCE)
        with Warehouse(spark, warehouse).alone(stop=Event()):
            victim.write_bytes(sound)
            last.write_bytes(kept)
        Pipeline(spark, log, warehouse).compact()
        assert wait_until(lambda: published(warehouse) == manifest_of(whole).events, patience=PATIENCE)
    finally:
        stop.set()
        stream.join()

    assert tables_of(warehouse) == tables_of(whole)


def published(warehouse: Path) -> int:
    return manifest_of(warehouse).events if (warehouse / "current.json").exists() else 0


def test_a_second_job_is_refused_while_one_writes(spark: "SparkSession", log: Path, tmp_path: Path) -> None:
    with Warehouse(spark, tmp_path).alone(), pytest.raises(DiskError, match="another job of the pipeline"):
        Pipeline(spark, log, tmp_path).run()


@pytest.mark.parametrize(
    ("form", "package"), [("delta", "io.delta:delta-spark"), ("iceberg", "iceberg-spark-runtime")]
)
def test_a_format_that_this_spark_has_not_is_refused_with_the_package_to_add(
    spark: "SparkSession", log: Path, tmp_path: Path, form: str, package: str
) -> None:
    with pytest.raises(ImproperlyConfigured, match=package):
        Pipeline(spark, log, tmp_path, mirror=form)


def test_what_a_run_would_read_is_told_before_it_is_read(
    spark: "SparkSession", log: Path, tmp_path: Path
) -> None:
    told = Pipeline(spark, log, tmp_path).explain()

    assert (told.segments, told.events, told.seconds) == (4, len(events_of(TASKS)), None)
    assert told.bytes > 0
    assert "Scan parquet" in told.plan
    assert not (tmp_path / "current.json").exists()
