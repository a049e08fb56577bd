"""Packed results, as Celery 5.7 stores them: a mark, how it is packed, and the packed bytes.

Unpacking is bounded: a small value cannot become a huge one.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

from celeriac.config import MIB
from celeriac.errors import CallerError, PeerError

__all__ = ["is_packed", "pack", "unpack"]

#: No JSON begins with a zero byte.
_MARK: Final = b"\x00celery-compressed\x00"
#: What reading LZMA may take besides what comes out: the strongest preset needs 65 MiB.
_LZMA_MEMORY: Final = 128 * MIB


class _Method(NamedTuple):
    """A way to pack: what it says it is, and how it is done and undone."""

    content_type: str
    pack: Callable[[bytes], bytes]
    #: Returns at most so many bytes of what comes out, and whether the packed bytes are whole.
    unpack: Callable[[bytes, int], tuple[bytes, bool]]


def _unpacker(stream: Callable[[], Any]) -> Callable[[bytes, int], tuple[bytes, bool]]:
    def unpack(packed: bytes, most: int) -> tuple[bytes, bool]:
        opened = stream()
        body: bytes = opened.decompress(packed, most)
        return body, bool(opened.eof)

    return unpack


def _gzip() -> _Method:
    # Celery: named after gzip, but it is plain zlib.
    return _Method("application/x-gzip", zlib.compress, _unpacker(zlib.decompressobj))


def _bzip2() -> _Method:
    return _Method("application/x-bz2", bz2.compress, _unpacker(bz2.BZ2Decompressor))


def _lzma() -> _Method:
    return _Method(
        "application/x-lzma", lzma.compress, _unpacker(lambda: lzma.LZMADecompressor(memlimit=_LZMA_MEMORY))
    )


def _zstd() -> _Method:
    try:
        zstd = import_module("compression.zstd")
    except ImportError:
        zstd = import_module("backports.zstd")
    return _Method("application/zstd", zstd.compress, _unpacker(zstd.ZstdDecompressor))


def _brotli() -> _Method:
    brotli = import_module("brotli")
    if not hasattr(brotli.Decompressor, "can_accept_more_data"):
        raise ImportError  # before 1.2 it cannot stop at a limit

    def unpack(packed: bytes, most: int) -> tuple[bytes, bool]:
        stream = brotli.Decompressor()
        body: bytes = stream.process(packed, output_buffer_limit=most)
        # It ends at a block of its own size, before the limit or after it.
        while not stream.is_finished() and not stream.can_accept_more_data() and len(body) < most:
            body += stream.process(b"", output_buffer_limit=most - len(body))
        return body, bool(stream.is_finished())

    return _Method("application/x-brotli", brotli.compress, unpack)


#: By the names that kombu gives them.
_BY_NAME: Final[Mapping[str, Callable[[], _Method]]] = {
    **dict.fromkeys(("gzip", "zlib", "application/x-gzip"), _gzip),
    **dict.fromkeys(("bzip2", "bzip", "application/x-bz2"), _bzip2),
    **dict.fromkeys(("lzma", "xz", "application/x-lzma"), _lzma),
    **dict.fromkeys(("zstd", "zstandard", "application/zstd"), _zstd),
    **dict.fromkeys(("brotli", "application/x-brotli"), _brotli),
}
#: What to install for those that Python lacks.
_PACKAGES: Final = {_zstd: "backports.zstd", _brotli: "brotli>=1.2"}


def is_packed(document: bytes) -> bool:
    """Tell whether a stored value says that it is packed."""
    return document.startswith(_MARK)


def pack(document: bytes, compression: str) -> bytes:
    """Return a document packed by a method of kombu's; raises CallerError for one that is not here."""
    try:
        method = _BY_NAME[compression]()
    except KeyError:
        raise CallerError(f"unknown compression {compression!r}: use gzip, bzip2 or lzma") from None
    except ImportError:
        package = _PACKAGES[_BY_NAME[compression]]
        raise CallerError(
            f"compression {compression} needs a package: install {package}, or use gzip"
        ) from None
    return b"".join((_MARK, method.content_type.encode(), b"\x00", method.pack(document)))


def unpack(document: bytes, *, max_bytes: int) -> bytes:
    """Return what a packed document holds, or raise PeerError with the reason and the fix.

    Of what is longer than ``max_bytes`` the beginning comes out, itself a little longer than that.
    """
    name, _, packed = document[len(_MARK) :].partition(b"\x00")
    compression = name[:64].decode("ascii", "replace")
    make = _BY_NAME.get(compression)
    if make is None:
        raise PeerError(
            f"unknown compression {compression!r}: set result_compression to gzip, bzip2 or lzma on the "
            "workers"
        )
    try:
        method = make()
    except ImportError:
        raise PeerError(
            f"compressed with {compression!r}: install {_PACKAGES[make]} here, or set result_compression "
            "to gzip, bzip2 or lzma on the workers"
        ) from None
    try:
        body, is_whole = method.unpack(packed, max_bytes + 1)
    except Exception:  # noqa: BLE001 - each method has errors of its own
        body, is_whole = b"", False
    if not is_whole and len(body) <= max_bytes:
        raise PeerError(f"compressed with {compression!r}, but damaged: run the task again")
    return body
