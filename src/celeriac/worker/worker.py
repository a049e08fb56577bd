"""A worker: it assembles its parts, turns them, and ends them in good order."""

import logging
import signal
from collections.abc import Sequence
from random import random
from threading import Event, Thread
from time import monotonic, sleep
from types import FrameType
from typing import Final, Self

from celeriac.core.backoff import Backoff
from celeriac.errors import AccessRefused, CallerError, CeleriacError, ConnectionLost, DiskError
from celeriac.model.task_request import Posting
from celeriac.node.stop_signals import stop_signals
from celeriac.store.worker_state import WorkerStateFile
from celeriac.worker.assignment import Assignment, Stage
from celeriac.worker.cluster import ClusterThread
from celeriac.worker.parts import Choices, Parts, Surroundings
from celeriac.worker.pool.base import Pool
from celeriac.worker.steps.pool import PoolStep

__all__ = ["Worker"]

logger = logging.getLogger(__name__)

#: How often the clock and the revoked tasks are written to the state file: what a crash may forget.
_SAVE_INTERVAL: Final = 30.0
#: How long the last results may take to be stored, and the last messages to be settled.
_PATIENCE: Final = 30.0
#: How long tasks that a cold stop broke off may take to get back to their queues.
_GIVE_BACK_PATIENCE: Final = 5.0
#: How long what an election was won for may take to end.
_ELECTION_PATIENCE: Final = 5.0
#: How often to look whether to stop, while the broker is away from the start.
_LOOK_EVERY: Final = 0.1


