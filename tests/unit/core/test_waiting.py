"""The waiting list: subscribe, confirm, read; who is told what, when, and what is remembered."""

from collections.abc import Iterable, Sequence

import pytest

from celeriac.core import waiting as waiting_module
from celeriac.core.waiting import Deliver, Effect, Expire, Read, Subscribe, Unsubscribe, WaitingList
from celeriac.model.result import ResultMeta


def down(*, has_store: bool = True, luck: float = 0.5, **limits: int) -> WaitingList:
    """Return a list without a link; with the luck of one half every poll is as long as it is said to be."""
    return WaitingList(random=lambda: luck, has_store=has_store, **limits)


def up(*, has_store: bool = True, luck: float = 0.5, **limits: int) -> WaitingList:
    made = down(has_store=has_store, luck=luck, **limits)
    made.connect(0.0)
    return made


def armed(*task_ids: str, waiter: str = "ann", deadline: float | None = None) -> WaitingList:
    """Return a list with one who waits for tasks the store has agreed to tell of, at second 0."""
    made = up()
    made.watch(waiter, task_ids, now=0.0, deadline=deadline)
    made.confirm(task_ids, now=0.0)
    return made


def meta(task_id: str = "a", status: str = "SUCCESS", result: object = 42) -> ResultMeta:
    return ResultMeta(task_id, status, result)


def feed(waiting: WaitingList, *metas: ResultMeta, now: float = 1.0, size: int = 10) -> list[Effect]:
    return waiting.feed_all([(each, size) for each in metas], now)


def told(effects: Iterable[Effect]) -> list[tuple[object, str]]:
    """Return who was handed which state."""
    return [(each.waiter, each.meta.status) for each in effects if isinstance(each, Deliver)]


def ids(number: int) -> list[str]:
    return [f"{each:05d}" for each in range(number)]


def sizes(effects: Sequence[Effect]) -> list[tuple[str, int]]:
    """Return the kinds of effects, and how many tasks each names."""
    named = [each for each in effects if isinstance(each, Subscribe | Unsubscribe | Read)]
    assert len(named) == len(effects)
    return [(type(each).__name__, len(each.task_ids)) for each in named]


def ticked(waiting: WaitingList, times: int) -> list[tuple[float, list[Effect]]]:
    """Tick whenever there is something to do, and return when that was and what it was."""
    found = []
    for _ in range(times):
        at = waiting.next_at()
        assert at is not None
        found.append((at, waiting.tick(at)))
    return found


def held(part: object) -> int:
    """Return how many things are held in all that a machine is made of."""
    total = 0
    for value in vars(part).values():
        if isinstance(value, dict | set | list):
            total += len(value)
        elif hasattr(value, "__dict__") and not callable(value):
            total += held(value)
    return total


# -- subscribe, confirm, read


def test_a_watch_subscribes_and_reads_nothing_yet() -> None:
    waiting = up()

    effects = waiting.watch("ann", ["a", "b"], now=1.0)

    assert effects == [Subscribe(("a", "b"))]


def test_r1_what_is_stored_before_the_subscription_takes_effect_is_read_once_it_is_confirmed() -> None:
    waiting = up()
    waiting.watch("ann", ["a"], now=1.0)

    effects = waiting.confirm(["a"], now=1.5)

    assert effects == [Read(("a",))]
    assert feed(waiting, meta()) == [Deliver("ann", meta()), Unsubscribe(("a",))]


def test_who_peeks_reads_at_once_and_again_when_it_is_confirmed() -> None:
    waiting = up()

    at_once = waiting.watch("ann", ["a"], now=1.0, peek=True)
    later = waiting.confirm(["a"], now=1.0)

    assert at_once == [Subscribe(("a",)), Read(("a",))]
    assert later == [Read(("a",))]


def test_who_peeks_at_what_is_told_already_reads_it_once() -> None:
    waiting = armed("a")

    effects = waiting.watch("bob", ["a"], now=1.0, peek=True)

    assert effects == [Read(("a",))]


def test_a_message_that_comes_before_the_confirmation_counts() -> None:
    waiting = up()
    waiting.watch("ann", ["a"], now=1.0)

    effects = feed(waiting, meta())

    assert effects == [Deliver("ann", meta()), Unsubscribe(("a",))]
    assert waiting.confirm(["a"], now=2.0) == []


