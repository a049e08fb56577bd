"""Plots of block characters, for a terminal."""

from collections.abc import Sequence
from math import isfinite
from typing import Final

__all__ = ["bar", "column_chart"]

#: A cell that is filled from below, in eighths, and one that is filled from the left.
_FROM_BELOW: Final = " ▁▂▃▄▅▆▇█"
_FROM_LEFT: Final = " ▏▎▍▌▋▊▉█"


def bar(value: float | None, most: float, *, width: int) -> str:
    """Return a bar that is as long as a value is large; what is above 0 is always seen."""
    eighths = _eighths(value, most, width)
    return "█" * (eighths // 8) + _FROM_LEFT[eighths % 8].rstrip()


def column_chart(
    points: Sequence[tuple[float, float | None]], *, width: int, height: int, step: float
) -> list[str]:
    """Return lines, the highest first, in which each column is as high as the highest value of its time.

    Points are moments and values, in the order of time; ``step`` is the time from one to the next. Fewer
    columns than ``width`` are used where there are fewer steps.
    """
    if not points:
        return []
    begin_at, steps = points[0][0], round((points[-1][0] - points[0][0]) / step) + 1
    count = min(width, steps)
    highest: list[float | None] = [None] * count
    for at, value in points:
        place = min(count - 1, round((at - begin_at) / step) * count // steps)
        known = highest[place]
        if value is not None and isfinite(value) and (known is None or value > known):
            highest[place] = value
    most = max((value for value in highest if value is not None), default=0.0)
    levels = [_eighths(value, most, height) for value in highest]
    return [
        "".join(_FROM_BELOW[min(8, max(0, level - 8 * row))] for level in levels).rstrip()
        for row in reversed(range(height))
    ]


def _eighths(value: float | None, most: float, size: int) -> int:
    if value is None or not isfinite(value) or value <= 0 or most <= 0:
        return 0
    return max(1, round(min(value / most, 1.0) * size * 8))
