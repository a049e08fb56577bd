"""The tables as one manifest has them, and DuckDB over the files of it.

DuckDB may open these files and nothing else of the machine, works in a bounded memory, and none of its
settings can be changed. So a statement of somebody else can read the tables, and that is all.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Lock, Thread
from types import ModuleType
from typing import Any, Final, TypeVar

from celeriac.errors import CallerError, DiskError, ImproperlyConfigured
from celeriac.history.answer import Question
from celeriac.history.source import quoted, source_of
from celeriac.history.span import EVER, Days
from celeriac.model.table import TABLES
from celeriac.store.local_place import parts_of
from celeriac.store.manifest import Manifest
from celeriac.store.place import Place

__all__ = ["Edition", "FilesGone"]

_T = TypeVar("_T")

_SETTINGS: Final[dict[str, object]] = {
    # Nothing is put on a disk, not even what is too large for the memory.
    "temp_directory": "",
    # No variable of this program is taken for a table.
    "python_enable_replacements": False,
    "allow_persistent_secrets": False,
    "allow_community_extensions": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
#: How a table is named in a statement of ours.
_TABLE: Final = re.compile(r"\{(\w+)\}", re.ASCII)
#: Seconds.
_INTERRUPT_EVERY: Final = 0.05
_WORD: Final = re.compile(r"\w+")
_FILES: Final = "files_{}"
_PARQUET: Final = (
    "read_parquet(${}, hive_partitioning = true, hive_types_autocast = false, union_by_name = true)"
)
#: Of what DuckDB says, the rest quotes the statement.
_REST: Final = re.compile(r"\n\s*\n.*", re.DOTALL)
_HINT: Final = (
    "SQL queries are a single SELECT over the tables of the warehouse; nothing else can be read or changed"
)


class FilesGone(DiskError):
    """Files that the manifest names cannot be read: it may have been replaced meanwhile."""


class Edition:
    """What one manifest names. Any thread may ask."""

    def __init__(self, place: Place, url: str, manifest: Manifest, *, memory: str) -> None:
        self.place = place
        self.manifest = manifest
        self._url = url
        self._memory = memory
        self._mutex = Lock()
        self._shared: Any = None

    def close(self) -> None:
        """Let go of what DuckDB holds; the next question opens it again."""
        with self._mutex:
            if self._shared is not None:
                self._shared.close()
            self._shared = None

    def files(self, table: str, days: Days = EVER) -> list[str]:
        """Return the names of the files of a table, of some days."""
        parts = sorted(self.manifest.tables.get(table, {}).items())
        # A name that leads out of the warehouse is refused.
        return ["/".join(parts_of(each.path)) for day, files in parts if days.has(day) for each in files]

    def rows(self, table: str, days: Days = EVER) -> int:
        """Return how many rows a table has, of some days."""
        parts = self.manifest.tables.get(table, {}).items()
        return sum(each.rows for day, files in parts if days.has(day) for each in files)

    def ask(
        self, text: str, parameters: Mapping[str, object], days: Mapping[str, Days] | None = None
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a statement of ours: see :meth:`run`."""
        return self.run(lambda question: list(question.executed().fetchall()), text, parameters, days)

    def run(
        self,
        make: Callable[[Question], _T],
        text: str,
        parameters: Mapping[str, object],
        days: Mapping[str, Days] | None = None,
    ) -> _T:
        """Return what a function makes of a statement of ours, in which tables are named as ``{tasks}``.

        ``days`` are those that matter, for each table of which not all do.
        """
        duckdb = _duckdb()
        with self._mutex:
            if self._shared is None:
                self._shared = self._connected()
            cursor = self._shared.cursor()
        with closing(cursor):
            given = dict(parameters)
            sources = {
                name: self._source(cursor, name, (days or {}).get(name, EVER), given)
                for name in dict.fromkeys(_TABLE.findall(text))
            }
            filled = _TABLE.sub(lambda found: sources[found[1]], text)
            try:
                return make(Question(cursor, filled, given))
            except duckdb.OutOfMemoryException:
                raise self._too_large() from None
            except (duckdb.IOException, duckdb.PermissionException, duckdb.InvalidInputException) as error:
                raise FilesGone(
                    f"{self.place.url} cannot be read: {_said(error)}; restore the file from a backup, or "
                    "remove the warehouse and run celeriac pipeline run to rebuild it from the log"
                ) from None

    def run_foreign(self, make: Callable[[Question], _T], text: str, *, timeout: float | None) -> _T:
        """Return what a function makes of a statement of somebody else, over views named as the tables.

        Raises CallerError for one that is not a single SELECT, cannot be run, takes longer than ``timeout``
        seconds or more memory than there is for it.
        """
        duckdb = _duckdb()
        _check(text)
        words = set(_WORD.findall(text.lower()))
        named = [name for name in TABLES if name in words] or list(TABLES)
        with closing(self._connected()) as connection, _limited(connection, timeout) as is_late:
            try:
                for name in named:
                    given: dict[str, object] = {}
                    source = self._source(connection, name, EVER, given)
                    connection.sql(f"SELECT * FROM {source}", params=given or None).create_view(name)  # noqa: S608 - of our own names alone
                return make(Question(connection, text, {}))
            except duckdb.OutOfMemoryException:
                raise self._too_large() from None
            except duckdb.Error as error:
                if is_late.is_set():
                    raise CallerError(
                        f"the query took longer than {timeout:g} s: narrow it, or raise the timeout"
                    ) from None
                if isinstance(error, duckdb.IOException | duckdb.PermissionException) and self._has_lost():
                    raise FilesGone(f"{self.place.url} lacks files of its tables") from None
                raise CallerError(f"invalid query: {_said(error)}; {_HINT}") from None

    def _source(self, cursor: Any, name: str, days: Days, given: dict[str, object]) -> str:
        """Return what stands for a table in a statement, and give it the files that it needs."""
        files = self.files(name, days)
        if not files:
            return source_of(name, None)
        key = _FILES.format(name)
        if self.place.is_local:
            given[key] = [self._path(each) for each in files]
            return source_of(name, _PARQUET.format(key))
        cursor.register(key, _dataset(self._url, files))
        return source_of(name, quoted(key))

    def _connected(self) -> Any:
        connection = _duckdb().connect(":memory:", config={**_SETTINGS, "memory_limit": self._memory})
        files = [self._path(each) for name in self.manifest.tables for each in self.files(name)]
        connection.execute("SET allowed_paths = $files", {"files": files if self.place.is_local else []})
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        return connection

    def _too_large(self) -> CallerError:
        return CallerError(
            f"the query needs more memory than {self._memory}: narrow it, or select fewer columns"
        )

    def _path(self, name: str) -> str:
        return str(Path(self.place.url) / name)

    def _has_lost(self) -> bool:
        """Tell whether a file of the manifest is not there."""
        known = set(self.place.names("tables"))
        return any(each not in known for name in self.manifest.tables for each in self.files(name))


