"""Every law is seen to fail: one bug is planted for each, and its test must find it.

A law that no bug can break proves nothing. Most of the bugs are ones that real
monitors have had.
"""

from collections import OrderedDict
from collections.abc import Callable
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, settings

from celeriac.core import facts, history, order, state, task
from celeriac.core.clock import CEILING, LamportClock
from celeriac.core.history import History, retries_of
from celeriac.core.ranking import Ranking, rank
from celeriac.core.state import ClusterState
from celeriac.model.events import Custom, Event, Received, Retried, Sent, Started, TaskEvent
from celeriac.wire import event as wire_event
from tests.property import test_clock, test_lattice, test_regular, test_state

#: Look for a failure, and be content with the first. What is found seldom has an example beside its law: what
#: is drawn depends on all modules that are loaded.
UNTIL_FOUND = settings(
    max_examples=3000,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


def append_as_it_comes(past: History, event: TaskEvent) -> History:
    """Forget that the order of arrival is not the order of events."""
    return (*past, event)


def count_doubles(past: History, event: TaskEvent) -> History:
    """Take an event that came twice for two events."""
    return tuple(sorted((*past, event), key=order.task_key))


def merge_but_one(one: History, other: History) -> History:
    """Lose an event whose place depends on what was merged before."""
    both = history.merge(one, other)
    return (*both[: len(both) // 2], *both[len(both) // 2 + 1 :]) if len(both) > 3 else both


def keep_all(past: History, _: TaskEvent) -> History:
    """Have no caps."""
    return past


def keep_only_the_last(past: History, event: TaskEvent) -> History:
    """At the cap, forget when it all began."""
    same = [e for e in past if type(e) is type(event)]
    if type(event) is Custom or len(same) <= history.CAPS[type(event)]:
        return past
    lowest = min(same, key=lambda e: (retries_of(e), order.task_key(e)))
    return tuple(e for e in past if e is not lowest)


def merge_new_types_only(one: History, other: History) -> History:
    """Take from the other side only what this side has nothing of."""
    kinds = {type(event) for event in one}
    return tuple(sorted((*one, *(e for e in other if type(e) not in kinds)), key=order.task_key))


def read_the_latest(past: History, read: Callable[[History], facts.Facts] = facts.read) -> facts.Facts:
    """Let the latest timestamp decide, even over an end."""
    known = read(past)
    fields = [getattr(known, name) for name in known.__struct_fields__]
    fields[1] = past[-1] if past else None
    return facts.Facts(*fields)


def retried_last(received: Received, retries: list[Retried]) -> bool:
    """Compare the wall clocks of two hosts."""
    return bool(retries) and retries[-1].timestamp > received.timestamp


def count_one_retry_short(received: Received, retries: list[Retried]) -> bool:
    """Take the retry that began this attempt for its end."""
    return len(retries) >= received.retries > 0


def key_with_the_receivers_clock(event: TaskEvent) -> order.TaskKey:
    """Take one event with two stamps of receivers for two events."""
    return (*order.task_key(event), event.display_clock)  # type: ignore[return-value]


def follows_closely(start: Started, receipt: Received) -> bool:
    """Trust the clocks of one process only when they are close."""
    return receipt.clock < start.clock < receipt.clock + 5


class StockKey(tuple[Any, ...]):
    """Order by timestamp where either clock is missing: a relation with cycles."""

    def __lt__(self, other: tuple[Any, ...]) -> bool:
        if self[0] and other[0]:
            return tuple(self) < tuple(other)
        return bool(self[1] < other[1])

    __gt__ = None  # type: ignore[assignment]


def stock_key(event: Event) -> StockKey:
    return StockKey((event.clock, event.timestamp, event.hostname, event.pid))


def fall_back(self: LamportClock, other: object) -> int:
    """Believe whatever was received last."""
    self.value = other if isinstance(other, int) else self.value
    return self.value


def jump_at_once(self: LamportClock, other: object, *, peer: str, alive: int = 0) -> bool:
    """Adopt any clock from anyone."""
    self.adjust(other)
    return bool(peer or alive)


def start_at_the_highest(self: LamportClock, replies: list[object], *, persisted: object = 0) -> int:
    """Let one reply choose where to begin."""
    self.value = max([r for r in [*replies, persisted] if type(r) is int and r < CEILING], default=0)
    return self.value


def agree(*_: object, **__: object) -> bool:
    """Let anyone move the clock as far as they like."""
    return True


def disagree(*_: object, **__: object) -> bool:
    """Let nobody move the clock far, not even everybody."""
    return False


def take_the_top(heap: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Take whatever was pushed first."""
    return heap[0]


def forget_without_the_parent(self: ClusterState, uuid: str) -> None:
    """Leave the children of an evicted task where they were."""
    del self.tasks[uuid]


def limit_first(self: Ranking, limit: int) -> list[task.Task]:
    """Cut the list before it is sorted."""
    return sorted(list(self._tasks.values())[:limit], key=rank, reverse=self._newest_first)


def describe_once(self: task.Task, event: Sent | Received, past: History) -> None:
    """File a task under the first name that is heard."""
    if not past:
        self._name = event.name


def describe_only_what_is_added(
    self: task.Task,
    event: Sent | Received,
    past: History,
    describe: Callable[[task.Task, Sent | Received, History], None] = task.Task._describe,
) -> None:
    """Ignore an event that replaces another."""
    if len(self.history) > len(past):
        describe(self, event, past)


class KeepsInsertionOrder(OrderedDict[str, task.Task]):
    """Evict by age: a long-running task goes first."""

    def move_to_end(self, key: str, last: bool = True) -> None:
        assert key in self or last


_Clock, _State = LamportClock, ClusterState

#: By module: the law, where the bug goes, and the bug.
PLANTED: dict[ModuleType, list[tuple[str, object, str, object]]] = {
    test_lattice: [
        ("joining_is_commutative", history, "_content", lambda _: (b"", b"", 0)),
        ("joining_is_associative", test_lattice, "merge", merge_but_one),
        ("joining_with_itself_or_nothing_changes_nothing", history, "_insert", count_doubles),
        ("neither_order_nor_duplication_matters", history, "add", append_as_it_comes),
        ("folding_in_parts_is_folding_the_whole", test_lattice, "merge", merge_new_types_only),
        ("a_history_is_in_task_order_without_doubles_and_within_its_caps", history, "_compact", keep_all),
        ("what_ended_stays_ended", facts, "read", read_the_latest),
        ("the_first_time_never_rises_and_the_last_never_falls", history, "_compact", keep_only_the_last),
        ("a_history_survives_the_wire", wire_event, "_OURS", frozenset({"subject", "clock"})),
    ],
    test_regular: [
        ("every_prefix_in_causal_order_is_what_celery_says", facts, "_gave_up", count_one_retry_short),
        ("every_prefix_with_redelivery_has_the_state_celery_gives", facts, "_follows", follows_closely),
        ("any_order_gives_the_answer_of_the_causal_order", history, "add", append_as_it_comes),
        ("wall_clocks_an_hour_apart_do_not_change_the_state", facts, "_gave_up", retried_last),
    ],
    test_clock: [
        ("the_clock_never_falls_and_every_receipt_moves_it", _Clock, "adjust", fall_back),
        ("an_adopted_clock_is_passed_and_a_refused_one_only_counted", _Clock, "receive", jump_at_once),
        (
            "no_message_of_one_poisoned_peer_moves_the_clock_beyond_the_jump",
            LamportClock,
            "_has_consent",
            agree,
        ),
        ("a_cluster_that_is_truly_ahead_is_followed", _Clock, "_has_consent", disagree),
        ("one_poisoned_reply_cannot_choose_the_start", _Clock, "start", start_at_the_highest),
        ("the_start_is_not_before_the_last_run", _Clock, "start", start_at_the_highest),
        (
            "the_lowest_clock_leads_the_heap_and_the_lowest_id_among_equals",
            LamportClock,
            "sort_heap",
            take_the_top,
        ),
        ("display_order_is_strict_and_total_whatever_the_clocks", test_clock, "display_key", stock_key),
    ],
    test_state: [
        ("the_picture_does_not_depend_on_the_order_of_arrival", task.Task, "_describe", describe_once),
        (
            "clocks_of_receivers_change_the_display_order_only",
            history,
            "task_key",
            key_with_the_receivers_clock,
        ),
        ("what_lists_are_filtered_by_is_what_the_facts_say", task.Task, "_describe", describe_once),
        (
            "filters_follow_an_event_that_replaces_another",
            task.Task,
            "_describe",
            describe_only_what_is_added,
        ),
        (
            "children_are_the_tasks_in_memory_and_nothing_leaks",
            ClusterState,
            "_forget",
            forget_without_the_parent,
        ),
        ("the_tasks_kept_are_those_last_heard_of", state, "OrderedDict", KeepsInsertionOrder),
        ("a_limit_gives_the_beginning_of_the_whole_list", Ranking, "_read", limit_first),
        ("clearing_forgets_what_it_says", state, "READY_STATES", frozenset({"SUCCESS", "FAILURE"})),
    ],
}
CASES = [
    pytest.param(getattr(module, f"test_{law}"), where, name, bug, id=law)
    for module, planted in PLANTED.items()
    for law, where, name, bug in planted
]


@pytest.mark.parametrize(("law", "where", "name", "bug"), CASES)
def test_the_planted_bug_is_found(law: Callable[[], None], where: object, name: str, bug: object) -> None:
    # A law keeps the settings it was defined with, under this name.
    searching = patch.object(law, "_hypothesis_internal_use_settings", UNTIL_FOUND)

    with searching, patch.object(where, name, bug), pytest.raises((AssertionError, KeyError)):
        law()


def test_every_law_has_its_bug() -> None:
    for module, planted in PLANTED.items():
        laws = {
            name
            for name, law in vars(module).items()
            if name.startswith("test_") and hasattr(law, "hypothesis")
        }

        assert laws == {f"test_{law}" for law, *_ in planted}
