"""Every law of the log of decisions is seen to fail: bugs are planted in it, and a law must find each."""

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from celeriac.core import decision_log
from celeriac.core.decision_log import DecisionLog
from celeriac.model.decision import Entry, EntryKind
from celeriac.model.election import Decision, Granted
from tests.property import test_decision_log as laws
from tests.property.test_planted_bugs import UNTIL_FOUND

_claim, _is_valid = DecisionLog.claim, DecisionLog._is_valid

LEASE = laws.test_readers_agree_and_no_two_hold_a_lease_at_a_time
TOKEN = laws.test_tokens_rise_over_all_grants_and_are_above_what_was_known
ONCE = laws.test_what_is_granted_once_is_not_granted_again_while_it_is_kept
LATE = laws.test_who_starts_late_judges_as_all_others


def take_over_though_it_was_renewed(self: DecisionLog, entry: Entry, known: Any) -> bool:
    """Compare the token, and not how often it was renewed."""
    if entry.kind is EntryKind.TAKEOVER and entry.prev.token == known.version.token:
        return bool(known.is_open)
    return _is_valid(self, entry, known)


def claim_without_prolonging(self: DecisionLog, key: str, owner: str, **options: Any) -> Entry | Decision:
    """Tell the owner that it has the key, and nobody else that it still does."""
    plan = _claim(self, key, owner, **options)
    if isinstance(plan, Entry) and plan.kind is EntryKind.RENEW:
        return Granted(plan.prev.token)
    return plan


def insist_on_the_present_version(self: DecisionLog, entry: Entry, known: Any) -> bool:
    """Never believe that others know more."""
    return bool(entry.prev == known.version) and _is_valid(self, entry, known)


def believe_whoever_knows_something_else(self: DecisionLog, entry: Entry, known: Any) -> bool:
    """Take what is overtaken for what was missed."""
    return bool(entry.prev != known.version) or _is_valid(self, entry, known)


def forget_what_is_done(self: DecisionLog, known: Any, at: float) -> bool:  # noqa: ARG001
    """Keep nothing once it is not open."""
    return not known.is_open


def give_any_token(self: DecisionLog, floor: int) -> int:  # noqa: ARG001
    """Forget what tokens others have known."""
    return 0


def lose_patience(ttl: float) -> float:
    """Take a holder for gone before its time is over."""
    return ttl / 10


PLANTED = [
    (LEASE, DecisionLog, "_is_valid", take_over_though_it_was_renewed),
    (LEASE, DecisionLog, "claim", claim_without_prolonging),
    (LEASE, decision_log, "silence_of", lose_patience),
    (LEASE, DecisionLog, "_is_valid", believe_whoever_knows_something_else),
    (ONCE, DecisionLog, "_is_valid", believe_whoever_knows_something_else),
    (ONCE, DecisionLog, "_is_over", forget_what_is_done),
    (TOKEN, DecisionLog, "_lift_above", give_any_token),
    (partial(LATE, modes=laws.OPEN), DecisionLog, "_is_valid", insist_on_the_present_version),
]


@pytest.mark.parametrize(("law", "where", "name", "bug"), PLANTED, ids=[bug.__name__ for *_, bug in PLANTED])
def test_the_planted_bug_is_found(
    law: Callable[[], None], where: object, name: str, bug: Callable[..., object]
) -> None:
    # A law keeps the settings it was defined with, under this name.
    target = law.func if isinstance(law, partial) else law
    searching = patch.object(target, "_hypothesis_internal_use_settings", UNTIL_FOUND)
    # With as much in the log as there has to be, a late reader gets hardly anything to be wrong about.
    forgetting = patch.object(laws, "KEPT", laws.KEPT * 2 / 3)

    with searching, forgetting, patch.object(where, name, bug), pytest.raises(AssertionError):
        law()
