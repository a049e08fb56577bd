"""No message of a queue of tasks stops a worker, whatever its sender wrote into it.

Each header, each field of the body and each property has boundary values, on both brokers and with pools
of threads and of processes. Afterwards every message was taken or rejected, none is in doubt.
``HYPOTHESIS_PROFILE=long`` has all pools, and messages with boundary values in several headers at a time.
"""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from random import Random
from secrets import randbits
from typing import Any

from amqp.exceptions import FrameSyntaxError

from celeriac.testing.peers import CeleriacWorker
from celeriac.wire.task_request import PROTOCOL_HEADERS
from tests.fleet import PATIENCE, come_true, kill_all, start_all
from tests.live import IS_LONG
from tests.stage import Stage
from tests.wires import AmqpWire, Raw, RedisWire, Wire

POOLS = ("threads", "processes", *(("solo", "gevent") if IS_LONG else ()))
#: Messages with boundary values in several headers.
MIXED = 10_000 if IS_LONG else 100
#: Another one in each long run; it is in the ids of the messages.
SEED = randbits(32) if IS_LONG else 7
TASK = "peers.echo"
BODY = [["x"], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]

DEEP: Any = []
for _ in range(60):
    DEEP = [DEEP]

#: Values at the boundary of a type, or of no type that a field has.
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 255, 256, 2**31, 2**63 - 1, -(2**63), 0.5, 1e308, -1e308),
    *("", " ", "x", "0", "None", "\x00", "two\nlines", "\u202e", "é" * 128, "x" * 257, "x" * 20_000),
    *([], [None], [[]], {}, {"": {}}, {"x": None}, DEEP),
    *(
        {"__type__": "uuid", "__value__": "no"},
        {"__type__": "datetime", "__value__": "9999-12-31T23:59:59-23:59"},
    ),
)
#: Only JSON can say these: AMQP has no such integers and texts, and RabbitMQ refuses such numbers.
ONLY_JSON: tuple[Any, ...] = (2**64, -(2**200), "\ud800", math.nan, math.inf, -math.inf)
#: Times that cannot be shown in UTC, and those that just can.
BAD_TIMES = (
    *("9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59-00:01", "0001-01-01T00:00:00+14:00"),
    *("0001-01-01T00:00:00+00:01", "10000-01-01T00:00:00", "0000-01-01T00:00:00", "2026-13-01T00:00:00"),
    *(
        "2026-02-30T00:00:00",
        "2026-01-01T24:00:01",
        "2026-01-01T00:00:00+24:00",
        "now",
        "12:00",
        "-1",
        "1e400",
    ),
)
TIMES = (
    *(
        "9999-12-31T23:59:59",
        "9999-12-31T23:59:59.999999",
        "9999-12-31T23:59:59+23:59",
        "9999-12-31T23:59:59Z",
    ),
    *(
        "0001-01-01T00:00:00",
        "0001-01-01T00:00:00-23:59",
        "1970-01-01T00:00:00",
        "1969-12-31T23:59:59.999999",
    ),
    *("2038-01-19T03:14:08", "2026-11-15", "2026-W46", "20261115T000000"),
)
LIMITS: tuple[Any, ...] = (
    *([0, 0], [None, None], [1e9, 1e9], [-1, None], [None, -0.0], ["1", "2"], [[1], {}], [True, False]),
    *([1], [1, 2, 3], [1e308, 1e-308], [2**63 - 1, 1]),
)
#: Headers that a task has, and others.
NAMES = sorted(PROTOCOL_HEADERS | {"stamps", "stamped_headers", "mine"})
#: Further values of some headers.
SPECIAL: Mapping[str, tuple[Any, ...]] = {
    "eta": BAD_TIMES + TIMES,
    "expires": BAD_TIMES + TIMES,
    "timelimit": LIMITS,
}


def headers_of(number: object) -> dict[str, Any]:
    """Return the headers of a task that nothing is wrong with."""
    return {"lang": "py", "task": TASK, "id": f"attack-{number}", "retries": 0, "argsrepr": "('x',)"}


