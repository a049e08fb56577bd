"""Two workers of Celery's and two of ours are one cluster, on each broker, for clients of both kinds."""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from typer.testing import CliRunner

from celeriac.cli.root import app as celeriac_command
from celeriac.errors import TaskRevoked
from celeriac.model.events import Event
from celeriac.programs.process import wait_until
from celeriac.testing.peers import CeleriacWorker, CeleryWorker
from celeriac.wire.hello import decode_revoked
from tests.fleet import OUR_APP, PATIENCE, come_true, run_all, running
from tests.interop.conftest import BROKERS, PAIRS, paired
from tests.live import IS_LONG, PEER_APP, peer
from tests.mixed import Mixed, mix

#: Tasks of each client for each worker alone, and for whoever takes them.
OWN, SHARED = (40, 60) if IS_LONG else (10, 20)
#: The versions of Celery's clients on each broker.
CLIENTS = {broker: [version for version, place in PAIRS if place == broker] for broker in BROKERS}
#: Asked of the cluster by the commands of both sides.
QUESTIONS = ("ping", "active", "stats", "revoked")

#: The command ``celery`` several times, in one process: to load it takes longer than all else.
CELERY = """
import json, sys
from celery.bin.celery import celery
for arguments in json.loads(sys.argv[1]):
    celery(args=["--app", "app", *arguments], auto_envvar_prefix="CELERY", standalone_mode=False)
"""

#: Revoked where the name says, and nowhere else, before the late ones came.
AT_CELERY, AT_OURS = "revoked-at-celery", "revoked-at-ours"


@pytest.fixture(scope="module", params=BROKERS)
def mixed(request: pytest.FixtureRequest) -> Iterator[Mixed]:
    with paired(request, "5.7", request.param) as pair, mix(pair) as mixed:
        yield mixed


# -- tasks


