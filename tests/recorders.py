"""Recorders in processes of their own, numbered events for them, and the laws of what they write."""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from time import sleep, time
from typing import Any, NamedTuple, Self

from celeriac.config import Settings
from celeriac.model.events import Event, Gap, Received
from celeriac.node.replay import Replay
from celeriac.programs.process import wait_until
from celeriac.store.columns import to_events
from celeriac.store.event_log import EventLog
from celeriac.transport.connect import connect
from celeriac.wire.names import event_exchange
from tests.clocks import SkewedClock
from tests.peers import recording

#: Far more than needed, for a busy machine.
PATIENCE = 180.0
#: Small files and short waits, so that everything that can happen does within a second.
QUICK: Mapping[str, object] = {
    "log_sync_interval": 0.02,
    "log_segment_bytes": 40_000,
    "log_segment_age": 0.5,
    "broker_retry_cap": 0.2,
}
#: Recorders are forked from a process that has imported all they need, which takes most of a CPU second.
_FORKS = get_context("forkserver")
# The clock first: what is imported after it takes the time from it.
# And pandas, which pyarrow imports when it makes its first column.
_FORKS.set_forkserver_preload(["tests.peers.skewed_clock", recording.__name__, "pandas"])


class RecorderProcess:
    """A recorder; it ends by SIGTERM at the end of the context, unless it died before."""

    def __init__(
        self,
        url: str,
        log: Path,
        *,
        name: str = "left",
        point: str = "",
        visit: int = 1,
        clock: SkewedClock | None = None,
        **settings: object,
    ) -> None:
        told: dict[str, object] = {"url": url, "log": str(log), "name": name, "point": point, "visit": visit}
        told["clock"] = "" if clock is None else str(clock.file)
        told["settings"] = {**QUICK, **settings}
        self.name = name
        #: The last that it said.
        self.told: dict[str, Any] = {}
        self._said, said = _FORKS.Pipe(duplex=False)
        self._read_errors, errors = _FORKS.Pipe(duplex=False)
        self._process = _FORKS.Process(target=recording.run, args=(told, said, errors))
        self._process.start()
        for theirs in (said, errors):
            theirs.close()
        self._errors: list[bytes] = []
        self._threads = [Thread(target=self._listen), Thread(target=self._listen_to_errors)]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    @property
    def errors(self) -> str:
        return b"".join(self._errors).decode()

    def wait_until_it_records(self) -> None:
        assert wait_until(
            lambda: self.told.get("state") == "recording" or not self.is_alive, patience=PATIENCE
        )
        assert self.told, self.errors

    def wait_until_it_has_all_of(self, publisher: "Publisher") -> None:
        """Wait until the last that was published is recorded, and so all that was before it."""
        last_at = max(begun_at for begun_at, _ in publisher.published.values())
        assert wait_until(
            lambda: (self.told.get("last_event_at") or 0.0) >= last_at and not self.told["pending"],
            patience=PATIENCE,
        ), self.errors

    def wait_until_it_is_dead(self, point: str) -> None:
        assert wait_until(lambda: not self.is_alive, patience=PATIENCE), f"it never came to {point}"
        assert self._process.exitcode == -signal.SIGKILL, f"not at {point}: {self.errors}"

    def kill(self) -> None:
        self._process.kill()
        self._join()

    def end(self) -> None:
        """End it as an operator does."""
        self._process.terminate()
        self._join()
        assert self._process.exitcode == 0, self.errors

    def _join(self) -> None:
        self._process.join(PATIENCE)
        for thread in self._threads:
            thread.join(PATIENCE)

    def _listen(self) -> None:
        with suppress(EOFError, OSError):  # it was killed, perhaps in the middle of a message
            while True:
                self.told = self._said.recv()

    def _listen_to_errors(self) -> None:
        while part := os.read(self._read_errors.fileno(), 65_536):
            self._errors.append(part)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_alive:
            self._process.kill()
        self._join()
        for pipe in (self._said, self._read_errors):
            pipe.close()


