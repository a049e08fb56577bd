"""What workers were held for, as of a moment in the past."""

from typing import Any

import pytest

from celeriac import State
from celeriac.core.member import Liveness
from celeriac.core.membership import lost_after, suspect_after
from celeriac.model.events import Event, WorkerHeartbeat, WorkerOffline
from celeriac.node.scene import Scene
from celeriac.node.watcher import Presence
from celeriac.views.worker import LiveWorker, live_workers
from tests.event_logs import HOUR_AT, received

FREQ = 10.0
SUSPECT, LOST = suspect_after(FREQ), lost_after(FREQ)


def said(kind: type[Event], at: float, **fields: Any) -> Event:
    moment = HOUR_AT + at
    common = {"hostname": "w1@lab", "pid": 7, "timestamp": moment, "local_received": moment, "clock": 1}
    return kind(**{**common, "freq": FREQ, "active": 0, **fields})


def worker_as_of(at: float, *events: Event) -> LiveWorker:
    scene = Scene(State(now=lambda: HOUR_AT + at), begun_at=HOUR_AT + at)
    for event in events:
        scene.state.apply(event, event.local_received)
    scene.recall(events)
    (worker,) = live_workers(scene, as_of=HOUR_AT + at)
    return worker


@pytest.mark.parametrize(
    ("silence", "liveness", "since"),
    [
        (0.0, "ALIVE", 0.0),
        (SUSPECT - 1, "ALIVE", 0.0),
        (SUSPECT + 1, "SUSPECT", 20.0 + SUSPECT),
        (LOST - 1, "SUSPECT", 20.0 + SUSPECT),
        (LOST + 1, "LOST", 20.0 + LOST),
    ],
)
def test_a_worker_is_judged_by_its_silence_against_its_own_heartbeat(
    silence: float, liveness: str, since: float
) -> None:
    beats = [said(WorkerHeartbeat, at) for at in (0.0, 10.0, 20.0)]

    worker = worker_as_of(20.0 + silence, *beats)

    assert (worker.liveness, worker.since_at) == (liveness, HOUR_AT + since)
    assert worker.reason == ("heartbeat on time" if liveness == "ALIVE" else f"silent for {silence:g} s")


def test_a_worker_that_left_has_left_since_it_said_so() -> None:
    worker = worker_as_of(100.0, said(WorkerHeartbeat, 0.0), said(WorkerOffline, 5.0, clock=2))

    assert (worker.liveness, worker.since_at) == ("LEFT", HOUR_AT + 5.0)


def test_a_worker_whose_tasks_alone_are_heard_of_is_there_since_nobody_knows_when() -> None:
    worker = worker_as_of(100.0, received("t1", 90.0))

    assert (worker.liveness, worker.since_at) == ("ALIVE", None)


@pytest.mark.parametrize("sends", [True, False, None])
def test_task_events_are_those_that_the_watcher_checked(sends: bool | None) -> None:
    scene = Scene(State(now=lambda: HOUR_AT))
    beat = said(WorkerHeartbeat, 0.0)
    scene.state.apply(beat, beat.local_received)
    presence = Presence(Liveness.ALIVE, "heartbeat on time", HOUR_AT, sends)

    (worker,) = live_workers(scene, {"w1@lab": presence}, as_of=HOUR_AT)

    assert worker.task_events is sends
