"""A capture of real Celery workers through log and pipeline, beside what really became of every task."""

import gzip
import json
from pathlib import Path

from msgspec.structs import replace
from pyspark.sql import SparkSession

from celeriac import Gate
from celeriac.model.events import Event, TaskEvent
from celeriac.pipeline.job import Pipeline
from celeriac.pipeline.warehouse import Warehouse
from tests.live import IS_LONG
from tests.recorded import writer_for

DATA = Path(__file__).parents[1] / "data"


def captured() -> list[Event]:
    """Return the events, received as they were sent."""
    gate = Gate()
    with gzip.open(DATA / "celery_amqp.jsonl.gz") as lines:
        events = [event for line in lines for event in gate.decode(line)]
    return [replace(event, local_received=event.timestamp) for event in events]


def test_a_real_capture_ends_in_the_table_as_the_tasks_did(spark: SparkSession, tmp_path: Path) -> None:
    events = captured()
    with gzip.open(DATA / "celery_amqp_truth.json.gz") as document:
        expected = {uuid: task["expected"] for uuid, task in json.load(document).items()}
    # Some tasks never ran, or were dropped by the broker: no event tells of them.
    told = {event.uuid for event in events if isinstance(event, TaskEvent)}
    truth = {uuid: state for uuid, state in expected.items() if uuid in told}

    for half in (events[1::2], events[::2]):
        with writer_for(tmp_path / "log") as writer:
            writer.append(half)
            writer.sync()
        if IS_LONG:
            # In two runs, so that tasks are joined with what is in the tables already.
            Pipeline(spark, tmp_path / "log", tmp_path / "warehouse").run()
    Pipeline(spark, tmp_path / "log", tmp_path / "warehouse").run()

    warehouse = Warehouse(spark, tmp_path / "warehouse")
    manifest = warehouse.manifest()
    assert manifest is not None
    files = [each for day in manifest.tables["tasks"].values() for each in day]
    states = {row["uuid"]: row["state"] for row in warehouse.read("tasks", files).collect()}
    assert len(truth) > 1700
    assert {uuid: states[uuid] for uuid in truth} == truth
    assert set(states) == told
    assert manifest.events == len(events)
