"""Snapshots of a cluster in PostgreSQL or SQLite: one row for each worker and each task.

What is stored of a task is its events, and the rest of the row is read from them. A snapshot joins its own
with those that are there, so that any number of cameras may write, in any order and as often as they like:
the rows come out the same, and a late snapshot never undoes a newer one.
"""

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from pathlib import Path
from threading import Lock
from time import time
from typing import Any, Final, Self, TypeVar

from celeriac.core import history
from celeriac.core.history import History
from celeriac.core.redaction import Redactor
from celeriac.core.state import ClusterState
from celeriac.errors import CallerError, DiskError, ImproperlyConfigured
from celeriac.masking import sanitize_url
from celeriac.model.states import READY_STATES

try:
    from sqlalchemy import Connection, Engine, Table, create_engine, delete, func, make_url, select
    from sqlalchemy.engine import URL
    from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
    from sqlalchemy.pool import StaticPool
except ImportError as missing:
    raise ImproperlyConfigured(
        "snapshots in a database need SQLAlchemy: pip install 'celeriac[database]'"
    ) from missing

from celeriac.store.database_error import is_contention, place_of, translated
from celeriac.store.database_row import (
    Row,
    TaskNews,
    clean_text,
    joined_task,
    joined_worker,
    task_news,
    worker_row,
)
from celeriac.store.database_table import Tables, insert_into

__all__ = ["DatabaseCamera"]

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_Begin = Callable[[], AbstractContextManager[Connection]]
#: Brings what is new and what is stored of one row together; None if nothing is new.
_Join = Callable[[str, _T, Mapping[str, Any] | None], Row | None]

#: Rows that are written at once: a few hundred kilobytes, and all others wait for no longer.
_CHUNK: Final = 500
#: Rows that are deleted at once.
_DELETED: Final = 10_000
#: How often a row is tried that others write meanwhile. Each time one of them gets on, so that this many
#: mean that something else is wrong.
_ROUNDS: Final = 100
#: Tasks that wait for a database that cannot be reached, beyond those that the state still has.
MAX_PENDING: Final = 100_000
#: Seconds to wait for a connection, or for another program to let go of a file.
_PATIENCE: Final = 30
_WORD: Final = re.compile(r"[a-z./-]{0,40}", re.ASCII)
_SCHEMES: Final = {
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
}


