"""Workers on the broker in this process, and a pool that does what a test says."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from celeriac.app import Celeriac
from celeriac.model.message import Exchange
from celeriac.model.outcome import Outcome
from celeriac.model.states import SUCCESS
from celeriac.model.task_request import TaskRequest
from celeriac.node.control import Control
from celeriac.programs.process import wait_until
from celeriac.transport.memory import MemoryBroker
from celeriac.wire.names import task_queue
from celeriac.wire.task_request import decode, encode
from celeriac.worker.parts import Choices, Surroundings
from celeriac.worker.pool.base import Job, Listener
from celeriac.worker.worker import Worker

__all__ = ["HOST", "PATIENCE", "HandPool", "Site", "come_true"]

HOST = "w1@lab"
#: Far more than needed, for a busy machine.
PATIENCE = 120.0


def come_true(condition: Callable[[], object]) -> bool:
    """Look until the condition holds, or all patience is gone; say whether it came to hold."""
    return wait_until(lambda: bool(condition()), patience=PATIENCE)


class HandPool:
    """A pool in which jobs begin and end when a test says so."""

    name = "hand"

    def __init__(
        self, size: int = 2, *, runs_in_place: bool = False, shares_process: bool | None = None
    ) -> None:
        self.size = size
        self.runs_in_place = runs_in_place
        self.shares_process = runs_in_place if shares_process is None else shares_process
        self.waiting: dict[int, Job] = {}
        self.running: dict[int, Job] = {}
        #: Every job that it was given.
        self.submitted: list[Job] = []
        #: What was ended by a signal: key and number.
        self.signals: list[tuple[int, int]] = []
        self.can_terminate = True
        self.is_killed = False
        self.starts = 0
        self.on_kill: Callable[[], object] = lambda: None
        #: What a tick raises, if anything.
        self.fault: Exception | None = None
        self.listener: Listener

    def start(self, listener: Listener) -> None:
        self.starts += 1
        self.listener = listener

    def submit(self, job: Job) -> None:
        self.submitted.append(job)
        self.waiting[job.key] = job

    def discard(self, key: int) -> bool:
        return self.waiting.pop(key, None) is not None

    def terminate(self, key: int, signal_number: int) -> bool:
        if self.can_terminate:
            self.signals.append((key, signal_number))
        return self.can_terminate

    def grow(self, count: int = 1) -> None:
        self.size += count

    def shrink(self, count: int = 1) -> None:
        self.size = max(1, self.size - count)

    def tick(self, now: float) -> None:  # noqa: ARG002
        if self.fault is not None:
            raise self.fault

    def stop(self, timeout: float | None = None) -> bool:  # noqa: ARG002
        return not self.running

    def kill(self) -> None:
        self.is_killed = True
        self.on_kill()
        self.waiting.clear()
        self.running.clear()

    def info(self) -> dict[str, Any]:
        return {"implementation": "hand", "max-concurrency": self.size}

    # -- for tests

    def begin(self) -> Job:
        """Let the first job that waits begin; wait until there is one."""
        assert come_true(lambda: self.waiting), "no job came"
        key = next(iter(self.waiting))
        job = self.running[key] = self.waiting.pop(key)
        self.listener.started(key, pid=4711, at=1_794_703_817.25)
        return job

    def end(self, job: Job, outcome: Outcome | None = None) -> None:
        """Let a job end."""
        self.running.pop(job.key, None)
        self.listener.ended(job.key, outcome or Outcome(SUCCESS, b"42", "42", runtime=0.5))

    def tell(self, job: Job, kind: str, fields: Mapping[str, Any]) -> None:
        """Let a job send an event of its own."""
        self.listener.told(job.key, kind, fields)


class Site:
    """A broker in this process, an app on it, and its workers."""

    def __init__(self, **settings: Any) -> None:
        self.broker = MemoryBroker()
        quick = {"worker_mingle_timeout": 0.05, "broker_retry_base": 0.01, "broker_retry_cap": 0.02}
        self.app = Celeriac(self.broker, environ={}, **{**quick, **settings})
        self.pool = HandPool()

    def worker(self, pool: Any = None, *, hostname: str = HOST, **choices: Any) -> Worker:
        """Return a worker with the pool of this site, or another."""
        app = self.app
        place = Surroundings(
            settings=app.conf,
            clock=app.clock,
            hostname=hostname,
            version="1.0",
            connect=app.connection,
            control=Control(app.connection, settings=app.conf, clock=app.clock, hostname=hostname),
            dispatcher=app.events.Dispatcher(hostname=hostname, buffer_group=("task",), enabled=False),
            sender=app._sender,
            backend=None if app.conf.result_backend is None else app.backend,
            tasks=app.tasks,
            arbiter=lambda: app.arbiter,
        )
        return Worker(place, Choices(**{"task_events": True, **choices}), pool or self.pool)

    def task(self, name: str, **options: Any) -> None:
        """Have a task of a name; hand pools never run it."""
        self.app.task(name=name, **options)(lambda *_: None)

    # -- what is sent

    def post(self, task: str = "shop.pay", task_id: str = "t1", queue: str = "celery", **fields: Any) -> None:
        """Send a task as any client may."""
        spelled = encode(TaskRequest(task_id, task, **fields))
        self.publish(spelled.body, spelled.headers, queue=queue)

    def publish(self, body: bytes, headers: Mapping[str, object], *, queue: str = "celery") -> None:
        """Put a message into a queue of tasks."""
        with self.app.connection() as link:
            link.declare(task_queue(self.app.conf, queue))
            link.publish(Exchange("", "direct"), body, routing_key=queue, headers=headers)

    def queued(self, queue: str = "celery") -> list[TaskRequest]:
        """Return the tasks that wait in a queue, which are then marked as redelivered."""
        found: list[TaskRequest] = []
        with self.app.connection() as link:
            link.consume(
                task_queue(self.app.conf, queue),
                lambda delivery: found.append(decode(delivery.message, max_bytes=1_000_000)),
                prefetch=1000,
            )
            link.drain(0)
        return found

    # -- what is told

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the events that were sent, by their stamps; of these kinds, if any are given."""
        found: list[dict[str, Any]] = []
        for exchange, message in list(self.broker.published):
            if exchange == "celeryev":
                told = json.loads(message.body)
                found += told if isinstance(told, list) else [told]
        chosen = [event for event in found if not kinds or event["type"] in kinds]
        return sorted(chosen, key=lambda event: int(event["clock"]))

    def has_told(self, kind: str, task_id: str = "t1") -> bool:
        """Tell whether an event of a task was sent."""
        return any(event["uuid"] == task_id for event in self.events(kind))

    def story(self, task_id: str = "t1") -> list[str]:
        """Return the kinds of the events of a task, in order."""
        return [event["type"] for event in self.events() if event.get("uuid") == task_id]

    def posted(self, queue: str = "celery") -> list[str]:
        """Return the ids of all tasks that were ever sent to a queue, in order."""
        sent = list(self.broker.published)
        return [str(each.headers["id"]) for where, each in sent if where == "" and each.routing_key == queue]
