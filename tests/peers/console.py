"""A client and a monitor of a real Celery, told what to do line by line.

Reads one JSON object a line, as ``{"do": "ping", "timeout": 1}``, and answers with one:
``{"answer": …}`` or ``{"error": …}``. Ends when its input does. Imports nothing but Celery and
the standard library; broker and backend are those of ``app.py`` beside it.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from threading import Event, Thread
from time import sleep
from typing import Any

from celery.events.receiver import EventReceiver
from celery.events.state import State

peers = import_module("app")
app = peers.app

#: What a monitor shows of a task, and of a worker.
TASK = (
    "uuid", "name", "state", "sent", "received", "started", "succeeded", "failed", "retried", "revoked",
    "rejected", "args", "kwargs", "retries", "result", "exception", "runtime", "clock", "root_id",
    "parent_id",
)  # fmt: skip
WORKER = (
    "hostname", "pid", "freq", "alive", "active", "processed", "clock", "sw_ident", "sw_ver", "sw_sys",
)  # fmt: skip


class Monitor:
    """A receiver and a state, running."""

    def __init__(self) -> None:
        self.state = State()
        self.types: Counter[str] = Counter()
        self.errors: list[str] = []
        self._hears = Event()
        Thread(target=self._capture, daemon=True).start()
        # On Redis a receiver subscribes some time after it began to capture: only what it hears tells.
        with app.connection_for_write() as connection:
            probe = app.events.Dispatcher(connection)
            while not self._hears.is_set() and not self.errors:
                probe.send("console-probe")
                self._hears.wait(0.05)

    def _capture(self) -> None:
        try:
            with app.connection_for_read() as connection:
                receiver: Any = EventReceiver(connection, app=app, handlers={"*": self._receive})
                receiver.capture(limit=None, timeout=None, wakeup=True)
        except Exception as error:  # noqa: BLE001 - the test is to see it
            self.errors.append(repr(error))

    def _receive(self, event: dict[str, Any]) -> None:
        self._hears.set()
        if event["type"] == "console-probe":
            return
        self.types[event["type"]] += 1
        try:
            self.state.event(event)
        except Exception as error:  # noqa: BLE001 - the test is to see it
            self.errors.append(repr(error))

    def show(self) -> dict[str, Any]:
        return self.state.freeze_while(self._show)  # type: ignore[no-any-return]

    def _show(self) -> dict[str, Any]:
        return {
            "types": self.types,
            "errors": self.errors,
            "tasks": {
                uuid: {name: getattr(task, name, None) for name in TASK}
                | {
                    "worker": task.worker and task.worker.hostname,
                    "client": getattr(task, "client", None),
                    "children": sorted(child.uuid for child in task.children),
                }
                for uuid, task in self.state.tasks.items()
            },
            "workers": {
                hostname: {name: getattr(worker, name, None) for name in WORKER}
                for hostname, worker in self.state.workers.items()
            },
        }


monitors: list[Monitor] = []


def watch() -> None:
    """Begin to watch; on return every event is heard."""
    monitors.append(Monitor())


def show() -> dict[str, Any]:
    """Tell what the monitor knows."""
    return monitors[-1].show()


def send(name: str, args: list[Any], **options: Any) -> str:
    """Send one task, and return its id."""
    return str(app.send_task(name, args, **options).id)


def mixed_load() -> dict[str, list[str]]:
    """Send tasks that end in every way there is; return their ids by what becomes of them."""
    chained = peers.a_chain(3).delay()
    chorded = peers.a_chord(4).delay()
    results = {
        "succeeds": [peers.add.delay(2, 2)],
        "fails": [peers.fail.delay()],
        "is retried": [peers.retry_then_succeed.delay() for _ in range(3)],
        "is rejected": [peers.reject.delay()],
        "is ignored": [peers.ignore.delay()],
        "tells of itself": [peers.send_custom_event.delay(3)],
        "is unknown": [app.send_task("peers.nobody_has_it")],
        "expires": [peers.add.apply_async((1, 1), countdown=1.0, expires=0.5)],
        "is revoked": [peers.add.apply_async((1, 1), countdown=1.0)],
        "is terminated": [peers.sleep_for.delay(600)],
        "chain": [chained, chained.parent, chained.parent.parent],
        "chord": [chorded, *chorded.parent.results],
    }
    ids = {fate: [str(result.id) for result in of_fate] for fate, of_fate in results.items()}
    app.control.revoke(ids["is revoked"])
    while states(ids["is terminated"]) != ["STARTED"]:
        sleep(0.02)
    app.control.revoke(ids["is terminated"], terminate=True)
    return ids


def chords() -> dict[str, list[str]]:
    """Send a chord within a chain and one by itself; return the ids of their bodies and of their headers."""
    # The end of the chain, then its body, and the group before that.
    chained = peers.a_chord_in_a_chain(3).delay().parent
    alone = peers.a_chord(3).delay()
    return {
        "chained": [str(each.id) for each in (chained, *chained.parent.results)],
        "alone": [str(each.id) for each in (alone, *alone.parent.results)],
    }


def states(ids: list[str]) -> list[str]:
    """Return what the result backend says of tasks."""
    return [app.backend.get_task_meta(id_, cache=False)["status"] for id_ in ids]


def ping(**options: Any) -> Any:
    """Return who answers."""
    return app.control.ping(**options)


def inspect(method: str, args: list[Any] | None = None, **options: Any) -> Any:
    """Return what nodes say of themselves."""
    return getattr(app.control.inspect(**options), method)(*(args or []))


def broadcast(command: str, **options: Any) -> Any:
    """Send any command."""
    return app.control.broadcast(command, **options)


COMMANDS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (watch, show, send, mixed_load, chords, states, ping, inspect, broadcast)
}


def main() -> None:
    """Do what each line says."""
    for line in sys.stdin:
        arguments = json.loads(line)
        try:
            reply = {"answer": COMMANDS[arguments.pop("do")](**arguments)}
        except Exception as error:  # noqa: BLE001 - whoever asked is to see it
            reply = {"error": repr(error)}
        print(json.dumps(reply, default=str), flush=True)


if __name__ == "__main__":
    main()
