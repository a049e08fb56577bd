"""The step in which a worker hears which others are there."""

import logging
from collections.abc import Callable
from time import monotonic, time
from typing import ClassVar, Final
from uuid import uuid4

from celeriac.config import Settings
from celeriac.core.gossip import SUSPECT_EVENT, Effect, ElectionHeard, Gossip, suspicion_fields
from celeriac.core.membership import (
    PULSE,
    Joined,
    Left,
    Liveness,
    Lost,
    Member,
    Membership,
    Refuted,
    Suspected,
)
from celeriac.errors import PeerError
from celeriac.model.election import Election, Mode
from celeriac.model.events import Event
from celeriac.model.message import Message
from celeriac.node.clock import SharedClock
from celeriac.node.dispatcher import EventDispatcher
from celeriac.node.identity import OUR_IDENT
from celeriac.node.rate_limited_log import RateLimitedLog
from celeriac.node.state import State
from celeriac.wire.control import Request, encode_request
from celeriac.wire.election import candidate_name, worker_mode
from celeriac.wire.envelope import body_of
from celeriac.wire.event import Gate
from celeriac.wire.names import WORKER_EVENTS, control_exchange, event_exchange, event_queue
from celeriac.worker.election_handlers import ElectionHandlers
from celeriac.worker.elector import Elector
from celeriac.worker.graph import Step
from celeriac.worker.steps.connection import ConnectionStep
from celeriac.worker.teller import Teller

__all__ = ["GossipStep"]

logger = logging.getLogger(__name__)

#: Celery: the families of brokers where it gossips.
_DRIVERS: Final = frozenset({"amqp", "redis", "memory"})
#: What only our own nodes say to each other; Celery's do not listen to it.
_CLUSTER_EVENTS: Final = "cluster.#"
#: Heartbeats, and seconds at least, that a message waits in the queue. Celery: one heartbeat, so that a
#: worker that is stalled for two seconds misses the election messages of others. Old ones do no harm here.
_QUEUE_TTL_HEARTBEATS: Final = 15
_MIN_QUEUE_TTL: Final = 30.0
#: But no more than this: the oldest goes.
_QUEUE_LENGTH: Final = 20_000

Handler = Callable[[Member], object]


