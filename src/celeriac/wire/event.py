"""Events from bytes and dicts to records and back.

:class:`Gate` is the door. Nothing raises out of it: what cannot be taken is
refused and counted by reason, what can be taken in part is mended and counted.
A well-formed event of a known type takes the fast path, one typed decode that
enforces types and ranges by itself; everything else is looked at field by field.
"""

import json
from collections import Counter, deque
from collections.abc import Callable, Mapping
from hashlib import sha256
from threading import Lock
from typing import Any, Final, NamedTuple, cast

import msgspec
from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.structs import asdict, force_setattr, replace

from celeriac.config import Limits
from celeriac.errors import PeerError
from celeriac.model.clock import NO_CLOCK, clock_value
from celeriac.model.events import (
    EVENT_CLASSES,
    MAX_ID_CHARS,
    AnyTaskEvent,
    AnyWorkerEvent,
    Custom,
    Event,
    Extra,
    Other,
)
from celeriac.wire.text import clean_text, clean_value, is_clean_text

__all__ = ["Gate", "Quarantined", "decode", "encode", "to_dict"]

#: Fields of a record that are not fields of the wire.
_OURS: Final = frozenset({"extra", "group", "subject"})
#: What an event keeps when its own value cannot be read.
_NEUTRAL: Final[dict[str, object]] = {"timestamp": 0.0, "clock": NO_CLOCK}
#: Without these there is no event to keep.
_IDENTITY: Final = ("hostname", "uuid")
#: What a decoder makes of JSON, but for texts and objects.
_PLAIN_TYPES: Final = frozenset({int, float, bool, type(None), list, tuple})
#: How much of a refused body its digest covers.
_DIGEST_BYTES: Final = 64 * 1024

_Known = AnyTaskEvent | AnyWorkerEvent
_decode_known: Final[Callable[[bytes | str], Any]] = msgspec.json.Decoder(_Known | list[_Known]).decode
_split_known = msgspec.json.Decoder(list[Raw]).decode
_decode_any = msgspec.json.Decoder().decode

_TOO_ODD = (DecodeError, ValidationError, UnicodeError, RecursionError)


def _field_checks(kind: type[Event]) -> dict[str, type[Struct]]:
    """Return, for each wire field of a record, a one-field record that checks it alone."""
    checks = {
        field.name: msgspec.defstruct(f"{kind.__name__}_{field.name}", [("value", field.type)], gc=False)
        for field in msgspec.structs.fields(kind)
        if field.name not in _OURS
    }
    for check in checks.values():
        # msgspec studies a record at its first use, and crashes when two threads are the first:
        # a decoder makes it do so here, where there is only one.
        msgspec.json.Decoder(check)
    return checks


_KINDS: Final[tuple[type[Event], ...]] = (*EVENT_CLASSES.values(), Custom, Other)
_CHECKS: Final = {kind: _field_checks(kind) for kind in _KINDS}


class Quarantined(NamedTuple):
    """A refused body: enough to recognise it, nothing to store it by."""

    reason: str
    digest: str
    size: int


