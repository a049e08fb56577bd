"""Every law of membership is seen to fail: bugs are planted in it, and each must be found.

Several are bugs of detectors in use: to take one's own pause for the death of everyone else, to let a late
heartbeat bring back who left, to leave oneself out.
"""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from celeriac.core import health, membership
from celeriac.core.health import LocalHealth
from celeriac.core.member import Liveness, Member, Sign
from celeriac.core.membership import Effect, Joined, Lost, Membership
from tests.property import test_membership
from tests.property.test_membership import MembershipMachine
from tests.property.test_planted_bugs import UNTIL_FOUND

SEARCHING = settings(UNTIL_FOUND, stateful_step_count=30)

_hear, _join, _judge, _end = Membership._hear, Membership._join, Membership._judge, Membership._end
_receive_farewell, _tick = Membership._receive_farewell, Membership.tick


def yes(*_: object) -> bool:
    """Look at nothing."""
    return True


def no(*_: object) -> bool:
    """Look at nothing."""
    return False


def was_never_stalled(self: LocalHealth, moment: float, now: float) -> float:
    """Take one's own pause for the silence of others."""
    return 0.0 * (self.score + moment + now)


def notice_nothing(self: LocalHealth, now: float) -> None:
    """Go on as if there were a link."""


def lose_at_once(self: Membership, member: Member, now: float) -> Effect | None:
    """Suspect nobody: silence is death."""
    effect = _judge(self, member, now)
    return self._lose(member, "silent", now) if effect is not None and member.is_present else effect


def lose_nobody(self: Membership, member: Member, now: float) -> Effect | None:
    """Suspect for ever."""
    return _judge(self, member, now) if member.state is Liveness.ALIVE else None


def lose_sooner_if_confirmed(self: Membership, member: Member) -> float:
    """Take those who hear the same silence for witnesses of a death."""
    return member.freq * max(1.0, membership.SUSPICION - len(member.confirmed_by)) * (1 + self.health.score)


def hear_without_a_word(self: Membership, sign: Sign, member: Member, now: float) -> list[Effect]:
    """Tell nobody that a suspect showed itself."""
    _hear(self, sign, member, now)
    return []


def hear_what_is_new(self: Membership, sign: Sign, member: Member, now: float) -> list[Effect]:
    """Keep a suspect under suspicion."""
    state = member.state
    effects = _hear(self, sign, member, now)
    member.state = state
    return effects


def join_again(self: Membership, sign: Sign, member: Member, now: float) -> list[Effect]:
    """Take every announcement for a join."""
    effects = _hear(self, sign, member, now)
    return [*effects, Joined(member.hostname, member.pid)] if sign.subject == "online" else effects


def replace_without_a_word(self: Membership, sign: Sign, member: Member, now: float) -> list[Effect]:
    """Forget that the former process is gone, when another takes its place."""
    self._end(member, Liveness.LOST, "replaced", now)
    return self._join(sign, now)


def join_without_limit(self: Membership, sign: Sign, now: float) -> list[Effect]:
    """Have room for everyone."""
    limit, self.max_members = self.max_members, 1_000_000
    effects = _join(self, sign, now)
    self.max_members = limit
    return effects


def join_in_place_of_another(self: Membership, sign: Sign, now: float) -> list[Effect]:
    """Push out who is there."""
    while len(self._present) >= self.max_members:
        self._present.pop(next(iter(self._present)))
    return _join(self, sign, now)


def end_and_keep(self: Membership, member: Member, state: Liveness, reason: str, now: float) -> None:
    """Show those who are gone among those who are there."""
    _end(self, member, state, reason, now)
    self._present[member.hostname] = member


def forget_who_left(self: Membership, sign: Sign, member: Member | None, now: float) -> list[Effect]:
    """Remove who said farewell, and all that is known of it."""
    effects = _receive_farewell(self, sign, member, now)
    self._farewells.clear()
    self._gone.pop(sign.hostname, None)
    return effects


def remember_all_farewells(self: Membership, sign: Sign, member: Member | None, now: float) -> list[Effect]:
    """Grow with every farewell."""
    limit, self.max_members = self.max_members, 1_000_000
    effects = _receive_farewell(self, sign, member, now)
    self.max_members = limit
    return effects


