"""Where tables are kept: files that never change, and the manifest that says which of them count."""

import fcntl
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from threading import Event
from time import time
from typing import Final, NamedTuple
from urllib.parse import unquote

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from celeriac.errors import DiskError
from celeriac.model.table import TABLES
from celeriac.pipeline.fold import NOTED
from celeriac.pipeline.schema import table_schema
from celeriac.store.disk import FLAGS, MODE, failed, make_folders, sync_folder
from celeriac.store.manifest import Manifest, PartFile, read_manifest, write_manifest
from celeriac.store.place import Place, place_for

__all__ = [
    "FILE",
    "RETIRED_AGE",
    "Noted",
    "Parts",
    "Staged",
    "Superseded",
    "Warehouse",
    "changed",
    "day_of",
    "escaped",
    "new_run",
    "paths_of",
    "spark_path",
]

#: The files of one table, by day.
Parts = Mapping[str, tuple[PartFile, ...]]
#: A column of :meth:`Warehouse.read`, if it is asked for: the file that a row is in.
FILE: Final = "file"

_TABLES: Final = "tables"
_PART: Final = re.compile(r"tables/(\w+)/([^/]+)/day=(\d{4}-\d\d-\d\d)/[^/_.][^/]*\.parquet")
#: Parts of such a name.
_DEPTH: Final = 5
_RUN_TIME: Final = "%Y%m%dT%H%M%S"
#: Who reads the manifest of before has so long to read its files.
RETIRED_AGE: Final = 3600.0
#: Where nothing keeps two jobs apart, the other may be at work for so long.
_REMOTE_AGE: Final = 86_400.0
#: How often it is looked whether a lock is free.
_LOOK_EVERY: Final = 0.2
#: The schemes of Hadoop for those of fsspec.
_SCHEMES: Final = {"s3": "s3a", "s3a": "s3a", "gs": "gs", "gcs": "gs", "az": "abfs", "adl": "abfs"}
_GLOB: Final = re.compile(r"([\\{}\[\]*?])")
_WRITE: Final = {
    # What is not published is found by its name; a mark of success would only be in the way.
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # Some 500 MB of tasks.
    "maxRecordsPerFile": "4000000",
}
#: How tables are laid out, so that one row of millions is found without reading the others.
_LOOK_UP: Final = {
    "tasks": {"parquet.bloom.filter.enabled#uuid": "true", "parquet.bloom.filter.adaptive.enabled": "true"},
}


class Superseded(DiskError):
    """Another job was quicker."""


def day_of(file: PartFile) -> str:
    """Return the day that a file is of."""
    found = _PART.fullmatch(file.path)
    return "" if found is None else found[3]


class Staged(NamedTuple):
    """What a job wrote and has not published."""

    tables: dict[str, dict[str, tuple[PartFile, ...]]]

    def rows(self, table: str) -> int:
        """Return how many rows of a table there are."""
        return sum(each.rows for files in self.tables.get(table, {}).values() for each in files)


class Noted(NamedTuple):
    """Ids of tasks that a job wrote for itself."""

    ids: DataFrame
    rows: int


def spark_path(place: Place, url: str) -> str:
    """Return what Spark calls a place: ``file:///…`` for a folder, ``s3a://…`` for ``s3://…``."""
    if place.is_local:
        return f"file://{place.url}"
    scheme, _, rest = url.partition("://")
    return f"{_SCHEMES.get(scheme.lower(), scheme.lower())}://{rest}".rstrip("/")


def escaped(path: str) -> str:
    """Return a path that Spark takes as it is, and not as a pattern."""
    return _GLOB.sub(r"\\\1", path)


