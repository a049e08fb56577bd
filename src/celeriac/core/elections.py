"""Every election that one node takes part in, or has heard of."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from math import inf
from typing import Final

from celeriac.core.election import Candidacy
from celeriac.core.election_effect import Effect, Phase
from celeriac.core.election_rules import Grants, Rules
from celeriac.model.election import Ack, Answer, Elect, Elected, Election, Message, Resigned

__all__ = ["MAX_ELECTIONS", "Elections"]

#: Elections of one node at a time; beyond it those that are over are forgotten first.
MAX_ELECTIONS: Final = 10_000


class Elections:
    """The elections of one node, by their ids; each is a :class:`Candidacy`.

    ``ttl`` is how long a grant lasts. ``may_act`` says of an election that another node speaks of whether
    this one would act. At most ``MAX_ELECTIONS`` are known: those that are over go first, then those that
    are only observed, and while all are under way new ones are turned away.
    """

    def __init__(self, rules: Rules, *, ttl: float, may_act: Callable[[Election], bool]) -> None:
        self.rules = rules
        #: Elections for which there was no room.
        self.turned_away = 0
        #: Elections in which a worker of Celery stood: nothing is promised of those.
        self.mixed = 0
        self._ttl = ttl
        self._may_act = may_act
        self._grants = Grants()
        #: In the order in which they were heard of.
        self._all: OrderedDict[str, Candidacy] = OrderedDict()
        #: Not before this is anything due, or to be forgotten.
        self._next_at = inf

    @property
    def all(self) -> Mapping[str, Candidacy]:
        """Those that are known, by id."""
        return self._all

    def due_at(self) -> float:
        """Return when :meth:`tick` may have something to do."""
        return self._next_at

    # -- what happens

    def stand(self, election: Election, now: float) -> list[Effect]:
        """Take part in an election of our own: nobody need allow it, and no other says what it is about."""
        candidacy = self._of(election, now, may_act=True)
        if candidacy is None:
            return []
        if candidacy.phase is Phase.OBSERVING:
            candidacy.election, candidacy.may_act = election, True
        return self._noted(candidacy, candidacy.stand(now))

    def join(self, election: Election, now: float) -> list[Effect]:
        """Take part in an election that another node called, if we may act in it.

        What candidates said of it before does not count: one of them could choose how often it is acted on.
        """
        candidacy = self._of(election, now, may_act=False)
        if candidacy is None:
            return []
        if candidacy.phase is Phase.OBSERVING and candidacy.due_at == inf:  # nobody else has called it
            candidacy.election, candidacy.may_act = election, self._may_act(election)
        return self._noted(candidacy, candidacy.stand(now))

    def receive(self, message: Message, now: float) -> list[Effect]:
        """Take what a node says; what it says of an election that nobody stands in is nothing."""
        if isinstance(message, Elect):
            return self._receive_elect(message, now)
        candidacy = self._all.get(message.id)
        if candidacy is None:
            return []
        match message:
            case Ack():
                effects = candidacy.receive_ack(message, now)
            case Elected():
                effects = candidacy.receive_elected(message, now)
            case Resigned():
                effects = candidacy.receive_resigned(message, now)
        return self._noted(candidacy, effects)

    def answer(
        self,
        id: str,  # noqa: A002
        answer: Answer,
        now: float,
        *,
        sent_at: float | None = None,
    ) -> list[Effect]:
        """Take what the arbiter said; None if it said nothing in time. See :meth:`Candidacy.answer`."""
        candidacy = self._all.get(id)
        if candidacy is None:
            return []
        return self._noted(candidacy, candidacy.answer(answer, now, sent_at=sent_at))

    def acted(self, id: str, now: float, *, is_failed: bool = False) -> list[Effect]:  # noqa: A002
        """Note that what we were to do has ended."""
        candidacy = self._all.get(id)
        return [] if candidacy is None else self._noted(candidacy, candidacy.acted(now, is_failed=is_failed))

    def stepped_down(self, id: str, now: float) -> list[Effect]:  # noqa: A002
        """Note that what we did as leader has ended."""
        candidacy = self._all.get(id)
        return [] if candidacy is None else self._noted(candidacy, candidacy.stepped_down(now))

    def resign(self, id: str, now: float) -> list[Effect]:  # noqa: A002
        """Want an election no more."""
        candidacy = self._all.get(id)
        return [] if candidacy is None else self._noted(candidacy, candidacy.resign(now))

    def tick(self, now: float) -> list[Effect]:
        """Do what is due, and forget what is over."""
        if now < self._next_at:
            return []
        self._next_at = inf
        effects: list[Effect] = []
        for id_, candidacy in list(self._all.items()):
            if candidacy.due_at <= now:
                effects += candidacy.tick(now)
            elif candidacy.forget_at <= now:
                del self._all[id_]
                continue
            self._noted(candidacy, [])
        return effects

    def _noted(self, candidacy: Candidacy, effects: list[Effect]) -> list[Effect]:
        """Note when there is something to do for an election that has changed."""
        self._next_at = min(self._next_at, candidacy.due_at, candidacy.forget_at)
        return effects

    def _receive_elect(self, elect: Elect, now: float) -> list[Effect]:
        election = elect.election
        candidacy = self._of(election, now, may_act=self._is_allowed(election))
        if candidacy is None:
            return []
        had_celery = candidacy.candidates.has_celery
        effects = candidacy.receive_elect(elect, now)
        self.mixed += candidacy.candidates.has_celery and not had_celery
        return self._noted(candidacy, effects)

    def _is_allowed(self, election: Election) -> bool:
        return election.id in self._all or self._may_act(election)  # of one that is known it was asked before

    def _of(self, election: Election, now: float, *, may_act: bool) -> Candidacy | None:
        known = self._all.get(election.id)
        if known is not None:
            return known
        if len(self._all) >= MAX_ELECTIONS and not self._make_room():
            self.turned_away += 1
            return None
        made = Candidacy(election, self.rules, self._grants, ttl=self._ttl, may_act=may_act, now=now)
        self._all[election.id] = made
        return made

    def _make_room(self) -> bool:
        for may_go in (lambda each: each.is_over, lambda each: each.phase is Phase.OBSERVING):
            for id_, candidacy in self._all.items():
                if may_go(candidacy):
                    del self._all[id_]
                    return True
        return False
