"""Turns on the task events of all workers, and of those that join later."""

import logging
from collections.abc import Callable, Mapping
from threading import Event as Flag
from threading import Thread
from typing import Final, Self

from celeriac.core.member import Liveness
from celeriac.errors import CeleriacError
from celeriac.node.control import Control
from celeriac.node.rate_limited_log import RateLimitedLog
from celeriac.node.watcher import Presence

__all__ = ["EventEnabler"]

#: Seconds between two looks at the workers.
_INTERVAL: Final = 1.0
_TIMEOUT: Final = 1.0
#: Commands without a reply, one per interval. A Celery worker announces itself before it listens to commands,
#: so the first may be lost; a node that never replies is given up.
_MAX_ATTEMPTS: Final = 30
#: A restarted worker is alive since another time; clocks of threads differ by less.
_SAME: Final = 0.5
_STOP_TIMEOUT: Final = 3.0

logger = logging.getLogger(__name__)


class EventEnabler:
    """Sends ``enable_events`` to each worker until it replies, in a thread, while the context lasts.

    A worker gets the command again after a restart, and not when an operator turned its events off.
    ``presences`` is that of a :class:`~celeriac.node.watcher.Watcher`.
    """

    def __init__(self, control: Control, presences: Callable[[], Mapping[str, Presence]]) -> None:
        self._control = control
        self._presences = presences
        #: Since when the worker was alive that the command was sent to, and how often it was sent.
        self._sent: dict[str, tuple[float, int]] = {}
        self._is_ending = Flag()
        self._log = RateLimitedLog(logger)
        self._thread = Thread(target=self._run, name="enable-events", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()
        self._thread.join(_STOP_TIMEOUT)

    def _run(self) -> None:
        while not self._is_ending.wait(_INTERVAL):
            try:
                self.enable()
            except CeleriacError as error:
                self._log.write(logging.WARNING, "error", "events: cannot enable task events: %s", error)
            except Exception:
                logger.exception("events: cannot enable task events")

    def enable(self) -> None:
        """Send the command to the workers that need it. Raises CeleriacError if it cannot be sent."""
        presences = self._presences()
        self._sent = {name: sent for name, sent in self._sent.items() if name in presences}
        names = [name for name, presence in presences.items() if self._needs(name, presence)]
        if not names:
            return
        for name in names:
            self._sent[name] = (presences[name].since_at, self._attempts(name, presences[name]) + 1)
        answers = self._control.enable_events(names, reply=True, timeout=_TIMEOUT) or []
        replied = {name for answer in answers for name in answer} & {*names}
        for name in replied:
            self._sent[name] = (presences[name].since_at, _MAX_ATTEMPTS)
        if replied:
            logger.info("events: task events enabled, workers=%d", len(replied))

    def _needs(self, name: str, presence: Presence) -> bool:
        return presence.liveness is Liveness.ALIVE and self._attempts(name, presence) < _MAX_ATTEMPTS

    def _attempts(self, name: str, presence: Presence) -> int:
        since_at, attempts = self._sent.get(name, (0.0, 0))
        return attempts if abs(presence.since_at - since_at) < _SAME else 0