class Warehouse:
    """The tables at a folder or URL, as one job has them."""

    def __init__(self, spark: SparkSession, url: str | Path) -> None:
        self._spark = spark
        self.place = place_for(url)
        self.root = spark_path(self.place, str(url))

    def manifest(self) -> Manifest | None:
        """Return what was published last. Raises DiskError if this Celeriac cannot go on with it."""
        manifest = read_manifest(self.place)
        for name, version in manifest.schemas.items() if manifest is not None else ():
            known = TABLES[name].version if name in TABLES else 0
            where = f"{self.place.url} has {name}"
            if version > known:
                raise DiskError(f"{where} of version {version}, newer than {known}: upgrade Celeriac")
            if version < known:
                raise DiskError(
                    f"{where} of version {version}, and this Celeriac writes {known}: rebuild the tables "
                    "in another warehouse, and remove this one"
                )
        return manifest

    # -- reading

    def read(self, table: str, files: Iterable[PartFile], *, with_file: bool = False) -> DataFrame:
        """Return rows of a table from some of its files, with all columns, and FILE if asked for."""
        schema = table_schema(table)
        paths = [self.path(each.path) for each in files]
        if not paths:
            extra = "string" if with_file else None
            schema = schema.add(FILE, extra) if extra else schema
            # Spark leaves out a step whose input it knows to be empty, as it knows of this filter alone.
            return self._spark.createDataFrame([], schema).where(F.lit(False))
        inner = StructType([field for field in schema.fields if field.name != "day"])
        found = self._spark.read.schema(inner).parquet(*paths)
        path = F.col("_metadata.file_path")
        columns = [F.col(field.name) for field in inner]
        # The day is in the name of the folder alone. Folders are of several jobs, which Spark would refuse.
        columns.append(F.regexp_extract(path, r"/day=(\d{4}-\d\d-\d\d)/[^/]*$", 1).alias("day"))
        return found.select(*columns, *([path.alias(FILE)] if with_file else []))

    def path(self, name: str) -> str:
        """Return what Spark calls a file of ours, to be read."""
        return escaped(f"{self.root}/{name}")

    def name(self, path: str) -> str:
        """Return the name of a file of ours that Spark calls by its address."""
        return "/".join(unquote(path).split("/")[-_DEPTH:])

    # -- writing

    def stage(self, frame: DataFrame, table: str, run: str) -> None:
        """Write rows of a table, to be published later."""
        columns = [column.name for column in TABLES[table].columns]
        (
            frame.select(*columns)
            .write.options(**_WRITE, **_LOOK_UP.get(table, {}))
            .partitionBy("day")
            # A run has a name of its own: what is there is of this one.
            .mode("append")
            .parquet(f"{self.root}/{_TABLES}/{table}/{run}")
        )

    @contextmanager
    def noted(self, table: str, run: str) -> Iterator[Noted | None]:
        """Give the ids that a run has written as rows of no day, or None, and remove them in the end."""
        found = self.place.names(f"{_TABLES}/{table}/{run}/day={NOTED}")
        names = [name for name in found if name.endswith(".parquet")]
        # With a schema, and counted by the ends of the files: else each would be a job of Spark.
        ids = self._spark.read.schema("uuid string").parquet(*map(self.path, names)) if names else None
        yield None if ids is None else Noted(ids, sum(self._rows(names).values()))
        for name in names:
            self._remove(name)

    def staged(self, runs: Iterable[str]) -> Staged:
        """Return all that some runs have written."""
        wanted = set(runs)
        found: dict[str, tuple[str, str, int]] = {}
        for name, size in self.place.sizes(_TABLES).items():
            part = _PART.fullmatch(name)
            if part is not None and part[2] in wanted:
                found[name] = part[1], part[3], size
        rows = self._rows(found)
        made: dict[str, dict[str, tuple[PartFile, ...]]] = {}
        for name, (table, day, size) in found.items():
            days = made.setdefault(table, {})
            days[day] = (*days.get(day, ()), PartFile(name, rows.get(name, 0), size))
        return Staged(made)

    def written(self, table: str, run: str) -> list[PartFile]:
        """Return the files of a table that a run has written; their rows are not counted."""
        found = self.place.sizes(f"{_TABLES}/{table}/{run}").items()
        return [PartFile(name, 0, size) for name, size in found if _PART.fullmatch(name)]

    def _rows(self, names: Iterable[str]) -> dict[str, int]:
        """Count the rows of files, of which nothing but the end is read."""
        if self.place.is_local:
            return {name: pq.read_metadata(Path(self.place.url, name)).num_rows for name in names}
        paths = [self.path(name) for name in names]
        if not paths:
            return {}
        # A column that no file has makes Spark take the number from what files say of themselves.
        found = self._spark.read.schema("nothing string").parquet(*paths)
        counted = found.groupBy(F.col("_metadata.file_path").alias("path")).count().collect()
        return {self.name(row["path"]): row["count"] for row in counted}

    def publish(self, manifest: Manifest, new: Staged) -> None:
        """Have readers see it, once all files of it are on the disk."""
        if self.place.is_local:
            self._sync(each.path for days in new.tables.values() for files in days.values() for each in files)
        known = read_manifest(self.place)
        if (0 if known is None else known.version) != manifest.version - 1:
            raise Superseded(
                f"another job published in {self.place.url} at the same time, so this job does not "
                "publish: run it again, with one job at a time"
            )
        write_manifest(self.place, manifest)

    def _sync(self, names: Iterable[str]) -> None:
        folders: set[Path] = set()
        for name in names:
            path = Path(self.place.url, name)
            try:
                number = os.open(path, os.O_RDONLY | FLAGS)
                try:
                    os.fsync(number)
                finally:
                    os.close(number)
            except OSError as error:
                raise failed(f"{path} cannot be written", error) from None
            folders.update(list(path.parents)[: len(Path(name).parents)])
        for folder in folders:
            sync_folder(folder)

    # -- tidying

    def discard(self, runs: Iterable[str]) -> None:
        """Remove what runs have written and did not publish.

        To publish may fail when all is done: a signal comes, or a folder cannot be synced. What readers see
        then stays.
        """
        published = {name.split("/")[2] for name in paths_of(read_manifest(self.place))}
        for run in runs:
            if run in published:
                continue
            if self.place.is_local:
                for folder in Path(self.place.url, _TABLES).glob(f"*/{run}"):
                    shutil.rmtree(folder, ignore_errors=True)
                continue
            for name in self.place.names(_TABLES):
                if name.split("/")[2:3] == [run]:
                    self.place.remove(name)

    def clean(self, manifest: Manifest | None, *, now: float) -> None:
        """Remove files that no reader can need any more, and what killed jobs have left."""
        in_use = set(paths_of(manifest))
        for name in self.place.names(_TABLES):
            if name in in_use:
                continue
            retired_at = None if manifest is None else manifest.retired.get(name)
            if retired_at is not None:
                is_over = now - retired_at > RETIRED_AGE
            else:
                is_over = now - _began_at(name) > (RETIRED_AGE if self.place.is_local else _REMOTE_AGE)
            if is_over:
                self._remove(name)

    def _remove(self, name: str) -> None:
        if self.place.is_local:
            # Hadoop has a checksum beside each file of a folder.
            path = Path(self.place.url, name)
            with suppress(OSError):
                path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        self.place.remove(name)

    @contextmanager
    def alone(self, lock: str = "lock", *, stop: Event | None = None) -> Iterator[None]:
        """Be the only one that writes here; DiskError if another is. An object store has no such lock.

        With ``stop`` it is waited for the other until that is set. ``lock`` names another thing to be alone
        with.
        """
        if not self.place.is_local:
            yield
            return
        path = Path(self.place.url, lock)
        try:
            make_folders(path.parent)
            number = os.open(path, os.O_RDWR | os.O_CREAT | FLAGS, MODE)
        except OSError as error:
            raise failed(f"{path} cannot be created", error) from None
        try:
            while not self._is_locked(number, path):
                if stop is None or stop.wait(_LOOK_EVERY):
                    raise DiskError(
                        f"{path} is locked: another pipeline job writes to this warehouse. Try again when "
                        "it has finished, or use another warehouse"
                    )
            yield
        finally:
            os.close(number)

    def _is_locked(self, number: int, path: Path) -> bool:
        """Take a lock, if nobody has it."""
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise failed(f"{path} cannot be locked", error) from None
        return True


