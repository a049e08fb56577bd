"""What a worker answers when a command asks."""

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, Final

from celeriac.config import Settings
from celeriac.model.message import Queue
from celeriac.node.mailbox import Handler
from celeriac.node.revoked import SharedRevokedSet
from celeriac.node.task_options import OPTION_NAMES
from celeriac.worker.argument import ids_of
from celeriac.worker.assignment import Assignment, Desk, Stage
from celeriac.worker.elector import Elector
from celeriac.worker.pool.base import Pool
from celeriac.worker.steps.gossip import GossipStep
from celeriac.worker.steps.tasks import TasksStep

__all__ = ["Answers"]

#: Celery: a task that has ended, and is not settled yet, is ready.
_STATES: Final[Mapping[Stage, str]] = {stage: stage.value for stage in Stage} | {Stage.ENDED: "ready"}


class Answers:
    """What can be asked of a worker: answered in the thread that reads the mailbox, and nothing changes."""

    def __init__(
        self,
        *,
        settings: Settings,
        hostname: str,
        desk: Desk,
        revoked: SharedRevokedSet,
        pool: Pool,
        tasks: TasksStep,
        gossip: GossipStep,
        elector: Elector,
        registered: Mapping[str, object],
    ) -> None:
        self._settings = settings
        self._hostname = hostname
        self._desk = desk
        self._revoked = revoked
        self._pool = pool
        self._tasks = tasks
        self._gossip = gossip
        self._elector = elector
        self._registered = registered

    def handlers(self) -> dict[str, Handler]:
        """Return what to call for each question, under all of its names."""
        return {
            "active": self.active,
            "dump_active": self.active,
            "reserved": self.reserved,
            "dump_reserved": self.reserved,
            "scheduled": self.scheduled,
            "dump_schedule": self.scheduled,
            "revoked": self.revoked,
            "dump_revoked": self.revoked,
            "registered": self.registered,
            "dump_tasks": self.registered,
            "active_queues": self.active_queues,
            "query_task": self.query_task,
            "conf": self.conf,
            "dump_conf": self.conf,
            "report": self.report,
        }

    def active(self, **_: object) -> list[dict[str, Any]]:
        """Return the tasks that run."""
        return [self._info(each) for each in self._desk.all(Stage.ACTIVE)]

    def reserved(self, **_: object) -> list[dict[str, Any]]:
        """Return the tasks that wait for their turn."""
        return [self._info(each) for each in self._desk.all(Stage.RESERVED)]

    def scheduled(self, **_: object) -> list[dict[str, Any]]:
        """Return the tasks that wait for their moment."""
        return [
            {
                "eta": _iso(each.request.eta),
                "priority": each.source.message.priority,
                "request": self._info(each),
            }
            for each in self._desk.all(Stage.SCHEDULED)
        ]

    def revoked(self, **_: object) -> list[str]:
        """Return the ids of the tasks that were revoked."""
        return list(self._revoked)

    def registered(self, taskinfoitems: object = (), **_: object) -> list[str]:
        """Return the names of the tasks that are known here, each with the options that were asked for."""
        asked = taskinfoitems if isinstance(taskinfoitems, list | tuple) else ()
        items = [item for item in asked if item in OPTION_NAMES]
        told = []
        for name, task in sorted(self._registered.items()):
            values = [(item, getattr(task, item)) for item in items]
            # Celery: an option that is not set is not told.
            shown = " ".join(f"{item}={value}" for item, value in values if value is not None)
            told.append(f"{name} [{shown}]" if shown else name)
        return told

    def active_queues(self, **_: object) -> list[dict[str, Any]]:
        """Return the queues that tasks come from."""
        return [_queue_info(queue) for queue in list(self._tasks.queues.values())]

    def query_task(self, ids: object = (), **_: object) -> dict[str, Any]:
        """Return, of tasks that are in hand here, where they are."""
        return {
            each.request.id: [_STATES[each.stage], self._info(each)] for each in self._desk.find(ids_of(ids))
        }

    def conf(self, **_: object) -> dict[str, object]:
        """Return the settings, with nothing secret in them."""
        return self._settings.public()

    def report(self, **_: object) -> dict[str, str]:
        """Return what helps to understand a report of a bug, with nothing secret in it."""
        versions = " ".join(f"{name}:{metadata.version(name)}" for name in ("celeriac", "kombu", "msgspec"))
        lines = [
            f"software -> {versions} py:{platform.python_version()}",
            f"platform -> system:{platform.system()} arch:{platform.machine()}",
            f"pool -> {self._pool.name}:{self._pool.size}",
            *(f"{name}: {value!r}" for name, value in self._settings.public().items()),
        ]
        return {"ok": "\n".join(lines)}

    def stats(self) -> dict[str, Any]:
        """Return what ``stats`` tells beside what every node tells."""
        return {
            "total": dict(self._desk.begun),
            "pool": self._pool.info(),
            "prefetch_count": self._tasks.prefetch,
            "refused": dict(self._tasks.intake.refused),
            "set_aside": self._tasks.intake.aside_count,
            "gossip": self._gossip.stats(),
            "elections": self._elector.stats(),
        }

    def _info(self, assignment: Assignment) -> dict[str, Any]:
        request, message = assignment.request, assignment.source.message
        return {
            "id": request.id,
            "name": request.task,
            # Celery: the values themselves, secrets included. Here what the sender lets everybody see.
            "args": request.argsrepr,
            "kwargs": request.kwargsrepr,
            "type": request.task,
            "hostname": self._hostname,
            "time_start": assignment.started_at,
            "acknowledged": assignment.verdict is not None,
            "delivery_info": {
                "exchange": message.exchange,
                "routing_key": message.routing_key,
                "priority": message.priority,
                "redelivered": message.is_redelivered,
            },
            "worker_pid": assignment.pid or os.getpid(),
        }


def _queue_info(queue: Queue) -> dict[str, Any]:
    exchange = queue.exchange
    return {
        "name": queue.name,
        "exchange": {"name": exchange.name, "type": exchange.type, "durable": exchange.is_durable},
        "routing_key": queue.routing_key,
        "durable": queue.is_durable,
        "exclusive": queue.is_exclusive,
        "auto_delete": queue.is_auto_deleted,
    }


def _iso(moment: float | None) -> str | None:
    return None if moment is None else datetime.fromtimestamp(moment, UTC).isoformat()
