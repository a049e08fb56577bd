"""The dashboard beside Flower: what it costs to follow a cluster, and how quickly the list of tasks comes.

Both are programs of their own, on a Redis of their own, and take the same events. CPU is what a program used
from the first event to the last, memory what it grew by, and the list is asked for over HTTP as its own page
does, 100 tasks of all that are there. All tasks are asked for as programs do: of Flower in one answer, as it
gives them unless told otherwise; of ours in pages of a thousand, the most it gives.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from time import perf_counter, sleep
from typing import Any
from urllib.parse import urlencode

import httpx
import psutil

from benchmarks import stream
from benchmarks.report import Row
from benchmarks.report import show as show_rows
from celeriac.config import Settings
from celeriac.programs.port import ReservedPort
from celeriac.testing.brokers import RedisServer
from celeriac.transport.connect import connect
from celeriac.wire.names import event_exchange

EVENTS = 100_000
#: Tasks in the list, and how many events make so many of them.
LISTED = 10_000
#: Takes Flower some twenty minutes and ten GB; CELERIAC_BENCH_MILLION=none leaves it out.
MILLION = 1_000_000
TURNS = 7
#: A list takes milliseconds, and an interpreter runs more quickly what it has run often. Each side has these
#: turns, or as many as fit into so many seconds, and three at least.
LIST_TURNS, LIST_SECONDS = 50, 20.0
#: Fits no task, so all of them are looked at.
_IN_VAIN = "/api/v1/tasks?text=nowhere+to+be+found"
PATIENCE = 3600.0
_PEER = Path(".peers/celery57/bin/celery")

Figures = dict[str, float]


def run() -> tuple[dict[str, Row], Figures]:
    """Measure both sides in turn."""
    ours, peer = _measure("ours"), _measure("flower")
    rows = {
        "cpu": Row(ours["cpu"], peer["cpu"], "CPU ms for 100,000 events", lower_is_better=True),
        "memory": Row(ours["bytes_per_task"], peer["bytes_per_task"], "bytes a task", lower_is_better=True),
        **_list_rows("10k", ours, peer),
        "list_api_10k": Row(ours["all_us"], peer["all_us"], "µs until all 10,000 came", lower_is_better=True),
    }
    more = {"ours_rss_mib": ours["rss_mib"], "flower_rss_mib": peer["rss_mib"]}
    if os.environ.get("CELERIAC_BENCH_MILLION") != "none":
        ours, peer = _measure_million("ours"), _measure_million("flower")
        rows |= _list_rows("1m", ours, peer)
        more |= {"ours_1m_rss_mib": ours["rss_mib"], "flower_1m_rss_mib": peer["rss_mib"]}
        more |= {"ours_1m_search_us": ours["search_us"], "ours_1m_beside_us": ours["beside_us"]}
    return rows, more


def _list_rows(size: str, ours: Figures, peer: Figures) -> dict[str, Row]:
    first = Row(ours["first_byte_us"], peer["first_byte_us"], "µs until the first byte", lower_is_better=True)
    whole = Row(ours["list_us"], peer["list_us"], "µs until 100 tasks came", lower_is_better=True)
    return {f"list_{size}": whole, f"list_{size}_first_byte": first}


def show(name: str, measured: tuple[dict[str, Row], Figures]) -> None:
    """Print the rows, and what else was measured."""
    rows, more = measured
    show_rows(name, rows, **{label: round(value, 1) for label, value in more.items()})


def _measure(side: str) -> Figures:
    _tell(f"{side}: {EVENTS:,} events")
    with _watched(side) as (url, process, _):
        before, rss = _cpu(process), _rss(process)
        tasks = _publish(url, EVENTS)
        _rest(process)
        figures = {
            "cpu": (_cpu(process) - before) * 1000,
            "bytes_per_task": (_rss(process) - rss) / tasks,
            "rss_mib": _rss(process) / 2**20,
        }
    return figures | _measure_list(side, LISTED)


def _measure_list(side: str, tasks: int) -> Figures:
    _tell(f"{side}: {tasks:,} tasks")
    with _watched(side) as (url, process, client):
        _publish(url, tasks=tasks)
        _rest(process)
        figures = _time_list(side, client)
        everything = _best(lambda: _ask_for_all(side, client, tasks))
        return figures | {"all_us": everything * 1e6}


def _measure_million(side: str) -> Figures:
    _tell(f"{side}: {MILLION:,} tasks")
    with _watched(side) as (url, process, client):
        _publish(url, tasks=MILLION)
        _rest(process)
        figures = _time_list(side, client) | {"rss_mib": _rss(process) / 2**20}
        return figures | _time_search(client) if side == "ours" else figures


def _tell(what: str) -> None:
    """Tell what is measured, for who waits."""
    print(what, file=sys.stderr, flush=True)


def _time_list(side: str, client: httpx.Client) -> Figures:
    """Return how long the list of a page takes to its first byte, and as a whole."""
    first_bytes: list[float] = []
    took: list[float] = []
    while len(took) < LIST_TURNS and (len(took) < 3 or sum(took) < LIST_SECONDS):
        begun = perf_counter()
        with client.stream("GET", _list_of(side)) as answer:
            first_bytes.append(perf_counter() - begun)
            answer.read()
        took.append(perf_counter() - begun)
        if len(_tasks_in(answer.json())) != 100:
            raise SystemExit(f"{side} listed something else: {answer.text[:200]}")
    return {"list_us": min(took) * 1e6, "first_byte_us": min(first_bytes) * 1e6}


def _time_search(client: httpx.Client) -> Figures:
    """Look through all tasks in vain, and ask for something else meanwhile."""
    took: list[float] = []
    search = Thread(target=lambda: took.append(_best(lambda: client.get(_IN_VAIN).raise_for_status(), 3)))
    search.start()
    longest = 0.0
    with httpx.Client(base_url=client.base_url, timeout=PATIENCE) as other:
        while search.is_alive():
            longest = max(longest, _best(lambda: other.get("/healthz"), 1))
    return {"search_us": took[0] * 1e6, "beside_us": longest * 1e6}


def _ask_for_all(side: str, client: httpx.Client, tasks: int) -> None:
    """Ask for every task, as a program does, and leave the reading of JSON to it but for the next page."""
    if side != "ours":
        if client.get("/api/tasks").text.count('"uuid": ') < tasks:
            raise SystemExit("Flower did not list all tasks")
        return
    listed, before = 0, ""
    while True:
        page = client.get(f"/api/v1/tasks?limit=1000{before}").json()
        listed += len(page["tasks"])
        if page["next"] is None:
            break
        before = f"&before={page['next']}"
    if listed != tasks:
        raise SystemExit(f"ours listed {listed} of {tasks} tasks")


def _best(function: Callable[[], object], turns: int = TURNS) -> float:
    took = []
    for _ in range(turns):
        begun = perf_counter()
        function()
        took.append(perf_counter() - begun)
    return min(took)


def _publish(url: str, events: int | None = None, *, tasks: int | None = None) -> int:
    """Publish so many events, or those of so many tasks; return how many tasks they are of."""
    seen: set[object] = set()
    with connect(Settings(broker_url=url)) as link:
        exchange = event_exchange("celeryev", link.driver)
        for number, event in enumerate(stream.events(), 1):
            if "uuid" in event:
                seen.add(event["uuid"])
            key = "task.any" if "uuid" in event else "worker.heartbeat"
            body = json.dumps(event).encode()
            link.publish(exchange, body, routing_key=key, headers={"hostname": "benchmark"})
            if number == events or len(seen) == tasks:
                break
        if link.unconfirmed(60):
            raise SystemExit("the broker did not take the load")
    return len(seen)


def _list_of(side: str) -> str:
    if side == "ours":
        return "/api/v1/tasks?limit=100"
    # As its page asks, which shows 15 tasks unless somebody chooses up to 100.
    columns = ["name", "uuid", "state", "received", "runtime", "worker"]
    told: dict[str, object] = {f"columns[{number}][data]": name for number, name in enumerate(columns)}
    told |= {"order[0][column]": columns.index("received"), "order[0][dir]": "desc", "search[value]": ""}
    return f"/tasks/datatable?{urlencode({**told, 'draw': 1, 'start': 0, 'length': 100})}"


def _tasks_in(answer: Any) -> list[Any]:
    tasks: list[Any] = answer.get("tasks", answer.get("data", []))
    return tasks


@contextmanager
def _watched(side: str) -> Iterator[tuple[str, psutil.Process, httpx.Client]]:
    """Have a broker, a dashboard that watches it, and something to ask that with."""
    # However late the dashboard is, the broker keeps for it what it has not read.
    settings = {"client-output-buffer-limit": "pubsub 0 0 0"}
    with RedisServer(settings) as redis, _served(side, redis.url) as (process, client):
        sleep(3.0)
        yield redis.url, process, client


@contextmanager
def _served(side: str, url: str) -> Iterator[tuple[psutil.Process, httpx.Client]]:
    """Have a dashboard that watches a broker, and something to ask it with."""
    port = ReservedPort()
    number = port.number
    port.release()
    program = str(Path(sys.executable).parent / "celeriac")
    keep = str(2 * MILLION)
    commands = {
        "ours": [program, "web", "--broker", url, "--port", str(number)],
        "flower": [str(_PEER), f"--broker={url}", "flower", f"--port={number}", "--address=127.0.0.1",
                   f"--max-tasks={keep}", "--enable-events=False", "--logging=error"],
    }  # fmt: skip
    known = {name: value for name, value in os.environ.items() if not name.startswith("CELERIAC_")}
    environment = known | {"CELERIAC_MAX_TASKS_IN_MEMORY": keep, "FLOWER_UNAUTHENTICATED_API": "true"}
    started = subprocess.Popen(
        commands[side], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{number}", timeout=PATIENCE) as client:
            _await(client)
            yield psutil.Process(started.pid), client
    finally:
        # It may have ten GB to give back, and has nothing to keep.
        started.kill()
        started.wait()


def _await(client: httpx.Client) -> None:
    deadline = perf_counter() + 60
    while perf_counter() < deadline:
        try:
            client.get("/healthz")
        except httpx.TransportError:
            sleep(0.1)
        else:
            return
    raise SystemExit("the dashboard did not begin to serve")


def _rest(process: psutil.Process) -> None:
    """Wait until a program has done what there was to do: for two seconds it used next to nothing."""
    deadline = perf_counter() + PATIENCE
    while perf_counter() < deadline:
        before = _cpu(process)
        sleep(2.0)
        if _cpu(process) - before < 0.1:
            return
    raise SystemExit("the dashboard did not come to rest")


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    used: float = times.user + times.system
    return used


def _rss(process: psutil.Process) -> float:
    held: float = process.memory_info().rss
    return held