def test_the_first_of_two_confirmations_does_not_arm_the_second_watch() -> None:
    waiting = up()
    waiting.watch("ann", ["a"], now=1.0)
    waiting.unwatch("ann", now=1.0)
    waiting.watch("bob", ["a"], now=1.0)

    first = waiting.confirm(["a"], now=2.0)
    second = waiting.confirm(["a"], now=2.0)

    assert first == []
    assert second == [Read(("a",))]


def test_two_confirmations_told_together_arm_a_watch_once() -> None:
    waiting = up()
    waiting.watch("ann", ["a"], now=1.0)
    waiting.unwatch("ann", now=1.0)
    waiting.watch("bob", ["a"], now=1.0)

    effects = waiting.confirm(["a", "a"], now=2.0)

    assert effects == [Read(("a",))]


def test_a_confirmation_that_was_not_asked_for_does_nothing() -> None:
    waiting = armed("a")

    effects = waiting.confirm(["a", "b"], now=1.0)

    assert effects == []


def test_no_effect_names_more_than_500_tasks() -> None:
    waiting = up()

    watched = waiting.watch("ann", ids(1200), now=1.0, peek=True)
    confirmed = waiting.confirm(ids(1200), now=1.0)
    resynced = waiting.connect(2.0)
    left = waiting.unwatch("ann", now=3.0)

    batches = [500, 500, 200]
    assert sizes(watched) == [(kind, size) for kind in ("Subscribe", "Read") for size in batches]
    assert sizes(confirmed) == [("Read", size) for size in batches]
    assert sizes(resynced) == [("Subscribe", size) for size in batches]
    assert sizes(left) == [("Unsubscribe", size) for size in batches]


def test_a_task_named_twice_is_watched_once() -> None:
    waiting = up()

    effects = waiting.watch("ann", ["a", "a"], now=1.0)
    again = waiting.watch("ann", ["a"], now=1.0)

    assert effects == [Subscribe(("a",))]
    assert again == []
    assert told(feed(waiting, meta())) == [("ann", "SUCCESS")]


def test_who_waits_for_nothing_does_not_wait() -> None:
    waiting = up()

    effects = waiting.watch("ann", [], now=1.0, deadline=2.0)

    assert effects == []
    assert (waiting.waiters, waiting.next_at()) == (0, None)


# -- the link


def test_a_watch_without_a_link_waits_for_one() -> None:
    waiting = down()

    without = waiting.watch("ann", ["a"], now=1.0, peek=True)
    effects = waiting.connect(2.0)

    assert without == []
    assert effects == [Subscribe(("a",))]


def test_r2_a_new_link_reads_nothing_before_it_is_subscribed_again() -> None:
    waiting = armed("a", "b")
    waiting.disconnect(1.0)

    subscribed = waiting.connect(2.0)
    read = waiting.confirm(["a", "b"], now=2.5)

    assert subscribed == [Subscribe(("a", "b"))]
    assert read == [Read(("a", "b"))]


def test_a_link_that_comes_up_without_the_old_one_going_down_begins_anew_too() -> None:
    waiting = armed("a")

    effects = waiting.connect(2.0)

    assert effects == [Subscribe(("a",))]
    assert waiting.confirm(["a"], now=2.5) == [Read(("a",))]


def test_what_the_old_link_did_not_confirm_is_not_asked_of_the_new_one() -> None:
    waiting = up()
    waiting.watch("ann", ["a"], now=1.0)
    waiting.unwatch("ann", now=1.0)
    waiting.watch("bob", ["a"], now=1.0)
    waiting.disconnect(2.0)
    waiting.connect(3.0)

    effects = waiting.confirm(["a"], now=3.0)

    assert effects == [Read(("a",))]


def test_without_a_link_nothing_is_unsubscribed_from() -> None:
    waiting = armed("a", "b")
    waiting.disconnect(1.0)

    effects = [*waiting.unwatch("ann", ["a"], now=2.0), *feed(waiting, meta("b"))]

    assert effects == [Deliver("ann", meta("b"))]


def test_an_answer_of_the_old_link_that_comes_late_is_delivered() -> None:
    waiting = armed("a")
    waiting.disconnect(1.0)

    effects = feed(waiting, meta())

    assert effects == [Deliver("ann", meta())]
    assert waiting.connect(2.0) == []


