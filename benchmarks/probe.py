"""One worker, asked whether it works: ``celeriac probe`` and ``celery inspect ping -d``.

Each call is a new process, as Kubernetes makes one for each probe; both come in turns. What counts is the CPU
of a call, by the account of the system: a probe takes it from the worker, for as long as that
lives. Ours asks for more: whether the worker is seen, answers and consumes.
"""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.report import Row
from celeriac.testing.brokers import RabbitServer, RedisServer
from celeriac.testing.peers import CeleryWorker

#: Calls of each side to each broker, after one that is not counted.
CALLS = 20
BROKERS = {"redis": RedisServer, "rabbitmq": RabbitServer}
_NAME = "probed@localhost"
_ROOT = Path(__file__).parents[1]


def run() -> dict[str, Row]:
    """Measure both brokers, both sides in turn."""
    rows: dict[str, Row] = {}
    with ExitStack() as stack:
        for broker, server in BROKERS.items():
            url = stack.enter_context(server()).url
            stack.enter_context(CeleryWorker(sys.executable, "benchmarks.tasks", url=url, hostname=_NAME))
            commands = {
                "ours": ["-m", "celeriac", "probe", "-d", _NAME, "-b", url],
                "peer": ["-m", "celery", "-b", url, "inspect", "ping", "-d", _NAME, "-t", "5"],
            }
            taken: dict[str, list[tuple[float, float]]] = {side: [] for side in commands}
            for turn in range(CALLS + 1):
                for side, arguments in commands.items():
                    figures = _call(arguments)
                    if turn:
                        taken[side].append(figures)
            for kind, unit in enumerate(("cpu", "time")):
                ours, peer = (median(each[kind] for each in taken[side]) for side in ("ours", "peer"))
                rows[f"{broker}_{unit}"] = Row(ours, peer, "ms a call", lower_is_better=True)
            print(f"· {broker}: {CALLS} calls of each side", file=sys.stderr, flush=True)
    return rows


def _call(arguments: list[str]) -> tuple[float, float]:
    """Return the milliseconds of CPU and of time that a call takes."""
    begin = perf_counter()
    process = subprocess.Popen(  # our own commands
        [sys.executable, *arguments], cwd=_ROOT, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    elapsed = perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(arguments)} ended with {process.returncode}")
    return (usage.ru_utime + usage.ru_stime) * 1000, elapsed * 1000
