"""A cluster in a few numbers: what is known of a time is told, and what is not is not told as nothing."""

from celeriac import State
from celeriac.model.events import Gap
from celeriac.node.scene import Scene
from celeriac.views.alert import Alert
from celeriac.views.overview import Overview, overview
from tests.event_logs import HOUR_AT, failed, heartbeat, received, succeeded

#: The windows of rates are made of steps of five seconds: this is in the middle of one.
AS_OF = HOUR_AT + 602.0


def told(scene: Scene, as_of: float = AS_OF) -> Overview:
    return overview(scene, as_of=as_of, workers=[])


def test_what_came_is_told_for_each_second_that_somebody_watched() -> None:
    scene = Scene(State(), begun_at=AS_OF - 20)
    scene.state.take([received(f"t{number}") for number in range(40)], AS_OF - 10)

    now = told(scene).now

    assert (now.received, now.failed) == (2.0, 0.0)


def test_where_a_log_ends_before_the_moment_it_is_not_known_what_happens() -> None:
    scene = Scene(State(), begun_at=AS_OF)
    scene.recall([received("t1", 1.0)])

    seen = told(scene)

    assert (seen.now.received, seen.now.succeeded, seen.now.failed, seen.now.retried) == (None,) * 4
    assert {point.received for point in seen.last_hour} == {None}


def test_of_what_was_watched_for_less_than_a_step_a_silence_says_nothing() -> None:
    assert told(Scene(State(), begun_at=AS_OF - 4.0)).now.received is None
    assert told(Scene(State(), begun_at=AS_OF - 6.0)).now.received == 0.0


def test_while_the_link_is_lost_it_is_not_known_what_happens() -> None:
    scene = Scene(State(), begun_at=HOUR_AT)
    before = told(scene)

    scene.deaf_since = lambda: AS_OF - 300.0

    after = told(scene)
    assert before.now.received == 0.0
    assert after.now.received is None
    assert [point.received for point in after.last_hour].count(0.0) == 11


def test_a_gap_that_lasts_until_the_moment_leaves_nothing_known() -> None:
    scene = Scene(State(), begun_at=HOUR_AT)
    gap = Gap(timestamp=AS_OF, clock=0, hostname="us", since=HOUR_AT, until=AS_OF, reason="lost", attempts=1)

    scene.state.apply(gap)

    assert told(scene).now.received is None


def test_states_are_told_the_furthest_first() -> None:
    scene = Scene(State(), begun_at=HOUR_AT)
    scene.state.take([received("a"), succeeded("a"), received("b"), failed("b"), heartbeat()], AS_OF)

    assert list(told(scene).tasks_by_state.items()) == [("SUCCESS", 1), ("FAILURE", 1)]


def test_queues_that_are_shown_alike_are_told_as_one() -> None:
    scene = Scene(State(), begun_at=HOUR_AT)

    seen = overview(scene, as_of=AS_OF, workers=[], queues={"x" * 120: 1, "x" * 121: 2, "x" * 122: 3})

    assert seen.queues == {"x" * 120: 1, "x" * 119 + "…": 5}


def test_a_queue_that_nobody_takes_from_is_told_among_what_needs_somebody() -> None:
    scene = Scene(State(), begun_at=HOUR_AT)
    other = Alert("warning", "something else", "cluster")

    seen = overview(scene, as_of=AS_OF, workers=[], queues={"celery": 500}, others=[other])

    assert [each.text for each in seen.alerts] == [
        "Backlog: 500 tasks in celery, and no task finished in the last 5 minutes",
        "something else",
    ]
