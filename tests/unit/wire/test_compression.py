"""Packed results: each way to pack, what is damaged, and what would grow too large."""

import bz2
import lzma
import sys
import zlib
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from celeriac.errors import CallerError, PeerError
from celeriac.wire.compression import is_packed, pack, unpack

DOCUMENT = b'{"status": "SUCCESS", "result": "' + b"x" * 1000 + b'"}'
MARK = b"\x00celery-compressed\x00"
METHODS = ["gzip", "bzip2", "lzma"]


def refusal(document: bytes, max_bytes: int = 10_000) -> str:
    """Return why a document is not unpacked."""
    with pytest.raises(PeerError) as caught:
        unpack(document, max_bytes=max_bytes)
    return str(caught.value)


@pytest.mark.parametrize("method", [*METHODS, "zlib", "bzip", "xz"])
def test_what_was_packed_is_what_is_unpacked(method: str) -> None:
    packed = pack(DOCUMENT, method)

    assert is_packed(packed)
    assert unpack(packed, max_bytes=len(DOCUMENT)) == DOCUMENT


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (b"application/x-gzip", zlib.compress(DOCUMENT)),
        (b"application/x-bz2", bz2.compress(DOCUMENT)),
        (b"application/x-lzma", lzma.compress(DOCUMENT)),
    ],
)
def test_the_bytes_are_those_of_celery(content_type: bytes, body: bytes) -> None:
    document = MARK + content_type + b"\x00" + body

    assert unpack(document, max_bytes=len(DOCUMENT)) == DOCUMENT


def test_json_is_not_taken_for_packed() -> None:
    assert not is_packed(DOCUMENT)


@pytest.mark.parametrize("method", METHODS)
def test_what_would_grow_beyond_the_limit_is_unpacked_no_further(method: str) -> None:
    packed = pack(b" " * 5_000_000, method)

    body = unpack(packed, max_bytes=1000)

    assert 1000 < len(body) < 2000


@pytest.mark.parametrize("method", METHODS)
def test_what_is_just_as_long_as_the_limit_is_unpacked(method: str) -> None:
    packed = pack(DOCUMENT, method)

    assert len(unpack(packed, max_bytes=len(DOCUMENT) - 1)) == len(DOCUMENT)
    assert unpack(packed, max_bytes=len(DOCUMENT)) == DOCUMENT


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("harm", [lambda b: b[:-4], lambda b: b[:-8] + b"!" * 8, lambda b: b[:40] + b"zzz"])
def test_what_is_damaged_is_refused(method: str, harm: Any) -> None:
    packed = harm(pack(DOCUMENT, method))

    assert "damaged" in refusal(packed)


def test_lzma_that_asks_for_much_memory_is_refused() -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**30}]
    greedy = MARK + b"application/x-lzma\x00" + lzma.compress(DOCUMENT, filters=filters)

    assert "damaged" in refusal(greedy)


@pytest.mark.parametrize("rest", [b"", b"\x00", b"application/x-snappy\x00abc", b"\xff" * 500, b"\n\x00a"])
def test_a_way_to_pack_that_is_not_known_is_named_and_the_fix_too(rest: bytes) -> None:
    reason = refusal(MARK + rest)

    assert reason.isprintable()
    assert len(reason) < 500
    assert "set result_compression to gzip, bzip2 or lzma" in reason


@pytest.mark.parametrize(
    ("content_type", "package"),
    [(b"application/zstd", "backports.zstd"), (b"application/x-brotli", "brotli")],
)
def test_a_way_to_pack_whose_package_is_missing_names_it(
    content_type: bytes, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("compression.zstd", "backports.zstd", "brotli"):
        monkeypatch.setitem(sys.modules, name, None)  # which makes the import fail

    reason = refusal(MARK + content_type + b"\x00abc")

    assert f"install {package}" in reason


def test_a_brotli_that_knows_no_limit_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "brotli", SimpleNamespace(Decompressor=object))

    reason = refusal(MARK + b"application/x-brotli\x00abc")

    assert "install brotli>=1.2" in reason


class Zstd(ModuleType):
    """Packs as zlib does, with the names of backports.zstd."""

    compress = staticmethod(zlib.compress)
    ZstdDecompressor = staticmethod(zlib.decompressobj)


class Brotli(ModuleType):
    """Packs as zlib does, with the names of brotli, and gives what it unpacked in small blocks."""

    compress = staticmethod(zlib.compress)

    class Decompressor:
        def __init__(self) -> None:
            self.stream = zlib.decompressobj()

        def process(self, data: bytes, output_buffer_limit: int) -> bytes:
            return self.stream.decompress(self.stream.unconsumed_tail + data, min(100, output_buffer_limit))

        def is_finished(self) -> bool:
            return self.stream.eof

        def can_accept_more_data(self) -> bool:
            return not self.stream.unconsumed_tail


@pytest.mark.parametrize(
    ("method", "module"), [("zstd", Zstd("backports.zstd")), ("brotli", Brotli("brotli"))]
)
def test_a_package_that_is_there_is_used(
    method: str, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    monkeypatch.setitem(sys.modules, module.__name__, module)

    packed = pack(DOCUMENT, method)

    assert unpack(packed, max_bytes=len(DOCUMENT)) == DOCUMENT
    assert len(unpack(packed, max_bytes=500)) > 500
    assert "damaged" in refusal(packed[:-4])


@pytest.mark.parametrize("method", ["snappy", "", "GZIP"])
def test_to_pack_in_a_way_that_is_none_is_refused(method: str) -> None:
    with pytest.raises(CallerError, match="use gzip, bzip2 or lzma"):
        pack(DOCUMENT, method)


def test_to_pack_with_a_package_that_is_missing_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "brotli", None)

    with pytest.raises(CallerError, match=r"install brotli>=1\.2"):
        pack(DOCUMENT, "brotli")