def _duckdb() -> ModuleType:
    try:
        import duckdb  # noqa: PLC0415  (needs the extra, and is slow to load)
    except ImportError as error:
        raise ImproperlyConfigured(
            "queries need duckdb, which is not installed: pip install 'celeriac[history]'"
        ) from error
    module: ModuleType = duckdb
    return module


def _dataset(url: str, files: list[str]) -> Any:
    """Return files of an object store as what DuckDB reads by way of Arrow, and only as far as it must."""
    import pyarrow as pa  # noqa: PLC0415  (slow to load)
    import pyarrow.dataset as ds  # noqa: PLC0415
    from fsspec.core import url_to_fs  # noqa: PLC0415

    store, root = url_to_fs(url)
    day = ds.partitioning(pa.schema([("day", pa.string())]), flavor="hive")
    paths = [f"{root.rstrip('/')}/{each}" for each in files]
    # A later Celeriac may have added columns: the file that was written last has them all.
    last = max(files, key=lambda each: each.split("/")[2])
    known = ds.dataset(
        f"{root.rstrip('/')}/{last}", filesystem=store, format="parquet", partitioning=day
    ).schema
    return ds.dataset(paths, schema=known, filesystem=store, format="parquet", partitioning=day)


def _check(text: str) -> None:
    duckdb = _duckdb()
    try:
        statements = duckdb.extract_statements(text)
    except duckdb.Error as error:
        raise CallerError(f"invalid query: {_said(error)}; {_HINT}") from None
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise CallerError(f"invalid query: {_HINT}")


@contextmanager
def _limited(connection: Any, timeout: float | None) -> Iterator[Event]:
    """Interrupt what runs when its time is over, and say so."""
    is_done, is_late = Event(), Event()

    def watch() -> None:
        if is_done.wait(timeout):
            return
        is_late.set()
        # Between two statements there is nothing to interrupt.
        while not is_done.wait(_INTERRUPT_EVERY):
            connection.interrupt()

    watcher = Thread(target=watch, name="history-limit", daemon=True)
    watcher.start()
    try:
        yield is_late
    finally:
        is_done.set()
        watcher.join()


def _said(error: Exception) -> str:
    """Return what DuckDB says, in one line."""
    return " ".join(_REST.sub("", str(error)).split()).rstrip(".")