def test_the_phase_is_resync_until_all_that_was_watched_before_is_confirmed() -> None:
    waiting = down()
    waiting.watch("ann", ["a", "b", "c"], now=1.0)
    phases = [waiting.phase]

    waiting.connect(2.0)
    waiting.watch("bob", ["d"], now=2.0)
    phases.append(waiting.phase)
    waiting.confirm(["a", "b"], now=3.0)
    phases.append(waiting.phase)
    waiting.unwatch("ann", ["c"], now=3.0)
    phases.append(waiting.phase)
    waiting.disconnect(4.0)
    phases.append(waiting.phase)

    assert phases == ["down", "resync", "resync", "up", "down"]


# -- who is told


def test_r9_all_who_wait_for_a_task_are_told_and_nobody_else() -> None:
    waiting = armed("a")
    waiting.watch("bob", ["a", "b"], now=0.0)
    waiting.watch("cid", ["b"], now=0.0)

    effects = feed(waiting, meta("a"))

    assert effects == [Deliver("ann", meta("a")), Deliver("bob", meta("a")), Unsubscribe(("a",))]
    assert told(feed(waiting, meta("b", "FAILURE"))) == [("bob", "FAILURE"), ("cid", "FAILURE")]


def test_the_second_who_waits_for_a_task_does_not_subscribe_again() -> None:
    waiting = up()
    waiting.watch("ann", ["a"], now=1.0)

    effects = waiting.watch("bob", ["a"], now=1.0)

    assert effects == []


def test_who_joins_a_watch_reads_what_others_may_have_missed() -> None:
    waiting = armed("a")

    effects = waiting.watch("bob", ["a"], now=30.0)

    assert effects == [Read(("a",))]
    assert waiting.next_at() == 35.0


def test_who_joins_a_watch_is_told_where_the_task_stands() -> None:
    waiting = armed("a")
    feed(waiting, meta(status="STARTED"))

    effects = waiting.watch("bob", ["a"], now=2.0)

    assert told(effects) == [("bob", "STARTED")]
    assert told(feed(waiting, meta(status="STARTED"))) == []


def test_waiters_need_not_compare_with_one_another() -> None:
    waiting = up()

    for waiter in (object(), 1, "ann", None, ("a", object())):
        waiting.watch(waiter, ["a"], now=0.0, deadline=5.0)

    assert len(waiting.tick(5.0)) == 6


def test_a_state_that_is_not_the_end_is_delivered_and_the_watch_goes_on() -> None:
    waiting = armed("a")

    effects = feed(waiting, meta(status="STARTED"), meta(status="RETRY"), meta())

    assert told(effects) == [("ann", "STARTED"), ("ann", "RETRY"), ("ann", "SUCCESS")]


def test_the_same_state_again_is_dropped_and_counted() -> None:
    waiting = armed("a")
    feed(waiting, meta(status="STARTED"))

    effects = feed(waiting, meta(status="STARTED"))

    assert effects == []
    assert waiting.duplicates == 1


def test_the_same_state_with_another_value_is_news() -> None:
    waiting = armed("a")
    feed(waiting, meta(status="PROGRESS", result=1))

    effects = feed(waiting, meta(status="PROGRESS", result=2))

    assert told(effects) == [("ann", "PROGRESS")]


def test_after_the_end_nothing_is_delivered() -> None:
    waiting = armed("a")

    effects = feed(waiting, meta(), meta(), meta(status="STARTED"), meta(status="FAILURE"))

    assert effects == [Deliver("ann", meta()), Unsubscribe(("a",))]


def test_a_result_that_cannot_be_read_ends_the_waiting() -> None:
    waiting = armed("a")
    unreadable = ResultMeta("a", "PENDING", fault="not JSON")

    effects = feed(waiting, unreadable)

    assert effects == [Deliver("ann", unreadable), Unsubscribe(("a",))]


def test_r8_a_result_is_handed_over_by_the_call_that_brings_it() -> None:
    waiting = armed("a")

    effects = waiting.feed(meta(), size=10, now=0.001)

    assert Deliver("ann", meta()) in effects


def test_500_results_at_once_are_unsubscribed_from_at_once() -> None:
    waiting = armed(*ids(500))

    effects = feed(waiting, *[meta(each) for each in ids(500)])

    assert len(told(effects)) == 500
    assert effects[500:] == [Unsubscribe(tuple(ids(500)))]


