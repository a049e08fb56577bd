"""The outbox: order, batches, what is on its way, and what has to go."""

from celeriac.core.outbox import BATCH_BYTES, Outbox, Parcel


def outbox(*events: str, limit: int = 100, batch_limit: int = 3) -> Outbox:
    """Return an outbox with single events, named by group and number: ``task-1``."""
    made = Outbox(limit=limit, batch_limit=batch_limit)
    for event in events:
        put(made, event)
    return made


def put(box: Outbox, event: str) -> Parcel:
    return box.put(event.replace("-", "."), event.partition("-")[0], event.encode())


def gather(box: Outbox, *events: str) -> list[bool]:
    """Put events into batches, and return after which of them one was full."""
    return [box.put_in_batch(event.partition("-")[0], event.encode()) for event in events]


def taken(box: Outbox, number: int | None = None) -> list[str]:
    """Take messages, all of them if no number is given, and return their events."""
    found: list[str] = []
    while number is None or len(found) < number:
        parcel = box.take()
        if parcel is None:
            break
        found.append("+".join(event.decode() for event in parcel.events))
    return found


# -- what leaves, and how


def test_an_event_leaves_as_a_message_of_its_own() -> None:
    box = outbox("task-1")

    parcel = box.take()

    assert parcel == Parcel("task.1", "task", (b"task-1",))
    assert parcel.body == b"task-1"


def test_events_leave_in_the_order_they_were_put_in() -> None:
    box = outbox("task-1", "worker-2", "task-3")

    order = taken(box)

    assert order == ["task-1", "worker-2", "task-3"]


def test_nothing_leaves_an_empty_outbox() -> None:
    box = outbox()

    parcel = box.take()

    assert parcel is None
    assert len(box) == 0


def test_a_batch_leaves_when_it_is_full() -> None:
    box = outbox(batch_limit=3)

    were_full = gather(box, "task-1", "task-2", "task-3", "task-4")

    assert were_full == [False, False, True, False]
    parcel = box.take()
    assert parcel == Parcel("task.multi", "task", (b"task-1", b"task-2", b"task-3"), is_batch=True)
    assert parcel.body == b"[task-1,task-2,task-3]"
    assert box.take() is None


def test_a_batch_of_one_is_a_list_too() -> None:
    box = outbox()
    gather(box, "task-1")

    box.close_batch()

    parcel = box.take()
    assert parcel is not None
    assert (parcel.routing_key, parcel.body) == ("task.multi", b"[task-1]")


def test_each_group_has_a_batch_of_its_own() -> None:
    box = outbox(batch_limit=2)

    gather(box, "task-1", "worker-2", "task-3")

    assert taken(box) == ["task-1+task-3"]


def test_the_batch_of_one_group_can_be_closed_alone() -> None:
    box = outbox()
    gather(box, "task-1", "worker-2")

    box.close_batch("worker")

    assert taken(box) == ["worker-2"]
    assert len(box) == 2


def test_to_close_a_batch_that_is_empty_sends_nothing() -> None:
    box = outbox()

    box.close_batch()
    box.close_batch("task")

    assert box.unsent == 0


def test_a_single_event_does_not_overtake_the_batch_of_its_group() -> None:
    box = outbox()
    gather(box, "task-1", "task-2", "worker-3")

    put(box, "task-4")

    assert taken(box) == ["task-1+task-2", "task-4"]


def test_a_batch_larger_than_all_the_room_leaves_when_the_room_is_full() -> None:
    box = outbox(limit=2, batch_limit=24)

    were_full = gather(box, "task-1", "task-2")

    assert were_full == [False, True]
    assert not box.dropped


# -- until it is confirmed


def test_an_event_stays_until_it_is_confirmed() -> None:
    box = outbox("task-1", "task-2")

    taken(box)

    assert (len(box), box.unsent, box.on_the_way) == (2, 0, 2)


def test_what_is_confirmed_is_forgotten() -> None:
    box = outbox("task-1", "task-2", "task-3")
    taken(box)

    box.confirm(1)

    assert (len(box), box.on_the_way) == (1, 1)
    box.put_back()
    assert taken(box) == ["task-3"]


def test_what_is_not_confirmed_goes_back_to_the_front_as_it_was() -> None:
    box = outbox("task-1", "task-2", "task-3")
    first, second = box.take(), box.take()

    box.put_back()

    assert [box.take(), box.take()] == [first, second]
    assert taken(box) == ["task-3"]


def test_nothing_is_given_out_twice_unless_it_was_put_back() -> None:
    box = outbox("task-1")
    taken(box)

    again = taken(box)

    assert again == []


