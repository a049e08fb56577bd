"""Structured fuzz: result documents, broken in every way that a hostile or confused peer might break them."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, time, timedelta, timezone
from decimal import Decimal
from functools import cache
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celeriac.model.result import Failure, ResultMeta, ResultTree
from celeriac.model.states import ALL_STATES, EXCEPTION_STATES
from celeriac.wire.compression import pack
from celeriac.wire.result import decode, encode
from celeriac.wire.result_tree import MAX_TREE_DEPTH
from celeriac.wire.value import MAX_DEPTH
from tests.builders import nested
from tests.property.effort import COSTLY

MAX_BYTES = 256 * 1024
MARK = b"\x00celery-compressed\x00"

# -- what is broken, and how

FAILED = {"exc_type": "KeyError", "exc_message": ["a"], "exc_module": "builtins"}
CHILDREN = [[["g", [["p", None], None]], [[["x", None], None], ["y", None]]]]
EXTENDED = {
    "name": "shop.pay", "args": [1], "kwargs": {"a": 1}, "worker": "celery@web1", "retries": 0, "queue": "q",
    "stamped_headers": ["s"],
}  # fmt: skip
BASES: list[dict[str, Any]] = [
    {
        "status": "SUCCESS",
        "result": 3,
        "traceback": None,
        "children": [],
        "date_done": "2026",
        "task_id": "t",
    },
    {"status": "FAILURE", "result": FAILED, "traceback": "T", "children": CHILDREN, "task_id": "t"},
    {"status": "RETRY", "result": FAILED, "parent_id": "p", "group_id": "g", "task_id": "t"},
    {"status": "STARTED", "result": {"pid": 7, "hostname": "h"}, "task_id": "t", **EXTENDED},
]
FIELDS = sorted({name for base in BASES for name in base} | FAILED.keys())
KINDS = ["datetime", "date", "time", "uuid", "decimal", "bytes", "base64", "set", "eval", 7, None]
#: Pieces of bytes that a reader of JSON may stumble over.
TOKENS = [
    b"NaN", b"Infinity", b"1e400", b"-1", b"null", b"[", b"]", b"{", b"}", b'"', b",", b":", b"\\", b"\x00",
    b"\xff", b"\xc3", b"\xed\xa0\x80", b"\\ud800", b"\xef\xbb\xbf", b"9" * 5000, b"[" * 100_000,
    b'{"a":' * 20_000, b"[[" * 300, MARK, MARK + b"application/x-gzip\x00", b"\x80\x04.",
]  # fmt: skip

# Halves of surrogate pairs included, unlike the default.
texts = st.text(st.characters(exclude_categories=()), max_size=8)
names = st.sampled_from(FIELDS) | texts
numbers = st.integers() | st.floats() | st.sampled_from([2**63, 2**64, 2**100, -(2**63) - 1, 10**4000])
trees = st.recursive(
    st.none() | texts | st.integers(),
    lambda inner: st.tuples(inner, inner).map(list) | st.lists(inner, max_size=3),
    max_leaves=20,
)
marked = st.fixed_dictionaries(
    {"__type__": st.sampled_from(KINDS), "__value__": texts | numbers | st.just({"hex": "0" * 32})}
) | st.sampled_from(["__bytes__", "__base64__", "__datetime__"]).map(lambda mark: {"bytes": "x", mark: True})
values = (
    st.none()
    | st.booleans()
    | numbers
    | texts
    | trees
    | marked
    | st.sampled_from([2, MAX_DEPTH - 2, MAX_DEPTH, MAX_DEPTH + 1, 400]).map(nested)
    | st.sampled_from(["x" * 101, "x" * 70_000, ["x"] * 5000])
    | st.recursive(
        numbers | texts | marked,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    )
)


@st.composite
def broken(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a document's fields, and break them up to four times."""
    fields = dict(draw(st.sampled_from(BASES)))
    for _ in range(draw(st.integers(0, 4))):
        name = draw(names)
        match draw(st.sampled_from(["drop", "retype", "nest", "failure"])):
            case "drop":
                fields.pop(name, None)
            case "retype":
                fields[name] = draw(values)
            case "nest":
                fields[name] = [fields.get(name)]
            case _:
                fields["status"] = draw(st.sampled_from(sorted(ALL_STATES)))
                fields["result"] = dict(FAILED) | {draw(st.sampled_from(sorted(FAILED))): draw(values)}
    return fields


@st.composite
def broken_documents(draw: st.DrawFn) -> bytes:
    """Draw a document of such fields, perhaps packed, and break its bytes as well."""
    text = json.dumps(draw(broken()), ensure_ascii=draw(st.booleans()))
    data = text.encode("utf-8", "surrogatepass")
    method = draw(st.none() | st.sampled_from(["gzip", "bzip2", "lzma"]))
    if method is not None:
        data = pack(data, method)
    for _ in range(draw(st.integers(0, 3))):
        place, skipped = draw(st.integers(0, len(data))), draw(st.integers(0, 3))
        data = data[:place] + draw(st.sampled_from(TOKENS) | st.binary(max_size=4)) + data[place + skipped :]
    return data


