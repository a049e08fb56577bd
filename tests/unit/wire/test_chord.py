"""The parts of chords, as Celery spells them."""

import json
from typing import Any

import pytest

from celeriac.errors import PeerError
from celeriac.model.chord import ChordPart, Gathered
from celeriac.model.result import Failure, Json
from celeriac.wire.chord import body_ids, chord_error, chord_keys, encode_part, join, part_names
from celeriac.wire.compression import pack

MIB = 1024 * 1024
FAILED = (
    b'[1, "t2", "FAILURE", {"exc_type": "ValueError", "exc_message": ["planned"], "exc_module": "builtins"}]'
)


def part(task_id: str = "t1", group_index: int | None = 0, result: bytes = b"3") -> ChordPart:
    return ChordPart("g1", group_index, task_id, "SUCCESS", Json(result))


def joined(*parts: bytes, header: bytes | None = None) -> Any:
    return json.loads(join(Gathered(list(parts), header), max_bytes=MIB))


def returned(task_id: str, value: object) -> bytes:
    return json.dumps([1, task_id, "SUCCESS", value]).encode()


def signature(task_id: str | None = None, kind: str | None = None, **fields: Any) -> dict[str, Any]:
    options = {"task_id": task_id, **fields.pop("options", {})}
    return {"task": "t", "args": [], "kwargs": fields, "options": options, "subtask_type": kind}


# -- keys and names


def test_the_keys_of_a_group_are_celerys() -> None:
    keys = chord_keys("g1", "prefix_")

    assert set(keys) == {f"prefix_celery-taskset-meta-g1{end}" for end in ("", ".j", ".t", ".s", ".d", ".c")}
    assert (keys.parts[-2:], keys.size[-2:], keys.correction[-2:]) == (".j", ".s", ".t")


def test_a_part_is_known_by_its_task_and_its_place() -> None:
    assert part_names(part("t1", 7))[:2] == ("7", "t1:7")
    assert part_names(part("t1", None))[:2] == ("+inf", "t1:+inf")


def test_the_claim_of_a_part_is_its_own_and_the_same_each_time() -> None:
    token = part_names(part("t1", 7)).token

    assert token == part_names(part("t1", 7, b"another result")).token
    assert token not in {"done", part_names(part("t1", 8)).token, part_names(part("t2", 7)).token}


# -- parts


def test_a_part_is_spelled_as_celery_spells_it() -> None:
    assert json.loads(encode_part(part("é", result=b'{"a": [1]}'))) == [1, "é", "SUCCESS", {"a": [1]}]


def test_parts_are_joined_in_the_order_given() -> None:
    assert joined(encode_part(part(result=b'"b"')), returned("t2", {"a": 1}), returned("t3", None)) == [
        "b",
        {"a": 1},
        None,
    ]


def test_a_group_without_tasks_gives_an_empty_list() -> None:
    assert joined() == []


def test_what_python_alone_can_read_is_joined() -> None:
    text = join(Gathered([b'[1, "t1", "SUCCESS", [NaN, "\\ud800"]]']), max_bytes=MIB)

    assert text == b'[[NaN, "\\ud800"]]'


def test_a_part_may_be_compressed() -> None:
    assert joined(pack(returned("t1", 3), "gzip")) == [3]


def test_a_value_that_kombu_has_a_spelling_for_stays_as_it_is() -> None:
    value = {"__type__": "datetime", "__value__": "2026-11-15T00:00:00+00:00"}

    assert joined(returned("t1", value)) == [value]


@pytest.mark.parametrize(
    "odd",
    [
        b"",
        b"x",
        b"{}",
        b"[1]",
        b'[1, "t", "SUCCESS", 3, 4]',
        b"\x80\x04N.",
        b"[" * 5000,
        b"\xff",
        b"x" * (MIB + 1),
    ],
)
def test_a_part_that_cannot_be_read_fails_the_chord(odd: bytes) -> None:
    with pytest.raises(PeerError, match=r"Join error: a result is (longer|not JSON)"):
        joined(returned("t1", 3), odd)


