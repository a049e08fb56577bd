"""The one owner of the link over which results come, for all who wait in a process."""

import logging
import random
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from time import monotonic
from typing import Final

from celeriac.config import Settings
from celeriac.core.backoff import Backoff
from celeriac.core.waiting import Deliver, Effect, Expire, Read, Subscribe, Unsubscribe, WaitingList
from celeriac.errors import AccessRefused, CeleriacError, ConnectionLost, NetworkError
from celeriac.model.result import ResultMeta
from celeriac.node.drain_failure import DrainFailures, drain_error
from celeriac.node.drain_health import Health, health_of
from celeriac.node.slot import Slot
from celeriac.runtime.base import Flag, Runtime, Spawned
from celeriac.runtime.threads import Threads
from celeriac.transport.result_link import Arrived, Confirmed, News, ResultLink

__all__ = ["BaseResultConsumer"]

logger = logging.getLogger(__name__)

#: How long one turn waits at most. Nothing depends on it: whoever wants something interrupts.
_LONGEST_TURN: Final = 15.0
#: The same while there is no link, and nobody who needs one.
_IDLE_TURN: Final = 1.0
#: The pause after a turn that raised TimeoutError: shorter, an override that raises it at once costs more CPU
#: time; longer, its results arrive later.
_TIMEOUT_PAUSE: Final = 0.01
#: A link that lived this long was good: the next loss begins with short waits again.
_GOOD_AFTER: Final = 5.0
#: Results handed out under one hold of the lock.
_MOST_AT_ONCE: Final = 100
#: How long a clean end may take.
_FAREWELL: Final = 2.0
_STOPPED: Final = "the app was closed during a wait for a result; wait again to reconnect"