def test_who_has_left_is_told_nothing() -> None:
    waiting = armed("a", "b")
    waiting.watch("bob", ["a"], now=0.0)

    effects = waiting.unwatch("ann", ["a", "zzz"], now=1.0)

    assert effects == []
    assert told(feed(waiting, meta("a"), meta("b"))) == [("bob", "SUCCESS"), ("ann", "SUCCESS")]


def test_the_last_to_leave_a_task_unsubscribes() -> None:
    waiting = armed("a", "b")
    waiting.watch("bob", ["a"], now=0.0)
    waiting.unwatch("ann", now=1.0)

    effects = waiting.unwatch("bob", now=1.0)

    assert effects == [Unsubscribe(("a",))]


@pytest.mark.parametrize("task_ids", [None, ["a"], []])
def test_who_never_waited_may_leave(task_ids: list[str] | None) -> None:
    waiting = up()

    effects = waiting.unwatch("ann", task_ids, now=1.0)

    assert effects == []


def test_all_who_wait_can_be_let_go_at_once() -> None:
    waiting = armed("a", "b", deadline=3.0)
    waiting.watch("bob", ["b", "c"], now=0.0)
    waiting.confirm(["c"], now=0.0)

    gone, effects = waiting.dismiss()

    assert gone == ["ann", "bob"]
    assert effects == [Unsubscribe(("a", "b", "c"))]
    assert (held(waiting), waiting.next_at()) == (0, None)
    assert feed(waiting, meta("a"), meta("b")) == []


def test_without_a_link_those_who_are_let_go_leave_nothing_to_do() -> None:
    waiting = armed("a", deadline=3.0)
    waiting.disconnect(1.0)

    gone, effects = waiting.dismiss()

    assert (gone, effects) == (["ann"], [])
    assert waiting.connect(2.0) == []


# -- deadlines


def test_a_waiter_expires_at_its_deadline_and_its_watches_are_dropped() -> None:
    waiting = armed("a", "b", deadline=3.0)

    before = waiting.tick(2.9)
    effects = waiting.tick(3.0)

    assert before == []
    assert effects == [Expire("ann"), Unsubscribe(("a", "b"))]
    assert feed(waiting, meta()) == []


def test_r7_a_timeout_of_nothing_means_now_and_not_never() -> None:
    waiting = up()
    waiting.watch("ann", ["a"], now=1.0, deadline=1.0)

    due = waiting.next_at()
    effects = waiting.tick(1.0)

    assert due == 1.0
    assert effects == [Expire("ann"), Unsubscribe(("a",))]


def test_r7_a_deadline_at_second_nothing_is_a_deadline() -> None:
    waiting = down()

    waiting.watch("ann", ["a"], now=0.0, deadline=0.0)

    assert waiting.next_at() == 0.0
    assert waiting.tick(0.0) == [Expire("ann")]


def test_r7_a_waiter_expires_also_while_there_is_no_link() -> None:
    waiting = armed("a", deadline=3.0)
    waiting.disconnect(1.0)

    due = waiting.next_at()
    effects = waiting.tick(3.0)

    assert due == 3.0
    assert effects == [Expire("ann")]


def test_the_last_deadline_given_counts_for_all_a_waiter_waits_for() -> None:
    waiting = up()
    waiting.watch("ann", ["a"], now=0.0, deadline=4.0)
    waiting.watch("ann", ["b"], now=0.0, deadline=2.0)
    waiting.watch("ann", ["c"], now=0.0)

    effects = waiting.tick(2.0)

    assert effects == [Expire("ann"), Unsubscribe(("a", "b", "c"))]
    assert waiting.tick(4.0) == []


def test_who_has_all_results_does_not_expire() -> None:
    waiting = armed("a", "b", deadline=3.0)
    feed(waiting, meta("a"), meta("b"))

    effects = waiting.tick(3.0)

    assert effects == []


def test_who_expires_leaves_the_others_waiting() -> None:
    waiting = armed("a", deadline=3.0)
    waiting.watch("bob", ["a"], now=0.0)

    effects = waiting.tick(3.0)

    assert effects == [Expire("ann")]
    assert told(feed(waiting, meta())) == [("bob", "SUCCESS")]


