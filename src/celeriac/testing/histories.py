"""Histories of tasks as a cluster could produce them.

A *regular* history is what happens to one task when nothing is lost: an optional
``sent``; then for each attempt one ``received``, or several if the broker delivers
again, ``started``, custom events, and one of ``retried`` (then the next attempt),
``succeeded``, ``failed``, ``revoked``, or nothing yet. Events come in causal order.
Every process has a Lamport clock of its own, linked to no other, because a task
message carries none; every host has a wall clock of its own, wrong by up to ``skew``.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from celeriac.model.events import (
    Custom,
    Extra,
    Failed,
    Received,
    Retried,
    Revoked,
    Sent,
    Started,
    Succeeded,
    TaskEvent,
)

__all__ = ["BEGIN", "Cluster", "regular_history"]

BEGIN = 1_790_000_000.0

_E = TypeVar("_E", bound=TaskEvent)


@dataclass
class Process:
    """A worker process: its clock is exact for itself alone."""

    hostname: str
    pid: int
    clock: int
    skew: float


@dataclass
class Cluster:
    """A few workers and the time that passes; ``random`` decides everything."""

    random: Random
    skew: float = 0.0
    now: float = BEGIN
    processes: list[Process] = field(init=False)

    def __post_init__(self) -> None:
        self.processes = [
            Process(f"w{host}@lab", 100 * host + 1, self.random.randrange(1, 10**6), self._wrong_by())
            for host in range(3)
        ]

    def _wrong_by(self) -> float:
        return self.random.uniform(-self.skew, self.skew)

    def emit(self, kind: type[_E], process: Process, **fields: Any) -> _E:
        """Return the next event of a process; time and its clock move on."""
        self.now += self.random.choice((0.001, 0.01, 0.5, 3.0, 60.0))
        process.clock += self.random.choice((1, 1, 1, 2, 20))
        return kind(
            timestamp=round(self.now + process.skew, 6),
            clock=process.clock,
            hostname=process.hostname,
            pid=process.pid,
            **fields,
        )


def regular_history(
    random: Random, *, skew: float = 0.0, redelivery: bool = False, customs_before_revoke: bool = True
) -> list[TaskEvent]:
    """Return the events of one task in causal order, the last attempt perhaps still open."""
    cluster = Cluster(random, skew=skew)
    uuid = f"task-{random.randrange(10**9)}"
    described = {
        "name": random.choice(("add", "mail.send", "größe")),
        "args": f"({random.randrange(100)},)",
        "kwargs": "{}",
        "root_id": random.choice((uuid, "root-1")),
        "eta": random.choice((None, "2026-11-15T00:00:00+00:00")),
    }
    parent = random.choice((None, "parent-1"))
    history: list[TaskEvent] = []
    if random.random() < 0.5:
        client = Process("gen7@web", 7, random.randrange(1, 10**6), 0.0)
        route = {"queue": "celery", "exchange": "", "routing_key": "celery"}
        history.append(cluster.emit(Sent, client, uuid=uuid, parent_id=parent, **described, **route))
    for attempt in range(random.choice((1, 1, 2, 3, 5))):
        parent = uuid if attempt else parent
        told = {**described, "uuid": uuid, "parent_id": parent, "retries": attempt}
        process = random.choice(cluster.processes)
        history.append(cluster.emit(Received, process, **told))
        while redelivery and random.random() < 0.3:
            if random.random() < 0.5:
                history.append(cluster.emit(Started, process, uuid=uuid))
            process = random.choice(cluster.processes)
            history.append(cluster.emit(Received, process, **told))
        if random.random() < 0.1:
            return history
        ended = _run(cluster, process, uuid, history, customs_before_revoke=customs_before_revoke)
        if ended:
            return history
    return history


def _run(
    cluster: Cluster, process: Process, uuid: str, history: list[TaskEvent], *, customs_before_revoke: bool
) -> bool:
    """Add what happens between receipt and the end of an attempt; tell whether the task ended."""
    random = cluster.random
    history.append(cluster.emit(Started, process, uuid=uuid))
    # A custom event comes from a child of the worker, whose clock follows nobody's.
    child = Process(process.hostname, process.pid + 1, random.randrange(1, 10**6), process.skew)
    customs = random.choice((0, 0, 0, 1, 3))
    for done in range(customs):
        subject = random.choice(("progress", "uploading"))
        history.append(cluster.emit(Custom, child, uuid=uuid, subject=subject, extra=Extra(done=done)))
    end = random.random()
    if end < 0.35:
        raised = {"exception": f"Timeout({random.randrange(9)})", "traceback": "Traceback …"}
        history.append(cluster.emit(Retried, process, uuid=uuid, **raised))
        return False
    if end < 0.65:
        result = str(random.randrange(100))
        history.append(cluster.emit(Succeeded, process, uuid=uuid, result=result, runtime=random.random()))
    elif end < 0.8:
        history.append(
            cluster.emit(Failed, process, uuid=uuid, exception="KeyError('x')", traceback="Traceback …")
        )
    elif end < 0.9 and (customs_before_revoke or not customs):
        history.append(cluster.emit(Revoked, process, uuid=uuid, terminated=True, signum="15", expired=False))
    return True
