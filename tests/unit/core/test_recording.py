"""What a recorder holds: when it is written, what is accepted, and what has to go."""

import pytest

from celeriac.core.recording import (
    GROUP_BYTES,
    GROUP_EVENTS,
    MOST_BYTES,
    Dropped,
    Pause,
    Recording,
    Resume,
    Write,
)
from celeriac.errors import CallerError
from celeriac.model.events import Event, Started

#: A time of day, far from the clock that never falls.
AT = 1_794_703_817.25


def events(*names: str) -> list[Event]:
    return [
        Started(uuid=name, hostname="w1", timestamp=AT, clock=1, pid=1, utcoffset=0, local_received=AT)
        for name in names
    ]


def recording(
    *, limit: int = 100, is_kept: bool = False, most_tickets: int = 1000, most_bytes: int = MOST_BYTES
) -> Recording[str]:
    return Recording(
        limit=limit, interval=0.5, is_kept=is_kept, most_tickets=most_tickets, most_bytes=most_bytes
    )


def receive(held: Recording[str], *names: str, now: float = 0.0, ticket: str | None = None) -> None:
    held.receive(events(*names), received_at=AT + now, now=now, ticket=ticket)


def written(held: Recording[str], now: float) -> list[str]:
    """Return the ids of the group that is to be written by now, if one is."""
    groups = [effect.events for effect in held.tick(now) if isinstance(effect, Write)]
    assert len(groups) <= 1
    return [str(event["uuid"]) for group in groups for event in group]


# -- when a group is due


def test_a_group_is_due_once_its_first_event_has_waited_for_the_interval() -> None:
    held = recording()
    receive(held, "a", now=10.0)
    receive(held, "b", now=10.4)

    groups = [written(held, now) for now in (10.0, 10.4, 10.5)]

    assert groups == [[], [], ["a", "b"]]


def test_no_group_is_given_out_until_the_log_is_open_and_the_first_event_comes_before_those_that_waited() -> (
    None
):
    held = recording()
    held.wait_for_log()
    receive(held, "a", "b", now=10.0)
    before, due_in = written(held, 20.0), held.due_in(20.0)

    held.put(events("gap")[0], now=20.0, is_first=True)
    held.written()

    assert (before, due_in) == ([], None)
    assert (written(held, 20.0), held.recorded) == (["gap", "a", "b"], 0)


def test_a_group_that_is_large_is_due_at_once() -> None:
    held = recording(limit=GROUP_EVENTS * 2)
    receive(held, *map(str, range(GROUP_EVENTS - 1)))
    before = written(held, 0.0)

    receive(held, "last")

    assert before == []
    assert written(held, 0.0)[-1] == "last"


def test_a_group_of_long_events_is_due_at_once() -> None:
    held = recording()

    held.receive(events("long"), received_at=AT, now=0.0, size=GROUP_BYTES)

    assert written(held, 0.0) == ["long"]


def test_a_group_with_so_many_tickets_that_the_broker_may_send_no_more_is_due_at_once() -> None:
    held = recording(is_kept=True, most_tickets=2)
    receive(held, "a", ticket="1")
    before = written(held, 0.0)

    receive(held, "b", ticket="2")

    assert (before, written(held, 0.0)) == ([], ["a", "b"])


def test_one_group_is_written_at_a_time_and_what_came_meanwhile_is_the_next() -> None:
    held = recording()
    receive(held, "a")
    first = written(held, 1.0)
    receive(held, "b", now=1.0)

    meanwhile = written(held, 9.0)
    held.written()

    assert (first, meanwhile, written(held, 9.0)) == (["a"], [], ["b"])


def test_it_says_in_how_long_there_is_something_to_do() -> None:
    held = recording()
    nothing = held.due_in(0.0)
    receive(held, "a", now=10.0)

    waits = [held.due_in(now) for now in (10.0, 10.25, 11.0)]
    held.tick(11.0)

    assert nothing is None
    assert waits == [0.5, 0.25, 0.0]
    assert held.due_in(11.0) is None


# -- what is accepted


def test_tickets_are_given_back_once_their_events_are_recorded() -> None:
    held = recording(is_kept=True)
    receive(held, "a", ticket="1")
    receive(held, "b", ticket="2")
    held.tick(1.0)
    receive(held, "c", now=1.0, ticket="3")

    accepted = held.written()

    assert accepted == ["1", "2"]
    assert held.recorded == 2


def test_a_message_with_nothing_that_can_be_taken_is_accepted_too() -> None:
    held = recording(is_kept=True)
    receive(held, ticket="odd")

    effects = held.tick(1.0)

    assert effects == [Write([])]
    assert held.written() == ["odd"]
    assert held.is_empty


