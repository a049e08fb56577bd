"""A worker: it assembles its parts, turns them, and ends them in good order."""

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from random import random
from threading import Event, Thread, current_thread, main_thread
from time import monotonic
from types import FrameType
from typing import Final, Self

from celeriac.core.backoff import Backoff
from celeriac.errors import CallerError, ConnectionLost, DiskError, NetworkError
from celeriac.model.task_request import Posting
from celeriac.store.worker_state import WorkerStateFile
from celeriac.worker.assignment import Stage, Verdict
from celeriac.worker.cluster import ClusterThread
from celeriac.worker.parts import Choices, Parts, Surroundings
from celeriac.worker.pool.base import Pool

__all__ = ["Worker"]

logger = logging.getLogger(__name__)

#: How often the clock and the revoked tasks are written to the state file: what a crash may forget.
_SAVE_INTERVAL: Final = 30.0
#: How long tasks that a cold stop broke off may take to get back to their queues.
_GIVE_BACK_PATIENCE: Final = 5.0


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
        self._is_stopping = Event()
        self._stops_now = False
        self._ready = Event()
        self._thread: Thread | None = None

    # -- from outside

    def run(self) -> None:
        """Work until told to stop. Raises what keeps the worker from starting at all."""
        self._load_state()
        with self._signals():
            if not self._start():
                return
            try:
                while not self._is_stopping.is_set():
                    self.tasks.turn()
                self._finish_what_runs()
            finally:
                self._end()

    def stop(self) -> None:
        """Take no more tasks, and end once those that run have ended; from any thread, and from a handler."""
        self._is_stopping.set()
        self.tasks.wake()

    def stop_now(self) -> None:
        """End at once: the tasks that run are broken off, and go back to their queues."""
        self._stops_now = True
        self.stop()

    def wait_until_ready(self, timeout: float | None = None) -> bool:
        """Wait until tasks are taken and commands heard; say whether that is so by then."""
        return self._ready.wait(timeout)

    def __enter__(self) -> Self:
        self._thread = Thread(target=self.run, name=f"celeriac-worker-{self.hostname}", daemon=True)
        self._thread.start()
        while not self.wait_until_ready(0.05):
            if not self._thread.is_alive():
                raise CallerError("the worker ended before it was ready; its log says why")
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._thread is not None:
            self._thread.join()

    # -- its life

    def _start(self) -> bool:
        """Start every step, as soon as the broker is there; say whether it came to that."""
        backoff = Backoff(
            base=self.settings.broker_retry_base, cap=self.settings.broker_retry_cap, random=random
        )
        while not self._is_stopping.is_set():
            try:
                with self._place.connect() as probe:
                    probe.open()
                self.graph.start()
            except ConnectionLost as error:
                logger.warning("The broker cannot be reached, and is tried again: %s", error)
                self._is_stopping.wait(backoff.next())
            else:
                self._cluster.start()
                self._ready.set()
                logger.info("%s ready.", self.hostname)
                return True
        return False

    def _finish_what_runs(self) -> None:
        """Let what runs end, unless it is to end now; what has not begun goes back at once."""
        running = len(self.desk.all(Stage.ACTIVE))
        logger.info("Stopping%s.", f" once {running} tasks have ended" if running else "")
        self.tasks.stop_consuming()
        while not self._stops_now and (len(self.desk) or not self.tasks.is_quiet):
            self.tasks.turn()
        if self._stops_now:
            self._break_off()

    def _break_off(self) -> None:
        """End what runs, and see to it that it runs once more elsewhere."""
        self.pool.kill()
        broken = self.desk.all(Stage.ACTIVE, Stage.RESERVED, Stage.SCHEDULED)
        self.desk.remove(broken, remembers=False)
        self.tasks.settle_many([(each, Verdict.REQUEUE) for each in broken if each.verdict is None])
        # The broker was told that these are done, when they began.
        postings = [
            Posting(each.request, each.delivery.queue)
            for each in broken
            if each.verdict is Verdict.ACCEPT and each.delivery is not None
        ]
        if not postings:
            return
        try:
            self._place.sender.post(postings, timeout=_GIVE_BACK_PATIENCE)
            logger.warning("%d tasks were broken off, and are back in their queues.", len(postings))
        except NetworkError as error:
            ids = ", ".join(each.request.id for each in broken)
            logger.error("%d tasks were broken off and lost (%s): %s", len(postings), ids, error)  # noqa: TRY400

    def _end(self) -> None:
        self._cluster.stop()
        # Before the events go: results that wait are stored and told.
        self.parts.finisher.stop(_GIVE_BACK_PATIENCE if self._stops_now else 30.0)
        self.graph.stop()
        self._save_state()
        logger.info("%s has stopped.", self.hostname)

    # -- what outlives it

    def _load_state(self) -> None:
        if self._state_file is None:
            return
        saved = self._state_file.load()
        if saved.damage:
            logger.error("%s", saved.damage)
        self.clock.start([], persisted=saved.clock)
        self.revoked.restore(saved.revoked, now=monotonic())

    def _save_state(self) -> None:
        if self._state_file is None:
            return
        try:
            self._state_file.save(clock=self.clock.value, revoked=self.revoked.ages(now=monotonic()))
        except DiskError as error:
            logger.error("%s", error)  # noqa: TRY400

    # -- signals

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Take Ctrl-C and SIGTERM as a wish to stop; only a program's main thread can."""
        if current_thread() is not main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
        before = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGQUIT or self._is_stopping.is_set():
            self.stop_now()
            if self.pool.runs_in_place:
                # The task is in this very thread: nothing else ends it.
                raise SystemExit(0)
        else:
            self.stop()
