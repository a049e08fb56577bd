"""What waits for its moment: order, removal, and room."""

from random import Random

from celeriac.core.schedule import Schedule


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
