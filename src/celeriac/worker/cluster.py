"""The thread in which a worker hears and answers other nodes."""

import logging
from collections.abc import Callable
from contextlib import suppress
from random import random
from threading import Event, Thread
from time import monotonic
from typing import Final

from celeriac.config import Settings
from celeriac.core.backoff import Backoff
from celeriac.errors import AccessRefused, NetworkError
from celeriac.worker.graph import Graph
from celeriac.worker.steps.connection import ConnectionStep
from celeriac.worker.steps.gossip import GossipStep
from celeriac.worker.steps.heart import HeartStep

__all__ = ["ClusterThread"]

logger = logging.getLogger(__name__)

#: How long one turn lasts at the most.
_TURN: Final = 0.5
#: After a fault of our own, or of a handler: one that comes with every turn must not take all our time.
_PAUSE: Final = 1.0


class ClusterThread:
    """Drains the link for nodes, and keeps what happens at intervals: heartbeats, and looks at who is silent.

    When the link is lost it restarts the step of the connection and what requires it, with growing
    pauses, for as long as it takes; what runs elsewhere is not touched.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        settings: Settings,
        connection: ConnectionStep,
        heart: HeartStep,
        gossip: GossipStep,
        every: tuple[float, Callable[[], object]],
    ) -> None:
        self._graph = graph
        self._connection = connection
        self._heart = heart
        self._gossip = gossip
        #: What else is done now and then, and how often.
        self._interval, self._errand = every
        self._errand_at = monotonic() + self._interval
        self._backoff = Backoff(base=settings.broker_retry_base, cap=settings.broker_retry_cap, random=random)
        self._is_connected = True
        #: Why the broker refuses us, as it was told last.
        self._refusal = ""
        self._stopped = Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._stopped.clear()
        self._thread = Thread(target=self._run, name="celeriac-cluster", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for it; a broker that hangs is waited for no longer than a link takes to be made."""
        self._stopped.set()
        self._connection.wake()
        if self._thread is not None:
            self._thread.join(10.0)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                if self._is_connected:
                    self._turn()
                else:
                    self._mend()
            except NetworkError as error:
                self._lose(error)
            except Exception:  # whatever it is, a worker that hears nobody any more is of no use
                logger.exception(
                    "cluster: cannot handle a message of another node, or a handler failed; continuing"
                )
                self._stopped.wait(_PAUSE)

    def _turn(self) -> None:
        due_at = self._tick(monotonic())
        self._connection.link.drain(max(0.0, min(_TURN, due_at - monotonic())))

    def _tick(self, now: float) -> float:
        """Do what is due, and return when the next is."""
        if now >= self._errand_at:
            self._errand_at = now + self._interval
            self._errand()
        return min(self._heart.tick(now), self._gossip.tick(now), self._errand_at)

    def _lose(self, error: NetworkError) -> None:
        is_news = self._is_connected
        if isinstance(error, AccessRefused):
            is_news, self._refusal = is_news or str(error) != self._refusal, str(error)
        self._is_connected = False
        self._gossip.lose()
        logger.log(
            logging.WARNING if is_news else logging.DEBUG,
            "cluster: lost the connection to other nodes: %s",
            error,
        )

    def _mend(self) -> None:
        """Wait a moment, and try to make the link again."""
        self._pause(self._backoff.next())
        if self._stopped.is_set():
            return
        self._graph.restart(self._connection.name)
        self._is_connected, self._refusal = True, ""
        self._backoff.reset()
        self._heart.announce()
        logger.info("cluster: reconnected to other nodes")

    def _pause(self, seconds: float) -> None:
        until = monotonic() + seconds
        while not self._stopped.is_set() and (left := until - monotonic()) > 0:
            with suppress(NetworkError):  # there is no link, as we know
                self._tick(monotonic())
            self._stopped.wait(min(left, _TURN))