def test_tickets_of_a_lost_link_are_forgotten_and_the_events_are_not() -> None:
    held = recording(is_kept=True)
    receive(held, "a", ticket="1")
    held.tick(1.0)
    receive(held, "b", now=1.0, ticket="2")

    held.lose()

    assert held.written() == []
    assert written(held, 2.0) == ["b"]
    assert held.written() == []


# -- a disk that fails


def test_what_failed_is_written_again_as_it_was_before_all_that_came_later() -> None:
    held = recording()
    receive(held, "a")
    held.tick(1.0)
    receive(held, "b", now=1.0)

    held.failed("the disk is full", now=1.0)

    assert held.trouble == "the disk is full"
    assert [written(held, now) for now in (1.0, 1.9, 2.0)] == [[], [], ["a"]]
    held.written()
    assert held.trouble == ""
    assert written(held, 2.0) == ["b"]


def test_nothing_is_accepted_before_a_write_that_failed_has_succeeded() -> None:
    held = recording(is_kept=True)
    receive(held, "a", ticket="1")
    held.tick(1.0)
    held.failed("the disk is full", now=1.0)

    held.tick(2.0)

    assert held.written() == ["1"]


def test_a_broker_that_keeps_its_messages_is_asked_for_none_while_the_disk_fails() -> None:
    held = recording(is_kept=True)
    receive(held, "a", ticket="1")
    held.tick(1.0)
    held.failed("the disk is full", now=1.0)

    effects = [held.tick(1.0), held.tick(1.5), held.tick(2.0)]
    held.written()

    assert effects == [[Pause()], [], [Write(events("a"))]]
    assert held.tick(2.0) == [Resume()]


def test_a_link_that_is_made_while_the_disk_fails_is_asked_for_nothing_either() -> None:
    held = recording(is_kept=True)
    receive(held, "a", ticket="1")
    held.tick(1.0)
    held.failed("the disk is full", now=1.0)
    held.tick(1.0)

    held.lose()

    assert held.is_paused
    assert held.tick(1.5) == []


def test_a_broker_that_keeps_its_messages_is_asked_for_none_while_there_is_no_room() -> None:
    held = recording(limit=4, is_kept=True)
    receive(held, "a", "b", "c", "d", "e", ticket="1")

    effects = held.tick(0.0)
    later = held.tick(1.0)
    held.written()

    assert effects == [Pause()]
    assert later == [Write(events("a", "b", "c", "d", "e"))]
    assert held.tick(1.0) == [Resume()]
    assert held.dropped == 0


# -- what finds no room


def test_where_nobody_keeps_them_events_beyond_the_limit_are_dropped_and_counted() -> None:
    held = recording(limit=3)

    receive(held, "a", "b")
    receive(held, "c", "d", "e", now=0.1)
    receive(held, "f", now=0.2)

    assert (held.pending, held.dropped, held.is_dropping) == (3, 3, True)
    assert written(held, 1.0) == ["a", "b", "c"]


def test_what_was_dropped_is_told_once_half_of_the_room_is_free() -> None:
    held = recording(limit=4)
    receive(held, "a", "b", "c", "d")
    held.tick(1.0)
    held.failed("the disk is full", now=1.0)
    receive(held, "e", "f", now=2.0)
    receive(held, "g", now=3.0)
    before = held.tick(2.0)

    held.written()
    after = held.tick(4.0)

    assert before == [Write(events("a", "b", "c", "d"))]
    assert after == [Dropped(3, AT + 2.0, AT + 3.0, "the disk is full")]
    assert not held.is_dropping


def test_what_comes_between_the_first_drop_and_the_gap_is_dropped_too() -> None:
    held = recording(limit=4)
    receive(held, "a", "b", "c", "d", "e")
    held.tick(1.0)
    held.written()

    receive(held, "f", now=1.0)

    assert held.dropped == 2
    assert [each.events for each in held.tick(1.0) if isinstance(each, Dropped)] == [2]


def test_a_gap_of_our_own_finds_room_always() -> None:
    held = recording(limit=1)
    receive(held, "a", "b")

    held.put(events("gap")[0], now=0.0)

    assert written(held, 1.0) == ["a", "gap"]


# -- long events


def test_where_nobody_keeps_them_events_beyond_the_room_for_bytes_are_dropped_and_counted() -> None:
    held = recording(most_bytes=100)
    for name in "abcd":
        held.receive(events(name), received_at=AT, now=0.0, size=50)
    held.tick(1.0)

    held.receive(events("e"), received_at=AT, now=1.0, size=1)
    held.written()

    assert (held.recorded, held.dropped) == (2, 3)
    assert [effect.events for effect in held.tick(1.0) if isinstance(effect, Dropped)] == [3]
    held.receive(events("f"), received_at=AT, now=1.0, size=50)
    assert written(held, 2.0) == ["f"]


