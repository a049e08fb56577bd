"""One side of ``drain``, in a process of its own: waits for results, and tells what that took.

The same code drives both sides, since ours offers what Celery does under the same names. They differ
in how an app is made, and in what happens when a task is sent.
"""

import json
import os
import sys
import time
from contextlib import suppress
from threading import Thread
from typing import Any, NamedTuple

__all__ = ["WARM", "Client", "Collecting", "Figures", "Job"]

#: Seconds after which a wait is given up; what has come by then is all that counts.
CAP = 60.0
#: A result that is stored already: to get it makes the first connection before the clock starts.
WARM = "00000000-0000-4000-8000-00000000face"

Figures = dict[str, float]


class Job(NamedTuple):
    """What a side has to do; it travels as a line of JSON."""

    side: str
    #: ``threads``, ``gevent`` or ``asyncio``.
    model: str
    #: A method of :class:`Collecting`, ``wakeup`` or ``idle``.
    what: str
    broker: str
    backend: str
    task_ids: list[str]
    #: Tasks that somebody waits for, and that never end.
    endless: list[str]
    #: How many seconds they get to come to rest, and for how many they are measured.
    rest: float = 0.0
    span: float = 0.0


class Client:
    """An app of either side, and the little in which the two differ."""

    def __init__(self, job: Job) -> None:
        self.is_ours = job.side == "ours"
        self.is_rpc = job.backend.startswith("rpc")
        self.timeout_error: type[Exception]
        self.app: Any
        if self.is_ours:
            from celeriac import Celeriac  # noqa: PLC0415 - neither side loads the other
            from celeriac.errors import ResultTimeout  # noqa: PLC0415

            self.app = Celeriac(job.broker, backend=job.backend, environ={})
            self.timeout_error = ResultTimeout
        else:
            from celery import Celery  # noqa: PLC0415
            from celery.exceptions import TimeoutError as CeleryTimeout  # noqa: PLC0415

            self.app = Celery(broker=job.broker, backend=job.backend)
            self.timeout_error = CeleryTimeout

    def get(self, task_id: str) -> Any:
        """Wait for the result of a task."""
        return self.app.AsyncResult(task_id).get(timeout=CAP)

    def set_of(self, task_ids: list[str]) -> Any:
        """Return a set of the results of tasks."""
        return self.app.ResultSet([self.app.AsyncResult(task_id) for task_id in task_ids])

    def sent(self, task_ids: list[str]) -> list[Any]:
        """Return the results of tasks, as they are once the tasks have been sent.

        Celery subscribes to each task as it sends it; in ours that is to watch for its result.
        """
        results = [self.app.AsyncResult(task_id) for task_id in task_ids]
        if self.is_ours:
            self.app.backend.add_pending_results(results)
        else:
            for task_id in task_ids:
                self.app.backend.on_task_call(None, task_id)
        return results

    def knows(self, result: Any) -> bool:
        """Say whether the end of a task has come here, without asking for it."""
        return not result.is_pending if self.is_ours else bool(result._cache)  # noqa: SLF001

    def queue(self) -> str:
        """Return the name of the queue that results are sent to, with ``rpc://``."""
        name: str = self.app.backend.reply_to if self.is_ours else self.app.backend.binding.name
        return name


class Collecting:
    """Collects the results of many tasks, in one of several ways."""

    def __init__(self, job: Job, client: Client) -> None:
        self.job = job
        self.client = client
        self._begun = self._begun_cpu = 0.0

    def run(self) -> Figures:
        """Collect, and tell what it took."""
        if not self.client.is_rpc:
            self.client.get(WARM)
        values: list[Any] = getattr(self, self.job.what)()
        return self.figures(values)

    def finished_each(self) -> list[Any]:
        """Get what is there already, one after the other."""
        self.start()
        return [self.client.get(task_id) for task_id in self.job.task_ids]

    def finished_set(self) -> list[Any]:
        """Get what is there already, all at once."""
        self.start()
        return self._join(self.client.set_of(self.job.task_ids))

    def finishing_each(self) -> list[Any]:
        """Get what comes, one after the other."""
        results = self.client.sent(self.job.task_ids)
        self.start_the_writer()
        return [result.get(timeout=CAP) for result in results]

    def finishing_set(self) -> list[Any]:
        """Get what comes, all at once."""
        results = self.client.set_of(self.job.task_ids)
        self.start_the_writer()
        return self._join(results)

    def start(self) -> None:
        """Begin to measure."""
        self._begun, self._begun_cpu = time.monotonic(), time.process_time()

    def start_the_writer(self) -> None:
        """Begin to measure what comes; the writer begins a little later, and knows the time."""
        _say(self.client.queue() if self.client.is_rpc else "ready")
        self.start()

    def figures(self, values: list[Any]) -> Figures:
        """Return what it took to collect these; they must be what was stored."""
        ended, cpu = time.monotonic(), time.process_time() - self._begun_cpu
        # Where the time was up there is nothing in its place.
        collected = [(index, value) for index, value in enumerate(values) if value is not None]
        if any(index != value for index, value in collected) or len(values) != len(self.job.task_ids):
            raise SystemExit("what was collected is not what was stored")
        return {"begun": self._begun, "ended": ended, "cpu": cpu, "collected": len(collected)}

    def _join(self, results: Any) -> list[Any]:
        try:
            # The quickest that Celery has; in ours it is another name of `join`.
            values: list[Any] = results.join_native(timeout=CAP)
        except self.client.timeout_error:
            return [each.result if self.client.knows(each) else None for each in results.results]
        return values


def _say(word: str) -> None:
    print(word, flush=True)


def _idle_in_background(job: Job, client: Client) -> None:
    """Let some wait for what never comes: in threads, which are greenlets where gevent has patched them."""

    def wait(task_id: str) -> None:
        with suppress(Exception):  # it ends with the process
            client.app.AsyncResult(task_id).get(timeout=600)

    client.get(WARM)
    for task_id in job.endless:
        Thread(target=wait, args=(task_id,), daemon=True).start()
    time.sleep(job.rest)


def _wakeup(job: Job, client: Client) -> Figures:
    _idle_in_background(job, client)
    late = []
    for task_id in job.task_ids:
        _say("waiting")
        # The value is the moment at which it was stored, by the clock that all processes share.
        stored = client.get(task_id)
        late.append(time.monotonic() - stored)
    late.sort()
    return {"p50": late[len(late) // 2], "p99": late[int(len(late) * 0.99)]}


def _idle(job: Job, client: Client) -> Figures:
    _idle_in_background(job, client)
    begun, begun_cpu = time.monotonic(), time.process_time()
    time.sleep(job.span)
    return {"cpu": (time.process_time() - begun_cpu) / (time.monotonic() - begun)}


def _run(job: Job) -> Figures:
    client = Client(job)
    if job.what == "wakeup":
        return _wakeup(job, client)
    if job.what == "idle":
        return _idle(job, client)
    if job.model == "asyncio":
        from benchmarks.collect_async import collect  # noqa: PLC0415 - greenlets are not to load asyncio

        return collect(job, client)
    return Collecting(job, client).run()


if __name__ == "__main__":
    job = Job(*json.loads(sys.stdin.readline()))
    if job.model == "gevent":
        from gevent import monkey

        monkey.patch_all()
    _say(json.dumps(_run(job)))
    # Those who idle would be waited for.
    os._exit(0)
