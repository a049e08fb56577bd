"""Whatever a peer sends as a task, or writes into a signature, is taken or refused, and nothing else."""

import json
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from celeriac.config import Settings
from celeriac.errors import CallerError, PeerError
from celeriac.model.message import Message
from celeriac.model.task_request import Arguments, TaskRequest
from celeriac.node.call_options import CALL_OPTIONS
from celeriac.node.following import after_failure, after_success, chain_ids
from celeriac.wire.task_request import PROTOCOL_HEADERS, argument_text, decode, encode, read_body
from tests.property.effort import COSTLY

MAX_BYTES = 100_000
SETTINGS = Settings()

PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
        max_leaves=10,
    )


JSON_VALUES = nested(PLAIN)
VALUES = nested(PLAIN | st.binary(max_size=20))
#: The words that mean something, so that fuzz gets past the first check.
FOLLOWS = {"callbacks", "errbacks", "chain", "chord"}
WORDS = sorted(PROTOCOL_HEADERS | FOLLOWS | {"args", "kwargs", "taskset", "utc", "stamps", "stamped_headers"})
GOOD = {"task": "shop.pay", "id": "t1"}
HEADERS = st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=8), VALUES, max_size=8)


@COSTLY
@given(HEADERS, st.booleans(), st.binary(max_size=50))
def test_headers_are_taken_or_refused(headers: dict[str, Any], has_names: bool, body: bytes) -> None:
    told = headers | GOOD if has_names else headers

    with suppress(PeerError):
        request = decode(Message(body, headers=told), max_bytes=MAX_BYTES)
        headers_again, _ = encode(request)
        again = decode(Message(body, headers=headers_again), max_bytes=MAX_BYTES)

        assert again._replace(root_id=request.root_id, reply_to="") == request._replace(reply_to="")


@COSTLY
@given(st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=8), JSON_VALUES, max_size=8), st.booleans())
def test_bodies_of_protocol_1_are_taken_or_refused(fields: dict[str, Any], has_names: bool) -> None:
    body = json.dumps(fields | GOOD if has_names else fields).encode()

    with suppress(PeerError):
        request = decode(Message(body), max_bytes=MAX_BYTES)
        assert isinstance(read_body(request.body), Arguments)


@COSTLY
@given(
    st.binary(max_size=100)
    | JSON_VALUES.map(lambda value: json.dumps(value).encode())
    | st.tuples(JSON_VALUES, JSON_VALUES, JSON_VALUES).map(lambda value: json.dumps(value).encode())
)
def test_bodies_are_taken_or_refused(body: bytes) -> None:
    with suppress(PeerError):
        arguments = read_body(body)
        assert isinstance(arguments.args, tuple)
        assert isinstance(arguments.kwargs, dict)


OPTIONS = st.dictionaries(
    st.sampled_from(sorted({*CALL_OPTIONS, "stamped_headers"})), JSON_VALUES, max_size=4
)


def _signature(members: Any) -> Any:
    return st.fixed_dictionaries(
        {"task": st.just("shop.pay") | JSON_VALUES},
        optional={
            "args": JSON_VALUES,
            "kwargs": JSON_VALUES | members.map(lambda tasks: {"tasks": tasks}),
            "options": OPTIONS | JSON_VALUES,
            "subtask_type": st.sampled_from(["group", "chain", "chord", None]) | JSON_VALUES,
            "immutable": JSON_VALUES,
        },
    )


SIGNATURES = st.recursive(_signature(st.just([])), lambda inner: _signature(st.lists(inner, max_size=3)))


@COSTLY
@given(st.lists(SIGNATURES, max_size=3), JSON_VALUES)
def test_signatures_of_peers_are_sent_or_refused(signatures: list[dict[str, Any]], result: object) -> None:
    request = TaskRequest("t1", "shop.pay")
    arguments = Arguments((), {}, tuple(signatures), tuple(signatures), tuple(signatures))

    assert all(isinstance(each, str) for each in chain_ids(arguments))
    with suppress(CallerError):
        for posting in after_success(request, arguments, result, settings=SETTINGS).postings:
            assert decode(Message(*_message(posting.request)), max_bytes=10**9).id == posting.request.id
    with suppress(CallerError):
        after_failure(request, arguments, settings=SETTINGS)


def _message(request: TaskRequest) -> tuple[bytes, str, str, dict[str, object]]:
    headers, body = encode(request)
    return body, "application/json", "utf-8", headers


@COSTLY
@given(VALUES)
def test_any_value_has_a_short_text(value: object) -> None:
    text = argument_text(value)

    assert len(text) <= 1024
    text.encode()
