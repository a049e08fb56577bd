"""Of which time it is known what happened, and what was said of elections."""

from celeriac import State
from celeriac.model.events import Event, Gap, Other
from celeriac.node.scene import Scene
from tests.event_logs import HOUR_AT, received


def recorded(*seconds: float) -> list[Event]:
    """Return events that came so many seconds after the hour."""
    return [received(f"t{each}", each) for each in seconds]


def test_before_it_began_nothing_is_known() -> None:
    scene = Scene(State(), begun_at=HOUR_AT)

    assert scene.watched(HOUR_AT - 30, HOUR_AT) == 0
    assert scene.watched(HOUR_AT - 10, HOUR_AT + 20) == 20
    assert scene.watched(HOUR_AT, HOUR_AT + 30) == 30


def test_what_was_recorded_is_known_but_where_the_log_is_silent() -> None:
    scene = Scene(State(), begun_at=HOUR_AT + 500)

    scene.recall(recorded(0, 10, 50))
    scene.recall(recorded(300, 320))

    assert scene.watched(HOUR_AT - 60, HOUR_AT) == 0  # the log begins later
    assert scene.watched(HOUR_AT, HOUR_AT + 50) == 50
    assert scene.watched(HOUR_AT + 60, HOUR_AT + 90) == 0  # nobody wrote it
    assert scene.watched(HOUR_AT + 290, HOUR_AT + 320) == 20
    assert scene.watched(HOUR_AT + 400, HOUR_AT + 430) == 0  # and it ends before we began
    assert scene.watched(HOUR_AT, HOUR_AT + 600) == 50 + 20 + 100


def test_a_log_that_is_written_from_later_on_takes_away_nothing_that_was_seen() -> None:
    scene = Scene(State(), begun_at=HOUR_AT)

    scene.recall(recorded(-200, 100))

    assert scene.watched(HOUR_AT, HOUR_AT + 100) == 100
    assert scene.watched(HOUR_AT - 100, HOUR_AT) == 0


def test_gaps_in_the_reception_are_not_known_and_count_once() -> None:
    scene = Scene(State(), begun_at=HOUR_AT)
    for since, until in ((HOUR_AT - 10, HOUR_AT + 40), (HOUR_AT + 20, HOUR_AT + 60)):
        scene.state.apply(
            Gap(timestamp=until, clock=0, hostname="us", since=since, until=until, reason="lost", attempts=1)
        )

    assert len(scene.state.gaps) == 2
    assert scene.watched(HOUR_AT, HOUR_AT + 90) == 30


def elect(number: int) -> Other:
    """Return what a node said of an election so many seconds after the hour."""
    at = HOUR_AT + number
    return Other(
        group="worker",
        subject="elect",
        hostname="w1@lab",
        pid=7,
        clock=number,
        timestamp=at,
        local_received=at,
    )


def test_what_was_said_of_elections_is_there_once_however_often_it_comes() -> None:
    scene = Scene(State(), begun_at=HOUR_AT + 100)

    scene.hear(elect(20))
    scene.recall([elect(10), elect(20), received("t1", 30), elect(10)])
    scene.hear(elect(20))

    assert scene.elections == [elect(10), elect(20)]


def test_what_nodes_say_of_all_else_is_no_election() -> None:
    scene = Scene(State())

    scene.recall([Other(group="worker", subject="mood", hostname="w1@lab", clock=1, timestamp=1.0)])

    assert scene.elections == []


def test_only_the_last_elections_are_remembered_whatever_their_order() -> None:
    scene = Scene(State())

    for number in (*range(300, 450), *range(300)):
        scene.hear(elect(number))

    assert scene.elections == [elect(number) for number in range(250, 450)]
