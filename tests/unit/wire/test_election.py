"""What nodes say to each other in an election: read as it was written, or not at all."""

import json
from typing import Any

import pytest

from celeriac.errors import CallerError, PeerError
from celeriac.model.election import Ack, Candidate, Elect, Elected, Election, Message, Mode, Resigned
from celeriac.model.events import Event
from celeriac.wire.election import (
    MAX_ACTION_BYTES,
    ack_fields,
    candidate_name,
    check_election,
    elect_fields,
    elected_fields,
    read_election,
    read_message,
    resign_fields,
    worker_mode,
)
from celeriac.wire.event import Gate
from tests.builders import AT

NAME = "w1@web.7"


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def heard(kind: str, fields: dict[str, Any], **more: Any) -> Event:
    """Return an event as a peer hears it: written as JSON, and read at the gate."""
    spelled = {"type": kind, "hostname": "w1@web", "pid": 7, "clock": 5, "timestamp": AT, "utcoffset": 0}
    gate = Gate()
    events = gate.decode(json.dumps({**spelled, **fields, **more}).encode(), AT)
    assert len(events) == 1, gate.refused
    return events[0]


ACTIONS = [
    None,
    True,
    "text",
    "naïve \u202e \x00",
    7,
    -(2**63),
    1.5e300,
    {"task": "shop.pay", "args": [1, [2]], "kwargs": {"é": None}, "options": {}},
    "x" * (MAX_ACTION_BYTES - 2),
    [0] * 1000,
    nested(30),
]


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: repr(action)[:20])
def test_who_stands_is_heard_with_the_very_action(action: object, mode: Mode) -> None:
    election = Election("e1", "task", action, mode)

    message = read_message(heard("worker-elect", elect_fields(election, owner="w1@web.7.abc")))

    check_election(election)
    assert message == Elect(election, Candidate(5, NAME))


def test_an_acknowledgement_names_who_was_heard() -> None:
    message = read_message(heard("worker-elect-ack", ack_fields("e1", candidate="w2@web.8", known=3)))

    assert message == Ack("e1", NAME, "w2@web.8")


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (
            "cluster-elected",
            elected_fields(Elected("e1", "w1@web.7.abc", 9, 30.0), winner="w1@web"),
            Elected("e1", "w1@web.7.abc", 9, 30.0),
        ),
        (
            "cluster-resign",
            resign_fields(Resigned("e1", "w1@web.7.abc", 9)),
            Resigned("e1", "w1@web.7.abc", 9),
        ),
    ],
)
def test_who_won_and_who_resigned_is_heard(kind: str, fields: dict[str, Any], message: Message) -> None:
    assert read_message(heard(kind, fields)) == message


def test_a_worker_of_celery_is_heard_as_one_that_asks_nobody() -> None:
    fields = {"id": "e1", "topic": "task", "action": {"task": "t"}, "cver": 1, "mode": "takeover"}

    elect = read_message(heard("worker-elect", fields))
    ack = read_message(heard("worker-elect-ack", {"id": "e1", "cand": "w9@web.9"}))

    assert elect == Elect(Election("e1", "task", {"task": "t"}), Candidate(5, NAME), is_ours=False)
    assert ack == Ack("e1", NAME, "")


@pytest.mark.parametrize("clock", [None, "abc", -1, 2**70])
def test_a_clock_that_is_none_makes_no_fault(clock: object) -> None:
    message = read_message(heard("worker-elect", {"id": "e1", "topic": "task"}, clock=clock))

    assert isinstance(message, Elect)
    assert message.candidate.clock == 0


def test_a_candidate_without_a_process_has_a_name() -> None:
    assert candidate_name("w1@web", None) == "w1@web.0"


ODD_NAMES: list[object] = [None, 7, "", "a\nb", "x" * 256, ["e1"], {}, "\ud800", True, 1.5]


@pytest.mark.parametrize("odd", [*ODD_NAMES, "x" * 181, "é" * 128], ids=lambda odd: repr(odd)[:20])
def test_an_id_that_is_none_is_refused(odd: object) -> None:
    with pytest.raises(PeerError):
        read_election({"id": odd, "topic": "task"})
    with pytest.raises(CallerError, match="180 printable"):
        check_election(Election(odd, "task"))  # type: ignore[arg-type]


