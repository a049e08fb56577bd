"""Events of many tasks, regular and without any regularity, to fold in one frame."""

from random import Random
from typing import Any

from celeriac.core.order import TaskKey, task_key
from celeriac.model.events import (
    Custom,
    Described,
    Failed,
    Received,
    Rejected,
    Retried,
    Revoked,
    Sent,
    Started,
    Succeeded,
    TaskEvent,
)
from celeriac.testing.histories import regular_history

Row = dict[str, Any]
ISO = "2026-11-15T00:00:00+00:00"
ISO_AT = 1_794_700_800.0


def uuid_of(random: Random) -> str:
    digits = f"{random.getrandbits(128):032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def wild_history(random: Random, uuid: str) -> list[TaskEvent]:
    """Return events without any regularity; few values, so that they collide in every way they can."""
    kin = (
        None,
        uuid,
        "p",
        "q",
        "0" * 8 + "-0000-0000-0000-" + "f" * 12,
        "FFFFFFFF-0000-0000-0000-000000000000",
    )
    agreed = {"name": random.choice((None, "", "x")), "root_id": random.choice(kin)}

    def described() -> Row:
        if random.random() < 0.6:
            return agreed
        return {
            "name": random.choice((None, "", "x", "größe")),
            "root_id": random.choice(kin),
            "parent_id": random.choice(kin),
            "retries": random.choice((0, 0, 1, 2)),
            "eta": random.choice((None, ISO, "soon")),
        }

    kinds = (Sent, Received, Started, Succeeded, Failed, Retried, Rejected, Revoked, Custom)
    usual = (Sent, Received, Started, Succeeded)
    allowed = random.choice(
        (kinds, kinds, usual, usual[:3], (Received, Started), (Received, Started, Retried))
    )
    events: dict[TaskKey, TaskEvent] = {}
    for _ in range(random.choice((1, 2, 3, 4, 4, 8, 30))):
        kind = random.choice(allowed)
        fields: Row = {
            "timestamp": random.choice((0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 1e9)),
            "clock": random.choice((0, 1, 2, 3, 5000, 2**53 - 1)),
            "hostname": random.choice(("a@x", "b@x", "ü@x")),
            "pid": random.choice((0, 1)),
            "uuid": uuid,
            "local_received": random.choice((1_790_000_000.0, 1_790_086_400.5)),
        }
        if issubclass(kind, Described):
            fields |= described()
        if kind is Sent:
            fields["queue"] = random.choice((None, "", "celery"))
        if kind is Succeeded:
            fields["runtime"] = random.choice((None, 0.0, 1.5))
        if kind is Rejected:
            fields["requeue"] = random.choice((None, True, False))
        if kind is Custom:
            fields["subject"] = random.choice(("progress", "upload", "größe", "success", "Retry"))
        event = kind(**fields)
        # Of one identity there is one content, but for the clock that each receiver gives task-sent.
        known = events.get(task_key(event))
        if known is None or _clockless(event) == _clockless(known):
            events[task_key(event)] = event
    return list(events.values())


def usual_history(random: Random, uuid: str) -> list[TaskEvent]:
    """Return some of the events of a task that one process received, started and ended."""
    kin = (None, None, uuid_of(random), "p")
    described: Row = {
        "name": random.choice((None, "x", "größe")),
        "root_id": random.choice((*kin, uuid)),
        "parent_id": random.choice(kin),
        "retries": random.choice((0, 0, 0, 1)),
        "eta": random.choice((None, None, ISO)),
    }
    process: Row = {"hostname": random.choice(("a@x", "ü@x")), "pid": random.choice((0, 1, 2**22))}
    clocks = sorted(random.choices((0, 1, 2, 3, 5000), k=3))
    ended = random.choice((Succeeded, Succeeded, Failed, Revoked))
    received_at = random.choice((1_790_000_000.0, 1_790_086_400.5))
    events: list[TaskEvent] = [
        Sent(
            timestamp=random.choice((1.0, 2.5, 9.0)), clock=random.choice((0, 4)), hostname="client@x", pid=9,
            uuid=uuid, queue=random.choice((None, "celery")), local_received=received_at, **described,
        )
    ]  # fmt: skip
    for place, kind in enumerate((Received, Started, ended)):
        more: Row = described if kind is Received else {}
        if kind is Succeeded:
            more = {"runtime": random.choice((None, 0.0, 1.5))}
        told: Row = {"timestamp": 2.0 + place, "clock": clocks[place], "local_received": received_at + place}
        events.append(kind(uuid=uuid, **told, **process, **more))
    return random.sample(events, random.choice((1, 2, 3, 4, 4, 4)))


def _clockless(event: TaskEvent) -> Row:
    told = {name: getattr(event, name) for name in event.__struct_fields__}
    return told | {"clock": None, "local_received": None}


def many_tasks(seed: int, *, regular: int, wild: int, usual: int) -> list[TaskEvent]:
    """Return the events of many tasks, some of them twice, in an order that means nothing."""
    random = Random(seed)
    events: list[TaskEvent] = []
    uuids = set[str]()
    while len(uuids) < regular:
        made = regular_history(random, skew=random.choice((0.0, 60.0)), redelivery=random.random() < 0.3)
        cut = made[: random.randrange(1, len(made) + 1)]
        if cut[0].uuid not in uuids:
            uuids.add(cut[0].uuid)
            events += cut
    for number in range(wild):
        events += wild_history(random, uuid_of(random) if number % 2 else f"wild-{number}")
    for _ in range(usual):
        events += usual_history(random, uuid_of(random))
    events += [_received_elsewhere(event, random) for event in events if random.random() < 0.3]
    random.shuffle(events)
    return events


def _received_elsewhere(event: TaskEvent, random: Random) -> TaskEvent:
    told = {name: getattr(event, name) for name in event.__struct_fields__}
    if isinstance(event, Sent):
        told["clock"] = random.choice((0, 7, 2**40))
    return type(event)(**told)
