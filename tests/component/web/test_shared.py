"""What many pages ask for is made once."""

from itertools import count
from threading import Event

import pytest

from celeriac.errors import DiskError
from celeriac.programs.process import wait_until
from celeriac.web.shared import Aside, Shared

PATIENCE = 60.0


def test_it_is_made_again_only_when_it_is_old() -> None:
    numbers = count()
    now = [0.0]
    shared = Shared(lambda: next(numbers), seconds=0.5, now=lambda: now[0])

    first = [shared(), shared()]
    now[0] = 0.5
    second = [shared(), shared()]

    assert (first, second) == ([0, 0], [1, 1])


def test_an_error_is_raised_to_each_and_kept_for_nobody() -> None:
    tries = count()

    def make() -> int:
        if next(tries) == 0:
            raise ValueError("not yet")
        return 7

    shared = Shared(make, seconds=60.0)

    with pytest.raises(ValueError, match="not yet"):
        shared()
    assert shared() == 7


def test_what_is_made_aside_keeps_nobody_waiting_for_it() -> None:
    is_ready = Event()

    def make() -> int:
        assert is_ready.wait(PATIENCE)
        return 7

    aside = Aside(make, seconds=600.0)
    before = aside()
    is_ready.set()

    assert before is None
    assert wait_until(lambda: aside() == 7, patience=PATIENCE)


def test_who_asks_after_a_long_time_is_not_told_what_was_so_then() -> None:
    aside = Aside(count().__next__, seconds=0.0, patience=PATIENCE)

    assert [aside(), aside(), aside()] == [0, 1, 2]


def test_what_is_made_aside_is_made_again_when_it_is_old_and_not_before() -> None:
    young, old = Aside(count().__next__, seconds=600.0), Aside(count().__next__, seconds=0.0)

    assert wait_until(lambda: young() == 0, patience=PATIENCE)
    assert wait_until(lambda: (old() or 0) > 2, patience=PATIENCE)
    assert young() == 0


@pytest.mark.parametrize("error", [DiskError("it is away"), ValueError("a bug")])
def test_what_cannot_be_made_aside_is_not_known_until_it_can(error: Exception) -> None:
    is_away = Event()

    def make() -> int:
        if is_away.is_set():
            raise error
        return 7

    aside = Aside(make, seconds=0.0)

    assert wait_until(lambda: aside() == 7, patience=PATIENCE)
    is_away.set()
    assert wait_until(lambda: aside() is None, patience=PATIENCE)
    is_away.clear()
    assert wait_until(lambda: aside() == 7, patience=PATIENCE)
