"""Result documents: what is read out of them, and why some cannot be read."""

import json
import pickle
import sys
from typing import Any
from uuid import UUID

import pytest

from celeriac.model.result import Failure, ResultMeta, ResultTree
from celeriac.wire.compression import pack
from celeriac.wire.result import decode
from celeriac.wire.text import CUT_MARK
from celeriac.wire.value import MAX_DEPTH
from tests.builders import nested

MIB = 1024 * 1024
DONE = "2026-11-15T00:50:25.405743+00:00"
#: As Celery writes it.
DOCUMENT = (
    b'{"status": "SUCCESS", "result": 3, "traceback": null, "children": [], '
    b'"date_done": "2026-11-15T00:50:25.405743+00:00", "task_id": "t1"}'
)
TEXTS = ["traceback", "date_done", "parent_id", "group_id", "name", "worker", "queue"]


def document(**fields: Any) -> bytes:
    """Return the document of a success, with changes."""
    return json.dumps({"status": "SUCCESS", "result": 3, "task_id": "t1"} | fields).encode()


def read(data: bytes, task_id: str | None = "t1", max_bytes: int = 4 * MIB) -> ResultMeta:
    return decode(data, task_id=task_id, max_bytes=max_bytes)


def fault(data: bytes, task_id: str | None = "t1", max_bytes: int = 4 * MIB) -> str:
    """Return why a document cannot be read, and check that nothing else is told."""
    meta = read(data, task_id, max_bytes)
    assert meta == ResultMeta(task_id or "", "", fault=meta.fault)
    assert meta.is_ready
    return meta.fault


# -- what is in it


def test_a_document_of_celery_is_read() -> None:
    assert read(DOCUMENT) == ResultMeta("t1", "SUCCESS", 3, date_done=DONE)


def test_what_an_extended_result_has_is_read() -> None:
    extended: dict[str, Any] = {
        "name": "shop.pay", "args": [1, "é"], "kwargs": {"fast": True}, "worker": "celery@web1", "retries": 2,
        "queue": "celery",
    }  # fmt: skip

    meta = read(document(**extended, parent_id="p", group_id="g", traceback="Traceback"))

    assert meta == ResultMeta(
        "t1", "SUCCESS", 3, **extended, parent_id="p", group_id="g", traceback="Traceback"
    )  # fmt: skip


def test_fields_that_are_not_known_are_passed_over() -> None:
    assert read(document(stamped_headers=["x"], x=[1], fault="mine", is_ready=False)) == read(document())


def test_the_id_that_is_given_outweighs_the_one_in_the_document() -> None:
    assert read(DOCUMENT, "t2").task_id == "t2"
    assert read(document(task_id=7), "t2").task_id == "t2"


def test_without_one_given_the_id_in_the_document_counts() -> None:
    assert read(DOCUMENT, None).task_id == "t1"


def test_an_id_that_was_a_uuid_is_read_as_text() -> None:
    spelled = {"__type__": "uuid", "__value__": {"hex": UUID(int=7).hex}}

    meta = read(document(task_id=spelled, group_id=spelled, parent_id=spelled), None)

    assert (meta.task_id, meta.group_id, meta.parent_id) == (str(UUID(int=7)),) * 3


def test_a_moment_that_was_spelled_as_one_is_read_as_text() -> None:
    spelled = {"__type__": "datetime", "__value__": "2026-11-15T00:00:00Z"}

    assert read(document(date_done=spelled)).date_done == "2026-11-15T00:00:00+00:00"


@pytest.mark.parametrize("status", ["STARTED", "PENDING", "PROGRESS", "é", "x" * 100])
def test_the_result_in_other_states_is_a_value(status: str) -> None:
    result = {"pid": 7, "hostname": "celery@web1"}

    meta = read(document(status=status, result=result))

    assert (meta.status, meta.result) == (status, result)


def test_values_that_kombu_spelled_are_revived_wherever_tasks_put_them() -> None:
    spelled = {"__type__": "bytes", "__value__": "x"}

    meta = read(document(result=[spelled], args=[spelled], kwargs={"a": spelled}))

    assert (meta.result, meta.args, meta.kwargs) == ([b"x"], [b"x"], {"a": b"x"})


def test_a_value_that_is_spelled_is_revived_at_the_top_too() -> None:
    assert read(document(result={"__type__": "uuid", "__value__": {"hex": UUID(int=7).hex}})).result == UUID(
        int=7
    )


