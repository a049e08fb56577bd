"""Elections of Celery's workers, decided by an arbiter: one winner, and no worker that stops."""

import logging
from collections.abc import Callable, Iterator, Mapping
from os import environ
from threading import Lock
from time import monotonic
from typing import Any, Final

from celery import bootsteps
from celery.worker.consumer.gossip import Gossip as CeleryGossip

from celeriac.config import Settings
from celeriac.integrations.celery import MembersStep
from celeriac.node.election import TASK_TOPIC
from celeriac.node.per_process import PerProcess
from celeriac.transport.arbiters import arbiter_for
from celeriac.wire.election import ACK_EVENT, ELECT_EVENT, candidate_name, read_election
from celeriac.wire.event import Gate
from celeriac.worker.election_handlers import Handler
from celeriac.worker.election_task import ElectedTask
from celeriac.worker.elector import Elector

__all__ = ["election_step"]

logger = logging.getLogger(__name__)

#: How often to look what is due: the event loop of a worker cannot be woken by us.
_TICK: Final = 0.1


def election_step(settings: Mapping[str, Any]) -> type[Any]:
    """Return a step of Celery's consumer that holds its elections, with settings of Celeriac."""

    class ElectionStep(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
        """Takes the place of what Celery's gossip does in elections."""

        label = "Celeriac elections"
        requires = (CeleryGossip, MembersStep)

        def __init__(self, consumer: Any, **options: Any) -> None:
            super().__init__(consumer, **options)
            self._timer_entry: Any = None
            self.enabled = bool(consumer.gossip.enabled)
            if self.enabled:
                self.elector = _elector(consumer, _settings(consumer.app.conf, settings))
                # Celery: pools without an event loop run timers in a thread of their own.
                self._lock = Lock()
                _replace(consumer.gossip, self.elector, self._lock)

        def start(self, consumer: Any) -> None:
            """Begin to look what is due: the steps start anew with each link."""
            tick = _guarded(lambda: self.elector.tick(monotonic()), self._lock)
            self._timer_entry = consumer.timer.call_repeatedly(_TICK, tick)
            self.elector.look()

        def stop(self, consumer: Any) -> None:  # noqa: ARG002
            """Look no more."""
            if self._timer_entry is not None:
                self._timer_entry.cancel()
                self._timer_entry = None

        def shutdown(self, consumer: Any) -> None:
            """End."""
            self.stop(consumer)
            self.elector.close(0.0)

    return ElectionStep


def _elector(consumer: Any, settings: Settings) -> Elector:
    gossip, app = consumer.gossip, consumer.app
    arbiters = PerProcess(lambda: arbiter_for(settings, None))
    elected = ElectedTask(
        lambda call: app.send_task(call.task, call.args, dict(call.kwargs), **call.options),
        actions=settings.election_actions,
    )
    return Elector(
        settings=settings,
        hostname=consumer.hostname,
        pid=consumer.pid,
        arbiter=arbiters.get,
        teller=_Teller(gossip),
        wake=lambda: None,
        alive=lambda: _peers(consumer),
        # That one of those is there which decide by themselves is known once it stands.
        has_celery=lambda: False,
        handlers=_Handlers(gossip, elected.send),
        refusal=elected.refusal,
    )


def _replace(gossip: Any, elector: Elector, lock: Lock) -> None:
    """Have Celery's gossip give to us what belongs to elections."""
    gate = Gate()

    def receive(payload: object) -> None:
        converted = gate.convert(payload)
        if converted is not None:
            elector.receive(converted[0], monotonic())

    def election(id: str, topic: str, action: object = None) -> None:  # noqa: A002
        elector.join(read_election({"id": id, "topic": topic, "action": action}), monotonic())

    for event in (ELECT_EVENT, ACK_EVENT):
        gossip.event_handlers[event.replace("-", ".")] = _guarded(receive, lock)
    gossip.election = _guarded(election, lock)


class _Teller:
    """Sends events by the dispatcher that Celery's gossip has."""

    def __init__(self, gossip: Any) -> None:
        self._gossip = gossip

    def tell(self, kind: str, /, **fields: Any) -> None:
        """Send an event; what cannot be sent costs preference, and no more."""
        dispatcher = self._gossip.dispatcher
        try:
            # Celery: without -E its ``send`` leaves out all that does not begin with ``worker-``.
            dispatcher.publish(kind, fields, dispatcher.producer)
        except Exception as error:  # noqa: BLE001 - whatever it is, the worker must go on
            logger.warning("celeriac: cannot send %s: %s", kind, error)


class _Handlers(Mapping[str, Handler]):
    """The handlers of Celery's gossip, which know no mandate; that of ``task`` is ours."""

    def __init__(self, gossip: Any, send: Handler) -> None:
        self._gossip = gossip
        self._send = send

    def __getitem__(self, topic: str) -> Handler:
        handler = self._gossip.election_handlers[topic]
        return self._send if topic == TASK_TOPIC else lambda action, _mandate: handler(action)

    def __iter__(self) -> Iterator[str]:
        return iter(self._gossip.election_handlers)

    def __len__(self) -> int:
        return len(self._gossip.election_handlers)


def _peers(consumer: Any) -> list[str]:
    membership = consumer.celeriac.membership
    return [candidate_name(each.hostname, each.pid) for each in membership.alive()[1:]]


def _settings(conf: Any, given: Mapping[str, Any]) -> Settings:
    """Return the settings of Celeriac for a worker of Celery: its broker decides, unless another is named.

    Variables and files count, as everywhere: who is told another arbiter than the rest elects for itself.
    """
    url = conf.broker_write_url or conf.broker_url
    of_celery = {
        "broker_url": ";".join(url) if isinstance(url, list | tuple) else str(url),
        "broker_transport_options": dict(conf.broker_transport_options or {}),
        "broker_use_ssl": conf.broker_use_ssl or False,
    }
    return Settings.load({**of_celery, **given}, environ=environ)


def _guarded(act: Callable[..., object], lock: Lock) -> Callable[..., None]:
    """Return what is done by one thread at a time and never raises: the worker must go on."""

    def guarded(*arguments: Any, **named: Any) -> None:
        try:
            with lock:
                act(*arguments, **named)
        except Exception:
            logger.warning("celeriac: an election failed", exc_info=True)

    return guarded