@dataclass
class Load:
    """Many tasks of both clients, ended."""

    #: What each is to return, and did, by id.
    wanted: dict[str, Any] = field(default_factory=dict)
    got: dict[str, Any] = field(default_factory=dict)
    #: The worker whose queue it was sent to, by id, where that is one worker's alone.
    owners: dict[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
def load(mixed: Mixed) -> Load:
    load = Load()
    works: list[tuple[str, list[Any], dict[str, Any]]] = []
    for queue in mixed.queues:
        works += [("peers.add", [number, 1], {"queue": queue}) for number in range(OWN)]
        works.append(("peers.retry_then_succeed", [], {"queue": queue}))
    works += [("peers.add", [number, 1], {}) for number in range(SHARED)]

    def note(task_id: str, work: tuple[str, list[Any], dict[str, Any]], value: Any) -> None:
        name, arguments, options = work
        load.wanted[task_id] = sum(arguments) if name == "peers.add" else 2
        load.got[task_id] = value
        if options:
            load.owners[task_id] = mixed.queues[options["queue"]]

    def ours() -> None:
        results = [mixed.app.send_task(name, args, **options) for name, args, options in works]
        for result, work in zip(results, works, strict=True):
            note(result.id, work, result.get(timeout=PATIENCE))

    def theirs() -> None:
        for (task_id, value), work in zip(mixed.batch(tasks=works), works, strict=True):
            note(task_id, work, value)

    run_all([ours, theirs])
    return load


def test_every_task_of_both_clients_has_the_right_result(load: Load) -> None:
    assert load.got == load.wanted
    assert len(load.wanted) == 2 * (4 * (OWN + 1) + SHARED)


@pytest.fixture(scope="module")
def ends(mixed: Mixed, load: Load) -> list[Event]:
    """All that events tell of the tasks that ended well."""

    def told() -> list[Event]:
        return [event for event in mixed.watcher.of_type("task-succeeded") if event["uuid"] in load.wanted]

    mixed.watcher.wait_for(lambda: {event["uuid"] for event in told()} == load.wanted.keys())
    mixed.watcher.wait_until_it_hears()
    return told()


def test_every_task_ends_once_as_events_tell(mixed: Mixed, load: Load, ends: list[Event]) -> None:
    counts = Counter(event["uuid"] for event in ends)
    states = {task_id: mixed.watcher.state.tasks[task_id].state for task_id in load.wanted}

    assert counts == dict.fromkeys(load.wanted, 1)
    assert states == dict.fromkeys(load.wanted, "SUCCESS")


def test_each_worker_runs_what_was_sent_to_its_own_queue_and_no_other_does(
    mixed: Mixed, load: Load, ends: list[Event]
) -> None:
    ran = {str(event["uuid"]): event["hostname"] for event in ends if event["uuid"] in load.owners}

    assert ran == load.owners
    assert set(ran.values()) == mixed.names


# -- who comes later


@dataclass
class Late:
    """A worker of each kind that came when the four were there."""

    celery: CeleryWorker
    ours: CeleriacWorker
    #: Who knew of which revoked task before they came, by the id of the task.
    knew: dict[str, set[str]]
    #: The ids of revoked tasks that each of them knew once they were there.
    learned: dict[str, set[str]]


@pytest.fixture(scope="module")
def late(mixed: Mixed) -> Iterator[Late]:
    theirs = [worker.hostname for worker in mixed.celery]
    mixed.console.ask(
        "broadcast",
        command="revoke",
        arguments={"task_id": [AT_CELERY]},
        destination=theirs,
        reply=True,
        timeout=PATIENCE,
    )
    mixed.app.control.revoke(
        [AT_OURS], destination=[worker.hostname for worker in mixed.ours], reply=True, timeout=PATIENCE
    )
    before = revoked(mixed, mixed.names)
    knew = {
        task_id: {name for name in mixed.names if task_id in before[name]} for task_id in (AT_CELERY, AT_OURS)
    }
    place: dict[str, Any] = {"url": mixed.pair.url, "backend": mixed.pair.backend}
    celery = CeleryWorker(
        peer("5.6"),
        PEER_APP,
        **place,
        hostname="late@celery56",
        pool="threads",
        arguments=("-Q", "late.celery"),
    )
    ours = CeleriacWorker(OUR_APP, **place, hostname="late@ours", arguments=("-Q", "late.ours"))
    with running(celery, ours):
        yield Late(celery, ours, knew, revoked(mixed, {celery.hostname, ours.hostname}))


def revoked(mixed: Mixed, names: set[str]) -> dict[str, set[str]]:
    """Return the ids that nodes know to be revoked."""
    answers: dict[str, Any] = {}

    def all_answer() -> bool:
        missing = sorted(names - answers.keys())
        answers.update(mixed.app.control.inspect(missing, timeout=1.0).revoked() or {})
        return answers.keys() >= names

    # On Redis a worker of Celery's says that it is ready just before it listens to commands.
    assert wait_until(all_answer, patience=PATIENCE)
    return {name: set(answers[name]) for name in names}


def test_a_worker_of_ours_that_joins_later_does_not_run_what_was_revoked_at_celerys(
    mixed: Mixed, late: Late
) -> None:
    result = mixed.app.send_task("peers.echo", ["it ran"], task_id=AT_CELERY, queue="late.ours")

    ended = result.get(timeout=PATIENCE, propagate=False)

    assert late.knew[AT_CELERY] == {worker.hostname for worker in mixed.celery}
    assert AT_CELERY in late.learned[late.ours.hostname]
    assert isinstance(ended, TaskRevoked)


def test_a_worker_of_celerys_that_joins_later_does_not_run_what_was_revoked_at_ours(
    mixed: Mixed, late: Late
) -> None:
    result = mixed.app.send_task("peers.echo", ["it ran"], task_id=AT_OURS, queue="late.celery")

    ended = result.get(timeout=PATIENCE, propagate=False)

    assert late.knew[AT_OURS] == {worker.hostname for worker in mixed.ours}
    assert AT_OURS in late.learned[late.celery.hostname]
    assert isinstance(ended, TaskRevoked)


def test_who_joins_is_noticed_by_all_four(mixed: Mixed, late: Late) -> None:
    for name in (late.celery.hostname, late.ours.hostname):
        assert_all_log(mixed.celery, f"{name} joined the party")
        assert_all_log(mixed.ours, f"gossip: node {name} joined")


@pytest.fixture(scope="module")
def gone(mixed: Mixed, late: Late) -> Late:
    """The worker of ours has left and come again; then both were killed."""
    late.ours.stop()
    assert_all_log(mixed.ours, f"gossip: node {late.ours.hostname} left")
    late.ours.start()
    late.celery.kill()
    late.ours.kill()
    return late


def test_who_leaves_is_noticed_by_all_four(mixed: Mixed, gone: Late) -> None:
    assert_all_log(mixed.celery, f"{gone.ours.hostname} left")
    assert_all_log(mixed.ours, f"gossip: node {gone.ours.hostname} left")


# -- tasks, once they are gone


def test_chains_groups_and_chords_of_a_celery_client_run_across_all_four(mixed: Mixed) -> None:
    clients = CLIENTS[mixed.pair.broker]

    done = {client: dict(mixed.batch(client, across=list(mixed.queues))) for client in clients}

    evens = [0, 2, 4, 6, 8, 10, 12, 14]
    wanted = {
        "chain": 8,
        "group": evens,
        **{f"chord that ends on {queue}": sum(evens) for queue in mixed.queues},
        "group in a chain": sum(evens) + 1,
        "chord of chains": sum(evens) + 2 * len(evens),
    }
    assert done == dict.fromkeys(clients, wanted)


def test_a_client_that_speaks_protocol_1_is_served_by_all_four(mixed: Mixed) -> None:
    clients = CLIENTS[mixed.pair.broker]
    tasks = [("peers.add", [number, 1], {"queue": queue}) for queue in mixed.queues for number in range(5)]
    tasks += [("peers.retry_then_succeed", [], {"queue": queue}) for queue in mixed.queues]

    done = [mixed.batch(client, tasks=tasks, protocol=1) for client in clients]

    assert [[value for _, value in each] for each in done] == [[1, 2, 3, 4, 5] * 4 + [2] * 4] * len(clients)


def test_a_task_that_fails_tells_both_clients_the_same_wherever_it_ran(mixed: Mixed) -> None:
    tasks: list[Any] = [("peers.fail", ["planned"], {"queue": queue}) for queue in mixed.queues]

    theirs = [value for _, value in mixed.batch(tasks=tasks)]
    sent = [mixed.app.send_task(name, args, **options) for name, args, options in tasks]
    ours = [result.get(timeout=PATIENCE, propagate=False) for result in sent]

    assert theirs == ["ValueError: planned"] * 4
    assert [(error.exc_type, error.exc_args) for error in ours] == [("ValueError", ("planned",))] * 4


# -- questions


def test_clients_of_both_kinds_find_all_four_without_being_told_their_names(mixed: Mixed) -> None:
    def by_celery() -> set[str]:
        return {name for answer in mixed.console.ask("ping", timeout=1) for name in answer}

    def by_us() -> set[str]:
        return set(mixed.app.control.inspect(timeout=1).ping())

    assert come_true(lambda: by_celery() >= mixed.names)
    assert come_true(lambda: by_us() >= mixed.names)


def test_the_command_celery_shows_the_answers_of_all_four(mixed: Mixed) -> None:
    done = subprocess.run(  # noqa: S603 - our own command
        [str(mixed.pair.python), "-c", CELERY, json.dumps(questions(mixed))],
        env=dict(os.environ) | {"CELERY_BROKER_URL": mixed.pair.url},
        cwd=PEER_APP.parent,
        capture_output=True,
        text=True,
        timeout=PATIENCE * len(QUESTIONS),
        check=False,
    )

    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.strip()]
    assert [set(answer) for answer in answers] == [mixed.names] * len(QUESTIONS)


