"""A log, replayed, is the cluster as it was."""

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from celeriac.core.worker import Worker
from celeriac.errors import CallerError
from celeriac.model.events import (
    Event,
    Gap,
    Received,
    Sent,
    Started,
    Succeeded,
    TaskEvent,
    WorkerHeartbeat,
    WorkerOffline,
    WorkerOnline,
)
from celeriac.node import replay as replay_module
from celeriac.node.replay import Replay
from celeriac.node.source import EventSource
from celeriac.store.columns import event_moment

#: 2026-11-14, 10:00.
TEN = 1_794_650_400.0
HOUR = 3600.0


class Rows:
    """Events in memory, in the order of receipt, handed out as a log does."""

    def __init__(self, events: Sequence[Event], *, recorders: Sequence[str] = ("left",)) -> None:
        self.damage: list[str] = []
        self._events = events
        self._recorders = list(recorders)

    def recorders(self) -> list[str]:
        return self._recorders

    def read(
        self,
        since: float | None = None,
        until: float | None = None,
        types: Sequence[str] = (),
        task: str | None = None,
        worker: str | None = None,
        *,
        progress: Callable[[int, int], object] | None = None,
    ) -> Iterator[Event]:
        assert (types, task, worker, progress) == ((), None, None, None)
        for event in self._events:
            if (since or 0.0) <= event_moment(event) <= (until or inf):
                yield event


def beat(at: float, received_at: float | None = None, hostname: str = "w@1", **fields: Any) -> Event:
    return WorkerHeartbeat(
        timestamp=at, local_received=received_at or at, hostname=hostname, clock=int(at - TEN) + 10_000,
        pid=7, freq=2.0, active=0, **fields,
    )  # fmt: skip


def step(kind: type[TaskEvent], at: float, uuid: str = "t1", received_at: float | None = None) -> Event:
    fields: dict[str, Any] = {"name": "shop.pay"} if kind is Received else {}
    return kind(
        timestamp=at, local_received=received_at or at, hostname="w@1", clock=int(at - TEN) + 10_000, pid=7,
        uuid=uuid, **fields,
    )  # fmt: skip


def worker_of(replay: Replay, hostname: str = "w@1") -> Worker:
    return replay.run().workers[hostname]


# -- as of an instant


def test_the_state_as_of_an_instant_knows_nothing_later() -> None:
    log = Rows([step(Received, TEN - 2), step(Started, TEN), step(Succeeded, TEN + 0.001)])

    state = Replay(log, until=TEN).run()

    assert state.tasks["t1"].state == "STARTED"
    assert state.event_count == 2


def test_what_happened_before_the_beginning_does_not_count() -> None:
    log = Rows([step(Received, TEN - 2, "old"), step(Received, TEN, "new")])

    state = Replay(log, since=TEN).run()

    assert list(state.tasks) == ["new"]


def test_an_event_counts_by_when_it_happened_however_late_it_was_received() -> None:
    log = Rows([step(Started, TEN + 5), step(Succeeded, TEN - 1, received_at=TEN + HOUR)])

    state = Replay(log, until=TEN).run()

    assert state.tasks["t1"].state == "SUCCESS"


@pytest.mark.parametrize(("until", "is_alive"), [(TEN + 3.9, True), (TEN + 4.1, False)])
def test_a_worker_is_alive_as_of_an_instant_within_its_window(until: float, is_alive: bool) -> None:
    log = Rows([beat(TEN - 2), beat(TEN), beat(TEN + HOUR)])

    assert worker_of(Replay(log, until=until)).alive is is_alive


def test_who_said_farewell_later_was_still_there() -> None:
    farewell = WorkerOffline(
        timestamp=TEN + 1, local_received=TEN + 1, hostname="w@1", clock=20_000, pid=7, freq=2.0
    )
    log = Rows([beat(TEN), farewell])

    before, after = (worker_of(Replay(log, until=until)) for until in (TEN + 0.5, TEN + 1.5))

    assert (before.alive, before.has_left) == (True, False)
    assert (after.alive, after.has_left) == (False, True)


def test_while_a_recorder_was_away_who_had_died_was_dead_and_who_lived_was_alive() -> None:
    back_at = TEN + HOUR
    log = Rows(
        [
            beat(TEN - HOUR, back_at, "dead@1"),
            *(beat(TEN - second, back_at, "alive@1") for second in (4, 2, 0)),
        ]
    )

    state = Replay(log, until=TEN).run()

    assert [worker.hostname for worker in state.alive_workers()] == ["alive@1"]


