"""Control requests and the replies to them, from messages to records and back.

Every field that a peer sends is checked. What cannot be taken raises
:class:`~celeriac.errors.PeerError` with the reason, for the caller to count.
"""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec
from msgspec import DecodeError, Raw, Struct, ValidationError

from celeriac.config import KIB, MIB, Limits
from celeriac.errors import PeerError
from celeriac.model.clock import NO_CLOCK
from celeriac.model.message import Message
from celeriac.wire.envelope import body_of
from celeriac.wire.field import (
    is_name,
    read_arguments,
    read_clock,
    read_destination,
    read_expiry,
    read_method,
    read_text,
    read_ticket,
)
from celeriac.wire.hello import MAX_REVOKED
from celeriac.wire.pattern import MAX_PATTERN_CHARS, matches
from celeriac.wire.text import clean_value

__all__ = [
    "Reply",
    "ReplyError",
    "ReplyTo",
    "Request",
    "Spelled",
    "decode_reply",
    "decode_request",
    "encode_reply",
    "encode_request",
    "is_addressed",
    "reply_limits",
]

#: 64 KiB hold 1,600 task ids, and the items let through as many: no request needs more, but a hello.
_REQUEST: Final = Limits(event_bytes=64 * KIB, items=2048)
#: Far more than a node says of anything but tasks and ids.
_REPLY: Final = Limits(event_bytes=MIB, items=100_000)
#: As many tasks as a worker holds by default for their ETA: 10,000, with 430 bytes and 25 items each if their
#: arguments are short. An envelope of Redis holds no more bytes.
_TASKS: Final = Limits(event_bytes=6 * MIB, items=300_000)
#: All the ids that a full node holds. Celery: up to 5.6 an id takes 98 bytes and three items.
_IDS: Final = Limits(event_bytes=5 * MIB, items=3 * MAX_REVOKED + 100)
#: The commands that are told, or tell, all the revoked ids.
_TELLS_IDS: Final = frozenset({"hello", "revoked"})

#: The commands that list the tasks of a worker.
_LISTS_TASKS: Final = frozenset(
    {"active", "dump_active", "reserved", "dump_reserved", "scheduled", "dump_schedule"}
)

_TOO_ODD: Final = (DecodeError, ValidationError, UnicodeError, RecursionError)


class _Peek(Struct):
    method: str


_decode_any = msgspec.json.Decoder().decode
_peek = msgspec.json.Decoder(_Peek).decode
_split = msgspec.json.Decoder(dict[str, Raw]).decode


class Spelled(NamedTuple):
    """A request or reply as it is published."""

    headers: dict[str, object]
    body: bytes


class ReplyTo(NamedTuple):
    """Where one who asked waits for replies."""

    exchange: str
    routing_key: str


class Request(NamedTuple):
    """A command to some nodes, or to all."""

    method: str
    arguments: Mapping[str, object] = {}
    #: Names of nodes; empty for all that ``pattern`` fits.
    destination: tuple[str, ...] = ()
    #: None for all nodes. It counts only together with ``matcher``, its language.
    pattern: str | None = None
    matcher: str | None = None
    #: Tells replies to this request from others.
    ticket: str | None = None
    #: None when no reply is wanted.
    reply_to: ReplyTo | None = None
    #: The sender's Lamport clock; 0 when it sent none, None when it sent what is no clock.
    clock: int | None = NO_CLOCK
    #: When the sender stops waiting, by its own wall clock; 0 for never.
    expires_at: float = 0.0


class Reply(NamedTuple):
    """What one node answered."""

    node: str
    value: object
    ticket: str | None = None
    clock: int | None = NO_CLOCK
    #: How long its text was, unpacked.
    size: int = 0


class ReplyError(PeerError):
    """A node answered, and what it answered cannot be taken."""

    def __init__(self, reason: str, *, node: str, ticket: str | None) -> None:
        super().__init__(reason)
        self.node = node
        self.ticket = ticket


def encode_request(request: Request) -> Spelled:
    """Return a request as every version of Celery reads it."""
    body: dict[str, object] = {
        "method": request.method,
        "arguments": request.arguments,
        "destination": request.destination or None,
        "pattern": request.pattern,
        "matcher": request.matcher,
    }
    if request.reply_to is not None:
        body |= {"ticket": request.ticket, "reply_to": request.reply_to._asdict()}
    headers: dict[str, object] = {"clock": request.clock, "expires": request.expires_at}
    return Spelled(headers, msgspec.json.encode(body))


