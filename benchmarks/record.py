"""Events from a broker to the disk, and back: ours beside Celery's receiver that writes JSON lines with gzip.

The whole load waits at the broker: on RabbitMQ in the queue of the recorder, on Redis in the socket of
one that subscribed and was made to wait. Then the time counts until everything is sealed and on the disk.
Each side has one core to itself; the broker has the others.

Ours decodes, masks secrets, writes ahead, syncs, acknowledges, and seals into Parquet. The peer decodes
with kombu, and writes a line to a gzip file, which is synced once at the end. Then both read back all that
they wrote: ours as the records that a State takes, in batches; the peer as dicts. At last both read it into
a state. How long a restart takes on Redis is measured by :mod:`benchmarks.restart`.
"""

import gzip
import json
import logging
import os
import sys
from dataclasses import astuple, dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from benchmarks import brokers, restart, stream
from benchmarks.report import Row
from benchmarks.report import show as show_rows
from celeriac.config import Settings
from celeriac.transport.base import Connection
from celeriac.transport.connect import connect
from celeriac.wire.names import event_exchange

EVENTS = 480_000
MARKER = b'{"type": "cluster-marker", "hostname": "benchmark", "timestamp": 1, "clock": 1}'
ROWS = ("redis_multi", "amqp_multi")
#: The goals are of a core, whatever the machine has.
CORE = 0


@dataclass(frozen=True)
class Measured:
    """What one side did in one turn."""

    events_per_s: float
    bytes_per_event: float
    replay_per_s: float
    state_per_s: float


def run() -> dict[str, Row]:
    """Measure both sides on both brokers, in turn."""
    best: dict[str, dict[str, Measured]] = {row: {} for row in ROWS}
    with brokers.broker_urls() as urls:
        restarted = restart.measure(urls["redis"])
        for turn in range(1, brokers.TURNS + 1):
            for row in ROWS:
                for side in ("ours", "peer"):
                    measured = _measure(side, urls[row.partition("_")[0]])
                    _tell(turn, row, side, measured)
                    best[row][side] = _better(best[row].get(side), measured)
    rows: dict[str, Row] = {"redis_restart": restarted}
    for row, sides in best.items():
        ours, peer = sides["ours"], sides["peer"]
        rows[f"{row}_record"] = Row(ours.events_per_s, peer.events_per_s, unit="events/s")
        rows[f"{row}_bytes"] = Row(
            ours.bytes_per_event, peer.bytes_per_event, unit="bytes/event", lower_is_better=True
        )
        rows[f"{row}_replay"] = Row(ours.replay_per_s, peer.replay_per_s, unit="events/s")
        rows[f"{row}_state"] = Row(ours.state_per_s, peer.state_per_s, unit="events/s")
    return rows


def show(name: str, rows: dict[str, Row]) -> None:
    """Print the table and the line of JSON, with the figures that the goals are about."""
    show_rows(
        name,
        rows,
        events_per_s=round(min(rows[f"{row}_record"].ours for row in ROWS)),
        bytes_per_event=round(max(rows[f"{row}_bytes"].ours for row in ROWS), 1),
        replay_per_s=round(min(rows[f"{row}_replay"].ours for row in ROWS)),
        restart_ms=round(rows["redis_restart"].ours),
    )


def _better(one: Measured | None, other: Measured) -> Measured:
    if one is None:
        return other
    return Measured(
        max(one.events_per_s, other.events_per_s),
        max(one.bytes_per_event, other.bytes_per_event),
        max(one.replay_per_s, other.replay_per_s),
        max(one.state_per_s, other.state_per_s),
    )


def _tell(turn: int, row: str, side: str, measured: Measured) -> None:
    told = (
        f"· turn {turn} of {brokers.TURNS}: {row:<12} {side:<5} {measured.events_per_s:>10,.0f} events/s"
        f" {measured.bytes_per_event:>7.1f} bytes {measured.replay_per_s:>10,.0f} replayed/s"
        f" {measured.state_per_s:>10,.0f} into a state"
    )
    print(told, file=sys.stderr, flush=True)


