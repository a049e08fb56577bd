"""What waits for its moment: order, removal, and room."""

from random import Random

import pytest

from celeriac.core.schedule import Schedule, time_aside


def schedule(*moments: float) -> Schedule[str]:
    """Return a schedule in which "0", "1", … wait until the moments given, under keys of the same numbers."""
    made: Schedule[str] = Schedule()
    for number, at in enumerate(moments):
        made.add(number, at, str(number))
    return made


def test_what_is_due_comes_in_the_order_of_its_moments() -> None:
    waiting = schedule(3.0, 1.0, 2.0)

    due = waiting.due(2.5)

    assert due == ["1", "2"]
    assert len(waiting) == 1


def test_what_is_due_at_one_moment_comes_in_the_order_it_was_added() -> None:
    waiting = schedule(*[1.0] * 20)

    due = waiting.due(1.0)

    assert due == [str(number) for number in range(20)]


def test_what_is_due_comes_once() -> None:
    waiting = schedule(1.0)
    waiting.due(1.0)

    again = waiting.due(5.0)

    assert again == []


def test_nothing_is_due_before_its_moment() -> None:
    waiting = schedule(1.0)

    due = waiting.due(0.999)

    assert due == []
    assert waiting.next_at == 1.0


def test_an_empty_schedule_has_no_next_moment() -> None:
    waiting = schedule()

    assert waiting.next_at is None
    assert waiting.due(1e9) == []


def test_what_was_removed_is_returned_and_never_due() -> None:
    waiting = schedule(1.0, 2.0)

    removed = waiting.remove(0)

    assert removed == "0"
    assert (len(waiting), waiting.next_at) == (1, 2.0)
    assert waiting.due(5.0) == ["1"]


def test_to_remove_what_does_not_wait_returns_none() -> None:
    waiting = schedule(1.0)
    waiting.due(1.0)

    assert waiting.remove(0) is None
    assert waiting.remove(7) is None


def test_what_is_added_again_waits_for_its_new_moment_only() -> None:
    waiting = schedule(1.0, 2.0)

    waiting.add(0, 3.0, "later")

    assert waiting.due(2.5) == ["1"]
    assert waiting.due(3.0) == ["later"]
    assert len(waiting) == 0


def test_a_key_that_was_removed_can_wait_again() -> None:
    waiting = schedule(1.0)
    waiting.remove(0)

    waiting.add(0, 2.0, "again")

    assert waiting.due(1.5) == []
    assert waiting.due(2.0) == ["again"]


def test_items_are_told_in_the_order_they_are_due() -> None:
    waiting = schedule(3.0, 1.0, 2.0, 1.0)
    waiting.remove(2)

    told = list(waiting)

    assert told == ["1", "3", "0"]
    assert 1 in waiting
    assert 2 not in waiting


def test_items_that_cannot_be_compared_may_be_due_together() -> None:
    waiting: Schedule[object] = Schedule()
    items = [object(), {}, object()]
    for key, item in enumerate(items):
        waiting.add(key, 1.0, item)

    assert list(waiting) == items
    assert waiting.due(1.0) == items


def test_what_was_removed_takes_no_room() -> None:
    waiting = schedule(0.0)

    for key in range(1, 10_000):
        waiting.add(key, float(key), "x")
        waiting.remove(key)

    assert len(waiting._heap) < 50


def test_one_that_is_put_off_again_and_again_takes_no_room() -> None:
    waiting = schedule()

    for at in range(10_000):
        waiting.add(0, float(at), "x")

    assert len(waiting._heap) < 50
    assert waiting.due(1e9) == ["x"]


def test_it_does_what_a_sorted_list_does() -> None:
    random = Random(5)
    waiting: Schedule[int] = Schedule()
    model: list[tuple[float, int]] = []

    for key in range(3000):
        at = float(random.randrange(500))
        waiting.add(key, at, key)
        model.append((at, key))
        if random.random() < 0.4:
            _, chosen = model.pop(random.randrange(len(model)))
            assert waiting.remove(chosen) == chosen
        if random.random() < 0.05:
            now = float(random.randrange(100))
            assert waiting.due(now) == [key for at, key in sorted(model) if at <= now]
            model = [each for each in model if each[0] > now]
        assert waiting.next_at == min((at for at, _ in model), default=None)

    assert list(waiting) == [key for _, key in sorted(model)]


# -- the latest, and how long it may leave


def test_the_latest_is_the_item_that_is_due_last() -> None:
    waiting = schedule(1.0, 3.0, 2.0)

    assert waiting.latest == (3.0, "1")
    assert len(waiting) == 3


def test_of_items_that_are_due_last_at_one_moment_the_newest_is_the_latest() -> None:
    waiting = schedule(5.0, 5.0, 1.0)

    assert waiting.latest == (5.0, "1")


def test_an_empty_schedule_has_no_latest_item() -> None:
    waiting = schedule(1.0)
    waiting.due(1.0)

    assert waiting.latest is None


def test_an_item_that_left_or_was_added_again_is_the_latest_only_where_it_is_now() -> None:
    waiting = schedule(1.0, 9.0, 8.0)
    waiting.remove(1)
    waiting.add(2, 0.5, "again")

    assert waiting.latest == (1.0, "0")


def test_the_latest_is_right_however_items_come_and_leave() -> None:
    random, waiting = Random(7), schedule()
    there: dict[int, tuple[float, int]] = {}
    for number in range(3000):
        key = random.randrange(60)
        match random.randrange(4):
            case 0:
                waiting.remove(key)
                there.pop(key, None)
            case 1:
                now = random.random() / 8
                due = waiting.due(now)
                assert len(due) == len([each for each in there.values() if each[0] <= now])
                there = {key: each for key, each in there.items() if each[0] > now}
            case _:
                there[key] = (random.choice([0.25, 0.5, random.random()]), number)
                waiting.add(key, there[key][0], str(number))
        expected = max(there.values(), default=None)
        assert waiting.latest == (None if expected is None else (expected[0], str(expected[1])))
        assert len(waiting._heap) + len(waiting._latest) <= 4 * len(waiting) + 40


@pytest.mark.parametrize(
    ("wait", "seconds"),
    [(1e11, 3600), (7200, 3600), (7199, 60), (120, 60), (119, 5), (10, 5), (9.9, 0), (0, 0), (-5, 0)],
)
def test_an_item_leaves_for_at_most_half_of_its_wait(wait: float, seconds: float) -> None:
    assert time_aside(wait) == seconds