class Publisher:
    """Publishes numbered events, a few in each message; what the broker confirmed is in ``published``."""

    def __init__(self, url: str, *, per_message: int = 5, first: int = 0) -> None:
        #: When each was published, by its id: before, and after it was confirmed.
        self.published: dict[str, tuple[float, float]] = {}
        self._per_message = per_message
        self._number = first
        self._link = connect(Settings(broker_url=url))
        self._exchange = event_exchange("celeryev", self._link.driver)

    def publish(self, messages: int = 1) -> None:
        for _ in range(messages):
            begun_at = time()
            ids = [f"task-{self._number + place}" for place in range(self._per_message)]
            events = [self._event(each, begun_at) for each in ids]
            self._number += len(ids)
            self._link.publish(self._exchange, json.dumps(events).encode(), routing_key="task.multi")
            assert not self._link.unconfirmed(PATIENCE)
            self.published.update(dict.fromkeys(ids, (begun_at, time())))

    def _event(self, uuid: str, now: float) -> dict[str, object]:
        clock = int(uuid.partition("-")[2]) + 1
        told = {"uuid": uuid, "name": "shop.pay", "args": "(1,)", "kwargs": "{}", "retries": 0}
        return {
            "type": "task-received",
            "hostname": "w1@shop",
            "pid": 7,
            "timestamp": now,
            "clock": clock,
            **told,
        }

    @contextmanager
    def steadily(self) -> Iterator[None]:
        """Publish all the while, from a thread of its own."""
        ended = Flag()
        failures: list[BaseException] = []

        def run() -> None:
            try:
                while not ended.is_set():
                    self.publish()
                    sleep(0.01)
            except BaseException as error:  # noqa: BLE001 - raised below
                failures.append(error)

        thread = Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(PATIENCE)
        if failures:
            raise failures[0]

    def close(self) -> None:
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Log(NamedTuple):
    """What a log says, after a look at its laws."""

    events: list[Event]
    ids: frozenset[str]
    gaps: list[Gap]


def read_lawful(path: Path) -> Log:
    """Read a log, and see that it is whole and that nothing in it counts twice."""
    log = EventLog(path)
    events = read_whole(log)
    ids = Counter(event.uuid for event in events if isinstance(event, Received))
    state = Replay(log, max_tasks_in_memory=10**6).run()
    assert {*state.tasks} == {*ids}
    assert all(task.deliveries == 1 for task in state.tasks.values())
    return Log(events, frozenset(ids), [event for event in events if isinstance(event, Gap)])


def read_whole(log: EventLog) -> list[Event]:
    """Read a log, and check that each recorder has each of its numbers once, and that nothing is damaged."""
    numbers: dict[str, list[int]] = {}
    for batch in log.batches():
        for recorder, number in zip(*map(batch.column, ("recorder", "sequence")), strict=True):
            numbers.setdefault(recorder.as_py(), []).append(number.as_py())
    for recorder, seen in numbers.items():
        assert sorted(seen) == list(range(1, len(seen) + 1)), f"numbers of {recorder} have holes or doubles"
    events = list(log.read())
    assert not log.damage
    return events


def unexplained(publisher: Publisher, log: Log) -> list[str]:
    """Return what was published, is not in the log, and was published within no gap that the log tells of."""
    missing = [(uuid, told) for uuid, told in publisher.published.items() if uuid not in log.ids]
    # A gap is told in times of receipt. What was sent before it began may have been on its way until then,
    # but for no longer than what was received before it.
    lag = max((event.local_received or 0.0) - event.timestamp for event in log.events)
    return [
        uuid
        for uuid, (begun_at, confirmed_at) in missing
        if not any(gap.since - lag <= confirmed_at and begun_at <= gap.until for gap in log.gaps)
    ]


class Share(NamedTuple):
    """What one recorder has of a log, by the number of each event, and its gaps."""

    received_at: dict[str, float]
    gaps: list[Gap]


def read_shares(path: Path) -> dict[str, Share]:
    """Return the share of each recorder, by its id; the events of each are in the order of their receipt."""
    shares: dict[str, Share] = {}
    for batch in EventLog(path).batches():
        for recorder, event in zip(batch.column("recorder").to_pylist(), to_events(batch), strict=True):
            share = shares.setdefault(recorder, Share({}, []))
            if isinstance(event, Gap):
                share.gaps.append(event)
            elif isinstance(event, Received):
                share.received_at[event.uuid] = event.local_received or 0.0
    return shares


def missed_outside_gaps(publisher: Publisher, share: Share) -> tuple[list[str], list[str]]:
    """Return the events that a recorder does not have since its first, and those of them that no gap covers.

    One publisher's events arrive in their order. So a gap covers an event if it begins no later than the
    receipt of the one before it that the recorder has, and ends no earlier than its publication began.
    """
    missed: list[str] = []
    uncovered: list[str] = []
    last_at: float | None = None
    spans = _joined(share.gaps)
    for uuid, (begun_at, _) in publisher.published.items():
        last_at = share.received_at.get(uuid, last_at)
        if uuid in share.received_at or last_at is None:
            continue
        missed.append(uuid)
        if not any(since <= last_at and begun_at <= until for since, until in spans):
            uncovered.append(uuid)
    return missed, uncovered


def _joined(gaps: list[Gap]) -> list[tuple[float, float]]:
    """Return the times of gaps, with those that touch as one."""
    spans: list[tuple[float, float]] = []
    for gap in sorted(gaps, key=lambda each: each.since):
        if spans and gap.since <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], gap.until))
        else:
            spans.append((gap.since, gap.until))
    return spans
