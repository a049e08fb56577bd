"""The books of a pool of processes: which of them has which job, and what becomes of it."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from celeriac.errors import CallerError, TaskRevoked, TimeLimitExceeded, WorkerLost
from celeriac.model.outcome import Outcome
from celeriac.model.states import SUCCESS
from celeriac.worker.pool.base import Job, Listener
from celeriac.worker.pool.child_process import ChildProcess
from celeriac.worker.pool.frame import FromChild, ToChild, frame
from celeriac.worker.pool.run import Runner

__all__ = ["LONG", "Crew", "News"]

logger = logging.getLogger(__name__)

#: Something to be told to who listens, by calling it.
News = Callable[[], object]

#: A job that has run this long may run for ever: what waits behind it is taken back.
LONG: Final = 0.02
#: What a process is given ahead, in seconds of work by how long jobs took of late: enough that it need not
#: wait for a busy worker. And the most jobs.
_AHEAD: Final = 0.01
_MOST_AHEAD: Final = 32
#: Processes that may die in a row before they are ready, or of a job before it began.
_MAX_EARLY_DEATHS: Final = 3


class Crew:
    """Some processes, and the jobs that wait for one. For one thread at a time; tells nobody by itself.

    A job is given to a process, begins and ends there. If the process dies, a job that has begun is
    lost, and one that has not waits again: no job begins twice.
    """

    def __init__(self, runner: Runner, *, size: int, max_tasks: int | None) -> None:
        self._runner = runner
        #: Who is told.
        self.listener: Listener
        self._max_tasks = max_tasks
        #: The most jobs that run at a time.
        self.size = size
        #: Jobs that no process has been given.
        self.waiting: OrderedDict[int, Job] = OrderedDict()
        self.children: list[ChildProcess] = []
        #: Why no process can be started; empty as long as it can.
        self.fault = ""
        #: How long jobs took of late. None has run yet: they may take long.
        self._pace = 1.0
        self._early_deaths = 0
        #: Jobs that processes died with before they began, and how often.
        self._bad_luck: dict[int, int] = {}

    @property
    def is_ready(self) -> bool:
        """Whether a process has loaded the app."""
        return any(child.is_ready for child in self.children)

    def resize(self, *, now: float) -> int:
        """Let idle processes beyond the size leave; return how many processes are missing."""
        staying = [child for child in self.children if child.leaves_by is None]
        idle = [child for child in staying if child.is_idle]
        # The others run on, and leave when they have nothing to do any more.
        for child in idle[: max(0, len(staying) - self.size)]:
            child.leave(now)
        return max(0, self.size - len(staying))

    def dismiss(self, *, now: float) -> None:
        """Let every process go when it has done what it does."""
        for child in self.children:
            child.leave(now)

    def find_running(self, key: int) -> ChildProcess | None:
        """Return the process that runs a job."""
        for child in self.children:
            if child.running is not None and child.running.key == key:
                return child
        return None

    # -- handing out

    def feed(self, *, now: float) -> list[News]:
        """Give jobs to processes, as many as each should have; return what is to be told of others."""
        news: list[News] = []
        fed: dict[int, ChildProcess] = {}
        while self.waiting:
            child = self._freest(now)
            if child is None:
                break
            _, job = self.waiting.popitem(last=False)
            try:
                child.give(job, frame(ToChild.JOB, job), now=now)
                fed[child.pid] = child
            except CallerError as error:
                news.append(partial(self._fail, job, error))
        for child in fed.values():
            child.flush()
        return news

    def _freest(self, now: float) -> ChildProcess | None:
        """Return the process that should have the next job; None if all have enough."""
        busy = sum(not child.is_idle for child in self.children)
        if busy > self.size:
            return None
        best, least = None, max(1, min(_MOST_AHEAD, int(_AHEAD / max(self._pace, 1e-9))))
        for child in self.children:
            load = child.load
            if load >= least or not child.takes_jobs or (load == 0 and busy == self.size):
                continue
            if self._max_tasks is not None and child.given >= self._max_tasks:
                continue
            if load == 0:
                return child
            if now - child.began_at < LONG:
                best, least = child, load
        return best

    def take_back(self, *, now: float) -> None:
        """Ask for the jobs that wait behind long ones."""
        for child in self.children:
            if child.load > 1 and now - child.began_at >= LONG:
                child.take_back()

    def _put_back(self, jobs: Sequence[Job]) -> None:
        """Let jobs wait again, in front of those that came later."""
        for job in reversed(jobs):
            self.waiting[job.key] = job
            self.waiting.move_to_end(job.key, last=False)

    # -- limits

    def enforce(self, now: float) -> None:
        """Warn jobs that take too long, and end processes whose jobs take longer still."""
        for child in self.children:
            job = child.running
            if job is not None:
                runtime = now - child.began_at
                if job.time_limit is not None and runtime >= job.time_limit:
                    child.doom_for(job, cause="time-limit", now=now)
                elif job.soft_time_limit is not None and runtime >= job.soft_time_limit:
                    child.warn()
            child.enforce(now)

    # -- what processes say

    def apply(self, child: ChildProcess, kind: int, content: Any, *, now: float) -> News | None:
        """Take in what a process said; return what is to be told of it."""
        match kind:
            case FromChild.STARTED:
                key, at = content
                child.start(key, now=now)
                self._bad_luck.pop(key, None)
                return partial(self.listener.started, key, pid=child.pid, at=at)
            case FromChild.ENDED:
                key, outcome = content
                return partial(self.listener.ended, key, self._conclude(child, key, outcome, now))
            case FromChild.TOLD:
                return partial(self.listener.told, *content)
            case FromChild.PROGRESSED:
                return partial(self.listener.progressed, *content)
            case FromChild.RETURNED:
                self._put_back(child.take_returned(content))
                child.enforce(now)
            case FromChild.BROKEN:
                child.reason = content
            case FromChild.READY:
                child.is_ready = True
                self._early_deaths = 0
            case _:
                pass
        return None

    def _conclude(self, child: ChildProcess, key: int, outcome: Outcome, now: float) -> Outcome:
        doom = child.end(key, now=now)
        self._pace += (outcome.runtime - self._pace) / 8
        if self._max_tasks is not None and child.given >= self._max_tasks and child.is_idle:
            child.leave(now)
        # A task may live through a signal, and end by itself.
        if doom is not None and doom.cause == "terminated" and outcome.state != SUCCESS:
            return outcome._replace(cause=doom.cause)
        return outcome

    def lose(self, child: ChildProcess, how: str, *, now: float) -> list[News]:
        """Take note of how a process ended, and see to its jobs; return what is to be told."""
        self.children.remove(child)
        news: list[News] = []
        job, left = child.running, list(child.at_hand.values())
        if job is not None:
            error, cause = _why(child, job, how)
            news.append(partial(self._fail, job, error, cause, now - child.began_at))
        elif left and self._has_died_too_often_with(left[0].key):
            error = WorkerLost(
                f"{_MAX_EARLY_DEATHS} processes died before they could start it; the last one {how}"
            )
            news.append(partial(self._fail, left.pop(0), error, "lost"))
        self._put_back(left)
        if not child.is_ready and child.leaves_by is None:
            self.count_early_death(child.reason or f"the process {how}")
        return news

    def _has_died_too_often_with(self, key: int) -> bool:
        """Count a process that died with a job at hand: perhaps it could not even take that in."""
        deaths = self._bad_luck.pop(key, 0) + 1
        if deaths < _MAX_EARLY_DEATHS:
            self._bad_luck[key] = deaths
        return deaths >= _MAX_EARLY_DEATHS

    def count_early_death(self, reason: str) -> None:
        """Count a process that died before it was ready."""
        self._early_deaths += 1
        if self._early_deaths >= _MAX_EARLY_DEATHS:
            self.fault = f"pool processes die at startup; fix the last error: {reason}"

    def _fail(self, job: Job, error: Exception, cause: str = "", runtime: float = 0.0) -> None:
        self.listener.ended(job.key, self._runner.fail(job, error, cause=cause, runtime=runtime))


def _why(child: ChildProcess, job: Job, how: str) -> tuple[Exception, str]:
    """Return what a job failed of whose process has ended, and the cause."""
    doom = child.doom
    if doom is None or doom.key != job.key or doom.sent_at is None:
        return WorkerLost(f"pool process {child.pid} {how}"), "lost"
    if doom.cause == "time-limit":
        return TimeLimitExceeded(job.time_limit), doom.cause
    return TaskRevoked(f"terminated by signal {doom.signal_number}", task_id=job.request.id), doom.cause