def decode_request(message: Message) -> Request:
    """Read a request; keys of the body that we do not know are left out."""
    text = body_of(message)
    body = clean_value(_decode(text, limits := _request_limits(text)), limits)
    if not isinstance(body, dict):
        raise PeerError("not-a-request")
    return Request(
        method=read_method(body.get("method")),
        arguments=read_arguments(body.get("arguments")),
        destination=read_destination(body.get("destination")),
        pattern=read_text(body.get("pattern"), "pattern", most=MAX_PATTERN_CHARS),
        matcher=read_text(body.get("matcher"), "matcher", most=32),
        ticket=read_ticket(body.get("ticket")),
        reply_to=_reply_to(body.get("reply_to")),
        clock=read_clock(message.headers),
        expires_at=read_expiry(message.headers),
    )


def encode_reply(reply: Reply) -> Spelled:
    """Return a reply as every version of Celery reads it."""
    headers: dict[str, object] = {"clock": reply.clock}
    if reply.ticket is not None:
        headers["ticket"] = reply.ticket
    return Spelled(headers, msgspec.json.encode({reply.node: reply.value}))


def reply_limits(command: str) -> Limits:
    """Return what the reply to a command may be."""
    if command in _LISTS_TASKS:
        return _TASKS
    return _IDS if command in _TELLS_IDS else _REPLY


def decode_reply(message: Message, limits: Limits = _REPLY) -> Reply:
    """Read a reply.

    Raises :class:`ReplyError` when only the value is at fault: then the node is known.
    """
    text = body_of(message)
    ticket = read_ticket(message.headers.get("ticket"))
    if len(text) > limits.event_bytes:
        raise ReplyError("size", node=_peek_node(text), ticket=ticket)
    node, value = _only_entry(_decode(text, limits))
    try:
        value = clean_value(value, limits)
    except PeerError as error:
        raise ReplyError(str(error), node=node, ticket=ticket) from None
    return Reply(node, value, ticket, read_clock(message.headers), len(text))


def is_addressed(request: Request, hostname: str) -> bool:
    """Tell whether a request is for this node.

    Raises :class:`PeerError` for a pattern that cannot be matched.
    """
    if request.destination:
        return hostname in request.destination
    # Celery: a pattern without a matcher is no pattern, and the request is for everyone.
    if request.pattern is None or request.matcher is None:
        return True
    return matches(hostname, pattern=request.pattern, matcher=request.matcher)


# -- bodies


def _request_limits(body: bytes) -> Limits:
    """Return what a request may be: a hello may be longer. Looks at the method, and builds nothing."""
    try:
        return _IDS if _peek(body).method == "hello" else _REQUEST
    except _TOO_ODD:
        return _REQUEST


def _decode(body: bytes, limits: Limits) -> object:
    """Decode JSON as Python's own encoder writes it: with NaN, infinities and lone surrogates."""
    if len(body) > limits.event_bytes:
        raise PeerError("size")
    try:
        decoded: object = _decode_any(body)
    except _TOO_ODD:
        try:
            decoded = json.loads(body.decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError):
            raise PeerError("json") from None
    return decoded


def _only_entry(body: object) -> tuple[str, object]:
    """Return the node and its value, which are all that the body of a reply holds."""
    if not isinstance(body, dict) or len(body) != 1:
        raise PeerError("not-a-reply")
    ((node, value),) = body.items()
    if not is_name(node):
        raise PeerError("node")
    return node, value


def _peek_node(body: bytes) -> str:
    """Return the node of a reply that is too long to be decoded."""
    try:
        return _only_entry(_split(body))[0]
    except (*_TOO_ODD, PeerError):
        raise PeerError("size") from None


def _reply_to(value: object) -> ReplyTo | None:
    if value is None or value == {}:
        return None
    if not isinstance(value, dict):
        raise PeerError("reply-to")
    exchange, routing_key = value.get("exchange"), value.get("routing_key")
    if not is_name(exchange) or not is_name(routing_key):
        raise PeerError("reply-to")
    return ReplyTo(exchange, routing_key)