def test_more_confirmations_than_messages_do_no_harm() -> None:
    box = outbox("task-1")
    taken(box)

    box.confirm(5)
    box.confirm(0)
    box.confirm(0)

    assert len(box) == 0


# -- withdrawn


def test_a_withdrawn_message_is_forgotten_and_no_other() -> None:
    box = outbox("task-1", "task-2")
    failed = put(box, "task-3")
    put(box, "task-4")

    box.withdraw(failed)

    assert taken(box) == ["task-1", "task-2", "task-4"]
    assert len(box) == 3


def test_of_two_equal_messages_the_one_that_failed_is_withdrawn() -> None:
    box = outbox("task-1")
    gather(box, "worker-2")
    failed = put(box, "task-1")
    box.close_batch()

    box.withdraw(failed)

    assert taken(box) == ["task-1", "worker-2"]


def test_a_message_that_has_left_cannot_be_withdrawn() -> None:
    box = outbox()
    left = put(box, "task-1")
    taken(box)

    box.withdraw(left)

    assert len(box) == 1


# -- what has to go


def test_beyond_its_room_the_oldest_events_go_and_are_counted_by_group() -> None:
    box = outbox("worker-1", "task-2", "task-3", limit=3)

    put(box, "worker-4")
    put(box, "worker-5")

    assert box.dropped == {"worker": 1, "task": 1}
    assert taken(box) == ["task-3", "worker-4", "worker-5"]


def test_a_batch_that_has_to_go_counts_with_all_its_events() -> None:
    box = outbox(limit=3, batch_limit=3)
    gather(box, "task-1", "task-2", "task-3")

    put(box, "worker-4")

    assert box.dropped == {"task": 3}
    assert taken(box) == ["worker-4"]


def test_what_is_on_its_way_goes_last() -> None:
    box = outbox("task-1", limit=2)
    taken(box)

    put(box, "task-2")
    put(box, "task-3")

    assert box.dropped == {"task": 1}
    box.put_back()
    assert taken(box) == ["task-1", "task-3"]


def test_what_went_while_on_its_way_is_not_confirmed_in_the_place_of_another() -> None:
    box = outbox("task-1", "task-2", limit=2, batch_limit=9)
    taken(box)
    gather(box, "worker-3")

    box.confirm(1)

    assert box.dropped == {"task": 1}
    assert len(box) == 2
    box.put_back()
    assert taken(box) == ["task-2"]


def test_of_a_batch_that_is_being_gathered_the_oldest_event_goes() -> None:
    box = outbox(limit=3, batch_limit=3)
    gather(box, "task-1", "task-2")

    gather(box, "worker-3", "worker-4")

    assert box.dropped == {"task": 1}
    box.close_batch()
    assert taken(box) == ["task-2", "worker-3+worker-4"]


# -- taking over


def test_what_another_outbox_holds_is_taken_over_behind_our_own() -> None:
    ours, theirs = outbox("task-1"), outbox("task-2", "task-3")
    gather(ours, "worker-4")
    gather(theirs, "worker-5")
    taken(theirs, 1)

    ours.adopt(theirs)

    assert taken(ours) == ["task-1", "worker-4", "task-2", "task-3", "worker-5"]
    assert (len(ours), len(theirs), theirs.take()) == (5, 0, None)


def test_what_is_taken_over_and_finds_no_room_is_counted() -> None:
    ours, theirs = outbox("task-1", "task-2", limit=3), outbox("worker-3", "worker-4")

    ours.adopt(theirs)

    assert ours.dropped == {"task": 1}
    assert taken(ours) == ["task-2", "worker-3", "worker-4"]


def test_a_batch_of_long_events_leaves_before_it_is_full() -> None:
    outbox = Outbox(limit=1000, batch_limit=24)
    long = b"x" * (BATCH_BYTES // 3 + 1)

    is_full = [outbox.put_in_batch("task", long) for _ in range(4)]

    assert is_full == [False, False, True, False]
    assert outbox.unsent == 1


def test_a_cleared_outbox_is_as_good_as_new() -> None:
    outbox = Outbox(limit=10, batch_limit=24)
    outbox.put("task.sent", "task", b"1")
    outbox.take()
    outbox.put("task.sent", "task", b"2")
    outbox.put_in_batch("worker", b"3")

    outbox.clear()

    outbox.close_batch()
    assert (len(outbox), outbox.unsent, outbox.on_the_way) == (0, 0, 0)
    assert outbox.take() is None
