"""The law on a million tasks: retried elsewhere, delivered twice, with states of their own, in no order."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.event_log import write_log
from celeriac.core.state import ClusterState
from celeriac.model.events import Event
from celeriac.pipeline.job import Pipeline
from celeriac.pipeline.verification import COMPARED, is_same
from celeriac.store.columns import SCHEMA, to_events
from celeriac.store.place import place_for
from celeriac.store.segment import write_segment
from tests.spark.published import manifest_of

EVENTS = 4_300_000
PER_SEGMENT = 500_000


def _shuffled(log: Path, into: Path) -> pa.Table:
    """Write the rows of a log as another recorder's, in any order and some of them twice."""
    told = [pq.ParquetFile(path).read() for path in sorted(log.glob("events/*/*/*.parquet"))]
    rows = pa.concat_tables(told).cast(SCHEMA)
    random = np.random.default_rng(7)
    twice = random.integers(0, rows.num_rows, rows.num_rows // 20)
    order = random.permutation(np.concatenate([np.arange(rows.num_rows), twice]))
    for first in range(0, len(order), PER_SEGMENT):
        part = rows.take(pa.array(order[first : first + PER_SEGMENT])).combine_chunks()
        numbers = pa.array(np.arange(first + 1, first + part.num_rows + 1))
        part = part.set_column(part.schema.get_field_index("sequence"), SCHEMA.field("sequence"), numbers)
        (recorder,) = set(part["recorder"].to_pylist())
        last = first + part.num_rows
        write_segment(
            place_for(into), part.to_batches(), recorder=recorder, first=first + 1, last=last, generation=0
        )
    return rows


def _events(rows: pa.Table) -> Iterator[Event]:
    for batch in rows.to_batches(50_000):
        yield from to_events(batch)


def test_a_million_tasks_in_any_order_are_as_the_state_has_them(spark: SparkSession, tmp_path: Path) -> None:
    write_log(tmp_path / "log", EVENTS)
    rows = _shuffled(tmp_path / "log", tmp_path / "shuffled")
    order = list(range(0, rows.num_rows, 50_000))
    Random(3).shuffle(order)
    state = ClusterState(now=lambda: 0.0, max_tasks_in_memory=2_000_000)

    report = Pipeline(spark, tmp_path / "shuffled", tmp_path / "warehouse", chunk_events=2_000_000).run()
    for begin in order:
        for event in _events(rows.slice(begin, 50_000)):
            state.apply(event, event.local_received)

    assert report.chunks == 3
    seen = 0
    differences = []
    for day in manifest_of(tmp_path / "warehouse").tables["tasks"].values():
        for file in day:
            table = pq.ParquetFile(tmp_path / "warehouse" / file.path).read(columns=["uuid", *COMPARED])
            for row in table.to_pylist():
                task = state.tasks[row["uuid"]]
                seen += 1
                differences += [
                    (row["uuid"], name, row[name], told)
                    for name, read in COMPARED.items()
                    if not is_same(row[name], told := read(task))
                ]
    assert differences[:5] == []
    assert seen == len(state.tasks) >= 1_000_000
