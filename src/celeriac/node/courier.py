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
from celeriac.core.outbox import Outbox
from celeriac.errors import ConnectionLost, NetworkError
from celeriac.model.message import Exchange
from celeriac.transport.base import Connection

__all__ = ["Courier"]

logger = logging.getLogger(__name__)

#: Messages on their way before the broker's confirmations are looked at, and before they are waited for.
_LOOK_AFTER, _WAIT_AFTER = 64, 256
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
        self._link_mutex = Lock()
        self._link = connection.clone()
        self._is_online = True
        self._is_stopping = False
        self._recovery: Thread | None = None

    def carry(self) -> None:
        """Publish what waits. If the broker is away it goes on waiting, and is tried again by itself.

        Raises AccessRefused: no waiting mends that.
        """
        if not self._is_online:
            return
        try:
            with self._link_in_use():
                self._publish_all()
        except ConnectionLost as error:
            self._start_recovery(error)

    def carry_at_once(self, put: Callable[[], object]) -> None:
        """Call ``put``, which adds one message, and return when that has arrived, or raise.

        What fails is forgotten, since who sent it is told. Batches from before are kept.
        """
        with self._link_in_use(on_failure=self.outbox.withdraw):
            with self.changed:
                put()
            self._publish_all()
            self._confirm(_PATIENCE, must_succeed=True)

    def wait(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds until the broker has everything."""
        deadline = monotonic() + timeout
        while self.outbox and (left := deadline - monotonic()) > 0:
            if not self._is_online:
                with self.changed:
                    self.changed.wait(left)
                continue
            try:
                with self._link_in_use():
                    self._publish_all()
                    self._confirm(left)
            except ConnectionLost as error:
                self._start_recovery(error)

    def stop(self) -> None:
        """End the link, and try no more until the next :meth:`carry`. The outbox stays as it is."""
        with self.changed:
            self._is_stopping = True
            self.changed.notify_all()
        if self._recovery is not None:
            self._recovery.join()
        with self._link_mutex:
            self._renew_link()
        self._is_online, self._is_stopping = True, False

    # -- the link

    @contextmanager
    def _link_in_use(self, on_failure: Callable[[], object] | None = None) -> Iterator[None]:
        """Hold the link; if it is lost, take back what was on its way."""
        with self._link_mutex:
            try:
                yield
            except NetworkError:
                self._renew_link()
                if on_failure is not None:
                    with self.changed:
                        on_failure()
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
            if self.outbox.on_the_way >= _WAIT_AFTER:
                self._confirm(_PATIENCE, must_succeed=True)
            elif self.outbox.on_the_way >= _LOOK_AFTER:
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
            if not self._is_online or self._is_stopping:
                return
            self._is_online = False
            logger.info("Events wait for the broker: %s", error)
            self._recovery = Thread(target=self._recover, name="celeriac-courier", daemon=True)
            self._recovery.start()

    def _recover(self) -> None:
        self._backoff.reset()
        while not self._pause(self._backoff.next()):
            try:
                with self._link_in_use():
                    self._link.open()
                    self._publish_all()
                    self._confirm(_PATIENCE, must_succeed=True)
            except NetworkError as error:
                logger.debug("The broker is still away: %s", error)
                continue
            logger.info("The broker is back; no event waits.")
            break
        with self.changed:
            self._is_online = True
            self.changed.notify_all()

    def _pause(self, seconds: float) -> bool:
        """Wait; say whether to stop."""
        with self.changed:
            return self.changed.wait_for(lambda: self._is_stopping, seconds)
