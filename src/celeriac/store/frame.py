"""What a write-ahead file is made of: a header, and frames with rows.

The header is two lines, ``CELWAL1`` and JSON with a checksum behind it. A frame is 28 bytes that say what
follows, then the rows as an Arrow stream of their own. All numbers are little-endian:

=====  =======  ==========================================
bytes  name     holds
=====  =======  ==========================================
4      marker   ``ff fe 'C' 'W'``
4      length   bytes of rows that follow
4      rows     how many they are
8      first    the sequence number of the first of them
4      crc      CRC-32 of the rows' bytes
4      check    CRC-32 of the 24 bytes before it
=====  =======  ==========================================

A frame that cannot be read so still tells how many events it held, and where the next one is.
"""

from collections.abc import Iterator
from struct import Struct as Layout
from typing import Annotated, Final, NamedTuple
from zlib import crc32

import msgspec
import pyarrow as pa
from msgspec import Meta, Struct

from celeriac.store.columns import SCHEMA, VERSION

__all__ = [
    "FRAME_BYTES",
    "Frame",
    "Header",
    "NewerFormat",
    "decode_rows",
    "encode_rows",
    "find_frames",
    "frame_at",
    "pack_header",
    "read_header",
]

_FORMAT: Final = 1
_MAGIC: Final = b"CELWAL%d\n" % _FORMAT
#: No text in UTF-8 holds the first byte, so what users write never looks like a frame.
_MARKER: Final = b"\xff\xfeCW"
_LAYOUT: Final = Layout("<4sIIQI")
_CHECK: Final = Layout("<I")
#: What an Arrow stream ends with.
_END: Final = b"\xff\xff\xff\xff\0\0\0\0"
#: The bytes of a frame before its rows.
FRAME_BYTES: Final = _LAYOUT.size + _CHECK.size
#: A header is some 150 bytes.
_MAX_HEADER_BYTES: Final = 4096
#: Below it compression costs more than it saves: each of some 40 columns is compressed alone.
_COMPRESS_ROWS: Final = 256
_PLAIN: Final = pa.ipc.IpcWriteOptions()
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4")


class NewerFormat(Exception):
    """What was written by a later version: to read it in part would lose the rest."""


class Header(Struct, frozen=True):
    """What a write-ahead file says of itself."""

    recorder: str
    #: The sequence number of the first event in it.
    first: Annotated[int, Meta(ge=0)]
    made_at: float
    #: When the last event before those in it was received; None at the very first.
    last_received_at: float | None = None
    format: int = _FORMAT


class Frame(NamedTuple):
    """Where rows are in a file, and which."""

    offset: int
    length: int
    rows: int
    first: int
    crc: int

    @property
    def end(self) -> int:
        """Where the frame ends."""
        return self.offset + FRAME_BYTES + self.length

    def payload(self, content: memoryview) -> memoryview:
        """Return the bytes of its rows, as many as there are."""
        return content[self.offset + FRAME_BYTES : self.end]

    def is_ended(self, content: memoryview) -> bool:
        """Its last bytes are there, those that every frame has, and nothing is behind them."""
        return self.end == len(content) and bytes(self.payload(content)[-len(_END) :]) == _END

    def is_whole(self, content: memoryview) -> bool:
        """Its rows are all there, and are what was written."""
        payload = self.payload(content)
        return len(payload) == self.length and crc32(payload) == self.crc


_decode_header: Final = msgspec.json.Decoder(Header).decode
_encode: Final = msgspec.json.Encoder().encode


def pack_header(header: Header) -> bytes:
    """Return the first bytes of a file."""
    told = _encode(header)
    return b"%b%b %08x\n" % (_MAGIC, told, crc32(told))


def read_header(content: memoryview) -> tuple[Header, int] | None:
    """Return what a file says of itself and where its frames begin; None if that cannot be read.

    Raises NewerFormat for a file of a later version.
    """
    lines = bytes(content[:_MAX_HEADER_BYTES]).split(b"\n", 2)
    if len(lines) < 3 or not lines[0].startswith(_MAGIC[:6]):
        return None
    told, _, check = lines[1].rpartition(b" ")
    if check != b"%08x" % crc32(told):
        return None
    try:
        header = _decode_header(told)
    except msgspec.MsgspecError:
        return None
    if header.format > _FORMAT:
        raise NewerFormat(f"unsupported format {header.format}")
    return None if lines[0] + b"\n" != _MAGIC else (header, len(lines[0]) + len(lines[1]) + 2)


def encode_rows(batch: pa.RecordBatch, *, first: int) -> bytes:
    """Return rows as one frame."""
    sink = pa.BufferOutputStream()
    options = _COMPRESSED if batch.num_rows >= _COMPRESS_ROWS else _PLAIN
    with pa.ipc.new_stream(sink, SCHEMA, options=options) as stream:
        stream.write_batch(batch)
    payload = sink.getvalue()
    told = _LAYOUT.pack(_MARKER, payload.size, batch.num_rows, first, crc32(payload))
    return b"".join((told, _CHECK.pack(crc32(told)), payload))


def frame_at(content: memoryview, offset: int) -> Frame | None:
    """Return the frame that begins there, though its rows may be damaged; None if there is none."""
    told = content[offset : offset + FRAME_BYTES]
    if len(told) < FRAME_BYTES or bytes(told[:4]) != _MARKER:
        return None
    if _CHECK.unpack_from(told, _LAYOUT.size)[0] != crc32(told[: _LAYOUT.size]):
        return None
    _, length, rows, first, crc = _LAYOUT.unpack_from(told)
    return Frame(offset, length, rows, first, crc)


def find_frames(content: bytes, start: int) -> Iterator[int]:
    """Yield where frames may begin, from ``start`` on."""
    offset = content.find(_MARKER, start)
    while offset >= 0:
        yield offset
        offset = content.find(_MARKER, offset + 1)


def decode_rows(content: memoryview, frame: Frame) -> pa.RecordBatch | None:
    """Return the rows of a whole frame; None if they are none of ours in spite of their checksum.

    Raises NewerFormat for rows of a later version.
    """
    try:
        # Copied: Arrow wants numbers at even places, which frames are not.
        with pa.ipc.open_stream(pa.py_buffer(bytes(frame.payload(content)))) as stream:
            batch = _conformed(stream.read_next_batch(), stream.schema)
    except (pa.ArrowException, OSError, EOFError, StopIteration, KeyError, ValueError):
        return None
    if batch.num_rows != frame.rows or not frame.rows:
        return None
    numbers = batch.column("sequence")
    is_in_order = (numbers[0].as_py(), numbers[-1].as_py()) == (frame.first, frame.first + frame.rows - 1)
    return batch if is_in_order else None


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with all the columns of today; those of an earlier version lack some."""
    if schema.equals(SCHEMA, check_metadata=True):
        return batch
    version = int((schema.metadata or {}).get(b"celeriac.schema", b"0"))
    unknown = sorted(set(schema.names) - set(SCHEMA.names))
    if version > VERSION or unknown:
        raise NewerFormat(f"unsupported row version {version}, with {', '.join(unknown) or 'other meanings'}")
    columns = [
        batch.column(field.name) if field.name in schema.names else pa.nulls(batch.num_rows, field.type)
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
