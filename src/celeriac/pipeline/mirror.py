"""The tables once more, in a format that other engines write too: Delta or Iceberg, by the user's Spark."""

import errno
from typing import Final

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from celeriac.errors import CallerError, DiskError, ImproperlyConfigured
from celeriac.pipeline.session import reason_of
from celeriac.pipeline.warehouse import Warehouse
from celeriac.store.manifest import Manifest

__all__ = ["FORMATS", "Mirror"]

#: The package of each format, without its version: that must be the one for the user's Spark.
FORMATS: Final = {
    "delta": "io.delta:delta-spark_2.13",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13",
}
_NAMESPACE: Final = "celeriac"

#: The names of the files that each day of each table was written from.
_Written = dict[str, dict[str, list[str]]]


class Mirror:
    """Has the tables in another format: Delta in a folder of the warehouse, Iceberg in the current catalog.

    Days are replaced whole, and only those that are not yet as they were published. A job that dies leaves
    some for the next one.
    """

    def __init__(self, spark: SparkSession, warehouse: Warehouse, form: str) -> None:
        if form not in FORMATS:
            raise CallerError(f"unknown table format {form!r}: use {', '.join(FORMATS)}")
        self._spark = spark
        self._warehouse = warehouse
        self._form = form
        self._note = f"mirror/{form}.json"
        self._check()

    def write(self) -> None:
        """Write the days that are not as they were published last."""
        manifest = self._warehouse.manifest()
        if manifest is None:
            return
        written = self._written()
        # A table that has become empty is not in the manifest any more.
        for table in sorted({*manifest.tables, *written}):
            known = written.setdefault(table, {})
            days = manifest.tables.get(table, {})
            files = {day: [each.path for each in parts] for day, parts in days.items()}
            other = sorted(day for day in {*files, *known} if files.get(day) != known.get(day))
            if other:
                self._replace(manifest, table, other)
                written[table] = files
                self._warehouse.place.write(self._note, msgspec.json.encode(written))

    def _written(self) -> _Written:
        try:
            return msgspec.json.decode(self._warehouse.place.read(self._note), type=_Written)
        except DiskError as error:
            if error.errno != errno.ENOENT:
                raise
        except msgspec.DecodeError:
            pass  # to write all days again is right too
        return {}

    def _replace(self, manifest: Manifest, table: str, days: list[str]) -> None:
        parts = manifest.tables.get(table, {})
        rows = self._warehouse.read(table, [each for day in days for each in parts.get(day, ())])
        (self._as_delta if self._form == "delta" else self._as_iceberg)(rows, table, days)

    def _check(self) -> None:
        """Ask Spark whether it knows the format, before any work is done."""
        nowhere = f"{self._warehouse.root}/{self._form}/{_NAMESPACE}"
        try:
            self._spark.read.format(self._form).load(nowhere).count()
        except (PySparkException, Py4JError) as error:
            # One that knows it says that there is no such table.
            if _is_missing(error):
                raise ImproperlyConfigured(
                    f"Spark cannot write {self._form}: {reason_of(error)}; add the package, --conf "
                    f"spark.jars.packages={FORMATS[self._form]}:VERSION, and the settings of its manual. "
                    "The published tables are unchanged"
                ) from error

    def _as_delta(self, rows: DataFrame, table: str, days: list[str]) -> None:
        # Dates of our own making, and nothing else.
        listed = ", ".join(f"'{day}'" for day in days)
        (
            rows.write.format("delta")
            .mode("overwrite")
            .option("replaceWhere", f"day IN ({listed})")
            .partitionBy("day")
            .save(f"{self._warehouse.root}/delta/{table}")
        )

    def _as_iceberg(self, rows: DataFrame, table: str, days: list[str]) -> None:
        name = f"{_NAMESPACE}.{table}"
        if not self._spark.catalog.tableExists(name):
            self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {_NAMESPACE}")
            rows.writeTo(name).using("iceberg").partitionedBy(F.col("day")).create()
            return
        rows.writeTo(name).overwrite(F.col("day").isin(*days))


def _is_missing(error: BaseException) -> bool:
    told = str(error)
    return any(
        each in told
        for each in ("DATA_SOURCE_NOT_FOUND", "ClassNotFoundException", "Cannot find catalog plugin")
    )
