"""Workers of Celery's and of our own, started side by side, and what they run."""

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from celeriac.programs.process import wait_until
from celeriac.testing.peers import CeleriacWorker, CeleryWorker

__all__ = [
    "OUR_APP",
    "PATIENCE",
    "Worker",
    "batch",
    "come_true",
    "kill_all",
    "run_all",
    "running",
    "start_all",
]

Worker = CeleryWorker | CeleriacWorker

OUR_APP = Path(__file__).parent / "peers" / "ours.py"
#: Far more than needed, for a busy machine.
PATIENCE = 90.0

_BATCH = Path(__file__).parent / "peers" / "batch.py"


def start_all(workers: Iterable[Worker]) -> None:
    """Start workers at the same time, and wait until all of them take tasks."""
    run_all([worker.start for worker in workers])


def run_all(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """Do some things at the same time, and return what came of each."""
    with ThreadPoolExecutor(len(works)) as threads:
        return [each.result() for each in [threads.submit(work) for work in works]]


def kill_all(workers: Iterable[Worker]) -> None:
    """End workers at once, and print their logs: pytest shows them if a test failed."""
    for worker in workers:
        worker.kill()
        print(f"== {worker.hostname}\n{worker.log()}")
        worker.close()


@contextmanager
def running(*workers: Worker) -> Iterator[None]:
    """Have workers running; at the end they are killed, which is quicker than to stop them."""
    try:
        start_all(workers)
        yield
    finally:
        kill_all(workers)


def come_true(condition: Callable[[], bool]) -> bool:
    """Look until the condition holds, or all patience is gone; say whether it came to hold."""
    return wait_until(condition, patience=PATIENCE)


def batch(python: Path, *, url: str, backend: str, **work: Any) -> list[tuple[str, Any]]:
    """Have a client of a real Celery send much work, and return each id and what it got for it.

    ``tests/peers/batch.py`` says what work there is.
    """
    done = subprocess.run(  # noqa: S603 - our own program
        [str(python), str(_BATCH)],
        input=json.dumps({"patience": PATIENCE, **work}),
        env=dict(os.environ) | {"CELERY_BROKER_URL": url, "CELERY_RESULT_BACKEND": backend},
        capture_output=True,
        text=True,
        timeout=PATIENCE * 2,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [(task_id, value) for task_id, value in json.loads(done.stdout)]
