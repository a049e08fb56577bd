"""A log to tables: ours on Spark, beside DuckDB, Polars and Celery's State, on the same log.

Every side runs in a process of its own, one after the other, on all cores. Ours is measured cold, the
first run of a new Spark, and warm, a second one into another warehouse; "log to tasks" is from the first look
at the log to the table of tasks on the disk, "all tables" until they are published. DuckDB and Polars do the
fold alone (:mod:`benchmarks.pipeline_peers`). Celery's State is fed decoded events, one by one.
"""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import perf_counter, sleep
from typing import Any

import psutil

from benchmarks.event_log import BEGIN, write_log
from benchmarks.report import Row
from benchmarks.report import show as show_rows

#: In millions of events. Where the disk is small: CELERIAC_BENCH_MILLIONS=1,10.
MILLIONS = tuple(map(int, os.environ.get("CELERIAC_BENCH_MILLIONS", "1,10,50").split(",")))
CELERY_EVENTS = 400_000
HISTORY_TURNS = 7
#: The name that is asked about.
QUESTION = "shop.tasks.job_7"
#: Memory that Spark may have, so that a run is the same on a larger machine.
MEMORY = "4g"

Figures = dict[str, float]


def run() -> tuple[dict[str, Row], Figures]:
    """Measure all sides on logs of each size; the rows are of the second largest."""
    more: Figures = {}
    by_size: dict[int, dict[str, Figures]] = {}
    with TemporaryDirectory(prefix="celeriac-bench-") as folder:
        for millions in MILLIONS:
            log = Path(folder) / f"log{millions}"
            events = write_log(log, millions * 1_000_000)
            _tell(f"a log of {events:,} events, {_bytes(log) / events:.1f} bytes each")
            by_size[millions] = {}
            for side in ("ours", "duckdb", "polars"):
                by_size[millions][side] = _measure(side, log, events, Path(folder))
            more |= {f"{name}_{millions}m": value for name, value in by_size[millions]["ours"].items()}
        celery = _measure("celery", Path(folder) / f"log{MILLIONS[0]}", CELERY_EVENTS, Path(folder))
    compared = by_size[MILLIONS[-2] if len(MILLIONS) > 1 else MILLIONS[0]]
    ours = compared["ours"]["tasks_per_s"]
    rows = {
        "celery_state": Row(ours, celery["tasks_per_s"], unit="events/s, log to tasks, warm"),
        "duckdb": Row(ours, compared["duckdb"]["tasks_per_s"], unit="events/s, log to tasks, warm"),
        "polars": Row(ours, compared["polars"]["tasks_per_s"], unit="events/s, log to tasks, warm"),
    }
    return rows, more


def show(name: str, measured: tuple[dict[str, Row], Figures]) -> None:
    """Print the rows, and all else that was measured of ours."""
    rows, more = measured
    show_rows(name, rows, **{label: round(value, 1) for label, value in more.items()})


def _measure(side: str, log: Path, events: int, folder: Path) -> Figures:
    with TemporaryDirectory(dir=folder) as work:
        command = [sys.executable, "-m", "benchmarks.pipeline", side, str(log), str(events), work]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    _tell(f"{side:<8}" + "  ".join(f"{label} {value:,.1f}" for label, value in figures.items()))
    return figures


def _tell(text: str) -> None:
    print(f"· {text}", file=sys.stderr, flush=True)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# -- one side, in its own process


class Peak:
    """The most memory that this process and all it started had at once."""

    def __init__(self) -> None:
        self.bytes = 0
        self._is_over = Event()
        self._thread = Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        own = psutil.Process()
        while not self._is_over.wait(0.2):
            held = 0
            for process in (own, *own.children(recursive=True)):
                try:
                    held += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.bytes = max(self.bytes, held)

    def end(self) -> float:
        """Return it in MiB."""
        self._is_over.set()
        self._thread.join()
        return self.bytes / 2**20


def _ours(log: Path, events: int, work: Path) -> Figures:
    from celeriac.pipeline.job import Pipeline  # noqa: PLC0415 - no side loads another
    from celeriac.pipeline.session import open_session  # noqa: PLC0415

    peak = Peak()
    begun = perf_counter()
    with open_session(conf={"spark.driver.memory": MEMORY}) as spark:
        figures = {"start_s": perf_counter() - begun}
        for heat in ("cold", "warm"):
            report = Pipeline(spark, log, work / heat).run()
            if report.events != events:
                raise RuntimeError(f"{report.events} of {events} events were taken")
            seconds = report.seconds
            figures[f"{heat}_per_s"] = events / (seconds["check"] + seconds["tasks"])
            figures[f"{heat}_all_per_s"] = events / report.total
        figures["tasks_per_s"] = figures["warm_per_s"]
        tried, rolled = _roll_up(spark, work / "warm", work / "rollups")
        figures |= {"attempts_per_s": events / tried, "rollups_per_s": events / rolled}
        figures["peak_mib"] = peak.end()
        figures["stream_per_s"], figures["batch_s"] = _stream(spark, log, events, work / "stream")
    figures["bytes_per_task"] = _bytes(work / "warm") / max(1, report.tasks)
    figures["history_ms"] = _ask(work / "warm")
    figures["answer_ms"] = _answer(work / "warm")
    return figures


def _roll_up(spark: Any, warehouse: Path, out: Path) -> tuple[float, float]:
    """Return the seconds from the table of tasks to attempts on the disk, and from these to roll-ups."""
    from celeriac.pipeline.attempt import attempts  # noqa: PLC0415
    from celeriac.pipeline.rollup import by_hour, by_minute  # noqa: PLC0415

    begun = perf_counter()
    tasks = spark.read.parquet(str(warehouse / "tables" / "tasks" / "*"))
    attempts(tasks).write.parquet(str(out / "attempts"))
    tried = perf_counter()
    by_minute(spark.read.parquet(str(out / "attempts"))).write.parquet(str(out / "minutes"))
    by_hour(spark.read.parquet(str(out / "minutes"))).write.parquet(str(out / "hours"))
    return tried - begun, perf_counter() - tried


def _stream(spark: Any, log: Path, events: int, warehouse: Path) -> tuple[float, float]:
    """Follow a log that is there already, batch by batch: events a second, and seconds of a batch."""
    from celeriac.pipeline.job import Pipeline  # noqa: PLC0415
    from celeriac.store.manifest import read_manifest  # noqa: PLC0415
    from celeriac.store.place import place_for  # noqa: PLC0415

    stop = Event()
    published: list[float] = []

    def note(point: str) -> None:
        if point == "after-publish":
            published.append(perf_counter())

    pipeline = Pipeline(spark, log, warehouse, at=note)
    thread = Thread(target=lambda: pipeline.follow(1.0, stop))
    begun = perf_counter()
    thread.start()
    place = place_for(warehouse)
    while thread.is_alive():
        manifest = read_manifest(place)
        if manifest is not None and manifest.events >= events:
            break
        sleep(0.1)
    seconds = published[-1] - begun
    stop.set()
    thread.join()
    turns = sorted(after - before for before, after in zip([begun, *published], published, strict=False))
    return events / seconds, turns[len(turns) // 2]


def _ask(warehouse: Path) -> float:
    """Return the milliseconds of a question at the command line: the best of some."""
    since = datetime.fromtimestamp(BEGIN, UTC).isoformat()
    program = Path(sys.executable).parent / "celeriac"
    question = ["history", "latency", "--task", QUESTION, "--by", "hour", "--json"]
    command = [str(program), *question, "--warehouse", str(warehouse), "--since", since]
    # As anywhere else, what is loaded is compiled once, and not each time.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    took = []
    for _ in range(HISTORY_TURNS):
        begun = perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        took.append(perf_counter() - begun)
    return min(took) * 1000


def _answer(warehouse: Path) -> float:
    """Return the milliseconds of the same question in a program that runs already: the best of some."""
    from celeriac import history  # noqa: PLC0415

    took = []
    for _ in range(HISTORY_TURNS):
        # Opened anew, so that nothing is left of the question before.
        with history.open(warehouse) as tables:
            begun = perf_counter()
            tables.latency(QUESTION, BEGIN, by="hour")
            took.append(perf_counter() - begun)
    return min(took) * 1000


def _peer(side: str, log: Path, events: int, work: Path) -> Figures:
    from benchmarks import pipeline_peers  # noqa: PLC0415

    peak = Peak()
    if side == "celery":
        rate = pipeline_peers.fold_by_celery(log, events)
    else:
        fold = {"duckdb": pipeline_peers.fold_by_duckdb, "polars": pipeline_peers.fold_by_polars}[side]
        # The second is warm, as ours is.
        rate = events / min(fold(log, work / f"{turn}.parquet") for turn in range(2))
    return {"tasks_per_s": rate, "peak_mib": peak.end()}


def main(side: str, log: str, events: str, work: str) -> None:
    """Measure one side, and print what was found as JSON."""
    measure = _ours if side == "ours" else lambda *given: _peer(side, *given)
    print(json.dumps(measure(Path(log), int(events), Path(work))))


if __name__ == "__main__":
    main(*sys.argv[1:])
