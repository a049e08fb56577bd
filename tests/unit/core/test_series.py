from celeriac.core.attempt import Attempt
from celeriac.core.series import BOUNDS, MAX_NAMES, OTHER, Histogram, Series
from tests.event_logs import received, succeeded

ENDED = Attempt(0, "w1@lab", 1, 1.0, 2.0, 3.0, "SUCCESS", 0.3, 2.0)


def test_events_and_attempts_are_counted_by_name_and_worker() -> None:
    series = Series()

    series.take(received(), None, "shop.pay")
    series.take(succeeded(), ENDED, "shop.pay")

    assert series.events == {("shop.pay", "received"): 1, ("shop.pay", "succeeded"): 1}
    assert series.by_worker == {("celery@web1", "received"): 1, ("celery@web1", "succeeded"): 1}
    assert (series.waits["shop.pay"].sum, series.runs["shop.pay"].sum) == (0.3, 2.0)


def test_of_many_names_those_beyond_the_bound_are_counted_together() -> None:
    series = Series()

    for number in range(3 * MAX_NAMES):
        series.take(succeeded(), ENDED, f"name-{number}")

    assert len(series.events) == len(series.runs) == MAX_NAMES + 1
    assert series.events[OTHER, "succeeded"] == 2 * MAX_NAMES


def test_a_histogram_counts_each_value_once_under_its_bound() -> None:
    histogram = Histogram()

    for value in (0.0, 0.01, 0.011, 7200.0, 7201.0):
        histogram.add(value)

    assert histogram.counts == [2, 1, *[0] * (len(BOUNDS) - 3), 1, 1]
