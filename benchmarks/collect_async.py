"""One side of ``drain`` in an event loop, and how long the loop was kept from its other work meanwhile.

Celery has no asyncio: its side does what people do then, and waits in a thread beside the loop.
"""

import asyncio
from typing import Any

from benchmarks.collect import WARM, Client, Collecting, Figures, Job

__all__ = ["collect"]


def collect(job: Job, client: Client) -> Figures:
    """Collect, and tell what it took."""
    return asyncio.run(_collect(job, client))


async def _collect(job: Job, client: Client) -> Figures:
    ticker = _Ticker()
    ticking = asyncio.create_task(ticker.run())
    if client.is_ours:
        figures = await _Awaited(job, client, ticker).run_async()
    else:
        figures = await asyncio.to_thread(_Threaded(job, client, ticker).run)
    ticking.cancel()
    return figures | {"block": ticker.longest}


class _Ticker:
    """Wants to run each millisecond, and tells how late it was at worst."""

    PAUSE = 0.001

    def __init__(self) -> None:
        self.longest = 0.0

    async def run(self) -> None:
        """Tick until cancelled."""
        now = asyncio.get_running_loop().time
        while True:
            begun = now()
            await asyncio.sleep(self.PAUSE)
            self.longest = max(self.longest, now() - begun - self.PAUSE)


class _Threaded(Collecting):
    """Celery's, in a thread; all of it in one, which is the quickest."""

    def __init__(self, job: Job, client: Client, ticker: _Ticker) -> None:
        super().__init__(job, client)
        self._ticker = ticker

    def start(self) -> None:
        """Begin to measure, the loop too."""
        super().start()
        self._ticker.longest = 0.0


class _Awaited(_Threaded):
    """Ours, in the loop itself."""

    async def run_async(self) -> Figures:
        """Collect, and tell what it took."""
        await self.client.app.AsyncResult(WARM)
        values = await {
            "finished_each": self._finished_each,
            "finished_set": self._finished_set,
            "finishing_each": self._finishing_each,
            "finishing_set": self._finishing_set,
        }[self.job.what]()
        return self.figures(values)

    async def _finished_each(self) -> list[Any]:
        self.start()
        return [await self.client.app.AsyncResult(task_id) for task_id in self.job.task_ids]

    async def _finished_set(self) -> list[Any]:
        self.start()
        return await self._iterate(self.client.set_of(self.job.task_ids))

    async def _finishing_each(self) -> list[Any]:
        app = self.client.app
        gathered = asyncio.gather(*[app.AsyncResult(task_id).get() for task_id in self.job.task_ids])
        # To start thousands of tasks at once keeps a loop busy by itself: that is not measured.
        while app.backend.health().waiters < len(self.job.task_ids):
            await asyncio.sleep(0.01)
        self.start_the_writer()
        return await gathered

    async def _finishing_set(self) -> list[Any]:
        results = self.client.set_of(self.job.task_ids)
        self.start_the_writer()
        return await self._iterate(results)

    async def _iterate(self, results: Any) -> list[Any]:
        values = {}
        async for result in results:
            values[result.id] = result.result
        return [values[task_id] for task_id in self.job.task_ids]