class DatabaseCamera:
    """Writes snapshots of a state to the database at ``url``; tables are made at the first.

    What looks secret is masked before it is written: by ``redact``, or by a redactor with no settings of its
    own; False writes all as it is. Cameras that write to the same tables are to be given the same. Tasks that
    ended more than ``keep`` seconds ago go at each cleanup.

    What could not be written is kept, and written with the next snapshot. Any thread may call.
    """

    def __init__(
        self,
        url: str,
        *,
        redact: Redactor | bool = True,
        prefix: str = "celeriac_",
        keep: float | None = None,
        now: Callable[[], float] = time,
    ) -> None:
        if keep is not None and not keep > 0:
            raise CallerError(f"keep must be a number of seconds above 0, or None to keep all, not {keep!r}")
        self._url = _parsed(url)
        #: Where it is, for people.
        self.place = place_of(self._url)
        self.tables = Tables(prefix)
        self.keep = keep
        self._redactor = Redactor() if redact is True else redact or None
        self._now = now
        self._engine = _engine(self._url)
        self._mutex = Lock()
        self._is_prepared = False
        #: The events of each task in the state as last looked at: histories never change, so one that is
        #: still the same object has nothing new.
        self._looked_at: dict[str, History] = {}
        #: What is still to be written, the oldest first.
        self._tasks: dict[str, History] = {}
        self._workers: dict[str, Row] = {}
        self._written_workers: dict[str, Row] = {}
        #: Tasks that were let go because too many waited.
        self.dropped = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.place}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def engine(self) -> Engine:
        """SQLAlchemy's engine, for who wants to ask the database."""
        return self._engine

    @property
    def pending(self) -> int:
        """How many tasks are still to be written: none after a snapshot that succeeded."""
        return len(self._tasks)

    def on_shutter(self, state: ClusterState) -> None:
        """Write what is new in a state, which must not change meanwhile.

        Raises ConnectionLost, AccessRefused or DiskError if the database cannot take it, and
        ImproperlyConfigured if its tables are none of ours, or of a later version.
        """
        with self._mutex:
            self._look(state)
            with self._connected() as begin:
                self._write_workers(begin)
                self._write_tasks(begin)

    def on_cleanup(self) -> int:
        """Delete the tasks that ended longer ago than ``keep``; return how many. Raises as ``on_shutter``."""
        if self.keep is None:
            return 0
        tasks = self.tables.tasks
        # A sender whose time cannot be read says 0: then it ended when we heard of it.
        ended_at = func.coalesce(func.nullif(tasks.c.timestamp, 0.0), tasks.c.seen_at)
        is_old = tasks.c.state.in_(sorted(READY_STATES)) & (ended_at < self._now() - self.keep)
        some = select(tasks.c.uuid).where(is_old).order_by(tasks.c.uuid).limit(_DELETED)
        deleted = 0
        with self._mutex, self._connected() as begin:
            while True:
                with begin() as connection:
                    count: int = connection.execute(delete(tasks).where(tasks.c.uuid.in_(some))).rowcount
                deleted += count
                if count < _DELETED:
                    return deleted

    def close(self) -> None:
        """Close the connections; the next snapshot would open them again."""
        with self._mutex:
            self._engine.dispose()
            self._is_prepared = False

    # -- what is new

    def _look(self, state: ClusterState) -> None:
        looked_at = {task.uuid: task.history for task in state.all_tasks()}
        for uuid, past in looked_at.items():
            if past is not self._looked_at.get(uuid):
                key = clean_text(uuid)
                waiting = self._tasks.get(key)
                self._tasks[key] = past if waiting is None else history.merge(waiting, past)
        self._looked_at = looked_at
        for worker in state.workers.values():
            row = worker_row(worker)
            if row != self._written_workers.get(row["hostname"]):
                self._workers[row["hostname"]] = row
        self._bound(state)

    def _bound(self, state: ClusterState) -> None:
        """Let go of what waits beyond the limit, the oldest first."""
        excess = len(self._tasks) - max(MAX_PENDING, len(self._looked_at))
        for uuid in list(islice(self._tasks, max(0, excess))):
            del self._tasks[uuid]
            self._looked_at.pop(uuid, None)  # the state may still have it
            self.dropped += 1
        for known in (self._workers, self._written_workers):
            for hostname in list(islice(known, max(0, len(known) - 2 * state.max_workers_in_memory))):
                del known[hostname]

    # -- writing

    @contextmanager
    def _connected(self) -> Iterator[_Begin]:
        """Give what begins a transaction on tables that are there; translate what the database says."""
        try:
            if not self._is_prepared:
                with self._engine.begin() as connection:
                    self.tables.prepare(connection)
                self._is_prepared = True
            yield self._engine.begin
        except SQLAlchemyError as error:
            self._is_prepared = False  # it may be another database that comes back
            # Without the cause: it holds the statement, and its values.
            raise translated(error, self._url) from None

    def _write_workers(self, begin: _Begin) -> None:
        table = self.tables.workers
        while self._workers:
            chunk = dict(islice(self._workers.items(), _CHUNK))
            self._write(begin, table, chunk, lambda _, row, stored: joined_worker(row, stored))
            for hostname in chunk:
                self._written_workers[hostname] = self._workers.pop(hostname)

    def _write_tasks(self, begin: _Begin) -> None:
        table = self.tables.tasks
        while self._tasks:
            uuids = list(islice(self._tasks, _CHUNK))
            chunk = {uuid: task_news(self._tasks[uuid], self._redactor) for uuid in uuids}
            self._write(begin, table, chunk, self._join_task)
            for uuid in uuids:
                del self._tasks[uuid]

    def _join_task(self, uuid: str, news: TaskNews, stored: Mapping[str, Any] | None) -> Row | None:
        now = self._now()
        try:
            return joined_task(uuid, news, stored, now)
        except ValueError as error:
            logger.warning(
                "camera: cannot read the row in %s of task %r (%s), rewriting it",
                self.place,
                uuid,
                error,
            )
            row = joined_task(uuid, news, None, now)
            if row is not None and stored is not None:
                row["version"] = stored["version"] + 1
            return row

    def _write(self, begin: _Begin, table: Table, ours: dict[str, _T], join: _Join[_T]) -> None:
        """Join what is ours with what is stored, and store that; again where somebody else was quicker."""
        for _ in range(_ROUNDS):
            # Two transactions: SQLite lets nobody write who has begun by reading while another writes.
            with begin() as connection:
                stored = _read(connection, table, list(ours))
            rows = [row for key in sorted(ours) if (row := join(key, ours[key], stored.get(key))) is not None]
            if not rows:
                return
            taken: set[str] = set()
            try:
                with begin() as connection:
                    taken = _upsert(connection, table, rows)
            except DBAPIError as error:
                if not is_contention(error):
                    raise
            key_name = _key_of(table)
            ours = {row[key_name]: ours[row[key_name]] for row in rows if row[key_name] not in taken}
            if not ours:
                return
        raise DiskError(
            f"cannot write {len(ours)} rows of {table.name} in {self.place} after {_ROUNDS} attempts: "
            "check that no rule or trigger hides or changes them"
        )


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        # A mistyped word is no login, and whoever wrote it is to find it.
        told = url if _WORD.fullmatch(url) else sanitize_url(url)
        raise ImproperlyConfigured(
            f"invalid database URL {told!r}: use postgresql://user:password@host/name or "
            "sqlite:///snapshots.db"
        ) from None
    scheme = _SCHEMES.get(parsed.drivername)
    if scheme is None:
        raise ImproperlyConfigured(f"unsupported database {parsed.drivername!r}: use PostgreSQL or SQLite")
    return parsed.set(drivername=scheme)


