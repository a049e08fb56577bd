import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from celeriac.model.events import WorkerHeartbeat
from celeriac.model.table import HISTORY_EVENT, TABLES
from celeriac.pipeline.schema import HISTORY, LOG, spelled, table_schema
from celeriac.store.columns import SCHEMA, to_batch
from tests.spark.frames import raw_frame, rows


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_the_schema_that_spark_reads_from_its_text(spark: SparkSession, name: str) -> None:
    read = spark.createDataFrame([], TABLES[name].ddl).schema

    assert table_schema(name) == read


def test_an_event_of_a_history_has_the_fields_that_its_text_says(spark: SparkSession) -> None:
    read = spark.createDataFrame([], f"it {HISTORY_EVENT}").schema

    assert StructType().add("it", HISTORY) == read


def test_the_log_has_the_columns_of_the_recorder_in_its_order() -> None:
    kinds = {"string": "string", "bigint": "int64", "double": "double", "boolean": "bool"}

    told = [(field.name, field.dataType.simpleString()) for field in LOG.fields]

    plain = [(name, kinds[kind]) for name, kind in told if name != "loadavg"]
    assert plain == [(field.name, str(field.type)) for field in SCHEMA if field.name != "loadavg"]
    assert ("loadavg", "array<double>") in told
    assert pa.types.is_fixed_size_list(SCHEMA.field("loadavg").type)


def test_a_type_that_no_table_may_have_is_refused() -> None:
    with pytest.raises(KeyError):
        spelled("map<string, string>")


def test_rows_of_the_log_come_through_spark_as_they_were_written(spark: SparkSession) -> None:
    beat = WorkerHeartbeat(
        timestamp=1.5, clock=2**53 - 1, hostname="ü@x", loadavg=(0.5, 1.0, 2.0), active=3, freq=2.0
    )

    frame = raw_frame(spark, [beat], recorder="rec-7", first=5)

    assert frame.schema == LOG
    assert rows(frame) == to_batch([beat], recorder="rec-7", first=5).to_pylist()
