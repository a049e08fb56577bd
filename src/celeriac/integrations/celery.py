"""Celeriac's failure detector in a worker of Celery.

Two lines in the module of the app::

    from celeriac.integrations.celery import install
    install(app)

From then on each worker of the app judges the others by what its own gossip hears anyway: nothing more is
sent, and Celery's gossip goes on as before. Who joins, leaves, is suspect or lost is logged under this
module's name, and ``celery inspect celeriac_members`` shows whom each worker holds for what, and why.
Whatever goes wrong in here stays in here: Celery never sees an exception of ours.
"""

import logging
from collections.abc import Callable, Sequence
from os import environ
from threading import Lock
from time import monotonic
from typing import Any, Final

from celeriac.config import Settings
from celeriac.core.clock import LamportClock
from celeriac.core.gossip import Effect, ElectionHeard, Gossip
from celeriac.core.membership import PULSE, Joined, Left, Lost, Membership, Refuted, Suspected
from celeriac.errors import ImproperlyConfigured
from celeriac.wire.event import Gate

try:
    from celery import bootsteps
    from celery.worker.consumer.gossip import Gossip as CeleryGossip
    from celery.worker.control import inspect_command
except ImportError as error:
    raise ImproperlyConfigured(
        "celeriac.integrations.celery needs Celery: pip install 'celery>=5.6'"
    ) from error

__all__ = ["COMMAND", "Observer", "install"]

#: The control command that tells the members.
COMMAND: Final = "celeriac_members"
#: Set on an app whose elections are ours.
_MARK: Final = "_celeriac_holds_elections"
#: Between two lines of log about faults of our own: a flood of them is no flood of log.
_LOG_INTERVAL: Final = 60.0

logger = logging.getLogger(__name__)


def install(app: Any, *, election_actions: Sequence[str] = (), **settings: Any) -> None:
    """Add the detector to the workers of a Celery app; to do so twice is to do it once.

    With ``election_actions``, the tasks that elections may start (``["shop.*"]``, ``["*"]``), the elections
    of those workers are decided by an arbiter too: by Celeriac's settings ``election_…``, which are looked
    up as ever, and of which ``settings`` may give others. The broker is that of the app. All workers of the
    cluster should have it: those that have not decide by themselves. Raises ImproperlyConfigured for a
    setting that is wrong.
    """
    if settings and not election_actions:
        raise ImproperlyConfigured(
            f"{', '.join(settings)}: election settings have no effect without election_actions, the tasks "
            "that elections may start: set it"
        )
    if election_actions:
        # Now, where the error shows the line, and not when a worker starts.
        Settings.load({**settings, "election_actions": election_actions}, environ=environ)
    app.steps["consumer"].add(MembersStep)
    inspect_command(name=COMMAND, help="Membership as detected by Celeriac.")(_tell_members)
    if election_actions and not getattr(app, _MARK, False):
        from celeriac.integrations.celery_election import election_step  # noqa: PLC0415 - only who elects

        app.steps["consumer"].add(election_step({**settings, "election_actions": election_actions}))
        setattr(app, _MARK, True)