documents = broken_documents() | st.binary(max_size=64) | st.binary(max_size=64).map(MARK.__add__)
task_ids = st.none() | st.just("given")

# -- what must hold


def depth_of(value: object) -> int:
    deepest, found = 0, [(value, 0)]
    while found:
        holder, depth = found.pop()
        if isinstance(holder, dict | list | tuple):
            deepest = max(deepest, depth + 1)
            found += [(each, depth + 1) for each in (holder.values() if isinstance(holder, dict) else holder)]
    return deepest


def is_text(value: object, *, most: int = MAX_BYTES) -> bool:
    return type(value) is str and len(value) <= most and value.isascii() | bool(value.encode())


def check_tree(tree: ResultTree, depth: int = 0) -> None:
    assert type(tree) is ResultTree
    assert tree.id
    assert is_text(tree.id)
    assert depth < MAX_TREE_DEPTH
    if tree.parent is not None:
        check_tree(tree.parent, depth + 1)
    for member in tree.members or ():
        check_tree(member, depth + 1)


def check(meta: ResultMeta) -> None:
    """Assert that every field of what was read is of its kind and within its limits."""
    if meta.fault:
        assert meta == ResultMeta(meta.task_id, "", fault=meta.fault)
        assert meta.is_ready
        assert meta.fault.isprintable()
        assert ": " in meta.fault  # what is wrong, and the fix
        return
    assert meta.task_id
    assert meta.status
    assert is_text(meta.status, most=100)
    for text in (*meta[6:9], meta.traceback, meta.date_done, meta.task_id, meta.worker, meta.queue):
        assert text is None or is_text(text)
    assert meta.retries is None or type(meta.retries) is int
    assert (type(meta.result) is Failure) == (meta.status in EXCEPTION_STATES)
    assert max(depth_of(meta.result), depth_of(meta.args), depth_of(meta.kwargs)) <= MAX_DEPTH
    for tree in meta.children:
        check_tree(tree)


@COSTLY
@given(documents, task_ids)
def test_whatever_comes_a_result_of_the_right_kinds_is_made_of_it(data: bytes, task_id: str | None) -> None:
    meta = decode(data, task_id=task_id, max_bytes=MAX_BYTES)

    check(meta)
    assert task_id is None or meta.task_id == task_id


@COSTLY
@given(broken())
def test_a_field_that_is_broken_costs_no_result_unless_it_is_needed(fields: dict[str, Any]) -> None:
    meta = decode(json.dumps(fields).encode(), task_id="given", max_bytes=16 * MAX_BYTES)

    status = fields.get("status")
    is_needed = not isinstance(status, str) or not 0 < len(status) <= 100
    assert (meta.fault != "") == (is_needed or depth_of(fields.get("result")) > MAX_DEPTH)


@COSTLY
@given(broken_documents())
def test_what_was_read_can_be_written_and_read_again(data: bytes) -> None:
    meta = decode(data, task_id="given", max_bytes=MAX_BYTES)
    if meta.fault:
        return

    again = decode(encode(meta), task_id=None, max_bytes=64 * MAX_BYTES)

    assert repr(again) == repr(meta)  # by their repr, because NaN is not NaN


PACKERS = ("bzip2", "gzip", "lzma")


@cache
def bomb(method: str) -> bytes:
    """Return a document that is small packed, and beyond the limit unpacked."""
    return pack(b'{"status": "SUCCESS", "result": "' + b"x" * 20_000_000 + b'"}', method)


@COSTLY
@given(st.sampled_from(PACKERS), st.integers(0, 3), st.binary(max_size=3))
def test_a_bomb_that_is_damaged_stays_within_the_limit(method: str, place: int, noise: bytes) -> None:
    data = bytearray(bomb(method))
    start = len(data) * place // 4
    data[start : start + len(noise)] = noise

    meta = decode(bytes(data), task_id="given", max_bytes=MAX_BYTES)

    check(meta)


@pytest.mark.parametrize("method", PACKERS)
def test_a_bomb_is_refused(method: str) -> None:
    meta = decode(bomb(method), task_id="given", max_bytes=MAX_BYTES)

    assert "raise result_max_bytes" in meta.fault


# -- the law