def _measure(side: str, url: str) -> Measured:
    process = brokers.Side("record", side, url, str(EVENTS))
    with connect(Settings(broker_url=url)) as link:
        while not process.has_said("begun", within=0.2):  # markers before the subscription are lost
            _publish(link, [MARKER])
        if not process.has_said("ready", within=60):
            raise SystemExit(f"{side} did not get ready")
        _publish(link, _load())
    process.tell("go")
    return Measured(*process.answer())


def _publish(link: Connection, bodies: list[bytes]) -> None:
    exchange = event_exchange("celeryev", link.driver)
    for body in bodies:
        link.publish(exchange, body, routing_key="task.multi", headers={"hostname": "benchmark"})
    if link.unconfirmed(120):
        raise SystemExit("the broker did not take the load")


def _load() -> list[bytes]:
    bodies = stream.bodies()
    size = brokers.BATCH
    return [b"[%b]" % b",".join(islice(bodies, size)) for _ in range(EVENTS // size)]


# -- one side, in its own process


def _wait_for_the_load() -> None:
    """Let the markers end, and then begin when everything waits at the broker."""
    print("begun", flush=True)
    print("ready", flush=True)
    sys.stdin.readline()


def _ours(url: str, folder: Path, events: int) -> Measured:
    from celeriac import Celeriac, State  # noqa: PLC0415 - neither side loads the other
    from celeriac.node.recorder import Progress  # noqa: PLC0415
    from celeriac.store.columns import to_events  # noqa: PLC0415

    # The whole load is sent at once, as no cluster does: on Redis nothing holds it back.
    app = Celeriac(url, log_url=str(folder), log_pending_limit=2 * events, environ={})
    begun_at = 0.0

    def wait_once(progress: Progress) -> None:
        nonlocal begun_at
        if progress.recorded and not begun_at:
            _wait_for_the_load()
            begun_at = perf_counter()

    recorder = app.history.Recorder(on_turn=wait_once)
    recorder.run(limit=events)
    recorded_per_s = events / (perf_counter() - begun_at)
    size = sum(file.stat().st_size for file in folder.rglob("*.parquet"))
    recorded = recorder.progress.recorded
    begun = perf_counter()
    read = sum(len(to_events(batch)) for batch in app.history.log().batches())
    replayed_per_s = read / (perf_counter() - begun)
    if read != recorded or read < events:
        raise SystemExit(f"{read} events were read of {recorded} that were recorded")
    begun = perf_counter()
    state: State = app.history.replay().run()
    state_per_s = state.event_count / (perf_counter() - begun)
    return Measured(recorded_per_s, size / read, replayed_per_s, state_per_s)


def _peer(url: str, folder: Path, events: int) -> Measured:
    from celery import Celery  # noqa: PLC0415

    app = Celery(broker=url)
    app.conf.event_queue_ttl = 600.0
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "events.jsonl.gz"
    begun_at, left = 0.0, events
    with path.open("wb") as raw, gzip.open(raw, "wt", encoding="utf-8") as file:

        def write(event: dict[str, Any]) -> None:
            nonlocal begun_at, left
            if event["type"] == "cluster-marker":
                if not begun_at:
                    _wait_for_the_load()
                    begun_at = perf_counter()
                return
            file.write(json.dumps(event) + "\n")
            left -= 1
            receiver.should_stop = left <= 0

        with app.connection() as connection:
            receiver = app.events.Receiver(connection, handlers={"*": write})
            receiver.capture(limit=None, timeout=60, wakeup=False)
        file.close()
        os.fsync(raw.fileno())
    recorded_per_s = events / (perf_counter() - begun_at)
    begun = perf_counter()
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        read = sum(1 for line in lines if json.loads(line))
    replayed_per_s = read / (perf_counter() - begun)
    begun = perf_counter()
    state = app.events.State()
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            state.event(json.loads(line))
    return Measured(
        recorded_per_s, path.stat().st_size / read, replayed_per_s, read / (perf_counter() - begun)
    )


if __name__ == "__main__":
    side, url, events = sys.argv[1:]
    logging.disable()  # both warn of the stream's times, which are long past
    os.sched_setaffinity(0, {CORE})
    with TemporaryDirectory() as folder:
        measured = {"ours": _ours, "peer": _peer}[side](url, Path(folder) / "log", int(events))
    print(json.dumps(astuple(measured)))
