"""Carries an outbox to a broker, and keeps at it while the broker is away."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import SystemRandom
from threading import Condition, Lock, Thread
from time import monotonic
from typing import Final

from celeriac.config import Settings
from celeriac.core.backoff import Backoff
from celeriac.core.outbox import Outbox, Parcel
from celeriac.errors import ConnectionLost, NetworkError
from celeriac.model.message import Exchange
from celeriac.transport.base import Connection

__all__ = ["Courier"]

logger = logging.getLogger(__name__)

#: Messages on their way before the broker's confirmations are waited for.
_WAIT_AFTER: Final = 256
#: How long a broker may take to confirm before the link counts as lost.
_PATIENCE: Final = 10.0


class Courier:
    """One link to a broker and the outbox that is emptied into it.

    Two locks, so that who puts something into the outbox never waits for a broker that is
    away: ``changed`` guards what is in memory and is held for microseconds, the other one
    guards the link.
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
        #: Guards the outbox; notified when it may have become empty, or the courier stops.
        self.changed = Condition(Lock())
        self._exchange = exchange
        self._headers = headers
        self._backoff = Backoff(
            base=settings.broker_retry_base, cap=settings.broker_retry_cap, random=SystemRandom().random
        )
        # Half of the room is for what is on its way; the other half is there for what comes meanwhile.
        self._wait_after = max(1, min(_WAIT_AFTER, outbox.limit // (2 * outbox.batch_limit)))
        self._look_after = max(1, self._wait_after // 4)
        self._link_mutex = Lock()
        self._link = connection.clone()
        self._is_online = True
        self._is_stopped = False
        self._recovery: Thread | None = None

    def carry(self) -> None:
        """Publish what waits. If the broker is away it goes on waiting, and is tried again by itself.

        Raises AccessRefused: no waiting mends that.
        """
        self._try()

    def carry_at_once(self, put: Callable[[], Parcel | None]) -> None:
        """Call ``put``, which adds one message or none, and return when that has arrived, or raise.

        What fails is forgotten, since who sent it is told. What was put in before it is kept.
        """
        with self._link_mutex:
            with self.changed:
                parcel = put()
            if parcel is None:
                return
            try:
                with self._taking_back():
                    self._publish_all()
                    self._confirm(_PATIENCE, must_succeed=True)
            except BaseException:
                with self.changed:
                    self.outbox.withdraw(parcel)
                raise

    def wait(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds until the broker has every message that was to leave."""
        deadline = monotonic() + timeout
        while (self.outbox.unsent or self.outbox.on_the_way) and not self._is_stopped:
            left = max(0.0, deadline - monotonic())
            with self.changed:
                self.changed.wait_for(lambda: self._is_online or self._is_stopped, left)
            left = max(0.0, deadline - monotonic())
            self._try(patience=left)
            if left == 0.0:
                return

    def stop(self) -> None:
        """End the link, and try no more until :meth:`resume`. The outbox stays as it is."""
        with self.changed:
            self._is_stopped = True
            self.changed.notify_all()
        if self._recovery is not None:
            self._recovery.join()
        with self._link_mutex:
            self._renew_link()

    def resume(self) -> None:
        """Carry again, after a stop."""
        self._is_stopped = False

    # -- the link

    def _try(self, *, patience: float | None = None) -> None:
        """Publish what waits, unless the broker is away, and wait ``patience`` seconds for it to confirm."""
        if self._is_idle():
            return
        with self._link_mutex:
            # Who waited for the link need not find out once more that it is lost.
            if self._is_idle():
                return
            try:
                with self._taking_back():
                    self._publish_all()
                    if patience is not None:
                        self._confirm(patience)
            except ConnectionLost as error:
                self._start_recovery(error)

    def _is_idle(self) -> bool:
        return self._is_stopped or not self._is_online

    @contextmanager
    def _taking_back(self) -> Iterator[None]:
        """Whatever ends the use of the link before its time, take back what was on its way."""
        try:
            yield
        except BaseException:
            self._renew_link()
            raise

    def _publish_all(self) -> None:
        while True:
            with self.changed:
                parcel = self.outbox.take()
            if parcel is None:
                return
            self._link.publish(
                self._exchange, parcel.body, routing_key=parcel.routing_key, headers=self._headers
            )
            if self.outbox.on_the_way >= self._wait_after:
                self._confirm(_PATIENCE, must_succeed=True)
            elif self.outbox.on_the_way >= self._look_after:
                self._confirm(0.0)

    def _confirm(self, timeout: float, *, must_succeed: bool = False) -> None:
        unconfirmed = self._link.unconfirmed(timeout)
        if unconfirmed and must_succeed:
            raise ConnectionLost(f"the broker at {self._link.address} confirms nothing")
        with self.changed:
            self.outbox.confirm(unconfirmed)
            self.changed.notify_all()

    def _renew_link(self) -> None:
        with self.changed:
            self.outbox.put_back()
        self._link.close()
        self._link = self._link.clone()

    # -- while the broker is away

    def _start_recovery(self, error: Exception) -> None:
        with self.changed:
            if self._is_stopped:
                return
            self._is_online = False
            logger.info("Events wait for the broker: %s", error)
            self._recovery = Thread(target=self._recover, name="celeriac-courier", daemon=True)
            self._recovery.start()

    def _recover(self) -> None:
        self._backoff.reset()
        try:
            while not self._pause(self._backoff.next()):
                if self._has_recovered():
                    break
        finally:
            self._set_online(is_online=True)

    def _has_recovered(self) -> bool:
        with self._link_mutex:
            try:
                with self._taking_back():
                    self._link.open()
                    # From here on who puts something in waits for the link, so nothing is left behind.
                    self._set_online(is_online=True)
                    self._publish_all()
                    self._confirm(_PATIENCE, must_succeed=True)
            except NetworkError as error:
                self._set_online(is_online=False)
                logger.debug("The broker is still away: %s", error)
                return False
        logger.info("The broker is back; no event waits.")
        return True

    def _set_online(self, *, is_online: bool) -> None:
        with self.changed:
            self._is_online = is_online
            self.changed.notify_all()

    def _pause(self, seconds: float) -> bool:
        """Wait; say whether to stop."""
        with self.changed:
            return self.changed.wait_for(lambda: self._is_stopped, seconds)