def test_children_are_read() -> None:
    meta = read(document(children=[[["g", [["p", None], None]], [[["x", None], None]]], ["y", None]]))

    assert meta.children == (ResultTree("g", ResultTree("p"), (ResultTree("x"),)), ResultTree("y"))


def test_a_long_chain_among_the_children_costs_no_result() -> None:
    child: Any = None
    for number in range(300):
        child = [[str(number), child], None]

    meta = read(document(children=[child]))

    assert (meta.result, meta.fault) == (3, "")
    assert meta.children[0].id == "299"


def test_a_packed_document_is_read() -> None:
    assert read(pack(DOCUMENT, "gzip")) == read(DOCUMENT)


# -- failures


@pytest.mark.parametrize("status", ["RETRY", "FAILURE", "REVOKED"])
def test_the_result_in_some_states_is_a_failure(status: str) -> None:
    result = {"exc_type": "KeyError", "exc_message": ["a", 7], "exc_module": "builtins"}

    meta = read(document(status=status, result=result))

    assert meta.result == Failure("KeyError", ("a", 7), "builtins")


@pytest.mark.parametrize(
    ("result", "failure"),
    [
        ({"exc_type": "E", "exc_message": "text"}, Failure("E", ("text",))),
        ({"exc_type": "E", "exc_message": {"a": 1}}, Failure("E", ({"a": 1},))),
        ({"exc_type": "E", "exc_message": 0}, Failure("E", (0,))),
        ({"exc_type": "E", "exc_message": []}, Failure("E")),
        ({"exc_type": "E", "exc_message": None}, Failure("E")),
        ({"exc_type": "E", "exc_message": [{"__type__": "bytes", "__value__": "x"}]}, Failure("E", (b"x",))),
        ({"exc_type": "E", "exc_module": None}, Failure("E")),
        ({"exc_type": "E", "exc_module": ["os"]}, Failure("E")),
        ({"exc_type": 7, "exc_message": ["a"], "exc_module": "m"}, Failure("Exception", ("a",), "m")),
        ({"exc_type": "", "exc_module": ""}, Failure("Exception")),
        ({}, Failure("Exception")),
        (None, Failure("Exception")),
        ("text", Failure("Exception", ("text",))),
        (["a", "b"], Failure("Exception", (["a", "b"],))),
        ({"exc_type": "\ud800", "exc_module": "\udfff"}, Failure("?", (), "?")),
    ],
)
def test_of_a_failure_is_told_what_can_be_told(result: object, failure: Failure) -> None:
    assert read(document(status="FAILURE", result=result)).result == failure


# -- what is odd


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("value", [7, True, ["x"], {"a": 1}, 1.5, nested(MAX_DEPTH + 1)])
def test_a_text_of_another_kind_counts_as_absent(name: str, value: object) -> None:
    assert read(document(**{name: value})) == read(document())


@pytest.mark.parametrize("value", ["2", 2.5, True, [2], {}])
def test_retries_that_are_no_number_count_as_absent(value: object) -> None:
    assert read(document(retries=value)) == read(document())


@pytest.mark.parametrize("value", ["a", 7, True, {"a": 1}])
def test_children_that_are_no_list_count_as_absent(value: object) -> None:
    assert read(document(children=value)) == read(document())


@pytest.mark.parametrize("name", ["args", "kwargs"])
def test_arguments_that_are_nested_too_deep_cost_no_result(name: str) -> None:
    assert read(document(**{name: nested(MAX_DEPTH + 1)})) == read(document())


def test_one_odd_field_leaves_the_others_as_they_are() -> None:
    meta = read(
        document(
            worker=7, name="n", queue="q", retries=2, args=[1], kwargs={}, traceback="t", children=["c"],
            parent_id="p", group_id="g", date_done=DONE,
        )
    )  # fmt: skip

    assert meta == ResultMeta(
        "t1", "SUCCESS", 3, "t", (ResultTree("c"),), DONE, "p", "g", "n", [1], {}, None, 2, "q"
    )


def test_numbers_that_json_lacks_are_read_as_python_writes_them() -> None:
    assert (
        repr(read(document(result=[float("nan"), float("inf"), float("-inf")])).result) == "[nan, inf, -inf]"
    )
    assert read(b'{"status": "SUCCESS", "result": 1e999}').result == float("inf")
    assert read(document(result=10**400)).result == 10**400


def test_halves_of_surrogate_pairs_stay_in_values_alone() -> None:
    meta = read(document(result="\ud800", status="\ud800", traceback="a\ud800", task_id="\ud800"), None)

    assert meta == ResultMeta("?", "?", "\ud800", "a?")


