"""Result documents as we write them."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from celeriac.errors import CallerError
from celeriac.model.result import Failure, ResultMeta, ResultTree
from celeriac.wire.result import decode, encode, failure_of
from celeriac.wire.text import CUT_MARK
from celeriac.wire.value import MAX_DEPTH
from tests.builders import nested

MIB = 1024 * 1024
METAS = [
    ResultMeta("t1", "SUCCESS", 3),
    ResultMeta("t1", "SUCCESS", {"a": [1, None, "é", "\ud800", b"\xff", datetime(2026, 11, 15, tzinfo=UTC)]}),
    ResultMeta("t1", "STARTED", {"pid": 7, "hostname": "celery@web1"}),
    ResultMeta("t1", "FAILURE", Failure("KeyError", ("a", [1]), "builtins"), "Traceback …"),
    ResultMeta("t1", "RETRY", Failure("Outer.Inner")),
    ResultMeta("é", "PROGRESS", None, None, (ResultTree("a", ResultTree("b"), (ResultTree("c"),)),)),
    ResultMeta(
        "t1", "SUCCESS", [], date_done="2026-11-15", parent_id="p", group_id="g", name="n", args=[b"x"],
        kwargs={"a": 1}, worker="w", retries=0, queue="q",
    ),
    ResultMeta("t1", "SUCCESS", nested(MAX_DEPTH)),
]  # fmt: skip


@pytest.mark.parametrize("meta", METAS)
@pytest.mark.parametrize("compression", [None, "gzip", "bzip2", "lzma"])
def test_what_is_written_is_what_is_read(meta: ResultMeta, compression: str | None) -> None:
    document = encode(meta, compression=compression)

    assert decode(document, task_id=None, max_bytes=MIB) == meta


def test_the_document_is_celerys() -> None:
    meta = ResultMeta("t1", "SUCCESS", 3, date_done="2026-11-15T00:50:25.405743+00:00")

    assert encode(meta) == (
        b'{"status": "SUCCESS", "result": 3, "traceback": null, "children": [], '
        b'"date_done": "2026-11-15T00:50:25.405743+00:00", "task_id": "t1"}'
    )


def test_what_is_not_set_is_left_out() -> None:
    fields = json.loads(encode(ResultMeta("t1", "SUCCESS")))

    assert fields.keys() == {"status", "result", "traceback", "children", "date_done", "task_id"}


def test_a_failure_is_spelled_as_celery_spells_an_exception() -> None:
    fields = json.loads(encode(ResultMeta("t1", "FAILURE", Failure("E", ("a", 7), "m"))))

    assert fields["result"] == {"exc_type": "E", "exc_message": ["a", 7], "exc_module": "m"}


def test_an_exception_may_be_given_as_it_is() -> None:
    meta = ResultMeta("t1", "FAILURE", KeyError("a"))

    assert decode(encode(meta), task_id=None, max_bytes=MIB).result == Failure("KeyError", ("a",), "builtins")


def test_tuples_become_lists_and_keys_texts() -> None:
    meta = ResultMeta("t1", "SUCCESS", {1: (2, (3,)), None: True})

    assert decode(encode(meta), task_id=None, max_bytes=MIB).result == {"1": [2, [3]], "null": True}


def test_numbers_that_json_lacks_are_written_as_python_writes_them() -> None:
    assert b'"result": [NaN, Infinity, -Infinity]' in encode(
        ResultMeta("t1", "SUCCESS", [float("nan"), float("inf"), float("-inf")])
    )


def test_a_long_traceback_is_cut() -> None:
    document = encode(ResultMeta("t1", "FAILURE", Failure("E"), "x" * (MIB + 1)))

    traceback = decode(document, task_id=None, max_bytes=2 * MIB).traceback

    assert traceback is not None
    assert len(traceback) == MIB
    assert traceback.endswith(CUT_MARK)


# -- what cannot be stored


@pytest.mark.parametrize("fields", [{"result": {1}}, {"result": [1, {"a": {1}}]}, {"args": ({1},)}])
def test_a_value_without_a_spelling_names_the_task_the_type_and_the_fix(fields: Any) -> None:
    with pytest.raises(CallerError, match=r"task t1: set is not JSON serializable: use .*") as caught:
        encode(ResultMeta("t1", "SUCCESS")._replace(**fields))

    assert caught.value.__cause__ is None


def test_a_value_that_is_nested_deeper_than_is_read_is_refused() -> None:
    with pytest.raises(CallerError, match="task t1: nested more than 200 levels deep"):
        encode(ResultMeta("t1", "SUCCESS", nested(MAX_DEPTH + 1)))


@pytest.mark.parametrize(
    "meta",
    [ResultMeta("t1", ""), ResultMeta("", "SUCCESS"), ResultMeta("t1", "x" * 101),
     ResultMeta("t1", "S", fault="f")],
)  # fmt: skip
def test_a_result_without_a_task_or_a_status_is_refused(meta: ResultMeta) -> None:
    with pytest.raises(CallerError, match="needs a task id, and a status"):
        encode(meta)


@pytest.mark.parametrize("status", ["FAILURE", "RETRY", "REVOKED"])
@pytest.mark.parametrize("result", [None, "text", {"exc_type": "E"}])
def test_what_is_no_failure_in_a_state_of_failure_is_refused(status: str, result: object) -> None:
    with pytest.raises(CallerError, match="are exceptions: give an exception, or a Failure"):
        encode(ResultMeta("t1", status, result))


@pytest.mark.parametrize("status", ["SUCCESS", "PROGRESS"])
@pytest.mark.parametrize("result", [Failure("E"), KeyError("a")])
def test_a_failure_in_another_state_is_refused(status: str, result: object) -> None:
    with pytest.raises(CallerError, match="use FAILURE, RETRY or REVOKED"):
        encode(ResultMeta("t1", status, result))


def test_a_compression_that_is_none_is_refused() -> None:
    with pytest.raises(CallerError, match="unknown compression 'snappy': use gzip, bzip2 or lzma"):
        encode(ResultMeta("t1", "SUCCESS"), compression="snappy")


# -- exceptions as data


class Outer:
    class InnerError(Exception):
        pass


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Loud:
    def __json__(self) -> object:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        return "Loud()"


def test_an_exception_is_told_by_its_names_and_arguments() -> None:
    assert failure_of(KeyError("a", 7)) == Failure("KeyError", ("a", 7), "builtins")
    assert failure_of(Outer.InnerError()) == Failure("Outer.InnerError", (), __name__)
    assert failure_of(KeyboardInterrupt()) == Failure("KeyboardInterrupt", (), "builtins")


@pytest.mark.parametrize(
    ("arg", "told"),
    [
        ({1}, "{1}"),
        (ValueError("x"), "ValueError('x')"),
        (Mute(), "<Mute>"),
        (Loud(), "Loud()"),
        (b"\xff", b"\xff"),
        ((1, 2), (1, 2)),
        (nested(MAX_DEPTH - 2), nested(MAX_DEPTH - 2)),
        (nested(MAX_DEPTH - 1), repr(nested(MAX_DEPTH - 1))),
    ],
)
def test_an_argument_that_json_cannot_hold_is_told_by_its_repr(arg: object, told: object) -> None:
    failure = failure_of(Exception("a", arg))

    assert failure.exc_args == ("a", told)
    assert encode(ResultMeta("t1", "FAILURE", failure))


def test_a_long_repr_is_cut() -> None:
    (told,) = failure_of(Exception({"x" * (2 * MIB)})).exc_args

    assert isinstance(told, str)
    assert len(told) == MIB
