"""The step in which a worker learns what its neighbours know."""

import logging
from time import monotonic
from typing import ClassVar, Final

from celeriac.core.mingle import Mingled, mingle
from celeriac.errors import NetworkError
from celeriac.node.clock import SharedClock
from celeriac.node.control import Control
from celeriac.node.revoked import SharedRevokedSet
from celeriac.wire.hello import decode_greeting, encode_revoked
from celeriac.worker.graph import Step

__all__ = ["MingleStep"]

logger = logging.getLogger(__name__)

#: Celery: the families of brokers where nodes can ask each other.
_DRIVERS: Final = frozenset({"amqp", "redis", "gcpubsub", "memory"})


class MingleStep(Step):
    """Says hello to all nodes at start and after each reconnect, and takes over clock and revoked tasks.

    A node does not answer before it can be reached, so that two which start in the same second would not
    meet. Therefore there is a second hello, :meth:`greet_again`, once we can be reached ourselves: of
    two nodes, the later then finds the other.
    """

    name: ClassVar = "mingle"
    requires: ClassVar = ("connection",)

    def __init__(
        self,
        control: Control,
        *,
        hostname: str,
        clock: SharedClock,
        revoked: SharedRevokedSet,
        driver: str,
        timeout: float,
        is_enabled: bool = True,
    ) -> None:
        self.is_enabled = is_enabled and driver in _DRIVERS
        if is_enabled and not self.is_enabled:
            self.unsupported = (
                f"transport {driver} does not support mingle: this worker syncs no clock and no revoked "
                "tasks with others"
            )
        #: The nodes that answered last.
        self.neighbours: tuple[str, ...] = ()
        self._control = control
        self._hostname = hostname
        self._clock = clock
        self._revoked = revoked
        self._timeout = timeout
        self._is_first = True

    def start(self) -> None:
        """Say hello, and wait for who answers."""
        mingled, has_namesake = self._greet()
        if has_namesake and self._is_first:
            # We cannot have answered yet ourselves.
            logger.error(
                "mingle: another worker named %s is running: both receive the same commands and share "
                "heartbeats; rename this worker with -n",
                self._hostname,
            )
        self._is_first = False
        if mingled.neighbours:
            logger.info(
                "mingle: synced with %s, clock=%d, revoked=%d",
                ", ".join(mingled.neighbours),
                mingled.clock,
                mingled.merged,
            )
        else:
            logger.info("mingle: all alone")

    def greet_again(self) -> None:
        """Say hello once more, from a thread of its own; that the broker went away is for others to mend."""
        if not self.is_enabled:
            return
        try:
            self._greet()
        except NetworkError as error:
            logger.debug("mingle: the second hello failed: %s", error)

    def _greet(self) -> tuple[Mingled, bool]:
        """Ask everybody, and take what they tell; return that, and whether somebody has our name."""
        question = {"from_node": self._hostname, "revoked": encode_revoked(self._revoked)}
        replies = self._control.broadcast("hello", question, reply=True, timeout=self._timeout) or []
        answers = [(node, value) for reply in replies for node, value in reply.items()]
        others = [decode_greeting(node, value) for node, value in answers if node != self._hostname]
        mingled = mingle(others, clock=self._clock, revoked=self._revoked, now=monotonic())
        self.neighbours = mingled.neighbours
        for node, reason in mingled.faults.items():
            logger.warning("mingle: invalid reply of node %s to hello: %s", node, reason)
        return mingled, len(others) < len(answers)
