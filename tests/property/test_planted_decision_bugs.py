"""Every law of the log of decisions is seen to fail: bugs are planted in it, and a law must find each."""

from collections.abc import Callable
from unittest.mock import patch

import pytest
from hypothesis import settings

from celeriac.core import decision_log
from celeriac.core.decision_log import DecisionLog
from celeriac.model.decision import Entry, EntryKind
from celeriac.model.election import Granted, RecordState
from tests.property import test_decision_log
from tests.property.test_decision_log import (
    OPEN,
    test_readers_agree_and_no_two_hold_a_lease_at_a_time,
    test_tokens_rise_over_all_grants_and_are_above_what_was_known,
    test_what_is_granted_once_is_not_granted_again_while_it_is_kept,
    test_who_starts_late_judges_as_all_others,
)
from tests.property.test_planted_bugs import UNTIL_FOUND

_is_valid, _claim, _changed = DecisionLog._is_valid, DecisionLog.claim, DecisionLog._changed
