"""Structured fuzz: messages of elections broken in every way, to a node that must not fall, grow or act."""

import json
import os
from collections.abc import Iterator
from itertools import count
from random import Random
from time import monotonic
from typing import Any

import pytest

from celeriac.core.elections import MAX_ELECTIONS
from celeriac.model.message import Message
from celeriac.worker.worker import Worker
from tests.builders import nested
from tests.builders import worker as worker_event
from tests.component.worker.hall import TOPIC, Hall
from tests.component.worker.kit import come_true

IS_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
MANY = 20_000 if IS_LONG else 6_000
SEED = 6

KINDS = ("worker-elect", "worker-elect-ack", "cluster-elected", "cluster-resign")
#: What a sound message of any kind has.
SOUND: dict[str, Any] = {
    "id": "e1", "topic": TOPIC, "action": {"task": "evil.run"}, "cver": 1, "x": 2, "mode": "once",
    "cand": "w1@lab.7", "known": 2, "eid": "e1", "inc": "w2@lab.8.abc", "owner": "w2@lab.8.abc",
    "resource": "e1", "winner": "w2@lab", "token": 3, "expires_in": 30.0,
}  # fmt: skip
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2, 3.5, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, 10**40, -(10**40), 1e308,
    -1e308, float("nan"), float("inf"), "", " ", "e1", "x" * 181, "x" * 300, "x" * 70_000, "a\nb", "\x00",
    "\ud800", "\u202e", "é" * 200, "once", "takeover", "lease", "task", TOPIC, "w1@lab", [], [1], {},
    {"task": "evil.run"}, {"task": "evil.run", "options": {"link": [{"task": "evil.run"}]}}, {"id": "e1"},
    [0] * 3000, {f"k{number}": number for number in range(1500)}, nested(31), nested(40),
]  # fmt: skip
HOSTS = ["w1@lab", "w2@lab", "c1@lab", "c2@lab", "é@lab"]


def messages(random: Random) -> Iterator[bytes]:
    """Yield messages without end: sound ones, broken ones, repeated ones, and much that is none."""
    fresh = count()
    said: list[bytes] = [b"{}"]
    while True:
        fields = dict(SOUND)
        if random.random() < 0.7:
            id_ = f"f{next(fresh)}" if random.random() < 0.5 else f"e{random.randrange(20)}"
            fields |= {"id": id_, "eid": id_, "resource": id_}
        if random.random() < 0.3:
            del fields["x"]  # as Celery's say it
        for name in random.sample(sorted(fields), random.choice([0, 0, 1, 1, 2, 5])):
            if random.random() < 0.3:
                del fields[name]
            else:
                fields[name] = random.choice(ODD)
        about = {
            "hostname": random.choice(HOSTS),
            "pid": random.choice([7, 8, None, "x"]),
            "clock": random.choice(ODD[:18]),
        }
        event = worker_event("x", **about) | {"type": random.choice(KINDS)} | fields
        body = json.dumps(event if random.random() < 0.9 else [event, event]).encode()
        if random.random() < 0.02:
            body = body[: random.randrange(len(body))]
        if random.random() < 0.1:
            body = random.choice(said)
        said = [*said[-50:], body]
        yield body


def tell(worker: Worker, body: bytes) -> None:
    worker.gossip.receive(Message(body))


@pytest.mark.parametrize("mixed", ["follow", "refuse"])
def test_malformed_messages_neither_fell_a_node_nor_fill_it_nor_make_it_act(mixed: str) -> None:
    hall = Hall(1, election_mixed=mixed)
    (worker,) = hall.workers
    elector = worker.parts.elector
    told = messages(Random(SEED))
    now = monotonic()

    for number in range(MANY):
        tell(worker, next(told))
        if number % 1000 == 0:
            now += 0.7  # longer than a nomination
            elector.tick(now)
    elector.tick(now + 60)

    assert len(elector.elections.all) <= MAX_ELECTIONS
    assert hall.acted == []
    assert [each for each in hall.arbiter.asked if each != "look"] == []
    assert elector.tick(now + 3600) == float("inf")
    elector.tick(now + 3600)
    assert len(elector.elections.all) == 0
    elector.close(0)


def test_an_election_can_be_held_after_all_that() -> None:
    hall = Hall(1)
    (worker,) = hall.workers
    told = messages(Random(SEED))
    for _ in range(MANY // 6):
        tell(worker, next(told))

    with hall.running():
        hall.call("sound")
        assert come_true(lambda: hall.is_over("sound"))

    assert hall.winners("sound") == ["w1@lab"]


def test_malformed_commands_are_refused_and_harm_nothing() -> None:
    hall = Hall(1)
    (worker,) = hall.workers
    mailbox, random = worker.parts._mailbox(lambda: None), Random(SEED)

    for _ in range(MANY // 4):
        arguments = {name: random.choice(ODD) for name in ("id", "topic", "action", "mode", "more")}
        for name in random.sample(sorted(arguments), random.randrange(4)):
            del arguments[name]
        body = json.dumps({"method": "election", "arguments": arguments, "destination": None}).encode()
        mailbox.receive(Message(body))

    # What is sound among them stands for itself: nothing of it is named in election_actions.
    stood = worker.parts.elector.elections.all.values()
    assert {each.election.topic for each in stood if each.phase.value != "observing"} <= {TOPIC}
    assert len(stood) <= len(ODD)
    assert hall.acted == []
    worker.parts.elector.close(0)
