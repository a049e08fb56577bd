"""The step that takes tasks from their queues, and has their messages settled."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from random import random
from time import monotonic
from typing import ClassVar, Final

from celeriac.config import Settings
from celeriac.core.backoff import Backoff
from celeriac.errors import AccessRefused, CeleriacError, ConnectionLost, NetworkError
from celeriac.model.message import Delivery
from celeriac.transport.base import Connection
from celeriac.wire.names import task_queue
from celeriac.worker.assignment import Assignment, Desk, Stage, Verdict
from celeriac.worker.graph import Step
from celeriac.worker.intake import Intake
from celeriac.worker.pool.base import Pool

__all__ = ["TasksStep"]

logger = logging.getLogger(__name__)

#: How long one turn lasts at the most: limits of time are looked at between turns.
_TURN: Final = 0.25


class TasksStep(Step):
    """Consumes from the queues of tasks over a link of its own, and is turned by one thread.

    When the link is lost, what has not begun waits: it goes on over the next link where the broker lets
    us keep it, and else is let go, for the broker gives it out again. What runs goes on, and its message
    is settled over the next link: as it is where the broker allows that, and else when it comes again.
    """

    name: ClassVar = "tasks"
    requires: ClassVar = ("pool", "finisher")
    after: ClassVar = ("mingle", "gossip", "heart")

    def __init__(
        self,
        connect: Callable[[], Connection],
        *,
        settings: Settings,
        queues: Iterable[str],
        pool: Pool,
        desk: Desk,
    ) -> None:
        self._connect = connect
        self._settings = settings
        #: The queues that are consumed from, by name.
        self.queues = {name: task_queue(settings, name) for name in queues}
        self._pool = pool
        self._desk = desk
        #: What is done with each message; given before the step starts.
        self.intake: Intake
        self._link: Connection | None = None
        #: The link that was lost last: a clone of it settles what it could not.
        self._lost: Connection | None = None
        #: What was withdrawn when the link was lost.
        self._suspended: list[Assignment] = []
        self._prefetch = 0
        self._settlements: deque[tuple[Assignment, Verdict]] = deque()
        self._calls: deque[Callable[[], object]] = deque()
        # No event of threading: a signal that comes while this thread sets one would wait for itself.
        self._is_woken = False
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._backoff = Backoff(base=settings.broker_retry_base, cap=settings.broker_retry_cap, random=random)
        self._retry_at = 0.0
        self._is_consuming = False

    @property
    def is_quiet(self) -> bool:
        """Whether the broker was told of everything that is to be settled."""
        return not self._settlements

    @property
    def _is_idle(self) -> bool:
        """Whether nothing more is to come: the worker ends, and has nothing in hand."""
        return not self._is_consuming and not len(self._desk)

    @property
    def prefetch(self) -> int:
        """How many tasks may be here and not settled."""
        waiting = min(len(self.intake.schedule), self._settings.worker_eta_task_limit)
        # What waits for its moment must not keep others from coming.
        return self._pool.size * self._settings.worker_prefetch_multiplier + waiting

    # -- for any thread

    def settle(self, assignment: Assignment, verdict: Verdict) -> None:
        """Say what becomes of a message."""
        self._settlements.append((assignment, verdict))
        self.wake()

    def settle_many(self, settlements: Sequence[tuple[Assignment, Verdict]]) -> None:
        """Say what becomes of some messages."""
        self._settlements.extend(settlements)
        self.wake()

    def call(self, function: Callable[[], object]) -> None:
        """Have something done by the thread that turns this step, soon."""
        self._calls.append(function)
        self.wake()

    def wake(self) -> None:
        """Let a turn that waits end soon; from a handler of signals, too."""
        if self._is_woken:
            return
        self._is_woken = True
        link = self._link
        if link is not None:
            link.wake()
        else:
            self._bell.put(None)

    # -- for the thread that turns it

    def start(self) -> None:
        """Consume from every queue."""
        self._is_consuming = True
        self._open()

    def stop(self) -> None:
        """Settle what can be settled, and give the rest back to the broker."""
        self._is_consuming = False
        if self._link is not None:
            try:
                self._settle_waiting(self._link)
            except NetworkError as error:
                logger.info("worker: the last acknowledgements may be lost: %s", error)
            link, self._link = self._link, None
            link.close()

    def stop_consuming(self) -> None:
        """Take no more tasks, and begin none; those that run go on."""
        if not self._is_consuming:
            return
        self._is_consuming = False
        if self._link is not None:
            try:
                for name in self.queues:
                    self._link.stop_consuming(name)
            except NetworkError as error:
                self._lose(error)
        self._suspend()
        unbegun, self._suspended = self._suspended, []
        self._desk.remove(unbegun)
        self.settle_many([(each, Verdict.REQUEUE) for each in unbegun])

    def give_back(self, broken: Sequence[Assignment]) -> list[Assignment]:
        """Have messages of tasks that were broken off put back into their queues.

        Returns those for which it is too late: the broker was told that they are done.
        """
        unwanted = {each.key for each in broken}
        # What was to be said of them is not true any more.
        waiting = [self._settlements.popleft() for _ in range(len(self._settlements))]
        self._settlements.extend(each for each in waiting if each[0].key not in unwanted)
        self.settle_many([(each, Verdict.REQUEUE) for each in broken if each.verdict is None])
        return [each for each in broken if each.verdict is Verdict.ACCEPT]

    def turn(self) -> None:
        """Do what there is to do, and wait a moment for more."""
        self._is_woken = False
        while self._calls:
            self._do(self._calls.popleft())
        self._pool.tick(monotonic())
        if self._link is None and monotonic() >= self._retry_at:
            self._reopen()
        if self._link is None:
            self._rest()
        else:
            self._drain(self._link)
        if self._is_consuming:
            self.intake.begin_due()
        self.intake.flush()

    def _do(self, function: Callable[[], object]) -> None:
        try:
            function()
        except ConnectionLost as error:
            self._lose(error)
        except CeleriacError as error:
            logger.error("control: a command failed: %s", error)  # noqa: TRY400 - it says how to mend it
        except Exception:  # a command must not end a worker
            logger.exception("control: a command failed")

    def _rest(self) -> None:
        """Wait until it is time to look for the broker, or until somebody wakes us."""
        wait = min(_TURN, self._retry_at - monotonic())
        if not self._is_woken and wait > 0:
            with suppress(Empty):
                self._bell.get(timeout=wait)

    def _drain(self, link: Connection) -> None:
        try:
            self._settle_waiting(link)
            self._set_prefetch(link)
            link.drain(0.0 if self._is_woken or self._is_idle else self.intake.next_due(_TURN))
        except ConnectionLost as error:
            self._lose(error)

    def write_settlements(self, settlements: Sequence[tuple[Assignment, Verdict]]) -> None:
        """Settle messages, and write that to the broker before their tasks begin."""
        self._settlements.extend(settlements)
        if self._link is not None:
            try:
                self._settle_waiting(self._link)
                self._link.drain(0.0)
            except ConnectionLost as error:
                self._lose(error)

    def add_queue(self, name: str) -> None:
        """Consume from another queue too; raises AccessRefused, and leaves it, if that cannot be."""
        if name in self.queues:
            return
        self.queues[name] = queue = task_queue(self._settings, name)
        if self._link is not None and self._is_consuming:
            try:
                self._link.consume(queue, self.intake.take, prefetch=self.prefetch)
            except AccessRefused:
                del self.queues[name]
                raise

    def remove_queue(self, name: str) -> None:
        """Consume from a queue no more."""
        if self.queues.pop(name, None) is not None and self._link is not None:
            self._link.stop_consuming(name)

    def settle_now(self, delivery: Delivery, verdict: Verdict) -> None:
        """Settle a message that no task is in hand for."""
        if self._link is not None:
            _settle(self._link, delivery, verdict)

    def set_aside(self, delivery: Delivery, seconds: float) -> bool:
        """Move the message of a task out of the way for a while; return False if that cannot be now."""
        try:
            return self._link is not None and self._link.set_aside(delivery, seconds)
        except ConnectionLost:
            return False  # the next drain says so, too

    # -- the link

    def _open(self) -> None:
        link = self._connect() if self._lost is None else self._lost.clone()
        try:
            link.open()
            self._keep_all(link)
            self._prefetch = self.prefetch
            for queue in self.queues.values() if self._is_consuming else ():
                link.consume(queue, self.intake.take, prefetch=self._prefetch)
        except BaseException:
            link.close()
            raise
        self._link, self._lost = link, None
        self._backoff.reset()
        self._resume()

    def _reopen(self) -> None:
        try:
            self._open()
        except ConnectionLost as error:
            self._retry_at = monotonic() + self._backoff.next()
            logger.debug("worker: the broker is still unreachable: %s", error)
        else:
            logger.info("worker: reconnected to the broker, consuming from %s", ", ".join(self.queues))

    def _lose(self, error: NetworkError) -> None:
        link, self._link = self._link, None
        if link is None:
            return
        link.close()
        self._lost = link
        logger.warning("worker: lost the broker, no tasks are consumed: %s", error)
        self._retry_at = monotonic() + self._backoff.next()
        self._suspend()

    def _suspend(self) -> None:
        """Begin nothing more of what is here: who knows whether it is still ours."""
        for assignment in self._desk.all(Stage.SCHEDULED, Stage.RESERVED):
            if self.intake.withdraw(assignment):
                self._suspended.append(assignment)

    def _resume(self) -> None:
        """Go on with what is still ours, and let go of the rest."""
        suspended, self._suspended = self._suspended, []
        self._desk.remove(each for each in suspended if each.delivery is None)
        for assignment in suspended:
            if assignment.delivery is not None:
                self.intake.resume(assignment)

    def _keep_all(self, link: Connection) -> None:
        """Go on with the messages that came over a link that was lost."""
        for assignment in self._desk.all():
            delivery = assignment.delivery
            if delivery is not None and (assignment.verdict is not None or not link.keep(delivery)):
                # If the broker does not know what became of it, it comes again.
                assignment.delivery = None

    def _settle_waiting(self, link: Connection) -> None:
        while self._settlements:
            assignment, verdict = self._settlements[0]
            delivery = assignment.delivery
            if delivery is not None and assignment.verdict is None:
                _settle(link, delivery, verdict)
                assignment.verdict = verdict
            # Only now: if the link is lost in between, it is settled over the next.
            self._settlements.popleft()

    def _set_prefetch(self, link: Connection) -> None:
        prefetch = self.prefetch
        if prefetch != self._prefetch:
            self._prefetch = prefetch
            link.set_prefetch(prefetch)


def _settle(link: Connection, delivery: Delivery, verdict: Verdict) -> None:
    if verdict is Verdict.ACCEPT:
        link.accept(delivery)
    else:
        link.reject(delivery, requeue=verdict is Verdict.REQUEUE)
