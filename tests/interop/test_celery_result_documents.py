"""Result documents are Celery's: its own code writes what we read, and reads what we write."""

import json
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from celeriac.model.result import Failure, ResultMeta, ResultTree
from celeriac.wire.result import decode, encode, failure_of, key_prefix, task_id_of, task_key
from tests.live import PEERS, peer

PROGRAM = Path(__file__).parents[1] / "peers" / "result_documents.py"
MAX_BYTES = 1024 * 1024
DAY, ID = date(2026, 11, 15), UUID(int=7)

#: What Celery was told to store, by the names that its side knows.
VALUES: dict[str, object] = {
    "none": None,
    "number": 3,
    "huge": 10**400,
    "text": "é € 😀 \x00",
    "half": "a\ud800",
    "nested": {"a": [1, {"b": [None, True, 1.5]}], "": {}},
    "tuple": [1, [2]],
    "keys": {"1": "a", "null": "b"},
    "aware": datetime(2026, 11, 15, 1, 2, 3, 4, UTC),
    "naive": datetime(2026, 11, 15),  # noqa: DTZ001
    "date": DAY,
    "time": time(1, 2, 3),
    "uuid": ID,
    "decimal": Decimal("1.10"),
    "bytes": "é".encode(),
    "binary": b"\xff\x00",
    "mixed": {"at": [DAY, ID], "raw": {"b": b"\xff"}},
    "infinite": [float("inf"), float("-inf")],
    "marked": {"__type__": "bytes"},
}
FAILURES = {
    "failure": ("FAILURE", Failure("ValueError", ("a", 7), "builtins")),
    "inner": ("FAILURE", Failure("Outer.InnerError", ("é",), "__main__")),
    "unspeakable": ("FAILURE", Failure("KeyError", ("{1}", b"\xff"), "builtins")),
    "empty": ("FAILURE", Failure("RuntimeError", (), "builtins")),
    "revoked": ("REVOKED", Failure("TaskRevokedError", ("terminated",), "celery.exceptions")),
}


class Peer:
    """A Celery that stores and reads results, in a process of its own that ends with its input."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._stored: dict[str, dict[str, bytes]] = {}

    def ask(self, do: str, **arguments: Any) -> Any:
        """Have it do something, and return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def stored(self, **settings: object) -> dict[str, bytes]:
        """Return the documents that it stores, by their keys."""
        name = repr(settings)
        if name not in self._stored:
            written = self.ask("write", settings=settings)
            self._stored[name] = {key: b64decode(document) for key, document in written.items()}
        return self._stored[name]

    def found(self, task_id: str, **settings: object) -> ResultMeta:
        """Return what we read of a task whose result it stored."""
        return decode(self.stored(**settings)[task_key(task_id)], task_id=None, max_bytes=MAX_BYTES)

    def read(self, *metas: ResultMeta, compression: str | None = None) -> list[dict[str, Any]]:
        """Return what it makes of results that we store."""
        documents = {
            meta.task_id: b64encode(encode(meta, compression=compression)).decode() for meta in metas
        }
        told = self.ask("read", documents=documents)
        return [told[meta.task_id] for meta in metas]


