"""Tasks with a far ETA, more than a worker may hold, do not keep ordinary tasks from running.

A real worker with a small limit, on both brokers: the latest tasks wait at the broker, and none is lost.
``HYPOTHESIS_PROFILE=long`` has the default limit, and ten times as many tasks around a kill.
"""

import json
import re
from collections.abc import Callable
from time import time

import amqp

from celeriac.testing.peers import CeleriacWorker
from celeriac.testing.rabbit import RabbitNode
from tests.fleet import PATIENCE, come_true, kill_all, running
from tests.live import IS_LONG
from tests.stage import Stage
from tests.wires import AmqpWire, Raw, RedisWire, Wire

TASK = "peers.echo"
FAR = "9999-01-01T00:00:00+00:00"
BODY = json.dumps([["x"], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]).encode()
LIMIT = 50
#: How many a worker may hold, by default in a long run, and more than it holds and takes ahead.
HELD, FAR_TASKS = (10_000, 10_300) if IS_LONG else (LIMIT, 200)
#: So many that a worker can be killed before it has seen them all.
MANY = 20_000 if IS_LONG else 2000


def test_far_etas_do_not_keep_tasks_from_running_on_redis(redis_url: str) -> None:
    with RedisWire(redis_url) as wire:
        attack(wire, redis_url, redis_url, lambda: int(wire.client.zcard("celeriac.aside.far")))


def test_far_etas_do_not_keep_tasks_from_running_on_rabbitmq(
    rabbit_server: RabbitNode, amqp_url: str, redis_url: str
) -> None:
    host, vhost = f"127.0.0.1:{rabbit_server.port}", amqp_url.rpartition("/")[2]
    with AmqpWire(amqp_url) as wire, amqp.Connection(host, virtual_host=vhost) as connection:
        attack(wire, amqp_url, redis_url, lambda: length(connection, "celeriac.aside.far.3600"))


def test_a_worker_killed_while_it_sets_tasks_aside_loses_none_on_redis(redis_url: str) -> None:
    with RedisWire(redis_url) as wire:
        client = wire.client
        kill_between(wire, redis_url, redis_url, lambda: int(client.zcard("celeriac.aside.far")))

        # Each is in one place: what the dead worker held goes back after the visibility timeout.
        def is_complete() -> bool:
            waiting = client.lrange("far", 0, -1)
            found = [*waiting, *client.hvals("unacked"), *client.zrange("celeriac.aside.far", 0, -1)]
            return sorted(ids_in(b"\n".join(found))) == sorted(f"far-{number}" for number in range(MANY))

        assert come_true(is_complete)


def test_a_worker_killed_while_it_sets_tasks_aside_loses_none_on_rabbitmq(
    rabbit_server: RabbitNode, amqp_url: str, redis_url: str
) -> None:
    host, vhost = f"127.0.0.1:{rabbit_server.port}", amqp_url.rpartition("/")[2]
    with AmqpWire(amqp_url) as wire, amqp.Connection(host, virtual_host=vhost) as connection:
        aside = "celeriac.aside.far.3600"
        kill_between(wire, amqp_url, redis_url, lambda: length(connection, aside))

        # The broker may need a moment to see that the connection is closed.
        found: list[str] = []

        def is_complete() -> bool:
            channel = connection.channel()
            for queue in ("far", aside):
                while (message := channel.basic_get(queue)) is not None:
                    channel.basic_ack(message.delivery_tag)
                    found.append(message.headers["id"])
            return {f"far-{number}" for number in range(MANY)} == set(found)

        assert come_true(is_complete)
        # Of those that were on their way both copies may be there.
        assert len(found) <= MANY + LIMIT + 16


def test_a_task_that_was_moved_aside_runs_at_its_eta_on_redis(redis_url: str) -> None:
    attack_with_near_etas(redis_url, redis_url)


def test_a_task_that_was_moved_aside_runs_at_its_eta_on_rabbitmq(amqp_url: str, redis_url: str) -> None:
    attack_with_near_etas(amqp_url, redis_url)


