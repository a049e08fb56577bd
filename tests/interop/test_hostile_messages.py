"""Whatever is put on a broker harms no receiver and no node of ours, and each of it is counted.

Every case of ``tests/hostile.py`` is sent for real, byte by byte as it is, to a receiver with a state and to
a mailbox that share one clock. Then an honest event and an honest ping must be served as if nothing had been.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from time import time
from typing import Any

import pytest

from celeriac.app import Celeriac
from celeriac.config import Limits
from celeriac.core.clock import MAX_JUMP
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from celeriac.testing.rabbit import RabbitNode
from celeriac.wire.text import CUT_MARK
from tests.builders import task, worker
from tests.hostile import (
    ASKED,
    CROWD,
    ENVELOPES,
    EVENTS,
    EVIL,
    FORBIDDEN_COMMANDS,
    FREQUENCY,
    HEADER_CLOCKS,
    HEARTBEAT,
    INJECTED,
    PROPERTIES,
    REQUESTS,
    TASK_QUEUE,
    beat,
    event,
    stamped,
)
from tests.node import Node
from tests.watcher import PATIENCE, Watcher
from tests.wires import AmqpWire, Raw, RedisWire, Wire

HONEST, NODE = "honest@peer", "ours@celeriac"
#: Far more than the honest messages of one test move the clock by, and far less than a bad clock would.
A_FEW = 1000


def _obey(**_: object) -> None:
    raise AssertionError("a command that nobody allowed was obeyed")


class Victim:
    """A receiver with its state, and a mailbox, as one program holds them; and an honest peer of theirs."""

    def __init__(self, url: str) -> None:
        self.app = Celeriac(url, environ={})
        self.peer = Celeriac(url, environ={})
        self.wire: Wire = RedisWire(url) if url.startswith("redis") else AmqpWire(url)
        self._numbers = count(1)
        with ExitStack() as stack:
            stack.enter_context(self.wire)
            self.watcher = stack.enter_context(Watcher(self.app))
            self.node = stack.enter_context(Node(self.app, NODE))
            self.node.mailbox.handlers.update(dict.fromkeys(FORBIDDEN_COMMANDS, _obey))
            self._stack = stack.pop_all()
        # Who is hostile later is a member already: then no membership may change.
        for name in (HONEST, EVIL, *CROWD):
            self._tell("online", name, clock=1)
        self.serve_honest_peers()

    def close(self) -> None:
        self._stack.close()

    @property
    def is_well(self) -> bool:
        return self.watcher.is_capturing and self.node.is_running

    def serve_honest_peers(self) -> None:
        """See that the next honest event and the next honest ping are served."""
        number, workers = next(self._numbers), self.watcher.state.workers
        self._tell("heartbeat", HONEST, clock=number, processed=number)
        self.watcher.wait_for(lambda: HONEST in workers and workers[HONEST].processed == number)
        answers: list[object] = []

        def is_answered_or_dead() -> bool:
            answers.extend(self.peer.control.ping([NODE], timeout=1))
            return bool(answers) or not self.node.is_running

        wait_until(is_answered_or_dead, patience=PATIENCE)
        assert answers == [{NODE: {"ok": "pong"}}], self.node.failure

    def counted(self) -> Counter[str]:
        """Return every count of what was not taken as it came."""
        gate, mailbox = self.watcher.receiver.gate, self.node.mailbox
        counters = {
            "refused": gate.refused,
            "mended": gate.mended,
            "mailbox": mailbox.refused,
            "failed": mailbox.failed,
            "clock": self.app.clock.rejected,
        }
        return Counter(
            {f"{kind} {name}": number for kind, counts in counters.items() for name, number in counts.items()}
        )

    def members(self) -> dict[str, tuple[object, ...]]:
        """Return who is there, as the state knows it."""
        return {
            name: (each.alive, each.is_member, each.has_left, each.sw_ver)
            for name, each in self.watcher.state.workers.items()
        }

    def _tell(self, subject: str, hostname: str, **fields: Any) -> None:
        told = worker(subject, hostname=hostname, timestamp=time(), freq=FREQUENCY, **fields)
        self.wire.send_event(event(told))


@dataclass
class Place:
    """A broker, and the victim that is there until a case is the end of it."""

    url: str
    victim: Victim | None = None

    def close(self) -> None:
        if self.victim is not None:
            self.victim.close()


@pytest.fixture(scope="module", params=["redis", "amqp"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with ExitStack() as stack:
        if request.param == "redis":
            url = stack.enter_context(RedisServer()).url
        else:
            rabbit: RabbitNode = request.getfixturevalue("rabbit_server")
            vhost = f"hostile-{secrets.token_hex(4)}"
            rabbit.add_vhost(vhost)
            stack.callback(rabbit.delete_vhost, vhost)
            url = rabbit.url_of(vhost)
        place = Place(url)
        stack.callback(place.close)
        yield place


@pytest.fixture
def victim(place: Place) -> Victim:
    """A victim that is well; another one only if the last case was the end of it."""
    if place.victim is None or not place.victim.is_well:
        place.close()
        place.victim = Victim(place.url)
    return place.victim


@dataclass
class Harm:
    """What a case changed: the counts, and the clock."""

    counts: Counter[str] = field(default_factory=Counter)
    clock: int = 0


def after(victim: Victim, send: Callable[[], object]) -> Harm:
    """Send what is hostile, see that honest peers are served, and return what changed.

    That nothing ended, and nobody joined or left, is seen here for every case.
    """
    before, clock, members = victim.counted(), victim.app.clock.value, victim.members()
    send()
    victim.serve_honest_peers()
    assert victim.is_well
    assert victim.members() == members
    return Harm(victim.counted() - before, victim.app.clock.value - clock)


@pytest.mark.parametrize("name", EVENTS)
def test_a_hostile_event_is_counted_and_harms_nothing(victim: Victim, name: str) -> None:
    raw, counts = EVENTS[name]

    harm = after(victim, lambda: victim.wire.send_event(raw))

    assert harm.counts == Counter(counts)
    assert harm.clock < A_FEW


@pytest.mark.parametrize("name", INJECTED)
def test_a_field_that_would_be_an_attribute_becomes_none(victim: Victim, name: str) -> None:
    before = attributes(victim)

    harm = after(victim, lambda: victim.wire.send_event(INJECTED[name]))

    assert attributes(victim) == before
    assert harm.counts == Counter()
    assert harm.clock < A_FEW


def attributes(victim: Victim) -> tuple[set[str], set[type]]:
    """Return what the objects of a state have, and of which kinds they are."""
    state = victim.watcher.state
    things = [*state.workers.values(), *state.tasks.values()]
    return {name for thing in things for name in dir(thing)}, {type(thing) for thing in things}


def test_a_clock_moves_us_by_one_jump_at_most(victim: Victim) -> None:
    clock = victim.app.clock.value

    harm = after(victim, lambda: victim.wire.send_event(beat(clock=clock + MAX_JUMP)))

    assert harm.counts == Counter()
    assert MAX_JUMP <= harm.clock < MAX_JUMP + A_FEW


def test_a_clock_beyond_one_jump_moves_us_no_more_than_any_message(victim: Victim) -> None:
    clock = victim.app.clock.value

    harm = after(victim, lambda: victim.wire.send_event(beat(clock=clock + MAX_JUMP + A_FEW)))

    assert harm.counts == Counter([f"clock {EVIL}"])
    assert harm.clock < A_FEW


def test_the_good_events_of_a_batch_are_taken_and_the_bad_ones_counted(victim: Victim) -> None:
    first, last = (task("started", f"good-{n}", hostname=EVIL, timestamp=time()) for n in range(2))

    harm = after(victim, lambda: victim.wire.send_event(event([first, 7, {"type": "task-started"}, last])))

    assert harm.counts == Counter(["refused not-an-event", "refused hostname"])
    assert {"good-0", "good-1"} <= set(victim.watcher.state.tasks)


def test_a_text_that_is_too_long_is_cut_and_says_so(victim: Victim) -> None:
    failed = task("failed", "long", hostname=EVIL, timestamp=time(), exception="x" * 100_000)

    harm = after(victim, lambda: victim.wire.send_event(event(failed)))

    told = victim.watcher.state.tasks["long"].exception
    assert told is not None
    assert len(told) == Limits().text_chars
    assert told.endswith(CUT_MARK)
    assert harm.counts == Counter()


@pytest.mark.parametrize("name", REQUESTS)
def test_a_hostile_request_is_counted_and_harms_nothing(victim: Victim, name: str) -> None:
    raw, counts = REQUESTS[name]
    waiting = victim.wire.length(TASK_QUEUE)

    harm = after(victim, lambda: victim.wire.send_request(raw))

    assert harm.counts == Counter(counts)
    assert harm.clock < A_FEW
    assert victim.wire.length(TASK_QUEUE) == waiting


@pytest.mark.parametrize("clock", HEADER_CLOCKS, ids=repr)
def test_a_hostile_clock_of_a_request_is_counted_and_not_adopted(victim: Victim, clock: Any) -> None:
    harm = after(victim, lambda: victim.wire.send_request(stamped(clock)))

    assert harm.counts == Counter(["clock (control)"])
    assert harm.clock < A_FEW


def test_headers_of_a_request_that_no_one_expects_change_nothing(victim: Victim) -> None:
    odd = {"clock": None, "expires": "never", "x": [1, {"y": None}], "": 1}

    harm = after(victim, lambda: victim.wire.send_request(Raw(ASKED, headers=odd)))

    assert harm.counts == Counter()
    assert harm.clock < A_FEW


# -- what only one of the brokers can carry

on_redis = pytest.mark.parametrize("place", ["redis"], indirect=True)
on_amqp = pytest.mark.parametrize("place", ["amqp"], indirect=True)


@on_redis
@pytest.mark.parametrize("name", ENVELOPES)
def test_a_broken_envelope_is_counted_by_the_receiver_and_harms_nothing(victim: Victim, name: str) -> None:
    wire, (data, reason) = victim.wire, ENVELOPES[name]
    assert isinstance(wire, RedisWire)

    harm = after(victim, lambda: wire.publish_event(data))

    assert harm.counts == Counter([f"refused {reason}"])


@on_redis
@pytest.mark.parametrize("name", ENVELOPES)
def test_a_broken_envelope_is_counted_by_the_mailbox_and_harms_nothing(victim: Victim, name: str) -> None:
    wire, (data, reason) = victim.wire, ENVELOPES[name]
    assert isinstance(wire, RedisWire)

    harm = after(victim, lambda: wire.publish_request(data))

    assert harm.counts == Counter([f"mailbox {reason}"])


@on_redis
@pytest.mark.parametrize("member", ["garbage", "", "a\x06\x16b", "\x06\x16" * 5], ids=repr)
def test_a_broken_entry_in_the_table_of_replies_keeps_no_node_from_replying(
    victim: Victim, member: str
) -> None:
    wire, table = victim.wire, "_kombu.binding.reply.celery.pidbox"
    assert isinstance(wire, RedisWire)

    try:
        harm = after(victim, lambda: wire.client.sadd(table, member))
    finally:
        wire.client.srem(table, member)

    assert harm.clock < A_FEW


@on_amqp
@pytest.mark.parametrize("name", PROPERTIES)
def test_broken_properties_are_counted_by_the_receiver_and_harm_nothing(victim: Victim, name: str) -> None:
    wire, (properties, reasons) = victim.wire, PROPERTIES[name]
    assert isinstance(wire, AmqpWire)

    harm = after(victim, lambda: wire.publish_event(HEARTBEAT, properties))

    assert harm.counts == Counter(f"refused {reason}" for reason in reasons)


@on_amqp
@pytest.mark.parametrize("name", PROPERTIES)
def test_broken_properties_are_counted_by_the_mailbox_and_harm_nothing(victim: Victim, name: str) -> None:
    wire, (properties, reasons) = victim.wire, PROPERTIES[name]
    assert isinstance(wire, AmqpWire)

    harm = after(victim, lambda: wire.publish_request(ASKED, properties))

    assert harm.counts == Counter(f"mailbox {reason}" for reason in reasons)
