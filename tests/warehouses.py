"""Warehouses with tables of a few rows, as the pipeline publishes them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from datasketches import kll_doubles_sketch

from celeriac.model.table import TABLES
from celeriac.store.manifest import Manifest, PartFile, write_manifest
from celeriac.store.place import place_for

__all__ = ["DAY", "MIDNIGHT", "arrow_type", "attempt", "publish", "rollup", "sketch", "task"]

#: 2026-11-14T00:00Z.
MIDNIGHT: Final = 1_794_614_400.0
DAY: Final = "2026-11-14"
_PLAIN: Final = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
}


def arrow_type(type_: str) -> pa.DataType:
    """Return Arrow's type for one of Spark's."""
    if type_.startswith("array<"):
        return pa.list_(arrow_type(type_[6:-1]))
    if type_.startswith("struct<"):
        fields = re.findall(r"(\w+):(\w+)", type_)
        return pa.struct([(name, arrow_type(kind)) for name, kind in fields])
    return _PLAIN[type_]


def publish(
    root: Path,
    tables: Mapping[str, Iterable[Mapping[str, Any]]],
    *,
    version: int = 1,
    published_at: float = MIDNIGHT,
    log: str = "nowhere",
    recorders: Sequence[str] = (),
) -> Manifest:
    """Publish rows, each under its ``day`` or else under 2026-11-14; what a row lacks is null."""
    files: dict[str, dict[str, tuple[PartFile, ...]]] = {}
    for name, rows in tables.items():
        dated = sorted(({"day": DAY, **row} for row in rows), key=itemgetter("day"))
        files[name] = {
            day: (_written(root, name, day, list(group), version),)
            for day, group in groupby(dated, itemgetter("day"))
        }
    manifest = Manifest(
        version=version,
        published_at=published_at,
        log=log,
        recorders=tuple(recorders),
        covered={},
        events=4711,
        tables=files,
        schemas={name: TABLES[name].version for name in tables},
    )
    write_manifest(place_for(root), manifest)
    return manifest


def _written(root: Path, name: str, day: str, rows: list[dict[str, Any]], version: int) -> PartFile:
    # Spark leaves out the column that the folders are named after.
    columns = [column for column in TABLES[name].columns if column.name != "day"]
    unknown = {key for row in rows for key in row} - {column.name for column in columns} - {"day"}
    assert not unknown, unknown
    schema = pa.schema([(column.name, arrow_type(column.type)) for column in columns])
    path = f"tables/{name}/run-{version}/day={day}/part-0.parquet"
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema), root / path)
    return PartFile(path, len(rows), (root / path).stat().st_size)


def sketch(values: Iterable[float]) -> bytes:
    """Return the sketch of some values."""
    made = kll_doubles_sketch(200)
    for value in values:
        made.update(value)
    content: bytes = made.serialize()
    return content


def rollup(
    begin_at: float,
    name: str | None = "shop.pay",
    *,
    runs: Sequence[float] = (),
    waits: Sequence[float] = (),
    failed: int = 0,
    retried: int = 0,
    **fields: Any,
) -> dict[str, Any]:
    """Return a row of a roll-up: attempts that ran so long, all of which succeeded but some."""
    return {
        "begin_at": begin_at,
        "name": name,
        "worker": "w1@lab",
        "queue": "celery",
        "attempts": len(runs),
        "succeeded": len(runs) - failed - retried,
        "failed": failed,
        "retried": retried,
        "revoked": 0,
        **_measured("wait", waits),
        **_measured("run", runs),
        **fields,
    }


def _measured(name: str, values: Sequence[float]) -> dict[str, Any]:
    return {
        f"{name}s": len(values),
        f"{name}_sum": sum(values) if values else None,
        f"{name}_max": max(values, default=None),
        f"{name}_sketch": sketch(values) if values else None,
    }


def task(uuid: str, **fields: Any) -> dict[str, Any]:
    """Return a row of ``tasks``: of one that succeeded just after midnight, unless told otherwise."""
    return {
        "uuid": uuid,
        "name": "shop.pay",
        "state": "SUCCESS",
        "phase": "done",
        "worker": "w1@lab",
        "root_id": uuid,
        "retries": 0,
        "attempts": 1,
        "first_at": MIDNIGHT + 1,
        "last_at": MIDNIGHT + 3,
        "seen_at": MIDNIGHT + 1.5,
        "runtime": 1.0,
        "history": [{"type": "received", "at": MIDNIGHT + 1, "row": 7}],
        **fields,
    }


def attempt(uuid: str, retries: int = 0, **fields: Any) -> dict[str, Any]:
    """Return a row of ``attempts``."""
    return {
        "uuid": uuid,
        "name": "shop.pay",
        "worker": "w1@lab",
        "retries": retries,
        "outcome": "SUCCESS",
        "wait": 0.5,
        "run": 1.0,
        "counted_at": MIDNIGHT + 3,
        **fields,
    }
