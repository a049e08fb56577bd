"""What the screens show, whatever it is taken from."""

from celeriac.node.replay import Replay
from celeriac.programs.process import wait_until
from celeriac.tui.sight import PlayedSight, Stopwatch
from tests.event_logs import HOUR_AT, heartbeat, received
from tests.tui.kit import PATIENCE, Shelf, past


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_stopwatch_leaves_out_the_time_in_which_it_stood() -> None:
    clock = Clock()
    watch = Stopwatch(clock)

    watch.hold(True)
    clock.now = 130.0
    stood = watch()
    watch.hold(True)
    watch.hold(False)
    watch.hold(False)
    clock.now = 135.0

    assert stood == 100.0
    assert watch() == 105.0


def test_a_log_as_of_an_instant_has_the_workers_of_then() -> None:
    sight = past(
        heartbeat(0.0, hostname="old@lab"), heartbeat(590.0, hostname="new@lab"), until=HOUR_AT + 600
    )

    told = {worker.name: worker.liveness for worker in sight.workers()}

    assert told == {"old@lab": "LOST", "new@lab": "ALIVE"}
    assert sight.as_of == HOUR_AT + 600
    assert not sight.is_live


def test_a_replay_that_is_held_takes_no_more_events_until_it_goes_on() -> None:
    events = [received(f"t{number}", float(number)) for number in range(5)]
    clock = Clock()
    watch = Stopwatch(clock)
    sight = PlayedSight(Replay(Shelf(events), speed=1.0, clock=watch), watch, place="memory")

    with sight:
        assert wait_until(lambda: "t0" in sight.scene.state.tasks, patience=PATIENCE)
        sight.hold(True)
        clock.now += 1000.0
        held_at = sight.as_of
        sight.hold(False)
        clock.now += 2.0
        assert wait_until(lambda: "t2" in sight.scene.state.tasks, patience=PATIENCE)
        seen = set(sight.scene.state.tasks)

    # The thousand seconds in which it was held count for nothing.
    assert held_at < HOUR_AT + 5
    assert seen == {"t0", "t1", "t2"}


def test_a_replay_says_how_fast_it_goes_and_that_it_is_over() -> None:
    watch = Stopwatch()
    sight = PlayedSight(Replay(Shelf([received()]), speed=None, clock=watch), watch, place="memory")

    with sight:
        assert wait_until(lambda: sight.mode == "replay, at its end", patience=PATIENCE)

    sight.check()
    assert list(sight.scene.state.tasks) == ["t1"]