@pytest.mark.parametrize("ahead", [-HOUR, -60.0, 60.0, HOUR])
def test_a_worker_whose_clock_is_wrong_was_alive_all_the_same(ahead: float) -> None:
    # Of each worker what it dates until then counts, so all of it is that much early or late.
    log = Rows([beat(TEN + second + ahead, TEN + second) for second in range(-8000, 8000, 2)])

    assert worker_of(Replay(log, until=TEN + 1)).alive
    assert not worker_of(Replay(log, until=TEN + 8000 + max(ahead, 0.0) + 10)).alive


def test_no_worker_lives_on_what_was_never_received() -> None:
    unreceived = WorkerOnline(timestamp=TEN, hostname="w@1", clock=1, pid=7, freq=2.0)

    assert not worker_of(Replay(Rows([unreceived]), until=TEN)).alive


def test_gaps_are_part_of_the_state() -> None:
    gap = Gap(
        timestamp=TEN, local_received=TEN, hostname="r@1", clock=1, since=TEN - 9, until=TEN, reason="cut",
        attempts=2,
    )  # fmt: skip

    state = Replay(Rows([gap]), until=TEN).run()

    assert list(state.gaps) == [gap]


def test_clocks_that_disagreed_then_are_no_warning_now(caplog: pytest.LogCaptureFixture) -> None:
    Replay(Rows([beat(TEN, TEN + HOUR)])).run()

    assert caplog.messages == []


# -- all of it


def test_all_of_it_has_its_receipts_as_recorded_and_stands_at_the_last() -> None:
    log = Rows([beat(TEN, TEN + 0.5), beat(TEN + 2, TEN + 2.5)])
    replay = Replay(log)

    worker = worker_of(replay)

    assert worker.heartbeats == [TEN + 0.5, TEN + 2.5]
    assert worker.drift == 0.5
    assert worker.alive
    assert replay.instant == TEN + 2.5


def test_events_are_given_out_in_the_order_of_receipt_after_the_state_has_them() -> None:
    events = [step(Received, TEN), step(Started, TEN + 1), step(Succeeded, TEN + 2)]
    replay: EventSource = Replay(Rows(events))

    seen = [(event, replay.state.tasks["t1"].state) for event in replay]

    assert seen == list(zip(events, ["RECEIVED", "STARTED", "SUCCESS"], strict=True))


def test_a_replay_that_is_stopped_ends_there() -> None:
    replay = Replay(Rows([step(Received, TEN + second, f"t{second}") for second in range(10)]))

    for count, _ in enumerate(replay, 1):
        if count == 3:
            replay.stop()

    assert count == 3
    assert list(replay.state.tasks) == ["t0", "t1", "t2"]


# -- as it happened


class Player:
    """A clock that goes on by being waited for."""

    def __init__(self) -> None:
        self.now = 100.0

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def play(self, events: Sequence[Event], **options: Any) -> list[tuple[float, Event]]:
        replay = Replay(Rows(events), clock=lambda: self.now, wait=self.wait, **options)
        return [(round(self.now - 100.0, 6), event) for event in replay]


def test_events_are_played_as_they_happened_so_many_times_as_fast() -> None:
    events = [step(Received, TEN), step(Started, TEN + 10), step(Succeeded, TEN + 40)]

    played = Player().play(events, speed=10.0)

    assert played == list(zip([0.0, 1.0, 4.0], events, strict=True))


def test_what_was_received_late_is_played_by_when_it_happened() -> None:
    events = [step(Received, TEN, received_at=TEN + HOUR), step(Started, TEN + 2, received_at=TEN + HOUR)]

    played = Player().play(events, speed=2.0)

    assert [at for at, _ in played] == [0.0, 1.0]


@pytest.mark.parametrize("odd", [1.0, TEN - 10 * HOUR, TEN + 10 * HOUR, 4_000_000_000.0])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_sender_whose_clock_is_wrong_holds_nobody_up(odd: float, place: int) -> None:
    events = [step(Received, TEN), step(Started, TEN + 1), step(Succeeded, TEN + 2)]
    events.insert(place, beat(odd, TEN + max(place - 0.5, 0.0)))

    played = Player().play(events, speed=1.0)

    assert len(played) == 4
    assert played[-1][0] <= 2.0


def test_a_silence_of_hours_is_leapt_over() -> None:
    events = [step(Received, TEN), step(Started, TEN + 20 * HOUR), step(Succeeded, TEN + 20 * HOUR + 5)]

    played = Player().play(events, speed=1.0)

    assert [at for at, _ in played] == [0.0, 0.0, 5.0]