class BaseResultConsumer:
    """Receives results from a connection, and dispatches each result to its waiters.

    The connection is the source of the results. A subclass that overrides :meth:`on_state_change` gets every
    received state: set :attr:`Backend.ResultConsumer <celeriac.node.backend.Backend.ResultConsumer>` to it.
    Only the thread or greenlet of a drainer uses the connection. All others use a lock that is never
    held during a wait.

    The consumer reconnects as long as it takes, and waiters do not notice. Waiters get an
    error if the store refuses access, if errors other than :class:`ConnectionError` or kills keep ending
    turns (see :class:`DrainFailures`), or if a killed thread cannot be replaced. The next wait tries again.
    A turn that raises :class:`TimeoutError` is a turn without results, and the connection is kept.
    """

    def __init__(self, link: ResultLink, *, settings: Settings) -> None:
        self._link = link
        self._waiting = WaitingList(random=random.random, has_store=link.has_store)
        self._backoff = Backoff(
            base=settings.broker_retry_base, cap=settings.broker_retry_cap, random=random.random
        )
        self._mutex = Lock()
        #: What the link is to be asked, in the order that the rules decided it.
        self._outgoing: deque[Subscribe | Unsubscribe | Read] = deque()
        #: Slots whose owners are gone; finalizers put them here, and may do no more.
        self._dropped: deque[Slot] = deque()
        self._is_up = self._is_spent = False
        self._up_since = self._retry_at = 0.0
        self._last_error: NetworkError | None = None
        self._failures = DrainFailures()
        #: Raised for who waits until the link is up.
        self._up_flags: list[Flag] = []
        self._is_draining = self._is_stopping = False
        #: Why nothing drains, if that is so.
        self._end_error: CeleriacError | None = None
        self._tells = True
        self._runtime: Runtime = Threads()
        self._host: Spawned | None = None
        self._pause = self._runtime.flag()

    @property
    def has_store(self) -> bool:
        """Whether results can be read again."""
        return self._link.has_store

    @property
    def is_up(self) -> bool:
        """Whether the consumer is connected."""
        return self._is_up

    @property
    def is_down(self) -> bool:
        """Whether the connection was lost and not restored yet."""
        return self._last_error is not None

    # -- for drainers

    def start(self, runtime: Runtime) -> None:
        """Drain in the background, in a thread or greenlet of ``runtime``; starting twice is fine."""
        with self._mutex:
            if self._host is None and not self._is_stopping:
                self._runtime, self._pause = runtime, runtime.flag()
                self._host = runtime.spawn(self._run, name="celeriac-results")
                self._end_error = None

    def stop(self, *, tells: bool = True) -> None:
        """Close the connection and stop the background thread; with ``tells`` waiters get an error."""
        self._tells = tells
        self.stop_soon()
        self._interrupt()
        if self._host is not None:
            self._host.join(_FAREWELL)
        else:
            self._end()

    def stop_soon(self) -> None:
        """Like :meth:`stop`, for finalizers: nothing is locked or awaited."""
        self._is_stopping = True
        self._link.interrupt()

    def drain_events(self, timeout: float | None = None) -> None:
        """Run one turn: send pending requests, and dispatch messages received within ``timeout`` seconds."""
        longest = _LONGEST_TURN if timeout is None else timeout
        with self.reconnect_on_error():
            try:
                self._let_go()
                if not self._is_up and not self._come_back(longest):
                    return
                self._ask()
            except TimeoutError as error:
                # Only a timeout of the wait for results, below, means that none came.
                raise ConnectionLost(
                    f"the result store at {self._link.address} timed out: {error}"
                ) from error
            self._is_draining = True
            # Looked at after saying that we drain: whoever adds to it from now on interrupts.
            wait = 0.0 if self._outgoing or self._is_stopping else self._patience(longest)
            news = self._link.drain(wait)
            self._is_draining = False
            self._failures.log_return()
            self._take(news)

    @contextmanager
    def reconnect_on_error(self) -> Iterator[None]:
        """Schedule a reconnect after a disconnect, with increasing delays."""
        try:
            yield
        except NetworkError as error:
            self._failures.log_loss(error)
            self._lose(error)
            if isinstance(error, AccessRefused):
                self._fail(error)

    # -- for those who wait

    def consume_from(
        self, slot: Slot, task_ids: Iterable[str], *, deadline: float | None = None, peek: bool = False
    ) -> None:
        """Subscribe a slot to these tasks; with ``peek`` deliver stored results immediately."""
        with self._mutex:
            slots = self._apply(
                self._waiting.watch(slot, task_ids, now=monotonic(), deadline=deadline, peek=peek)
            )
        self._ring(slots)
        self._interrupt()
        if self._end_error is not None:
            self._fail(self._end_error)

    def cancel_for(self, slot: Slot, task_ids: Iterable[str] | None = None) -> None:
        """Put nothing more into a slot: of these tasks, or at all."""
        with self._mutex:
            self._apply(self._waiting.unwatch(slot, task_ids, now=monotonic()))
        if self._is_draining and self._outgoing:
            self._interrupt()

    def drop(self, slot: Slot) -> None:
        """Like :meth:`cancel_for`, for finalizers: nothing is locked or awaited."""
        self._dropped.append(slot)
        self._link.interrupt()

    def on_state_change(self, meta: ResultMeta) -> None:
        """Look at each state that came: in the thread or greenlet that drains, or in one that begins to wait.

        A result that was stored before is found by a wait. A state may come more than once.
        """

    def show_found(self, metas: Iterable[ResultMeta]) -> None:
        """Look at states that a wait found in the store; without a store each was looked at when it came."""
        if self.has_store:
            self._show(metas)

    def recall(self, task_id: str) -> ResultMeta | None:
        """Return the remembered state of a task, for stores that deliver results only once."""
        with self._mutex:
            return self._waiting.recall(task_id, monotonic())

    def forget(self, task_id: str) -> None:
        """Remember nothing more of a task."""
        with self._mutex:
            self._waiting.forget(task_id)

    def wait_until_up(self, flag: Flag, timeout: float) -> bool:
        """Wait for the connection, and return whether it is up; raises AccessRefused."""
        deadline = monotonic() + timeout
        earlier_error = self._last_error
        self._up_flags.append(flag)
        self._interrupt()
        try:
            while True:
                flag.clear()
                # Looked at after lowering the flag, so that nothing slips between the two.
                if self._is_up:
                    return True
                error = self._last_error
                if isinstance(error, AccessRefused) and error is not earlier_error:
                    raise AccessRefused(str(error))
                left = deadline - monotonic()
                if left <= 0:
                    return False
                flag.wait(left)
        finally:
            self._up_flags.remove(flag)

    def health(self) -> Health:
        """Return the connection status."""
        with self._mutex:
            return health_of(self._waiting, self._last_error, self._backoff.attempts)

    # -- the loop

    def _run(self) -> None:
        try:
            # Of the predecessor, if that was killed: an error that kills each of them costs no CPU time.
            self._wait_for_retry()
            while not self._is_stopping:
                try:
                    self.drain_events()
                except TimeoutError:
                    # No events. An override that raises it without waiting must not spin either.
                    self._retry_at = max(self._retry_at, monotonic() + _TIMEOUT_PAUSE)
                    self._wait_for_retry()
                except Exception as error:  # noqa: BLE001 - logged there
                    self._recover(error)
                    self._wait_for_retry()
        except BaseException as error:
            # Killed from outside. Others still wait for results: a new thread or greenlet drains for them.
            try:
                self._recover(error)
            finally:
                self._replace_host()
            raise
        self._end()

    def _replace_host(self) -> None:
        with self._mutex:
            # In two steps: if no other can be spawned, the next start() tries again.
            self._host = None
            try:
                self._host = self._runtime.spawn(self._run, name="celeriac-results")
            except Exception as error:  # noqa: BLE001 - all who wait get it
                self._end_error = drain_error(
                    f"cannot start a thread or greenlet to drain results: {error}", error
                )
        if self._end_error is not None:
            self._fail(self._end_error)

    def _recover(self, error: BaseException) -> None:
        """Give up the connection after an error that a turn raised: a new one reads what was missed."""
        self._lose(NetworkError(f"draining results failed: {type(error).__name__}: {error}"))
        if failure := self._failures.add(error, monotonic()):
            self._fail(failure)

    def _wait_for_retry(self) -> None:
        """Wait until the next attempt is due, so that an error that stays costs no CPU time."""
        while True:
            # Lowered before looking, so that a stop is not overlooked.
            self._pause.clear()
            wait = self._retry_at - monotonic()
            if self._is_stopping or wait <= 0:
                return
            self._pause.wait(min(wait, _LONGEST_TURN))

    def _end(self) -> None:
        """End the link for good, and tell everybody who waits."""
        try:
            if self._is_up:
                self._link.delete()
            self._link.close()
        finally:
            self._end_error = NetworkError(_STOPPED)
            if self._tells:
                self._fail(self._end_error)

    def _come_back(self, longest: float) -> bool:
        """Make the link again if it is time and somebody needs it; return whether it is up."""
        # Lowered before looking, so that nobody who comes now is overlooked.
        self._pause.clear()
        is_needed = not self.has_store or self._waiting.watched > 0 or bool(self._up_flags)
        wait = max(0.0, self._retry_at - monotonic()) if is_needed else _IDLE_TURN
        if self._is_stopping:
            return False
        if wait > 0:
            self._pause.wait(min(wait, longest))
            return False
        if self._is_spent:
            self._link = self._link.clone()
            self._is_spent = False
        self._link.open()
        with self._mutex:
            self._outgoing.clear()
            self._apply(self._waiting.connect(monotonic()))
            self._is_up, self._up_since = True, monotonic()
            self._last_error = None
        for flag in list(self._up_flags):
            flag.set()
        return True

    def _let_go(self) -> None:
        while self._dropped:
            slot = self._dropped.popleft()
            with self._mutex:
                self._apply(self._waiting.unwatch(slot, now=monotonic()))

    def _ask(self) -> None:
        while self._outgoing:
            request = self._outgoing.popleft()
            if isinstance(request, Subscribe):
                self._link.subscribe(request.task_ids)
            elif isinstance(request, Unsubscribe):
                self._link.unsubscribe(request.task_ids)
            else:
                self._link.read(request.task_ids)

    def _patience(self, longest: float) -> float:
        with self._mutex:
            next_at = self._waiting.next_at()
        return longest if next_at is None else min(longest, max(0.0, next_at - monotonic()))

    def _show(self, metas: Iterable[ResultMeta]) -> None:
        # Most programs neither override it nor assign a function to a consumer: a call for each state costs.
        if getattr(self.on_state_change, "__func__", None) is BaseResultConsumer.on_state_change:
            return
        for meta in metas:
            try:
                self.on_state_change(meta)
            except Exception:
                logger.exception("results: cannot handle the result of task %s", meta.task_id)

    def _take(self, news: list[News]) -> None:
        arrived = [each for each in news if isinstance(each, Arrived)]
        confirmed = [each.task_ids for each in news if isinstance(each, Confirmed)]
        self._show(each.meta for each in arrived)
        now = monotonic()
        # A part at a time: whoever wants the lock meanwhile, an event loop above all, must not wait for long.
        for start in range(0, len(arrived), _MOST_AT_ONCE):
            with self._mutex:
                slots = self._apply(self._waiting.feed_all(arrived[start : start + _MOST_AT_ONCE], now=now))
            self._ring(slots)
            # Those who were woken run now, and not only when Python or we are done with all the others.
            time.sleep(0)
        with self._mutex:
            for task_ids in confirmed:
                self._apply(self._waiting.confirm(task_ids, now=now))
            slots = self._apply(self._waiting.tick(now))
        if slots:
            self._ring(slots)

    def _lose(self, error: NetworkError) -> None:
        now = monotonic()
        if self._is_up and now - self._up_since >= _GOOD_AFTER:
            self._backoff.reset()
            self._failures.reset()
        with self._mutex:
            self._is_up, self._is_spent, self._is_draining = False, True, False
            self._last_error = error
            self._outgoing.clear()
            self._apply(self._waiting.disconnect(now))
        self._retry_at = now + self._backoff.next()
        try:
            self._link.close()
        except Exception:
            # A new connection replaces it all the same.
            logger.exception("results: closing the lost connection failed")

    def _fail(self, error: CeleriacError) -> None:
        """Raise an error in all waits."""
        with self._mutex:
            waiters, effects = self._waiting.dismiss()
            self._apply(effects)
        slots = [waiter for waiter in waiters if isinstance(waiter, Slot)]
        for slot in slots:
            slot.fail(error)
        self._ring(slots)
        for flag in list(self._up_flags):
            flag.set()

    def _apply(self, effects: list[Effect]) -> list[Slot]:
        """Carry out what the rules decided, with the lock held; return the slots that got something."""
        slots: list[Slot] = []
        for effect in effects:
            if isinstance(effect, Deliver):
                slot = effect.waiter
                if isinstance(slot, Slot) and slot.put(effect.meta):
                    slots.append(slot)
            elif not isinstance(effect, Expire):  # who waits looks at the time without us
                self._outgoing.append(effect)
        return slots

    def _ring(self, slots: list[Slot]) -> None:
        for slot in dict.fromkeys(slots):
            try:
                slot.ring()
            except Exception:
                logger.exception("results: a callback failed")

    def _interrupt(self) -> None:
        self._link.interrupt()
        if not self._is_up:
            self._pause.set()