def leave_oneself_out(self: Membership) -> list[Member]:
    """Show the others alone."""
    return [*self._present.values()]


def forget_the_lost(self: Membership, now: float) -> list[Effect]:
    """Remove who is lost, so that its last heartbeat, come late, is one of a stranger."""
    effects = _tick(self, now)
    for effect in effects:
        if isinstance(effect, Lost):
            del self._gone[effect.hostname]
    return effects


#: By where it goes: its name there, and the bug.
IN_THE_MACHINE: list[tuple[object, str, object]] = [
    (membership, "is_later", yes),
    (membership, "is_of", yes),
    (membership, "GRACE", 0.0),
    (membership, "SILENCE", 2.0),
    (membership, "SUSPICION", 1.0),
    (health, "MAX_SCORE", 1_000_000),
    (LocalHealth, "stalled_since", was_never_stalled),
    (LocalHealth, "disconnected", notice_nothing),
    (LocalHealth, "can_judge", yes),
    (LocalHealth, "can_judge", no),
    (Membership, "_judge", lose_at_once),
    (Membership, "_judge", lose_nobody),
    (Membership, "_suspicion", lose_sooner_if_confirmed),
    (Membership, "_hear", hear_without_a_word),
    (Membership, "_hear", hear_what_is_new),
    (Membership, "_hear", join_again),
    (Membership, "_receive_of_another", replace_without_a_word),
    (Membership, "_end", end_and_keep),
    (Membership, "_receive_farewell", forget_who_left),
    (Membership, "alive", leave_oneself_out),
    (Membership, "tick", forget_the_lost),
]
IN_LAWS: list[tuple[str, object, str, object]] = [
    ("who_is_there_does_not_depend_on_the_order_of_arrival", membership, "is_not_before", yes),
    (
        "who_is_there_does_not_depend_on_the_order_of_arrival",
        Membership,
        "_receive_farewell",
        forget_who_left,
    ),
    (
        "no_flood_of_names_makes_it_outgrow_its_limit_or_pushes_out_who_is_there",
        Membership,
        "_join",
        join_without_limit,
    ),
    (
        "no_flood_of_names_makes_it_outgrow_its_limit_or_pushes_out_who_is_there",
        Membership,
        "_join",
        join_in_place_of_another,
    ),
    (
        "no_flood_of_names_makes_it_outgrow_its_limit_or_pushes_out_who_is_there",
        Membership,
        "_receive_farewell",
        remember_all_farewells,
    ),
    (
        "a_silence_is_suspect_just_when_phi_says_so_and_three_heartbeats_are_missing",
        membership,
        "_DEVIATIONS",
        5.0,
    ),
    (
        "a_silence_is_suspect_just_when_phi_says_so_and_three_heartbeats_are_missing",
        membership,
        "SILENCE",
        1.0,
    ),
]


def name_of(bug: object) -> str:
    return getattr(bug, "__name__", str(bug))


@pytest.mark.parametrize(
    ("where", "name", "bug"),
    [pytest.param(*case, id=f"{case[1]}-{name_of(case[2])}") for case in IN_THE_MACHINE],
)
def test_the_bug_planted_in_the_machine_is_found(where: object, name: str, bug: object) -> None:
    planted = patch.object(where, name, bug)

    with planted, pytest.raises((AssertionError, KeyError)):
        run_state_machine_as_test(MembershipMachine, settings=SEARCHING)


@pytest.mark.parametrize(
    ("law", "where", "name", "bug"),
    [pytest.param(*case, id=f"{case[0]}-{name_of(case[3])}") for case in IN_LAWS],
)
def test_the_bug_planted_in_a_law_is_found(law: str, where: object, name: str, bug: object) -> None:
    test: Callable[[], Any] = getattr(test_membership, f"test_{law}")
    searching = patch.object(test, "_hypothesis_internal_use_settings", UNTIL_FOUND)

    with searching, patch.object(where, name, bug), pytest.raises((AssertionError, KeyError)):
        test()


def test_every_law_has_its_bug() -> None:
    laws = {name for name, law in vars(test_membership).items() if hasattr(law, "hypothesis")}

    assert laws == {f"test_{law}" for law, *_ in IN_LAWS}