def changed(
    manifest: Manifest | None,
    staged: Staged,
    dropped: set[str],
    *,
    log: str,
    recorders: tuple[str, ...],
    covered: dict[str, tuple[tuple[int, int], ...]],
    events: int,
    rate: float | None,
) -> Manifest:
    """Return the manifest after one, with some files more and some less."""
    now = time()
    tables: dict[str, dict[str, tuple[PartFile, ...]]] = {}
    for name in TABLES:
        old = {} if manifest is None else manifest.tables.get(name, {})
        new = staged.tables.get(name, {})
        for day in sorted({*old, *new}):
            files = (*(each for each in old.get(day, ()) if each.path not in dropped), *new.get(day, ()))
            if files:
                tables.setdefault(name, {})[day] = files
    retired = {} if manifest is None else manifest.retired
    return Manifest(
        version=1 if manifest is None else manifest.version + 1,
        published_at=now,
        log=log,
        recorders=recorders,
        covered=covered,
        events=events,
        tables=tables,
        schemas={name: table.version for name, table in TABLES.items()},
        rate=rate,
        # The others are gone by now, or will be before the next job writes anything.
        retired={
            **{name: at for name, at in retired.items() if now - at <= RETIRED_AGE + 60.0},
            **dict.fromkeys(sorted(dropped), now),
        },
    )


def paths_of(manifest: Manifest | None) -> Iterator[str]:
    """Yield the names of all files that tables consist of."""
    if manifest is not None:
        yield from (
            each.path for days in manifest.tables.values() for files in days.values() for each in files
        )


def new_run(now: float) -> str:
    """Return a name for what one job writes: it says when, and nobody had it before."""
    return f"{datetime.fromtimestamp(now, UTC).strftime(_RUN_TIME)}-{token_hex(4)}"


def _began_at(name: str) -> float:
    """Return when the run began that a file is of; long ago, if it is of none."""
    told = name.split("/")[2:3]
    with suppress(IndexError, ValueError):
        return datetime.strptime(told[0].partition("-")[0], _RUN_TIME).replace(tzinfo=UTC).timestamp()
    return 0.0
