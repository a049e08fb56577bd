"""Results: where Redis keeps them, and the documents that they are kept as.

:func:`decode` raises nothing: a result that cannot be read says so itself, and how to mend it.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec import DecodeError, Meta, Raw, Struct, ValidationError

from celeriac.config import MIB
from celeriac.errors import CallerError, ImproperlyConfigured, PeerError
from celeriac.model.result import Failure, Json, ResultMeta
from celeriac.model.states import EXCEPTION_STATES, FAILURE
from celeriac.wire.compression import is_packed, pack, unpack
from celeriac.wire.result_splice import splice
from celeriac.wire.result_tree import read_trees, spell_tree
from celeriac.wire.text import CUT_MARK
from celeriac.wire.value import is_plain, mend_text, revive, spell

__all__ = ["decode", "encode", "encode_many", "failure_of", "key_prefix", "task_id_of", "task_key"]

# -- keys

_TASK: Final = "celery-task-meta-"


def key_prefix(options: Mapping[str, object]) -> str:
    """Return what every key begins with, by ``result_backend_transport_options``."""
    prefix = options.get("global_keyprefix") or ""
    if not isinstance(prefix, str):
        raise ImproperlyConfigured(
            f"global_keyprefix in result_backend_transport_options is a {type(prefix).__name__}; give a "
            "string"
        )
    return prefix if not prefix or prefix[-1] in ":_-." else f"{prefix}_"


def task_key(task_id: str, prefix: str = "") -> str:
    """Return the key of a task's result, and the channel where it is announced."""
    return f"{prefix}{_TASK}{task_id}"


def task_id_of(key: bytes, prefix: str = "") -> str:
    """Return the id of the task that a key is of; an empty text for a key of something else."""
    start = f"{prefix}{_TASK}".encode()
    return key[len(start) :].decode("utf-8", "replace") if key.startswith(start) else ""


# -- documents

#: Names of states are short; what is longer is none.
_MAX_STATUS_CHARS: Final = 100
#: One through all of the 1,000 calls that Python allows is some 150 KiB; more is somebody's data.
_MAX_TRACEBACK_CHARS: Final = MIB
#: Fields that are left out when there is nothing in them.
_WHEN_SET: Final = ("group_id", "parent_id", "name", "args", "kwargs", "worker", "retries", "queue")
#: What a failure is called that does not say.
_UNNAMED: Final = "Exception"

_Status = Annotated[str, Meta(min_length=1, max_length=_MAX_STATUS_CHARS)]
#: What JSON nests.
_HOLDERS: Final = (dict, list)


class _Document(Struct, gc=False):
    """The fields of a document, as workers write them."""

    status: _Status
    result: Any = None
    traceback: str | None = None
    # Read apart: a long chain is nested deeper than values may be.
    children: list[Raw] | None = None
    date_done: str | None = None
    task_id: str | None = None
    parent_id: str | None = None
    group_id: str | None = None
    name: str | None = None
    args: Any = None
    kwargs: Any = None
    worker: str | None = None
    retries: int | None = None
    queue: str | None = None


_decode_document: Final[Callable[[bytes], _Document]] = msgspec.json.Decoder(_Document).decode
_decode_any: Final[Callable[[Raw], Any]] = msgspec.json.Decoder().decode
_TOO_ODD: Final = (DecodeError, ValidationError, UnicodeError, RecursionError)


def decode(document: bytes, *, task_id: str | None, max_bytes: int) -> ResultMeta:
    """Read a stored or sent result; where it cannot be read, ``fault`` says why.

    ``task_id`` is whom it was stored for, if that is known: it outweighs what the document says.
    A field that is not of its kind counts as absent, and ids of other results beyond the limits of
    :mod:`celeriac.wire.result_tree` are left out.
    """
    try:
        document = _unpacked(document, max_bytes)
        try:
            return _read(document, task_id)
        except _TOO_ODD:
            return _read_oddly(document, task_id)
    except PeerError as error:
        fault = str(error)
    except RecursionError:
        fault = "nested too deep: return a flatter value from the task"
    return ResultMeta(task_id or "", "", fault=fault)


def _unpacked(document: bytes, max_bytes: int) -> bytes:
    if len(document) <= max_bytes and is_packed(document):
        document = unpack(document, max_bytes=max_bytes)
    if len(document) > max_bytes:
        raise PeerError(
            f"longer than {max_bytes:,} bytes: raise result_max_bytes here, or return less from the task"
        )
    return document


