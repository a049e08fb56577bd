"""What a warehouse consists of: one file that names every file of every table.

Readers read it once, and then the files it names. So what a job publishes is there all at once, and a job
that dies leaves what was there before.
"""

import errno
from typing import Final

import msgspec

from celeriac.errors import DiskError
from celeriac.store.place import Place

__all__ = ["FORMAT", "MANIFEST", "Manifest", "PartFile", "read_manifest", "write_manifest"]

#: Its name in the warehouse.
MANIFEST: Final = "current.json"
#: Goes up when a reader of before would misunderstand it. Fields that are added keep it.
FORMAT: Final = 1


class PartFile(msgspec.Struct, frozen=True):
    """One file of a table."""

    #: Relative to the warehouse.
    path: str
    rows: int
    bytes: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What was published last."""

    format: int = FORMAT
    #: One more each time something is published.
    version: int
    published_at: float
    #: The log that the tables are of, without secrets.
    log: str
    #: Who recorded. The place of each is its code in references to rows, so it never changes.
    recorders: tuple[str, ...]
    #: The numbers of each recorder's events that are in the tables: first and last of joined spans.
    covered: dict[str, tuple[tuple[int, int], ...]]
    #: How many events that is.
    events: int
    #: The files of each table, by name and day.
    tables: dict[str, dict[str, tuple[PartFile, ...]]]
    #: The version of each table's columns.
    schemas: dict[str, int]
    #: Events that the last job took in each second; None if there was none worth to measure.
    rate: float | None = None
    #: Files that are part of no table any more, and since when: who reads an older manifest may need them.
    retired: dict[str, float] = {}


_encode: Final = msgspec.json.Encoder(order="deterministic").encode
_decode: Final = msgspec.json.Decoder(Manifest).decode
_decode_format: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read_manifest(place: Place) -> Manifest | None:
    """Return what was published last; None if nothing was yet. Raises DiskError if it cannot be read."""
    try:
        content = place.read(MANIFEST)
    except DiskError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    where = f"{place.url.rstrip('/')}/{MANIFEST}"
    try:
        told = msgspec.json.decode(_decode_format(content).get("format", b"0"))
    except msgspec.DecodeError:
        told = None
    if not isinstance(told, int) or isinstance(told, bool):
        raise _damaged(where, "not a manifest")
    if told > FORMAT:
        raise DiskError(f"{where} has format {told}, newer than {FORMAT}: upgrade Celeriac")
    try:
        return _decode(content)
    except msgspec.DecodeError as error:
        raise _damaged(where, str(error)) from None


def _damaged(where: str, reason: str) -> DiskError:
    return DiskError(
        f"{where} is damaged: {reason}; restore it from a backup, or remove the warehouse and run celeriac "
        "pipeline run to rebuild it from the log"
    )


def write_manifest(place: Place, manifest: Manifest) -> None:
    """Publish: from now on, and not before all of it is there, readers have the files that it names."""
    place.write(MANIFEST, _encode(manifest))
