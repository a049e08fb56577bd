"""Log, pipeline and history: events of a cluster, recorded, made into tables by Spark, and queried."""

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import run
from threading import Thread
from time import time
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from celeriac import Celeriac, history
from celeriac.core.order import task_key
from celeriac.history import Warehouse
from celeriac.model.events import Event, Gap, Received, Succeeded, TaskEvent
from celeriac.node.record_source import record_queue
from celeriac.pipeline.job import Pipeline
from celeriac.pipeline.report import Report
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from celeriac.testing.rabbit import RabbitNode
from tests.live import StartWorker, empty_database, peer
from tests.watcher import Watcher

TIMEOUT = 120.0
LATE = "late-task"
QUESTIONS = """
import json, sys
from celeriac import history

with history.open(sys.argv[1], log=sys.argv[2]) as tables:
    slowest = [row.name for row in tables.top(by="slowest")]
    print(json.dumps({"slowest": slowest, "state": tables.task("first-0").task["state"]}))
"""


def run_without_spark(code: str, *arguments: object) -> str:
    """Run a program in a new process that can import neither Spark nor the bridge to its Java."""
    code = f"import sys; sys.modules.update(pyspark=None, py4j=None)\n{code}"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own program
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def recording(app: Celeriac, name: str, spool: Path) -> Iterator[None]:
    """Record the events of the cluster from the moment this is entered."""
    recorder = app.history.Recorder(name=name, spool=spool)
    thread = Thread(target=recorder.run)
    thread.start()
    try:
        assert wait_until(lambda: recorder.progress.state == "recording", patience=TIMEOUT)
        yield
    finally:
        recorder.stop()
        thread.join(TIMEOUT)


@dataclass
class Past:
    """A cluster that was recorded twice, with its tables."""

    log: Path
    warehouse: Path
    app: Celeriac
    #: The events in the log after the first part and at the end, and the runs of the pipeline.
    events: tuple[list[Event], list[Event]]
    reports: tuple[Report, Report]

    def tables(self) -> Warehouse:
        return history.open(self.warehouse, log=self.log)


@pytest.fixture(scope="module")
def past(
    spark: SparkSession, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Past]:
    folder = tmp_path_factory.mktemp("history")
    log, warehouse = folder / "log", folder / "warehouse"
    url = empty_database(redis_server)
    app = Celeriac(url, url, environ={}, log_url=str(log), task_send_sent_event=True)

    @app.task(name="shop.pay")
    def pay(amount: int) -> int:
        return 100 // amount

    def run_tasks(names: list[str]) -> None:
        for name in names:
            # A task whose name ends in 0 fails.
            app.send_task("shop.pay", (int(name[-1]),), task_id=name).get(timeout=TIMEOUT, propagate=False)

    with ExitStack() as stack:
        stack.callback(app.close)
        with (
            recording(app, "one", folder / "spool-one"),
            app.Worker("w@example", concurrency=1, task_events=True),
        ):
            run_tasks([f"first-{number}" for number in range(5)])
        early = list(app.history.log().read())
        first = Pipeline(spark, log, warehouse).run()
        with (
            recording(app, "one", folder / "spool-one"),
            recording(app, "two", folder / "spool-two"),
            app.Worker("w@example", concurrency=1, task_events=True),
        ):
            run_tasks([f"second-{number}" for number in range(5)])
        with app.history.writer(name="three", spool=folder / "spool-three") as writer:
            writer.append(late_events(early))
            writer.sync()
        whole = list(app.history.log().read())
        second = Pipeline(spark, log, warehouse).run()
        yield Past(log, warehouse, app, (early, whole), (first, second))


def late_events(early: list[Event]) -> list[Event]:
    """Return events of a new task that happened among the first ones, and come after all others."""
    at = early[0].timestamp
    about: dict[str, Any] = {"hostname": "w@example", "pid": 1, "uuid": LATE, "local_received": time()}
    return [
        Received(timestamp=at, clock=1, name="shop.late", **about),
        Succeeded(timestamp=at + 1, clock=2, result="1", **about),
    ]


