"""How long a task waits before it is tried again by itself."""

import pytest

from celeriac.core.retry_wait import retry_wait


@pytest.mark.parametrize(
    ("retries", "wait"), [(0, 3.0), (1, 6.0), (2, 12.0), (5, 96.0), (6, 100.0), (10_000, 100.0)]
)
def test_a_wait_doubles_with_each_retry_up_to_the_longest(retries: int, wait: float) -> None:
    assert retry_wait(first=3.0, retries=retries, longest=100.0, random=None) == wait


def test_a_wait_that_is_drawn_lies_between_nothing_and_what_it_would_be() -> None:
    draws = iter([0.0, 0.5, 1.0])

    found = [retry_wait(first=4.0, retries=1, longest=100.0, random=lambda: next(draws)) for _ in range(3)]

    assert found == [0.0, 4.0, 8.0]
