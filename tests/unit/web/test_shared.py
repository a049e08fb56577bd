"""What many pages ask for is made once."""

from itertools import count

import pytest

from celeriac.web.shared import Shared


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
