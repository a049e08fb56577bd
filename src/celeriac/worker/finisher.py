"""Ends tasks: sends what follows them, stores their results, tells of them, and has their messages settled.

In this order: what follows a task and its result are there before anybody is told, and the message
goes last, so that a worker that dies in between leaves a task that is done once more, not one that is lost.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from queue import SimpleQueue
from random import random
from threading import Event, Thread
from time import monotonic
from typing import Final, NamedTuple

from celeriac.config import Settings
from celeriac.core.backoff import Backoff
from celeriac.errors import CallerError, ConnectionLost, NetworkError
from celeriac.model.outcome import Outcome
from celeriac.model.result import Json, ResultMeta, StoredResult
from celeriac.model.states import FAILURE, IGNORED, READY_STATES, REJECTED, RETRY, REVOKED, SUCCESS
from celeriac.node.backend import Backend
from celeriac.node.sender import TaskSender
from celeriac.wire.failure import failure_json, failure_text
from celeriac.worker.assignment import Assignment, Desk, Stage, Verdict
from celeriac.worker.chord import Chords
from celeriac.worker.report import TaskReport

__all__ = ["Ended", "Finisher"]

logger = logging.getLogger(__name__)

#: Tasks that are ended in one go: a batch shares its round trips.
_BATCH: Final = 200
#: Tasks that may wait to be ended before no more are begun: the store, or the broker, is away or behind.
_BEHIND: Final = 1000
#: How long one try to send or to store lasts: then it is looked whether the worker is to end.
_TRY: Final = 5.0
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
        if not is_done:
            thread.join(1.0)
            logger.error(
                "worker: stopped before all outcomes were stored, lost=%d; tasks with acks_late run again",
                len(self._desk.all(Stage.ENDED)),
            )
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
                if batch:
                    self._finish(batch)
            except _GivenUp:
                return
            except Exception:  # what is wrong with one batch must not end the worker's only finisher
                logger.exception(
                    "worker: cannot finish a batch of %d tasks; the broker redelivers them", len(batch)
                )

    def _finish(self, batch: list[Ended]) -> None:
        # Before the next try of a task is sent: it may end elsewhere, and its end must be stored last.
        batch = self._stored(batch, are_ready=False)
        batch = [self._posted(each) for each in batch] if not self._has_posted(batch) else batch
        batch = self._stored(batch, are_ready=True)
        for each in batch:
            if each.outcome.chord and each.outcome.state in READY_STATES:
                self._end_part(each)
        done = [each for each in batch if not each.goes_on]
        for each in done:
            self._tell(each)
        self._report.flush()
        settlements = [(each.assignment, self._verdict(each)) for each in done]
        if settlements:
            self._desk.put_away(settlements)
            self._settle(settlements)

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

    # -- what follows

    def _has_posted(self, batch: list[Ended]) -> bool:
        """Send what follows some tasks in one go; say whether that could be done."""
        postings = [posting for each in batch for posting in each.outcome.postings]
        if not postings:
            return True
        try:
            self._insist(lambda: self._sender.post(postings, timeout=_TRY), "send follow-up tasks")
        except _GivenUp:
            raise
        except Exception as error:  # noqa: BLE001 - then by themselves: one of them cannot be sent
            logger.debug("worker: cannot send follow-up tasks as one batch: %s", error)
            return False
        return True

    def _posted(self, ended: Ended) -> Ended:
        """Send what follows one task; if that cannot be sent, the task has failed."""
        outcome, request = ended.outcome, ended.assignment.request
        if not outcome.postings:
            return ended
        try:
            self._insist(lambda: self._sender.post(outcome.postings, timeout=_TRY), "send follow-up tasks")
        except _GivenUp:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for how the task ended
            logger.error("Cannot send follow-ups of task %s[%s]: %s", request.task, request.id, error)  # noqa: TRY400
            if outcome.state not in (SUCCESS, RETRY):
                return ended
            return ended._replace(outcome=_failed(outcome, error))
        return ended

    # -- results

    def _is_kept(self, ended: Ended) -> bool:
        outcome, traits = ended.outcome, ended.assignment.traits
        if outcome.state in (IGNORED, REJECTED) or outcome.requeue:
            return False
        if traits.stores_results and not ended.assignment.request.ignore_result:
            return True
        return traits.stores_errors and outcome.state in (FAILURE, RETRY)

    def _stored(self, batch: list[Ended], *, are_ready: bool) -> list[Ended]:
        """Store the ends of a batch, or all else; return it, with failures for what cannot be stored."""
        backend = self._backend
        kept = [
            each
            for each in batch
            if (each.outcome.state in READY_STATES) is are_ready and self._is_kept(each)
        ]
        if backend is None or not kept:
            return batch
        now = datetime.now(UTC).isoformat()
        results = [result for each in kept for result in _results(each, now)]
        try:
            self._write(backend, results)
        except CallerError as error:  # all others are stored; once more does no harm
            logger.debug("worker: cannot store a batch of results: %s", error)
            return [self._stored_alone(backend, each, now) if each in kept else each for each in batch]
        return batch

    def _stored_alone(self, backend: Backend, ended: Ended, now: str) -> Ended:
        request = ended.assignment.request
        try:
            self._write(backend, list(_results(ended, now)))
        except CallerError as error:
            logger.error("Cannot store the result of task %s[%s]: %s", request.task, request.id, error)  # noqa: TRY400
            if ended.goes_on:
                return ended
            failed = ended._replace(outcome=_failed(ended.outcome, error)._replace(children=()))
            with suppress(CallerError):
                self._write(backend, list(_results(failed, now)))
            return failed
        return ended

    def _write(self, backend: Backend, results: Sequence[StoredResult]) -> None:
        # A store that refuses us is for the operator to mend, and what is not stored waits for that.
        self._insist(lambda: backend.store_many(results, timeout=_TRY), "store results", NetworkError)

    def _end_part(self, ended: Ended) -> None:
        """Count a task of a group that something waits for, and send that if it was the last."""
        request, outcome = ended.assignment.request, ended.outcome
        chords = self._chords
        why = "no result backend is set; chords need one, such as redis://"
        if chords is not None:
            try:
                self._insist(lambda: chords.end_part(request, outcome), "count a chord member")
            except _GivenUp:
                raise
            except Exception as error:  # noqa: BLE001 - signatures of peers are in it
                why = f"{type(error).__name__}: {error}"
            else:
                return
        logger.error("The chord body of group %s may never run: %s", request.group_id, why)

    def _insist(
        self, work: Callable[[], object], what: str, trouble: type[NetworkError] = ConnectionLost
    ) -> None:
        """Do something until it is done: the tasks are, and only this is missing."""
        backoff = Backoff(
            base=self._settings.broker_retry_base, cap=self._settings.broker_retry_cap, random=random
        )
        while True:
            try:
                work()
            except trouble as error:
                if self._gives_up.is_set():
                    logger.error("worker: stopped before it could %s: %s", what, error)  # noqa: TRY400
                    raise _GivenUp from error
                self._log_trouble(what, error)
            else:
                return
            self._gives_up.wait(backoff.next())

    def _log_trouble(self, what: str, error: NetworkError) -> None:
        if monotonic() - self._logged_at >= _LOG_INTERVAL:
            self._logged_at = monotonic()
            logger.warning("worker: cannot %s, retrying: %s", what, error)


class _GivenUp(Exception):
    """Whoever stops the worker waits no longer."""


def _results(ended: Ended, now: str) -> Iterator[StoredResult]:
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


def _failed(outcome: Outcome, error: Exception) -> Outcome:
    """Return how a task ended that could not be brought to its end."""
    return outcome._replace(
        state=FAILURE, result=failure_json(error), text=failure_text(error), traceback=None, postings=()
    )
