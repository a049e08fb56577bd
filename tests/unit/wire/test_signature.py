"""Signatures, in the dicts that Celery writes."""

from typing import Any

import pytest

from celeriac.errors import PeerError
from celeriac.model.signature import TaskSignature
from celeriac.wire.signature import MAX_MEMBERS, members_of, read_signature, spell_signature

#: As Celery spells ``add.si(1).set(queue="slow")``.
SPELLED: dict[str, Any] = {
    "task": "shop.add",
    "args": [1],
    "kwargs": {"y": 2},
    "options": {"queue": "slow"},
    "subtask_type": None,
    "immutable": True,
}


def test_a_signature_of_celerys_is_read_and_written_as_it_was() -> None:
    signature = read_signature(SPELLED)

    assert signature == TaskSignature("shop.add", (1,), {"y": 2}, {"queue": "slow"}, None, True)
    assert spell_signature(signature) == SPELLED


def test_what_is_left_out_is_empty() -> None:
    assert read_signature({"task": "shop.add", "args": None}) == TaskSignature("shop.add", (), {}, {})


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"task": 1},
        {"task": "a\nb"},
        {"task": "x", "args": {"a": 1}},
        {"task": "x", "kwargs": [1]},
        {"task": "x", "options": "queue"},
        {"task": "x", "kwargs": {1: 2}},
        {"task": "x", "subtask_type": "g" * 100},
    ],
)
def test_what_is_no_signature_is_refused(value: object) -> None:
    with pytest.raises(PeerError, match="signature"):
        read_signature(value)


def test_the_members_of_a_group_are_signatures() -> None:
    group = TaskSignature("celery.group", (), {"tasks": [SPELLED, SPELLED]}, {}, "group")

    assert [each.task for each in members_of(group)] == ["shop.add", "shop.add"]


@pytest.mark.parametrize("tasks", [None, "tasks", [1], [SPELLED] * (MAX_MEMBERS + 1)], ids=type)
def test_a_group_of_something_else_or_of_too_many_is_refused(tasks: object) -> None:
    with pytest.raises(PeerError, match="signature"):
        members_of(TaskSignature("celery.group", (), {"tasks": tasks}, {}, "group"))
