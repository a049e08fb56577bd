"""What is known of a result becomes rows for people, and exact values for programs."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import pytest

from celeriac.model.result import Failure, ResultMeta, ResultTree
from celeriac.views.result import result_dict, result_rows
from celeriac.views.text import json_text

HOSTILE = "\x1b[31m\r\u202ex"
ALL = "ask for all"
MOMENT = datetime(2026, 11, 15, 9, tzinfo=UTC)


def rows(meta: ResultMeta) -> dict[str, list[str]]:
    return {row.name: row.lines for row in result_rows(meta, how_to_see_all=ALL)}


# -- for people


def test_a_success_is_told_with_its_value_and_when_it_ended() -> None:
    meta = ResultMeta("t1", "SUCCESS", {"sum": 3}, date_done="2026-11-15T09:12:46+00:00")

    assert rows(meta) == {
        "task": ["t1"],
        "state": ["SUCCESS"],
        "value": ['{"sum": 3}'],
        "ended": ["2026-11-15T09:12:46+00:00"],
    }


def test_nothing_is_a_value_too() -> None:
    assert rows(ResultMeta("t1", "SUCCESS", None))["value"] == ["null"]


def test_pending_is_told_as_what_it_means() -> None:
    told = rows(ResultMeta("t1", "PENDING"))

    assert set(told) == {"task", "state"}
    assert told["state"][0].startswith("PENDING: no result stored for this id")


def test_a_failure_is_told_with_class_message_and_trace() -> None:
    failure = Failure("CardError", ("declined", 51), "shop.errors")
    meta = ResultMeta("t1", "FAILURE", failure, 'Traceback:\n\tFile "a", line 1\nCardError: declined\n')

    told = rows(meta)

    assert told["error"] == ["shop.errors.CardError"]
    assert told["message"] == ["declined, 51"]
    assert told["traceback"] == ["Traceback:", '        File "a", line 1', "CardError: declined"]


def test_a_class_of_python_is_told_without_its_module() -> None:
    meta = ResultMeta("t1", "RETRY", Failure("ValueError", (), "builtins"))

    assert rows(meta)["error"] == ["ValueError"]
    assert "message" not in rows(meta)


def test_what_cannot_be_read_is_told_with_the_reason() -> None:
    meta = ResultMeta("t1", "", fault="it is pickle: set result_serializer to json")

    assert rows(meta) == {
        "task": ["t1"],
        "state": ["unreadable result"],
        "reason": ["it is pickle: set result_serializer to json"],
    }


def test_children_are_told_by_their_ids_and_groups_by_their_size() -> None:
    group = ResultTree("g1", members=(ResultTree("m1"), ResultTree("m2")))
    meta = ResultMeta("t1", "SUCCESS", 1, children=(ResultTree("c1"), group))

    assert rows(meta)["children"] == ["c1", "g1, a group of 2"]


def test_what_workers_store_beside_the_result_is_told() -> None:
    meta = ResultMeta(
        "t1",
        "SUCCESS",
        1,
        parent_id="p1",
        group_id="g1",
        name="shop.pay",
        args=[17],
        kwargs={},
        worker="w1@web",
        retries=0,
        queue="fast",
    )

    told = rows(meta)

    assert told["name"] == ["shop.pay"]
    assert (told["args"], told["kwargs"]) == (["[17]"], ["{}"])
    assert (told["worker"], told["queue"], told["retries"]) == (["w1@web"], ["fast"], ["0"])
    assert (told["parent"], told["group"]) == (["p1"], ["g1"])


def test_a_long_value_is_indented_and_cut_with_a_word_on_how_to_see_all() -> None:
    told = rows(ResultMeta("t1", "SUCCESS", list(range(500))))["value"]

    assert told[:2] == ["[", "  0,"]
    assert len(told) == 51
    assert told[-1] == f"… and 452 lines more; {ALL}"


def test_a_wide_value_is_cut_with_a_word_on_how_to_see_all() -> None:
    told = rows(ResultMeta("t1", "SUCCESS", "x" * 5000))["value"]

    assert len(told[0]) == 200
    assert told[1:] == [f"… cut; {ALL}"]


def test_many_children_and_a_long_trace_are_cut() -> None:
    children = tuple(ResultTree(f"c{number}") for number in range(30))
    meta = ResultMeta("t1", "FAILURE", Failure("E"), "line\n" * 1000, children)

    told = rows(meta)

    assert told["children"][-1] == f"… and 10 lines more; {ALL}"
    assert told["traceback"][-1] == f"… and 800 lines more; {ALL}"


@pytest.mark.parametrize(
    "meta",
    [
        ResultMeta(HOSTILE, HOSTILE, {HOSTILE: [HOSTILE]}, HOSTILE, (ResultTree(HOSTILE),), HOSTILE),
        ResultMeta("t1", "FAILURE", Failure(HOSTILE, (HOSTILE, [HOSTILE]), HOSTILE), HOSTILE),
        ResultMeta("t1", "", fault=HOSTILE),
        ResultMeta("t1", "SUCCESS", HOSTILE, name=HOSTILE, args=HOSTILE, kwargs={HOSTILE: 1}, worker=HOSTILE),
        ResultMeta("t1", "SUCCESS", 1, parent_id=HOSTILE, group_id=HOSTILE, queue=HOSTILE),
    ],
)
def test_hostile_text_in_a_result_is_made_visible(meta: ResultMeta) -> None:
    assert all(line.isprintable() for lines in rows(meta).values() for line in lines)


def test_one_line_stands_beside_its_name_and_more_below_it() -> None:
    state, value = result_rows(ResultMeta("t1", "SUCCESS", ["x" * 90, 1]), how_to_see_all=ALL)[1:]

    assert state.text(6) == "state   SUCCESS"
    assert value.text(6) == f'value\n  [\n    "{"x" * 90}",\n    1\n  ]'


# -- for programs


def test_programs_get_every_field_and_the_value_as_it_is() -> None:
    meta = ResultMeta(
        "t1", "SUCCESS", {"a": [1, 2.5, None, True, "é"]}, date_done="2026-11-15T09:12:46+00:00"
    )

    assert result_dict(meta) == {
        "task_id": "t1",
        "state": "SUCCESS",
        "ready": True,
        "result": {"a": [1, 2.5, None, True, "é"]},
        "traceback": None,
        "date_done": "2026-11-15T09:12:46+00:00",
        "children": [],
        "parent_id": None,
        "group_id": None,
        "fault": None,
    }


def test_programs_get_an_exception_as_celery_stores_it() -> None:
    meta = ResultMeta("t1", "FAILURE", Failure("CardError", ("declined", 51), "shop.errors"), "Trace")

    told = result_dict(meta)

    assert told["result"] == {
        "exc_type": "CardError",
        "exc_message": ["declined", 51],
        "exc_module": "shop.errors",
    }
    assert told["traceback"] == "Trace"


def test_programs_get_no_state_of_what_cannot_be_read() -> None:
    told = result_dict(ResultMeta("t1", "", fault="it is pickle"))

    assert (told["state"], told["ready"], told["fault"]) == (None, True, "it is pickle")


def test_programs_get_children_with_their_parents_and_members() -> None:
    tree = ResultTree("c1", ResultTree("p1"), (ResultTree("m1"),))

    told = result_dict(ResultMeta("t1", "SUCCESS", 1, children=(tree,)))

    assert told["children"] == [{"id": "c1", "parent": {"id": "p1"}, "members": [{"id": "m1"}]}]


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        (MOMENT, {"__type__": "datetime", "__value__": "2026-11-15T09:00:00+00:00"}),
        (date(2026, 11, 15), {"__type__": "date", "__value__": "2026-11-15"}),
        (time(9, 30), {"__type__": "time", "__value__": "09:30:00"}),
        (Decimal("1.50"), {"__type__": "decimal", "__value__": "1.50"}),
        (UUID(int=7), {"__type__": "uuid", "__value__": {"hex": f"{7:032x}"}}),
        (b"raw", {"__type__": "bytes", "__value__": "raw"}),
        (b"\xff", {"__type__": "base64", "__value__": "/w=="}),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (2**70, 2**70),
        ((1, 2), [1, 2]),
        ({1: 2}, {"1": 2}),
        (1j, "1j"),
    ],
)  # fmt: skip
def test_what_json_cannot_hold_is_spelled_as_kombu_does_or_as_text(value: object, spelled: object) -> None:
    told = result_dict(ResultMeta("t1", "SUCCESS", [value]))

    assert told["result"] == [spelled]
    assert json.loads(json_text(told), parse_constant=pytest.fail)["result"] == [spelled]
