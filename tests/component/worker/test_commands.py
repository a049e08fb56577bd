"""What a worker answers and does when others ask it to, and what it refuses."""

import os
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from celeriac.app import Celeriac
from celeriac.model.outcome import Outcome
from celeriac.model.states import FAILURE
from celeriac.worker.worker import Worker
from tests.component.worker.kit import HOST, PATIENCE, HandPool, Site, come_true

ALLOWED = (
    "terminate", "rate_limit", "time_limit", "pool_grow", "pool_shrink", "add_consumer", "cancel_consumer",
    "shutdown", "conf",
)  # fmt: skip


def ask(site: Site, command: str, **arguments: object) -> Any:
    """Return what the worker answers, which is to come soon."""
    answers = site.app.control.broadcast(command, arguments, reply=True, timeout=120.0, limit=1)
    assert answers, f"no answer to {command}"
    return answers[0][HOST]


def is_refused(site: Site, command: str, **arguments: object) -> bool:
    """Tell whether the worker answers that the command is not allowed."""
    answer = ask(site, command, **arguments)
    return bool(
        answer["error"].startswith(
            f"command {command!r} is not allowed on this node: add it to control_allow"
        )
    )


def catch_up(worker: Worker) -> None:
    """Wait until the thread of tasks has done what it was asked before."""
    done = Event()
    worker.tasks.call(done.set)
    assert done.wait(PATIENCE)


@pytest.fixture
def site() -> Site:
    site = Site(control_allow=ALLOWED)
    site.task("shop.pay")
    site.task("shop.late", acks_late=True)
    return site


@pytest.fixture
def worker(site: Site) -> Iterator[Worker]:
    with site.worker() as worker:
        yield worker
        for job in list(site.pool.running.values()):
            site.pool.end(job)


# -- who may what


@pytest.mark.parametrize("command", ALLOWED)
def test_what_changes_a_worker_must_be_allowed(command: str) -> None:
    site = Site()
    site.task("shop.pay")
    arguments = {"task_name": "shop.pay", "queue": "mail", "n": 1, "task_id": "t1"}

    with site.worker() as worker:
        refused = is_refused(site, command, **arguments)

        assert worker.parts.pool.size == 2
    assert refused


@pytest.mark.parametrize(
    "command",
    [
        *("active", "dump_active", "reserved", "dump_reserved", "scheduled", "dump_schedule"),
        *("revoked", "dump_revoked", "registered", "dump_tasks", "active_queues", "stats", "clock", "ping"),
    ],
)
def test_questions_are_open_to_all(command: str) -> None:
    site = Site()
    with site.worker():
        answer = ask(site, command)

    assert answer is not None
    assert "error" not in answer


@pytest.mark.parametrize("command", ["enable_events", "disable_events", "heartbeat"])
def test_the_commands_that_every_monitor_sends_are_open_to_all(command: str) -> None:
    site = Site()
    with site.worker():
        answer = ask(site, command)

    assert answer is None or answer.keys() == {"ok"}


def test_to_end_what_runs_must_be_allowed_though_to_revoke_is_open() -> None:
    site = Site()
    site.task("shop.pay")
    with site.worker() as worker:
        answer = ask(site, "revoke", task_id="t1", terminate=True)
        revoked = list(worker.revoked)

    assert "add terminate to control_allow" in answer["error"]
    assert revoked == []


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("revoke", {"task_id": 7}),
        ("revoke", {"task_id": [None]}),
        ("revoke", {"task_id": ""}),
        ("revoke", {"task_id": "x" * 2000}),
        ("revoke", {"task_id": "t1", "terminate": True, "signal": "SIGNONE"}),
        ("revoke", {"task_id": "t1", "terminate": True, "signal": 4711}),
        ("revoke", {"task_id": "t1", "terminate": True, "signal": None}),
        ("terminate", {"task_id": {}}),
        ("rate_limit", {"task_name": ["shop.pay"], "rate_limit": "1/s"}),
        ("time_limit", {"task_name": "shop.pay", "hard": "long"}),
        ("time_limit", {"task_name": "shop.pay", "soft": -1}),
        ("time_limit", {"task_name": "shop.pay", "hard": True}),
        ("pool_grow", {"n": 0}),
        ("pool_grow", {"n": 10_000}),
        ("pool_shrink", {"n": "1"}),
        ("add_consumer", {"queue": ""}),
        ("add_consumer", {"queue": "x" * 300}),
        ("cancel_consumer", {"queue": None}),
        ("query_task", {"ids": 7}),
        ("query_task", {"ids": [[]]}),
    ],
)
def test_arguments_that_make_no_sense_are_answered_with_an_error(
    site: Site, worker: Worker, command: str, arguments: dict[str, object]
) -> None:
    answer = ask(site, command, **arguments)

    assert list(answer) == ["error"]
    assert ask(site, "ping") == {"ok": "pong"}
    assert list(worker.revoked) == []


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("command", ["revoke", "active", "heartbeat", "pool_grow", "query_task"])
def test_arguments_that_are_not_known_are_let_pass(site: Site, command: str) -> None:
    answer = ask(site, command, task_id="t1", ids=[], safe=True, novel={"a": 1})

    assert not (isinstance(answer, dict) and "error" in answer)


