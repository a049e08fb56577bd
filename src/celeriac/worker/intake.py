"""Takes tasks in: decides which run, which wait and which end before they began."""

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from time import monotonic, time
from typing import Any, TypeVar

from celeriac.config import Settings
from celeriac.core.admission import Discard, Run, Wait, admit, time_limits
from celeriac.core.rate import RateLimits, parse_rate
from celeriac.core.schedule import Schedule, time_aside
from celeriac.errors import CallerError, CeleriacError, NetworkError, NotRegistered, PeerError, TaskRevoked
from celeriac.model.message import Delivery
from celeriac.model.outcome import Outcome
from celeriac.model.states import FAILURE, REJECTED, REVOKED, STARTED
from celeriac.model.task_request import TaskRequest
from celeriac.node.rate_limited_log import RateLimitedLog
from celeriac.node.revoked import SharedRevokedSet
from celeriac.node.task import Task
from celeriac.wire.failure import failure_json
from celeriac.wire.task_request import decode
from celeriac.wire.value import spell
from celeriac.worker.assignment import Assignment, Desk, Stage, Verdict
from celeriac.worker.finisher import Ended, Finisher
from celeriac.worker.pool.base import Job, Pool
from celeriac.worker.report import TaskReport
from celeriac.worker.traits import Traits
from celeriac.worker.unbegun import unbegun

__all__ = ["Intake"]

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


