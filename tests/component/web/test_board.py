"""A cluster as it was, by replay of a log."""

from pathlib import Path
from typing import Any

from celeriac.model.events import Extra, Other
from celeriac.node.replay import Replay
from celeriac.store.event_log import EventLog
from tests.component.web.kit import rig, served
from tests.event_logs import HOUR_AT, heartbeat, received, seal
from tests.warehouses import MIDNIGHT, publish, rollup


def elect(at: float, **fields: Any) -> Other:
    moment = HOUR_AT + at
    return Other(
        group="worker", subject="elect", hostname="w1@lab", pid=7, clock=5, timestamp=moment,
        local_received=moment, extra=Extra(fields),
    )  # fmt: skip


def test_of_the_past_it_tells_what_was_said_of_elections_and_who_was_suspect(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log")
    events = [
        heartbeat(0.0, freq=10.0, active=0),
        elect(1.0, id="e1"),
        received("t1", 2.0),
        elect(50.0, id="e2"),
    ]
    seal(tmp_path / "log", events)

    def replay(since: float, until: float) -> Replay:
        return Replay(log, since=since, until=until)

    with rig(tmp_path, replay=replay) as running, served(running) as client:
        running.send("worker-elect", id="now")
        running.arrived()

        def asked(path: str, at: float) -> Any:
            return client.get(f"/api/v1/{path}", params={"at": HOUR_AT + at}).json()

        elections = [
            [event["fields"]["id"] for event in asked("cluster", at)["elections"]] for at in (0.5, 40, 60)
        ]
        listed = asked("workers", 35.0)["workers"]
        workers = {each["name"]: (each["liveness"], each["since_at"]) for each in listed}
        now = client.get("/api/v1/cluster").json()["elections"]

    assert elections == [[], ["e1"], ["e1", "e2"]]
    # Its task was the last that was heard of it.
    assert workers == {"celery@web1": ("SUSPECT", HOUR_AT + 2.0 + 30.0)}
    assert [event["fields"]["id"] for event in now] == ["now"]


def test_it_knows_whether_there_are_tables(tmp_path: Path) -> None:
    with rig(tmp_path) as running, rig(tmp_path / "none", warehouse=None) as without:
        before = running.board.has_tables
        publish(tmp_path / "warehouse", {"rollups_hour": [rollup(MIDNIGHT, runs=[1.0])]})

        assert (before, running.board.has_tables, without.board.has_tables) == (False, True, False)
