"""The step that says that a worker lives."""

import os
import platform
from collections.abc import Callable
from time import monotonic
from typing import ClassVar

from celeriac.node.dispatcher import EventDispatcher
from celeriac.node.identity import OUR_IDENT
from celeriac.worker.assignment import Desk, Stage
from celeriac.worker.graph import Step
from celeriac.worker.teller import Teller

__all__ = ["HeartStep"]


class HeartStep(Step):
    """Sends ``worker-online``, then a heartbeat at each interval, and ``worker-offline`` at the end."""

    name: ClassVar = "heart"
    requires: ClassVar = ("events",)
    after: ClassVar = ("gossip",)

    def __init__(
        self,
        dispatcher: EventDispatcher,
        desk: Desk,
        *,
        version: str,
        interval: float,
        is_enabled: bool = True,
        on_beat: Callable[[int, float], object] = lambda _clock, _now: None,
    ) -> None:
        self.is_enabled = is_enabled
        self.interval = interval
        self._dispatcher = dispatcher
        self._teller = Teller(dispatcher)
        self._desk = desk
        self._version = version
        #: Called with the least stamp that a heartbeat can have, and when it leaves.
        self._on_beat = on_beat
        self._beat_at = 0.0
        self._is_beating = False

    def start(self) -> None:
        """Say that we are there."""
        self._send("worker-online")
        # Whoever switches events on wants to know who is there.
        self._dispatcher.on_enabled.add(self.announce)
        self._beat_at = monotonic() + self.interval
        self._is_beating = True

    def stop(self) -> None:
        """Say that we leave."""
        self._is_beating = False
        self._dispatcher.on_enabled.discard(self.announce)
        self._send("worker-offline")

    def announce(self) -> None:
        """Say once more that we are there: others may have missed it, or lost us."""
        if self._is_beating:
            self._send("worker-online")

    def beat(self) -> None:
        """Send a heartbeat now."""
        self._send("worker-heartbeat")

    def tick(self, now: float) -> float:
        """Send a heartbeat if it is time; return when the next one is due."""
        if not self._is_beating:
            return now + self.interval
        if now >= self._beat_at:
            self._on_beat(self._dispatcher.clock.value + 1, now)
            self.beat()
            # Not from the last one on: after a pause there is one heartbeat, not those that were missed.
            self._beat_at = now + self.interval
        return self._beat_at

    def _send(self, kind: str) -> None:
        self._teller.tell(
            kind,
            freq=self.interval,
            active=len(self._desk.all(Stage.ACTIVE)),
            processed=self._desk.begun.total(),
            loadavg=[round(load, 2) for load in os.getloadavg()],
            sw_ident=OUR_IDENT,
            sw_ver=self._version,
            sw_sys=platform.system(),
        )
