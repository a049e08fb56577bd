"""The bodies of tasks: what they are called with, and what follows when they have ended."""

import json
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import DecodeError, Struct, ValidationError

from celeriac.errors import PeerError
from celeriac.model.task_request import Arguments
from celeriac.wire.value import is_plain, revive, spell

__all__ = ["parse", "read_body", "spell_body"]

_TOO_ODD: Final = (DecodeError, ValidationError, UnicodeError, RecursionError)


def spell_body(arguments: Arguments) -> bytes:
    """Return the body of a request; raises CallerError for what JSON has no spelling for."""
    follows = {
        "callbacks": arguments.callbacks or None,
        "errbacks": arguments.errbacks or None,
        "chain": arguments.chain or None,
        "chord": arguments.chord,
    }
    return spell([arguments.args, dict(arguments.kwargs), follows])


class _Follows(Struct, gc=False):
    """What is to be sent when the task has ended."""

    callbacks: list[dict[str, Any]] | None = None
    errbacks: list[dict[str, Any]] | None = None
    chain: list[dict[str, Any]] | None = None
    chord: dict[str, Any] | None = None


_Body = tuple[tuple[Any, ...], dict[str, Any], _Follows | None]
_decode_body: Final[Callable[[bytes], _Body]] = msgspec.json.Decoder(_Body).decode
_decode_any: Final[Callable[[bytes], Any]] = msgspec.json.Decoder().decode
_NOTHING: Final = _Follows()
_LISTS: Final = ("callbacks", "errbacks", "chain")


def read_body(body: bytes) -> Arguments:
    """Read arguments, and what follows when the task has ended, from the body of a request."""
    if is_plain(body):
        try:
            args, kwargs, follows = _decode_body(body)
        except _TOO_ODD:
            return _read_oddly(body)
    else:
        return _read_oddly(body)
    follows = follows or _NOTHING
    return Arguments(
        args,
        kwargs,
        tuple(follows.callbacks or ()),
        tuple(follows.errbacks or ()),
        tuple(follows.chain or ()),
        follows.chord or None,
    )


def _read_oddly(body: bytes) -> Arguments:
    """Read a body with values that JSON has no spelling for, or as only Python writes it."""
    try:
        parts = revive(parse(body))
    except PeerError as error:
        raise error if str(error) == "body" else PeerError("body-depth") from None
    if not isinstance(parts, list) or len(parts) != 3:
        raise PeerError("arguments")
    args, kwargs, follows = parts
    follows = {} if follows is None else follows
    if not isinstance(args, list) or not isinstance(kwargs, dict) or not isinstance(follows, dict):
        raise PeerError("arguments")
    chord = follows.get("chord") or None
    if chord is not None and not isinstance(chord, dict):
        raise PeerError("arguments")
    callbacks, errbacks, chain = (_read_signatures(follows.get(name)) for name in _LISTS)
    return Arguments(tuple(args), kwargs, callbacks, errbacks, chain, chord)


def _read_signatures(value: object) -> tuple[dict[str, Any], ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise PeerError("arguments")
    return tuple(value)


def parse(body: bytes) -> Any:
    """Return what a body spells, values that kombu marks unread; raises PeerError for what is no JSON."""
    try:
        return _decode_any(body)
    except RecursionError:
        raise PeerError("body-depth") from None
    except _TOO_ODD:
        pass
    try:
        # As Python writes it: with NaN, infinities and halves of surrogate pairs.
        return json.loads(body.decode())
    except RecursionError:
        raise PeerError("body-depth") from None
    except ValueError:
        raise PeerError("body") from None
