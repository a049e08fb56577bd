"""Events from a program to a broker: ours beside Celery's ``EventDispatcher``.

Time counts from the first ``send`` until the broker has everything: ours waits for its
confirmations, Celery's asks for none on RabbitMQ. Nobody is subscribed, so that only the sender is
measured.
"""

import json
import sys
from time import perf_counter
from uuid import uuid4

from benchmarks import brokers
from benchmarks.report import Row

EVENTS = {"single": 30_000, "multi": 120_000}


def run() -> dict[str, Row]:
    """Measure all rows, both sides in turn."""
    return brokers.measure_rows(_measure, ("ours", "peer"))


def _measure(side: str, url: str, kind: str) -> float:
    return brokers.Side("dispatch", side, url, kind).rate()


# -- one side, in its own process


def _ours(url: str, kind: str) -> float:
    from celeriac import Celeriac  # noqa: PLC0415 - neither side loads the other

    app = Celeriac(url, environ={})
    gathered = {"task"} if kind == "multi" else None
    with app.events.Dispatcher(hostname="w@benchmark", buffer_group=gathered) as dispatcher:
        dispatcher.send("worker-online", freq=2.0)
        dispatcher.flush(timeout=10)
        begun = perf_counter()
        for uuid in _uuids(kind):
            dispatcher.send("task-succeeded", uuid=uuid, result="'42'", runtime=0.25)
        if dispatcher.flush(timeout=60) or dispatcher.dropped:
            raise SystemExit("events were lost")
        return EVENTS[kind] / (perf_counter() - begun)


def _peer(url: str, kind: str) -> float:
    from celery import Celery  # noqa: PLC0415

    app = Celery(broker=url)
    gathered = {"task"} if kind == "multi" else None
    with (
        app.connection_for_write() as connection,
        app.events.Dispatcher(connection, hostname="w@benchmark", buffer_group=gathered) as dispatcher,
    ):
        dispatcher.send("worker-online", freq=2.0)
        begun = perf_counter()
        for uuid in _uuids(kind):
            dispatcher.send("task-succeeded", uuid=uuid, result="'42'", runtime=0.25)
        dispatcher.flush()
        return EVENTS[kind] / (perf_counter() - begun)


def _uuids(kind: str) -> list[str]:
    # Few and repeated: to make them is no part of the work.
    some = [str(uuid4()) for _ in range(1000)]
    return [some[number % 1000] for number in range(EVENTS[kind])]


if __name__ == "__main__":
    side, url, kind = sys.argv[1:]
    print(json.dumps((_ours if side == "ours" else _peer)(url, kind)))