class Worker:
    """Runs tasks from queues, in one cluster with workers of Celery and of our own.

    :meth:`run` blocks until the worker has ended: once :meth:`stop` is called, which waits for the
    tasks that run, or :meth:`stop_now`, which gives them back to their queues. In the main thread
    Ctrl-C and SIGTERM do the first when they come once, and the second when they come twice.
    As a context manager it runs in a thread of its own. A worker is run once.
    """

    def __init__(self, place: Surroundings, choices: Choices, pool: Pool) -> None:
        self.hostname = place.hostname
        self.settings = place.settings
        self.clock = place.clock
        #: What it consists of.
        self.parts = parts = Parts(place, choices, pool, stop=self.stop)
        self.pool = pool
        self.desk = parts.desk
        self.revoked = parts.revoked
        self.tasks = parts.tasks
        #: Who else is there, and who is told of it: ``worker.gossip.on_node_join`` and so on.
        self.gossip = parts.gossip
        self.graph = parts.graph
        self._place = place
        path = place.settings.worker_state_db
        self._state_file = None if path is None else WorkerStateFile(path)
        self._cluster = ClusterThread(
            self.graph,
            settings=place.settings,
            connection=parts.connection,
            heart=parts.heart,
            gossip=parts.gossip,
            every=(_SAVE_INTERVAL, self._save_state),
        )
        # Plain values, no events of threading: a handler of signals must not wait for a lock.
        self._is_stopping = False
        self._stops_now = False
        self._has_run = False
        self._ready = Event()
        self._thread: Thread | None = None
        #: What ended it, where that is nobody's wish.
        self._failure: BaseException | None = None

    # -- from outside

    def run(self) -> None:
        """Work until told to stop. Raises what keeps the worker from starting, or from going on."""
        if self._has_run:
            raise CallerError("the worker has already run: create another one with app.Worker()")
        self._has_run = True
        self._load_state()
        with stop_signals(self._on_signal, signal.SIGQUIT):
            try:
                if self._start():
                    self._work()
            except KeyboardInterrupt:
                # Somebody wants to end now, and the task that ran in this thread is broken off.
                if not self._stops_now:
                    raise
            finally:
                self._end()

    def stop(self) -> None:
        """Take no more tasks, and end once those that run have ended; from any thread, and from a handler."""
        self._is_stopping = True
        self.tasks.wake()

    def stop_now(self) -> None:
        """End at once: the tasks that run are broken off, and go back to their queues."""
        self._stops_now = True
        self.stop()

    def wait_until_ready(self, timeout: float | None = None) -> bool:
        """Wait until tasks are taken and commands heard; say whether that is so by then."""
        return self._ready.wait(timeout)

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._run_aside, name=f"celeriac-worker-{self.hostname}", daemon=True)
        self._thread.start()
        while not self.wait_until_ready(0.05):
            if not self._thread.is_alive():
                raise self._failure or CallerError("the worker was stopped before it was ready")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop()
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None and kind is None:
            raise self._failure

    def _run_aside(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - raised where the worker was started
            self._failure = error

    # -- its life

    def _start(self) -> bool:
        """Start every step, as soon as the broker is there; say whether it came to that."""
        # Once: a pool that has ended does not begin again.
        self.graph.start(PoolStep.name)
        backoff = Backoff(
            base=self.settings.broker_retry_base, cap=self.settings.broker_retry_cap, random=random
        )
        while not self._is_stopping:
            try:
                self.graph.start()
            except ConnectionLost as error:
                logger.warning("worker: cannot connect to the broker, retrying: %s", error)
                self._pause(backoff.next())
            else:
                self._cluster.start()
                self._report_unsupported()
                self._tell_level()
                self._ready.set()
                logger.info("%s ready.", self.hostname)
                return True
        return False

    def _report_unsupported(self) -> None:
        for step in self.graph:
            if step.unsupported:
                logger.warning("%s: off, %s", step.name, step.unsupported)

    def _tell_level(self) -> None:
        # Only where elections are wanted: to ask can make a stream at the broker.
        if self.gossip.is_enabled and (
            self.settings.election_actions or len(self.gossip.election_handlers) > 1
        ):
            self.parts.elector.look()

    def _pause(self, seconds: float) -> None:
        until = monotonic() + seconds
        while not self._is_stopping and (left := until - monotonic()) > 0:
            sleep(min(left, _LOOK_EVERY))

    def _work(self) -> None:
        """Turn until told to stop. Whatever ends it, what was taken and has not ended goes back."""
        try:
            while not self._is_stopping:
                self.tasks.turn()
            self._finish_what_runs()
        except AccessRefused:
            # No more tasks come, but those that run can end.
            self._finish_what_runs()
            raise
        finally:
            self._break_off()

    def _finish_what_runs(self) -> None:
        """Let what runs end, unless it is to end now; what has not begun goes back at once."""
        running = len(self.desk.all(Stage.ACTIVE))
        self.tasks.stop_consuming()
        # Only now it is true: who reads it may rely on that nothing more begins.
        logger.info("worker: stopping, running=%d", running)
        while not self._stops_now and self.desk.has_unended:
            self.tasks.turn()
        # From here on it is the store or the broker that is waited for, and not for ever.
        until = monotonic() + _PATIENCE
        while not self._stops_now and (len(self.desk) or not self.tasks.is_quiet) and monotonic() < until:
            self.tasks.turn()

    def _break_off(self) -> None:
        """End what still runs, and see to it that it runs once more elsewhere."""
        if not self.desk.has_unended:
            return
        self.pool.kill()
        broken = self.desk.take_unended()
        for each in broken:
            if each.stage is Stage.ACTIVE:
                self.parts.report.cancelled(each)
        self.parts.report.flush()
        acknowledged = self.tasks.give_back(broken)
        if acknowledged:
            self._post_again(acknowledged)
        logger.warning(
            "worker: aborted running tasks and returned them to their queues, count=%d", len(broken)
        )

    def _post_again(self, broken: Sequence[Assignment]) -> None:
        """Send tasks once more that the broker was told are done, when they began."""
        postings = [
            Posting(each.request, each.source.queue, priority=each.source.message.priority) for each in broken
        ]
        try:
            self._place.sender.post(postings, timeout=_GIVE_BACK_PATIENCE)
        except CeleriacError as error:
            ids = ", ".join(each.request.id for each in broken)
            logger.error("worker: aborted and lost tasks, count=%d, ids=%s: %s", len(broken), ids, error)  # noqa: TRY400

    def _end(self) -> None:
        # While the thread still turns that hears what came of it.
        self.parts.elector.close(0.0 if self._stops_now else _ELECTION_PATIENCE)
        self._cluster.stop()
        # Before the events go: results that wait are stored and told.
        self.parts.finisher.stop(_GIVE_BACK_PATIENCE if self._stops_now else _PATIENCE)
        self.graph.stop()
        self._save_state()
        logger.info("worker: %s has stopped", self.hostname)

    # -- what outlives it

    def _load_state(self) -> None:
        if self._state_file is None:
            return
        saved = self._state_file.load()
        if saved.damage:
            logger.error("worker: %s", saved.damage)
        self.clock.start([], persisted=saved.clock)
        self.revoked.restore(saved.revoked, now=monotonic())

    def _save_state(self) -> None:
        if self._state_file is None:
            return
        try:
            self._state_file.save(clock=self.clock.value, revoked=self.revoked.ages(now=monotonic()))
        except DiskError as error:
            logger.error("worker: %s", error)  # noqa: TRY400

    # -- signals

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGQUIT and not self._is_stopping:
            self.stop()
            return
        self.stop_now()
        if self.tasks.intake.is_running_in_place:
            # The task is in this very thread: nothing else ends it.
            raise KeyboardInterrupt