def test_the_halves_among_the_children_are_replaced() -> None:
    assert read(document(children=["a\ud800", "b"])).children == (ResultTree("a?"), ResultTree("b"))


@pytest.mark.parametrize("odd", [{}, {"worker": 7}])
def test_a_long_traceback_is_cut(odd: dict[str, object]) -> None:
    traceback = read(document(traceback="é" * MIB + "end", **odd), max_bytes=16 * MIB).traceback

    assert traceback is not None
    assert len(traceback) == MIB
    assert traceback.endswith("é" + CUT_MARK)


# -- what cannot be read


def test_a_document_that_is_too_long_names_the_limit_and_the_setting() -> None:
    assert fault(DOCUMENT, max_bytes=100) == (
        "longer than 100 bytes: raise result_max_bytes here, or return less from the task"
    )


def test_a_document_just_as_long_as_the_limit_is_read() -> None:
    assert read(DOCUMENT, max_bytes=len(DOCUMENT)) == read(DOCUMENT)


@pytest.mark.parametrize("method", ["gzip", "bzip2", "lzma"])
def test_a_document_that_grows_too_long_names_the_limit_and_the_setting(method: str) -> None:
    bomb = pack(document(result="x" * 10_000_000), method)

    assert "longer than 1,048,576 bytes: raise result_max_bytes" in fault(bomb, max_bytes=MIB)


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (pickle.dumps({"status": "SUCCESS"}), "pickle"),
        (pickle.dumps({"status": "SUCCESS"}, protocol=2), "pickle"),
        (b"\x86\xa6status\xa7SUCCESS", "msgpack"),
        (b"status: SUCCESS\nresult: 3\n", "not JSON"),
        (b"{'status': 'SUCCESS'}", "not JSON"),
        (b"", "empty"),
        (b"\xff\xfe", "not JSON"),
        (DOCUMENT[:-1], "not JSON"),
        (DOCUMENT + b"x", "not JSON"),
        (DOCUMENT.decode().encode("utf-16"), "not JSON"),
        (b'{"status": "SUCCESS", "result": "\xed\xa0\x80"}', "not JSON"),
    ],
)
def test_a_document_in_another_language_names_it_and_the_setting(data: bytes, named: str) -> None:
    reason = fault(data)

    assert named in reason
    assert reason.endswith("set result_serializer to json on the workers")


@pytest.mark.parametrize("data", [b"[]", b"3", b'"SUCCESS"', b"null", b"NaN"])
def test_json_that_is_no_object_cannot_be_a_result(data: bytes) -> None:
    assert fault(data).startswith("not a JSON object: store results as Celery does")


@pytest.mark.parametrize("status", [None, "", 7, ["SUCCESS"], "x" * 101])
def test_a_document_without_a_status_says_so(status: object) -> None:
    assert fault(document(status=status)).startswith("no status: store results as Celery does")
    assert fault(b"{}").startswith("no status: store results as Celery does")


@pytest.mark.parametrize("task_id", [None, "", 7, {"a": 1}])
def test_a_document_of_nobody_says_so(task_id: object) -> None:
    assert fault(document(task_id=task_id), None).startswith("no task id: store results as Celery does")


def test_a_document_that_is_packed_in_an_unknown_way_says_so() -> None:
    assert "unknown compression 'x/y': set result_compression to gzip, bzip2 or" in fault(
        b"\x00celery-compressed\x00x/y\x00abc"
    )


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 600, 100_000])
@pytest.mark.parametrize("odd", [b"", b', "worker": 7'])
def test_a_result_that_is_nested_too_deep_says_so(levels: int, odd: bytes) -> None:
    data = b'{"status": "SUCCESS", "result": ' + b"[" * levels + b"]" * levels + odd + b"}"

    assert "deep" in fault(data)


def test_a_result_that_is_nested_to_the_limit_is_read() -> None:
    assert read(document(result=nested(MAX_DEPTH))).result == nested(MAX_DEPTH)


def test_a_number_with_too_many_digits_says_so() -> None:
    assert "too many digits" in fault(b'{"status": "SUCCESS", "result": ' + b"9" * 5000 + b"}")


def test_on_a_stack_that_is_nearly_full_nothing_is_raised() -> None:
    data = document(result=nested(50), children=[["a", [["b", [["c", None]]]]]])

    def deeper() -> ResultMeta:
        try:
            return deeper()
        except RecursionError:
            return read(data)

    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(400)
        meta = deeper()
    finally:
        sys.setrecursionlimit(limit)

    assert meta.fault == "" or "deep" in meta.fault
