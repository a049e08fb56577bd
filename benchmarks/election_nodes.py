"""Workers in an election: around Celery's own ``Gossip``, and around our ``Elections``.

Both are the code that workers run. What is made here is only what they send with, the time that passes, and
for ours the way to the arbiter, whose rules are those of the memory transport and of the script for Redis.
"""

import os
from collections.abc import Callable, Sequence
from random import Random
from time import time
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from celery import Celery
from celery.worker.consumer.gossip import Gossip
from kombu.clocks import LamportClock as KombuClock

from benchmarks.election_schedule import MAX_CLOCK, Node, Step
from celeriac.core.clock import LamportClock
from celeriac.core.election import FORGET_AFTER
from celeriac.core.election_effect import (
    Acknowledge,
    Act,
    Announce,
    Claim,
    Effect,
    Ended,
    Finish,
    Nominate,
    Release,
    Renew,
    Request,
    Resign,
    StepDown,
)
from celeriac.core.election_rules import Rules
from celeriac.core.elections import Elections
from celeriac.core.register import Register
from celeriac.model.election import Ack, Answer, Candidate, Elect, Elected, Election, Message

__all__ = ["CelerySide", "OurSide"]

ID, TOPIC, ACTION = "e", "bench", {"report": "nightly"}
#: How long a grant lasts; one of mode ``once`` is not renewed.
TTL: Final = 15.0
#: A step takes up to so many seconds of a node's own clock. Timers may come late by any number of steps.
LONGEST_STEP: Final = 0.2


# -- Celery's


class _Dispatcher:
    """Stamps events as Celery's dispatcher does, and keeps them."""

    def __init__(self, hostname: str, clock: Any) -> None:
        self.hostname = hostname
        self.clock = clock
        self.sent: list[Any] = []

    def send(self, type: str, **fields: object) -> None:  # noqa: A002 - Celery calls it so
        """Keep an event, as the message that a consumer gets."""
        stamp = {"hostname": self.hostname, "pid": os.getpid(), "clock": self.clock.forward()}
        self.sent.append(_message({"type": type, **stamp, **fields}))


class CeleryNode:
    """A worker of Celery: its Gossip, in a consumer that has what Gossip asks for and no more."""

    def __init__(self, hostname: str) -> None:
        # Gossip takes part with brokers of this kind alone. Nothing connects.
        app = Celery(broker="amqp://", set_as_current=False)
        app.clock = KombuClock()
        dispatcher = _Dispatcher(hostname, app.clock)
        consumer = SimpleNamespace(
            app=app, hostname=hostname, pid=os.getpid(), hub=None, timer=None,
            event_dispatcher=dispatcher,
        )  # fmt: skip
        self.sent = dispatcher.sent
        self.wins = 0
        self.gossip = Gossip(consumer)
        self.gossip.dispatcher = dispatcher
        self.gossip.election_handlers[TOPIC] = self._win

    def meet(self, hostname: str) -> None:
        """Hear the heartbeat of another worker, which holds for as long as a run may take."""
        fields = {"type": "worker-heartbeat", "hostname": hostname, "pid": os.getpid(), "clock": 0}
        self.receive(_message({**fields, "timestamp": time(), "freq": 1e6}))

    def reset(self, random: Random) -> None:
        """Be as a worker that has just started."""
        self.wins = 0
        self.sent.clear()
        self.gossip.clock.value = random.randrange(MAX_CLOCK)
        self.gossip.consensus_requests.clear()
        self.gossip.consensus_replies.clear()

    def begin(self) -> None:
        """Do as the command ``election`` does."""
        self.gossip.election(ID, TOPIC, ACTION)

    def receive(self, message: Any) -> None:
        """Take a message as the consumer of Gossip does."""
        self.gossip.on_message(_prepare, message)

    def own_steps(self) -> Sequence[Step]:
        """Return nothing: Gossip has no timers in an election, and asks nobody."""
        return ()

    def is_left_behind(self) -> bool:
        """Say whether it keeps anything: there is nothing that would ever remove it."""
        return bool(self.gossip.consensus_requests or self.gossip.consensus_replies)

    def _win(self, _action: object) -> None:
        self.wins += 1


