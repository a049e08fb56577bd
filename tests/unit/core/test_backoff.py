"""The waits between two tries: they double, are drawn at random, and have a cap."""

import pytest

from celeriac.core.backoff import Backoff


def waits(number: int, *, base: float = 0.1, cap: float = 1.0, random: float = 1.0) -> list[float]:
    backoff = Backoff(base=base, cap=cap, random=lambda: random)
    return [backoff.next() for _ in range(number)]


def test_each_wait_may_be_twice_as_long_as_the_one_before_up_to_the_cap() -> None:
    longest = waits(6)

    assert longest == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


@pytest.mark.parametrize("random", [0.0, 0.25, 0.999])
def test_a_wait_is_drawn_evenly_from_nothing_to_its_full_length(random: float) -> None:
    drawn = waits(6, random=random)

    assert drawn == pytest.approx([random * wait for wait in waits(6)])


def test_each_wait_is_drawn_anew() -> None:
    numbers = iter([0.5, 0.25, 0.0])
    backoff = Backoff(base=1.0, cap=10.0, random=lambda: next(numbers))

    drawn = [backoff.next() for _ in range(3)]

    assert drawn == [0.5, 0.5, 0.0]


def test_after_a_success_the_waits_are_short_again() -> None:
    backoff = Backoff(base=0.1, cap=1.0, random=lambda: 1.0)
    for _ in range(5):
        backoff.next()

    backoff.reset()

    assert backoff.attempts == 0
    assert backoff.next() == pytest.approx(0.1)


def test_the_attempts_are_counted() -> None:
    backoff = Backoff(base=0.1, cap=1.0, random=lambda: 1.0)

    for _ in range(3):
        backoff.next()

    assert backoff.attempts == 3


def test_the_cap_holds_after_any_number_of_attempts() -> None:
    backoff = Backoff(base=0.1, cap=1.0, random=lambda: 1.0)
    backoff.attempts = 10**6

    wait = backoff.next()

    assert wait == 1.0


def test_a_base_of_any_size_stays_below_the_cap() -> None:
    drawn = waits(40, base=1e-9, cap=1e9) + waits(40, base=1e9, cap=1e9)

    assert max(drawn) <= 1e9
