"""Structured fuzz: requests broken in every way, to a node that must neither fall nor be moved."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from celeriac.config import Settings
from celeriac.core.clock import MAX_JUMP
from celeriac.model.clock import MAX_CLOCK
from celeriac.model.message import Message
from celeriac.node.clock import SharedClock
from celeriac.node.mailbox import Mailbox
from celeriac.transport.memory import MemoryBroker
from tests.builders import nested
from tests.property.effort import COSTLY

NODE = "w1@web"
#: A receipt counts, so does the adoption of its clock, a hello and a reply.
OWN_STEPS = 5

BASE: dict[str, Any] = {
    "method": "ping",
    "arguments": {},
    "destination": None,
    "pattern": None,
    "matcher": None,
    "ticket": "8acc",
    "reply_to": {"exchange": "reply.celery.pidbox", "routing_key": "2350"},
}

# Halves of surrogate pairs included, unlike the default.
texts = st.text(st.characters(exclude_categories=()), max_size=8)
numbers = (
    st.integers()
    | st.floats()
    | st.sampled_from([0, -1, MAX_JUMP, 2**52, 2**53 - 1, 2**53, 2**63, 2**100, 1e308, 5.0])
)
large = st.sampled_from(["x" * 300, "x" * 70_000, [0] * 3000, {f"k{n}": n for n in range(3000)}])
values = (
    st.none()
    | st.booleans()
    | numbers
    | texts
    | large
    | st.sampled_from([2, 31, 33, 400]).map(nested)
    | st.recursive(numbers | texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner))
)
likely: dict[str, st.SearchStrategy[Any]] = {
    "method": st.sampled_from(
        ["ping", "hello", "clock", "stats", "grow", "shutdown", "__class__", "receive"]
    ),
    "arguments": st.dictionaries(
        st.sampled_from(["from_node", "revoked", "self", "n", "task_id", "__class__"]) | texts,
        values,
        max_size=3,
    ),
    "destination": st.lists(st.sampled_from([NODE, "w2@web"]) | texts, max_size=3),
    "pattern": st.sampled_from(["*", "w*", "w[", "(a*)*b", "(", "w.*"]) | texts,
    "matcher": st.sampled_from(["glob", "pcre", "sql"]),
    "ticket": texts,
    "reply_to": st.fixed_dictionaries(
        {},
        optional={"exchange": st.sampled_from(["", "celery", "reply.celery.pidbox"]), "routing_key": texts},
    ),
}
TOKENS = [
    b"NaN",
    b"Infinity",
    b"-1",
    b"null",
    b"[",
    b"}",
    b'"',
    b",",
    b"\\ud800",
    b"\xff",
    b"9" * 5000,
    b"[" * 70_000,
]


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Draw a request, break some of its fields, and sometimes its bytes."""
    fields = dict(BASE)
    for name in draw(st.lists(st.sampled_from(sorted(BASE)), max_size=4)):
        match draw(st.sampled_from(["likely", "any", "drop"])):
            case "likely":
                fields[name] = draw(likely[name])
            case "any":
                fields[name] = draw(values)
            case _:
                fields.pop(name, None)
    whole = draw(st.just(fields) | st.just(fields) | values)
    body = json.dumps(whole, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    if draw(st.booleans()):
        return body
    place = draw(st.integers(0, len(body)))
    return body[:place] + draw(st.sampled_from(TOKENS) | st.binary(max_size=4)) + body[place:]


headers = st.dictionaries(
    st.sampled_from(["clock", "expires", "ticket", "hostname"]) | texts, values, max_size=3
)
content_types = st.sampled_from(
    ["application/json"] * 8 + ["application/x-python-serialize", "", "text/plain"]
)
messages = st.builds(Message, bodies(), content_types, st.just("utf-8"), headers)


@COSTLY
@given(st.lists(messages, max_size=5))
def test_no_request_raises_or_moves_the_clock_far_or_makes_us_publish_elsewhere(
    received: list[Message],
) -> None:
    broker, clock = MemoryBroker(), SharedClock()
    settings = Settings(control_allow=("grow",))
    mailbox = Mailbox(NODE, settings=settings, clock=clock, handlers={"grow": lambda n=1: {"ok": n}})
    mailbox.attach(broker.connect())

    for message in received:
        before = clock.value
        mailbox.receive(message)
        assert before < clock.value <= before + MAX_JUMP + OWN_STEPS

    for exchange, reply in broker.published:
        assert exchange == "reply.celery.pidbox"
        assert list(json.loads(reply.body)) == [NODE]
        stamp = reply.headers["clock"]
        assert isinstance(stamp, int)
        assert 0 < stamp <= MAX_CLOCK
    assert len(broker.published) <= len(received)
    assert sum(mailbox.refused.values()) <= len(received)
    mailbox.receive(Message(json.dumps(BASE).encode()))
    assert json.loads(broker.published[-1][1].body) == {NODE: {"ok": "pong"}}