# -- revoke, terminate


@pytest.mark.usefixtures("worker")
def test_a_task_that_has_not_begun_ends_when_it_is_revoked(site: Site) -> None:
    site.post(task_id="t1")
    assert come_true(lambda: site.pool.waiting)

    answer = ask(site, "revoke", task_id="t1")

    assert answer == {"ok": "tasks {'t1'} flagged as revoked"}
    assert come_true(lambda: site.has_told("task-revoked"))
    assert not site.pool.waiting
    assert ask(site, "revoked") == ["t1"]


@pytest.mark.usefixtures("worker")
def test_a_task_that_runs_goes_on_when_it_is_revoked(site: Site) -> None:
    site.post()
    job = site.pool.begin()

    ask(site, "revoke", task_id=["t1", "t2"])
    site.pool.end(job)

    assert come_true(lambda: site.has_told("task-succeeded"))
    assert site.pool.signals == []


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("signal", ["SIGKILL", "kill", 9])
def test_a_task_that_runs_is_ended_by_a_signal(site: Site, signal: object) -> None:
    site.post()
    job = site.pool.begin()

    answer = ask(site, "revoke", task_id="t1", terminate=True, signal=signal)
    assert come_true(lambda: site.pool.signals == [(job.key, 9)])
    site.pool.end(job, Outcome(FAILURE, b"{}", cause="terminated"))

    assert answer == {"ok": "terminate: t1"}
    assert come_true(lambda: site.has_told("task-revoked"))
    (revoked,) = site.events("task-revoked")
    assert [revoked[name] for name in ("terminated", "signum", "expired")] == [True, 9, False]
    assert site.story() == ["task-received", "task-started", "task-revoked"]


def test_the_command_terminate_does_the_same(site: Site, worker: Worker) -> None:
    site.post()
    job = site.pool.begin()

    answer = ask(site, "terminate", task_id=["t1", "t9"], signal="SIGTERM")

    assert answer == {"ok": "terminate: t1"}
    assert come_true(lambda: site.pool.signals == [(job.key, 15)])
    assert set(worker.revoked) == {"t1", "t9"}


@pytest.mark.usefixtures("worker")
def test_to_end_tasks_that_are_not_here_says_so(site: Site) -> None:
    assert ask(site, "terminate", task_id="t9") == {"ok": "terminate: tasks unknown"}


@pytest.mark.usefixtures("worker")
def test_a_pool_that_cannot_end_a_task_lets_it_run(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.pool.can_terminate = False
    site.post()
    job = site.pool.begin()

    ask(site, "terminate", task_id="t1")
    assert come_true(lambda: "cannot terminate task t1" in caplog.text)
    site.pool.end(job)

    assert come_true(lambda: site.has_told("task-succeeded"))


# -- limits


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"task_name": "shop.gone", "rate_limit": "1/s"}, {"error": "unknown task"}),
        ({"task_name": "shop.pay", "rate_limit": "1/m"}, {"ok": "new rate limit set successfully"}),
        ({"task_name": "shop.pay", "rate_limit": 3}, {"ok": "new rate limit set successfully"}),
        ({"task_name": "shop.pay", "rate_limit": 0}, {"ok": "rate limit disabled successfully"}),
        ({"task_name": "shop.pay", "rate_limit": None}, {"ok": "rate limit disabled successfully"}),
    ],
)
def test_a_rate_can_be_set(site: Site, arguments: dict[str, object], answer: object) -> None:
    assert ask(site, "rate_limit", **arguments) == answer


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("rate", ["often", "1/y", [], True, -1])
def test_what_is_no_rate_is_told(site: Site, rate: object) -> None:
    answer = ask(site, "rate_limit", task_name="shop.pay", rate_limit=rate)

    assert answer["error"].startswith("Invalid rate limit string: ")


