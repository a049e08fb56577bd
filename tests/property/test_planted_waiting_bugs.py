"""Every law of the waiting list is seen to fail: bugs are planted in it, and the machines must find each."""

from collections.abc import Callable, Iterable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from celeriac.core.waiting import (
    Deliver,
    Effect,
    Expire,
    Read,
    Unsubscribe,
    WaitingList,
    _Early,
)
from celeriac.model.result import ResultMeta
from tests.property.test_planted_bugs import UNTIL_FOUND
from tests.property.test_waiting import QueueMachine, StoreMachine, WaitingMachine

_dismiss = WaitingList.dismiss
_confirm, _connect, _disconnect = WaitingList.confirm, WaitingList.connect, WaitingList.disconnect
_feed_all, _leave, _put = WaitingList.feed_all, WaitingList._leave, _Early.put
_subscribe, _tick, _watch = WaitingList._subscribe, WaitingList.tick, WaitingList.watch


# -- with a store


def read_before_it_is_confirmed(self: WaitingList, task_ids: list[str], now: float) -> list[Effect]:
    """Read when the command is written, and take the confirmation for nothing."""
    effects = _subscribe(self, task_ids, now)
    self._unconfirmed.clear()
    self._resyncing.clear()
    self._armed.update(task_ids)
    return effects + ([Read(tuple(task_ids))] if task_ids else [])


def read_nothing_after_a_resync(self: WaitingList, task_ids: Iterable[str], *, now: float) -> list[Effect]:
    """Trust that nothing ended while there was no link."""
    before = set(self._resyncing)
    wanted = [read for read in _confirm(self, task_ids, now=now) if isinstance(read, Read)]
    named = [tuple(each for each in read.task_ids if each not in before) for read in wanted]
    return [Read(each) for each in named if each]


def resync_by_reading_first(self: WaitingList, now: float) -> list[Effect]:
    """Read what is watched, and then subscribe."""
    effects = _connect(self, now)
    self._unconfirmed.clear()
    self._resyncing.clear()
    return [*(Read(each.task_ids) for each in effects if not isinstance(each, Deliver | Expire)), *effects]


def resync_only_what_was_armed(self: WaitingList, now: float) -> list[Effect]:
    """Forget those who came while there was no link."""
    if self._is_up:
        return _connect(self, now)
    self._is_up = True
    return []


def arm_with_any_confirmation(self: WaitingList, task_ids: Iterable[str], *, now: float) -> list[Effect]:
    """Take the confirmation of an earlier subscription for that of the last."""
    task_ids = [each for each in task_ids if each not in self._armed]
    self._unconfirmed.update(dict.fromkeys(task_ids, 1))
    return _confirm(self, task_ids, now=now)


def keep_counting_on_a_new_link(self: WaitingList, now: float) -> list[Effect]:
    """Wait for confirmations that the old link took with it."""
    before = dict(self._unconfirmed)
    _disconnect(self, now)
    self._unconfirmed.update(before)
    return []


def never_poll(self: WaitingList, task_ids: Iterable[str], now: float) -> None:
    """Trust that every notice arrives."""


def poll_once(self: WaitingList, now: float) -> list[Effect]:
    """Forget to poll again."""
    before = {each: self._polled.pop(each) for each in self._polls.pop(now)}
    effects = _tick(self, now)
    self._polled.update(before)
    return effects + ([Read(tuple(before))] if before and self._is_up else [])


def poll_only_what_is_not_confirmed(self: WaitingList, now: float) -> list[Effect]:
    """Trust that every notice arrives, once it is sure to be sent."""
    effects = _tick(self, now)
    reads = [
        Read(tuple(task_id for task_id in each.task_ids if task_id not in self._armed))
        for each in effects
        if isinstance(each, Read)
    ]
    return [each for each in effects if not isinstance(each, Read)] + [
        each for each in reads if each.task_ids
    ]


def poll_only_what_is_confirmed(self: WaitingList, task_ids: list[str], now: float) -> list[Effect]:
    """Trust that every confirmation arrives."""
    effects = _subscribe(self, task_ids, now)
    for task_id in task_ids:
        self._polls.drop(task_id)
    return effects


def subscribe_for_ever(_: WaitingList, __: list[str]) -> list[Effect]:
    """Leave it to the store to know that nobody waits."""
    return []


