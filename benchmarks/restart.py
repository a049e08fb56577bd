"""From the start of a recorder to its first event on Redis, which keeps no event for a recorder that is away.

The log has hundreds of segments and a write-ahead file that a killed recorder left. The time counts from the
start of the process until Redis has its subscription; the process is then killed. The peer is ``celery
events --dump``, which writes nothing to the disk. Both start in turn, and the median counts.
"""

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

from redis import Redis

from benchmarks import stream
from benchmarks.report import Row
from celeriac import Celeriac, Gate

RESTARTS = 7
SEGMENTS = 300
#: Groups of events in the file that was left.
GROUPS = 300
GROUP_EVENTS = 100
NAME = "one"
#: Far more than a start takes.
TIMEOUT = 60.0
_LOOK_EVERY = 0.001


def measure(url: str) -> Row:
    """Measure both sides on a Redis that nobody else uses."""
    with TemporaryDirectory() as folder, Redis.from_url(url) as client:
        log = str(Path(folder) / "log")
        subprocess.run([sys.executable, "-m", "benchmarks.restart", log], check=True)
        commands = {
            "ours": ["celeriac", "record", log, "--name", NAME, "--broker", url],
            "peer": ["celery", "--broker", url, "events", "--dump"],
        }
        times: dict[str, list[float]] = {side: [] for side in commands}
        for turn in range(1, RESTARTS + 1):
            for side, command in commands.items():
                span = _until_subscribed([sys.executable, "-m", *command], client)
                times[side].append(span)
                print(
                    f"· restart {turn} of {RESTARTS}: {side:<5} {span:>6.3f} s", file=sys.stderr, flush=True
                )
    ours, peer = (median(times[side]) * 1000 for side in ("ours", "peer"))
    return Row(ours, peer, unit="ms", lower_is_better=True)


def _until_subscribed(command: list[str], client: Redis) -> float:
    """Start a process, and kill it once it has subscribed; return after how many seconds it had."""
    begun = perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while not client.pubsub_numpat():
                if process.poll() is not None or perf_counter() > begun + TIMEOUT:
                    raise SystemExit(f"{command} did not subscribe")
                sleep(_LOOK_EVERY)
            span = perf_counter() - begun
        finally:
            process.kill()
    while client.pubsub_numpat():
        sleep(_LOOK_EVERY)
    return span


def _leave_log(folder: str) -> None:
    """Write a log, and end as a recorder that is killed."""
    gate = Gate()
    bodies = stream.bodies()
    app = Celeriac("memory://", log_url=folder, log_recorder=NAME, log_segment_age=0.001, environ={})
    writer = app.history.writer()
    writer.open()
    for number in range(SEGMENTS + GROUPS):
        events = [event for _ in range(GROUP_EVENTS) for event in gate.decode(next(bodies), 1.0)]
        writer.append(events)
        writer.sync()
        if number < SEGMENTS:
            writer.tick()
    os._exit(0)


if __name__ == "__main__":
    _leave_log(sys.argv[1])
