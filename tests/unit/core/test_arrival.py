"""Gaps between heartbeats, and how unlikely a silence is."""

from random import Random
from statistics import fmean, pstdev

import pytest

from celeriac.core.arrival import MAX_PHI, WINDOW, Gaps, deviations, phi


def test_one_that_is_not_known_yet_is_taken_to_be_regular() -> None:
    gaps = Gaps()

    assert (len(gaps), gaps.mean(2.0), gaps.deviation(2.0)) == (0, 2.0, 0.0)


@pytest.mark.parametrize("count", [1, 7, WINDOW, WINDOW + 1, 3 * WINDOW + 7])
def test_mean_and_deviation_are_those_of_the_last_gaps_and_regular_ones_for_those_that_lack(
    count: int,
) -> None:
    random = Random(count)
    values = [random.uniform(0.01, 500_000.0 if number < 50 else 3.0) for number in range(count)]

    gaps = Gaps()
    for value in values:
        gaps.add(value)

    kept = [2.0] * (WINDOW - count) + values[-WINDOW:]
    assert len(gaps) == min(count, WINDOW)
    assert gaps.mean(2.0) == pytest.approx(fmean(kept), abs=1e-3)
    assert gaps.deviation(2.0) == pytest.approx(pstdev(kept), abs=1e-2)


def test_half_of_all_gaps_are_longer_than_the_mean() -> None:
    level = phi(2.0, mean=2.0, deviation=0.5)

    assert level == pytest.approx(0.30103)


def test_a_longer_silence_is_less_likely() -> None:
    levels = [phi(silence, mean=2.0, deviation=0.5) for silence in (0.0, 1.0, 2.0, 4.0, 6.0, 100.0)]

    assert levels == sorted(levels)
    assert levels[-1] == MAX_PHI


@pytest.mark.parametrize("level", [1.0, 8.0, 12.0])
def test_the_silence_of_a_level_has_that_level(level: float) -> None:
    silence = 2.0 + deviations(level) * 0.5

    assert phi(silence, mean=2.0, deviation=0.5) == pytest.approx(level)
