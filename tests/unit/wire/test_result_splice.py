"""Documents around a result that is spelled already."""

import json

import pytest

from celeriac.errors import CallerError
from celeriac.model.result import Failure, Json, ResultMeta, ResultTree
from celeriac.wire.compression import is_packed
from celeriac.wire.result import decode, encode, encode_many
from celeriac.wire.text import CUT_MARK
from celeriac.wire.value import spell

MIB = 1024 * 1024
FAILURE = Failure("KeyError", ("é", [1]), "builtins")
SPELLED = spell({"exc_type": "KeyError", "exc_message": ["é", [1]], "exc_module": "builtins"})
#: What is written, and the JSON of its result.
METAS = [
    (ResultMeta("t1", "SUCCESS", 3), b"3"),
    (ResultMeta("t1", "SUCCESS", {"a": [1, None, "é", "\ud800", b"\xff"]}), None),
    (ResultMeta("t1", "FAILURE", FAILURE, "Traceback …"), SPELLED),
    (ResultMeta("t1", "RETRY", FAILURE, "half \ud800 of é"), SPELLED),
    (ResultMeta("é", "PROGRESS", None, None, (ResultTree("a", None, (ResultTree("c"),)),)), b"null"),
    (
        ResultMeta(
            "t1", "SUCCESS", [], date_done="2026-11-15", parent_id="p", group_id="g", name="n", args=[b"x"],
            kwargs={"a": 1}, worker="w", retries=0, queue="q",
        ),
        b" [ ] ",
    ),
]  # fmt: skip


def read(document: bytes) -> ResultMeta:
    return decode(document, task_id=None, max_bytes=2 * MIB)


@pytest.mark.parametrize(("meta", "text"), METAS)
def test_a_document_says_the_same_whoever_spelled_its_result(meta: ResultMeta, text: bytes | None) -> None:
    spelled = meta._replace(result=Json(spell(meta.result) if text is None else text))

    document = encode(spelled)

    assert json.loads(document) == json.loads(encode(meta))
    assert list(json.loads(document)) == list(json.loads(encode(meta)))
    assert read(document) == read(encode(meta))


def test_it_begins_with_its_status() -> None:
    document = encode(ResultMeta("t1", "SUCCESS", Json(b"3")))

    assert document.startswith(b'{"status":"SUCCESS","result":3,')


def test_the_result_is_taken_as_it_is() -> None:
    document = encode(ResultMeta("t1", "SUCCESS", Json(b"[1,  NaN]")))

    assert b'"result":[1,  NaN]' in document


def test_it_may_be_compressed() -> None:
    document = encode(ResultMeta("t1", "SUCCESS", Json(b"3")), compression="gzip")

    assert is_packed(document)
    assert read(document).result == 3


def test_a_long_traceback_is_cut() -> None:
    traceback = read(encode(ResultMeta("t1", "FAILURE", Json(SPELLED), "x" * (MIB + 1)))).traceback

    assert traceback is not None
    assert len(traceback) == MIB
    assert traceback.endswith(CUT_MARK)


@pytest.mark.parametrize(
    "meta", [ResultMeta("t1", ""), ResultMeta("", "SUCCESS"), ResultMeta("t1", "x" * 101)]
)
def test_a_result_without_a_task_or_a_status_is_refused(meta: ResultMeta) -> None:
    with pytest.raises(CallerError, match="needs a task id, and a status"):
        encode(meta._replace(result=Json(b"3")))


def test_arguments_without_a_spelling_name_the_task_and_the_fix() -> None:
    with pytest.raises(CallerError, match=r"task t1: set is not JSON serializable: use .*"):
        encode(ResultMeta("t1", "SUCCESS", Json(b"3"), args=({1},)))


def test_of_many_those_that_can_be_spelled_are() -> None:
    metas = [
        ResultMeta("a", "SUCCESS", 1),
        ResultMeta("b", "SUCCESS", {1}),
        ResultMeta("c", "SUCCESS", Json(b"3")),
    ]

    documents, error = encode_many(metas)

    assert [document and read(document).result for document in documents] == [1, None, 3]
    assert "task b" in str(error)