def length(connection: amqp.Connection, queue: str) -> int:
    """Return how many messages wait in a queue of RabbitMQ, 0 if there is none."""
    try:
        return int(connection.channel().queue_declare(queue, passive=True).message_count)
    except amqp.NotFound:
        return 0


def ids_in(data: bytes) -> list[str]:
    """Return the ids of the far tasks in envelopes of Redis."""
    return re.findall(r'"id": "(far-[0-9]+)"', data.decode())


def limited(stage: Stage, limit: int) -> CeleriacWorker:
    """Return a worker that holds only so many tasks with an ETA."""
    return stage.worker("far@attacked", environment={"CELERIAC_WORKER_ETA_TASK_LIMIT": str(limit)})


def attack(wire: Wire, url: str, backend: str, count_aside: Callable[[], int]) -> None:
    """Fill the queue with far tasks; those behind them run, and each far task is somewhere."""
    with Stage.on(url, backend) as stage:
        assert wire.length("far") == 0
        send_far(wire, FAR_TASKS)
        results = [stage.app.send_task(TASK, [number], queue="far") for number in range(20)]
        with running(worker := limited(stage, HELD)):
            assert [each.get(timeout=PATIENCE) for each in results] == list(range(20))

            ask = stage.ask(worker)
            assert come_true(lambda: wire.length("far") == 0 and count_aside() == FAR_TASKS - HELD)
            assert len(ask.scheduled()[worker.hostname]) == HELD
            assert ask.stats()[worker.hostname]["set_aside"] == FAR_TASKS - HELD

            worker.stop()
            assert worker.exit_code == 0
            # RabbitMQ gives back what the worker held once it has seen that the connection is closed.
            assert come_true(lambda: (wire.length("far"), count_aside()) == (HELD, FAR_TASKS - HELD))
            warnings = [line for line in worker.log().splitlines() if "worker_eta_task_limit" in line]
            # One a minute.
            assert 0 < len(warnings) < FAR_TASKS - HELD
            assert "returned=1" in warnings[0]
            assert worker.errors() == []


def kill_between(wire: Wire, url: str, backend: str, count_aside: Callable[[], int]) -> None:
    """Send far tasks, and kill the worker with SIGKILL while it sets them aside."""
    with Stage.on(url, backend) as stage:
        assert wire.length("far") == 0
        send_far(wire, MANY)
        worker = limited(stage, LIMIT)
        try:
            worker.begin()
            assert come_true(lambda: count_aside() > 0)
        finally:
            kill_all([worker])


def send_far(wire: Wire, count: int) -> None:
    """Send tasks that never come due."""
    for number in range(count):
        wire.send_task(
            "far", Raw(BODY, headers={"task": TASK, "id": f"far-{number}", "eta": FAR}), delivery_mode=2
        )


def attack_with_near_etas(url: str, backend: str) -> None:
    """Let more tasks be due soon than a worker may hold: each runs once its moment comes.

    A machine that is too slow to set tasks aside before they are due gets more time.
    """
    with Stage.on(url, backend) as stage, running(worker := limited(stage, 5)):
        assert any(run_near(stage, worker, seconds) >= 10 for seconds in (14, 40, 160))


def run_near(stage: Stage, worker: CeleriacWorker, seconds: float) -> int:
    """Run tasks that are due in some seconds, and return how many were set aside."""
    before = count_set_aside(stage, worker)
    begin = time()
    etas = [begin + seconds + (0 if number < 5 else 0.5) for number in range(15)]
    results = [stage.app.send_task(TASK, [number], queue="far", eta=eta) for number, eta in enumerate(etas)]

    assert [each.get(timeout=PATIENCE + seconds) for each in results] == list(range(15))
    assert time() >= max(etas)
    return count_set_aside(stage, worker) - before


def count_set_aside(stage: Stage, worker: CeleriacWorker) -> int:
    """Return how often a worker has set a task aside."""
    return int(stage.ask(worker).stats()[worker.hostname]["set_aside"])
