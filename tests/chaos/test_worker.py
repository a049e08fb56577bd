"""Workers lose no task, whatever is done to them and to their broker; and a mixed cluster works for long.

``HYPOTHESIS_PROFILE=long`` goes on with each for ten minutes.
"""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from celeriac.testing.peers import CeleriacWorker
from tests.fleet import OUR_APP, PATIENCE, come_true, kill_all, run_all
from tests.interop.conftest import BROKERS, paired
from tests.live import IS_LONG, PEERS
from tests.mixed import Mixed, mix
from tests.task_storm import Storm, storm_on

#: How long each test goes on; each does everything once at least.
SECONDS = 600.0 if IS_LONG else 0.0


@pytest.fixture(params=BROKERS)
def storm(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storm]:
    with storm_on(request.param, request, tmp_path) as storm:
        yield storm


def test_every_task_ends_with_its_result_whatever_is_killed(storm: Storm) -> None:
    until = monotonic() + SECONDS
    for number in count():
        storm.let_some_end()
        storm.kill_worker(number)
        storm.let_some_end()
        storm.kill_servers()
        if monotonic() >= until:
            break

    storm.let_some_end()
    storm.kill_worker(number + 1)
    storm.calm()

    assert storm.results() == {text: text for text in storm.sent}
    assert storm.ended == storm.sent.keys()
    assert come_true(lambda: set(storm.leftovers().values()) == {0}), storm.leftovers()
    assert [error for worker in storm.workers for error in worker.errors()] == []


# -- a mixed cluster


@pytest.fixture(params=BROKERS if IS_LONG else BROKERS[:1])
def mixed(request: pytest.FixtureRequest) -> Iterator[Mixed]:
    with paired(request, "5.7", request.param) as pair, mix(pair) as mixed:
        yield mixed


def test_a_mixed_cluster_works_for_long_and_no_worker_of_celerys_logs_an_error(mixed: Mixed) -> None:
    guest = CeleriacWorker(
        OUR_APP,
        url=mixed.pair.url,
        backend=mixed.pair.backend,
        hostname="guest@ours",
        arguments=("-Q", "of.guest"),
    )
    until = monotonic() + SECONDS
    try:
        for number in count():
            work = [lambda: ours(mixed), lambda: theirs(mixed, PEERS[number % 2]), guest.start]  # noqa: B023
            run_all(work)
            # It leaves, or is killed, and comes again.
            guest.stop() if number % 2 else guest.kill()
            if monotonic() >= until:
                break
    finally:
        kill_all([guest])

    assert {worker.hostname: worker.errors() for worker in mixed.workers} == {
        name: [] for name in mixed.names
    }


def ours(mixed: Mixed) -> None:
    """Have our client's tasks run on all four."""
    sent = [
        mixed.app.send_task("peers.add", [number, 1], queue=queue)
        for number in range(25)
        for queue in mixed.queues
    ]
    got = [result.get(timeout=PATIENCE) for result in sent]

    assert got == [number + 1 for number in range(25) for _ in mixed.queues]


def theirs(mixed: Mixed, version: str) -> None:
    """Have all that a client of Celery's can compose run across all four."""
    tasks: list[Any] = [("peers.retry_then_succeed", [], {"queue": queue}) for queue in mixed.queues]
    done = mixed.batch(version, tasks=tasks, across=list(mixed.queues))

    assert [value for _, value in done] == [2] * 4 + [8, [0, 2, 4, 6, 8, 10, 12, 14], *[56] * 4, 57, 72]
