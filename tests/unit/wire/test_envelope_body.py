"""What a message body may be: JSON, perhaps packed, and never more than its limit."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable

import pytest

from celeriac.errors import PeerError
from celeriac.model.message import Message
from celeriac.wire.envelope import MAX_BODY_BYTES, body_of

BODY = b'[{"type":"task-sent","clock":7}]'
ZLIB, BZ2 = "application/x-gzip", "application/x-bz2"
PACKERS: list[tuple[str, Callable[[bytes], bytes]]] = [(ZLIB, zlib.compress), (BZ2, bz2.compress)]


def packed(body: bytes, compression: object) -> Message:
    return Message(body, headers={"compression": compression})


def refusal(message: Message) -> str:
    """Return why a body is refused."""
    with pytest.raises(PeerError) as caught:
        body_of(message)
    return str(caught.value)


@pytest.mark.parametrize("encoding", ["utf-8", "UTF-8", "utf8", "us-ascii"])
def test_the_body_of_a_json_message_is_given_as_it_came(encoding: str) -> None:
    message = Message(BODY, content_encoding=encoding)

    body = body_of(message)

    assert body is message.body


@pytest.mark.parametrize(
    "content_type",
    [
        "application/x-python-serialize",
        "application/x-yaml",
        "application/x-msgpack",
        "application/data",
        "application/JSON",
        "application/json; charset=utf-8",
        "text/plain",
        "None",
        "",
    ],
)
def test_no_language_but_json_is_read(content_type: str) -> None:
    message = Message(BODY, content_type)

    reason = refusal(message)

    assert reason == "content-type"


@pytest.mark.parametrize("encoding", ["binary", "utf-16", "latin-1", "None", ""])
def test_no_encoding_but_utf_8_is_read(encoding: str) -> None:
    message = Message(BODY, content_encoding=encoding)

    reason = refusal(message)

    assert reason == "content-encoding"


def test_a_message_that_could_not_be_opened_tells_why() -> None:
    message = Message(BODY, fault="envelope")

    reason = refusal(message)

    assert reason == "envelope"


@pytest.mark.parametrize(("compression", "pack"), PACKERS)
def test_a_packed_body_is_unpacked(compression: str, pack: Callable[[bytes], bytes]) -> None:
    message = packed(pack(BODY), compression)

    body = body_of(message)

    assert body == BODY


@pytest.mark.parametrize(("compression", "pack"), PACKERS)
def test_a_body_may_grow_to_its_limit(compression: str, pack: Callable[[bytes], bytes]) -> None:
    message = packed(pack(b" " * MAX_BODY_BYTES), compression)

    body = body_of(message)

    assert len(body) == MAX_BODY_BYTES


@pytest.mark.parametrize(("compression", "pack"), PACKERS)
@pytest.mark.parametrize("excess", [1, 7 * MAX_BODY_BYTES])
def test_a_body_may_not_grow_beyond_its_limit(
    compression: str, pack: Callable[[bytes], bytes], excess: int
) -> None:
    message = packed(pack(b" " * (MAX_BODY_BYTES + excess)), compression)

    reason = refusal(message)

    assert reason == "body-size"


@pytest.mark.parametrize(("compression", "pack"), PACKERS)
@pytest.mark.parametrize("kept", [0, 1, 10, -4, -1])
def test_a_packed_body_that_was_cut_is_refused(
    compression: str, pack: Callable[[bytes], bytes], kept: int
) -> None:
    message = packed(pack(BODY * 10)[:kept], compression)

    reason = refusal(message)

    assert reason == "compression"


@pytest.mark.parametrize("compression", [ZLIB, BZ2])
@pytest.mark.parametrize("body", [BODY, b"\x00" * 100, gzip.compress(BODY, mtime=0)])
def test_a_body_that_was_not_packed_as_it_says_is_refused(compression: str, body: bytes) -> None:
    message = packed(body, compression)

    reason = refusal(message)

    assert reason == "compression"


@pytest.mark.parametrize(
    "compression", ["application/x-lzma", "application/zstd", "", "gzip; q=1", 7, [ZLIB], {}, b"x", False]
)
def test_a_compression_nobody_knows_is_refused(compression: object) -> None:
    message = packed(lzma.compress(BODY), compression)

    reason = refusal(message)

    assert reason == "compression"


def test_a_refused_language_is_not_even_unpacked() -> None:
    message = packed(zlib.compress(b" " * (MAX_BODY_BYTES + 1)), ZLIB)._replace(
        content_type="application/x-python-serialize"
    )

    reason = refusal(message)

    assert reason == "content-type"
