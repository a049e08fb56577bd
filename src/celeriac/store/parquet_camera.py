"""Snapshots of a cluster as Parquet files: one of its workers and one of its tasks for each moment.

They are in ``snapshot=20261115T013000.000000Z/``, so that whatever reads a folder of Parquet files tells the
moments apart. The workers are written last: a snapshot that has both files is whole.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import time
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from celeriac.core.redaction import FIELDS, Redactor
from celeriac.core.state import ClusterState
from celeriac.core.task import Task
from celeriac.core.worker import Worker
from celeriac.errors import CallerError
from celeriac.store.place import place_for

__all__ = ["TASKS", "VERSION", "WORKERS", "ParquetCamera"]

#: Goes up when a column changes its meaning or goes away. One that is added keeps it.
VERSION: Final = 1

_TEXT, _NUMBER, _REAL, _FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_METADATA: Final = {"celeriac.snapshot": str(VERSION)}
#: A row for each task. Moments are the senders' seconds since the epoch.
TASKS: Final = pa.schema(
    {
        "snapshot_at": _REAL,
        "uuid": _TEXT,
        "name": _TEXT,
        "state": _TEXT,
        "phase": _TEXT,
        "host": _TEXT,
        "client": _TEXT,
        "timestamp": _REAL,
        "clock": _NUMBER,
        "sent": _REAL,
        "received": _REAL,
        "started": _REAL,
        "succeeded": _REAL,
        "failed": _REAL,
        "retried": _REAL,
        "revoked": _REAL,
        "rejected": _REAL,
        "runtime": _REAL,
        "retries": _NUMBER,
        "attempts": _NUMBER,
        "deliveries": _NUMBER,
        "conflict": _FLAG,
        "eta": _TEXT,
        "expires": _TEXT,
        "queue": _TEXT,
        "exchange": _TEXT,
        "routing_key": _TEXT,
        "root_id": _TEXT,
        "parent_id": _TEXT,
        **dict.fromkeys(FIELDS, _TEXT),
    },
    metadata=_METADATA,
)
#: A row for each worker.
WORKERS: Final = pa.schema(
    {
        "snapshot_at": _REAL,
        "hostname": _TEXT,
        "pid": _NUMBER,
        "alive": _FLAG,
        "seen_at": _REAL,
        "freq": _REAL,
        "clock": _NUMBER,
        "active": _NUMBER,
        "processed": _NUMBER,
        "loadavg": pa.list_(_REAL, 3),
        "drift": _REAL,
        "sw_ident": _TEXT,
        "sw_ver": _TEXT,
        "sw_sys": _TEXT,
    },
    metadata=_METADATA,
)
_FOLDER: Final = "snapshot="
_STAMP: Final = "%Y%m%dT%H%M%S.%fZ"


class ParquetCamera:
    """Writes snapshots of a state to a folder, or to the URL of an object store.

    What looks secret is masked before it is written: by ``redact``, or by a redactor with no settings of its
    own; False writes all as it is. Snapshots older than ``keep`` seconds go at each cleanup.
    """

    def __init__(
        self,
        url: str | Path,
        *,
        redact: Redactor | bool = True,
        keep: float | None = None,
        now: Callable[[], float] = time,
    ) -> None:
        if keep is not None and not keep > 0:
            raise CallerError(f"keep must be a number of seconds above 0, or None to keep all, not {keep!r}")
        self.place = place_for(url)
        self.keep = keep
        self._redactor = Redactor() if redact is True else redact or None
        self._now = now

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.place.url}>"

    def on_shutter(self, state: ClusterState) -> None:
        """Write a snapshot of a state, which must not change meanwhile; raises DiskError if it cannot."""
        now = self._now()
        folder = f"{_FOLDER}{datetime.fromtimestamp(now, UTC).strftime(_STAMP)}"
        tasks = [self._task_row(task, now) for task in state.all_tasks()]
        workers = [_row(worker, WORKERS, now) for worker in state.workers.values()]
        self.place.write(f"{folder}/tasks.parquet", _encoded(tasks, TASKS))
        self.place.write(f"{folder}/workers.parquet", _encoded(workers, WORKERS))

    def on_cleanup(self) -> int:
        """Remove the snapshots that are older than ``keep``, and return how many files that were."""
        if self.keep is None:
            return 0
        oldest = datetime.fromtimestamp(self._now(), UTC) - timedelta(seconds=self.keep)
        old = [name for name in self.place.names("") if _is_before(name, oldest)]
        for name in old:
            self.place.remove(name)
        return len(old)

    def _task_row(self, task: Task, now: float) -> dict[str, Any]:
        row = _row(task, TASKS, now)
        # Unlike what the last attempt says, this is not hidden by a retry.
        row["parent_id"] = task.parent_link
        if self._redactor is not None:
            policy = self._redactor.policy(task.name)
            for field in FIELDS:
                if row[field] is not None:
                    row[field] = self._redactor.under_policy(row[field], policy)
        return row


def _row(source: Task | Worker, schema: pa.Schema, now: float) -> dict[str, Any]:
    return {"snapshot_at": now} | {name: getattr(source, name) for name in schema.names[1:]}


def _encoded(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist(rows, schema=schema)
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue()


def _is_before(name: str, moment: datetime) -> bool:
    """Tell whether a file is of a snapshot of ours from before a moment."""
    folder, _, file = name.partition("/")
    if not folder.startswith(_FOLDER) or file not in ("tasks.parquet", "workers.parquet"):
        return False
    try:
        taken_at = datetime.strptime(folder.removeprefix(_FOLDER), _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return False
    return taken_at < moment
