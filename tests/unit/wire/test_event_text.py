"""Text in events: bounded, and always valid Unicode."""

import json

import pytest

from celeriac import Gate, Limits, decode, encode
from celeriac.model.events import Custom, Succeeded
from celeriac.wire.text import CUT_MARK
from tests.builders import DOORS, WORKER, Door, Fields, body, by_bytes, by_dict, only, task, worker

both_doors = pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)


@both_doors
def test_a_long_text_is_cut_and_ends_in_a_marker(door: Door) -> None:
    gate = Gate(Limits(text_chars=100))

    event = only(door(gate, task("succeeded", result="é" * 500)))

    assert isinstance(event, Succeeded)
    assert event.result == "é" * (100 - len(CUT_MARK)) + CUT_MARK


@both_doors
def test_a_text_as_long_as_allowed_is_not_cut(door: Door) -> None:
    gate = Gate(Limits(text_chars=100))

    event = only(door(gate, task("succeeded", result="é" * 100)))

    assert isinstance(event, Succeeded)
    assert event.result == "é" * 100


@both_doors
def test_long_texts_and_names_of_unknown_fields_are_cut(door: Door) -> None:
    gate = Gate(Limits(text_chars=100))

    event = only(door(gate, task("progress", note=["x" * 500], **{"k" * 500: 1})))

    assert event.extra == {"note": ["x" * 94 + CUT_MARK], "k" * 94 + CUT_MARK: 1}


def test_a_traceback_of_a_hundred_thousand_characters_is_cut_at_the_default() -> None:
    gate = Gate()

    event = only(by_bytes(gate, task("failed", traceback="x" * 100_000)))

    assert len(getattr(event, "traceback", "")) == Limits().text_chars


@both_doors
@pytest.mark.parametrize("half", ["\ud800", "a\udfff", "a\udc80b", "\udc00\ud800"])
def test_half_a_surrogate_pair_is_replaced(half: str, door: Door) -> None:
    gate = Gate()

    event = only(door(gate, task("progress" + half, half, hostname=half, note={half: [half]})))

    assert isinstance(event, Custom)
    whole = half.encode("utf-8", "replace").decode()
    assert (event.uuid, event.hostname, event.subject) == (whole, whole, "progress" + whole)
    assert event.extra == {"note": {whole: [whole]}}


@both_doors
@pytest.mark.parametrize(
    ("kind", "name"),
    [("received", "name"), ("succeeded", "result"), ("revoked", "signum"), ("sent", "queue")],
)
def test_half_a_surrogate_pair_in_a_known_field_can_be_written_again(
    kind: str, name: str, door: Door
) -> None:
    gate = Gate()
    event = only(door(gate, task(kind, **{name: "a\ud800"})))

    written = encode(event)

    assert decode(written) == [event]
    assert getattr(event, name) == "a?"


@both_doors
@pytest.mark.parametrize("kind", ["started", "progress"])
def test_half_a_surrogate_pair_in_the_name_of_a_field_is_replaced(kind: str, door: Door) -> None:
    gate = Gate()

    event = only(door(gate, task(kind, **{"a\ud800": 1})))

    assert event.extra == {"a?": 1}


class Text(str):
    """Text of another library's making."""

    __slots__ = ()


@pytest.mark.parametrize("name", ["uuid", "hostname", "name"])
def test_half_a_surrogate_pair_in_a_subclass_of_text_is_replaced(name: str) -> None:
    gate = Gate()

    event = only(by_dict(gate, task("received") | {name: Text("a\ud800")}))

    assert getattr(event, name) == "a?"


def test_a_text_body_with_half_a_surrogate_pair_is_read() -> None:
    text = json.dumps(task("succeeded", result="a\ud800"), ensure_ascii=False)

    (event,) = decode(text)

    assert isinstance(event, Succeeded)
    assert event.result == "a?"


def test_bytes_of_half_a_surrogate_pair_are_read() -> None:
    text = json.dumps(task("succeeded", result="a\ud800"), ensure_ascii=False)

    (event,) = decode(text.encode("utf-8", "surrogatepass"))

    assert isinstance(event, Succeeded)
    assert event.result == "a?"


@pytest.mark.parametrize("wire", [task("started", WORKER), task("progress", WORKER), worker("heartbeat")])
@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xe9", b"\x80"])
def test_bytes_that_are_not_utf_8_are_refused(wire: Fields, bad: bytes) -> None:
    gate = Gate()

    events = gate.decode(body(wire).replace(b"web1", b"web1" + bad))

    assert events == []
    assert dict(gate.refused) == {"json": 1}


def test_bytes_that_are_not_utf_8_harm_no_other_body() -> None:
    gate = Gate()
    gate.decode(b'{"type": "task-started", "hostname": "\xff"}')

    events = gate.decode(body(task("started")))

    assert len(events) == 1
