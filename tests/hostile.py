"""Messages that no honest peer sends, and what each must be counted as.

Every row of what Celery's workers and monitors were seen to stumble over is here, and what limits on sizes,
clocks, timestamps and fields are there for. Names say what is hostile; a value is what is sent and the counts
that it must raise, each by one.
"""

import json
import struct
import zlib
from base64 import b64encode
from collections.abc import Mapping
from time import time
from typing import Any, Final

from celeriac.core.clock import CEILING
from tests.builders import nested, task, without, worker
from tests.wires import Raw, amqp_properties

__all__ = [
    "ASKED",
    "CROWD",
    "ENVELOPES",
    "EVENTS",
    "EVIL",
    "FORBIDDEN_COMMANDS",
    "FREQUENCY",
    "HEADER_CLOCKS",
    "HEARTBEAT",
    "INJECTED",
    "PROPERTIES",
    "REQUESTS",
    "TASK_QUEUE",
    "beat",
    "event",
    "stamped",
]

Case = tuple[Raw, tuple[str, ...]]

EVIL: Final = "evil@peer"
#: More names that the hostile one goes by.
CROWD: Final = [f"evil-{number}@peer" for number in range(4)]
#: Longer than the tests take: nobody is to be taken for dead meanwhile.
FREQUENCY: Final = 86_400.0
#: Where replies of a node must never end.
TASK_QUEUE: Final = "celery"

_IDENTITY: Final[dict[str, Any]] = {"hostname": EVIL, "timestamp": time(), "clock": 1}
#: An event that is hostile in nothing yet.
_BEAT: Final = {**worker("heartbeat"), **_IDENTITY, "freq": FREQUENCY}
_TASK: Final = {**task("received", "evil"), **_IDENTITY}


def event(fields: object) -> Raw:
    """Return an event, or what is in its place, as Python's own JSON writes it: NaN included."""
    return Raw(json.dumps(fields).encode())


def beat(**fields: Any) -> Raw:
    """Return a heartbeat of the hostile peer, but for what is given."""
    return event(_BEAT | fields)


def of_task(**fields: Any) -> Raw:
    """Return an event of a task of the hostile peer, but for what is given."""
    return event(_TASK | fields)


def elect(subject: str = "elect", **fields: Any) -> dict[str, Any]:
    """Return a message of an election of Celery's workers."""
    return {"type": f"worker-{subject}", **without(_BEAT, "type"), **fields}


def counted(counts: str | tuple[str, ...], messages: Mapping[str, Raw]) -> dict[str, Case]:
    """Return messages that raise the same counts."""
    return {name: (raw, (counts,) if isinstance(counts, str) else counts) for name, raw in messages.items()}


def with_values(field: str, values: tuple[Any, ...], of: Any = beat) -> dict[str, Raw]:
    """Return a message for each value that one field may have."""
    return {f"{field} is {_shown(value)}": of(**{field: value}) for value in values}


def _shown(value: object) -> str:
    return f"{value!r:.40}".encode("unicode_escape").decode()


# -- events