def test_the_earliest_deadline_is_first() -> None:
    waiting = down()
    for waiter, deadline in (("cid", 3.0), ("ann", 1.0), ("bob", 2.0)):
        waiting.watch(waiter, ["a"], now=0.0, deadline=deadline)

    effects = waiting.tick(2.5)

    assert effects == [Expire("ann"), Expire("bob")]
    assert waiting.next_at() == 3.0


# -- reading again


def test_a_silent_watch_is_read_again_ever_more_rarely() -> None:
    waiting = armed("a")

    polls = ticked(waiting, 7)

    assert polls == [(at, [Read(("a",))]) for at in (5.0, 15.0, 35.0, 75.0, 135.0, 195.0, 255.0)]


@pytest.mark.parametrize(("luck", "at"), [(0.0, 4.0), (0.3, 5.0), (0.5, 5.0), (0.51, 6.0), (0.999, 7.0)])
def test_polls_are_spread_by_a_quarter_and_fall_on_whole_seconds(luck: float, at: float) -> None:
    waiting = up(luck=luck)

    waiting.watch("ann", ["a"], now=0.0)

    assert waiting.next_at() == at


def test_many_polls_that_are_due_are_one_read_in_batches() -> None:
    waiting = armed(*ids(700))

    (at, effects), *_ = ticked(waiting, 1)

    assert at == 5.0
    assert sizes(effects) == [("Read", 500), ("Read", 200)]


def test_a_new_link_reads_often_again() -> None:
    waiting = armed("a")
    ticked(waiting, 4)
    waiting.disconnect(80.0)
    without = waiting.next_at()

    waiting.connect(100.0)
    waiting.confirm(["a"], now=101.0)

    assert without is None
    assert [at for at, _ in ticked(waiting, 2)] == [106.0, 116.0]


def test_a_watch_whose_confirmation_was_lost_is_read_all_the_same() -> None:
    waiting = up()
    waiting.watch("ann", ["a"], now=0.0)

    polls = ticked(waiting, 2)

    assert polls == [(5.0, [Read(("a",))]), (15.0, [Read(("a",))])]


def test_a_confirmation_that_came_late_begins_the_polls_anew() -> None:
    waiting = up()
    waiting.watch("ann", ["a"], now=0.0)
    ticked(waiting, 2)

    waiting.confirm(["a"], now=20.0)

    assert waiting.next_at() == 25.0


def test_what_has_ended_is_not_read_again() -> None:
    waiting = armed("a", "b", "c")
    feed(waiting, meta("a"))
    waiting.unwatch("ann", ["b"], now=1.0)

    polls = ticked(waiting, 1)

    assert polls == [(5.0, [Read(("c",))])]


def test_who_expires_when_a_poll_is_due_is_not_polled_for() -> None:
    waiting = armed("a", deadline=5.0)

    effects = waiting.tick(5.0)

    assert effects == [Expire("ann"), Unsubscribe(("a",))]


def test_r6_after_a_tick_the_next_one_lies_ahead() -> None:
    waiting = armed("a", deadline=500.0)

    waiting.tick(400.0)

    at = waiting.next_at()
    assert at is not None
    assert at > 400.0


def test_a_poll_that_is_late_is_not_made_up_for() -> None:
    waiting = armed("a")

    effects = waiting.tick(300.0)

    assert effects == [Read(("a",))]
    assert waiting.next_at() == 310.0


# -- without a store


def test_without_a_store_there_is_nothing_to_subscribe_to_or_read() -> None:
    waiting = up(has_store=False)

    effects = [
        *waiting.watch("ann", ["a", "b"], now=1.0, peek=True),
        *waiting.connect(2.0),
        *waiting.confirm(["a"], now=2.0),
        *waiting.tick(300.0),
        *waiting.unwatch("ann", ["b"], now=300.0),
        *feed(waiting, meta(), now=300.0),
    ]

    assert effects == [Deliver("ann", meta())]


def test_without_a_store_a_new_link_is_up_at_once() -> None:
    waiting = down(has_store=False)
    waiting.watch("ann", ["a"], now=1.0)

    waiting.connect(2.0)

    assert waiting.phase == "up"


