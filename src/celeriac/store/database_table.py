"""The tables that snapshots are kept in, on PostgreSQL and SQLite alike.

Moments are seconds since the epoch, as the events have them: ``to_timestamp(succeeded)`` on PostgreSQL and
``datetime(succeeded, 'unixepoch')`` on SQLite show them as people read them.
"""

import re
from typing import Any, Final
from zlib import crc32

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    func,
    inspect,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.types import TypeEngine

from celeriac.errors import ImproperlyConfigured

__all__ = ["TASK_FIELDS", "VERSION", "WORKER_FIELDS", "Insert", "Tables", "insert_into"]

#: Goes up when a column changes, comes or goes.
VERSION: Final = 1
_VERSION_NAME: Final = "version"
#: PostgreSQL cuts a name after 63 characters, and the longest of ours takes 24 of them.
_PREFIX: Final = re.compile(r"[a-z_][a-z0-9_]{0,38}")

Insert = postgresql.Insert | sqlite.Insert

#: What is kept of a task, each an attribute of :class:`celeriac.core.task.Task`.
TASK_FIELDS: Final[dict[str, TypeEngine[Any]]] = {
    "name": Text(),
    "state": Text(),
    "phase": Text(),
    # When it got into its state, and the Lamport clock of the event that told.
    "timestamp": Double(),
    "clock": BigInteger(),
    # The node that has, or had, it; the one that sent it, and where to.
    "worker": Text(),
    "client": Text(),
    "queue": Text(),
    "exchange": Text(),
    "routing_key": Text(),
    "args": Text(),
    "kwargs": Text(),
    "eta": Text(),
    "expires": Text(),
    "result": Text(),
    "runtime": Double(),
    "exception": Text(),
    "traceback": Text(),
    "sent": Double(),
    "received": Double(),
    "started": Double(),
    "succeeded": Double(),
    "failed": Double(),
    "retried": Double(),
    "revoked": Double(),
    "rejected": Double(),
    "retries": BigInteger(),
    "attempts": BigInteger(),
    "deliveries": BigInteger(),
    "executions": BigInteger(),
    "conflict": Boolean(),
    "root_id": Text(),
    "parent_id": Text(),
    # The task that sent it: a retry names the task itself as its parent, and does not hide it here.
    "parent_link": Text(),
}
#: What is kept of a worker.
WORKER_FIELDS: Final[dict[str, TypeEngine[Any]]] = {
    "pid": BigInteger(),
    "timestamp": Double(),
    "clock": BigInteger(),
    "utcoffset": Double(),
    "freq": Double(),
    "active": BigInteger(),
    "processed": BigInteger(),
    "load_1": Double(),
    "load_5": Double(),
    "load_15": Double(),
    "sw_ident": Text(),
    "sw_ver": Text(),
    "sw_sys": Text(),
    "has_left": Boolean(),
    # When it was last heard of, by our clock, and until when it is to be taken for alive.
    "seen_at": Double(),
    "alive_until": Double(),
}


def _columns(fields: dict[str, TypeEngine[Any]]) -> list[Column[object]]:
    return [Column(name, kind) for name, kind in fields.items()]


def _version_column() -> Column[int]:
    """Return what tells writers whether somebody else wrote the row since they read it."""
    return Column("version", BigInteger(), nullable=False)


class Tables:
    """``workers``, ``tasks`` and the version of both, with one prefix to their names."""

    def __init__(self, prefix: str) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ImproperlyConfigured(
                f"invalid table prefix {prefix!r}: use up to 39 lower-case letters, digits and "
                "underscores, not starting with a digit"
            )
        self.prefix = prefix
        metadata = MetaData()
        self.schema = Table(
            f"{prefix}schema",
            metadata,
            Column("name", Text(), primary_key=True),
            Column("number", Integer(), nullable=False),
        )
        self.workers = Table(
            f"{prefix}workers",
            metadata,
            Column("hostname", Text(), primary_key=True),
            *_columns(WORKER_FIELDS),
            _version_column(),
        )
        self.tasks = Table(
            f"{prefix}tasks",
            metadata,
            Column("uuid", Text(), primary_key=True),
            *_columns(TASK_FIELDS),
            # When there was last news of it, by our clock.
            Column("seen_at", Double(), nullable=False),
            # Its events, from which all the rest is read.
            Column("history", JSON(), nullable=False),
            _version_column(),
        )
        for fields in (("state", "timestamp"), ("name", "timestamp"), ("worker",), ("root_id",)):
            Index(f"{prefix}tasks_{'_'.join(fields)}", *(self.tasks.c[field] for field in fields))

    def prepare(self, connection: Connection) -> None:
        """Make the tables that are missing; refuse those of another version. The caller commits."""
        if connection.dialect.name == "postgresql":
            # Two cameras that start at once: PostgreSQL would fail one of them.
            connection.execute(select(func.pg_advisory_xact_lock(crc32(self.schema.name.encode()))))
        _make(connection, self.schema)
        row = {"name": _VERSION_NAME, "number": VERSION}
        connection.execute(insert_into(self.schema, connection).values(row).on_conflict_do_nothing())
        number = self.schema.c.number
        found = connection.execute(select(number).where(self.schema.c.name == _VERSION_NAME)).scalar_one()
        if found != VERSION:
            fix = "upgrade Celeriac here" if found > VERSION else "drop them"
            raise ImproperlyConfigured(
                f"the tables {self.prefix}* have version {found}, and this Celeriac writes version "
                f"{VERSION}: {fix}, or use another prefix"
            )
        _make(connection, self.workers)
        _make(connection, self.tasks)


def _make(connection: Connection, table: Table) -> None:
    """Make a table unless it is there. Who may only write to one that is there is not to be refused."""
    if inspect(connection).has_table(table.name):
        return
    connection.execute(CreateTable(table, if_not_exists=True))
    for index in sorted(table.indexes, key=lambda each: str(each.name)):
        connection.execute(CreateIndex(index, if_not_exists=True))


def insert_into(table: Table, connection: Connection) -> Insert:
    """Return an insertion that can say what is to be done about a row that is there already."""
    is_sqlite = connection.dialect.name == "sqlite"
    return sqlite.insert(table) if is_sqlite else postgresql.insert(table)
