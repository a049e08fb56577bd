"""Plots of block characters."""

import pytest

from celeriac.views.plot import bar, column_chart


@pytest.mark.parametrize(
    ("value", "drawn"),
    [
        (8.0, "████"),
        (4.0, "██"),
        (5.0, "██▌"),
        (0.01, "▏"),
        (0.0, ""),
        (None, ""),
        (float("nan"), ""),
        (99.0, "████"),
    ],
)
def test_a_bar_is_as_long_as_its_value_is_large(value: float | None, drawn: str) -> None:
    assert bar(value, 8.0, width=4) == drawn


def test_a_bar_of_nothing_is_empty() -> None:
    assert bar(1.0, 0.0, width=4) == ""


def test_columns_stand_where_their_time_is_and_gaps_are_left_open() -> None:
    points = [(0.0, 1.0), (60.0, 2.0), (240.0, 4.0), (300.0, None)]

    drawn = column_chart(points, width=80, height=2, step=60.0)

    assert drawn == ["    █", "▄█  █"]


def test_where_there_is_too_little_room_the_highest_of_several_is_drawn() -> None:
    points = [(float(at), 8.0 if at == 5 else 1.0) for at in range(8)]

    drawn = column_chart(points, width=4, height=1, step=1.0)

    assert drawn == ["▁▁█▁"]


@pytest.mark.parametrize("value", [0.0, None, float("inf")])
def test_what_cannot_be_drawn_is_left_blank(value: float | None) -> None:
    assert column_chart([(0.0, value)], width=4, height=2, step=1.0) == ["", ""]


def test_nothing_is_drawn_of_nothing() -> None:
    assert column_chart([], width=4, height=2, step=1.0) == []
