"""A flood of malformed messages: no crash, no growth, and good events still count."""

import json
import os
import random
from pathlib import Path
from typing import Any

from celeriac import State
from tests.builders import AT, WIRE_EVENTS, Fields, nested, task, worker

SEED = 20_261_115
IS_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
WARM_UP, FLOOD = (20_000, 100_000) if IS_LONG else (8_000, 16_000)
#: How much the process may grow during the flood.
MAX_GROWTH = 0.05

BASES = [*WIRE_EVENTS.values(), task("progress", done=1), worker("elect", id="e1")]
NAMES = [
    "extra",
    "event",
    "id",
    "alive",
    "state",
    "heartbeats",
    "children",
    "uuid",
    "hostname",
    "clock",
    "type",
]
JUNK: list[Any] = [
    None, True, -1, 0.5, 2**53, 2**100, 1e308, float("nan"), float("inf"), "", "abc", "a\ud800", "x" * 300,
    [], {}, [[]], {"a": {"b": [1]}}, [0] * 2000, nested(40), nested(300),
]  # fmt: skip
TOKENS = [
    b"NaN",
    b"\xff",
    b"\xed\xa0\x80",
    b"[",
    b"{",
    b'"',
    b"\\ud800",
    b"9" * 5000,
    b"\x00",
    b"]",
    b"[" * 2000,
]


def malformed(rng: random.Random) -> bytes | str | Fields:
    """Return a message that is broken at least once, as a body or as a dict."""
    event = dict(rng.choice(BASES))
    event["timestamp"] = AT + rng.random()
    if "uuid" in event:
        event["uuid"] = f"{rng.getrandbits(64):016x}"
    if rng.random() < 0.2:
        event["hostname"] = f"w{rng.getrandbits(32)}@h"
    for _ in range(rng.randint(1, 4)):
        name = rng.choice([*event, *NAMES])
        if rng.random() < 0.3:
            event.pop(name, None)
        elif rng.random() < 0.1:
            event[f"{rng.getrandbits(40)}"] = rng.choice(JUNK)
        else:
            event[name] = rng.choice(JUNK)
    if rng.random() < 0.3:
        return event
    body = json.dumps(event if rng.random() < 0.8 else [event, 7, event]).encode()
    if rng.random() < 0.5:
        place = rng.randrange(len(body))
        body = body[:place] + rng.choice([*TOKENS, rng.randbytes(8)]) + body[place + rng.randint(0, 2) :]
    return body.decode("utf-8", "surrogateescape") if rng.random() < 0.1 else body


def pour(state: State, rng: random.Random, *, messages: int) -> None:
    """Feed a state so many malformed messages."""
    for _ in range(messages):
        message = malformed(rng)
        if isinstance(message, dict):
            state.event(message)
        else:
            state.receive(message, received_at=AT)


def resident_bytes() -> int:
    """Return how much memory the process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_flood_of_malformed_messages_neither_crashes_nor_grows_the_process() -> None:
    state = State(max_tasks_in_memory=1000, max_workers_in_memory=100, now=lambda: AT)
    rng = random.Random(SEED)
    pour(state, rng, messages=WARM_UP)
    before = resident_bytes()

    pour(state, rng, messages=FLOOD)

    growth = resident_bytes() / before - 1
    assert growth <= MAX_GROWTH, f"grew by {growth:.1%} with SEED={SEED}"
    assert state.gate.refused.total() > FLOOD / 10
    assert state.gate.mended.total() > FLOOD / 10
    assert (len(state.tasks), len(state.workers)) == (1000, 100)


def test_a_good_event_after_a_flood_is_folded_right() -> None:
    state = State(now=lambda: AT)
    pour(state, random.Random(SEED + 1), messages=2_000)

    state.event(task("succeeded", "good", hostname="good@h", result="42", local_received=AT))

    assert state.tasks["good"].as_dict()["result"] == "42"
    assert state.workers["good@h"].alive