def test_a_part_that_is_packed_too_tightly_fails_the_chord() -> None:
    bomb = pack(returned("t1", "x" * (2 * MIB)), "gzip")

    with pytest.raises(PeerError, match="result_max_bytes"):
        joined(bomb)


def test_a_part_that_failed_fails_the_chord_in_celerys_words() -> None:
    with pytest.raises(PeerError, match=r"^Dependency t2 raised ValueError\('planned'\)$"):
        joined(returned("t1", 3), FAILED)


@pytest.mark.parametrize(
    ("arguments", "told"), [([], "E()"), (["a", 7], "E('a', 7)"), ([["a"]], "E(['a'])"), (None, "E()")]
)
def test_a_failure_is_told_as_python_shows_it(arguments: object, told: str) -> None:
    failed = json.dumps([1, "t1", "REVOKED", {"exc_type": "E", "exc_message": arguments}]).encode()

    with pytest.raises(PeerError) as caught:
        joined(failed)

    assert str(caught.value) == f"Dependency t1 raised {told}"


# -- headers with groups in them


def saved(*members: Any) -> bytes:
    return json.dumps({"result": [["g1", None], list(members)]}).encode()


def test_a_nested_header_gives_a_nested_list() -> None:
    header = saved([["inner", None], [[["t1", None], None], [["t2", None], None]]], [["t3", None], None])

    assert joined(returned("t3", 3), returned("t1", 1), returned("t2", 2), header=header) == [[1, 2], 3]


def test_a_task_of_the_header_without_a_result_fails_the_chord() -> None:
    with pytest.raises(PeerError, match="Join error: no result of task t2"):
        joined(returned("t1", 1), header=saved([["t1", None], None], [["t2", None], None]))


@pytest.mark.parametrize(
    "header", [b"", b"x", b"[]", b"{}", b'{"result": 3}', b'{"result": [["t1", null], null]}']
)
def test_a_header_that_cannot_be_read_fails_the_chord(header: bytes) -> None:
    with pytest.raises(PeerError, match="cannot read the chord header"):
        joined(returned("t1", 1), header=header)


# -- when it fails


def test_the_failure_of_a_body_is_the_one_that_celerys_clients_know() -> None:
    assert chord_error("why") == Failure("ChordError", ("why",), "celery.exceptions")


def test_a_long_reason_is_cut() -> None:
    (reason,) = chord_error("x" * 100_000).exc_args

    assert isinstance(reason, str)
    assert len(reason) == 10_000


def test_a_body_of_one_task_has_its_id() -> None:
    assert body_ids(signature("b1")) == ["b1"]


def test_of_a_group_its_members_fail_and_not_the_group() -> None:
    assert body_ids(signature("g2", "group", tasks=[signature("a"), signature("b")])) == ["a", "b"]


def test_what_is_chained_behind_a_body_fails_too() -> None:
    assert body_ids(signature("b1", options={"chain": [signature("c2"), signature("c1")]})) == [
        "b1",
        "c2",
        "c1",
    ]


def test_the_tasks_of_a_chain_and_the_body_of_a_chord_fail() -> None:
    inner = signature(None, "chord", header=[signature("h")], body=signature("b1"))

    assert body_ids(signature(None, "chain", tasks=[signature("a"), inner])) == ["a", "b1"]


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"options": 3},
        {"options": {"task_id": 7}},
        {"options": {"chain": "x"}},
        {"subtask_type": "group"},
        {"options": {"task_id": ""}},
    ],
)
def test_a_body_without_ids_has_none(odd: dict[str, Any]) -> None:
    assert body_ids(odd) == []


def test_a_body_that_is_nested_without_end_is_cut() -> None:
    body = signature("0")
    for number in range(1, 1000):
        body = signature(str(number), "chain", tasks=[body])

    assert len(body_ids(body)) == 51
