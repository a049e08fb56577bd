from typing import Any

import pytest

from celeriac.core import attendance
from celeriac.core.attendance import Attendance
from celeriac.core.membership import lost_after
from celeriac.model.events import WorkerHeartbeat, WorkerOffline, WorkerOnline

FREQ = 2.0


def beat(kind: type = WorkerHeartbeat, hostname: str = "w1@lab", **fields: Any) -> Any:
    return kind(
        **{"hostname": hostname, "pid": 7, "timestamp": 1.0, "clock": 1, "freq": FREQ, "active": 0, **fields}
    )


def test_a_worker_is_there_since_it_was_first_heard_of() -> None:
    attended = Attendance()

    for at in (100.0, 102.0, 104.0 + lost_after(FREQ) - 2.0):
        attended.receive(beat(), at)

    assert attended.since("w1@lab") == 100.0
    assert attended.since("w2@lab") is None


@pytest.mark.parametrize(
    "again",
    [
        pytest.param((beat(), 102.1 + lost_after(FREQ)), id="after a silence"),
        pytest.param((beat(WorkerOnline, pid=8), 103.0), id="as another process"),
    ],
)
def test_a_worker_that_came_back_is_there_since_then(again: tuple[Any, float]) -> None:
    attended = Attendance()
    for at in (100.0, 102.0):
        attended.receive(beat(), at)

    attended.receive(*again)

    assert attended.since("w1@lab") == again[1]


def test_a_worker_that_said_farewell_is_not_there_until_it_comes_back() -> None:
    attended = Attendance()
    attended.receive(beat(), 100.0)

    attended.receive(beat(WorkerOffline), 101.0)
    gone = attended.since("w1@lab")
    attended.receive(beat(WorkerOnline), 102.0)

    assert (gone, attended.since("w1@lab")) == (None, 102.0)


def test_a_heartbeat_that_was_asked_for_says_nothing_of_the_frequency() -> None:
    attended = Attendance()
    attended.receive(beat(freq=60.0), 100.0)

    attended.receive(beat(freq=5.0, active=None), 101.0)
    attended.receive(beat(freq=60.0), 101.0 + lost_after(60.0) - 1.0)

    assert attended.since("w1@lab") == 100.0


def test_there_is_room_for_so_many_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendance, "MAX_ATTENDANTS", 2)
    attended = Attendance()

    for number in range(3):
        attended.receive(beat(hostname=f"w{number}@lab"), 100.0 + number)

    assert [attended.since(f"w{number}@lab") for number in range(3)] == [100.0, 101.0, None]
