"""The bodies of tasks: arguments, and what follows when a task has ended."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from kombu.utils import json as kombu_json

from celeriac.errors import CallerError, PeerError
from celeriac.model.task_request import Arguments
from celeriac.wire.task_request import read_body, spell_body

SIGNATURE: dict[str, Any] = {
    "task": "shop.thank",
    "args": [],
    "kwargs": {},
    "options": {},
    "subtask_type": None,
    "immutable": False,
}


@pytest.mark.parametrize(
    "arguments",
    [
        Arguments((), {}),
        Arguments((1, "two", None, [3.5]), {"four": {"five": True}}),
        Arguments((datetime(2026, 11, 15, tzinfo=UTC), UUID(int=1), Decimal("1.5"), b"\xff"), {}),
        Arguments((1,), {}, (SIGNATURE,), (SIGNATURE, SIGNATURE), (SIGNATURE,), SIGNATURE),
        Arguments((10**30,), {}),
        Arguments(([[n] for n in range(500)],), {}),
    ],
    ids=["none", "plain", "marked", "followed", "huge-number", "many"],
)
def test_what_was_written_is_read_as_it_was(arguments: Arguments) -> None:
    body = spell_body(arguments)

    assert read_body(body) == arguments


def test_celery_reads_what_we_write() -> None:
    at = datetime(2026, 11, 15, tzinfo=UTC)
    body = spell_body(Arguments((UUID(int=1), "ü"), MappingProxyType({"at": at})))

    args, kwargs, follows = kombu_json.loads(body)

    assert (args, kwargs) == ([UUID(int=1), "ü"], {"at": at})
    assert follows == {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


def test_numbers_that_only_python_spells_are_read() -> None:
    args = read_body(b'[[NaN, Infinity, "\\ud800"], {}, null]').args

    assert repr(args) == r"(nan, inf, '\ud800')"


def test_that_nothing_follows_may_be_said_in_every_way() -> None:
    assert read_body(b"[[], {}, null]") == read_body(b"[[], {}, {}]") == Arguments((), {})


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "body"),
        (b"\x80\x04K\x01.", "body"),
        (b"{}", "arguments"),
        (b"[[], {}]", "arguments"),
        (b"[{}, {}, {}]", "arguments"),
        (b"[[], [], {}]", "arguments"),
        (b"[[], {}, []]", "arguments"),
        (b'[[], {}, {"callbacks": [1]}]', "arguments"),
        (b'[[], {}, {"chain": {}}]', "arguments"),
        (b'[[], {}, {"chord": 1}]', "arguments"),
        (b"[" * 100_000, "body-depth"),
        (b"[[" + b"[" * 300 + b"]" * 300 + b"], {}, {}]", "body-depth"),
    ],
)
def test_a_body_that_is_none_is_refused_with_the_reason(body: bytes, reason: str) -> None:
    with pytest.raises(PeerError) as caught:
        read_body(body)

    assert str(caught.value) == reason


def test_what_json_cannot_hold_is_told_with_a_way_out() -> None:
    with pytest.raises(CallerError, match="object is not JSON serializable: use strings, numbers, lists and"):
        spell_body(Arguments((object(),), {}))


def test_a_body_is_json_for_everybody() -> None:
    assert json.loads(spell_body(Arguments(("ü",), {}))) == [
        ["ü"],
        {},
        {"callbacks": None, "errbacks": None, "chain": None, "chord": None},
    ]
