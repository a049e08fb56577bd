import pytest

from celeriac.core.attempt import ended_by
from celeriac.core.pulse import KEPT, STEP, Pulse, Times
from celeriac.core.state import ClusterState
from celeriac.core.task import Task
from celeriac.model.events import Event, Retried, TaskEvent
from tests.event_logs import HOUR_AT, received, started, succeeded


def pulse_of(*events: tuple[Event, float]) -> Pulse:
    state, pulse = ClusterState(now=lambda: 0.0), Pulse()

    def take(task: Task, event: TaskEvent | None, at: float | None) -> None:
        assert event is not None
        pulse.take(event, ended_by(event, task.history, lambda _: None), at or 0.0)

    state.on_task = take
    for event, at in events:
        state.apply(event, at)
    return pulse


def test_events_are_counted_by_when_they_came() -> None:
    pulse = pulse_of((received("a"), 100.0), (received("b"), 101.0), (started("a", 2.0), 160.0))

    window = pulse.window(160.0, 60.0)

    assert window.events == {"started": 1}
    assert pulse.window(104.0, 60.0).events == {"received": 2}
    assert [each.events.total() for each in pulse.windows(160.0, 60.0, 2)] == [2, 1]


def test_an_attempt_is_measured_when_its_end_comes() -> None:
    pulse = pulse_of(
        (received("a"), 100.0), (started("a", 3.0), 103.0), (succeeded("a", 5.0, runtime=1.5), 105.0)
    )  # fmt: skip

    window = pulse.window(105.0, STEP)

    assert window.wait.quantile(0.5) == pytest.approx(3.0, rel=0.04)
    assert window.run.quantile(0.5) == pytest.approx(1.5, rel=0.04)


def test_an_attempt_that_is_retried_is_measured_too() -> None:
    retried = Retried(uuid="a", timestamp=HOUR_AT + 4.0, clock=1, hostname="celery@web1")
    pulse = pulse_of((received("a"), 100.0), (started("a", 2.0), 101.0), (retried, 102.0))

    assert pulse.window(102.0, STEP).run.quantile(0.5) == pytest.approx(2.0, rel=0.04)


def test_what_comes_twice_counts_once() -> None:
    pulse = pulse_of(*((succeeded("a", 1.0, runtime=1.0), 100.0) for _ in range(3)))

    assert pulse.window(100.0, STEP).events == {"succeeded": 1}


def test_a_clock_that_is_set_back_by_hours_does_not_stop_the_count() -> None:
    pulse = pulse_of((received("ahead"), 100_000.0), (received("a"), 1000.0), (received("b"), 1001.0))

    assert pulse.window(1000.0, STEP).events == {"received": 2}


def test_only_an_hour_is_kept_whichever_way_time_goes() -> None:
    told = [(received(f"task-{number}"), 1000.0 + number * STEP) for number in range(3 * KEPT)]
    late = 1000.0 + KEPT * STEP + 60
    pulse = pulse_of(*told, (received("late"), late))

    assert len(pulse._moments) == KEPT
    assert pulse.window(late, STEP).events.total() == 0


@pytest.mark.parametrize("values", [[0.0], [1e-9], [0.5] * 10, list(range(1, 1001)), [1e12]])
def test_a_quantile_is_right_to_within_four_percent(values: list[float]) -> None:
    times = Times()
    for value in values:
        times.add(value)

    for share in (0.01, 0.5, 0.95, 0.99, 1.0):
        exact = sorted(values)[max(0, -(-int(share * 1000 * len(values)) // 1000) - 1)]
        assert times.quantile(share) == pytest.approx(min(exact, 1e6), rel=0.05, abs=1e-4)


def test_of_nothing_there_is_no_quantile() -> None:
    assert Times().quantile(0.5) is None