class GossipStep(Step):
    """Listens to the events of workers, and tells who joins, leaves and is lost.

    ``on_node_join``, ``on_node_leave`` and ``on_node_lost`` are lists of handlers, called with the
    member in the thread that listens; one that raises harms no other. ``election_handlers`` holds, by
    topic, the function that the winner of an election calls with the action and a
    :class:`~celeriac.worker.mandate.Mandate`, or with the action alone, in a thread of its own.
    """

    name: ClassVar = "gossip"
    requires: ClassVar = ("connection", "mingle")

    def __init__(
        self,
        connection: ConnectionStep,
        *,
        settings: Settings,
        clock: SharedClock,
        hostname: str,
        pid: int,
        dispatcher: EventDispatcher,
        driver: str,
        interval: float = 5.0,
        heartbeat_interval: float = 2.0,
        is_enabled: bool = True,
    ) -> None:
        self.is_enabled = is_enabled and driver in _DRIVERS
        if is_enabled and not self.is_enabled:
            self.unsupported = (
                f"transport {driver} does not support gossip: this worker sees no other workers, and takes "
                "part in no election"
            )
        self.interval = interval
        self.heartbeat_interval = heartbeat_interval
        self.hostname = hostname
        self.clock = clock
        #: The name of this worker among candidates; the lower one wins where clocks are equal.
        self.full_hostname = candidate_name(hostname, pid)
        self.on_node_join: list[Handler] = []
        self.on_node_leave: list[Handler] = []
        self.on_node_lost: list[Handler] = []
        self.election_handlers = ElectionHandlers()
        #: Who holds the elections; set before anything is heard.
        self.elector: Elector
        #: What the workers say of themselves.
        self.state = State(max_workers_in_memory=settings.max_workers_in_memory)
        self.membership = Membership(hostname, pid=pid, freq=heartbeat_interval, now=monotonic())
        self.gate = Gate()
        self._gossip = Gossip(hostname, clock=clock, state=self.state, membership=self.membership)
        self._connection = connection
        self._settings = settings
        self._teller = Teller(dispatcher)
        self._limited_log = RateLimitedLog(logger)
        self._looks_at = 0.0
        self._tells_at = 0.0
        self._told = ""

    def start(self) -> None:
        """Listen."""
        link = self._connection.link
        exchange = event_exchange(self._settings.event_exchange, link.driver)
        ttl = max(_MIN_QUEUE_TTL, _QUEUE_TTL_HEARTBEATS * self.heartbeat_interval)
        for routing_key in (WORKER_EVENTS, _CLUSTER_EVENTS):
            queue = event_queue(
                self._settings,
                exchange,
                unique=str(uuid4()),
                routing_key=routing_key,
                max_length=_QUEUE_LENGTH,
            )
            link.subscribe(queue._replace(message_ttl=ttl), self.receive)
        self.membership.reconnected(monotonic())

    def lose(self) -> None:
        """Note that there is no link: nobody is lost while we cannot hear."""
        self.membership.disconnected(monotonic())

    def receive(self, message: Message) -> None:
        """Take one message of events."""
        refused = self.gate.refused.total()
        now, received_at = monotonic(), time()
        for event in self._decode(message, received_at):
            effects = self.state.freeze_while(self._gossip.receive, event, now, received_at=received_at)
            self._carry_out(effects)

        if self.gate.refused.total() > refused:
            self._limited_log.write(
                logging.ERROR,
                "unreadable",
                "gossip: unreadable message, refused=%s (see celeriac inspect stats)",
                dict(self.gate.refused),
            )

    def stats(self) -> dict[str, object]:
        """Return the part of ``stats`` on gossip."""
        return {"refused": dict(self.gate.refused)}

    def election(
        self,
        id: str,  # noqa: A002  (Celery's name)
        topic: str,
        action: object = None,
        *,
        mode: str = Mode.ONCE,
    ) -> None:
        """Have this node stand in an election; ``app.control.election`` has all nodes stand."""
        self.elector.stand(Election(id, topic, action, worker_mode(mode)))

    def peers(self) -> list[str]:
        """Return the other nodes that are there, as candidates are called."""
        return [candidate_name(each.hostname, each.pid) for each in self.membership.alive()[1:]]

    def has_celery(self) -> bool:
        """Say whether one of them is a worker of Celery."""
        known = (self.state.workers.get(each.hostname) for each in self.membership.alive()[1:])
        return any(each is not None and each.sw_ident not in (None, OUR_IDENT) for each in known)

    def beat(self, clock: int, now: float) -> None:
        """Note that a heartbeat of our own leaves, with a stamp not before this."""
        if self.is_enabled:
            self.membership.beat(clock, now)

    def tick(self, now: float) -> float:
        """Look who is silent, if it is time; return when to look again."""
        if not self.is_enabled:
            return now + self.interval
        if now >= self._looks_at:
            self._looks_at = now + PULSE
            self._carry_out(self._gossip.tick(now))
        if now >= self._tells_at:
            self._tells_at = now + self.interval
            self._tell()
        return min(self._looks_at, self.elector.tick(now))

    def _decode(self, message: Message, received_at: float) -> list[Event]:
        try:
            return self.gate.decode(body_of(message), received_at)
        except PeerError as error:
            self.gate.refuse(error, message.body)
            return []

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Joined():
                    logger.info("gossip: node %s joined", effect.hostname)
                    self._call(self.on_node_join, effect.hostname)
                case Left():
                    logger.info("gossip: node %s left", effect.hostname)
                    self._call(self.on_node_leave, effect.hostname)
                case Lost():
                    logger.warning("gossip: node %s lost: %s", effect.hostname, effect.reason)
                    self._call(self.on_node_lost, effect.hostname)
                case Suspected():
                    logger.info("gossip: node %s suspect, silent for %.1f s", effect.hostname, effect.silence)
                    self._look_for(effect)
                case Refuted():
                    logger.info("gossip: node %s alive again", effect.hostname)
                case ElectionHeard(event):
                    self.elector.receive(event, monotonic())

    def _look_for(self, suspected: Suspected) -> None:
        """Ask a suspect for a sign of life, and tell the others."""
        self._teller.tell(SUSPECT_EVENT, **suspicion_fields(suspected))
        request = Request("heartbeat", destination=(suspected.hostname,), clock=self.clock.forward())
        spelled = encode_request(request)
        self._connection.link.publish(control_exchange(self._settings), spelled.body, headers=spelled.headers)

    def _call(self, handlers: list[Handler], hostname: str) -> None:
        member = self.membership.members[hostname]
        for handler in list(handlers):
            try:
                handler(member)
            except Exception:  # a handler is the user's own, and harms nobody else
                logger.exception("gossip: a handler failed for node %s", hostname)

    def _tell(self) -> None:
        """Write down who is there, if that has changed."""
        counts = dict.fromkeys(Liveness, 0)
        for member in self.membership.members.values():
            counts[member.state] += 1
        told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        if told != self._told:
            self._told = told
            logger.debug("Nodes: %s", told)
