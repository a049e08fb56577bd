"""A worker's part in elections: what the rules want is said, asked and done here."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from queue import SimpleQueue
from random import random
from time import monotonic, sleep
from typing import Any, Final, Protocol
from uuid import uuid4

from celeriac.config import Settings
from celeriac.core.election_effect import (
    Acknowledge,
    Act,
    Announce,
    Claim,
    Effect,
    Ended,
    Finish,
    Nominate,
    Phase,
    Release,
    Renew,
    Request,
    Resign,
    StepDown,
)
from celeriac.core.election_rules import Rules
from celeriac.core.elections import MAX_ELECTIONS, Elections
from celeriac.errors import CallerError, CeleriacError, PeerError
from celeriac.model.election import Answer, Elect, Elected, Election, Level, Mode, Resigned
from celeriac.model.events import Event
from celeriac.node.rate_limited_log import RateLimitedLog
from celeriac.transport.arbiter import Arbiter
from celeriac.wire.election import (
    ACK_EVENT,
    ELECT_EVENT,
    ELECTED_EVENT,
    RESIGN_EVENT,
    ack_fields,
    candidate_name,
    check_election,
    elect_fields,
    elected_fields,
    read_message,
    resign_fields,
)
from celeriac.worker.crew import Crew
from celeriac.worker.election_handlers import Handler
from celeriac.worker.election_level import ElectionLevel, election_key
from celeriac.worker.mandate import Mandate

__all__ = ["Elector", "election_key"]

logger = logging.getLogger(__name__)

#: Threads that ask the arbiter, and that act: one that hangs must not keep all elections waiting.
_ASKERS, _ACTORS = 2, 8
_LOOK_EVERY: Final = 0.02
#: Where what we do for an election is not over. Who claims may be granted it, and nobody else would be.
_BUSY: Final = frozenset(
    {Phase.CLAIMING, Phase.ACTING, Phase.FINISHING, Phase.RELEASING, Phase.STEPPING_DOWN}
)
#: Where it can be left to others.
_WAITING: Final = frozenset({Phase.NOMINATING, Phase.BACKOFF, Phase.WATCHING})
_STOPPING: Final = "the worker is stopping"
_FULL: Final = f"the worker has {MAX_ELECTIONS:,} elections in progress, the maximum: retry later"

#: Takes the reason why this node will not act in an election, with the fix; empty if it may act.
TakeRefusal = Callable[[str], object]


class Tells(Protocol):
    """Who sends events, and never raises."""

    def tell(self, kind: str, /, **fields: Any) -> None:
        """Send an event."""


class Elector:
    """Holds a worker's elections, in the thread that hears other nodes.

    ``handlers`` are what acts, by topic; why one may not, when another node called the election, says
    ``refusal``. What is asked of the arbiter, and what handlers do, is done in other threads, which come
    back by ``wake``.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        hostname: str,
        pid: int,
        arbiter: Callable[[], Arbiter],
        teller: Tells,
        wake: Callable[[], object],
        alive: Callable[[], list[str]],
        has_celery: Callable[[], bool],
        handlers: Mapping[str, Handler],
        refusal: Callable[[Election], str],
        is_enabled: bool = True,
    ) -> None:
        self.hostname = hostname
        self.owner = f"{candidate_name(hostname, pid)}.{uuid4().hex[:12]}"
        self.level = ElectionLevel(arbiter, min_level=Level[settings.election_min_level])
        self._arbiter = arbiter
        self._teller = teller
        self._wake = wake
        self._handlers = handlers
        self._refusal = refusal
        self._has_celery = has_celery
        self._refuses_celery = settings.election_mixed == "refuse"
        rules = Rules(
            candidate_name(hostname, pid),
            self.owner,
            random,
            alive=alive,
            has_celery=has_celery,
            acts_beside_celery=self.level.min_level is Level.L0,
        )
        #: What the rules know; for the thread that hears other nodes.
        self.elections = Elections(rules, ttl=settings.election_ttl, may_act=self._may_act)
        self._inbox: SimpleQueue[Callable[[float], list[Effect]]] = SimpleQueue()
        self._askers = Crew("celeriac-arbiter", _ASKERS)
        #: Apart: what was done must be told in its time, however many claims wait, or another does it too.
        self._enders = Crew("celeriac-ender", _ASKERS)
        self._actors = Crew("celeriac-election", _ACTORS)
        self._limited_log = RateLimitedLog(logger)
        #: Whether the level is to be looked up already: many elections may be refused at once.
        self._is_looking = False
        #: Elections that wait for the level; for the thread that hears other nodes.
        self._undecided: list[tuple[Election, TakeRefusal]] = []
        self._is_enabled = is_enabled
        self._is_closing = False

    # -- from any thread

    def stand(self, election: Election) -> None:
        """Have this node stand, in an election of its own; others that hear of it do not."""
        check_election(election)
        if not self._is_enabled:
            raise CallerError(
                "the node runs without gossip, and cannot take part in elections: start it with gossip"
            )
        self._call(lambda now: self.elections.stand(election, now))

    def look(self) -> None:
        """Find out the level in force, in another thread, and log it if it has changed."""
        self._is_looking = True
        self._askers.put(self._look)

    def close(self, timeout: float) -> None:
        """Begin nothing more, and wait for what is being done, while the other thread still turns."""
        self._is_closing = True
        until = monotonic() + timeout
        while monotonic() < until and any(each.phase in _BUSY for each in list(self.elections.all.values())):
            sleep(_LOOK_EVERY)
        for crew in (self._askers, self._enders, self._actors):
            crew.close()

    # -- from the thread that hears other nodes

    def join(self, election: Election, now: float, answer: TakeRefusal = lambda _: None) -> None:
        """Take part in an election that another node called, and ``answer`` whether this node may act in it.

        The answer comes, in this thread, once the level is known; a level that cannot be looked up for now
        counts as high enough. A level that was too low is looked up again, for the next election: a node
        that has refused this one must not act in it after all.
        """
        if self.level.refusal and not self._is_looking:
            self.look()
        # Without the level: the other reasons do not wait for it.
        is_undecided = self.level.value is None and not self._refusal_to_join(election)
        if not is_undecided or self._refusal_to_act(election):
            answer(self._join(election, now))
        elif len(self._undecided) >= MAX_ELECTIONS:
            answer(_FULL)
        else:
            self._undecided.append((election, answer))
            if not self._is_looking:
                self.look()

    def receive(self, event: Event, now: float) -> None:
        """Take what a node says of an election, ourselves included."""
        try:
            message = read_message(event)
        except PeerError:
            self._log("unreadable", "election: cannot read an election message of %.100r", event.hostname)
            return
        if isinstance(message, Elect) and message.election.mode is Mode.LEASE:
            return  # no election of workers
        if isinstance(message, Elect) and not message.is_ours and self._refuses_celery:
            self._carry_out(self.elections.resign(message.election.id, now))
            return
        self._carry_out(self.elections.receive(message, now))

    def tick(self, now: float) -> float:
        """Do what is due, and take what came back from other threads; return when to look again."""
        while not self._inbox.empty():
            self._carry_out(self._inbox.get()(monotonic()))
        self._carry_out(self.elections.tick(now))
        if self._is_closing:
            self._leave(now)
        return self.elections.due_at()

    def stats(self) -> dict[str, object]:
        """Return what ``stats`` tells of elections."""
        phases = [each.phase.value for each in list(self.elections.all.values())]
        return {
            "level": None if self.level.value is None else self.level.value.name,
            "min-level": self.level.min_level.name,
            "phases": {phase: phases.count(phase) for phase in sorted(set(phases))},
            "mixed": self.elections.mixed,
            "turned-away": self.elections.turned_away,
        }

    def _join(self, election: Election, now: float) -> str:
        """Take part in an election; return the reason why this node may not act in it, empty if it may."""
        refusal = self._refusal_to_join(election)
        if refusal:
            self._log(refusal, "election %.100r: this node does not take part: %s", election.id, refusal)
            return refusal
        self._carry_out(self.elections.join(election, now))
        return self._refusal_to_act(election) if election.id in self.elections.all else _FULL

    def _join_undecided(self, now: float) -> list[Effect]:
        undecided, self._undecided = self._undecided, []
        refusals = [self._join(election, now) for election, _ in undecided]
        # Only now: an answer that cannot be sent must keep this node from no election.
        for (_, answer), refusal in zip(undecided, refusals, strict=True):
            answer(refusal)
        return []

    def _leave(self, now: float) -> None:
        self._join_undecided(now)
        for id_, each in list(self.elections.all.items()):
            if each.phase in _WAITING:
                self._carry_out(self.elections.resign(id_, now))

    # -- what the rules want

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Claim():
                    self._askers.put(partial(self._ask, effect))
                case Renew() | Finish() | Release():
                    self._enders.put(partial(self._ask, effect))
                case Act():
                    self._act(effect)
                case StepDown(id_):
                    self._call(partial(self.elections.stepped_down, id_))
                case Ended(id_, phase, reason):
                    logger.info("election %s: ended (%s): %s", id_, phase.value, reason)
                case _:
                    self._tell(effect)

    def _tell(self, effect: Nominate | Acknowledge | Announce | Resign) -> None:
        match effect:
            case Nominate(election):
                self._teller.tell(ELECT_EVENT, **elect_fields(election, owner=self.owner))
            case Acknowledge(id_, candidate, known):
                self._teller.tell(ACK_EVENT, **ack_fields(id_, candidate=candidate, known=known))
            case Announce(id_, token, expires_in):
                elected = Elected(id_, self.owner, token, expires_in)
                self._teller.tell(ELECTED_EVENT, **elected_fields(elected, winner=self.hostname))
            case Resign(id_, token):
                self._teller.tell(RESIGN_EVENT, **resign_fields(Resigned(id_, self.owner, token)))

    def _refusal_to_join(self, election: Election) -> str:
        """Return the reason why this node takes no part in an election at all; empty if it does."""
        if self._is_closing:
            return _STOPPING
        if not self._is_enabled:
            return "the worker runs without gossip: start it with gossip, on Redis or RabbitMQ"
        if self._refuses_celery and self._has_celery():
            return "Celery workers are present, and election_mixed is refuse: set it to follow"
        if election.mode is Mode.LEASE:
            return "mode lease is not for worker elections: use app.leadership()"
        return self.level.refusal

    def _may_act(self, election: Election) -> bool:
        refusal = self._refusal_to_act(election)
        if refusal:
            self._log(refusal, "election %.100r: this node cannot act: %s", election.id, refusal)
        return not refusal

    def _refusal_to_act(self, election: Election) -> str:
        """Return the reason why this node may not act in an election; empty if it may."""
        if election.topic not in self._handlers:
            return f"no handler for topic {election.topic!r:.100} (gossip.election_handlers)"
        return self._refusal(election)

    # -- what is done in other threads

    def _act(self, act: Act) -> None:
        election = act.election
        candidacy = self.elections.all[election.id]
        level = Level.L0 if candidacy.candidates.has_celery else self._arbiter().level
        mandate = Mandate(election, act.token, level, lambda: candidacy.deadline)
        logger.info(
            "election %s: won by this node, topic=%s, token=%d", election.id, election.topic, act.token
        )
        self._actors.put(lambda: self._do(election, mandate))

    def _do(self, election: Election, mandate: Mandate) -> None:
        is_failed = not mandate.still_leader()
        try:
            if is_failed:  # its turn came late
                logger.warning(
                    "election %s: lease expired before the action started, topic=%s",
                    election.id,
                    election.topic,
                )
            else:
                self._handlers[election.topic](election.action, mandate)
        except BaseException:  # a handler is the user's own
            is_failed = True
            logger.exception("election %s: the action failed, topic=%s", election.id, election.topic)
        self._call(lambda now: self.elections.acted(election.id, now, is_failed=is_failed))

    def _ask(self, request: Request) -> None:
        answer: Answer = None
        sent_at = monotonic()
        try:
            if not isinstance(request, Claim) or self._arbiter().look() >= self.level.min_level:
                # It may have waited for its turn, and a lease counts from now on.
                sent_at = monotonic()
                answer = self._answer(request)
            if isinstance(request, Claim):
                self._check_level(request.id)
        except CeleriacError as error:
            if self.level.note_error(error):
                logger.error("election: cannot use the arbiter: %s", error)  # noqa: TRY400
                self._call(lambda now: self.elections.resign(request.id, now))
            else:
                self._log("arbiter", "election: cannot reach the arbiter: %s", error)
        except Exception:
            logger.exception("election: the arbiter call failed")
        self._call(lambda now: self.elections.answer(request.id, answer, now, sent_at=sent_at))

    def _answer(self, request: Request) -> Answer:
        arbiter, key, owner = self._arbiter(), election_key(request.id), self.owner
        match request:
            case Claim(_, mode, ttl, floor):
                return arbiter.claim(key, owner, ttl=ttl, mode=mode, floor=floor)
            case Renew(_, token, ttl):
                return arbiter.renew(key, owner, token, ttl=ttl)
            case Finish(_, token, is_failed):
                return arbiter.finish(key, owner, token, is_failed=is_failed)
            case Release(_, token):
                return arbiter.release(key, owner, token)

    def _check_level(self, id: str) -> None:  # noqa: A002
        """Give an election up if the level is too low: it can fall while we ask, with the connection."""
        refusal = self.level.note()
        if refusal:
            self._log("level", "election %.100r: this node cannot act: %s", id, refusal)
            self._call(lambda now: self.elections.resign(id, now))

    def _look(self) -> None:
        try:
            self.level.look()
        finally:
            self._is_looking = False
            self._call(self._join_undecided)

    def _call(self, act: Callable[[float], list[Effect]]) -> None:
        """Have the thread that hears other nodes do something."""
        self._inbox.put(act)
        self._wake()

    def _log(self, kind: str, text: str, *arguments: object) -> None:
        self._limited_log.write(logging.WARNING, kind, text, *arguments)
