"""A worker whose links are cut again and again, on real brokers: each task runs once, and none is left."""

from collections import Counter
from threading import Lock, Thread
from time import sleep

import pytest
import redis

from celeriac.app import Celeriac
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from celeriac.worker.worker import Worker
from tests.fleet import PATIENCE

COUNT = 300


class Tally:
    """Counts how often each task ran."""

    def __init__(self, app: Celeriac, *, acks_late: bool) -> None:
        self.runs: Counter[int] = Counter()
        self._mutex = Lock()
        self.task = app.task(name="shop.note", acks_late=acks_late)(self.note)

    def note(self, number: int) -> None:
        sleep(0.005)
        with self._mutex:
            self.runs[number] += 1

    @property
    def is_complete(self) -> bool:
        return len(self.runs) == COUNT


def has_ended(worker: Worker, tally: Tally) -> bool:
    return tally.is_complete and not len(worker.desk) and worker.tasks.is_quiet


@pytest.mark.parametrize("acks_late", [False, True])
def test_on_redis_every_task_runs_once_though_all_links_are_killed_again_and_again(
    own_redis: RedisServer, acks_late: bool
) -> None:
    app = Celeriac(own_redis.url, environ={}, broker_retry_base=0.01, broker_retry_cap=0.05)
    tally = Tally(app, acks_late=acks_late)
    for number in range(COUNT):
        tally.task.delay(number)

    with (
        redis.Redis.from_url(own_redis.url) as client,
        app.Worker(concurrency=4, without_mingle=True) as worker,
    ):
        while not tally.is_complete:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            sleep(0.05)
        assert wait_until(lambda: has_ended(worker, tally), patience=PATIENCE)

    with redis.Redis.from_url(own_redis.url) as client:
        left = client.llen("celery"), client.hlen("unacked"), client.zcard("unacked_index")
    assert left == (0, 0, 0)
    assert tally.runs == dict.fromkeys(range(COUNT), 1)
    app.close()


def test_on_redis_a_worker_that_is_stopped_without_a_link_gives_back_what_it_did_not_do(
    own_redis: RedisServer,
) -> None:
    app = Celeriac(own_redis.url, environ={}, broker_retry_base=0.01, broker_retry_cap=0.05)
    tally = Tally(app, acks_late=True)
    with app.Worker(concurrency=1, without_mingle=True) as worker:
        for number in range(50):
            tally.task.delay(number)
        assert wait_until(lambda: len(tally.runs) > 5, patience=PATIENCE)
        with redis.Redis.from_url(own_redis.url) as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        stopping = Thread(target=worker.stop)
        stopping.start()
        stopping.join()

    with redis.Redis.from_url(own_redis.url) as client:
        waiting, unsettled = client.llen("celery"), client.hlen("unacked")
    assert unsettled == 0
    assert waiting + len(tally.runs) == 50
    assert set(tally.runs.values()) == {1}
    app.close()