def _engine(url: URL) -> Engine:
    options: dict[str, Any] = {}
    if url.get_backend_name() == "sqlite":
        options["connect_args"] = {"timeout": _PATIENCE, "check_same_thread": False}
        if url.database in (None, "", ":memory:"):
            options["poolclass"] = StaticPool  # one for all threads: another would be another database
        else:
            _make_private(Path(url.database), place_of(url))
    else:
        ours = {"connect_timeout": _PATIENCE, "tcp_user_timeout": _PATIENCE * 1000}
        options["connect_args"] = {name: value for name, value in ours.items() if name not in url.query}
        options |= {"pool_size": 1, "pool_pre_ping": True}
    try:
        # Events are encoded and read by ourselves.
        return create_engine(
            url, hide_parameters=True, json_serializer=_as_it_is, json_deserializer=_as_it_is, **options
        )
    except (ImportError, NoSuchModuleError):
        raise ImproperlyConfigured(
            f"no driver installed for {url.drivername}: pip install 'celeriac[database]'"
        ) from None


def _as_it_is(document: object) -> object:
    return document


def _make_private(path: Path, place: str) -> None:
    """Make a file that its owner alone may read, unless there is one: SQLite would let everybody."""
    if path.exists() or str(path).startswith("file:"):
        return
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise DiskError(f"{place} cannot be created: {error.strerror}; use an existing folder") from None


def _key_of(table: Table) -> str:
    return str(table.primary_key.columns[0].name)


def _read(connection: Connection, table: Table, keys: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return the rows that are stored, by key."""
    key = table.c[_key_of(table)]
    rows = connection.execute(select(table).where(key.in_(keys))).mappings()
    return {row[key.name]: dict(row) for row in rows}


def _upsert(connection: Connection, table: Table, rows: list[Row]) -> set[str]:
    """Write rows, and return the keys of those that were taken: that nobody else wrote since we read them.

    The rows are in the order of their keys, so that two who write the same wait for each other, and not both.
    """
    statement = insert_into(table, connection)
    key = table.c[_key_of(table)]
    changed = {column.name: statement.excluded[column.name] for column in table.c if column is not key}
    statement = statement.on_conflict_do_update(
        index_elements=[key], set_=changed, where=table.c.version == statement.excluded.version - 1
    )
    return set(connection.execute(statement.returning(key), rows).scalars())