def test_a_broker_that_keeps_its_messages_is_asked_for_none_while_there_is_no_room_for_bytes() -> None:
    held = recording(is_kept=True, most_bytes=100)
    held.receive(events("a"), received_at=AT, now=0.0, size=100)

    effects = held.tick(0.0)
    held.tick(1.0)
    held.written()

    assert effects == [Pause()]
    assert held.tick(1.0) == [Resume()]


def test_there_is_room_for_a_quarter_of_a_gibibyte_by_default() -> None:
    held = recording(limit=50_000)

    for _ in range(2000):
        held.receive(events("a", "b", "c", "d"), received_at=AT, now=0.0, size=1024 * 1024)

    assert (held.pending, held.dropped) == (4 * 256, 4 * (2000 - 256))


def test_what_waited_for_long_is_written_in_groups_that_are_bounded_by_bytes_and_by_events() -> None:
    by_bytes, by_events = recording(is_kept=True), recording(limit=10 * GROUP_EVENTS, is_kept=True)
    for number in range(10):
        by_bytes.receive(events("a"), received_at=AT, now=0.0, size=GROUP_BYTES, ticket=str(number))
        by_events.receive(events("a") * GROUP_EVENTS, received_at=AT, now=0.0, ticket=str(number))

    sizes: list[list[int]] = []
    tickets: list[list[str]] = []
    for held in (by_bytes, by_events):
        groups = [(len(written(held, 1.0)), held.written()) for _ in range(3)]
        sizes.append([size for size, _ in groups])
        tickets += [accepted for _, accepted in groups]
        assert held.is_empty

    assert sizes == [[4, 4, 2], [4 * GROUP_EVENTS, 4 * GROUP_EVENTS, 2 * GROUP_EVENTS]]
    assert tickets == [list("0123"), list("4567"), list("89")] * 2


def test_a_message_that_is_larger_than_a_group_is_a_group_of_its_own() -> None:
    held = recording()
    held.receive(events("a"), received_at=AT, now=0.0, size=GROUP_BYTES * 9)
    held.receive(events("b"), received_at=AT, now=0.0, size=1)

    first = written(held, 1.0)
    held.written()

    assert (first, written(held, 1.0)) == (["a"], ["b"])


def test_a_ticket_of_an_event_of_our_own_is_given_back_once_it_is_recorded() -> None:
    held = recording(is_kept=True)
    receive(held, "a", ticket="1")
    held.put(events("gap")[0], now=0.0, ticket="owed")

    held.tick(1.0)

    assert held.written() == ["1", "owed"]


# -- the end


def test_at_the_end_everything_is_due_at_once() -> None:
    held = recording(limit=2)
    receive(held, "a", "b", "c")

    held.end()
    effects = held.tick(0.0)

    assert effects == [Dropped(1, AT, AT, "the disk is too slow for the event rate"), Write(events("a", "b"))]
    held.written()
    assert held.is_empty


def test_at_the_end_a_disk_that_failed_is_tried_at_once() -> None:
    held = recording()
    receive(held, "a")
    held.tick(1.0)
    held.failed("the disk is full", now=1.0)

    held.end()

    assert written(held, 1.0) == ["a"]
    assert not held.is_empty


def test_there_must_be_room_for_one_event() -> None:
    with pytest.raises(CallerError, match="log_pending_limit must be at least 1"):
        recording(limit=0)


# -- when the disk is behind


def test_while_the_disk_is_behind_it_is_better_to_wait_but_for_a_few_seconds_where_nothing_is_kept() -> None:
    held, kept = recording(limit=8), recording(limit=8, is_kept=True)
    for each in (held, kept):
        receive(each, *"abc", now=0.0)
        written(each, 0.5)
        receive(each, *"de", now=1.0)
        written(each, 1.0)

    assert [held.is_ahead(now) for now in (1.0, 5.9, 6.0, 60.0)] == [True, True, False, False]
    assert [kept.is_ahead(now) for now in (1.0, 5.9, 6.0, 60.0)] == [True, True, True, True]


def test_once_the_disk_has_caught_up_it_may_be_waited_for_as_long_again() -> None:
    held = recording(limit=8)
    receive(held, *"abcde", now=0.0)
    written(held, 0.5)
    held.written()
    written(held, 6.0)
    receive(held, *"abcde", now=10.0)
    written(held, 10.5)

    assert held.is_ahead(11.0)


def test_a_disk_that_fails_is_not_waited_for() -> None:
    held = recording(limit=8)
    receive(held, *"abcde", now=0.0)
    written(held, 0.5)
    held.failed("no room", now=0.5)
    written(held, 1.5)

    assert held.is_writing
    assert not held.is_ahead(1.5)