class Intake:
    """What stands between the queues and the pool.

    It is for the thread that drains the queues, and the listener of the pool.

    ``settle`` says what becomes of the message of a task, from any thread, and ``settle_now`` of one
    that nothing is done for, from the thread that drains; ``write_settlements`` has the broker know at once.
    ``set_aside`` moves the message of a task that is due late out of the way, from the thread that drains.

    A task with early acknowledgement that kills its process must not run again and again. Where that is the
    worker's own, the acknowledgement of a first run may be lost with it: to write each before its task begins
    would cost two thirds of the throughput of threads. It is written before for a message that comes again.
    The pool gets such a task when it can begin at once: one that has not begun must not be lost.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        hostname: str,
        tasks: Mapping[str, Task],
        pool: Pool,
        desk: Desk,
        revoked: SharedRevokedSet,
        finisher: Finisher,
        report: TaskReport,
        settle: Callable[[Assignment, Verdict], None],
        settle_now: Callable[[Delivery, Verdict], None],
        write_settlements: Callable[[Sequence[tuple[Assignment, Verdict]]], None],
        wake: Callable[[], None],
        set_aside: Callable[[Delivery, float], bool],
    ) -> None:
        self._settings = settings
        self._hostname = hostname
        self._tasks = tasks
        self._pool = pool
        self._desk = desk
        self._revoked = revoked
        self._finisher = finisher
        self._report = report
        self._settle = settle
        self._settle_now = settle_now
        self._write_settlements = write_settlements
        self._wake = wake
        self._set_aside = set_aside
        #: Tasks that wait for their moment.
        self.schedule: Schedule[Assignment] = Schedule()
        self._rates: RateLimits[Assignment] = RateLimits()
        #: Tasks that can begin with the next turn; while what has ended cannot be stored, they wait.
        self._ready: OrderedDict[int, Assignment] = OrderedDict()
        #: Tasks that were submitted to the pool and have not ended.
        self._submitted: set[int] = set()
        #: Whether a task runs in the thread that drains, right now.
        self.is_running_in_place = False
        #: Messages that were rejected, by reason.
        self.refused: Counter[str] = Counter()
        #: How often a task left because too many wait for their moment.
        self.aside_count = 0
        self._log = RateLimitedLog(logger)
        #: Of the tasks that came by now: a module that is imported late may bring more of them.
        self._traits: dict[str, Traits] = {}
        self._unknown = Traits.of(None, settings)
        for name in tasks:
            self._traits_of(name)

    # -- what comes from a queue

    def take(self, delivery: Delivery) -> None:
        """Take one message of a queue of tasks; an error that it causes rejects the message, no more."""
        try:
            self._take(delivery)
        except NetworkError:
            raise
        except PeerError as error:
            self._refuse(delivery, str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, another worker would meet it as well
            self._refuse(delivery, _reason_of(error), error)

    def _take(self, delivery: Delivery) -> None:
        request = decode(delivery.message, max_bytes=self._settings.task_max_bytes)
        if delivery.message.is_redelivered and self._is_known(request, delivery):
            return
        traits = self._traits_of(request.task)
        assignment = self._desk.add(request, traits or self._unknown, delivery)
        try:
            decision = self._decide(request, is_registered=traits is not None)
            if not isinstance(decision, Discard):
                self._report.received(assignment)
            self._follow(assignment, decision)
        except BaseException:
            self._forget(assignment)
            raise

    def _forget(self, assignment: Assignment) -> None:
        """Take a task that has not begun out of all that it waits in."""
        self.withdraw(assignment)
        self._desk.remove([assignment])

    def _is_known(self, request: TaskRequest, delivery: Delivery) -> bool:
        """Say whether a message came again that is in hand, or done: a link was lost in between."""
        assignment = self._desk.find_attempt(request)
        if assignment is not None:
            self._take_again(assignment, delivery)
            return True
        verdict = self._desk.verdict_on(request)
        if verdict is None:
            return False
        logger.info("Task %s[%s] delivered again, ignored: already finished", request.task, request.id)
        self._settle_now(delivery, verdict)
        return True

    def _take_again(self, assignment: Assignment, delivery: Delivery) -> None:
        """Go on with a task in hand by the message that came again."""
        before, told = assignment.delivery, assignment.verdict
        if before is not None and told is None:
            # The broker thought that nobody has it any more, or somebody sent it twice: one is enough.
            self._settle_now(before, Verdict.ACCEPT)
        assignment.delivery, assignment.verdict = delivery, None
        if told is not None:
            self._settle(assignment, told)
        elif assignment.stage is Stage.ACTIVE and not assignment.traits.acks_late:
            # Begun, and to be acknowledged when it begins: that is now.
            self._settle(assignment, Verdict.ACCEPT)

    def _refuse(self, delivery: Delivery, reason: str, error: Exception | None = None) -> None:
        """Drop a message that cannot be a task here; put back, it would come again and again."""
        self._count_refusal(delivery, reason, error)
        self._settle_now(delivery, Verdict.DROP)

    def _count_refusal(self, delivery: Delivery, reason: str, error: Exception | None) -> None:
        self.refused[reason] += 1
        message = delivery.message
        self._log.write(
            logging.ERROR,
            reason,
            "Rejected message %.100r of queue %r: %s (%d so far). Senders must use JSON, valid headers, "
            "and at most task_max_bytes",
            message.headers.get("id") or message.correlation_id,
            delivery.queue,
            reason,
            self.refused[reason],
            exc_info=error,
        )

    def _decide(self, request: TaskRequest, *, is_registered: bool = True) -> Run | Wait | Discard:
        is_revoked = request.id in self._revoked
        return admit(request, is_registered=is_registered, is_revoked=is_revoked, now=time())

    def _follow(self, assignment: Assignment, decision: Run | Wait | Discard) -> None:
        match decision:
            case Run():
                self._enter(assignment)
            case Wait(until):
                assignment.stage = Stage.SCHEDULED
                self.schedule.add(assignment.key, until, assignment)
            case Discard("unregistered"):
                error = NotRegistered(assignment.request.task)
                self._end(assignment, self._unbegun(assignment, FAILURE, error)._replace(cause="unknown"))
            case Discard(reason):
                self.end_revoked(assignment, is_expired=reason == "expired")

    def _limit_schedule(self) -> None:
        """Set the latest tasks aside, so that those which wait for their moment leave room for others."""
        limit = self._settings.worker_eta_task_limit
        while len(self.schedule) > limit and (latest := self.schedule.latest) is not None:
            until, assignment = latest
            seconds = time_aside(until - time())
            if not seconds:
                return  # all are due soon
            try:
                is_aside = self._set_aside(assignment.source, seconds)
            except CallerError as error:
                self._drop(assignment, "headers", error)
                continue
            if not is_aside:
                self._log.write(
                    logging.WARNING,
                    "stays",
                    "worker: cannot return tasks to the broker, tasks_with_eta=%d, "
                    "worker_eta_task_limit=%d; other tasks may not start until some of them are due. "
                    "Raise worker_eta_task_limit",
                    len(self.schedule),
                    limit,
                )
                return
            self._forget(assignment)
            self.aside_count += 1
            self._log.write(
                logging.WARNING,
                "set aside",
                "worker: returned tasks with the latest ETA to the broker, returned=%d, "
                "worker_eta_task_limit=%d. The broker redelivers them before their ETA. To keep more in "
                "the worker, raise worker_eta_task_limit",
                self.aside_count,
                limit,
            )

    def end_revoked(self, assignment: Assignment, *, is_expired: bool = False) -> None:
        """End a task that has not begun: it was revoked, or came too late."""
        why = TaskRevoked("expired" if is_expired else "revoked", task_id=assignment.request.id)
        self._end(assignment, self._unbegun(assignment, REVOKED, why), is_expired=is_expired)

    def _unbegun(self, assignment: Assignment, state: str, error: Exception) -> Outcome:
        return unbegun(assignment.request, state, error, settings=self._settings, tasks=self._tasks)

    def _end(self, assignment: Assignment, outcome: Outcome, *, is_expired: bool = False) -> None:
        if self._desk.end(assignment.key) is not None:
            self._finisher.put(Ended(assignment, outcome, is_expired=is_expired))

    # -- from here to the pool

    def begin_due(self) -> None:
        """Begin what has waited long enough; if more waits than may, the latest leaves."""
        for assignment in self.schedule.due(time()):
            self._contain(self.resume, assignment)
        self._limit_schedule()
        for assignment in self._rates.due(monotonic()):
            self._ready[assignment.key] = assignment
        batch = [each for each in self._take_ready() if self._contain(self._may_begin, each)]
        accepted = [(each, Verdict.ACCEPT) for each in batch if self._is_accepted_before(each)]
        if accepted:
            self._write_settlements(accepted)
        for assignment in batch:
            self._contain(self._submit, assignment)

    def _take_ready(self) -> list[Assignment]:
        batch: list[Assignment] = []
        while self._has_room(len(batch)):
            batch.append(self._ready.popitem(last=False)[1])
        return batch

    def _has_room(self, taken: int = 0) -> bool:
        """Return whether the first of the tasks that are ready can be submitted, after some others."""
        if not self._ready or self._finisher.is_behind:
            return False
        if self._pool.runs_in_place:
            # It takes its time: whoever wants to stop, or to revoke the next, comes first.
            return not taken
        first = next(iter(self._ready.values()))
        return not self._is_accepted_before(first) or len(self._submitted) + taken < self._pool.size

    def _is_accepted_before(self, assignment: Assignment) -> bool:
        """Return whether the acknowledgement of a task is written before the task begins."""
        if assignment.traits.acks_late:
            return False
        has_come_again = assignment.source.message.is_redelivered
        return self._pool.runs_in_place or (self._pool.shares_process and has_come_again)

    def _contain(self, go_on: Callable[[Assignment], _T], assignment: Assignment) -> _T | None:
        """Go on with a task; an error that its message causes rejects the message, no more."""
        try:
            return go_on(assignment)
        except (CeleriacError, OSError, MemoryError):
            # The network, the pool or the machine: not the message.
            raise
        except Exception as error:  # noqa: BLE001 - as when it came
            self._drop(assignment, _reason_of(error), error)
        return None

    def _drop(self, assignment: Assignment, reason: str, error: Exception) -> None:
        """Reject the message of a task that has not begun."""
        self._forget(assignment)
        self._count_refusal(assignment.source, reason, error)
        self._settle(assignment, Verdict.DROP)

    def next_due(self, most: float) -> float:
        """Return after how many seconds something is due, ``most`` at the most."""
        if self._has_room():
            return 0.0
        at = self.schedule.next_at
        wait = most if at is None else at - time()
        rate_at = self._rates.next_at(monotonic())
        if rate_at is not None:
            wait = min(wait, rate_at - monotonic())
        return min(max(wait, 0.0), most)

    def _enter(self, assignment: Assignment) -> None:
        if self._rates.enter(assignment.request.task, assignment, now=monotonic()):
            self._ready[assignment.key] = assignment

    def resume(self, assignment: Assignment) -> None:
        """Go on with a task that was withdrawn."""
        assignment.stage = Stage.RESERVED
        self._follow(assignment, self._decide(assignment.request))

    def _may_begin(self, assignment: Assignment) -> bool:
        """Return whether a task that waited may still begin, and end it if it may not."""
        decision = self._decide(assignment.request)
        if isinstance(decision, Discard):
            self._follow(assignment, decision)
        return not isinstance(decision, Discard)

    def _submit(self, assignment: Assignment) -> None:
        request, message = assignment.request, assignment.source.message
        # As they are by now: the operator may have changed them while it waited.
        traits = self._traits_of(request.task) or assignment.traits
        hard, soft = time_limits(request, task_hard=traits.time_limit, task_soft=traits.soft_time_limit)
        job = Job(
            assignment.key,
            request,
            self._hostname,
            queue=assignment.source.queue,
            exchange=message.exchange,
            routing_key=message.routing_key,
            priority=message.priority,
            is_redelivered=message.is_redelivered,
            time_limit=hard,
            soft_time_limit=soft,
        )
        self._submitted.add(assignment.key)
        self.is_running_in_place = self._pool.runs_in_place
        try:
            self._pool.submit(job)
        finally:
            self.is_running_in_place = False

    def withdraw(self, assignment: Assignment) -> bool:
        """Take back a task that has not begun; say whether that was so."""
        if self.schedule.remove(assignment.key) is not None:
            return True
        if self._rates.remove(lambda each: each is assignment):
            return True
        if self._ready.pop(assignment.key, None) is not None:
            return True
        if self._is_accepted_before(assignment) or not self._pool.discard(assignment.key):
            # It has begun, or was acknowledged and is about to.
            return False
        self._submitted.discard(assignment.key)
        return True

    def flush(self) -> None:
        """Send the events that are gathered."""
        self._report.flush()

    # -- what the operator changes

    @staticmethod
    def check_rate(rate: str | float | None) -> None:
        """Raise CallerError for what is no rate."""
        parse_rate(rate)

    def set_rate(self, name: str, rate: str | float | None) -> None:
        """Let tasks of a name begin so often; raises CallerError for what is no rate."""
        self._rates.set(name, parse_rate(rate), now=monotonic())

    def set_time_limits(self, name: str, *, hard: float | None, soft: float | None) -> None:
        """Let tasks of a name that begin from now on run so long; a name that is not known is left alone."""
        traits = self._traits_of(name)
        if traits is not None:
            self._traits[name] = traits._replace(time_limit=hard, soft_time_limit=soft)

    def _traits_of(self, name: str) -> Traits | None:
        """Return how tasks of a name are treated; None if none is known here."""
        traits = self._traits.get(name)
        if traits is None and name in self._tasks:
            traits = self._traits[name] = Traits.of(self._tasks[name], self._settings)
            self.set_rate(name, traits.rate_limit)
        return traits

    # -- the pool's listener

    def started(self, key: int, *, pid: int, at: float) -> None:
        """Take note that a task has begun."""
        assignment = self._desk.begin(key, pid=pid, at=at)
        if assignment is None:
            return
        self._report.started(assignment)
        if not assignment.traits.acks_late and assignment.verdict is None:
            self._settle(assignment, Verdict.ACCEPT)
        if assignment.traits.tracks_start:
            where = spell({"pid": pid, "hostname": self._hostname})
            self._finisher.put(Ended(assignment, Outcome(STARTED, where), goes_on=True))

    def told(self, key: int, kind: str, fields: Mapping[str, Any]) -> None:
        """Send an event of a task's own."""
        assignment = self._desk.get(key)
        if assignment is not None:
            self._report.custom(assignment, kind, fields)

    def progressed(self, key: int, state: str, result: bytes) -> None:
        """Store a state of a task's own."""
        assignment = self._desk.get(key)
        if assignment is not None:
            self._finisher.put(Ended(assignment, Outcome(state, result), goes_on=True))

    def ended(self, key: int, outcome: Outcome) -> None:
        """Take note of how a task ended."""
        self._submitted.discard(key)
        if self._ready:
            self._wake()
        assignment = self._desk.get(key)
        if assignment is None:
            return
        if outcome.cause == "terminated":
            why = TaskRevoked("terminated", task_id=assignment.request.id)
            outcome = outcome._replace(state=REVOKED, result=failure_json(why), text=str(why), postings=())
        elif outcome.cause == "lost" and assignment.traits.acks_late and assignment.traits.requeues_lost:
            # It is run again: nothing follows from this run.
            outcome = Outcome(REJECTED, text=outcome.text, requeue=True, cause=outcome.cause)
        self._end(assignment, outcome)


def _reason_of(error: Exception) -> str:
    return f"error: {type(error).__name__}"
