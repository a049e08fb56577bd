"""Entries of a log of decisions, as JSON.

All nodes must read an entry alike, for they judge by it: what one of them refuses, all refuse.
"""

import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from math import isfinite
from typing import Any, Final

from celeriac.errors import CallerError, PeerError
from celeriac.model.decision import Entry, EntryKind, Version
from celeriac.model.election import Mode

__all__ = ["MAX_ENTRY_BYTES", "decode_entry", "encode_entry"]

#: Of a note of 64 KiB, in base64, and all else.
MAX_ENTRY_BYTES: Final = 128 * 1024
_MAX_NOTE_BYTES: Final = 64 * 1024
_MAX_KEY_CHARS: Final = 200
_MAX_OWNER_CHARS: Final = 512
_MAX_ID_CHARS: Final = 64
#: Higher numbers have no place in AMQP and Redis. With room to add some of them up.
_MAX_NUMBER: Final = 2**61
_LONGEST: Final = 1e9
#: The year 5000.
_LAST_MOMENT: Final = 1e11
_VERSION: Final = 1
_REASON: Final = "decision"


def encode_entry(entry: Entry) -> bytes:
    """Write an entry; raises CallerError for what nobody would read."""
    fields: dict[str, Any] = {
        "v": _VERSION,
        "kind": entry.kind.value,
        "id": entry.id,
        "key": entry.key,
        "owner": entry.owner,
        "mode": entry.mode.value,
        "ttl": entry.ttl,
        "at": entry.at,
        "prev": list(entry.prev),
        "ticket": entry.ticket,
        "lift": entry.lift,
    }
    if entry.is_failed:
        fields["failed"] = True
    if entry.note is not None:
        fields["note"] = b64encode(entry.note).decode()
    try:
        _read(fields)
    except PeerError:
        raise CallerError(
            f"{entry.owner!r:.40} cannot hold {entry.key!r:.40}: owners have up to {_MAX_OWNER_CHARS} "
            f"printable characters, keys up to {_MAX_KEY_CHARS}, and tokens are below {_MAX_NUMBER:,}"
        ) from None
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def decode_entry(body: bytes) -> Entry:
    """Read an entry; raises PeerError for what is none."""
    if len(body) > MAX_ENTRY_BYTES:
        raise PeerError(_REASON)
    try:
        fields = json.loads(body.decode())
    except (ValueError, RecursionError):
        raise PeerError(_REASON) from None
    if not isinstance(fields, dict):
        raise PeerError(_REASON)
    return _read(fields)


def _read(fields: dict[str, Any]) -> Entry:
    kind_name, mode_name = fields.get("kind"), fields.get("mode")
    if fields.get("v") != _VERSION or not isinstance(kind_name, str) or not isinstance(mode_name, str):
        raise PeerError(_REASON)
    if kind_name not in _KINDS or mode_name not in _MODES:
        raise PeerError(_REASON)
    kind = _KINDS[kind_name]
    is_mark = kind is EntryKind.MARK
    is_failed = fields.get("failed", False)
    prev = fields.get("prev")
    if not isinstance(is_failed, bool) or not isinstance(prev, list) or len(prev) != 2:
        raise PeerError(_REASON)
    return Entry(
        kind,
        _name(fields.get("id"), _MAX_ID_CHARS),
        _name(fields.get("key"), _MAX_KEY_CHARS, may_be_empty=is_mark),
        _name(fields.get("owner"), _MAX_OWNER_CHARS, may_be_empty=is_mark),
        _MODES[mode_name],
        _span(fields.get("ttl"), _LONGEST),
        _span(fields.get("at"), _LAST_MOMENT),
        Version(_number(prev[0]), _number(prev[1])),
        _number(fields.get("ticket")),
        _number(fields.get("lift")),
        is_failed,
        _note(fields.get("note")),
    )


_KINDS: Final = {kind.value: kind for kind in EntryKind}
_MODES: Final = {mode.value: mode for mode in Mode}


def _name(value: object, most: int, *, may_be_empty: bool = False) -> str:
    if not isinstance(value, str) or len(value) > most or not value.isprintable():
        raise PeerError(_REASON)
    if not value and not may_be_empty:
        raise PeerError(_REASON)
    return value


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < _MAX_NUMBER:
        raise PeerError(_REASON)
    return value


def _span(value: object, most: float) -> float:
    if type(value) not in {int, float} or not isinstance(value, int | float):
        raise PeerError(_REASON)
    if not 0 <= value <= most or not isfinite(value):
        raise PeerError(_REASON)
    return float(value)


def _note(value: object) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise PeerError(_REASON)
    try:
        note = b64decode(value, validate=True)
    except (Base64Error, ValueError):
        raise PeerError(_REASON) from None
    if len(note) > _MAX_NOTE_BYTES:
        raise PeerError(_REASON)
    return note
