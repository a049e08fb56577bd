"""One time of leading, from the first claim to the release, in a thread of its own."""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from math import inf
from random import random
from threading import Event, Thread
from time import monotonic
from typing import Final

from celeriac.core.election import Candidacy
from celeriac.core.election_effect import (
    Act,
    Claim,
    Effect,
    Ended,
    Finish,
    Phase,
    Release,
    Renew,
    Request,
    StepDown,
)
from celeriac.core.election_rules import Grants, Rules
from celeriac.errors import AccessRefused, ImproperlyConfigured, NetworkError
from celeriac.model.election import Answer, Denied, Election, Granted, Level, Mode
from celeriac.transport.arbiter import CALL_PATIENCE, Arbiter

__all__ = ["Term", "check_level", "lease_key"]

logger = logging.getLogger(__name__)

#: The least time that a call of the arbiter gets, however near the deadline is.
_LEAST_PATIENCE: Final = 0.1
#: How long who steps down may take to end what it does.
_STEP_DOWN_PATIENCE: Final = 5.0
_TOPIC: Final = "lease"


def lease_key(name: str) -> str:
    """Return the key of a leadership at the arbiter."""
    return f"leader/{name}"


def check_level(arbiter: Arbiter, min_level: Level) -> None:
    """Raise ImproperlyConfigured, with the fix, if an arbiter promises less than is wanted."""
    if arbiter.level < min_level:
        raise ImproperlyConfigured(
            f"the election level is {arbiter.level.name}, below election_min_level {min_level.name}: "
            f"{arbiter.reason}"
        )


