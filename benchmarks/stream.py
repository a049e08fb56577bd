"""A stream of events as a busy cluster sends it: seeded, endless, in order of sending.

Fifty workers and twenty clients; most tasks are sent, received, started and
succeed; some are retried on another worker, some fail with a traceback, some are
sent by another task. Texts have the lengths of those in real captures.
"""

import json
from collections.abc import Iterator
from itertools import count
from random import Random
from uuid import UUID

WORKERS = [f"celery@worker-{n:02}.example" for n in range(50)]
CLIENTS = [f"gen{4000 + n}@web-{n:02}.example" for n in range(20)]
NAMES = [f"shop.{area}.tasks.{verb}" for area in ("orders", "mail", "search", "billing", "images")
         for verb in ("create", "send", "index", "charge", "resize", "sync", "purge", "notify")]  # fmt: skip
TRACEBACK = "Traceback (most recent call last):\n" + "".join(
    f'  File "/srv/shop/app/module_{n}.py", line {n * 17}, in step_{n}\n    value = step(value)\n'
    for n in range(8)
)
#: Tasks under way at any moment.
IN_FLIGHT = 400
BEGIN = 1_790_000_000.0
#: Seconds between two events: a cluster of 2,000 events a second.
GAP = 0.0005
HEARTBEAT_EVERY = 80

Event = dict[str, object]


def events(seed: int = 1) -> Iterator[Event]:
    """Yield the dicts of events, for ever."""
    random = Random(seed)
    clock = count(1)
    now = BEGIN
    under_way = [_task(random) for _ in range(IN_FLIGHT)]
    for number in count(1):
        now += GAP
        if number % HEARTBEAT_EVERY == 0:
            event = _heartbeat(random, number)
        else:
            place = random.randrange(IN_FLIGHT)
            event = next(under_way[place], {})
            if not event:
                under_way[place] = _task(random)
                event = next(under_way[place])
        yield {"utcoffset": 0, "clock": next(clock), "timestamp": now, **event}


def bodies(seed: int = 1) -> Iterator[bytes]:
    """Yield the message bodies of the same events."""
    return (json.dumps(event).encode() for event in events(seed))


def _task(random: Random) -> Iterator[Event]:
    uuid = _id(random)
    parent = _id(random) if random.random() < 0.2 else None
    described = {
        "uuid": uuid,
        "name": random.choice(NAMES),
        "args": f"({random.randrange(10**6)}, 'customer-{random.randrange(10**5)}')",
        "kwargs": f"{{'order': {random.randrange(10**7)}, 'dry_run': False}}",
        "root_id": parent or uuid,
        "parent_id": parent,
        "eta": None,
        "expires": None,
    }
    route = {"queue": "celery", "exchange": "", "routing_key": "celery"}
    client = random.randrange(len(CLIENTS))
    sender = {"hostname": CLIENTS[client], "pid": 4000 + client}
    outcome = random.random()
    yield {"type": "task-sent", **sender, **described, "retries": 0, **route}
    for attempt in range(4):
        worker = random.randrange(len(WORKERS))
        at_worker = {"hostname": WORKERS[worker], "pid": 20_000 + worker}
        yield {"type": "task-received", **at_worker, **described, "retries": attempt}
        yield {"type": "task-started", **at_worker, "uuid": uuid}
        if outcome < 0.9 or attempt == 3:
            result = f"{{'id': {random.randrange(10**9)}, 'ok': True}}"
            yield {
                "type": "task-succeeded",
                **at_worker,
                "uuid": uuid,
                "result": result,
                "runtime": random.random(),
            }
            return
        raised = {"exception": f"TimeoutError({random.randrange(100)})", "traceback": TRACEBACK}
        if outcome < 0.95:
            yield {"type": "task-failed", **at_worker, "uuid": uuid, **raised}
            return
        # The child sends the next attempt before its worker tells of the retry.
        child = {"hostname": f"gen{30_000 + worker}@worker-{worker:02}.example", "pid": 30_000 + worker}
        yield {"type": "task-sent", **child, **described, "retries": attempt + 1, **route}
        yield {"type": "task-retried", **at_worker, "uuid": uuid, **raised}
        outcome = random.random()


def _id(random: Random) -> str:
    return str(UUID(int=random.getrandbits(128), version=4))


def _heartbeat(random: Random, number: int) -> Event:
    worker = random.randrange(len(WORKERS))
    return {
        "type": "worker-heartbeat",
        "hostname": WORKERS[worker],
        "pid": 20_000 + worker,
        "freq": 2.0,
        "active": random.randrange(8),
        "processed": number,
        "loadavg": [0.5, 0.6, 0.7],
        "sw_ident": "py-celery",
        "sw_ver": "5.7.0",
        "sw_sys": "Linux",
    }