def test_r12_a_result_that_came_before_anyone_asked_is_delivered_at_once() -> None:
    waiting = up(has_store=False)
    feed(waiting, meta())

    effects = waiting.watch("ann", ["a"], now=2.0, deadline=3.0)

    assert effects == [Deliver("ann", meta())]
    assert (waiting.watched, waiting.waiters, waiting.tick(3.0)) == (0, 0, [])


def test_a_result_that_was_delivered_is_there_for_the_next_who_asks() -> None:
    waiting = up(has_store=False)
    waiting.watch("ann", ["a"], now=1.0)
    feed(waiting, meta())

    effects = waiting.watch("bob", ["a"], now=2.0)

    assert effects == [Deliver("bob", meta())]


def test_a_state_that_came_early_and_is_not_the_end_is_delivered_and_watched() -> None:
    waiting = up(has_store=False)
    feed(waiting, meta(status="STARTED"))

    effects = waiting.watch("ann", ["a"], now=2.0)

    assert told(effects) == [("ann", "STARTED")]
    assert told(feed(waiting, meta(status="STARTED"), meta())) == [("ann", "SUCCESS")]


def test_who_watches_a_task_twice_is_told_once() -> None:
    waiting = up(has_store=False)
    feed(waiting, meta(status="STARTED"))
    waiting.watch("ann", ["a"], now=2.0)

    effects = waiting.watch("ann", ["a"], now=2.0)

    assert effects == []


def test_what_is_remembered_is_delivered_without_a_link_too() -> None:
    waiting = up(has_store=False)
    feed(waiting, meta())
    waiting.disconnect(1.0)

    effects = waiting.watch("ann", ["a"], now=2.0, deadline=2.0)

    assert told(effects) == [("ann", "SUCCESS")]


def test_a_message_that_comes_twice_is_dropped_and_counted() -> None:
    waiting = up(has_store=False)
    feed(waiting, meta())

    effects = feed(waiting, meta())

    assert effects == []
    assert (waiting.duplicates, waiting.early) == (1, 1)


@pytest.mark.parametrize(
    ("first", "then", "kept"),
    [
        ("STARTED", "RETRY", "RETRY"),
        ("STARTED", "FAILURE", "FAILURE"),
        ("FAILURE", "STARTED", "FAILURE"),
        ("FAILURE", "REVOKED", "REVOKED"),
        ("FAILURE", "SUCCESS", "SUCCESS"),
        ("SUCCESS", "FAILURE", "SUCCESS"),
        ("SUCCESS", "STARTED", "SUCCESS"),
    ],
)
def test_of_two_states_the_better_is_remembered(first: str, then: str, kept: str) -> None:
    waiting = up(has_store=False)

    feed(waiting, meta(status=first), meta(status=then))

    recalled = waiting.recall("a", 2.0)
    assert recalled is not None
    assert recalled.status == kept


def test_of_two_successes_the_first_is_remembered() -> None:
    waiting = up(has_store=False)

    feed(waiting, meta(result=1), meta(result=2))

    assert waiting.recall("a", 2.0) == meta(result=1)


def test_an_end_is_remembered_in_place_of_what_could_not_be_read() -> None:
    waiting = up(has_store=False)

    feed(waiting, ResultMeta("a", "SUCCESS", fault="not JSON"), meta(status="FAILURE"))

    assert waiting.recall("a", 2.0) == meta(status="FAILURE")


def test_r10_no_more_is_remembered_than_there_is_room_for_and_the_longest_unused_goes() -> None:
    waiting = up(has_store=False, early_limit=2)
    feed(waiting, meta("a"), meta("b"))
    waiting.recall("a", 2.0)

    feed(waiting, meta("c"))

    assert [each for each in "abc" if waiting.recall(each, 3.0)] == ["a", "c"]
    assert (waiting.early, waiting.overflowed) == (2, 1)


def test_r10_no_more_bytes_are_remembered_than_there_is_room_for() -> None:
    waiting = up(has_store=False, early_bytes=100)
    feed(waiting, meta("a"), meta("b"), size=40)

    feed(waiting, meta("c"), size=50)

    assert [each for each in "abc" if waiting.recall(each, 3.0)] == ["b", "c"]
    assert waiting.overflowed == 1


def test_what_is_replaced_gives_its_bytes_back() -> None:
    waiting = up(has_store=False, early_bytes=100)

    feed(waiting, *[meta(status="PROGRESS", result=each) for each in range(50)], size=60)

    assert (waiting.early, waiting.overflowed) == (1, 0)


