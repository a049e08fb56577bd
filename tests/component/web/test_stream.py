"""Events as they come, as server-sent events, over a real link."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import httpx
import pytest

from celeriac.model.events import Custom, Extra
from celeriac.web.api import stream
from tests.component.web.kit import PATIENCE, Rig, served

Message = tuple[str, Any]


@contextmanager
def listening(client: httpx.Client, **query: Any) -> Iterator[Iterator[Message]]:
    """Listen, and have messages and comments as they come, for as long as patience lasts."""
    with client.stream("GET", "/api/v1/events", params=query) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        told = _read(answer.iter_lines())
        assert next(told) == ("comment", "listening")
        yield told


def _read(lines: Iterator[str]) -> Iterator[Message]:
    until, kind = monotonic() + PATIENCE, ""
    for line in lines:
        assert monotonic() < until, "what is waited for does not come"
        if line.startswith(": "):
            yield "comment", line[2:]
        elif line.startswith("event: "):
            kind = line[7:]
        elif line.startswith("data: "):
            yield kind, json.loads(line[6:])


def events_of(messages: Iterable[Message]) -> list[dict[str, Any]]:
    return [event for kind, data in messages if kind == "events" for event in data]


def flood(rig: Rig, count: int, **fields: Any) -> None:
    """Have so many events come at once."""
    receive = rig.board.watcher.receiver.on_events
    assert receive is not None
    common: dict[str, Any] = {"uuid": "t1", "subject": "odd", "hostname": "w1@lab", "clock": 1, "pid": 7}
    receive([Custom(**common, timestamp=1.0 + number, **fields) for number in range(count)])


def test_events_are_told_with_their_fields_in_the_order_in_which_they_come(
    rig: Rig, ask: httpx.Client
) -> None:
    with listening(ask, limit=4) as told:
        rig.run_task("t1", kwargs="{'password': 'hunter2'}")
        rig.send("worker-offline")
        events = events_of(told)

    assert [event["type"] for event in events] == [
        "task-received", "task-started", "task-succeeded", "worker-offline",
    ]  # fmt: skip
    assert (events[0]["uuid"], events[0]["hostname"], events[2]["runtime"]) == ("t1", "w1@lab", 0.25)
    assert events[0]["kwargs"] == "{'password': '**'}"


def test_only_events_of_the_types_that_were_asked_for_are_told(rig: Rig, ask: httpx.Client) -> None:
    with listening(ask, type="task-s*", limit=4) as told:
        for number in range(2):
            rig.run_task(f"t{number}")
        events = events_of(told)

    assert [(event["type"], event["uuid"]) for event in events] == [
        ("task-started", "t0"), ("task-succeeded", "t0"), ("task-started", "t1"), ("task-succeeded", "t1"),
    ]  # fmt: skip


def test_it_ends_after_as_many_events_as_were_asked_for_though_more_came(rig: Rig, ask: httpx.Client) -> None:
    with listening(ask, limit=2) as told:
        rig.run_task("t1")
        events = events_of(told)

    assert [event["type"] for event in events] == ["task-received", "task-started"]
    assert ask.get("/api/v1/events", params={"limit": 0}).status_code == 422


@pytest.mark.parametrize(("count", "chars"), [(1000, 0), (60, 20_000)], ids=["too many", "too long"])
def test_what_was_too_much_is_counted_and_nothing_else(rig: Rig, count: int, chars: int) -> None:
    sent, told, overlooked = 0, 0, 0
    with served(rig, keep_alive=0.0) as client, listening(client, type="task-odd") as messages:
        # On a slow machine a flood may come in parts that are each small enough.
        while not overlooked or told + overlooked < sent:
            if told + overlooked == sent:
                flood(rig, count, extra=Extra({"payload": "x" * chars}))
                sent += count
            kind, data = next(messages)
            if kind == "events":
                assert 1 <= len(data) <= 500
                assert len(json.dumps(data)) < 600_000
                told += len(data)
            elif kind == "overlooked":
                overlooked += data

    assert told + overlooked == sent


def test_what_was_left_out_does_not_count_as_told(rig: Rig, ask: httpx.Client) -> None:
    with listening(ask, type="task-odd", limit=60) as messages:
        flood(rig, 60, extra=Extra({"payload": "x" * 20_000}))
        told = 0
        for kind, data in messages:
            told += len(data) if kind == "events" else 0
            if kind == "overlooked":
                flood(rig, data)

    assert told == 60


def test_at_most_two_messages_a_second_come_however_many_events_there_are(
    rig: Rig, ask: httpx.Client
) -> None:
    begun_at = monotonic()
    came_at: list[float] = []
    with listening(ask) as messages:
        while len(came_at) < 6:
            flood(rig, 20)
            kind, _ = next(messages)
            if kind == "events":
                came_at.append(monotonic() - begun_at)

    # Each is sent half a second after the one before; how late they come here does not matter.
    assert all(at > 0.5 * number - 0.01 for number, at in enumerate(came_at))


def test_a_stream_without_events_is_not_silent_for_ever(rig: Rig) -> None:
    with served(rig, keep_alive=0.0) as client, listening(client) as messages:
        quiet = [next(messages) for _ in range(2)]
        rig.send("worker-heartbeat")
        kinds = (kind for kind, _ in messages)
        heard = next(kind for kind in kinds if kind != "comment")

    assert quiet == [("comment", "nothing yet")] * 2
    assert heard == "events"
    # A minute is what proxies wait by default.
    assert stream.KEEP_ALIVE <= 30


def test_a_stream_whose_time_has_not_come_says_nothing(rig: Rig) -> None:
    with served(rig, keep_alive=10 * PATIENCE) as client, listening(client, limit=2) as messages:
        rig.send("worker-heartbeat")
        first = next(messages)
        rig.send("worker-heartbeat")
        rest = list(messages)

    assert [kind for kind, _ in (first, *rest)] == ["events", "events"]