def unsubscribe_without_a_link(self: WaitingList, task_ids: list[str]) -> list[Effect]:
    """Write to a link that is gone."""
    return [Unsubscribe(tuple(task_ids))] if task_ids and self.has_store else []


def unsubscribe_one_by_one(
    self: WaitingList, arrivals: Iterable[tuple[ResultMeta, int]], now: float
) -> list[Effect]:
    """Send a command for each result."""
    return [effect for each in arrivals for effect in _feed_all(self, [each], now)]


def join_without_reading(self: WaitingList, *args: Any, **options: Any) -> list[Effect]:
    """Trust what those who were there have heard."""
    armed = set(self._armed)
    self._armed.clear()
    effects = _watch(self, *args, **options)
    self._armed.update(armed)
    return effects


# -- with or without


def wake_only_the_first(
    self: WaitingList, arrivals: Iterable[tuple[ResultMeta, int]], now: float
) -> list[Effect]:
    """Tell one waiter of each task."""
    told: set[str] = set()
    effects = []
    for effect in _feed_all(self, arrivals, now):
        if not isinstance(effect, Deliver) or effect.meta.task_id not in told:
            effects.append(effect)
        if isinstance(effect, Deliver):
            told.add(effect.meta.task_id)
    return effects


def wake_everyone(self: WaitingList, arrivals: Iterable[tuple[ResultMeta, int]], now: float) -> list[Effect]:
    """Hand a result to whoever waits for anything."""
    metas = list(arrivals)
    others = [Deliver(waiter, meta) for meta, _ in metas for waiter in self._tasks]
    effects = _feed_all(self, metas, now)
    return effects + [each for each in others if each not in effects]


def take_no_time_for_no_limit(
    self: WaitingList, *args: Any, deadline: float | None = None, **options: Any
) -> list[Effect]:
    """Write ``if deadline`` for ``if deadline is not None``."""
    return _watch(self, *args, deadline=deadline or None, **options)


def keep_the_first_deadline(
    self: WaitingList, waiter: object, *args: Any, deadline: float | None = None, **options: Any
) -> list[Effect]:
    """Let only the first call say how long to wait."""
    return _watch(self, waiter, *args, deadline=None if waiter in self._tasks else deadline, **options)