plain_texts = st.text(max_size=8)
ids = st.text(min_size=1, max_size=8)
zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
spelled = (
    st.datetimes(timezones=st.none() | zones)
    | st.dates()
    | st.times(timezones=st.none() | zones)
    | st.uuids()
    | st.decimals(allow_nan=False)
    | st.binary(max_size=8)
)
kept_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts | spelled,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)
kept_trees: st.SearchStrategy[ResultTree] = st.recursive(
    ids.map(ResultTree),
    lambda inner: st.builds(
        ResultTree, ids, st.none() | inner, st.none() | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=8,
)
failures = st.builds(Failure, ids, st.lists(kept_values, max_size=3).map(tuple), st.none() | ids)


@st.composite
def metas(draw: st.DrawFn) -> ResultMeta:
    status = draw(st.sampled_from(sorted(ALL_STATES)) | st.text(min_size=1, max_size=100))
    optional = st.none() | plain_texts
    return ResultMeta(
        draw(ids),
        status,
        draw(failures if status in EXCEPTION_STATES else kept_values),
        draw(optional),
        tuple(draw(st.lists(kept_trees, max_size=2))),
        draw(optional),
        draw(optional),
        draw(optional),
        draw(optional),
        draw(kept_values),
        draw(kept_values),
        draw(optional),
        draw(st.none() | st.integers()),
        draw(optional),
    )


@COSTLY
@given(metas(), st.none() | st.sampled_from(["gzip", "bzip2", "lzma"]))
def test_what_is_written_is_what_is_read(meta: ResultMeta, compression: str | None) -> None:
    document = encode(meta, compression=compression)

    again = decode(document, task_id=None, max_bytes=MAX_BYTES)

    assert again == meta
    assert [type(value) for value in flat(again.result)] == [type(value) for value in flat(meta.result)]


def flat(value: object) -> Iterator[object]:
    """Yield the values in a value, whose types equality may hide: True is 1, and so is Decimal(1)."""
    yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from flat(item)


# -- nothing runs (T18)

HOSTILE_NAMES = [
    ("os", "system"), ("posix", "system"), ("subprocess", "Popen"), ("subprocess", "check_output"),
    ("builtins", "eval"), ("builtins", "exec"), ("builtins", "__import__"), ("builtins", "open"),
    ("builtins", "SystemExit"), ("builtins", "object.__subclasses__"), ("pickle", "loads"),
    ("importlib", "import_module"), ("antigravity", "x"), ("this", "s"), ("celery.exceptions", "Retry"),
    ("celery.exceptions", "SecurityError.__init__.__globals__"), ("tests.no_such_module", "x"),
    ("sys", "exit"), ("ctypes", "CDLL"), ("__main__", "x"), ("", "eval"), (None, "eval"),
    ("os\x00", "system"),
]  # fmt: skip
PAYLOADS: list[object] = [
    "touch /nowhere/owned", ["touch /nowhere/owned"], ["__import__('antigravity')"], [["a"], {"shell": True}],
    {"__type__": "eval", "__value__": "1"}, {"__reduce__": ["os.system", ["true"]]},
    {"py/object": "os.system"}, {"$type": "System.Diagnostics.Process"},
]  # fmt: skip


LISTENED_FOR = frozenset(
    {"import", "exec", "compile", "open", "os", "subprocess", "socket", "pickle", "ctypes", "marshal"}
)


class Watch:
    """Notes what is imported, compiled, run or opened while it is on. Python has no way to take it off."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.is_on = False
        sys.addaudithook(self.hear)

    def hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.is_on and event.partition(".")[0] in LISTENED_FOR:
            self.seen.append(f"{event} {arguments!r:.80}")

    @contextmanager
    def listening(self) -> Iterator[list[str]]:
        self.seen, self.is_on = [], True
        try:
            yield self.seen
        finally:
            self.is_on = False


@pytest.fixture(scope="module")
def watch() -> Watch:
    return Watch()


def test_the_watch_hears_what_it_is_there_for(watch: Watch) -> None:
    with watch.listening() as seen:
        eval("1")  # noqa: S307 - to see that it is heard

    assert seen


@pytest.mark.parametrize(("module", "name"), HOSTILE_NAMES)
@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("odd", [{}, {"worker": 7}])
def test_nothing_that_a_failure_names_is_imported_or_called(
    module: str | None, name: str, payload: object, odd: dict[str, object], watch: Watch
) -> None:
    result = {"exc_type": name, "exc_message": payload, "exc_module": module}
    data = json.dumps({"status": "FAILURE", "result": result, "children": [[name, None]], **odd}).encode()
    loaded = set(sys.modules)

    with watch.listening() as seen:
        meta = decode(data, task_id="given", max_bytes=MAX_BYTES)

    assert seen == []
    assert set(sys.modules) == loaded
    assert meta.result == Failure(
        name, tuple(payload) if isinstance(payload, list) else (payload,), module or None
    )


@COSTLY
@given(broken_documents())
def test_only_plain_values_come_out(data: bytes) -> None:
    meta = decode(data, task_id="given", max_bytes=MAX_BYTES)

    kinds = {
        type(value)
        for value in flat([meta.result, meta.args, meta.kwargs, *getattr(meta.result, "exc_args", ())])
    }

    assert {kind.__module__ for kind in kinds} <= {
        "builtins", "datetime", "decimal", "uuid", "celeriac.model.result",
    }  # fmt: skip


def test_the_values_that_are_made_are_those_that_kombu_makes() -> None:
    made = [datetime(2026, 1, 1), time(1), Decimal(1), UUID(int=1), b"\xff"]  # noqa: DTZ001
    meta = ResultMeta("t", "SUCCESS", made)

    assert decode(encode(meta), task_id=None, max_bytes=MAX_BYTES).result == made