def _bomb(megabytes: int) -> bytes:
    """Return zeros as zlib packs them, from one packed block: to pack all of them takes half a second."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    block = packer.compress(bytes(1_000_000)) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = (megabytes * 1_000_000 % 65_521) << 16 | 1
    return b"\x78\x9c" + block * megabytes + packer.flush() + checksum.to_bytes(4, "big")


HEARTBEAT: Final = beat().body
_BOMB: Final = _bomb(200)
_GZIP, _BZ2 = "application/x-gzip", "application/x-bz2"
_NAN, _INFINITY = float("nan"), float("inf")
_TYPES: Final = (
    "application/x-python-serialize", "application/x-yaml", "application/x-msgpack", "application/data",
    "text/plain", "application/json; charset=utf-8", "", None,
)  # fmt: skip
_NO_EVENTS: Final[tuple[Any, ...]] = (42, "worker-heartbeat", None, [1], [[]])
_ENCODINGS: Final = ("binary", "utf-16", "latin-1", "", None)


def _packed(body: bytes, compression: Any) -> Raw:
    return Raw(body, headers={"compression": compression})


_CONTENT: Final = {
    **counted(
        "refused content-type", {f"content type {kind}": Raw(HEARTBEAT, content_type=kind) for kind in _TYPES}
    ),
    **counted(
        "refused content-encoding",
        {f"encoding {name}": Raw(HEARTBEAT, content_encoding=name) for name in _ENCODINGS},
    ),
    **counted(
        "refused json",
        {
            "pickle that says it is JSON": Raw(b"\x80\x05cos\nsystem\n(S'true'\ntR."),
            "an empty body": Raw(b""),
            "half an event": Raw(HEARTBEAT[:40]),
            "two events in a row": Raw(HEARTBEAT + HEARTBEAT),
            "no UTF-8": Raw(b'{"type": "worker-heartbeat", "hostname": "\xff\xfe"}'),
            "100,000 lists deep": Raw(b"[" * 100_000),
            "40,000 objects deep": Raw(b'{"a":' * 40_000 + b"1" + b"}" * 40_000),
        },
    ),
    **counted(
        "refused not-an-event",
        {f"a body that is {json.dumps(body)}": event(body) for body in _NO_EVENTS},
    ),
}

_SIZES: Final = {
    **counted("refused depth", {"a field 33 deep": beat(deep=nested(33))}),
    **counted(
        "refused items",
        {
            "a field with 2,000 keys": beat(keys={f"k{n}": n for n in range(2000)}),
            "2,000 fields": beat(**{f"k{n}": n for n in range(2000)}),
        },
    ),
    **counted("refused event-size", {"an event of 300 KiB": beat(long="x" * 300_000)}),
    **counted("refused batch", {"a batch of 10,001 events": Raw(b"[" + b"{}," * 10_000 + b"{}]")}),
    **counted("refused integer", {"an integer beyond 64 bits": beat(huge=2**64)}),
    **counted(
        "refused body-size",
        {
            "a batch of 2 MiB": event([{"long": "x" * 200_000}] * 11),
            "a bomb of 200 MB": _packed(_BOMB, _GZIP),
        },
    ),
    **counted(
        "refused compression",
        {
            "a bomb that is cut off": _packed(_BOMB[:1000], _GZIP),
            "a plain body that says it is packed": _packed(HEARTBEAT, _GZIP),
            "a body packed in another way than it says": _packed(_BOMB, _BZ2),
            "an unknown way to pack": _packed(HEARTBEAT, "application/zstd"),
            "a list of ways to pack": _packed(HEARTBEAT, [_GZIP]),
        },
    ),
}

_NO_TYPES: Final[tuple[Any, ...]] = (None, "", 7, ["worker-heartbeat"], {}, "-", "x" * 300)
_NO_NAMES: Final[tuple[Any, ...]] = (None, "", 7, [EVIL], {}, "x" * 300)
_ESSENTIALS: Final = {
    **counted("refused type", {"no type": event(without(_BEAT, "type")), **with_values("type", _NO_TYPES)}),
    **counted(
        "refused hostname",
        {"no hostname": event(without(_BEAT, "hostname")), **with_values("hostname", _NO_NAMES)},
    ),
    **counted(
        "refused uuid",
        {"a task without an id": event(without(_TASK, "uuid")), **with_values("uuid", _NO_NAMES, of_task)},
    ),
}

_NO_CLOCKS: Final[tuple[Any, ...]] = (
    "abc", None, [], {}, "5", True, 1.5, -1, _NAN, _INFINITY, -_INFINITY, 1e308, 2**53, 2**63, 2**100,
)  # fmt: skip
_NO_MOMENTS: Final[tuple[Any, ...]] = (
    "x", None, [], {}, True, _NAN, _INFINITY, -_INFINITY, -1, 1e20, 1e308,
    253_402_300_799,  # the end of the year 9999
)  # fmt: skip
_TIMES: Final = {
    **counted(
        "mended clock", {"no clock": event(without(_BEAT, "clock")), **with_values("clock", _NO_CLOCKS)}
    ),
    **counted("mended clock", {"a text for the clock of a task": of_task(clock="abc")}),
    **counted(f"clock {EVIL}", with_values("clock", (2**53 - 1, CEILING, CEILING - 1))),
    # They are as many as would be believed, if they were not all in one message.
    **counted(
        f"clock {CROWD[0]}",
        {
            "far clocks of four names": event(
                [_BEAT | {"hostname": name, "clock": CEILING - 1} for name in CROWD]
            )
        },
    ),
    **counted(
        "mended timestamp",
        {
            "no timestamp": event(without(_BEAT, "timestamp")),
            "timestamp is two days ahead": beat(timestamp=time() + 2 * 86_400),
            **with_values("timestamp", _NO_MOMENTS),
        },
    ),
}

_WORKER_FIELDS: Final[dict[str, Any]] = {
    "freq": "often", "active": -1, "processed": [7], "loadavg": [1, 2], "sw_ver": 5, "sw_ident": {},
    "sw_sys": ["Linux"], "pid": "1", "utcoffset": "west",
}  # fmt: skip
_TASK_FIELDS: Final[dict[str, Any]] = {
    "name": ["shop.pay"], "parent_id": ["evil"], "root_id": {}, "retries": "two", "args": [1], "eta": 7,
}  # fmt: skip
_FIELDS: Final = {
    name: case
    for of, fields in ((beat, _WORKER_FIELDS), (of_task, _TASK_FIELDS))
    for field, value in fields.items()
    for name, case in counted(f"mended {field}", with_values(field, (value,), of)).items()
} | counted("mended freq", {"a frequency that would keep a worker for ever": beat(freq=1e308)})

EVENTS: Final[dict[str, Case]] = _CONTENT | _SIZES | _ESSENTIALS | _TIMES | _FIELDS

#: Fields that are attributes of Celery's objects or of ours, and messages between workers that end
#: Celery's. They are taken, for they may be honest; but nothing of them becomes an attribute.
INJECTED: Final[dict[str, Raw]] = {
    **{
        f"{name} in a heartbeat": beat(**{name: 1})
        for name in (
            "event", "heartbeats", "id", "alive", "status_string", "heartbeat_expires", "has_left",
            "is_member", "_now", "__class__", "__dict__", "extra", "group", "subject", "self",
            "local_received",
        )
    },
    **{
        f"{name} in a task": of_task(**{name: 1})
        for name in ("children", "state", "worker", "parent", "event", "merge_rules", "history", "__class__")
    },
    "worker-elect with a list for its id": event(elect(id=["e"], topic="t", action={}, cver=1)),
    "worker-elect without anything": event(elect()),
    "two worker-elect with one clock and two actions": event(
        [elect(clock=5, id="e", topic="t", action={"n": n}) for n in range(2)]
    ),
    "worker-elect-ack without an id": event(elect("elect-ack")),
}  # fmt: skip

# -- requests

_PING: Final[dict[str, Any]] = {
    "method": "ping", "arguments": {}, "destination": None, "pattern": None, "matcher": None, "ticket": "t",
    "reply_to": {"exchange": "reply.celery.pidbox", "routing_key": TASK_QUEUE},
}  # fmt: skip


def request(**fields: Any) -> Raw:
    """Return a ping to all, but for what is given."""
    return Raw(json.dumps(_PING | fields).encode(), headers={"clock": 1, "expires": 0})


def stamped(clock: Any) -> Raw:
    """Return a ping with such a clock among its headers."""
    return Raw(ASKED, headers={"clock": clock, "expires": 0})


ASKED: Final = request().body
#: What AMQP can say as well as JSON: its integers have 64 bits.
HEADER_CLOCKS: Final[tuple[Any, ...]] = (
    "abc", "", [], {}, True, 1.5, -1, 2**53 - 1, 2**53, 2**63 - 1, 1e308,
)  # fmt: skip

#: Every command that Celery's workers obey and our nodes, unless told otherwise, do not.
_COMMANDS: Final = (
    "active", "active_queues", "add_consumer", "autoscale", "cancel_consumer", "conf", "disable_events",
    "dump_active", "dump_conf", "dump_reserved", "dump_revoked", "dump_schedule", "dump_tasks", "election",
    "enable_events", "memdump", "memsample", "objgraph", "pool_grow", "pool_restart",
    "pool_shrink", "query_task", "rate_limit", "registered", "report", "reserved", "revoke",
    "revoke_by_stamped_headers", "revoked", "scheduled", "shutdown", "terminate", "time_limit", "nosuch",
)  # fmt: skip
#: Those that the mailbox has, and must not obey.
FORBIDDEN_COMMANDS: Final = ("election", "pool_grow", "revoke", "shutdown")
_METHODS: Final[tuple[Any, ...]] = (None, "", 7, ["ping"], {}, "ping\n", "__import__('os')", "x" * 100)
_PATTERNS: Final[tuple[Any, ...]] = (
    7, ["*"], "x" * 300, "(a+)+$", "(.*)*x", "(.|.)*x", "(", "[", "(?P<a>.)(?P=a)", ".*" * 8 + "x", "(?<!a)b",
    "a{1000000}{1000000}",
)  # fmt: skip
_ADDRESSES: Final[tuple[Any, ...]] = (
    "celery", 7, ["celery"], {"exchange": "reply.celery.pidbox"}, {"routing_key": TASK_QUEUE},
    {"exchange": "", "routing_key": TASK_QUEUE}, {"exchange": 7, "routing_key": []},
)  # fmt: skip


def _matched(pattern: Any) -> Raw:
    return request(pattern=pattern, matcher="pcre")


REQUESTS: Final[dict[str, Case]] = {
    **counted(
        "mailbox content-type", {f"content type {kind}": Raw(ASKED, content_type=kind) for kind in _TYPES}
    ),
    **counted(
        "mailbox content-encoding",
        {f"encoding {name}": Raw(ASKED, content_encoding=name) for name in _ENCODINGS},
    ),
    **counted(
        "mailbox json",
        {
            "an empty body": Raw(b""),
            "half a request": Raw(ASKED[:40]),
            "no UTF-8": Raw(b'{"method": "\xff"}'),
            "60,000 lists deep": Raw(b"[" * 60_000),
        },
    ),
    **counted(
        "mailbox not-a-request",
        {f"a body that is {json.dumps(body)}": event(body) for body in ([], ["ping"], "ping", 7, None, True)},
    ),
    **counted("mailbox depth", {"arguments 33 deep": request(arguments={"deep": nested(33)})}),
    **counted("mailbox items", {"3,000 arguments": request(arguments={f"k{n}": n for n in range(3000)})}),
    **counted("mailbox integer", {"an integer beyond 64 bits": request(arguments={"huge": 2**64})}),
    **counted("mailbox size", {"a request of 100 KiB": request(arguments={"long": "x" * 100_000})}),
    **counted("mailbox body-size", {"a bomb of 200 MB": _packed(_BOMB, _GZIP)}),
    **counted("mailbox method", with_values("method", _METHODS, request)),
    **counted("mailbox arguments", with_values("arguments", ([], "x", 7, True), request)),
    **counted(
        "mailbox destination",
        with_values("destination", (EVIL, 7, {}, [7], [None], [["x"]], ["x" * 300]), request),
    ),
    **counted("mailbox pattern", with_values("pattern", _PATTERNS, _matched)),
    **counted(
        "mailbox matcher",
        {name: request(pattern="*", matcher=name) for name in ("lua", "GLOB")}
        | {"a list of matchers": request(pattern="*", matcher=["glob"])},
    ),
    **counted("mailbox ticket", with_values("ticket", (7, [], {}, "", "x" * 300, "a\nb"), request)),
    **counted("mailbox reply-to", with_values("reply_to", _ADDRESSES, request)),
    **counted(
        "mailbox reply-exchange",
        {
            f"a reply to the exchange {name}": request(reply_to={"exchange": name, "routing_key": TASK_QUEUE})
            for name in ("celery", "celeryev", "celery.pidbox")
        },
    ),
    **counted(
        "mailbox not-allowed", {f"the command {name}": request(method=name) for name in FORBIDDEN_COMMANDS}
    ),
    **counted(
        "mailbox unknown",
        {f"the command {name}": request(method=name) for name in _COMMANDS if name not in FORBIDDEN_COMMANDS},
    ),
    **counted(
        "mailbox not-allowed",
        {
            "an election that would run a task": request(
                method="election", arguments={"id": "e", "topic": "task", "action": {"task": "shop.pay"}}
            )
        },
    ),
    # Every monitor asks for it, again and again: it is counted apart.
    **counted("mailbox heartbeat", {"the command heartbeat": request(method="heartbeat")}),
    **counted(
        "failed hello",
        {
            "a greeting without a name": request(method="hello"),
            "a greeting by a number": request(method="hello", arguments={"from_node": 7}),
        },
    ),
    **counted("failed ping", {"an argument named as a method's own": request(arguments={"self": 1})}),
    **counted(
        (),
        {
            "a command for someone else": request(method="shutdown", destination=["other@peer"]),
            "a greeting with revoked ids of no known shape": request(
                method="hello", arguments={"from_node": EVIL, "revoked": {"a": {"b": []}, "": 7}}
            ),
        },
    ),
}

# -- what only one of the brokers can carry


def _envelope(**fields: Any) -> bytes:
    """Return an honest envelope as kombu has it on Redis, but for what is given; None for what it lacks."""
    honest = {
        "body": b64encode(HEARTBEAT).decode(), "content-type": "application/json",
        "content-encoding": "utf-8", "headers": {}, "properties": {"body_encoding": "base64"},
    }  # fmt: skip
    said = honest | {name.replace("_", "-"): value for name, value in fields.items()}
    return json.dumps({name: value for name, value in said.items() if value is not None}).encode()


_LISTS: Final = b"[" * 100_000
#: What is published on Redis in the place of an envelope, and the reason it is refused for.
ENVELOPES: Final[dict[str, tuple[bytes, str]]] = {
    "9 MiB": (_envelope(padding="x" * 9 * 1024 * 1024), "envelope-size"),
    **{
        name: (data, "envelope")
        for name, data in {
            "nothing": b"",
            "no JSON": b"hello",
            "no UTF-8": b'{"body": "\xff"}',
            "a list": b"[]",
            "a number": b"7",
            "100,000 lists deep": _LISTS,
            "headers 100,000 lists deep": _envelope(headers={"x": "here"}).replace(b'"here"', _LISTS),
            "no properties": _envelope(properties=None),
            "properties that are a list": _envelope(properties=[]),
            "a delivery that is a text": _envelope(
                properties={"body_encoding": "base64", "delivery_info": "x"}
            ),
            "headers that are a list": _envelope(headers=[]),
            "a content type that is a number": _envelope(content_type=7),
            "a body that is a number": _envelope(body=7),
            "a body of one letter too many": _envelope(body="abcde"),
            "a body of snow": _envelope(body="\N{SNOWMAN}"),
            "an event that is in no envelope": HEARTBEAT,
            "a request that is in no envelope": ASKED,
        }.items()
    },
}


def _entry(name: bytes, value: bytes) -> bytes:
    """Return one header as AMQP spells it."""
    return bytes([len(name)]) + name + value


def _deep_table(levels: int) -> bytes:
    """Return headers within headers, so many of them."""
    inner = _entry(b"a", b"V")
    for _ in range(levels):
        inner = _entry(b"a", b"F" + struct.pack(">I", len(inner)) + inner)
    return inner


#: The bytes of the properties of a message on RabbitMQ, and the reasons it is refused for: some are only odd.
PROPERTIES: Final[dict[str, tuple[bytes, tuple[str, ...]]]] = {
    "none at all": (struct.pack(">H", 0), ("content-type",)),
    "a content type that is no UTF-8": (amqp_properties(b"", content_type=b"\xff\xfe"), ("properties",)),
    "a header beyond the end of time": (amqp_properties(_entry(b"x", b"T" + b"\xff" * 8)), ("properties",)),
    "headers 5,000 deep": (amqp_properties(_deep_table(5000)), ("properties",)),
    "a header whose name is no UTF-8": (amqp_properties(_entry(b"\xff", b"t\x01")), ()),
    "a header that is bytes": (amqp_properties(_entry(b"x", b"x" + struct.pack(">I", 2) + b"\xff\xfe")), ()),
    "a header twice": (amqp_properties(_entry(b"hostname", b"V") + _entry(b"hostname", b"t\x01")), ()),
}