class Term:
    """Claims a lease, renews it, and releases it in the end.

    The futures tell where it is: ``elected`` whether it came to lead, ``ended`` that nothing more follows.
    """

    def __init__(
        self,
        name: str,
        *,
        owner: str,
        arbiter: Arbiter,
        min_level: Level,
        ttl: float,
        tries_once: bool,
        on_step_down: Callable[[str], object] | None,
        floor: int = 0,
    ) -> None:
        self.name = name
        self.elected: Future[bool] = Future()
        self.ended: Future[None] = Future()
        self.token = 0
        self.note = b""
        self._key = lease_key(name)
        self._owner = owner
        self._arbiter = arbiter
        self._min_level = min_level
        self._ttl = ttl
        self._tries_once = tries_once
        self._on_step_down = on_step_down
        #: The token of our last term, which an arbiter may have forgotten.
        self._floor = floor
        self._candidacy = Candidacy(
            Election(self._key, _TOPIC, mode=Mode.LEASE),
            Rules(owner, owner, random),
            Grants(),
            ttl=ttl,
            nominates=False,
            now=monotonic(),
        )
        self._woken = Event()
        self._is_leaving = False
        self._is_lost = False
        #: Why the arbiter could not be asked, while it cannot.
        self._trouble: Exception | None = None
        self._thread = Thread(target=self._run, name=f"celeriac-leader-{name}", daemon=True)

    @property
    def deadline(self) -> float:
        """Until when it leads if nothing is renewed, by the monotonic clock."""
        return self._candidacy.deadline

    def is_leader(self, now: float) -> bool:
        """Say whether it leads."""
        return not self._is_leaving and not self._is_lost and self._candidacy.is_leader(now)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def resign(self) -> None:
        """Lead no more; ``ended`` tells when others can."""
        self._is_leaving = True
        self._woken.set()

    def raise_trouble(self) -> None:
        """Raise why the arbiter could not be asked, if it could not."""
        if self._trouble is not None:
            raise self._trouble

    def leave_note(self, note: bytes) -> bool:
        """Renew the lease with a note; say whether it was still ours."""
        timeout = self._patience(self.deadline)
        is_ours = self._arbiter.renew(
            self._key, self._owner, self.token, ttl=self._ttl, note=note, timeout=timeout
        )
        if is_ours:
            self.note = note
        else:
            self._is_lost = True
            self._woken.set()
        return is_ours

    # -- the thread

    def _run(self) -> None:
        try:
            self._lead()
        except BaseException as error:  # raised where the leader was to be elected
            if self.elected.done():
                logger.exception("leadership %r: ended by an internal error", self.name)
            else:
                self.elected.set_exception(error)
        finally:
            self._is_lost = True
            if not self.elected.done():
                self.elected.set_result(False)
            self.ended.set_result(None)

    def _lead(self) -> None:
        effects = self._candidacy.stand(monotonic())
        while True:
            while effects:
                effects = [more for effect in effects for more in self._carry_out(effect)]
            if self._candidacy.is_over:
                return
            self._wait()
            now = monotonic()
            if self._is_leaving:
                effects = self._candidacy.resign(now)
            elif self._is_lost:
                effects = self._candidacy.lost(now)
            effects = [*effects, *self._candidacy.tick(now)]

    def _wait(self) -> None:
        due_at = self._candidacy.due_at
        self._woken.wait(None if due_at == inf else max(0.0, due_at - monotonic()))
        self._woken.clear()

    def _carry_out(self, effect: Effect) -> list[Effect]:
        match effect:
            case Claim() | Renew() | Finish() | Release():
                answer, now = self._ask(effect), monotonic()
                # Whoever gave up meanwhile comes to lead nothing.
                given_up = self._candidacy.resign(now) if self._is_leaving else []
                return [*given_up, *self._candidacy.answer(answer, now)]
            case Act():
                return self._lead_on(effect)
            case StepDown():
                self._step_down(effect.reason)
                return self._candidacy.stepped_down(monotonic())
            case Ended():
                logger.debug("leadership %r: %s", self.name, effect.reason)
            case _:
                pass  # no other node listens
        return []

    def _lead_on(self, act: Act) -> list[Effect]:
        self.token, self.note = act.token, act.note
        logger.info(
            "leadership %r: acquired (token %d, level %s)", self.name, act.token, self._arbiter.level.name
        )
        self.elected.set_result(True)
        return []

    def _step_down(self, reason: str) -> None:
        log = logger.info if self._is_leaving else logger.warning
        log("leadership %r: lost: %s", self.name, reason)
        # It leads no more in this entry, whatever the arbiter would say to another claim.
        self._is_leaving = True
        self._candidacy.resign(monotonic())
        if self._on_step_down is not None:
            told = Thread(target=self._tell, args=(self._on_step_down, reason), daemon=True)
            told.start()
            told.join(_STEP_DOWN_PATIENCE)

    def _tell(self, on_step_down: Callable[[str], object], reason: str) -> None:
        try:
            on_step_down(reason)
        except Exception:  # it is the user's own, and the lease is to be released all the same
            logger.exception("leadership %r: the on_lost callback failed", self.name)

    # -- the arbiter

    def _ask(self, request: Request) -> Answer:
        try:
            answer = self._answer(request)
        except Exception as error:
            can_go_on = isinstance(error, NetworkError) and not isinstance(error, AccessRefused)
            if not self.elected.done() and (self._tries_once or not can_go_on):
                raise
            # A leader stays one until its time is over, whatever it is, and then steps down in good order.
            if self._trouble is None:
                logger.warning("leadership %r: cannot reach the arbiter: %s", self.name, error)
            self._trouble = error
            return None
        if self._trouble is not None:
            logger.info("leadership %r: the arbiter answers again", self.name)
        self._trouble = None
        return answer

    def _answer(self, request: Request) -> Answer:
        arbiter, key, owner = self._arbiter, self._key, self._owner
        match request:
            case Claim():
                return self._claim(request)
            case Renew(_, token, ttl):
                return arbiter.renew(key, owner, token, ttl=ttl, timeout=self._patience(self.deadline))
            case Release(_, token):
                return arbiter.release(key, owner, token, timeout=min(CALL_PATIENCE, self._ttl))
            case Finish():
                return None  # a lease is never finished

    def _claim(self, claim: Claim) -> Answer:
        arbiter = self._arbiter
        answer = arbiter.claim(
            self._key,
            self._owner,
            ttl=claim.ttl,
            mode=claim.mode,
            floor=max(claim.floor, self._floor),
            timeout=min(CALL_PATIENCE, claim.ttl),
        )
        if isinstance(answer, Granted) and arbiter.level < self._min_level:
            arbiter.release(self._key, self._owner, answer.token)
        check_level(arbiter, self._min_level)
        if isinstance(answer, Denied) and self._tries_once and self._candidacy.phase is Phase.CLAIMING:
            self.resign()
        return answer

    def _patience(self, deadline: float) -> float:
        """Return how long to wait for an answer that is of no use after the deadline."""
        return max(_LEAST_PATIENCE, min(CALL_PATIENCE, deadline - monotonic()))