@pytest.mark.parametrize("odd", ODD_NAMES, ids=lambda odd: repr(odd)[:20])
def test_a_topic_that_is_none_is_refused(odd: object) -> None:
    with pytest.raises(PeerError):
        read_election({"id": "e1", "topic": odd})
    with pytest.raises(CallerError, match="topic"):
        check_election(Election("e1", odd))  # type: ignore[arg-type]


ODD_ACTIONS = [
    object(),
    float("nan"),
    [float("inf")],
    {1: 2},
    {("a",): 1},
    b"bytes",
    {1, 2},
    2**63 + 1,
    "\ud800",
    {"\udfff": 1},
    [0] * 1001,
    nested(31),
    nested(5000),
]


@pytest.mark.parametrize("action", ODD_ACTIONS, ids=lambda action: str(type(action)))
def test_an_action_that_would_not_arrive_as_it_is_is_refused(action: object) -> None:
    with pytest.raises(PeerError):
        read_election({"id": "e1", "topic": "task", "action": action})
    with pytest.raises(
        CallerError, match="an election action is JSON: strings, numbers of up to 64 bits, lists"
    ):
        check_election(Election("e1", "task", action))


def test_an_action_that_is_too_long_is_refused() -> None:
    action = "x" * MAX_ACTION_BYTES

    with pytest.raises(PeerError):
        read_election({"id": "e1", "topic": "task", "action": action})
    with pytest.raises(CallerError, match="store it elsewhere and send a reference"):
        check_election(Election("e1", "task", action))


@pytest.mark.parametrize("mode", ["", "always", None, 7, ["once"], {}])
def test_a_mode_that_is_none_is_refused(mode: object) -> None:
    with pytest.raises(PeerError):
        read_election({"id": "e1", "topic": "task", "mode": mode})
    with pytest.raises(CallerError, match="once or takeover"):
        worker_mode(mode)  # type: ignore[arg-type]


def test_workers_hold_no_lease() -> None:
    assert [worker_mode("once"), worker_mode("takeover")] == [Mode.ONCE, Mode.TAKEOVER]
    with pytest.raises(CallerError, match=r"app\.leadership"):
        worker_mode("lease")


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("worker-elect", {"id": "e1"}),
        ("worker-elect", {"id": "e1", "topic": "task", "x": 2}),
        ("worker-elect", {"id": "e1", "topic": "task", "x": 2, "mode": "always"}),
        ("worker-elect-ack", {}),
        ("cluster-elected", {"eid": "e1", "inc": "o", "token": True, "expires_in": 1}),
        ("cluster-elected", {"eid": "e1", "inc": "o", "token": -1, "expires_in": 1}),
        ("cluster-elected", {"eid": "e1", "inc": "o", "token": 2**63, "expires_in": 1}),
        ("cluster-elected", {"eid": "e1", "inc": "o", "token": 1.0, "expires_in": 1}),
        ("cluster-elected", {"eid": "e1", "inc": "o", "token": 1, "expires_in": -1}),
        ("cluster-elected", {"eid": "e1", "inc": "o", "token": 1, "expires_in": 1e9}),
        ("cluster-elected", {"eid": "e1", "inc": "o", "token": 1, "expires_in": 2**62}),
        ("cluster-elected", {"eid": "e1", "inc": "o", "token": 1, "expires_in": "soon"}),
        ("cluster-elected", {"eid": "e1", "inc": "", "token": 1, "expires_in": 1}),
        ("cluster-resign", {"resource": "e1", "owner": 7, "token": 1}),
        ("cluster-resign", {"resource": "e1", "owner": "o"}),
        ("worker-else", {"id": "e1", "topic": "task"}),
    ],
)
def test_what_cannot_be_read_is_refused(kind: str, fields: dict[str, Any]) -> None:
    with pytest.raises(PeerError):
        read_message(heard(kind, fields))
