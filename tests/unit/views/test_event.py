"""An event becomes one line for people, and one object for programs."""

import json
from datetime import UTC
from typing import Any

import pytest

from celeriac import Gate
from celeriac.model.events import Event, Gap
from celeriac.views.event import event_dict, event_line
from celeriac.views.text import json_text
from tests.builders import AT, WIRE_EVENTS, by_dict, only, task, worker

HOSTILE = "\x1b[31m\x9b2J\r\n\u202e[bold]x"


def event(fields: dict[str, Any]) -> Event:
    return only(by_dict(Gate(), fields))


@pytest.mark.parametrize(
    ("type_", "detail"),
    [
        ("task-sent", "to fast, retry 2, not before 2026-11-15T01:30:00+00:00"),
        ("task-received", "retry 2, not before 2026-11-15T01:30:00+00:00"),
        ("task-started", ""),
        ("task-succeeded", "in 125 ms, 42"),
        ("task-failed", "ValueError('x')"),
        ("task-retried", "OSError('y')"),
        ("task-rejected", "given back to the broker"),
        ("task-revoked", "terminated by signal 15"),
        ("worker-online", "1 active, 7 processed, load 2.55, py-celery 5.7.0"),
        ("worker-heartbeat", "1 active, 7 processed, load 2.55, py-celery 5.7.0"),
        ("worker-offline", "1 active, 7 processed, load 2.55, py-celery 5.7.0"),
    ],
)
def test_a_line_tells_what_matters_for_its_type(type_: str, detail: str) -> None:
    line = event_line(event(WIRE_EVENTS[type_]))

    assert line.type == type_
    assert line.detail == detail


def test_a_line_tells_when_where_and_which_task() -> None:
    line = event_line(event(task("started", "3f6c")), "shop.pay", zone=UTC)

    assert str(line) == "00:50:17.250  task-started      celery@web1  shop.pay[3f6c]"


def test_a_task_whose_name_is_not_known_is_shown_by_its_id() -> None:
    assert event_line(event(task("started", "3f6c"))).task == "3f6c"


def test_an_event_that_tells_its_name_needs_nobody_else_to() -> None:
    assert event_line(event(task("received", "3f6c", name="shop.pay"))).task == "shop.pay[3f6c]"


def test_a_task_that_expired_or_was_dropped_says_so() -> None:
    assert event_line(event(task("revoked", expired=True))).detail == "expired"
    assert event_line(event(task("rejected", requeue=False))).detail == "dropped"


def test_an_event_of_an_unknown_type_shows_some_of_its_fields() -> None:
    few = event_line(event(task("progress", done=3, total=9)))
    many = event_line(event(worker("odd") | {f"field{number}": number for number in range(20)}))

    assert few.detail == "done=3, total=9"
    assert many.detail.endswith(", …")


def test_an_event_without_a_time_shows_when_it_came() -> None:
    timeless = event(task("started", timestamp="never"))

    assert event_line(timeless).time == "--:--:--.---"


def test_a_gap_says_what_may_be_missing_and_why() -> None:
    gap = Gap(
        timestamp=AT,
        clock=1,
        hostname="gen1@here",
        since=AT - 9,
        until=AT,
        reason="lost\x1bit",
        attempts=2,
    )

    line = event_line(gap, zone=UTC)

    assert line.type == "cluster-gap"
    assert line.detail == "events from 00:50:08.250 to 00:50:17.250 may be missing: lost\\x1bit"


def test_a_gap_that_a_peer_made_up_does_no_harm() -> None:
    forged = event({**task("x"), "type": "cluster-gap", "since": HOSTILE, "until": [1]})

    assert str(event_line(forged)).isprintable()


@pytest.mark.parametrize("type_", [*WIRE_EVENTS, "task-progress", "odd", "cluster-gap"])
def test_hostile_text_in_any_field_cannot_leave_its_line(type_: str) -> None:
    fields: dict[str, Any] = {**WIRE_EVENTS.get(type_, task("x", **{HOSTILE: HOSTILE})), "type": type_}
    for name, value in fields.items():
        if isinstance(value, str) and name not in ("type", "eta", "expires"):
            fields[name] = HOSTILE

    line = event_line(event(fields), HOSTILE)

    assert str(line).isprintable()
    assert len(str(line)) < 1000


def test_a_hostile_type_is_shown_and_does_nothing() -> None:
    line = event_line(event({**task("x"), "type": f"task-{HOSTILE}"}))

    assert str(line).isprintable()


@pytest.mark.parametrize("type_", WIRE_EVENTS)
def test_json_has_all_that_the_event_says_and_its_type_first(type_: str) -> None:
    fields = event_dict(event(WIRE_EVENTS[type_]))

    assert next(iter(fields)) == "type"
    assert json.loads(json_text(fields)) == WIRE_EVENTS[type_]


def test_json_has_the_fields_of_an_unknown_type() -> None:
    fields = event_dict(event(task("progress", done=3)))

    assert (fields["type"], fields["uuid"], fields["done"]) == ("task-progress", "t1", 3)
