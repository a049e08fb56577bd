"""The broker of workers and of a recorder is killed: no task is lost, and no event outside of a recorded gap.

``HYPOTHESIS_PROFILE=long`` kills each broker 20 times.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

from celeriac.model.events import Event, Gap, Received, Started, Succeeded, TaskEvent
from celeriac.node.replay import Replay, identity
from celeriac.programs.process import wait_until
from celeriac.store.event_log import EventLog
from tests.fleet import come_true, run_all
from tests.interop.conftest import BROKERS
from tests.live import IS_LONG
from tests.recorders import PATIENCE, Publisher, RecorderProcess, read_whole
from tests.task_storm import Storm, storm_on

KILLS = 20 if IS_LONG else 2
#: The events that a worker sends of each task that succeeds, in their order.
KINDS: tuple[type[TaskEvent], ...] = (Received, Started, Succeeded)


@pytest.fixture(params=BROKERS)
def storm(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storm]:
    with storm_on(request.param, request, tmp_path) as storm:
        yield storm


def test_broker_restarts_lose_no_task_and_no_event_outside_a_gap(storm: Storm, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with RecorderProcess(storm.server.url, log) as recorder:
        recorder.wait_until_it_records()
        for kills in range(1, KILLS + 1):
            storm.let_some_end()
            storm.kill_servers()
            assert wait_until(partial(_has_recorded_gaps, recorder, kills), patience=PATIENCE), recorder.told
        storm.let_some_end()
        storm.calm()
        results, ended_at = storm.results(), _end_times(storm)
        assert come_true(lambda: set(storm.leftovers().values()) == {0}), storm.leftovers()
        run_all([worker.stop for worker in storm.workers])
        with Publisher(storm.server.url) as publisher:
            publisher.publish()
            recorder.wait_until_it_has_all_of(publisher)
        recorder.end()
    events = read_whole(EventLog(log))
    tasks = Replay(EventLog(log), max_tasks_in_memory=10**6).run().tasks
    story = Story(events)

    missed, uncovered = story.missed(storm, ended_at)
    expected = sum(storm.sent_at[text] >= story.first_at for text in storm.sent)
    print(
        f"{KILLS} kills of the broker, {len(storm.sent)} tasks, {expected * len(KINDS)} events expected, "
        f"{len(missed)} missed, {len(uncovered)} of them in no gap, {story.doubled} recorded twice, "
        f"{len(story.gaps)} gaps"
    )
    assert results == {text: text for text in storm.sent}
    assert len(events) == recorder.told["recorded"]
    assert uncovered == []
    assert len(missed) < expected * len(KINDS)
    assert {tasks[task_id].state for task_id in story.seen[Succeeded]} == {"SUCCESS"}


def _has_recorded_gaps(recorder: RecorderProcess, gaps: int) -> bool:
    return bool(recorder.told["gaps"] >= gaps and recorder.told["state"] == "recording")


def _end_times(storm: Storm) -> dict[str, float]:
    """Return when each task ended for the first time, by its text, as its worker stored it."""
    ask = storm.stage.app.AsyncResult
    stored = {text: ask(task_id).date_done for text, task_id in storm.sent.items()}
    return {text: datetime.fromisoformat(moment or "").timestamp() for text, moment in stored.items()}


class Story:
    """The events that a recorder has, and the gaps that it admits."""

    def __init__(self, events: list[Event]) -> None:
        self.gaps = [event for event in events if isinstance(event, Gap)]
        received = [event for event in events if isinstance(event, TaskEvent)]
        self.first_at = min(event.local_received or 0.0 for event in events)
        #: The first time of each kind of event of each task.
        self.seen = {
            kind: {event.uuid: event.timestamp for event in reversed(received) if isinstance(event, kind)}
            for kind in KINDS
        }
        counts = Counter(identity(event) for event in received)
        self.doubled = sum(count - 1 for count in counts.values())
        #: The longest way of an event, but for those that waited until the broker was back.
        self._lag = max(
            (event.local_received or 0.0) - event.timestamp
            for event in received
            if not self._has_waited(event)
        )

    def missed(self, storm: Storm, ended_at: dict[str, float]) -> tuple[list[str], list[str]]:
        """Return the events that are not there, and those of them that no gap covers."""
        missed: list[str] = []
        uncovered: list[str] = []
        for text, task_id in storm.sent.items():
            begun_at = storm.sent_at[text]
            if begun_at < self.first_at:
                continue
            for position, kind in enumerate(KINDS):
                if task_id in self.seen[kind]:
                    begun_at = max(begun_at, self.seen[kind][task_id])
                    continue
                later = [self.seen[each].get(task_id, ended_at[text]) for each in KINDS[position:]]
                missed.append(f"{kind.__name__} of {text}")
                if not self._is_covered(begun_at, min(later)):
                    uncovered.append(missed[-1])
        return missed, uncovered

    def _is_covered(self, since: float, until: float) -> bool:
        return any(gap.since - self._lag <= max(since, until) and since <= gap.until for gap in self.gaps)

    def _has_waited(self, event: TaskEvent) -> bool:
        return any(event.timestamp <= gap.until <= (event.local_received or 0.0) for gap in self.gaps)