def expire_late(self: WaitingList, now: float) -> list[Effect]:
    """Look at deadlines once a second."""
    return [each for each in _tick(self, now // 1) if now]


def expire_without_a_link_never(self: WaitingList, now: float) -> list[Effect]:
    """Look at deadlines between two messages."""
    return _tick(self, now) if self._is_up else []


def expire_one_task(self: WaitingList, waiter: Any, task_ids: Iterable[str]) -> list[str]:
    """Leave the other tasks of one who is gone watched."""
    return _leave(self, waiter, list(task_ids)[:1])


def leave_for_all(self: WaitingList, waiter: Any, task_ids: Iterable[str]) -> list[str]:
    """Take a task from everyone when one has had enough."""
    gone = list(task_ids)
    others = [(each, task) for task in gone for each in self._watches[task] if each != waiter]
    return [
        *_leave(self, waiter, gone),
        *(end for each, task in others for end in _leave(self, each, [task])),
    ]


def dismiss_without_unsubscribing(self: WaitingList) -> tuple[list[Any], list[Effect]]:
    """Leave the store talking to a list that nobody is on."""
    return _dismiss(self)[0], []


def keep_the_last_state(self: WaitingList, waiter: Any, task_ids: Iterable[str]) -> list[str]:
    """Remember of tasks nobody waits for where they stood."""
    before = dict(self._last)
    ended = _leave(self, waiter, task_ids)
    self._last.update(before)
    return ended


# -- without a store


def remember_everything(self: _Early, meta: ResultMeta, size: int, now: float) -> bool:
    """Have no limit."""
    with patch.multiple(self, limit=10**9, max_bytes=10**9):
        return _put(self, meta, size, now)


def remember_any_number_of_bytes(self: _Early, meta: ResultMeta, size: int, now: float) -> bool:
    """Count results, however long they are."""
    with patch.object(self, "max_bytes", 10**9):
        return _put(self, meta, size, now)


def remember_for_ever(self: _Early, now: float) -> None:
    """Let nothing grow old."""


def remember_the_latest(self: _Early, meta: ResultMeta, size: int, now: float) -> bool:
    """Let a start that comes late take the place of an end."""
    known = self.states.get(meta.task_id)
    if known and known[0] != meta:
        self.drop(meta.task_id)
    return _put(self, meta, size, now)


def remember_the_first_end(self: _Early, meta: ResultMeta, size: int, now: float) -> bool:
    """Keep a failure when the task has succeeded after all."""
    known = self.states.get(meta.task_id)
    return False if known and known[0].is_ready else _put(self, meta, size, now)


def forget_what_was_used(self: _Early, task_id: str, now: float) -> ResultMeta | None:
    """Give a result to the first who asks, and to no other."""
    self.purge(now)
    found = self.states.get(task_id)
    self.drop(task_id)
    return found[0] if found else None


def forget_the_oldest(self: _Early, task_id: str, now: float) -> ResultMeta | None:
    """Let go what came first, though it was just used."""
    self.purge(now)
    found = self.states.get(task_id)
    return found[0] if found else None


def remember_only_what_nobody_waits_for(
    self: WaitingList, arrivals: Iterable[tuple[ResultMeta, int]], now: float
) -> list[Effect]:
    """Forget that there can be two results for one task."""
    effects = _feed_all(self, arrivals, now)
    for each in effects:
        if isinstance(each, Deliver):
            self._early.drop(each.meta.task_id)
    return effects


Bug = tuple[type[object], str, Callable[..., object]]

#: By machine: where a bug goes, and the bug.
PLANTED: dict[type[WaitingMachine], list[Bug]] = {
    StoreMachine: [
        (WaitingList, "_subscribe", read_before_it_is_confirmed),
        (WaitingList, "_subscribe", poll_only_what_is_confirmed),
        (WaitingList, "_unsubscribe", subscribe_for_ever),
        (WaitingList, "_unsubscribe", unsubscribe_without_a_link),
        (WaitingList, "_poll_later", never_poll),
        (WaitingList, "confirm", read_nothing_after_a_resync),
        (WaitingList, "confirm", arm_with_any_confirmation),
        (WaitingList, "connect", resync_by_reading_first),
        (WaitingList, "connect", resync_only_what_was_armed),
        (WaitingList, "disconnect", keep_counting_on_a_new_link),
        (WaitingList, "feed_all", unsubscribe_one_by_one),
        (WaitingList, "feed_all", wake_everyone),
        (WaitingList, "watch", join_without_reading),
        (WaitingList, "tick", poll_once),
        (WaitingList, "tick", poll_only_what_is_not_confirmed),
        (WaitingList, "tick", expire_late),
        (WaitingList, "_leave", leave_for_all),
        (WaitingList, "dismiss", dismiss_without_unsubscribing),
    ],
    QueueMachine: [
        (WaitingList, "feed_all", wake_only_the_first),
        (WaitingList, "feed_all", remember_only_what_nobody_waits_for),
        (WaitingList, "watch", take_no_time_for_no_limit),
        (WaitingList, "watch", keep_the_first_deadline),
        (WaitingList, "tick", expire_without_a_link_never),
        (WaitingList, "_leave", expire_one_task),
        (WaitingList, "_leave", keep_the_last_state),
        (_Early, "put", remember_everything),
        (_Early, "put", remember_any_number_of_bytes),
        (_Early, "put", remember_the_latest),
        (_Early, "put", remember_the_first_end),
        (_Early, "purge", remember_for_ever),
        (_Early, "get", forget_what_was_used),
        (_Early, "get", forget_the_oldest),
    ],
}
CASES = [
    pytest.param(machine, where, name, bug, id=bug.__name__)
    for machine, planted in PLANTED.items()
    for where, name, bug in planted
]
SEARCHING = settings(UNTIL_FOUND, stateful_step_count=30)


@pytest.mark.parametrize(("machine", "where", "name", "bug"), CASES)
def test_the_planted_bug_is_found(
    machine: type[WaitingMachine], where: type[object], name: str, bug: Callable[..., object]
) -> None:
    planted = patch.object(where, name, bug)

    with planted, pytest.raises((AssertionError, KeyError)):
        run_state_machine_as_test(machine, settings=SEARCHING)


@pytest.mark.parametrize("machine", PLANTED)
def test_the_machine_finds_nothing_where_no_bug_is_planted(machine: type[WaitingMachine]) -> None:
    careful = settings(SEARCHING, max_examples=50)

    run_state_machine_as_test(machine, settings=careful)