def test_a_rate_holds_from_now_on(site: Site, worker: Worker) -> None:
    ask(site, "rate_limit", task_name="shop.pay", rate_limit="1/h")
    catch_up(worker)
    site.post(task_id="t1")
    site.post(task_id="t2")
    site.post("shop.late", task_id="t3")

    assert come_true(lambda: len(site.pool.submitted) == 2)
    ids = [job.request.id for job in site.pool.submitted]
    ask(site, "rate_limit", task_name="shop.pay", rate_limit=0)

    assert ids == ["t1", "t3"]
    assert come_true(lambda: len(site.pool.submitted) == 3)


def test_time_limits_hold_for_what_begins_from_now_on(site: Site, worker: Worker) -> None:
    answer = ask(site, "time_limit", task_name="shop.pay", hard=60, soft=30.5)
    unknown = ask(site, "time_limit", task_name="shop.gone", hard=60)
    catch_up(worker)
    site.post()

    job = site.pool.begin()

    assert answer == {"ok": "time limits set successfully"}
    assert unknown == {"error": "unknown task"}
    assert (job.time_limit, job.soft_time_limit) == (60.0, 30.5)


# -- pool, queues, events, shutdown


def test_the_pool_grows_and_shrinks_and_so_does_what_is_taken_ahead(site: Site, worker: Worker) -> None:
    before = worker.tasks.prefetch

    grown = ask(site, "pool_grow", n=3)
    assert come_true(lambda: site.pool.size == 5)
    more = worker.tasks.prefetch
    shrunk = ask(site, "pool_shrink", n=3)

    assert come_true(lambda: site.pool.size == 2)
    assert (grown, shrunk) == ({"ok": "pool will grow"}, {"ok": "pool will shrink"})
    assert (before, more) == (8, 20)


def test_a_pool_that_runs_in_place_does_not_grow(site: Site) -> None:
    with site.worker(HandPool(1, runs_in_place=True)):
        answer = ask(site, "pool_grow", n=1)

    assert "one task at a time" in answer["error"]


def test_a_queue_can_be_added_and_left(site: Site, worker: Worker) -> None:
    added = ask(site, "add_consumer", queue="mail", exchange=None, exchange_type="direct", routing_key=None)
    site.post(task_id="m1", queue="mail")
    began = site.pool.begin().request.id
    left = ask(site, "cancel_consumer", queue="mail")
    assert come_true(lambda: list(worker.tasks.queues) == ["celery"])

    assert (added, left) == ({"ok": "add consumer mail"}, {"ok": "no longer consuming from mail"})
    assert began == "m1"


def test_events_of_tasks_can_be_switched(site: Site) -> None:
    with site.worker(task_events=False) as worker:
        site.post(task_id="t1")
        site.pool.end(site.pool.begin())
        assert come_true(lambda: worker.desk.ended == 1)
        answers = [ask(site, command) for command in ("disable_events", "enable_events", "enable_events")]
        site.post(task_id="t2")
        site.pool.end(site.pool.begin())
        assert come_true(lambda: site.has_told("task-succeeded", "t2"))
        answers.append(ask(site, "disable_events"))
        site.post(task_id="t3")
        site.pool.end(site.pool.begin())
        assert come_true(lambda: worker.desk.ended == 3)

    assert [answer["ok"] for answer in answers] == [
        "task events already disabled",
        "task events enabled",
        "task events already enabled",
        "task events disabled",
    ]
    assert {event["uuid"] for event in site.events() if "uuid" in event} == {"t2"}
    assert len(site.events("worker-online")) == 2


def test_a_worker_that_sends_all_events_answers_as_celery_does(site: Site, worker: Worker) -> None:
    answers = [ask(site, command) for command in ("enable_events", "disable_events")]

    assert answers == [{"ok": "task events already enabled"}, {"ok": "task events already disabled"}]
    assert worker.parts.events.has_task_events


def test_a_worker_ends_when_it_is_told_to(site: Site, worker: Worker) -> None:
    site.post()
    job = site.pool.begin()

    site.app.control.shutdown()
    assert come_true(lambda: worker._is_stopping)
    site.pool.end(job)

    assert come_true(lambda: site.events("worker-offline"))
    assert site.has_told("task-succeeded")