def header_attacks(values: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    """Yield headers with a boundary value in one of them, and each left out."""
    for name in NAMES:
        for number, value in enumerate(values + SPECIAL.get(name, ())):
            yield headers_of(f"{name}-{number}") | {name: value}
    for name in ("task", "id"):
        yield {key: value for key, value in headers_of(f"no-{name}").items() if key != name}


def mixed_attacks(values: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    """Yield headers with boundary values in two to four of them."""
    random = Random(SEED)
    for number in range(MIXED):
        names = random.sample([name for name in NAMES if name != "id"], random.randint(2, 4))
        bad = {name: random.choice(values + SPECIAL.get(name, ())) for name in names}
        yield headers_of(f"mixed-{SEED}-{number}") | bad


def body_attacks(values: tuple[Any, ...]) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield headers and bodies of protocols 2 and 1, with a boundary value in each field of the body."""
    plain = (b"", b"\x00", b"null", b"[]", b"[[]]", b"[[], {}]", b"{}", b"[" * 100_000, b"\xff\xfe[", b'"x"')
    for number, body in enumerate(plain):
        yield headers_of(f"body-{number}"), body
        yield {}, body
    for number, value in enumerate(values):
        for part in range(3):
            body = json.dumps([*BODY[:part], value, *BODY[part + 1 :]]).encode()
            yield headers_of(f"part-{part}-{number}"), body
        for name in ("callbacks", "errbacks", "chain", "chord"):
            body = json.dumps([*BODY[:2], {name: value}]).encode()
            yield headers_of(f"{name}-{number}"), body
            yield headers_of(f"{name}-list-{number}"), json.dumps([*BODY[:2], {name: [value]}]).encode()
        for name in (
            "task",
            "id",
            "args",
            "kwargs",
            "eta",
            "expires",
            "utc",
            "retries",
            "taskset",
            "timelimit",
        ):
            fields = {"task": TASK, "id": f"attack-first-{name}-{number}", "args": ["x"], name: value}
            yield {}, json.dumps(fields).encode()
    for number, moment in enumerate(BAD_TIMES + TIMES):
        for is_utc in (True, False):
            fields = {"task": TASK, "id": f"attack-first-{number}-{is_utc}", "args": ["x"], "utc": is_utc}
            yield {}, json.dumps(fields | {"eta": moment}).encode()
            yield {}, json.dumps(fields | {"expires": moment}).encode()


#: What a sender says of the body.
DESCRIPTIONS: tuple[dict[str, Any], ...] = (
    *({"content_type": text} for text in (None, "", "x", "application/x-python-serialize", "a" * 255)),
    *({"content_encoding": text} for text in (None, "", "binary", "utf-16", "no-such", "base64", "a" * 255)),
    *({"headers": {"compression": text}} for text in ("", "gzip", "application/x-gzip", "no-such")),
)
#: Properties as AMQP has them, and RabbitMQ lets them through; in an envelope of Redis they can be anything.
TEXTS = ("", "x", "two\nlines", "é" * 120, "x" * 255)
AMQP_PROPERTIES: tuple[dict[str, Any], ...] = (
    *(
        {name: text}
        for name in ("correlation_id", "reply_to", "message_id", "type", "app_id")
        for text in TEXTS
    ),
    *({"priority": number} for number in (0, 9, 255)),
    *({"delivery_mode": number} for number in (1, 2)),
    *({"timestamp": number} for number in (0, 2**31, 2**62)),
    {"expiration": "0"},
)
ENVELOPE_PROPERTIES = (
    *(
        "correlation_id",
        "reply_to",
        "delivery_mode",
        "delivery_info",
        "priority",
        "body_encoding",
        "delivery_tag",
    ),
    *("expiration", "timestamp", "message_id"),
)
NO_ENVELOPES = (
    b"",
    b"\x00",
    b"\xff",
    b"{}",
    b"[]",
    b"null",
    b'"x"',
    b"1",
    b"{",
    b"[" * 100_000,
    b'{"body": 1}',
)


class Attack:
    """Sends the same messages to the queue of each worker."""

    def __init__(self, wire: Wire, queues: tuple[str, ...]) -> None:
        self.wire = wire
        self.queues = queues

    def send(self, raw: Raw, **properties: Any) -> None:
        """Send a message, unless the protocol has no way to write it."""
        for queue in self.queues:
            with suppress(FrameSyntaxError):
                self.wire.send_task(queue, raw, **properties)

    def send_all(self, values: tuple[Any, ...]) -> None:
        """Send a message with each boundary value in each place."""
        good = json.dumps(BODY).encode()
        for headers in (*header_attacks(values), *mixed_attacks(values)):
            self.send(Raw(good, headers=headers))
        for headers, body in body_attacks(values):
            self.send(Raw(body, headers=headers))
        for number, described in enumerate(DESCRIPTIONS):
            raw = replace(Raw(good), **described)
            self.send(replace(raw, headers=headers_of(f"described-{number}") | dict(raw.headers)))
        properties = [*AMQP_PROPERTIES]
        if isinstance(self.wire, RedisWire):
            properties += [{name: value} for name in ENVELOPE_PROPERTIES for value in values]
        for number, each in enumerate(properties):
            self.send(Raw(good, headers=headers_of(f"property-{number}")), **each)
        if isinstance(self.wire, RedisWire):
            for queue in self.queues:
                for data in NO_ENVELOPES:
                    self.wire.push(queue, data)


def test_no_message_stops_a_worker_on_redis(redis_url: str) -> None:
    with RedisWire(redis_url) as wire:
        attack(wire, redis_url, redis_url, VALUES + ONLY_JSON)


def test_no_message_stops_a_worker_on_rabbitmq(amqp_url: str, redis_url: str) -> None:
    with AmqpWire(amqp_url) as wire:
        attack(wire, amqp_url, redis_url, VALUES)


def attack(wire: Wire, url: str, backend: str, values: tuple[Any, ...]) -> None:
    """Send everything to workers of two pools; each goes on, and knows the end of each message."""
    with ExitStack() as stack:
        stage = stack.enter_context(Stage.on(url, backend))
        workers = [stage.worker(f"{pool}@attacked", pool=pool, concurrency=2) for pool in POOLS]
        stack.callback(kill_all, workers)
        start_all(workers)
        sender = Attack(wire, POOLS)
        sender.send_all(values)
        for worker, queue in zip(workers, POOLS, strict=True):
            check(stage, worker, wire, queue)


def check(stage: Stage, worker: CeleriacWorker, wire: Wire, queue: str) -> None:
    """A worker is alive, rejected each bad time, and has settled all messages but those with a later ETA."""
    ask = stage.ask(worker)
    assert come_true(lambda: not worker.is_alive or wire.length(queue) == 0)
    assert worker.is_alive
    assert stage.app.send_task(TASK, ["alive"], queue=queue).get(timeout=PATIENCE) == "alive"
    assert come_true(lambda: not ask.active()[worker.hostname] and not ask.reserved()[worker.hostname])

    refused = ask.stats()[worker.hostname]["refused"]
    assert refused["eta"] >= len(BAD_TIMES)
    assert refused["expires"] >= len(BAD_TIMES)
    assert [reason for reason in refused if reason.startswith("error")] == []
    waiting = len(ask.scheduled()[worker.hostname])
    assert waiting > 0
    worker.stop()

    assert worker.exit_code == 0
    assert wire.length(queue) == waiting
