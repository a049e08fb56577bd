"""What a worker does when a command asks for it."""

import logging
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Final

from celeriac.config import Settings
from celeriac.errors import CallerError, PeerError
from celeriac.node.mailbox import Handler, Later
from celeriac.node.revoked import SharedRevokedSet
from celeriac.wire.election import read_election
from celeriac.worker.argument import count_of, ids_of, queue_name_of, seconds_of, signal_of
from celeriac.worker.assignment import Desk, Stage
from celeriac.worker.elector import Elector
from celeriac.worker.intake import Intake
from celeriac.worker.pool.base import Pool
from celeriac.worker.steps.events import EventsStep
from celeriac.worker.steps.heart import HeartStep
from celeriac.worker.steps.tasks import TasksStep

__all__ = ["OPEN_COMMANDS", "Commands"]

logger = logging.getLogger(__name__)

#: Commands that every worker obeys. A hello revokes tasks too; ``election_actions`` names the tasks that an
#: election may start, by default none; monitors send the others, and they change no task.
OPEN_COMMANDS: Final = frozenset({"heartbeat", "enable_events", "disable_events", "revoke", "election"})


class Commands:
    """The commands of a worker, by name. They run in the thread that reads the mailbox.

    What changes something that belongs to the thread of tasks is handed over to it.
    """

    def __init__(
        self,
        *,
        stop: Callable[[], object],
        settings: Settings,
        desk: Desk,
        revoked: SharedRevokedSet,
        pool: Pool,
        intake: Intake,
        tasks: TasksStep,
        heart: HeartStep,
        events: EventsStep,
        elector: Elector,
        registered: Mapping[str, object],
    ) -> None:
        self._stop = stop
        self._settings = settings
        self._desk = desk
        self._revoked = revoked
        self._pool = pool
        self._intake = intake
        self._tasks = tasks
        self._heart = heart
        self._events = events
        self._elector = elector
        self._registered = registered

    def handlers(self) -> dict[str, Handler]:
        """Return what to call for each command."""
        return {
            "heartbeat": self.heartbeat,
            "election": self.election,
            "revoke": self.revoke,
            "terminate": self.terminate,
            "rate_limit": self.rate_limit,
            "time_limit": self.time_limit,
            "pool_grow": self.pool_grow,
            "pool_shrink": self.pool_shrink,
            "add_consumer": self.add_consumer,
            "cancel_consumer": self.cancel_consumer,
            "enable_events": self.enable_events,
            "disable_events": self.disable_events,
            "shutdown": self.shutdown,
        }

    def heartbeat(self, **_: object) -> None:
        """Send a heartbeat now."""
        self._heart.beat()

    def election(self, **fields: object) -> object:
        """Take part in an election, and answer whether this worker may act in it."""
        try:
            election = read_election(fields)
        except PeerError:
            raise CallerError("an election needs an id, a topic, and an action of up to 16 KiB") from None

        def join(answer: Callable[[object], None]) -> None:
            self._elector.join(
                election,
                monotonic(),
                lambda refusal: answer({"error": refusal} if refusal else {"ok": "takes part"}),
            )

        return Later(join)

    def revoke(
        self, task_id: object = (), terminate: object = False, signal: object = "SIGTERM", **_: object
    ) -> object:
        """Run these tasks no more; with ``terminate``, end those that run, if that is allowed."""
        ids = ids_of(task_id)
        if terminate:
            if "terminate" not in self._settings.control_allow:
                raise CallerError(
                    "the worker does not terminate running tasks: add terminate to control_allow"
                )
            return self._terminate(ids, signal)
        for each in ids:
            self._revoked.add(each, now=monotonic())
        self._tasks.call(lambda: self._withdraw(ids))
        # Celery: the ids as Python shows a set.
        return {"ok": f"tasks {set(ids)} flagged as revoked"}

    def terminate(self, signal: object = "SIGTERM", task_id: object = (), **_: object) -> object:
        """End these tasks, whether they run or not."""
        return self._terminate(ids_of(task_id), signal)

    def rate_limit(self, task_name: object = "", rate_limit: object = None, **_: object) -> object:
        """Let tasks of a name begin so often."""
        if task_name not in self._registered:
            return {"error": "unknown task"}
        if not isinstance(rate_limit, str | int | float | None):
            return {"error": f"Invalid rate limit string: {rate_limit!r}"}
        name, rate = str(task_name), rate_limit
        try:
            self._intake.check_rate(rate)
        except CallerError as error:
            return {"error": str(error)}
        self._tasks.call(lambda: self._intake.set_rate(name, rate))
        return {"ok": "new rate limit set successfully" if rate else "rate limit disabled successfully"}

    def time_limit(
        self, task_name: object = "", hard: object = None, soft: object = None, **_: object
    ) -> object:
        """Let tasks of a name that begin from now on run so long."""
        if task_name not in self._registered:
            return {"error": "unknown task"}
        hard, soft = seconds_of(hard, "hard"), seconds_of(soft, "soft")
        self._tasks.call(lambda: self._intake.set_time_limits(str(task_name), hard=hard, soft=soft))
        return {"ok": "time limits set successfully"}

    def pool_grow(self, n: object = 1, **_: object) -> object:
        """Run more tasks at a time."""
        count = self._places(n)
        self._tasks.call(lambda: self._pool.grow(count))
        return {"ok": "pool will grow"}

    def pool_shrink(self, n: object = 1, **_: object) -> object:
        """Run fewer tasks at a time."""
        count = self._places(n)
        self._tasks.call(lambda: self._pool.shrink(count))
        return {"ok": "pool will shrink"}

    def add_consumer(self, queue: object = "", **_: object) -> object:
        """Take tasks from another queue too."""
        name = queue_name_of(queue)
        self._tasks.call(lambda: self._tasks.add_queue(name))
        return {"ok": f"add consumer {name}"}

    def cancel_consumer(self, queue: object = "", **_: object) -> object:
        """Take no more tasks from a queue."""
        name = queue_name_of(queue)
        self._tasks.call(lambda: self._tasks.remove_queue(name))
        return {"ok": f"no longer consuming from {name}"}

    def enable_events(self, **_: object) -> object:
        """Send events of tasks."""
        if self._events.has_task_events:
            return {"ok": "task events already enabled"}
        self._events.dispatcher.groups.add("task")
        logger.info("worker: task events enabled by a control command")
        self._heart.announce()
        return {"ok": "task events enabled"}

    def disable_events(self, **_: object) -> object:
        """Send events of tasks no more."""
        if "task" not in self._events.dispatcher.groups:
            return {"ok": "task events already disabled"}
        self._events.dispatcher.groups.discard("task")
        logger.info("worker: task events disabled by a control command")
        return {"ok": "task events disabled"}

    def shutdown(self, **_: object) -> None:
        """End once what runs has ended."""
        logger.warning("worker: shutdown requested by a control command")
        self._stop()

    # -- inside

    def _places(self, n: object) -> int:
        if self._pool.runs_in_place:
            raise CallerError(f"the {self._pool.name} pool runs one task at a time: use threads or processes")
        return count_of(n)

    def _terminate(self, ids: list[str], signal_name: object) -> object:
        number = signal_of(signal_name)
        for each in ids:
            self._revoked.add(each, now=monotonic())
        known = list(dict.fromkeys(each.request.id for each in self._desk.find(ids)))
        self._tasks.call(lambda: self._withdraw(ids, signal_number=number))
        return {"ok": f"terminate: {', '.join(known)}" if known else "terminate: tasks unknown"}

    def _withdraw(self, ids: list[str], *, signal_number: int | None = None) -> None:
        """End what has not begun; what has, only by a signal."""
        for assignment in self._desk.find(ids):
            if self._intake.withdraw(assignment):
                self._intake.end_revoked(assignment)
            elif signal_number is not None and assignment.stage is Stage.ACTIVE:
                assignment.signal_number = signal_number
                if not self._pool.terminate(assignment.key, signal_number):
                    assignment.signal_number = None
                    logger.warning(
                        "worker: cannot terminate task %s: the %s pool cannot stop a single task, use "
                        "processes",
                        assignment.request.id,
                        self._pool.name,
                    )
