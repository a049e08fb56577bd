"""From a log to published tables: whatever the way, the tables are the same."""

from collections import defaultdict
from pathlib import Path
from shutil import copytree
from threading import Event, Thread
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from celeriac import history
from celeriac.core.order import task_key
from celeriac.errors import DiskError, ImproperlyConfigured
from celeriac.model.events import TaskEvent
from celeriac.pipeline import warehouse as warehouse_module
from celeriac.pipeline.job import Pipeline
from celeriac.pipeline.report import Report
from celeriac.pipeline.schema import table_schema
from celeriac.pipeline.warehouse import RETIRED_AGE, Warehouse, paths_of
from celeriac.programs.process import wait_until
from celeriac.store.event_log import EventLog
from celeriac.store.manifest import Manifest, write_manifest
from celeriac.store.place import Place
from celeriac.store.segment import Segment
from celeriac.store.upkeep import Merged, apply_retention, merge_small
from tests.event_logs import damage_at, seal
from tests.live import IS_LONG
from tests.spark.code_cache import code_cache
from tests.spark.published import (
    BATCHES,
    BEGIN_AT,
    HALF,
    PATIENCE,
    TASKS,
    Half,
    batches,
    events_of,
    manifest_of,
    published_events,
    tables_of,
    write_log,
)


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


def test_a_run_after_a_run_has_nothing_to_do(spark: SparkSession, log: Path, whole: Path) -> None:
    before = manifest_of(whole)

    report = Pipeline(spark, log, whole).run()

    assert report.events == report.chunks == 0
    assert manifest_of(whole) == before


class InParts(NamedTuple):
    """A log that grew and was merged while its tables were made, by a run and then by a stream."""

    log: Path
    warehouse: Path
    run: Report
    merged: Merged
    stream: Report


@pytest.fixture(scope="module")
def in_parts(spark: SparkSession, half: Half, tmp_path_factory: pytest.TempPathFactory) -> InParts:
    folder = tmp_path_factory.mktemp("in_parts")
    log, warehouse = copytree(half.log, folder / "log"), copytree(half.warehouse, folder / "warehouse")
    late = batches()[1:]
    stop = Event()

    def at_point(point: str) -> None:
        if point == "before-commit":
            if late:
                first, events = late.pop(0)
                seal(log, events, recorder="rec-1", first=first)
            else:
                stop.set()

    merged = merge_small(EventLog(log), now=BEGIN_AT + 10**6)
    stream = Pipeline(spark, log, warehouse, at=at_point).follow(0.1, stop)
    return InParts(log, warehouse, half.run, merged, stream)


def test_what_is_sealed_during_a_run_waits_for_the_next_one(in_parts: InParts) -> None:
    assert (in_parts.run.chunks, in_parts.run.events) == (2, HALF)
    assert in_parts.stream.events == len(events_of(TASKS)) - HALF


def test_a_log_taken_in_parts_and_merged_in_between_gives_the_same_tables(
    whole: Path, in_parts: InParts
) -> None:
    assert in_parts.merged.made
    assert manifest_of(in_parts.warehouse).events == manifest_of(whole).events
    assert tables_of(in_parts.warehouse) == tables_of(whole)


def test_a_stream_of_many_batches_leaves_room_for_compiled_code(
    spark: SparkSession, in_parts: InParts
) -> None:
    assert in_parts.stream.chunks == BATCHES
    used, limit = code_cache(spark)
    assert used < limit // 2


@pytest.mark.skipif(not IS_LONG, reason="it takes long: make soak")
def test_files_that_no_table_has_any_more_are_kept_for_readers_and_then_removed(
    spark: SparkSession, in_parts: InParts
) -> None:
    folder = in_parts.warehouse
    manifest = manifest_of(folder)
    warehouse = Warehouse(spark, folder)

    warehouse.clean(manifest, now=manifest.published_at)
    kept = {path for path in manifest.retired if (folder / path).exists()}
    warehouse.clean(manifest, now=manifest.published_at + RETIRED_AGE + 1)

    assert kept == set(manifest.retired) != set()
    assert not any((folder / path).exists() for path in manifest.retired)
    assert tables_of(folder, manifest)["tasks"]


def test_a_log_that_is_read_again_gives_the_same_tables(
    split_spark: SparkSession, whole: Path, in_parts: InParts
) -> None:
    Pipeline(split_spark, in_parts.log, in_parts.warehouse).backfill(BEGIN_AT, BEGIN_AT + 3600)

    assert manifest_of(in_parts.warehouse).events == manifest_of(whole).events
    assert tables_of(in_parts.warehouse) == tables_of(whole)


def test_compaction_changes_no_table(spark: SparkSession, whole: Path, in_parts: InParts) -> None:
    job = Pipeline(spark, in_parts.log, in_parts.warehouse)

    compacted = job.compact()

    assert compacted.files_after < compacted.files_before
    assert tables_of(in_parts.warehouse) == tables_of(whole)
    tables = manifest_of(in_parts.warehouse).tables
    assert all(len(files) == 1 for days in tables.values() for files in days.values())
    assert not job.verify(TASKS).differences


