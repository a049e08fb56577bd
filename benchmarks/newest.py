"""The newest tasks of a state while events come in: ours beside Celery's ``State``, on the same events.

Every measurement runs in a process of its own. Celery sorts at every event; ours takes in the tasks that
changed when the list is read. So the list alone is measured, and the events with their lists.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import count, islice
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks import stream
from benchmarks.report import Row

SIZES = {"10k": 10_000, "1m": 1_000_000}
#: The state may hold a quarter more than it does: at its limit Celery's fold slows to a crawl; see ``fold``.
HEADROOM = 1.25
LIMIT = 10
#: How often a list is read, after so many events each.
LISTS, EVENTS_PER_LIST = 1000, 20
#: What a monitor does: thousands of events a second, and a list once a second.
SECONDS, EVENTS_PER_SECOND = 20, 5000


def run() -> dict[str, Row]:
    """Measure all rows, both sides in turn."""
    rows = {}
    for size in SIZES:
        figures = {}
        for side in ("ours", "peer"):
            print(f"· {size} tasks, {side}", file=sys.stderr, flush=True)
            figures[side] = _measure(side, size)
        ours, peer = figures["ours"], figures["peer"]
        rows[f"list_{size}"] = Row(ours["list"], peer["list"], unit="µs a list", lower_is_better=True)
        rows[f"watch_{size}"] = Row(ours["watch"], peer["watch"], unit="events/s")
    return rows


def _measure(side: str, size: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.newest", side, size]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


# -- one side, in its own process


def _state(side: str, tasks: int) -> Any:
    module = import_module("celeriac" if side == "ours" else "celery.events.state")
    return module.State(max_tasks_in_memory=int(tasks * HEADROOM))


def _events(first: int, subjects: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield these events of one task after the other."""
    for number in count(first):
        for step, subject in enumerate(subjects):
            at = stream.BEGIN + (number + step / len(subjects)) * stream.GAP
            yield {
                "type": f"task-{subject}",
                "uuid": f"{number:032x}",
                "hostname": f"celery@web{number % 10}",
                "pid": 1,
                "clock": 1 + number * len(subjects) + step,
                "timestamp": at,
                "local_received": at,
                "name": "shop.pay",
            }


def _figures(side: str, tasks: int) -> dict[str, float]:
    state = _state(side, tasks)
    # One event each: with all of them Celery takes six gigabytes for a million tasks.
    for event in islice(_events(0, ["received"]), tasks):
        state.event(event)
    events = _events(tasks, ["received", "started", "succeeded"])
    list(state.tasks_by_time(limit=LIMIT))  # the first one of ours looks at every task
    lists, seconds = [], []
    for _ in range(LISTS):
        for event in islice(events, EVENTS_PER_LIST):
            state.event(event)
        begun = perf_counter()
        list(state.tasks_by_time(limit=LIMIT))
        lists.append(perf_counter() - begun)
    for _ in range(SECONDS):
        chunk = list(islice(events, EVENTS_PER_SECOND))
        begun = perf_counter()
        for event in chunk:
            state.event(event)
        list(state.tasks_by_time(limit=LIMIT))
        seconds.append(perf_counter() - begun)
    # A busy machine only ever makes a turn slower.
    return {"list": median(lists) * 1e6, "watch": EVENTS_PER_SECOND / min(seconds)}


if __name__ == "__main__":
    side, size = sys.argv[1:]
    print(json.dumps(_figures(side, SIZES[size])))