class Gate:
    """Decodes messages of peers into records, and counts refused messages."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits = limits or Limits()
        #: Bodies and events not taken, by reason.
        self.refused: Counter[str] = Counter()
        #: Fields dropped or neutralised in events that were taken, by field.
        self.mended: Counter[str] = Counter()
        # A body no longer than this breaks no limit on sizes, whatever is in it: an event takes
        # at least 20 bytes of it, and a text in it is shorter than the whole.
        self._plain_bytes = min(
            limits.text_chars, limits.event_bytes, limits.body_bytes, limits.batch_events * 20
        )
        self._future = limits.future
        self.quarantine: deque[Quarantined] = deque(maxlen=limits.quarantine)
        self._counting = Lock()

    def decode(self, body: bytes | str, received_at: float | None = None) -> list[Event]:
        """Decode a message body: one event, a batch, or an empty list if it is refused.

        ``received_at`` is the time of receipt, by the local clock; timestamps far beyond it are corrected.
        """
        try:
            decoded: Any = _decode_known(body) if len(body) <= self._plain_bytes else self._decode_odd(body)
        except _TOO_ODD:
            decoded = self._decode_odd(body)
        events: list[Event] = decoded if type(decoded) is list else [decoded]
        for event in events:
            # Only a receiver knows its receipt, and passes it beside the body.
            if event.local_received is not None:
                force_setattr(event, "local_received", None)
            if event.local_clock is not None:
                force_setattr(event, "local_clock", None)
            if received_at is not None and event.timestamp > received_at + self._future:
                self._mend_future(event)
        return events

    def convert(self, body: object) -> tuple[Event, float | None] | None:
        """Read an event that another library decoded, as a dict; None if it cannot be taken.

        Returns the record, and the ``local_received`` that the receiver put into the dict.
        """
        try:
            event = self._convert_known(body) or self._convert_any(body)
        except PeerError as error:
            self.refuse(error, b"")
            return None
        received_at = event.local_received
        if received_at is not None:
            force_setattr(event, "local_received", None)
            if event.timestamp > received_at + self._future:
                self._mend_future(event)
        if event.local_clock is not None:
            force_setattr(event, "local_clock", None)
        return event, received_at

    def _decode_odd(self, body: bytes | str) -> list[Event]:
        """Read a body that is not plainly an event we know, or a batch of them."""
        body = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else bytes(body)
        try:
            if body.lstrip()[:1] != b"[":
                return [self._decode_event(body)]
            parts = self._split_batch(body)
        except PeerError as error:
            self.refuse(error, body)
            return []
        return [event for part in parts if (event := self._decode_part(part)) is not None]

    def _split_batch(self, body: bytes) -> list[Any]:
        if len(body) > self.limits.body_bytes:
            raise PeerError("body-size")
        try:
            parts: list[Any] = [bytes(part) for part in _split_known(body)]
        except _TOO_ODD:
            parts = cast("list[Any]", _decode_leniently(body))
        if len(parts) > self.limits.batch_events:
            raise PeerError("batch")
        return parts

    def _decode_part(self, part: object) -> Event | None:
        """Read one event of a batch: a bad one does not spoil the others."""
        try:
            return self._decode_event(part) if isinstance(part, bytes) else self._convert_any(part)
        except PeerError as error:
            self.refuse(error, part if isinstance(part, bytes) else b"")
            return None

    def _decode_event(self, body: bytes) -> Event:
        if len(body) > self.limits.event_bytes:
            raise PeerError("event-size")
        return self._convert_any(_decode_leniently(body))

    def _convert_known(self, body: object) -> Event | None:
        if type(body) is not dict:
            return None
        try:
            kind = EVENT_CLASSES[body["type"]]
            for value in body.values():
                # Short and plain, as nearly all are, or else looked at closely.
                if type(value) is str:
                    is_plain = value.isascii() and len(value) <= self._plain_bytes
                    if not is_plain and not is_clean_text(value, self.limits):
                        return None
                elif type(value) not in _PLAIN_TYPES:
                    return None
            return msgspec.convert(body, kind)
        except (KeyError, TypeError, ValueError):  # among them that it is not of its kind
            return None

    # -- field by field

    def _convert_any(self, body: object) -> Event:
        if not isinstance(body, Mapping):
            raise PeerError("not-an-event")
        kind, fields = self._kind_of(body.get("type"))
        checks = _CHECKS[kind]
        extra = {}
        for key, value in body.items():
            if key in checks:
                self._take(fields, key, value, checks[key])
            elif key != "type" and not (key == "extra" and value is None):
                extra[key] = value
        for name in _IDENTITY:
            if name in checks and name not in fields:
                raise PeerError(name)
        for name, value in _NEUTRAL.items():
            if name not in fields:
                self._mend(name)
                fields[name] = value
        if extra:
            fields["extra"] = Extra(cast("dict[str, object]", clean_value(extra, self.limits)))
        return kind(**fields)

    def _kind_of(self, type_: object) -> tuple[type[Event], dict[str, Any]]:
        """Return the record for a type, and the fields the type itself fills."""
        if not isinstance(type_, str) or not 0 < len(type_) <= MAX_ID_CHARS:
            raise PeerError("type")
        type_ = clean_text(type_, self.limits)
        if type_ in EVENT_CLASSES:
            return EVENT_CLASSES[type_], {}
        group, _, subject = type_.partition("-")
        if group == "task" and subject:
            return Custom, {"subject": subject}
        if not group:
            raise PeerError("type")
        return Other, {"group": group, "subject": subject}

    def _take(self, fields: dict[str, Any], name: str, value: object, check: type[Any]) -> None:
        """Keep a field if its value is one that the record allows."""
        if isinstance(value, str):
            value = clean_text(value, self.limits)
        elif name == "clock":
            value = clock_value(value)
        try:
            fields[name] = msgspec.convert({"value": value}, check).value
        except (ValueError, ArithmeticError, RecursionError):
            if name not in _IDENTITY and name not in _NEUTRAL:  # these are counted when found missing
                self._mend(name)

    def _mend_future(self, event: Event) -> None:
        self._mend("timestamp")
        force_setattr(event, "timestamp", 0.0)

    def _mend(self, field: str) -> None:
        with self._counting:
            self.mended[field] += 1

    def refuse(self, error: PeerError, body: bytes) -> None:
        """Count a refused message, and keep its digest."""
        reason = str(error)
        digest = sha256(body[:_DIGEST_BYTES]).hexdigest()
        with self._counting:
            self.refused[reason] += 1
            self.quarantine.append(Quarantined(reason, digest, len(body)))


def _decode_leniently(body: bytes) -> object:
    """Decode JSON as Python's own encoder writes it: with NaN, infinities and lone surrogates."""
    try:
        return _decode_any(body)
    except _TOO_ODD:
        pass
    try:
        return json.loads(body.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        raise PeerError("json") from None


def decode(body: bytes | str, received_at: float | None = None) -> list[Event]:
    """Decode a message body without counting refused messages; see :class:`Gate`."""
    return Gate().decode(body, received_at)


def to_dict(event: Event) -> dict[str, object]:
    """Return an event as the wire has it. What is None is left out, as is the time of receipt."""
    fields = asdict(replace(event, local_received=None, local_clock=None))
    said = {name: value for name, value in fields.items() if value is not None and name not in _OURS}
    return {**(event.extra or {}), **said, "type": event.type}


def encode(event: Event) -> bytes:
    """Return an event as a message body."""
    return msgspec.json.encode(to_dict(event))
