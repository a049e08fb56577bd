"""Events to cluster state: ours beside Celery's ``State``, on the same stream.

Every measurement runs in a process of its own, so that neither side's objects
weigh on the other's garbage collector, and the two sides take turns. Events are
made in chunks outside the timed part. Both sides start from what a socket gives
(bytes) or a decoder gives (dicts), and for every twenty events read the state of one
task, inside the timed part.
"""

import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

from benchmarks import stream
from benchmarks.report import Row

CHUNK = 20_000
SMALL_TASKS, SMALL_EVENTS, SMALL_TURNS = 10_000, 200_000, 5
LARGE_TASKS, LARGE_EVENTS = 1_000_000, 200_000
#: The large state may hold a quarter more than it does. At its limit Celery drops the first entry
#: of a list of four million for every event, and one window did not end within minutes.
HEADROOM = 1.25
EVENTS_PER_TASK = 4.4
SHUFFLE_WINDOW = 1000

Chunk = list[Any]
Feed = Callable[[Chunk, float], None]


def run() -> dict[str, Row]:
    """Measure all rows, both sides in turn."""
    measured: dict[str, dict[str, list[float]]] = {}
    turns = ["small"] * SMALL_TURNS + ["large"]
    for number, size in enumerate(turns, 1):
        for side in ("ours", "peer"):
            print(f"· turn {number} of {len(turns)}: {size} state, {side}", file=sys.stderr, flush=True)
            for row, figure in _measure(side, size).items():
                print(f"  {row:<20} {figure:>12,.0f}", file=sys.stderr, flush=True)
                measured.setdefault(row, {}).setdefault(side, []).append(figure)
    return {
        row: Row(
            # The best turn of each side: a busy machine only ever makes a turn slower.
            max(figures["ours"]),
            max(figures["peer"]),
            unit="bytes a task" if row.startswith("memory") else "events/s",
            lower_is_better=row.startswith("memory"),
        )
        for row, figures in measured.items()
    }


def _measure(side: str, size: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.fold", side, size]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


# -- one side, in its own process


def _ours(max_tasks: int) -> tuple[Any, Feed, Feed]:
    from celeriac import State  # noqa: PLC0415 - neither side loads the other

    state = State(max_tasks_in_memory=max_tasks)

    def feed_bytes(bodies: Chunk, received_at: float) -> None:
        for body in bodies:
            received_at += stream.GAP
            state.receive(body, received_at)

    return state, feed_bytes, _feeder(state.event)


def _peer(max_tasks: int) -> tuple[Any, Feed, Feed]:
    from celery.events.state import State  # noqa: PLC0415
    from kombu.utils.json import loads  # noqa: PLC0415 - what its receiver decodes with

    state = State(max_tasks_in_memory=max_tasks)

    def feed_bytes(bodies: Chunk, received_at: float) -> None:
        for body in bodies:
            event = loads(body)
            received_at += stream.GAP
            event["local_received"] = received_at
            state.event(event)

    return state, feed_bytes, _feeder(state.event)


def _feeder(receive: Callable[[Any], object]) -> Feed:
    def feed_dicts(events: Chunk, received_at: float) -> None:
        for event in events:
            received_at += stream.GAP
            event["local_received"] = received_at
            receive(event)

    return feed_dicts


SIDES = {"ours": _ours, "peer": _peer}


def _rate(state: Any, feed: Feed, chunks: Iterable[tuple[Chunk, float]]) -> float:
    """Return events a second, reading the state of one task for every twenty events included."""
    seconds, events = 0.0, 0
    for chunk, received_at in chunks:
        events += len(chunk)
        looked_at = [uuid for body in chunk[::20] if (uuid := _uuid(body))]
        begun = perf_counter()
        feed(chunk, received_at)
        for uuid in looked_at:
            if (task := state.tasks.get(uuid)) is not None:
                task.state  # noqa: B018 - to read it is the work
        seconds += perf_counter() - begun
    return events / seconds


def _uuid(body: Any) -> str | None:
    event = body if isinstance(body, dict) else json.loads(body)
    uuid: str | None = event.get("uuid")
    return uuid


class Source:
    """The stream, in chunks and the moments they arrive."""

    def __init__(self) -> None:
        self._bodies = stream.bodies()
        self._taken = 0

    def chunks(self, events: int) -> Iterator[tuple[Chunk, float]]:
        """Yield bodies in the order of sending."""
        for _ in range(0, events, CHUNK):
            moment = stream.BEGIN + self._taken * stream.GAP
            self._taken += CHUNK
            yield list(islice(self._bodies, CHUNK)), moment

    def dicts(self, events: int) -> Iterator[tuple[Chunk, float]]:
        """Yield dicts, decoded one by one, so that no two share a text."""
        for chunk, moment in self.chunks(events):
            yield [json.loads(body) for body in chunk], moment

    def shuffled(self, events: int) -> Iterator[tuple[Chunk, float]]:
        """Yield bodies shuffled in windows."""
        random = Random(7)
        for chunk, moment in self.chunks(events):
            windows = [chunk[at : at + SHUFFLE_WINDOW] for at in range(0, len(chunk), SHUFFLE_WINDOW)]
            for window in windows:
                random.shuffle(window)
            yield [body for window in windows for body in window], moment


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def _small(side: str) -> dict[str, float]:
    def measure(dressed: str, *, as_dicts: bool = False) -> float:
        state, feed_bytes, feed_dicts = SIDES[side](SMALL_TASKS)
        chunks = getattr(Source(), dressed)(SMALL_EVENTS)
        return _rate(state, feed_dicts if as_dicts else feed_bytes, chunks)

    return {
        "bytes_10k": measure("chunks"),
        "dict_10k": measure("dicts", as_dicts=True),
        "bytes_10k_shuffled": measure("shuffled"),
    }


def _large(side: str) -> dict[str, float]:
    state, feed_bytes, feed_dicts = SIDES[side](int(LARGE_TASKS * HEADROOM))
    source = Source()
    gc.collect()
    before = _resident_bytes()
    for chunk, moment in source.dicts(int(LARGE_TASKS * EVENTS_PER_TASK)):
        feed_dicts(chunk, moment)
    by_bytes = _rate(state, feed_bytes, source.chunks(LARGE_EVENTS))
    by_dicts = _rate(state, feed_dicts, source.dicts(LARGE_EVENTS))
    gc.collect()
    print(f"  {side}: {len(state.tasks):,} tasks in memory", file=sys.stderr, flush=True)
    memory = (_resident_bytes() - before) / len(state.tasks)
    return {"bytes_1m": by_bytes, "dict_1m": by_dicts, "memory_1m": memory}


if __name__ == "__main__":
    side, size = sys.argv[1:]
    print(json.dumps((_small if size == "small" else _large)(side)))