# -- answers


def test_what_is_told_of_a_task_is_what_celery_tells_but_for_its_arguments(
    site: Site, worker: Worker
) -> None:
    site.post(body=b'[["secret"],{},{}]', argsrepr="('***',)", kwargsrepr="{}")
    site.pool.begin()
    assert come_true(lambda: worker.desk.all()[0].verdict)

    (info,) = ask(site, "active")

    assert info == {
        "id": "t1",
        "name": "shop.pay",
        "args": "('***',)",
        "kwargs": "{}",
        "type": "shop.pay",
        "hostname": HOST,
        "time_start": 1_794_703_817.25,
        "acknowledged": True,
        "delivery_info": {"exchange": "", "routing_key": "celery", "priority": 0, "redelivered": False},
        "worker_pid": 4711,
    }


def test_each_task_is_told_where_it_is(site: Site, worker: Worker) -> None:
    site.post("shop.late", "running")
    site.pool.begin()
    site.post("shop.late", "waiting")
    site.post("shop.late", "later", eta=4e9)
    assert come_true(lambda: len(worker.desk) == 3 and site.pool.waiting)

    active, reserved, scheduled = (ask(site, command) for command in ("active", "reserved", "scheduled"))
    queried = ask(site, "query_task", ids=["running", "waiting", "later", "gone"])

    assert [info["id"] for info in active] == ["running"]
    assert [info["id"] for info in reserved] == ["waiting"]
    assert [(each["eta"], each["priority"], each["request"]["id"]) for each in scheduled] == [
        ("2096-10-02T07:06:40+00:00", 0, "later")
    ]
    assert {task_id: state for task_id, (state, _) in queried.items()} == {
        "running": "active",
        "waiting": "reserved",
        "later": "scheduled",
    }


def test_a_task_that_has_ended_and_is_not_settled_is_ready(site: Site, worker: Worker) -> None:
    site.post()
    job = site.pool.begin()
    worker.desk.end(job.key)

    queried = ask(site, "query_task", ids="t1")

    assert queried["t1"][0] == "ready"
    worker.desk.remove(worker.desk.all())


@pytest.mark.usefixtures("worker")
def test_stats_tell_of_tasks_pool_and_prefetch(site: Site) -> None:
    site.publish(b"{}", {"task": "shop.pay"})
    site.post()
    site.pool.end(site.pool.begin())

    stats = ask(site, "stats")

    assert stats["refused"] == {"no-id": 1}
    assert stats["total"] == {"shop.pay": 1}
    assert stats["pool"] == {"implementation": "hand", "max-concurrency": 2}
    assert (stats["prefetch_count"], stats["pid"], stats["broker"]) == (
        8,
        os.getpid(),
        {"transport": "memory"},
    )
    assert stats["clock"].isdigit()


@pytest.mark.usefixtures("worker")
def test_tasks_and_queues_are_named(site: Site) -> None:
    registered, (queue,) = ask(site, "registered"), ask(site, "active_queues")

    assert registered == sorted(site.app.tasks)
    assert (queue["name"], queue["routing_key"], queue["durable"]) == ("celery", "celery", True)
    assert (queue["exclusive"], queue["auto_delete"]) == (False, False)


def test_settings_are_told_without_secrets() -> None:
    site = Site(broker_url="redis://:hunter2@lab/0", control_allow=("conf",))
    site.app = Celeriac(site.broker, environ={}, broker_url="redis://:hunter2@lab/0", control_allow=("conf",))
    with site.worker():
        answer = ask(site, "conf")

    assert answer["control_allow"] == ["conf"]
    assert "hunter2" not in str(answer)


def test_tasks_are_told_with_the_options_that_were_asked_for(site: Site) -> None:
    site.task("shop.pay", rate_limit="10/s", acks_late=True)
    with site.worker():
        told = ask(
            site, "registered", taskinfoitems=["rate_limit", "acks_late", "time_limit", "__class__", 7]
        )

    assert "shop.pay [rate_limit=10/s acks_late=True]" in told


def test_a_report_tells_software_and_settings_and_no_secret() -> None:
    site = Site(control_allow=("report",), broker_transport_options={"password": "hunter2"})
    with site.worker():
        told = ask(site, "report")

    assert "software -> celeriac:" in told["ok"]
    assert "worker_prefetch_multiplier: 4" in told["ok"]
    assert "hunter2" not in told["ok"]
