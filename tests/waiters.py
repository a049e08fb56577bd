"""A program in which many wait for results at once, in one of the ways there are.

It is told how as JSON, and says as JSON lines that all wait, how far they are, and how each wait
ended; then what the program holds of the system before, after, and after closing.

Whose time is out waits again, until there is a file that says that all is done which will be: so it
makes no difference how quick the machine is.
"""

import gc
import json
import os
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

#: How often it says how far it is.
EVERY = 10


def main() -> None:
    """Wait as told."""
    told = json.loads(sys.argv[1])
    if told["way"] == "gevent":
        from gevent import monkey  # noqa: PLC0415

        monkey.patch_all()
    elif told["way"] == "eventlet":
        import eventlet  # noqa: PLC0415

        eventlet.monkey_patch()
    Waiters(**told).run()


def _is_of_broker(exc_type: str) -> bool:
    """Say whether an exception that a Celery worker stored is one of its connection to the broker."""
    # redis-py: a server that still reads its files after a restart answers with this kind of ConnectionError.
    return "Connection" in exc_type or exc_type == "BusyLoadingError"


class Waiters:
    """Those who wait, each for a task of its own, and what became of them."""

    def __init__(
        self, *, way: str, broker: str, backend: str, waiters: int, timeout: float, enough: str
    ) -> None:
        from celeriac import Celeriac  # noqa: PLC0415 - after patching, as programs do

        self.way = way
        self.app = Celeriac(broker, backend=backend, result_drainer=None)
        self.ids = [f"{way}-{number}" for number in range(waiters)]
        self.timeout = timeout
        #: A file, once no more results will come.
        self.enough = Path(enough)
        self.outcomes: Counter[str] = Counter()
        self.odd: list[str] = []
        #: Who got nothing, and when its last wait began.
        self.late: dict[str, datetime] = {}
        #: How often somebody waited again.
        self.again = 0

    def run(self) -> None:
        """Wait, and say how it went."""
        before = self._begun()
        reply_to = getattr(self.app.backend, "reply_to", "")
        say(waiting=len(self.ids), reply_to=reply_to)
        getattr(self, f"_wait_in_{self.way}")()
        lost = self._stored_before()
        after = self._held()
        watched = self.app.backend.health().watched
        self.app.close()
        say(
            outcomes=dict(self.outcomes),
            odd=self.odd[:5],
            again=self.again,
            lost=lost,
            watched=watched,
            before=before,
            after=after,
            closed=self._held(),
        )

    # -- ways of waiting

    def _wait_in_default(self) -> None:
        from threading import Thread  # noqa: PLC0415

        threads = [Thread(target=self._wait, args=(task_id,)) for task_id in self.ids]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _wait_in_gevent(self) -> None:
        import gevent  # noqa: PLC0415

        gevent.joinall([gevent.spawn(self._wait, task_id) for task_id in self.ids])

    def _wait_in_eventlet(self) -> None:
        import eventlet  # noqa: PLC0415

        pool = eventlet.GreenPool(len(self.ids))
        for task_id in self.ids:
            pool.spawn(self._wait, task_id)
        pool.waitall()

    def _wait_in_asyncio(self) -> None:
        import asyncio  # noqa: PLC0415

        async def wait(task_id: str) -> None:
            while True:
                is_last, began_at = self.enough.exists(), datetime.now(UTC)
                try:
                    self._note(task_id, await self.app.AsyncResult(task_id).get(timeout=self.timeout))
                except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
                    if not is_last and self._is_time_out(task_id, error):
                        self.again += 1
                        continue
                    self._note_error(task_id, error, began_at)
                return

        async def wait_for_all() -> None:
            await asyncio.gather(*(wait(task_id) for task_id in self.ids))

        asyncio.run(wait_for_all())

    def _wait(self, task_id: str) -> None:
        while True:
            is_last, began_at = self.enough.exists(), datetime.now(UTC)
            try:
                self._note(task_id, self.app.AsyncResult(task_id).get(timeout=self.timeout))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
                if not is_last and self._is_time_out(task_id, error):
                    self.again += 1
                    continue
                self._note_error(task_id, error, began_at)
            return

    # -- what became of them

    def _note(self, task_id: str, value: Any) -> None:
        is_right = value == f"result of {task_id}"
        self.outcomes["right" if is_right else "wrong"] += 1
        if not is_right:
            self.odd.append(f"{task_id}: {value!r}")
        elif self.outcomes["right"] % EVERY == 0:
            say(right=self.outcomes["right"])

    def _is_time_out(self, task_id: str, error: Exception) -> bool:
        from celeriac.errors import ResultTimeout  # noqa: PLC0415

        return isinstance(error, ResultTimeout) and task_id in str(error)

    def _note_error(self, task_id: str, error: Exception, began_at: datetime) -> None:
        from celeriac.errors import RemoteError  # noqa: PLC0415

        if self._is_time_out(task_id, error):
            self.outcomes["time-out"] += 1
            self.late[task_id] = began_at
        elif isinstance(error, RemoteError) and error.task_id == task_id and _is_of_broker(error.exc_type):
            self.outcomes["failed in the worker"] += 1
        else:
            self.outcomes["error"] += 1
            self.odd.append(f"{task_id}: {error!r}")

    def _stored_before(self) -> int:
        """Return how many of those whose time passed had a result in the store before they began to wait."""
        if not self.late:
            return 0
        found = self.app.backend.read(list(self.late), timeout=60)
        return sum(
            meta.is_ready and ended_at(meta.date_done) < self.late[task_id] for task_id, meta in found.items()
        )

    # -- what the program holds

    def _begun(self) -> dict[str, int]:
        """Wait in vain until that makes nothing new any more, and return what the program holds then."""
        before: dict[str, int] = {}
        while True:
            self._try_once()
            held = self._held()
            # On a busy machine one try may end before its link is made.
            if all(held[kind] == before.get(kind) for kind in ("files", "threads")):
                return held
            before = held

    def _try_once(self) -> None:
        """Do once what will be done often, so that what is made once is there."""
        ids, self.ids, timeout, self.timeout = self.ids, ["nobody"], self.timeout, 1.0
        enough, self.enough = self.enough, Path("/")
        getattr(self, f"_wait_in_{self.way}")()
        self.ids, self.timeout, self.enough, self.late = ids, timeout, enough, {}
        self.outcomes.clear()

    def _held(self) -> dict[str, int]:
        import threading  # noqa: PLC0415

        import psutil  # noqa: PLC0415

        gc.collect()
        process = psutil.Process(os.getpid())
        return {
            "files": process.num_fds(),
            # A greenlet that logs something has a dummy thread until it ends.
            "threads": sum(not isinstance(each, threading._DummyThread) for each in threading.enumerate()),
            "greenlets": self._greenlets(),
            "memory": process.memory_info().rss,
        }

    def _greenlets(self) -> int:
        """Count spawned greenlets; gevent has two more for each thread in which it looks up an address."""
        kinds = {"gevent": ("gevent", "Greenlet"), "eventlet": ("eventlet.greenthread", "GreenThread")}
        if self.way not in kinds:
            return 0
        module, name = kinds[self.way]
        kind: type[object] = getattr(sys.modules[module], name)
        return sum(isinstance(each, kind) for each in gc.get_objects())


def ended_at(told: str | None) -> datetime:
    """Return when a task ended, as its worker says; whoever says nothing of it did so long ago."""
    if told is None:
        return datetime.min.replace(tzinfo=UTC)
    moment = datetime.fromisoformat(told)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def say(**news: object) -> None:
    """Print a line of JSON."""
    print(json.dumps(news), flush=True)


if __name__ == "__main__":
    main()