def test_the_command_celeriac_shows_the_answers_of_all_four(mixed: Mixed) -> None:
    for question in questions(mixed):
        done = CliRunner().invoke(celeriac_command, [*question, "--broker", mixed.pair.url])

        assert (done.exit_code, done.stderr) == (0, "")
        assert set(json.loads(done.stdout)) == mixed.names


def questions(mixed: Mixed) -> list[list[str]]:
    """Return the questions to all four, as both commands take them."""
    destination = ("--destination", ",".join(sorted(mixed.names)), "--timeout", str(PATIENCE))
    return [["inspect", question, *destination, "--json"] for question in QUESTIONS]


def test_a_celery_client_that_says_hello_is_told_clocks_and_revoked_tasks_by_all_four(mixed: Mixed) -> None:
    answers = mixed.console.ask(
        "inspect",
        method="hello",
        args=["somebody@celery"],
        destination=sorted(mixed.names),
        timeout=PATIENCE,
    )

    assert answers.keys() == mixed.names
    assert all(answer["clock"] > 0 for answer in answers.values())
    for answer in answers.values():
        decode_revoked(answer["revoked"])


def test_what_runs_on_any_of_the_four_is_shown_to_both_clients(mixed: Mixed) -> None:
    sent = [mixed.app.send_task("peers.sleep_for", [15.0], queue=queue).id for queue in mixed.queues]
    where = dict(zip(sent, mixed.queues.values(), strict=True))

    def by_celery() -> dict[str, str]:
        answers = mixed.console.ask(
            "inspect", method="active", destination=sorted(mixed.names), timeout=PATIENCE
        )
        return shown(answers)

    def by_us() -> dict[str, str]:
        return shown(mixed.app.control.inspect(sorted(mixed.names), timeout=PATIENCE).active())

    def shown(answers: dict[str, Any]) -> dict[str, str]:
        return {task["id"]: task["hostname"] for tasks in answers.values() for task in tasks}

    assert come_true(lambda: by_celery() == where)
    assert come_true(lambda: by_us() == where)


# -- what is seen last


def test_who_is_killed_is_noticed_by_all_four(mixed: Mixed, gone: Late) -> None:
    for name in (gone.celery.hostname, gone.ours.hostname):
        assert_all_log(mixed.celery, f"missed heartbeat from {name}")
        assert_all_log(mixed.ours, f"gossip: node {name} lost")


def assert_all_log(workers: list[Any], text: str) -> None:
    for worker in workers:
        assert come_true(lambda worker=worker: text in worker.log()), f"{worker.hostname}: {text}"  # type: ignore[misc]


def test_nobody_logs_an_error_but_for_tasks_that_fail_on_purpose(mixed: Mixed, gone: Late) -> None:
    workers = [*mixed.workers, gone.celery, gone.ours]

    errors = {
        worker.hostname: [error for error in worker.errors() if "ValueError: planned" not in error]
        for worker in workers
    }

    assert errors == {worker.hostname: [] for worker in workers}
