"""The columns of the log and of the tables as Spark's types, from the places where they are said."""

from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from celeriac.model.table import COURSE, HISTORY_EVENT, TABLES
from celeriac.store.columns import SCHEMA

__all__ = ["COURSE_FIELDS", "HISTORY", "LOG", "spelled", "table_schema"]

#: The types of Arrow and of our tables, each by its own spelling.
_TYPES: Final[dict[str, DataType]] = {
    "bigint": LongType(),
    "binary": BinaryType(),
    "bool": BooleanType(),
    "boolean": BooleanType(),
    "double": DoubleType(),
    "int64": LongType(),
    "string": StringType(),
}


def spelled(text: str) -> DataType:
    """Return the type that a table spells as text: ``array<struct<type:string, at:double>>``.

    Spark reads such text too, but only where it runs.
    """
    if text.startswith("array<"):
        return ArrayType(spelled(text[len("array<") : -1]))
    if text.startswith("struct<"):
        return _struct(text)
    return _TYPES[text]


def _struct(text: str) -> StructType:
    fields = (field.split(":") for field in text[len("struct<") : -1].split(", "))
    return StructType([StructField(name, spelled(kind)) for name, kind in fields])


def table_schema(name: str) -> StructType:
    """Return the schema of a table that the pipeline publishes."""
    return StructType([StructField(column.name, spelled(column.type)) for column in TABLES[name].columns])


def _of_arrow(kind: Any) -> DataType:
    # Of all columns one is a list: three numbers, which Spark has as an array of any length.
    return _TYPES[str(kind)] if kind.num_fields == 0 else ArrayType(_of_arrow(kind.value_type))


#: A row of the log.
LOG: Final = StructType([StructField(field.name, _of_arrow(field.type)) for field in SCHEMA])
#: What is kept of an event of a task.
HISTORY: Final = _struct(HISTORY_EVENT)
#: What is kept of the events of a task of which each thing happened once.
COURSE_FIELDS: Final = _struct(COURSE)