def _message(payload: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(
        delivery_info={"routing_key": payload["type"].replace("-", ".")}, headers={}, payload=payload
    )


def _prepare(payload: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return payload["type"], payload | {"local_received": time()}


class CelerySide:
    """Workers of Celery that know each other; they are made once, as it takes long."""

    def __init__(self, count: int) -> None:
        names = _names(count)
        self._all = [CeleryNode(name) for name in names]
        for node in self._all:
            for name in names:
                if name != node.gossip.hostname:
                    node.meet(name)

    def nodes(self, random: Random) -> list[Node]:
        """Return them as if they had just started."""
        for node in self._all:
            node.reset(random)
        return list(self._all)


# -- ours


class _Arbiter:
    """The register that all nodes ask, with a clock of its own."""

    def __init__(self) -> None:
        self.register = Register()
        self.now = 0.0

    def take(self, request: Request, owner: str) -> Answer:
        """Do what a node asks, and return what it is to be told."""
        self.now += 1.0
        match request:
            case Claim(key, mode, ttl, floor):
                return self.register.claim(key, owner, ttl=ttl, mode=mode, now=self.now, floor=floor)
            case Finish(key, token, is_failed):
                return self.register.finish(key, owner, token, now=self.now, is_failed=is_failed)
            case Renew(key, token, ttl):
                return self.register.renew(key, owner, token, ttl=ttl, now=self.now)
            case Release(key, token):
                return self.register.release(key, owner, token, now=self.now)


class _Sent(NamedTuple):
    """A message with the stamp that every event has."""

    clock: int
    sender: str
    message: Message


class OurNode:
    """One of our workers: its Elections, and what it waits for.

    A request reaches the arbiter in one step and its answer comes back in another: both may take
    for ever, as far as the others can see. So may what the winner does, and each timer.
    """

    def __init__(self, name: str, others: Sequence[str], arbiter: _Arbiter, random: Random) -> None:
        self.sent: list[Any] = []
        self.wins = 0
        self._name = name
        self._arbiter = arbiter
        self._random = random
        self._clock = LamportClock(random.randrange(MAX_CLOCK))
        self._now = 0.0
        rules = Rules(name=name, owner=f"{name}.boot", random=random.random, alive=lambda: others)
        self._elections = Elections(rules, ttl=TTL, may_act=lambda _election: True)
        #: What is under way, but for messages and timers.
        self._errands: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Take part, as the command ``election`` asks."""
        self._carry_out(self._elections.join(Election(ID, TOPIC, ACTION), self._pass_time()))

    def receive(self, message: _Sent) -> None:
        """Take a message, and move past its clock."""
        self._clock.receive(message.clock, peer=message.sender)
        self._carry_out(self._elections.receive(message.message, self._pass_time()))

    def own_steps(self) -> Sequence[Step]:
        """Return what is under way, and the timer."""
        steps = [Step(self, lambda errand=errand: self._run(errand)) for errand in self._errands]  # type: ignore[misc]
        if self._elections.due_at() != float("inf"):
            steps.append(Step(self, self._tick))
        return steps

    def is_left_behind(self) -> bool:
        """Say whether something is kept after the time in which an election is forgotten."""
        self._elections.tick(self._now + FORGET_AFTER)
        return bool(self._elections.all)

    def _pass_time(self) -> float:
        self._now += LONGEST_STEP * self._random.random()
        return self._now

    def _tick(self) -> None:
        self._now = max(self._now, self._elections.due_at())
        self._carry_out(self._elections.tick(self._now))

    def _run(self, errand: Callable[[], None]) -> None:
        self._errands.remove(errand)
        errand()

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Nominate(election):
                    clock = self._clock.forward()
                    self.sent.append(_Sent(clock, self._name, Elect(election, Candidate(clock, self._name))))
                case Acknowledge(id_, candidate):
                    self._send(Ack(id_, self._name, candidate))
                case Announce(id_, token, expires_in):
                    self._send(Elected(id_, self._elections.rules.owner, token, expires_in))
                case Act(election):
                    self.wins += 1
                    self._errands.append(lambda id_=election.id: self._end(id_))  # type: ignore[misc]
                case Claim() | Finish() | Renew() | Release():
                    self._errands.append(lambda request=effect: self._ask(request))  # type: ignore[misc]
                case Ended():
                    pass  # for people
                case StepDown() | Resign():
                    raise AssertionError(f"{effect} in an election that is held once")

    def _send(self, message: Message) -> None:
        self.sent.append(_Sent(self._clock.forward(), self._name, message))

    def _ask(self, request: Request) -> None:
        answer = self._arbiter.take(request, self._elections.rules.owner)
        self._errands.append(
            lambda: self._carry_out(self._elections.answer(request.id, answer, self._pass_time()))
        )

    def _end(self, id_: str) -> None:
        self._carry_out(self._elections.acted(id_, self._pass_time()))


class OurSide:
    """Our workers, and the arbiter that they ask."""

    def __init__(self, count: int) -> None:
        self._names = [f"{name}.{os.getpid()}" for name in _names(count)]

    def nodes(self, random: Random) -> list[Node]:
        """Return new ones, with a new arbiter."""
        arbiter = _Arbiter()
        return [
            OurNode(name, [other for other in self._names if other != name], arbiter, random)
            for name in self._names
        ]


def _names(count: int) -> list[str]:
    return [f"worker{number}@host{number}" for number in range(count)]