def _read(document: bytes, task_id: str | None) -> ResultMeta:
    """Read a document whose fields are all of their kinds."""
    read = _decode_document(document)
    result, args, kwargs = read.result, read.args, read.kwargs
    is_flat = type(result) not in _HOLDERS and args is None and kwargs is None
    if not is_flat and not is_plain(document):
        result, args, kwargs = revive(result), _revive_optional(args), _revive_optional(kwargs)
    if read.status in EXCEPTION_STATES:
        result = _read_failure(result)
    traceback = read.traceback
    if traceback is not None and len(traceback) > _MAX_TRACEBACK_CHARS:
        traceback = _cut(traceback)
    return ResultMeta(
        task_id or read.task_id or _unnamed(),
        read.status,
        result,
        traceback,
        read_trees([_decode_any(child) for child in read.children]) if read.children else (),
        read.date_done,
        read.parent_id,
        read.group_id,
        read.name,
        args,
        kwargs,
        read.worker,
        read.retries,
        read.queue,
    )


def _unnamed() -> str:
    raise PeerError("no task id: store results as Celery does")


def _read_oddly(document: bytes, task_id: str | None) -> ResultMeta:
    """Read a document field by field: what is not of its kind counts as absent."""
    fields = _parse(document)
    status = fields.get("status")
    if not isinstance(status, str) or not 0 < len(status) <= _MAX_STATUS_CHARS:
        raise PeerError("no status: store results as Celery does")
    status, result = mend_text(status), revive(fields.get("result"))
    traceback, retries = _read_text(fields.get("traceback")), fields.get("retries")
    return ResultMeta(
        task_id or _read_text(fields.get("task_id")) or _unnamed(),
        status,
        _read_failure(result) if status in EXCEPTION_STATES else result,
        None if traceback is None else _cut(traceback),
        read_trees(fields.get("children")),
        _read_text(fields.get("date_done")),
        _read_text(fields.get("parent_id")),
        _read_text(fields.get("group_id")),
        _read_text(fields.get("name")),
        _revive_optional(fields.get("args")),
        _revive_optional(fields.get("kwargs")),
        _read_text(fields.get("worker")),
        retries if type(retries) is int else None,
        _read_text(fields.get("queue")),
    )


def _parse(document: bytes) -> dict[str, Any]:
    """Read JSON as Python writes it: with NaN, infinities and halves of surrogate pairs."""
    try:
        fields = json.loads(document.decode())
    except RecursionError:
        raise PeerError("nested too deep: return a flatter value from the task") from None
    except ValueError as error:
        if type(error) is ValueError:
            # Python reads 4,300 digits and no more: the time it takes grows with their square.
            raise PeerError("a number has too many digits: return it as string from the task") from None
        language = _language(document)
        raise PeerError(f"{language}: set result_serializer to json on the workers") from None
    if not isinstance(fields, dict):
        raise PeerError("not a JSON object: store results as Celery does")
    return fields


def _language(document: bytes) -> str:
    """Return what a document that is not JSON seems to be."""
    first = document[:1]
    if not document:
        return "empty, not JSON"
    if first == b"\x80" and document.endswith(b"."):
        return "pickle, which can run code of a peer, not JSON"
    if b"\x80" <= first <= b"\x8f" or first in (b"\xde", b"\xdf"):
        return "msgpack, not JSON"
    return "not JSON"


def _read_failure(result: object) -> Failure:
    """Return what is told of an exception. Nothing is looked up by the names in it."""
    if not isinstance(result, dict):
        return Failure(_UNNAMED, () if result is None else (result,))
    exc_type, exc_module = result.get("exc_type"), result.get("exc_module")
    args = result.get("exc_message")
    # Celery: a list of arguments; before 4.3 one text.
    if not isinstance(args, list):
        args = [] if args is None else [args]
    return Failure(
        mend_text(exc_type) if isinstance(exc_type, str) and exc_type else _UNNAMED,
        tuple(args),
        mend_text(exc_module) if isinstance(exc_module, str) and exc_module else None,
    )


def _revive_optional(value: object) -> object:
    """Return what kombu spelled; None for what is nested too deep, which is no reason to lose the result."""
    try:
        return revive(value)
    except PeerError:
        return None


def _read_text(value: object) -> str | None:
    """Return a text, or what kombu can spell in its place; None for anything else."""
    value = _revive_optional(value) if isinstance(value, dict) else value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    return mend_text(value) if isinstance(value, str) else None


