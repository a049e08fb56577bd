"""Many small files of a day become one."""

from collections.abc import Callable
from time import time
from typing import Final

from pyspark.sql import SparkSession

from celeriac.pipeline.report import Compacted
from celeriac.pipeline.warehouse import Staged, Warehouse, new_run
from celeriac.store.manifest import Manifest, PartFile

__all__ = ["compacted"]

#: A file that is larger is not worth to be written again.
_LARGE_BYTES: Final = 128 * 1024 * 1024
#: What rows are looked up by, and so sorted by: a reader then skips nearly all of a file.
_SORTED_BY: Final = {
    "tasks": ("uuid",),
    "attempts": ("uuid", "counted_at"),
    "failures": ("uuid",),
    "workflows": ("root_id",),
    "rollups_minute": ("begin_at", "name"),
    "rollups_hour": ("name", "begin_at"),
}


def compacted(
    _spark: SparkSession, warehouse: Warehouse, *, publish: Callable[[Manifest, Staged, set[str]], None]
) -> Compacted:
    """Write the small files of each table and day as one, and publish that; the rows are the same."""
    manifest = warehouse.manifest()
    small = {} if manifest is None else _small(manifest)
    if manifest is None or not small:
        return Compacted(0, 0, 0, 0)
    run = new_run(time())
    is_published = False
    try:
        for table, days in small.items():
            # Each day is one partition, so each is one file.
            rows = warehouse.read(table, [each for files in days.values() for each in files])
            sorted_by = _SORTED_BY.get(table, ())
            warehouse.stage(
                rows.repartition(len(days), "day").sortWithinPartitions("day", *sorted_by), table, run
            )
        staged = warehouse.staged([run])
        old = [each for days in small.values() for files in days.values() for each in files]
        publish(manifest, staged, {each.path for each in old})
        is_published = True
    finally:
        if not is_published:
            warehouse.discard([run])
    new = [each for days in staged.tables.values() for files in days.values() for each in files]
    return Compacted(len(old), len(new), sum(each.bytes for each in old), sum(each.bytes for each in new))


def _small(manifest: Manifest) -> dict[str, dict[str, tuple[PartFile, ...]]]:
    """Return the files that are to be one, by table and day."""
    found: dict[str, dict[str, tuple[PartFile, ...]]] = {}
    for table, days in manifest.tables.items():
        for day, files in days.items():
            small = tuple(each for each in files if each.bytes < _LARGE_BYTES)
            if len(small) > 1:
                found.setdefault(table, {})[day] = small
    return found
