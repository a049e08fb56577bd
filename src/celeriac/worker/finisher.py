"""Ends tasks: sends what follows them, stores their results, tells of them, and has their messages settled.

In this order: what follows a task and its result are there before anybody is told, and the message
goes last, so that a worker that dies in between leaves a task that is done once more, not one that is lost.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from queue import SimpleQueue
from random import random
from threading import Event, Thread
from time import monotonic
from typing import Final, NamedTuple

from celeriac.config import Settings
from celeriac.core.backoff import Backoff
from celeriac.errors import CeleriacError, ImproperlyConfigured, NetworkError
from celeriac.model.outcome import Outcome
from celeriac.model.result import Json, ResultMeta, StoredResult
from celeriac.model.states import FAILURE, IGNORED, READY_STATES, REJECTED, RETRY, REVOKED
from celeriac.node.backend import Backend
from celeriac.node.sender import TaskSender
from celeriac.worker.assignment import Assignment, Desk, Verdict
from celeriac.worker.chord import Chords
from celeriac.worker.report import TaskReport

__all__ = ["Ended", "Finisher"]

logger = logging.getLogger(__name__)

#: Tasks that are ended in one go: a batch shares its round trips.
_BATCH: Final = 200
#: Tasks that may wait to be ended before no more are begun: the store, or the broker, is away or behind.
_BEHIND: Final = 1000
#: Between two lines of log about the same trouble.
_LOG_INTERVAL: Final = 60.0


class Ended(NamedTuple):
    """A try of a task that has ended, or a state in between that is to be stored."""

    assignment: Assignment
    outcome: Outcome
    #: Whether the task goes on: then only its state is stored.
    goes_on: bool = False
    #: Whether the task came too late; of others that were revoked, somebody did that.
    is_expired: bool = False


class Finisher:
    """A thread that takes what has ended, as much at a time as there is."""

    def __init__(
        self,
        *,
        settings: Settings,
        desk: Desk,
        sender: TaskSender,
        backend: Backend | None,
        chords: Chords | None,
        report: TaskReport,
        settle: Callable[[Sequence[tuple[Assignment, Verdict]]], None],
    ) -> None:
        self._settings = settings
        self._desk = desk
        self._sender = sender
        self._backend = backend
        self._chords = chords
        self._report = report
        self._settle = settle
        self._queue: SimpleQueue[Ended | None] = SimpleQueue()
        self._thread: Thread | None = None
        #: Set when whoever stops us waits no longer.
        self._gives_up = Event()
        self._logged_at = -_LOG_INTERVAL

    @property
    def is_behind(self) -> bool:
        """Whether so much waits that no more should be begun."""
        return self._queue.qsize() > _BEHIND

    def put(self, ended: Ended) -> None:
        """Take something that has ended; never waits."""
        self._queue.put(ended)

    def start(self) -> None:
        """Begin to take."""
        self._gives_up.clear()
        self._thread = Thread(target=self._run, name="celeriac-finisher", daemon=True)
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """End once all that came before has been done; say whether it was, within the time."""
        thread, self._thread = self._thread, None
        if thread is None:
            return True
        self._queue.put(None)
        thread.join(timeout)
        is_done = not thread.is_alive()
        self._gives_up.set()
        thread.join(1.0)
        return is_done

    def _run(self) -> None:
        is_last = False
        while not is_last:
            batch: list[Ended] = []
            taken = self._queue.get()
            while taken is not None:
                batch.append(taken)
                if len(batch) >= _BATCH or self._queue.empty():
                    break
                taken = self._queue.get()
            is_last = taken is None
            try:
                self._finish(batch)
            except _GivenUp:
                return
            except Exception:  # what is wrong with one batch must not end the worker's only finisher
                logger.exception("%d tasks could not be ended; their results may be missing.", len(batch))

    def _finish(self, batch: list[Ended]) -> None:
        postings = [posting for each in batch for posting in each.outcome.postings]
        if postings:
            self._insist(lambda: self._sender.post(postings), "send what follows tasks")
        if self._backend is not None:
            self._store(self._backend, [each for each in batch if self._is_kept(each)])
        for each in batch:
            if each.outcome.chord and each.outcome.state in READY_STATES:
                self._end_part(each)
        done = [each for each in batch if not each.goes_on]
        for each in done:
            self._tell(each)
        self._report.flush()
        self._desk.ended += len(done)
        self._desk.remove([each.assignment for each in done if not each.outcome.requeue])
        self._desk.remove([each.assignment for each in done if each.outcome.requeue], remembers=False)
        self._settle([(each.assignment, self._verdict(each)) for each in done])

    def _tell(self, ended: Ended) -> None:
        if ended.outcome.state == REVOKED:
            self._report.revoked(ended.assignment, is_expired=ended.is_expired)
        elif ended.outcome.cause == "unknown":
            self._report.unknown(ended.assignment, ended.outcome.text)
        else:
            self._report.ended(ended.assignment, ended.outcome)

    def _verdict(self, ended: Ended) -> Verdict:
        outcome, traits = ended.outcome, ended.assignment.traits
        if outcome.requeue:
            return Verdict.REQUEUE
        if outcome.state == REJECTED or outcome.cause == "unknown":
            return Verdict.DROP
        is_unwanted = outcome.state == FAILURE and traits.acks_late and not traits.acks_failures
        return Verdict.DROP if is_unwanted else Verdict.ACCEPT

    # -- results

    def _is_kept(self, ended: Ended) -> bool:
        outcome, traits = ended.outcome, ended.assignment.traits
        if outcome.state in (IGNORED, REJECTED) or outcome.requeue:
            return False
        if traits.stores_results and not ended.assignment.request.ignore_result:
            return True
        return traits.stores_errors and outcome.state in (FAILURE, RETRY)

    def _store(self, backend: Backend, kept: list[Ended]) -> None:
        if not kept:
            return
        now = datetime.now(UTC).isoformat()
        results = [result for each in kept for result in self._stored(each, now)]
        self._insist(lambda: backend.store_many(results), "store results")

    def _stored(self, ended: Ended, now: str) -> Iterator[StoredResult]:
        """Yield the result of a task, and of those after it in its chain if they fail with it."""
        request, outcome = ended.assignment.request, ended.outcome
        meta = ResultMeta(
            request.id,
            outcome.state,
            Json(outcome.result),
            outcome.traceback,
            outcome.children,
            now if outcome.state in READY_STATES else None,
            request.parent_id,
            request.group_id,
        )
        yield StoredResult(meta, request.reply_to, request.correlation_id or request.id)
        for task_id in outcome.also_failed:
            yield StoredResult(meta._replace(task_id=task_id, children=()), request.reply_to, task_id)

    def _end_part(self, ended: Ended) -> None:
        """Count a task of a group that something waits for, and send that if it was the last."""
        request, outcome = ended.assignment.request, ended.outcome
        chords = self._chords
        try:
            if chords is None:
                raise ImproperlyConfigured("no result backend is set; chords need one, such as redis://")
            self._insist(lambda: chords.end_part(request, outcome), "count the tasks of a group")
        except CeleriacError as error:
            logger.error("What waits for group %s may not run: %s", request.group_id, error)  # noqa: TRY400

    def _insist(self, work: Callable[[], object], what: str) -> None:
        """Do something until it is done: the tasks are, and only this is missing."""
        backoff = Backoff(
            base=self._settings.broker_retry_base, cap=self._settings.broker_retry_cap, random=random
        )
        while True:
            try:
                work()
            except NetworkError as error:
                if self._gives_up.is_set():
                    logger.error("Gave up to %s when the worker ended: %s", what, error)  # noqa: TRY400
                    raise _GivenUp from error
                self._log_trouble(what, error)
            else:
                return
            self._gives_up.wait(backoff.next())

    def _log_trouble(self, what: str, error: NetworkError) -> None:
        if monotonic() - self._logged_at >= _LOG_INTERVAL:
            self._logged_at = monotonic()
            logger.warning("Cannot %s now, and keep trying: %s", what, error)


class _GivenUp(Exception):
    """Whoever stops the worker waits no longer."""
