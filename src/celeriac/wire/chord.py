"""How Redis keeps the parts of a chord until the last of them has ended, as Celery spells it."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import DecodeError, Raw, ValidationError

from celeriac.errors import PeerError
from celeriac.model.chord import ChordPart, Gathered
from celeriac.model.result import Failure, ResultTree
from celeriac.model.states import PROPAGATE_STATES
from celeriac.wire.compression import is_packed, unpack
from celeriac.wire.result import decode
from celeriac.wire.result_tree import read_trees
from celeriac.wire.value import mend_text, spell

__all__ = [
    "ChordKeys",
    "PartNames",
    "body_ids",
    "chord_error",
    "chord_keys",
    "encode_part",
    "join",
    "part_names",
]

_GROUP: Final = "celery-taskset-meta-"
#: Tasks that fail with one chord, and signatures inside one another: more than any honest body has.
_MAX_BODY_IDS: Final = 10_000
_MAX_BODY_DEPTH: Final = 50
#: Of the text that tells why a chord failed.
_MAX_REASON_CHARS: Final = 10_000
_TOO_ODD: Final = (DecodeError, ValidationError, UnicodeError, RecursionError)


class ChordKeys(NamedTuple):
    """Where each thing is kept of one group."""

    #: What has ended, in the order of the header, or as it came.
    parts: str
    #: What is to be added to the size.
    correction: str
    #: How many tasks the header has.
    size: str
    #: Celery 5.7: which parts were counted, so that none is counted twice.
    seen: str
    #: How the header is nested, if it is.
    group: str
    #: Celery 5.7: whose it is to send the body; ``done`` once it was sent.
    claim: str


def chord_keys(group_id: str, prefix: str = "") -> ChordKeys:
    """Return the keys of a group that a chord waits for."""
    group = f"{prefix}{_GROUP}{group_id}"
    return ChordKeys(f"{group}.j", f"{group}.t", f"{group}.s", f"{group}.d", group, f"{group}.c")


# -- parts


class _Part(NamedTuple):
    """A part that was read; its result is JSON."""

    task_id: str
    state: str
    result: bytes


_decode_part: Final[Callable[[bytes], tuple[int, str, str, Raw]]] = msgspec.json.Decoder(
    tuple[int, str, str, Raw]
).decode


class PartNames(NamedTuple):
    """What a part goes by."""

    #: The order of parts goes by it.
    place: str
    #: What tells it from all others.
    name: str
    #: What the whole chord is claimed with, where it is the last part.
    token: str


def part_names(part: ChordPart) -> PartNames:
    """Return what a part goes by; the same each time, whoever is given it."""
    place = "+inf" if part.group_index is None else str(part.group_index)
    # Celery 5.7: named so, or a part that both count would count twice.
    name = f"{part.task_id}:{place}"
    return PartNames(place, name, f"celeriac:{name}")


def encode_part(part: ChordPart) -> bytes:
    """Return a part as Celery writes and reads it."""
    return b"[1, %b, %b, %b]" % (spell(part.task_id), spell(part.state), part.result.text)


def _read_part(value: bytes, max_bytes: int) -> _Part:
    if is_packed(value):
        value = unpack(value, max_bytes=max_bytes)
    if len(value) > max_bytes:
        raise PeerError(f"Join error: a result is longer than {max_bytes:,} bytes: raise result_max_bytes")
    try:
        _, task_id, state, result = _decode_part(value)
        return _Part(task_id, state, bytes(result))
    except _TOO_ODD:
        pass
    try:
        # Python reads and writes what JSON lacks: NaN, infinities, and halves of surrogate pairs.
        _, task_id, state, read = json.loads(value)
        return _Part(mend_text(str(task_id)), str(state), spell(read))
    except (ValueError, TypeError, RecursionError):
        raise PeerError(
            "Join error: a result is not JSON: set result_serializer to json on the workers"
        ) from None


# -- all of them


def join(gathered: Gathered, *, max_bytes: int) -> bytes:
    """Return the JSON of what a body gets: a list of the results, nested as its header is.

    Raises PeerError if a task failed, or something is missing or cannot be read, with the reason.
    """
    ended = [_read_part(part, max_bytes) for part in gathered.parts]
    for part in ended:
        if part.state in PROPAGATE_STATES:
            raise PeerError(f"Dependency {part.task_id} raised {_told(part)}")
    if gathered.header is None:
        return b"[%b]" % b", ".join([part.result for part in ended])
    header = _read_header(gathered.header, max_bytes)
    return _nested(header, {part.task_id: part.result for part in ended})


def _read_header(document: bytes, max_bytes: int) -> ResultTree:
    """Return how a header is nested. Celery saves that where there are groups in it."""
    if is_packed(document):
        document = unpack(document, max_bytes=max_bytes)
    try:
        saved = json.loads(document)
    except (ValueError, RecursionError):
        saved = None
    trees = read_trees([saved.get("result")]) if isinstance(saved, dict) else ()
    if not trees or trees[0].members is None:
        raise PeerError(
            "Join error: cannot read the chord header: set result_serializer to json at its sender"
        )
    return trees[0]


def _nested(tree: ResultTree, results: Mapping[str, bytes]) -> bytes:
    if tree.members is not None:
        return b"[%b]" % b", ".join([_nested(member, results) for member in tree.members])
    if tree.id not in results:
        raise PeerError(f"Join error: no result of task {tree.id}")
    return results[tree.id]


def _told(part: _Part) -> str:
    """Return an exception as Python would show it."""
    document = b'{"status": "FAILURE", "result": %b}' % part.result
    failure = decode(document, task_id=part.task_id, max_bytes=len(document)).result
    if not isinstance(failure, Failure):
        return "an exception that cannot be read"
    args = failure.exc_args
    return f"{failure.exc_type}({repr(args[0]) if len(args) == 1 else repr(args)[1:-1]})"


# -- when it fails


def chord_error(reason: str) -> Failure:
    """Return the failure of a body whose header failed, as Celery's clients know it."""
    return Failure("ChordError", (reason[:_MAX_REASON_CHARS],), "celery.exceptions")


def body_ids(body: Mapping[str, Any]) -> list[str]:
    """Return the tasks that somebody may wait for when a body is never sent, each once."""
    found: dict[str, None] = {}
    _gather(body, found, 0)
    return list(found)


def _gather(signature: object, found: dict[str, None], depth: int) -> None:
    """Find the ids of a signature, of its members, and of what is chained behind it."""
    if not isinstance(signature, Mapping) or depth > _MAX_BODY_DEPTH or len(found) >= _MAX_BODY_IDS:
        return
    options, kwargs = signature.get("options"), signature.get("kwargs")
    options = options if isinstance(options, Mapping) else {}
    kind, task_id = signature.get("subtask_type"), options.get("task_id")
    # A group has no result of its own.
    if isinstance(task_id, str) and task_id and kind != "group":
        found[task_id] = None
    inner: list[object] = []
    if kind in ("group", "chain", "chord") and isinstance(kwargs, Mapping):
        inner += _listed(kwargs.get("tasks"))
        inner.append(kwargs.get("body"))
    for each in inner + _listed(options.get("chain")):
        _gather(each, found, depth + 1)


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []
