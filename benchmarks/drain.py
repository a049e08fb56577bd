"""Results from a store to those who wait: ours beside Celery's ``AsyncResult`` and ``ResultSet``.

A real worker of Celery runs every task once; what it stored are the results of all rows, under the
same ids, in the same Redis. For what has finished it lies there. For what finishes it is deleted, a
side starts to wait, and then it is stored again as the worker did it, but at full speed: a worker is
so slow that it would hide who waits. The rows of ``worker`` have the real one all the same, held until
a side waits: there counts how long after the worker's last result a side has them all, and what it
took. At all other times the worker stands still.

Each side has a process of its own. Both are as they come: default settings, and for sets the quickest
way that Celery has, ``join_native``, whose sleep of half a second is over before the clock starts.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from queue import Empty
from random import Random
from signal import SIGCONT, SIGSTOP
from time import monotonic, sleep, time
from typing import Any, NamedTuple
from uuid import UUID

from benchmarks import brokers
from benchmarks.collect import CAP, WARM, Figures, Job
from benchmarks.replay import RedisReplay, RpcReplay, key_of
from benchmarks.report import Row
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RabbitServer, RedisServer
from celeriac.testing.peers import CeleryWorker

#: Results to collect.
RESULTS = 5_000
#: The same from the worker while it runs.
WORKER_RESULTS = 1_000
#: Results to wake up for, one at a time, and how many idle beside it.
WAKEUPS = 300
BYSTANDERS = 50
#: How many idle while their CPU is measured, for how many seconds, and how long they get to begin.
IDLERS = 1_000
IDLE_SPAN = 10.0
IDLE_REST = 3.0
#: How long a side gets to begin to wait before anything comes.
SETTLE = 1.0
#: Tasks that run side by side end in about the order in which they were sent.
_WINDOW = 50


class Measure(NamedTuple):
    """What is measured in one go, on either side."""

    model: str
    what: str
    turns: int = brokers.TURNS


_COLLECTING = ("finished_each", "finished_set", "finishing_each", "finishing_set")
MEASURES = (
    *(Measure("threads", what) for what in _COLLECTING),
    Measure("threads", "worker_set"),
    Measure("threads", "rpc_finishing_set", turns=2),
    *(Measure("gevent", what, turns=2) for what in _COLLECTING),
    *(Measure("asyncio", what, turns=2) for what in _COLLECTING),
    Measure("threads", "wakeup", turns=2),
    Measure("threads", "idle", turns=1),
)


def run() -> dict[str, Row]:
    """Measure all rows, both sides in turn."""
    best: dict[str, dict[str, float]] = {}
    with _stage() as stage:
        for turn in range(1, brokers.TURNS + 1):
            for measure in MEASURES:
                for side in ("ours", "peer") if turn <= measure.turns else ():
                    for row, figure in stage.measure(side, measure).items():
                        told = f"· turn {turn} of {measure.turns}: {row:<22} {side} {figure:>10,.0f}"
                        print(told, file=sys.stderr, flush=True)
                        better = min if _unit(row).lower_is_better else max
                        figures = best.setdefault(row, {})
                        figures[side] = better(figure, figures.get(side, figure))
    return {row: Row(figures["ours"], figures["peer"], *_unit(row)) for row, figures in best.items()}


class _Unit(NamedTuple):
    unit: str
    lower_is_better: bool


def _unit(row: str) -> _Unit:
    if row == "idle_cpu":
        return _Unit("µs of CPU a second", lower_is_better=True)
    if row == "worker_set_cpu":
        return _Unit("µs of CPU a result", lower_is_better=True)
    if any(word in row for word in ("block", "lag", "wakeup")):
        return _Unit("µs", lower_is_better=True)
    return _Unit("results/s", lower_is_better=False)


def _task_ids(count: int, kind: int = 0) -> list[str]:
    """Return ids, the same each time; each kind has others."""
    return [str(UUID(int=(kind << 96) + number, version=4)) for number in range(count)]


@contextmanager
def _stage() -> "Iterator[_Stage]":
    """Start what is needed, and have the worker run every task once."""
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer())
        has_rpc = any(measure.what.startswith("rpc") for measure in MEASURES)
        rabbit = stack.enter_context(RabbitServer()) if has_rpc else None
        messages = _send(redis)
        worker = CeleryWorker(
            sys.executable,
            "benchmarks.tasks",
            url=redis.url,
            backend=redis.url,
            pool="solo",  # the quickest with tasks that do nothing
            events=False,
            arguments=("--without-gossip", "--without-mingle", "--without-heartbeat"),
        )
        stack.callback(worker.close)
        stack.callback(worker.kill)  # one that stands still does not end when asked to
        worker.start()
        stage = _Stage(redis, rabbit, worker, messages)
        stack.callback(stage.close)
        yield stage


def _send(redis: RedisServer) -> list[bytes]:
    """Send every task, and return the messages of the queue."""
    subprocess.run(
        [sys.executable, "-m", "benchmarks.tasks"],
        input=json.dumps(_task_ids(RESULTS)),
        env=os.environ | {"CELERY_BROKER_URL": redis.url},
        text=True,
        check=True,
    )
    client: Any = redis.client()
    with client:
        return list(client.lrange("celery", 0, -1))


class _Collector(brokers.Side):
    """A side that waits for results."""

    def __init__(self, job: Job) -> None:
        super().__init__("collect")
        self.tell(json.dumps(job))

    def says(self) -> str:
        """Return its next line."""
        try:
            said = self._said.get(timeout=3 * CAP)
        except Empty:
            said = ""
        if not said:
            self._process.kill()
            raise SystemExit("one side of the benchmark failed")
        return said

    def figures(self) -> Figures:
        """Return what it measured: its last line."""
        figures: Figures = json.loads(self.says())
        self._said.get(timeout=60)  # nothing: it has ended
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait(timeout=60)
        return figures


class _Stage:
    """The store, the worker, and the results that it made."""

    def __init__(
        self, redis: RedisServer, rabbit: RabbitServer | None, worker: CeleryWorker, messages: list[bytes]
    ) -> None:
        self._url = redis.url
        self._rabbit = rabbit
        self._worker = worker
        self._messages = messages
        self._client: Any = redis.client()
        self._replay = RedisReplay(redis.url)
        self._task_ids = _task_ids(RESULTS)
        self._keys = [key_of(task_id) for task_id in self._task_ids]
        self._random = Random(1)
        if not wait_until(lambda: self._client.exists(*self._keys) == RESULTS, patience=300):
            raise SystemExit("the worker did not run its tasks")
        worker.signal(SIGSTOP)
        self._documents = self._stored()
        self._replay.store({WARM: self._documents[self._task_ids[0]]})

    def close(self) -> None:
        """Close the connections."""
        self._replay.close()
        self._client.close()

    def measure(self, side: str, measure: Measure) -> dict[str, float]:
        """Return the figures of one side, by their rows."""
        model, what, _ = measure
        job = Job(side, model, what, self._url, self._url, self._task_ids, [])
        prefix = "" if model == "threads" else f"{model}_"
        if what == "wakeup":
            return self._wakeup(job)
        if what == "idle":
            return self._idle(job)
        if what == "worker_set":
            return self._worker_set(job)
        if what.startswith("rpc"):
            return self._rpc(job)
        if what.startswith("finished"):
            self._replay.store(self._documents)
            figures = _Collector(job).figures()
            return {prefix + what: _rate(job, figures, figures["begun"])}
        self._delete()
        collector = self._waiting(job)
        begun = self._replay.store(self._documents)
        figures = collector.figures()
        rows = {prefix + what: _rate(job, figures, begun)}
        if "block" in figures:
            rows[f"{prefix}block_{what.removeprefix('finishing_')}"] = figures["block"] * 1e6
        return rows

    def _rpc(self, job: Job) -> dict[str, float]:
        if self._rabbit is None:
            raise SystemExit("there is no RabbitMQ")
        collector = _Collector(
            job._replace(broker=self._rabbit.url, backend="rpc://", what=job.what.removeprefix("rpc_"))
        )
        replay = RpcReplay(self._rabbit.url, collector.says())
        sleep(SETTLE)
        begun = replay.store(self._documents)
        figures = collector.figures()
        replay.close()
        return {job.what: _rate(job, figures, begun)}

    def _worker_set(self, job: Job) -> dict[str, float]:
        self._delete()
        job = job._replace(what="finishing_set", task_ids=self._task_ids[:WORKER_RESULTS])
        self._client.rpush("celery", *self._messages[-WORKER_RESULTS:])
        collector = self._waiting(job)
        self._worker.signal(SIGCONT)
        figures = collector.figures()
        self._worker.signal(SIGSTOP)
        stored = [
            json.loads(document)["date_done"] for document in self._client.mget(self._keys[:WORKER_RESULTS])
        ]
        last = max(datetime.fromisoformat(moment).timestamp() for moment in stored)
        # The worker tells the time of day.
        ended = time() - (monotonic() - figures["ended"])
        return {
            "worker_set_lag": (ended - last) * 1e6,
            "worker_set_cpu": figures["cpu"] / figures["collected"] * 1e6,
        }

    def _wakeup(self, job: Job) -> dict[str, float]:
        task_ids = _task_ids(WAKEUPS, kind=1)
        self._client.delete(*map(key_of, task_ids))
        document = json.loads(self._documents[self._task_ids[0]])
        endless = _task_ids(BYSTANDERS, kind=2)
        collector = _Collector(job._replace(task_ids=task_ids, endless=endless, rest=SETTLE))
        for task_id in task_ids:
            collector.says()
            sleep(self._random.uniform(0.003, 0.012))
            self._replay.store_now(task_id, document | {"task_id": task_id})
        figures = collector.figures()
        return {f"wakeup_{name}": figure * 1e6 for name, figure in figures.items()}

    def _idle(self, job: Job) -> dict[str, float]:
        endless = _task_ids(IDLERS, kind=2)
        job = job._replace(task_ids=[], endless=endless, rest=IDLE_REST, span=IDLE_SPAN)
        figures = _Collector(job).figures()
        return {"idle_cpu": figures["cpu"] * 1e6}

    def _waiting(self, job: Job) -> _Collector:
        """Return a side that waits for what comes."""
        collector = _Collector(job)
        collector.says()
        sleep(SETTLE)
        return collector

    def _delete(self) -> None:
        self._client.delete(*self._keys)

    def _stored(self) -> dict[str, bytes]:
        """Return what the worker stored, by the ids of the tasks, about in the order of their ends."""
        documents = dict(zip(self._task_ids, self._client.mget(self._keys), strict=True))
        order = []
        for begin in range(0, RESULTS, _WINDOW):
            window = self._task_ids[begin : begin + _WINDOW]
            self._random.shuffle(window)
            order += window
        return {task_id: documents[task_id] for task_id in order}


def _rate(job: Job, figures: Figures, begun: float) -> float:
    if figures["collected"] < len(job.task_ids):
        told = f"  gave up after {CAP:g} s, with {figures['collected']:,} of {len(job.task_ids):,}"
        print(told, file=sys.stderr, flush=True)
    return figures["collected"] / (figures["ended"] - begun)