def _cut(text: str) -> str:
    if len(text) <= _MAX_TRACEBACK_CHARS:
        return text
    return text[: _MAX_TRACEBACK_CHARS - len(CUT_MARK)] + CUT_MARK


# -- writing


def encode(meta: ResultMeta, *, compression: str | None = None) -> bytes:
    """Return the document of a result, as Celery writes and reads it.

    Tuples become lists, as in any JSON; see :func:`celeriac.wire.value.spell` for numbers and
    keys. A result that is :class:`~celeriac.model.result.Json` is written as it is, and not looked at.
    Raises CallerError for what cannot be stored, with the task and the fix.
    """
    try:
        _check(meta)
        document = _spliced(meta, meta.result.text) if isinstance(meta.result, Json) else _spelled(meta)
    except CallerError as error:
        raise CallerError(f"cannot store the result of task {meta.task_id}: {error}") from None
    return document if compression is None else pack(document, compression)


def encode_many(
    metas: Iterable[ResultMeta], *, compression: str | None = None
) -> tuple[list[bytes | None], CallerError | None]:
    """Return the documents of results, None for each that has none, and the first reason if there is one."""
    documents: list[bytes | None] = []
    unspellable: CallerError | None = None
    for meta in metas:
        try:
            documents.append(encode(meta, compression=compression))
        except CallerError as error:
            documents.append(None)
            unspellable = unspellable or error
    return documents, unspellable


def _check(meta: ResultMeta) -> None:
    if meta.fault or not meta.task_id or not 0 < len(meta.status) <= _MAX_STATUS_CHARS:
        raise CallerError(f"a result needs a task id, and a status of 1 to {_MAX_STATUS_CHARS} characters")


def _spliced(meta: ResultMeta, result: bytes) -> bytes:
    """Return a document around a result that is spelled already."""
    if meta.traceback is not None and len(meta.traceback) > _MAX_TRACEBACK_CHARS:
        meta = meta._replace(traceback=_cut(meta.traceback))
    try:
        return splice(meta, result)
    except (UnicodeEncodeError, OverflowError, RecursionError):
        # Such as halves of surrogate pairs, which bytes that are no UTF-8 leave in a traceback. Python's
        # JSON can spell them, or says what is wrong.
        status, rest = spell(meta.status), spell(_rest(meta))
        return b'{"status": %b, "result": %b, %b' % (status, result, rest[1:])


def _spelled(meta: ResultMeta) -> bytes:
    result = _spell_result(meta.result, meta.status)
    document = spell({"status": meta.status, "result": result, **_rest(meta)})
    if not is_plain(document):  # perhaps too deep for whoever reads it
        fault = decode(document, task_id=None, max_bytes=len(document)).fault
        if fault:
            raise CallerError(fault)
    return document


def _rest(meta: ResultMeta) -> dict[str, object]:
    """Return all fields but the status and the result."""
    fields: dict[str, object] = {
        "traceback": None if meta.traceback is None else _cut(meta.traceback),
        "children": [spell_tree(tree) for tree in meta.children],
        "date_done": meta.date_done,
    }
    for name in _WHEN_SET:
        value = getattr(meta, name)
        if value is not None:
            fields[name] = value
    fields["task_id"] = meta.task_id
    return fields


def _spell_result(result: object, status: str) -> object:
    if isinstance(result, BaseException):
        result = failure_of(result)
    # Celery: reads nothing but an exception in some states, and no exception in others.
    if not isinstance(result, Failure):
        if status in EXCEPTION_STATES:
            raise CallerError(f"results in state {status} are exceptions: give an exception, or a Failure")
        return result
    if status not in EXCEPTION_STATES:
        raise CallerError(f"results in state {status} are not exceptions: use FAILURE, RETRY or REVOKED")
    return {"exc_type": result.exc_type, "exc_message": result.exc_args, "exc_module": result.exc_module}


def failure_of(error: BaseException) -> Failure:
    """Return an exception as data; arguments that JSON cannot hold become their ``repr``."""
    kind = type(error)
    return Failure(kind.__qualname__, tuple(_storable(arg) for arg in error.args), kind.__module__)


def _storable(arg: object) -> object:
    try:
        encode(ResultMeta("any", FAILURE, Failure(_UNNAMED, (arg,))))
    except Exception:  # noqa: BLE001 - what an object says of itself may raise anything
        return _told(arg)
    return arg


def _told(arg: object) -> str:
    try:
        return _cut(repr(arg))
    except Exception:  # noqa: BLE001 - an exception about an exception helps nobody
        return f"<{type(arg).__name__}>"