def test_154_events_are_recorded_in_a_durable_log(past: Past) -> None:
    """A recorder writes the events of the cluster into a durable log, without gaps."""
    early, _ = past.events

    ended = {
        event.uuid
        for event in early
        if isinstance(event, TaskEvent) and event.subject in ("succeeded", "failed")
    }

    assert ended == {f"first-{number}" for number in range(5)}
    assert not any(isinstance(event, Gap) for event in early)
    assert list(past.log.rglob("*.parquet"))


def test_events_of_a_celery_worker_and_of_ours_are_recorded_on_rabbitmq(
    rabbit_server: RabbitNode, amqp_url: str, celery_worker: StartWorker, tmp_path: Path
) -> None:
    vhost = urlsplit(amqp_url).path[1:]

    def is_recorded(queue: str) -> bool:
        # The recorder acknowledges an event once it is on the disk.
        return {"name": queue, "messages": 0} in rabbit_server.list_queues(vhost, "name", "messages")

    with (
        closing(Celeriac(amqp_url, environ={}, log_url=str(tmp_path / "log"))) as app,
        recording(app, "one", tmp_path / "spool"),
        Watcher(app) as watcher,
    ):
        app.task(name="shop.pay")(lambda: None)
        celery_worker(peer("5.7"), amqp_url, hostname="c@celery", pool="solo")
        with app.Worker("o@ours", concurrency=1, queues=["ours"], task_events=True):
            app.send_task("peers.add", (1, 2), task_id="at-celery")
            app.send_task("shop.pay", task_id="at-ours", queue="ours")
            watcher.wait_for(lambda: watcher.types["task-succeeded"] == 2)
        assert wait_until(lambda: is_recorded(record_queue(app.conf, "one", "amqp").name), patience=TIMEOUT)
    events = list(app.history.log().read())

    ends = {(each.hostname, each.uuid) for each in events if isinstance(each, Succeeded)}
    assert ends == {("c@celery", "at-celery"), ("o@ours", "at-ours")}
    assert not any(isinstance(each, Gap) for each in events)


def test_155_the_pipeline_makes_tables_of_the_log(past: Past) -> None:
    """The pipeline makes tables of the log with PySpark."""
    early, _ = past.events
    first, _ = past.reports

    with past.tables() as tables:
        answer = tables.sql(
            "SELECT state, count(*) FROM tasks WHERE uuid LIKE 'first-%' GROUP BY state ORDER BY state"
        )

    assert first.events == len(early)
    assert [tuple(row) for row in answer.fetch().rows] == [("FAILURE", 1), ("SUCCESS", 4)]


def test_156_late_and_repeated_events_are_counted_once(past: Past) -> None:
    """A later run of the pipeline takes only new events, and counts late and repeated events once."""
    early, whole = past.events
    _, second = past.reports
    keys = [(event.uuid, task_key(event)) for event in whole if isinstance(event, TaskEvent)]

    with past.tables() as tables:
        answer = tables.sql("SELECT count(*), sum(attempts) FROM tasks")

    assert second.events == len(whole) - len(early)
    assert len(set(keys)) < len(keys)
    assert [tuple(row) for row in answer.fetch().rows] == [(11, 11)]


def test_157_the_history_is_asked_without_spark(past: Past) -> None:
    """The tables answer questions about the history, from the command line and from Python, without Spark."""
    command = run_without_spark(
        "from celeriac.cli import main; main()", "history", "top", "--warehouse", past.warehouse, "--json"
    )
    program = run_without_spark(QUESTIONS, past.warehouse, past.log)

    answers = json.loads(program)
    assert {row["name"] for row in json.loads(command)} == set(answers["slowest"])
    assert "shop.pay" in answers["slowest"]
    assert answers["state"] == "FAILURE"


def test_158_the_tables_agree_with_the_state(past: Past) -> None:
    """The table of tasks agrees with the state that is folded from the log."""
    state = past.app.history.replay().run()

    with past.tables() as tables:
        answer = tables.sql("SELECT uuid, state, name FROM tasks")

    assert {tuple(row) for row in answer.fetch().rows} == {
        (uuid, task.state, task.name) for uuid, task in state.tasks.items()
    }