def test_while_nothing_happens_the_clock_goes_on_and_the_silent_die() -> None:
    player = Player()
    alive = []

    def wait(seconds: float) -> None:
        player.wait(seconds)
        alive.append((round(replay.instant - TEN, 2), replay.state.workers["w@1"].alive))

    events = [beat(TEN), beat(TEN + 10, hostname="w@2")]
    replay = Replay(Rows(events), speed=20.0, clock=lambda: player.now, wait=wait)
    replay.run()

    assert {at < 4 for at, _ in alive} == {True, False}
    assert all(is_alive is (at < 4) for at, is_alive in alive)


def test_in_the_end_what_was_played_is_what_can_be_rebuilt() -> None:
    events = [beat(TEN - 60, TEN - 120), beat(TEN - 2, TEN - 1, "w@2"), step(Received, TEN)]
    player = Player()
    played = Replay(Rows(events), until=TEN, speed=9.0, clock=lambda: player.now, wait=player.wait)
    rebuilt = Replay(Rows(events), until=TEN)

    one, other = played.run(), rebuilt.run()

    assert played.instant == rebuilt.instant == TEN
    assert {name: worker.alive for name, worker in one.workers.items()} == {
        name: worker.alive for name, worker in other.workers.items()
    }
    assert one.tasks["t1"].as_dict() == other.tasks["t1"].as_dict()


def test_a_stop_is_heeded_while_it_waits() -> None:
    events = [step(Received, TEN), step(Started, TEN + 1000)]
    player = Player()
    replay = Replay(Rows(events), speed=1.0, clock=lambda: player.now, wait=lambda _: replay.stop())

    assert list(replay) == events[:1]


# -- what cannot be


@pytest.mark.parametrize("speed", [0.0, -1.0, float("inf"), float("nan")])
def test_a_speed_that_is_none_is_refused(speed: float) -> None:
    with pytest.raises(CallerError, match=r"invalid speed .* give a number above 0"):
        Replay(Rows([]), speed=speed)


def test_an_end_before_the_beginning_is_refused() -> None:
    with pytest.raises(CallerError, match="swap them"):
        Replay(Rows([]), since=TEN, until=TEN - 1)


# -- what several recorders have


def received_twice(events: Sequence[Event], *, lag: float = 0.25) -> Rows:
    """Return the log of two recorders, of which one gets all a little later."""
    copies = [replace(event, local_received=(event.local_received or 0.0) + lag) for event in events]
    both = sorted([*events, *copies], key=lambda event: event.local_received or 0.0)
    return Rows(both, recorders=("left", "right"))


def test_what_two_recorders_received_comes_once() -> None:
    events = [beat(TEN), step(Received, TEN + 1), step(Started, TEN + 2), beat(TEN + 3)]
    replay = Replay(received_twice(events))

    given_out = list(replay)

    assert given_out == events
    assert replay.state.event_count == 4


def test_the_clock_that_each_recorder_gives_to_what_clients_send_makes_no_second_event() -> None:
    sent = Sent(timestamp=TEN, local_received=TEN, hostname="c@1", clock=7, uuid="t1", name="shop.pay")
    log = Rows([sent, replace(sent, clock=9, local_received=TEN + 1)], recorders=("left", "right"))

    assert list(Replay(log)) == [sent]


def test_what_one_recorder_has_twice_counts_twice_as_it_did_live() -> None:
    events = [step(Received, TEN), step(Received, TEN)]

    assert Replay(Rows(events)).run().event_count == 2


def test_events_that_nothing_marks_are_all_given_out() -> None:
    unmarked = WorkerHeartbeat(timestamp=0.0, local_received=TEN, hostname="w@1", clock=0, pid=7, freq=2.0)
    events = [unmarked, replace(unmarked, local_received=TEN + 2)]

    assert list(Replay(Rows(events, recorders=("left", "right")))) == events


def test_each_recorder_tells_of_its_own_gaps() -> None:
    gap = Gap(
        timestamp=TEN, local_received=TEN, hostname="r@1", clock=1, since=TEN - 9, until=TEN, reason="cut",
        attempts=1,
    )  # fmt: skip

    assert len(list(Replay(received_twice([gap])))) == 2


def test_no_more_is_remembered_than_the_limit_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "_REMEMBERED", 4)
    near, far = step(Received, TEN, "near"), step(Received, TEN, "far")
    between = [step(Received, TEN + number, f"t{number}") for number in range(8)]
    log = Rows([far, *between, near, *between[-2:], near, far], recorders=("left", "right"))

    uuids = [event.uuid for event in Replay(log) if isinstance(event, TaskEvent)]

    assert (uuids.count("near"), uuids.count("far")) == (1, 2)
