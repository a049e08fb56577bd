"""The place of ``task-sent`` among the events of its task: our client beside Celery's.

One worker of ours publishes task events, one receiver of ours records them, on each broker. A client that
stays sends all tasks from one process; one-shot clients send one task each and end. A receiver stamps
``task-sent`` when it arrives, so a late one seems to follow the worker's events.
"""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Final
from uuid import uuid4

from benchmarks.brokers import broker_urls
from benchmarks.no_op import NAME
from celeriac import Celeriac
from celeriac.core.order import display_key
from celeriac.model.events import TaskEvent
from celeriac.testing.peers import CeleriacWorker

TASKS: Final = 50
#: Seconds between two tasks of a client that stays, so that each finds an idle worker.
_PAUSE: Final = 0.05
_TIMEOUT: Final = 120.0
_APP: Final = Path(__file__).parent / "no_op.py"
_SENT, _LAST = "task-sent", "task-succeeded"

#: By column, a number of tasks.
Counts = dict[str, int]


def run() -> dict[str, dict[str, Counts]]:
    """Measure both kinds of client of both sides, on both brokers: counts by client and side."""
    rows = {}
    with broker_urls() as urls:
        for broker, url in urls.items():
            with CeleriacWorker(_APP, url=url, backend="rpc://", events=True):
                for kind in ("staying", "one_shot"):
                    rows[f"{broker}_{kind}"] = {
                        side: _measure(side, url, kind) for side in ("ours", "celery")
                    }
    return rows


def show(name: str, rows: dict[str, dict[str, Counts]]) -> None:
    """Print the table, and the line of JSON."""
    columns = next(iter(rows.values()))["ours"]
    print(
        f"\nof {TASKS} tasks, task-sent is\n{'client':<15}  {'side':<6}", *(f"{each:>24}" for each in columns)
    )
    for client, sides in rows.items():
        for side, counts in sides.items():
            print(f"{client:<15}  {side:<6}", *(f"{count:>24}" for count in counts.values()))
    print(json.dumps({"bench": name, "tasks": TASKS, "rows": rows}))


def _measure(side: str, url: str, kind: str) -> Counts:
    """Return how many tasks have ``task-sent`` first, by arrival and in display order, or after their end."""
    ids = [str(uuid4()) for _ in range(TASKS)]
    events: defaultdict[str, list[TaskEvent]] = defaultdict(list)
    app = Celeriac(url, environ={})
    receiver = app.events.Receiver(handlers={"*": lambda event: _record(events, event)})
    thread = Thread(target=receiver.capture, daemon=True)
    thread.start()
    _wait(lambda: receiver.is_subscribed)
    for batch in [ids] if kind == "staying" else [[task_id] for task_id in ids]:
        command = [sys.executable, "-m", "benchmarks.sent", side, url, *batch]
        subprocess.run(command, check=True, timeout=_TIMEOUT)
    _wait(lambda: all({_SENT, _LAST} <= {event.type for event in events[task_id]} for task_id in ids))
    receiver.stop()
    thread.join()
    receiver.close()
    app.close()
    types = [[event.type for event in events[task_id]] for task_id in ids]
    counts = {
        "first by arrival": sum(each[0] == _SENT for each in types),
        "first in display order": sum(min(events[task_id], key=display_key).type == _SENT for task_id in ids),
        f"after {_LAST}": sum(each.index(_SENT) > each.index(_LAST) for each in types),
    }
    print(f"· {url.partition(':')[0]:<5} {kind:<8} {side:<6} {counts}", file=sys.stderr, flush=True)
    return counts


def _record(events: defaultdict[str, list[TaskEvent]], event: object) -> None:
    if isinstance(event, TaskEvent):
        events[event.uuid].append(event)


def _wait(condition: Callable[[], bool]) -> None:
    until = monotonic() + _TIMEOUT
    while not condition():
        if monotonic() > until:
            raise SystemExit("not all events arrived")
        sleep(0.01)


def send(side: str, url: str, ids: list[str]) -> None:
    """Send a task for each id, one after the other, and end without closing anything."""
    if side == "ours":
        client = Celeriac(url, environ={}, task_send_sent_event=True)
    else:
        from celery import Celery  # noqa: PLC0415 - only the side that is measured is loaded

        client = Celery(broker=url, set_as_current=False)
        client.conf.task_send_sent_event = True
    for task_id in ids:
        client.send_task(NAME, task_id=task_id)
        if len(ids) > 1:
            sleep(_PAUSE)


if __name__ == "__main__":
    send(sys.argv[1], sys.argv[2], sys.argv[3:])
