"""Entries of a log of decisions as bytes: there and back, and what is none."""

import json

import pytest

from celeriac.errors import CallerError, PeerError
from celeriac.model.decision import Entry, EntryKind, Version
from celeriac.model.election import Mode
from celeriac.wire.decision import MAX_ENTRY_BYTES, decode_entry, encode_entry

RENEWAL = Entry(
    EntryKind.RENEW,
    "id-1",
    "ä key",
    "web1.7.boot",
    Mode.LEASE,
    15.0,
    1.7e9,
    Version(7, 3),
    lift=5,
    note=b"\x00\xff",
)
MARK = Entry(EntryKind.MARK, "id-2", "", "", Mode.ONCE, 0.0, 1.7e9)


@pytest.mark.parametrize(
    "entry",
    [
        RENEWAL,
        MARK,
        RENEWAL._replace(kind=EntryKind.CLAIM, ticket=12, note=None),
        RENEWAL._replace(kind=EntryKind.FINISH, is_failed=True, note=b""),
        RENEWAL._replace(key="🌳" * 200, owner="ö" * 512, note=bytes(64 * 1024)),
    ],
)
def test_an_entry_is_read_as_it_was_written(entry: Entry) -> None:
    body = encode_entry(entry)

    assert decode_entry(body) == entry
    assert len(body) <= MAX_ENTRY_BYTES


@pytest.mark.parametrize(
    "change",
    [
        {"owner": ""},
        {"owner": "two\nlines"},
        {"owner": "o" * 513},
        {"key": ""},
        {"prev": Version(2**61, 0)},
        {"ttl": float("nan")},
        {"note": bytes(64 * 1024 + 1)},
    ],
    ids=range(7),
)
def test_what_nobody_would_read_is_not_written(change: dict[str, object]) -> None:
    with pytest.raises(CallerError, match="printable"):
        encode_entry(RENEWAL._replace(**change))  # type: ignore[arg-type]


def spelled(**changes: object) -> bytes:
    return json.dumps(json.loads(encode_entry(RENEWAL)) | changes).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"null",
        b"[]",
        b"[" * 100_000,
        b'{"v": 1}',
        b" " * (MAX_ENTRY_BYTES + 1),
        spelled(v=2),
        spelled(kind="steal"),
        spelled(kind=["claim"]),
        spelled(kind=None),
        spelled(mode="always"),
        spelled(mode={}),
        spelled(id=""),
        spelled(id=7),
        spelled(id="i" * 65),
        spelled(key=""),
        spelled(key="k" * 201),
        spelled(key="\ud800"),
        spelled(owner=None),
        spelled(ttl="15"),
        spelled(ttl=True),
        spelled(ttl=-1),
        spelled(ttl=1e10),
        spelled(at=float("inf")),
        spelled(at=float("nan")),
        spelled(at=10**400),
        spelled(prev=7),
        spelled(prev=[7]),
        spelled(prev=[7, 3, 1]),
        spelled(prev=[7.0, 3]),
        spelled(prev=[-1, 0]),
        spelled(prev=[2**61, 0]),
        spelled(ticket=None),
        spelled(lift=True),
        spelled(failed="yes"),
        spelled(note=7),
        spelled(note="not base64!"),
        spelled(note="A" * 88_000),
    ],
    ids=range(39),
)
def test_what_is_no_entry_is_refused(body: bytes) -> None:
    with pytest.raises(PeerError, match="decision"):
        decode_entry(body)


def test_fields_that_are_not_known_are_left_alone() -> None:
    assert decode_entry(spelled(more=[1, 2])) == RENEWAL