@contextmanager
def running(version: str) -> Iterator[Peer]:
    command = [str(peer(version)), str(PROGRAM)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own program
        yield Peer(process)


@pytest.fixture(scope="module", params=PEERS)
def celery(request: pytest.FixtureRequest) -> Iterator[Peer]:
    with running(request.param) as each:
        yield each


@pytest.fixture(scope="module")
def celery57() -> Iterator[Peer]:
    """The first version that packs results."""
    with running("5.7") as newest:
        yield newest


def line(length: int) -> ResultTree:
    tree = ResultTree("0")
    for number in range(1, length):
        tree = ResultTree(str(number), tree)
    return tree


# -- Celery writes


def test_everything_that_celery_stores_for_a_task_is_read(celery: Peer) -> None:
    documents = {key: data for key, data in celery.stored().items() if task_id_of(key.encode())}

    metas = {key: decode(data, task_id=None, max_bytes=MAX_BYTES) for key, data in documents.items()}

    assert len(metas) > len(VALUES) + len(FAILURES)
    assert {key: meta.fault for key, meta in metas.items() if meta.fault} == {}
    assert {key: task_key(meta.task_id) for key, meta in metas.items()} == {key: key for key in metas}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_celery_stored_is_read(name: str, celery: Peer) -> None:
    meta = celery.found(name)

    assert (meta.status, meta.task_id, meta.children, meta.traceback) == ("SUCCESS", name, (), None)
    assert meta.result == VALUES[name]
    assert type(meta.result) is type(VALUES[name])
    assert datetime.fromisoformat(meta.date_done or "").tzinfo is not None


@pytest.mark.parametrize("name", FAILURES)
def test_an_exception_that_celery_stored_is_told(name: str, celery: Peer) -> None:
    meta = celery.found(name)

    assert (meta.status, meta.result) == FAILURES[name]
    assert meta.traceback is None or meta.traceback.startswith("Traceback (most recent call last):\n")
    assert (meta.traceback is None) == (name == "revoked")
    assert meta.is_ready


def test_a_task_that_is_tried_again_is_read(celery: Peer) -> None:
    meta = celery.found("retry")

    assert isinstance(meta.result, Failure)
    assert (meta.status, meta.result.exc_type, meta.date_done) == ("RETRY", "Retry", None)
    assert not meta.is_ready


def test_states_that_are_no_end_are_read(celery: Peer) -> None:
    assert celery.found("started") == ResultMeta("started", "STARTED", {"pid": 7, "hostname": "celery@web1"})
    assert celery.found("progress") == ResultMeta("progress", "PROGRESS", {"done": 1})


def test_what_a_task_started_is_read(celery: Peer) -> None:
    group = ResultTree("g", ResultTree("p"), (ResultTree("x"), ResultTree("y")))

    assert celery.found("family").children == (
        ResultTree("one"),
        line(3),
        group,
        ResultTree("o", None, (group, line(2))),
        ResultTree(str(ID)),
    )


def test_a_long_chain_that_a_task_started_is_read(celery: Peer) -> None:
    assert celery.found("chain").children == (line(200),)


def test_of_a_longer_chain_the_end_is_read(celery: Peer) -> None:
    meta = celery.found("longest")

    assert (meta.result, meta.children[0].id) == (3, "299")


def test_what_an_extended_result_has_is_read(celery: Peer) -> None:
    meta = celery.found("request", result_extended=True)

    assert meta._replace(date_done=None) == ResultMeta(
        "request", "SUCCESS", 3, parent_id="p1", group_id="g1", name="shop.pay", args=[1, DAY],
        kwargs={"a": ID}, worker="celery@web1", retries=2, queue="celery",
    )  # fmt: skip


@pytest.mark.parametrize("compression", ["gzip", "zlib", "bzip2", "lzma"])
def test_what_celery_packs_is_read(compression: str, celery57: Peer) -> None:
    plain, packed = celery57.stored(), celery57.stored(result_compression=compression)

    assert plain.keys() == packed.keys()
    assert all(data.startswith(b"\x00celery-compressed\x00") for data in packed.values())
    for name, value in VALUES.items():
        assert celery57.found(name, result_compression=compression).result == value


def test_what_celery_pickles_is_not_read_and_the_setting_is_named(celery: Peer) -> None:
    meta = celery.found("number", result_serializer="pickle", accept_content=["pickle"])

    assert "pickle" in meta.fault
    assert "set result_serializer to json on the workers" in meta.fault


def test_the_keys_are_celerys(celery: Peer) -> None:
    prefixes = [None, "", "shop", "shop:", "shop_", "shop-", "shop.", "shop/", "é"]

    theirs = celery.ask("keys", prefixes=prefixes)

    ours = [key_prefix({"global_keyprefix": prefix}) for prefix in prefixes]
    assert theirs == [task_key("é", prefix) for prefix in ours]


# -- Celery reads


def test_a_value_that_we_store_is_read_by_celery(celery: Peer) -> None:
    names = list(VALUES)

    told = celery.read(*(ResultMeta(name, "SUCCESS", VALUES[name]) for name in names))

    assert [each["value"] for each in told] == [repr(VALUES[name]) for name in names]
    assert {each["state"] for each in told} == {"SUCCESS"}


def test_an_hour_elsewhere_is_read_by_celery(celery: Peer) -> None:
    there = datetime(2026, 11, 15, tzinfo=timezone(timedelta(hours=-3)))

    (told,) = celery.read(ResultMeta("t", "SUCCESS", there))

    assert told["value"] == repr(there)


@pytest.mark.parametrize("compression", ["gzip", "bzip2", "lzma"])
def test_what_we_pack_is_read_by_celery(compression: str, celery57: Peer) -> None:
    metas = [ResultMeta(name, "SUCCESS", value) for name, value in VALUES.items()]

    told = celery57.read(*metas, compression=compression)

    assert [each["value"] for each in told] == [repr(value) for value in VALUES.values()]


@pytest.mark.parametrize(
    ("status", "result", "kind", "args"),
    [
        ("FAILURE", failure_of(ValueError("a", 7)), "builtins.ValueError", "('a', 7)"),
        ("FAILURE", failure_of(KeyError({1}, b"\xff")), "builtins.KeyError", "('{1}', b'\\xff')"),
        ("FAILURE", Failure("Outer.InnerError", ("é",), "__main__"), "__main__.Outer.InnerError", "('é',)"),
        ("FAILURE", Failure("Gone", ("a",), "no.such.module"), "celery.exceptions.Gone", "('a',)"),
        ("FAILURE", Failure("Nowhere", (None,)), "celery.backends.base.Nowhere", "(None,)"),
        ("RETRY", failure_of(TimeoutError()), "builtins.TimeoutError", "()"),
        ("REVOKED", Failure("TaskRevokedError", ("terminated",), "celery.exceptions"),
         "celery.exceptions.TaskRevokedError", "('terminated',)"),
    ],
)  # fmt: skip
def test_an_exception_that_we_store_is_raised_by_celery(
    status: str, result: Failure, kind: str, args: str, celery: Peer
) -> None:
    (told,) = celery.read(ResultMeta("t", status, result, "Traceback é"))

    assert (told["state"], told["kind"], told["value"]) == (status, kind, args)
    assert told["traceback"] == "Traceback é"


def test_what_a_task_of_ours_started_is_read_by_celery(celery: Peer) -> None:
    group = ResultTree("g", ResultTree("p"), (ResultTree("x"), ResultTree("y")))
    children = (ResultTree("one"), line(3), group, ResultTree("o", None, (group, line(2))))

    (told,) = celery.read(ResultMeta("t", "SUCCESS", 3, children=children))

    spelled = [as_tuple(child) for child in children]
    assert told["children"] == [repr(child) for child in spelled]


def as_tuple(tree: ResultTree) -> object:
    """Return a tree as Celery would."""
    parent = None if tree.parent is None else as_tuple(tree.parent)
    return (tree.id, parent), None if tree.members is None else [as_tuple(each) for each in tree.members]


def test_the_longest_chain_that_we_write_is_read_by_celery(celery: Peer) -> None:
    (told,) = celery.read(ResultMeta("t", "SUCCESS", 3, children=(line(1000),)))

    assert told["value"] == "3"
    assert told["children"][0].startswith("(('999', (('998'")


def test_the_other_fields_that_we_store_are_read_by_celery(celery: Peer) -> None:
    meta = ResultMeta(
        "t", "SUCCESS", 3, date_done="2026-11-15T00:50:25.405743+00:00", parent_id="p", group_id="g",
        name="shop.pay", args=[1, DAY], kwargs={"a": ID}, worker="celery@web1", retries=2, queue="celery",
    )  # fmt: skip

    (told,) = celery.read(meta)

    assert told["fields"] == repr(["shop.pay", [1, DAY], {"a": ID}, "celery@web1", 2, "celery"])
    assert told["date_done"] == "2026-11-15 00:50:25.405743+00:00"
    assert (told["group_id"], told["parent_id"]) == ("g", "p")


def test_states_that_are_no_end_are_read_by_celery(celery: Peer) -> None:
    started = ResultMeta("s", "STARTED", {"pid": 7, "hostname": "celery@web1"})
    progress = ResultMeta("p", "PROGRESS", {"done": 1})

    told = celery.read(started, progress)

    assert [(each["state"], each["value"]) for each in told] == [
        ("STARTED", "{'pid': 7, 'hostname': 'celery@web1'}"),
        ("PROGRESS", "{'done': 1}"),
    ]
