"""Carries an outbox to a broker, and keeps at it while the broker is away or behind."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from random import SystemRandom
from threading import Condition, Lock, Thread, current_thread
from time import monotonic, sleep
from typing import Final

from celeriac.config import Settings
from celeriac.core.backoff import Backoff
from celeriac.core.outbox import Outbox, Parcel
from celeriac.errors import AccessRefused, ConnectionLost, NetworkError
from celeriac.model.message import Exchange
from celeriac.node.rate_limited_log import RateLimitedLog
from celeriac.node.unsent import unsent_couriers
from celeriac.transport.base import Connection

__all__ = ["Courier"]

logger = logging.getLogger(__name__)

#: Messages on their way before the broker's confirmations are waited for.
_WAIT_AFTER: Final = 256
#: How long a sender lets a broker catch up before it leaves the rest to the keeper.
_CATCH_UP: Final = 0.1
#: How long a broker may take to confirm before the link counts as lost.
_PATIENCE: Final = 10.0
#: How long senders must be quiet before the keeper looks at confirmations in their place.
_QUIET: Final = 0.05
#: How long one wait of the keeper for confirmations lasts.
_SLICE: Final = 0.5


class Courier:
    """One link to a broker, and the outbox that is emptied into it.

    Who sends publishes by itself, while the link is free and the broker keeps up: that is the
    quickest. What may take long is done by a thread, the keeper: to read the last
    confirmations, to publish what senders had to leave, to make a lost link again. So a sender
    waits a tenth of a second for a broker that is behind, and not at all for one that is away.

    ``changed`` guards what is in memory and is held for microseconds; another lock guards the link.
    """

    def __init__(
        self,
        connection: Connection,
        outbox: Outbox,
        *,
        exchange: Exchange,
        headers: Mapping[str, object],
        settings: Settings,
    ) -> None:
        self.outbox = outbox
        self._exchange = exchange
        self._headers = headers
        self._backoff = Backoff(
            base=settings.broker_retry_base, cap=settings.broker_retry_cap, random=SystemRandom().random
        )
        # Half of the room is for what is on its way; the other half is there for what comes meanwhile.
        self._wait_after = max(1, min(_WAIT_AFTER, outbox.limit // (2 * outbox.batch_limit)))
        self._look_after = max(1, self._wait_after // 8)
        #: Messages published since confirmations were looked at.
        self._unlooked = 0
        self._link = connection.clone()
        self._begin()

    def _begin(self) -> None:
        #: Guards the outbox; notified when it may have become empty, and when the keeper has work.
        self.changed = Condition(Lock())
        self._link_mutex = Lock()
        self._is_online = True
        #: Whether the first message to the exchange would leave at once, and whether the broker owes so many
        #: confirmations that senders leave their events to the keeper.
        self._is_prepared = self._is_behind = False
        self._is_stopped = False
        #: Why the broker refused us the last time, and when senders may try again.
        self._refusal, self._try_at = "", 0.0
        self._log = RateLimitedLog(logger)
        self._keeper: Thread | None = None
        #: When a sender was last at it, and since when the broker has confirmed nothing.
        self._carried_at = self._silent_since = monotonic()
        self._process = os.getpid()

    def check_process(self) -> None:
        """After a fork, begin anew: the link, the locks and what waits are the parent's."""
        if os.getpid() != self._process:
            self._parents_link, self._link = self._link, self._link.clone()
            self._begin()
            self.outbox.clear()
            self.track()

    def track(self) -> None:
        """Keep this courier until the program ends, as long as it has unsent events and is not stopped.

        The caller holds ``changed``, and calls this after it has put something into the outbox.
        """
        if self.outbox and not self._is_stopped:
            unsent_couriers.add(self)
        else:
            unsent_couriers.discard(self)

    def open(self) -> None:
        """Connect now, so that the next message leaves at once; the keeper connects to a broker that is away.

        Raises AccessRefused, as :meth:`carry` does.
        """
        if self._is_prepared or not self._is_online or not self._link_mutex.acquire(blocking=False):
            return
        error: ConnectionLost | None = None
        try:
            self._check_refusal()
            with self._taking_back():
                self._link.prepare(self._exchange)
                self._is_prepared = True
        except ConnectionLost as lost:
            error = lost
        finally:
            self._link_mutex.release()
        if error is not None:
            self._go_offline(error)

    def carry(self) -> None:
        """Publish what waits, as far as that takes no time; the keeper does the rest.

        Raises AccessRefused, and again until a pause has passed; what waits is kept all the same.
        """
        self._carried_at = monotonic()
        error: ConnectionLost | None = None
        # Who finds the link in use leaves: who uses it looks once more when done.
        while self._has_work_for_senders() and self._link_mutex.acquire(blocking=False):
            try:
                self._check_refusal()
                with self._taking_back():
                    self._publish_waiting()
                    if self.outbox.on_the_way >= self._wait_after:
                        self._confirm(_CATCH_UP)
                        self._is_behind = self.outbox.on_the_way >= self._wait_after
            except ConnectionLost as lost:
                error = lost
            finally:
                self._link_mutex.release()
            if error is not None:
                self._go_offline(error)
        if self._keeper is None and self._has_work():
            self._employ_keeper()

    def carry_at_once(self, put: Callable[[], Parcel | None]) -> None:
        """Call ``put``, which adds one message or none, and return when that has arrived, or raise.

        What fails is forgotten, since who sent it is told. What was put in before it is kept.
        """
        with self._link_mutex:
            self._check_refusal()
            with self.changed:
                parcel = put()
            if parcel is None:
                return
            try:
                with self._taking_back():
                    self._publish_and_confirm(deadline=monotonic() + _PATIENCE)
            except BaseException:
                with self.changed:
                    self.outbox.withdraw(parcel)
                    self.track()
                raise

    def flush(self, timeout: float) -> None:
        """Publish what is gathered and what waits, and wait up to ``timeout`` seconds for the broker."""
        self.check_process()
        with self.changed:
            self.outbox.close_batch()
        self._try_at = 0.0  # a refusal may be over, and there may be no later call
        self.carry()
        self.wait(timeout)

    def wait(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds until the broker has every message that was to leave."""
        deadline = monotonic() + timeout
        while self._has_work() and not self._is_stopped:
            left = deadline - monotonic()
            error: ConnectionLost | None = None
            if self._is_online and self._link_mutex.acquire(timeout=max(0.0, left)):
                try:
                    with self._taking_back():
                        self._publish_waiting()
                        self._confirm(min(_SLICE, max(0.0, left)))
                except ConnectionLost as lost:
                    error = lost
                finally:
                    self._link_mutex.release()
            if error is not None:
                self._go_offline(error)
            if left <= 0:
                return
            if not self._is_online:
                self._wait_until_online(left)

    def _wait_until_online(self, timeout: float) -> None:
        if self._employ_keeper():
            with self.changed:
                self.changed.wait_for(lambda: self._is_online or self._is_stopped, timeout)
        else:  # the caller connects again by itself
            sleep(min(timeout, self._backoff.next()))
            self._is_online = True

    def stop(self, timeout: float = 2 * _SLICE) -> None:
        """End the link, and try no more until :meth:`resume`. The outbox stays as it is.

        Waits up to ``timeout`` seconds for the keeper, and as long for the link.
        """
        self.check_process()
        with self.changed:
            self._is_stopped = True
            keeper, self._keeper = self._keeper, None
            self.track()
            self.changed.notify_all()
        if keeper is not None:
            keeper.join(timeout)
        # A keeper that is still busy with a broker that hangs ends the link by itself.
        if self._link_mutex.acquire(timeout=timeout):
            try:
                self._renew_link()
            finally:
                self._link_mutex.release()
        if self.outbox:
            logger.warning("publisher: closed with unsent events, dropped=%d", len(self.outbox))

    def resume(self) -> None:
        """Carry again, after a stop."""
        self.check_process()
        with self.changed:
            self._is_stopped = False
            self._is_online = True
            self.track()

    # -- the link, with its lock held

    def _has_work_for_senders(self) -> bool:
        can_publish = self._is_online and not self._is_stopped and not self._is_behind
        return can_publish and self.outbox.unsent > 0 and not self._link.is_blocked

    @contextmanager
    def _taking_back(self) -> Iterator[None]:
        """Whatever ends the use of the link before its time, take back what was on its way."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, AccessRefused):
                self._refusal, self._try_at = str(error), monotonic() + self._backoff.next()
            self._renew_link()
            raise

    def _check_refusal(self) -> None:
        if monotonic() < self._try_at:
            raise AccessRefused(self._refusal)

    def _publish_waiting(self) -> None:
        """Publish until nothing waits, or so much is on its way that it is time to wait for it."""
        while self.outbox.on_the_way < self._wait_after and not self._link.is_blocked:
            with self.changed:
                parcel = self.outbox.take()
            if parcel is None:
                return
            self._link.publish(
                self._exchange, parcel.body, routing_key=parcel.routing_key, headers=self._headers
            )
            self._unlooked += 1
            if self._unlooked >= self._look_after:
                self._confirm(0.0)

    def _publish_and_confirm(self, *, deadline: float) -> None:
        while self._has_work():
            self._publish_waiting()
            left = deadline - monotonic()
            if self._confirm(max(0.0, left)) and left <= 0:
                raise ConnectionLost(f"the broker at {self._link.address} does not confirm messages")

    def _confirm(self, timeout: float) -> int:
        """Wait for confirmations, and return how many are missing."""
        unconfirmed = self._link.unconfirmed(timeout)
        self._unlooked = 0
        with self.changed:
            self.outbox.confirm(unconfirmed)
            self.track()
            self.changed.notify_all()
        return unconfirmed

    def _renew_link(self) -> None:
        with self.changed:
            self.outbox.put_back()
        self._is_prepared = False
        self._link.close()
        self._link = self._link.clone()

    def _go_offline(self, error: NetworkError) -> None:
        with self.changed:
            was_online, self._is_online, self._is_behind = self._is_online, False, False
        if isinstance(error, AccessRefused):  # which is for the operator to mend; a lost link mends itself
            self._log.write(
                logging.WARNING, "refused", "publisher: events are waiting for the broker: %s", error
            )
        elif was_online:
            logger.info("publisher: events are waiting for the broker: %s", error)

    # -- the keeper

    def _employ_keeper(self) -> bool:
        """Return False if no thread can be started: Python 3.12 refuses at exit."""
        with self.changed:
            if self._keeper is None and not self._is_stopped:
                keeper = Thread(target=self._keep, name="celeriac-courier", daemon=True)
                try:
                    keeper.start()
                except RuntimeError:
                    return False
                self._keeper = keeper
            self.changed.notify_all()
            return True

    def _is_employed(self) -> bool:
        # Not if this is the keeper from before a stop, who comes back late from a broker that hangs.
        return self._keeper is current_thread()

    def _keep(self) -> None:
        while self._is_needed():
            if not self._is_online:
                self._pause(self._backoff.next())
                self._come_back()
            elif not self._is_behind and monotonic() - self._carried_at < _QUIET:
                self._pause(_QUIET)  # senders are at it, and look at confirmations themselves
            else:
                self._follow_up()
                if self.outbox.unsent:  # senders found the link in use
                    with suppress(AccessRefused):
                        self.carry()
        if self._is_stopped:
            with self._link_mutex:
                self._renew_link()

    def _is_needed(self) -> bool:
        """Tell whether the keeper goes on; one who has nothing to do ends, and is employed again in need."""
        with self.changed:
            if self._is_employed() and not self._has_work():
                self._keeper = None
            return self._is_employed()

    def _has_work(self) -> bool:
        return self.outbox.unsent > 0 or self.outbox.on_the_way > 0

    def _come_back(self) -> None:
        """Make the link again."""
        with self._link_mutex:
            if not self._is_employed():
                return
            try:
                with self._taking_back():
                    self._link.open()
            except NetworkError as error:
                logger.debug("publisher: the broker is still unreachable: %s", error)
                return
            with self.changed:
                self._is_online = True
                self._silent_since = monotonic()
                self.changed.notify_all()
        logger.info("publisher: reconnected to the broker")

    def _follow_up(self) -> None:
        """Publish what senders left, and wait for confirmations in their place."""
        error: NetworkError | None = None
        with self._link_mutex:
            if not self._is_employed() or not self._is_online:
                return
            try:
                with self._taking_back():
                    self._publish_waiting()
                    on_the_way = self.outbox.on_the_way
                    self._confirm(_SLICE)
                    self._check_silence(has_moved=self.outbox.on_the_way < on_the_way)
            except NetworkError as lost:
                error = lost
        if error is not None:
            self._go_offline(error)
        elif self._link.is_blocked:
            self._pause(_QUIET)

    def _check_silence(self, *, has_moved: bool) -> None:
        now = monotonic()
        if has_moved:
            self._backoff.reset()
        if has_moved or self._link.is_blocked or not self.outbox.on_the_way:
            self._silent_since = now
        elif now - self._silent_since > _PATIENCE:
            raise ConnectionLost(f"the broker at {self._link.address} does not confirm messages")
        self._is_behind = self.outbox.on_the_way >= self._wait_after

    def _pause(self, seconds: float) -> None:
        with self.changed:
            self.changed.wait_for(lambda: not self._is_employed(), seconds)