class Observer:
    """The members of a cluster, as one worker of Celery hears them. For any number of threads."""

    def __init__(
        self,
        hostname: str,
        *,
        pid: int,
        freq: float,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self.membership = Membership(hostname, pid=pid, freq=freq, now=now())
        #: What could not be read of what came, by reason.
        self.gate = Gate()
        #: How often our own code failed.
        self.faults = 0
        # The clock of the worker is not ours to move: this one is for the rules alone.
        self._gossip = Gossip(hostname, clock=LamportClock(), membership=self.membership)
        self._now = now
        # Celery: pools without an event loop run timers in a thread of their own.
        self._lock = Lock()
        self._logged_at: float | None = None

    def receive(self, payload: object) -> None:
        """Take the decoded body of a message that the worker's gossip received; never raises."""
        self._guarded(self._receive, payload)

    def tick(self) -> None:
        """Look who is silent for too long; never raises."""
        self._guarded(lambda: self._gossip.tick(self._now()))

    def disconnected(self) -> None:
        """Note that the worker lost its link; never raises."""
        self._guarded(lambda: self.membership.disconnected(self._now()))

    def reconnected(self) -> None:
        """Note that it has one again; never raises."""
        self._guarded(lambda: self.membership.reconnected(self._now()))

    @property
    def members(self) -> dict[str, dict[str, object]]:
        """Whom this worker holds for what, and why, by name, for people and JSON. Times are seconds ago."""
        with self._lock:
            now = self._now()
            return {
                name: {
                    "state": member.state.value,
                    "reason": member.reason,
                    "since": round(now - member.since_at, 1),
                    "heard": round(now - member.heard_at, 1),
                    "phi": round(self.membership.phi(name, now), 2),
                    "pid": member.pid,
                    "freq": member.freq,
                }
                for name, member in self.membership.members.items()
            }

    def _receive(self, payload: object) -> list[Effect]:
        effects: list[Effect] = []
        for body in payload if isinstance(payload, list) else [payload]:
            converted = self.gate.convert(body)
            if converted is not None:
                effects += self._gossip.receive(converted[0], self._now())
        return effects

    def _guarded(self, act: Callable[..., list[Effect] | None], *arguments: object) -> None:
        try:
            with self._lock:
                effects = act(*arguments)
            for effect in effects or ():
                _log(effect)
        except Exception:  # whatever it is, the worker must go on
            self.faults += 1
            now = self._now()
            if self._logged_at is None or now - self._logged_at >= _LOG_INTERVAL:
                self._logged_at = now
                logger.warning(
                    "celeriac: the failure detector raised an exception, count=%d", self.faults, exc_info=True
                )


class MembersStep(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
    """The step of Celery's consumer that lets an :class:`Observer` hear what the gossip hears.

    The observer is ``consumer.celeriac``; None where the worker runs without gossip.
    """

    label = "Celeriac"
    requires = (CeleryGossip,)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._timer_entry: Any = None
        gossip = consumer.gossip
        self.enabled = bool(gossip.enabled)
        consumer.celeriac = None
        if self.enabled:
            consumer.celeriac = observer = Observer(
                consumer.hostname, pid=consumer.pid, freq=float(gossip.heartbeat_interval or 2.0)
            )
            # Before the gossip starts: it looks its method up whenever it makes a consumer.
            gossip.on_message = _overheard(gossip.on_message, observer)

    def start(self, consumer: Any) -> None:
        """Begin to look, and note that there is a link: the steps start anew with each."""
        consumer.celeriac.reconnected()
        self._timer_entry = consumer.timer.call_repeatedly(PULSE, consumer.celeriac.tick)

    def stop(self, consumer: Any) -> None:
        """Stop looking, and note that there is no link."""
        consumer.celeriac.disconnected()
        if self._timer_entry is not None:
            self._timer_entry.cancel()
            self._timer_entry = None

    shutdown = stop


def _overheard(on_message: Callable[..., Any], observer: Observer) -> Callable[..., Any]:
    """Return the gossip's own way to take a message, with us beside it."""

    def overhear(prepare: Any, message: Any) -> Any:
        # What cannot be decoded is told by Celery, whose turn is next.
        payload = None
        try:
            payload = message.payload
        except Exception:  # a serializer may raise anything
            logger.debug("celeriac: cannot decode a message", exc_info=True)
        if payload is not None:
            observer.receive(payload)
        return on_message(prepare, message)

    return overhear


def _tell_members(state: Any, **_: object) -> object:
    observer: Observer | None = state.consumer.celeriac
    if observer is None:
        return {"error": "the worker runs without gossip, and cannot see other workers"}
    return observer.members


def _log(effect: Effect) -> None:
    match effect:
        case Joined(hostname, pid):
            logger.info("celeriac: %s joined, pid=%d", hostname, pid)
        case Left(hostname):
            logger.info("celeriac: %s left", hostname)
        case Suspected(hostname, _, level, silence):
            logger.info("celeriac: %s suspect, silent for %.1f s, phi=%.1f", hostname, silence, level)
        case Refuted(hostname):
            logger.info("celeriac: %s alive again", hostname)
        case Lost(hostname, _, reason):
            logger.warning("celeriac: %s lost: %s", hostname, reason)
        case ElectionHeard():
            pass