def test_segments_that_cannot_be_used_are_told_and_the_run_goes_on_and_is_mended_later(
    spark: SparkSession, whole: Path, tmp_path: Path
) -> None:
    log, warehouse = tmp_path / "log", tmp_path / "warehouse"
    segments = write_log(log, events_of(TASKS))
    victim, other, third = (log / segment.path for segment in segments[1:])
    sound = {path: path.read_bytes() for path in (victim, other, third)}
    damage_at(victim, len(sound[victim]) // 2)
    later = of_a_later_version(other, segments[2])
    mistyped = with_texts_as_timestamps(third, segments[3])

    report = Pipeline(spark, log, warehouse).run()
    again = Pipeline(spark, log, warehouse).run()
    told = tables_of(warehouse)["faults"]
    later.unlink()
    mistyped.unlink()
    for path, content in sound.items():
        path.write_bytes(content)
    mended = Pipeline(spark, log, warehouse).run()

    assert len(report.faults) == len(again.faults) == 3
    assert "timestamp has type string, not double; skipped" in "\n".join(report.faults)
    assert report.events == segments[0].rows
    assert again.chunks == 0
    assert {row[1:3] for row in told} == {
        ("damaged", segments[1].path),
        ("too_new", str(later.relative_to(log))),
        ("damaged", str(mistyped.relative_to(log))),
    }
    assert mended.events == sum(segment.rows for segment in segments[1:])
    # What is gone for good under its name stays told.
    tables = tables_of(warehouse)
    assert sorted(row[1:3] for row in tables.pop("faults")) == [
        ("damaged", str(mistyped.relative_to(log))),
        ("too_new", str(later.relative_to(log))),
    ]
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


def with_texts_as_timestamps(path: Path, segment: Segment) -> Path:
    """Replace a segment by one that Spark could not read; return where it is."""
    table = pq.read_table(pa.BufferReader(path.read_bytes()))
    texts = table["timestamp"].cast(pa.string())
    made = table.set_column(table.schema.get_field_index("timestamp"), "timestamp", texts)
    return rewritten(path, segment, made.replace_schema_metadata(table.schema.metadata))


def test_a_log_merged_while_a_run_writes_is_read_again_and_a_late_failure_to_publish_undoes_nothing(
    spark: SparkSession, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, warehouse = tmp_path / "log", tmp_path / "warehouse"
    write_log(log, events_of(TASKS))
    points: list[str] = []

    def merge(point: str) -> None:
        if point == "tasks-staged" and point not in points:
            merge_small(EventLog(log), now=BEGIN_AT + 10**6)
        points.append(point)

    def written_and_lost(place: Place, manifest: Manifest) -> None:
        write_manifest(place, manifest)
        raise DiskError("the folder cannot be synced")

    with monkeypatch.context() as patch:
        patch.setattr(warehouse_module, "write_manifest", written_and_lost)
        with pytest.raises(DiskError, match="cannot be synced"):
            Pipeline(spark, log, warehouse, at=merge).run()
    again = Pipeline(spark, log, warehouse).run()

    assert points.count("tasks-staged") == 2
    assert again.chunks == 0
    assert tables_of(warehouse) == tables_of(whole)


@pytest.mark.skipif(not IS_LONG, reason="it takes long: make soak")
def test_segments_that_are_removed_while_a_run_writes_are_in_no_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    log, warehouse, expected = (tmp_path / name for name in ("log", "warehouse", "expected"))
    segments = write_log(log, events_of(TASKS))
    size = sum(segment.size for segment in segments)
    points: list[str] = []

    def remove(point: str) -> None:
        if point == "tasks-staged" and point not in points:
            apply_retention(EventLog(log), keep=None, max_bytes=size // 2, now=BEGIN_AT)
        points.append(point)

    report = Pipeline(spark, log, warehouse, at=remove).run()
    Pipeline(spark, log, expected).run()

    assert points.count("tasks-staged") == 2
    assert 0 < report.events < sum(segment.rows for segment in segments)
    assert report.faults == []
    assert tables_of(warehouse) == tables_of(expected)


@pytest.mark.skipif(not IS_LONG, reason="it takes long: make soak")
def test_tables_are_compacted_while_a_stream_runs_which_takes_what_was_mended_too(
    spark: SparkSession, whole: Path, tmp_path: Path
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
        assert wait_until(lambda: published_events(warehouse) == first, patience=PATIENCE)
        with Warehouse(spark, warehouse).alone(stop=Event()):
            victim.write_bytes(sound)
            last.write_bytes(kept)
        Pipeline(spark, log, warehouse).compact()
        assert wait_until(lambda: published_events(warehouse) == manifest_of(whole).events, patience=PATIENCE)
    finally:
        stop.set()
        stream.join()

    assert tables_of(warehouse) == tables_of(whole)


def test_spark_leaves_out_a_join_with_a_table_without_files(spark: SparkSession, tmp_path: Path) -> None:
    empty = Warehouse(spark, tmp_path).read("tasks", [])

    joined = spark.range(3).selectExpr("string(id) AS uuid").join(empty.select("uuid"), "uuid", "left_semi")

    assert empty.schema == table_schema("tasks")
    assert joined._jdf.queryExecution().optimizedPlan().toString().startswith("LocalRelation <empty>")


def test_a_second_job_is_refused_while_one_writes(spark: SparkSession, log: Path, tmp_path: Path) -> None:
    with Warehouse(spark, tmp_path).alone(), pytest.raises(DiskError, match="another pipeline job"):
        Pipeline(spark, log, tmp_path).run()


@pytest.mark.parametrize(
    ("form", "package"), [("delta", "io.delta:delta-spark"), ("iceberg", "iceberg-spark-runtime")]
)
def test_a_format_that_this_spark_has_not_is_refused_with_the_package_to_add(
    spark: SparkSession, log: Path, tmp_path: Path, form: str, package: str
) -> None:
    with pytest.raises(ImproperlyConfigured, match=package):
        Pipeline(spark, log, tmp_path, mirror=form)


def test_what_a_run_would_read_is_told_before_it_is_read(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    told = Pipeline(spark, log, tmp_path).explain()

    assert (told.segments, told.events, told.seconds) == (4, len(events_of(TASKS)), None)
    assert told.bytes > 0
    assert "Scan parquet" in told.plan
    assert not (tmp_path / "current.json").exists()
