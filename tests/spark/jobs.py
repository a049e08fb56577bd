"""Jobs of the pipeline as processes of their own, to be killed, or to run on other Sparks."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from celeriac.programs.process import GuardedProcess, wait_until
from tests.spark.published import INTERPRETED, PATIENCE

ROOT = Path(__file__).parents[2]


@contextmanager
def job(
    log: Path,
    warehouse: Path,
    *,
    mode: str = "run",
    point: str = "",
    visit: int = 1,
    events: int = 0,
    chunk_events: int = 1,
    master: str = "local[2]",
    remote: str | None = None,
    conf: Mapping[str, str] = INTERPRETED,
) -> Iterator[GuardedProcess]:
    """Have a job that dies at the n-th visit of a point, and end it with all it started."""
    told = {
        "log": str(log),
        "warehouse": str(warehouse),
        "mode": mode,
        "point": point,
        "visit": visit,
        "events": events,
        "chunk_events": chunk_events,
        "master": master,
        "remote": remote,
        "conf": dict(conf),
    }
    folder = warehouse.parent / f"job-{os.urandom(4).hex()}"
    folder.mkdir()
    process = GuardedProcess(
        [sys.executable, "-m", "tests.peers.pipeline"],
        folder=folder,
        log=warehouse.parent / "jobs.log",
        cwd=ROOT,
        environment={**os.environ, "PIPELINE": json.dumps(told)},
    )
    try:
        yield process
    finally:
        process.kill()


def run_job(log: Path, warehouse: Path, **options: object) -> int:
    """Run a job until it ends, and return its exit code, as a shell tells it."""
    with job(log, warehouse, **options) as process:  # type: ignore[arg-type]
        assert wait_until(lambda: not process.is_alive, patience=PATIENCE)
        code = process.exit_code
    assert code is not None
    return code
