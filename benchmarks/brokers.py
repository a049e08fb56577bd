"""What the benchmarks with brokers share: their rows, real brokers, and turns."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, Queue
from threading import Thread
from typing import Any

from benchmarks.report import Row
from celeriac.testing.brokers import RabbitServer, RedisServer

#: The best turn of each side counts: a busy machine only ever makes a turn slower.
TURNS = 3
#: What a worker of Celery puts into one message.
BATCH = 24
ROWS = ("redis_single", "redis_multi", "amqp_single", "amqp_multi")

Measure = Callable[[str, str, str], float]


@contextmanager
def broker_urls() -> Iterator[dict[str, str]]:
    """Start both brokers; Redis may hold back any amount for a subscriber that does not read."""
    settings = {"client-output-buffer-limit": "pubsub 0 0 0"}
    with RedisServer(settings) as redis, RabbitServer() as rabbit:
        yield {"redis": redis.url, "amqp": rabbit.url}


def measure_rows(measure: Measure, sides: tuple[str, ...]) -> dict[str, Row]:
    """Measure every row, all sides in turn; ``measure`` takes a side, a URL, and single or multi."""
    best: dict[str, dict[str, float]] = {row: {} for row in ROWS}
    with broker_urls() as urls:
        for turn in range(1, TURNS + 1):
            for row in ROWS:
                broker, _, kind = row.partition("_")
                for side in sides:
                    rate = measure(side, urls[broker], kind)
                    told = f"· turn {turn} of {TURNS}: {row:<14} {side:<5} {rate:>10,.0f}"
                    print(told, file=sys.stderr, flush=True)
                    best[row][side] = max(rate, best[row].get(side, 0.0))
    return {
        row: Row(figures["ours"], figures["peer"], unit="events/s", limit=figures.get("limit"))
        for row, figures in best.items()
    }


class Side:
    """One side of a measurement, in a process of its own, so that neither weighs on the other."""

    def __init__(self, module: str, *arguments: str) -> None:
        command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._said: Queue[str] = Queue()
        Thread(target=self._listen, daemon=True).start()

    def has_said(self, word: str, *, within: float) -> bool:
        """Wait for the next line, and tell whether it came; it must be the word."""
        try:
            said = self._said.get(timeout=within)
        except Empty:
            return False
        if said != word:
            self._process.kill()
            raise SystemExit(f"one side of the benchmark failed: it said {said!r}, not {word!r}")
        return True

    def tell(self, word: str) -> None:
        """Say something to it."""
        print(word, file=self._process.stdin, flush=True)

    def rate(self) -> float:
        """Return what it measured: its last line."""
        rate: float = self.answer()
        return rate

    def answer(self) -> Any:
        """Return what its last line says, in JSON."""
        answer = json.loads(self._said.get(timeout=600) or "null")
        code = self._process.wait(timeout=60)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        if code or not answer:
            raise SystemExit("one side of the benchmark failed")
        return answer

    def _listen(self) -> None:
        with suppress(ValueError):  # closed, once all was said
            for line in self._process.stdout or ():
                self._said.put(line.strip())
        self._said.put("")