def test_r10_what_is_larger_than_all_the_room_drives_nobody_out_and_is_delivered() -> None:
    waiting = up(has_store=False, early_bytes=100)
    waiting.watch("ann", ["b"], now=0.0)
    feed(waiting, meta("a"))

    effects = feed(waiting, meta("b"), size=101)

    assert told(effects) == [("ann", "SUCCESS")]
    assert (waiting.early, waiting.overflowed) == (1, 1)
    assert waiting.recall("a", 2.0) == meta("a")


def test_r10_what_nobody_uses_grows_old() -> None:
    waiting = up(has_store=False, early_age=10)
    feed(waiting, meta("a"), meta("b"), now=0.5)
    waiting.recall("b", 5.0)

    due = waiting.next_at()
    effects = waiting.tick(11.0)

    assert (due, effects) == (11.0, [])
    assert [each for each in "ab" if waiting.recall(each, 11.0)] == ["b"]
    assert waiting.overflowed == 0


def test_what_has_grown_old_is_not_delivered() -> None:
    waiting = up(has_store=False, early_age=10)
    feed(waiting, meta(), now=0.0)

    effects = waiting.watch("ann", ["a"], now=10.0)

    assert effects == []
    assert waiting.watched == 1


def test_what_is_forgotten_is_not_delivered() -> None:
    waiting = up(has_store=False)
    feed(waiting, meta("a"), meta("b", "STARTED"))
    waiting.watch("ann", ["b"], now=1.0)

    waiting.forget("a")
    waiting.forget("b")
    waiting.forget("zzz")

    assert waiting.watch("bob", ["a", "b"], now=2.0) == []
    assert waiting.recall("a", 2.0) is None
    assert waiting.early == 0


def test_r10_with_a_store_what_nobody_waits_for_is_dropped() -> None:
    waiting = up()

    effects = feed(waiting, meta(), meta("b", "STARTED"))

    assert effects == []
    assert (waiting.early, waiting.recall("a", 1.0)) == (0, None)
    assert waiting.watch("ann", ["b"], now=2.0) == [Subscribe(("b",))]


# -- nothing is left behind


@pytest.mark.parametrize("has_store", [True, False])
def test_a_crowd_that_comes_and_goes_leaves_nothing_behind(has_store: bool) -> None:
    waiting = up(has_store=has_store)
    waiting.watch("keeper", ["kept"], now=0.0, deadline=1e9)
    waiting.confirm(["kept"], now=0.0)
    before = held(waiting)
    most = 0

    for number in range(20_000):
        waiting.watch(number, [str(number)], now=number / 1000, deadline=1e6 - number)
        waiting.confirm([str(number)], now=number / 1000)
        waiting.unwatch(number, now=number / 1000)
        most = max(most, held(waiting))

    assert most < before + 50
    waiting.unwatch("keeper", now=21.0)
    assert (held(waiting), waiting.next_at()) == (0, None)


def test_a_deadline_that_is_moved_often_is_kept_once() -> None:
    waiting = up()

    for number in range(10_000):
        waiting.watch("ann", ["a"], now=0.0, deadline=1e6 - number)

    assert held(waiting) < 50
    assert waiting.tick(1e6 - 9_999)[0] == Expire("ann")


def test_a_burst_of_waiters_leaves_nothing_behind_however_they_end() -> None:
    waiting = armed(*ids(3000), deadline=9.0)
    for each in ids(3000):
        waiting.watch(each, [each], now=0.0, deadline=8.0 + int(each) / 1000)

    feed(waiting, *[meta(each) for each in ids(1000)])
    for each in ids(2000):
        waiting.unwatch(each, now=1.0)
    waiting.tick(20.0)

    assert (waiting.watched, waiting.waiters, held(waiting), waiting.next_at()) == (0, 0, 0, None)


def test_confirmations_nobody_needs_are_waited_for_until_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting_module, "UNCONFIRMED_LIMIT", 10)
    waiting = up()
    waiting.watch("ann", ["a"], now=0.0)

    for each in ids(100):
        waiting.watch("bob", [each], now=0.0)
        waiting.unwatch("bob", now=0.0)

    assert held(waiting) < 30
    assert waiting.given_up > 80
    assert waiting.confirm([*ids(50), "a"], now=1.0) == [Read(("a",))]
