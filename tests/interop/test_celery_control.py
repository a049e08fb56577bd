"""Our commands are obeyed and answered by real workers, and our nodes answer Celery's clients."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypedDict

import pytest

from celeriac.app import Celeriac
from celeriac.node.inspect import Inspect, Replies
from celeriac.programs.process import wait_until
from celeriac.testing.peers import CeleryWorker
from celeriac.wire.hello import decode_revoked
from tests.console import Console
from tests.interop.conftest import Pair
from tests.links import frozen
from tests.node import Node
from tests.watcher import PATIENCE, Watcher

NODE = "ours@celeriac"
#: Revoked at our node before any worker was there to be told.
REVOKED_HERE = "revoked-before-they-met"
TASK = "peers.total"
#: A worker that beats once an hour shows itself only when asked to.
QUIET = ("--heartbeat-interval", "3600")


class Whom(TypedDict, total=False):
    """How a command is addressed."""

    destination: list[str]
    pattern: str
    matcher: str


@dataclass
class Shop:
    """A cluster of two workers of Celery's and a node of ours."""

    app: Celeriac
    #: A client of Celery's.
    console: Console
    #: Our node.
    node: Node
    #: A worker with two processes, that sends no events of tasks.
    worker: CeleryWorker
    #: A worker with one thread, that runs one task, holds one back, and has one for later.
    busy: CeleryWorker
    #: The ids of those three.
    running: str
    waiting: str
    scheduled: str

    def ask(self, worker: CeleryWorker) -> Inspect:
        """Return what asks one worker."""
        return self.app.control.inspect([worker.hostname], timeout=PATIENCE)

    def rate_limit(self, worker: CeleryWorker) -> str:
        """Return the rate limit that a worker has for our task."""
        (told,) = [
            line
            for line in self.ask(worker).registered("rate_limit")[worker.hostname]
            if line.startswith(TASK)
        ]
        return str(told)

    def wait_for_state(self, task_id: str, state: str) -> None:
        """Wait until the result backend has a state."""
        came = wait_until(lambda: self.console.ask("states", ids=[task_id]) == [state], patience=PATIENCE)
        assert came, self.console.ask("states", ids=[task_id])


@pytest.fixture(scope="module")
def shop(pair: Pair) -> Iterator[Shop]:
    with ExitStack() as stack:
        app = pair.app()
        console = stack.enter_context(pair.console())
        node = stack.enter_context(Node(app, NODE))
        node.mailbox.revoked.add(REVOKED_HERE, now=monotonic())
        worker = stack.enter_context(
            pair.worker(*QUIET, "--without-mingle", hostname="wide@celery", concurrency=2, events=False)
        )
        busy = stack.enter_context(pair.worker(*QUIET, "-Q", "busy", hostname="busy@celery", pool="threads"))

        def has_met() -> bool:
            # Celery waits for answers for a second alone, and on a busy machine that is too short.
            if "mingle: sync with 2 nodes" in busy.log():
                return True
            busy.restart()
            return False

        assert wait_until(has_met, patience=PATIENCE)

        def send(**options: Any) -> str:
            return str(console.ask("send", name="peers.sleep_for", args=[600], queue="busy", **options))

        running, waiting, scheduled = send(argsrepr="(masked,)"), send(), send(countdown=3600)
        shop = Shop(app, console, node, worker, busy, running, waiting, scheduled)

        def is_busy() -> bool:
            ask = shop.ask(busy)
            return all(
                len(reply[busy.hostname]) == 1 for reply in (ask.active(), ask.reserved(), ask.scheduled())
            )

        assert wait_until(is_busy, patience=PATIENCE)
        yield shop


# -- what a worker tells


def test_a_worker_answers_a_ping(shop: Shop) -> None:
    answers = shop.app.control.ping([shop.worker.hostname], timeout=PATIENCE)

    assert answers == [{shop.worker.hostname: {"ok": "pong"}}]


def test_stats_tell_of_the_process_and_its_pool(shop: Shop) -> None:
    stats = shop.ask(shop.worker).stats()[shop.worker.hostname]

    assert stats["pid"] == shop.worker.pid
    assert len(stats["pool"]["processes"]) == 2


def test_active_tells_which_tasks_run_and_hides_what_they_were_called_with(shop: Shop) -> None:
    (task,) = shop.ask(shop.busy).active()[shop.busy.hostname]

    assert task["id"] == shop.running
    assert task["args"] == "(masked,)"


def test_reserved_tells_which_tasks_wait_in_the_worker(shop: Shop) -> None:
    (task,) = shop.ask(shop.busy).reserved()[shop.busy.hostname]

    assert task["id"] == shop.waiting


def test_scheduled_tells_which_tasks_wait_for_their_time(shop: Shop) -> None:
    (task,) = shop.ask(shop.busy).scheduled()[shop.busy.hostname]

    assert task["request"]["id"] == shop.scheduled


def test_registered_tells_which_tasks_the_worker_can_run(shop: Shop) -> None:
    tasks = shop.ask(shop.worker).registered()[shop.worker.hostname]

    assert {"peers.add", "peers.fail", TASK} <= set(tasks)


def test_active_queues_tell_where_tasks_come_from(shop: Shop) -> None:
    queues = shop.ask(shop.busy).active_queues()[shop.busy.hostname]

    assert [queue["name"] for queue in queues] == ["busy"]


def test_query_task_tells_what_became_of_tasks(shop: Shop) -> None:
    tasks = shop.ask(shop.busy).query_task(shop.running, [shop.waiting, "unheard-of"])[shop.busy.hostname]

    assert {task_id: state for task_id, (state, _) in tasks.items()} == {
        shop.running: "active",
        shop.waiting: "reserved",
    }


def test_conf_tells_how_the_worker_is_configured(shop: Shop) -> None:
    conf = shop.ask(shop.worker).conf()[shop.worker.hostname]

    assert conf["task_send_sent_event"] is True


def test_report_tells_which_software_runs(shop: Shop, pair: Pair) -> None:
    report = shop.ask(shop.worker).report()[shop.worker.hostname]

    assert f"celery:{pair.version}." in report["ok"]


def test_clock_tells_a_clock_which_ours_then_is_past(shop: Shop) -> None:
    clock = shop.ask(shop.worker).clock()[shop.worker.hostname]["clock"]

    assert 0 < clock < shop.app.clock.value


def test_hello_brings_revoked_ids_to_the_worker_and_back(shop: Shop) -> None:
    reply = shop.ask(shop.worker).hello("guest@celeriac", ["revoked-by-hello"])[shop.worker.hostname]

    assert "revoked-by-hello" in decode_revoked(reply["revoked"])
    assert reply["clock"] > 0
    assert "revoked-by-hello" in shop.ask(shop.worker).revoked()[shop.worker.hostname]


# -- what a worker does


def test_a_task_that_waits_can_be_revoked(shop: Shop) -> None:
    task_id = shop.console.ask("send", name="peers.add", args=[1, 1], queue="later")
    shop.app.control.revoke(task_id, [shop.worker.hostname], reply=True, timeout=PATIENCE)

    shop.app.control.add_consumer("later", destination=[shop.worker.hostname], reply=True, timeout=PATIENCE)

    shop.wait_for_state(task_id, "REVOKED")
    assert task_id in shop.ask(shop.worker).revoked()[shop.worker.hostname]


def test_a_task_that_runs_can_be_terminated(shop: Shop) -> None:
    task_id = shop.console.ask("send", name="peers.sleep_for", args=[600])
    shop.wait_for_state(task_id, "STARTED")

    shop.app.control.terminate(task_id, [shop.worker.hostname])

    shop.wait_for_state(task_id, "REVOKED")


def test_a_worker_limits_how_often_a_task_begins(shop: Shop) -> None:
    (answer,) = (
        shop.app.control.rate_limit(TASK, "5/m", [shop.worker.hostname], reply=True, timeout=PATIENCE) or []
    )

    assert answer == {shop.worker.hostname: {"ok": "new rate limit set successfully"}}
    assert shop.rate_limit(shop.worker) == f"{TASK} [rate_limit=5/m]"


def test_a_worker_limits_how_long_a_task_may_take(shop: Shop) -> None:
    (answer,) = (
        shop.app.control.time_limit(
            TASK, soft=30, hard=60, destination=[shop.worker.hostname], reply=True, timeout=PATIENCE
        )
        or []
    )

    told = shop.ask(shop.worker).registered("soft_time_limit", "time_limit")[shop.worker.hostname]

    assert answer == {shop.worker.hostname: {"ok": "time limits set successfully"}}
    assert f"{TASK} [soft_time_limit=30 time_limit=60]" in told


def test_a_pool_grows_and_shrinks(shop: Shop) -> None:
    def processes() -> int:
        return len(shop.ask(shop.worker).stats()[shop.worker.hostname]["pool"]["processes"])

    shop.app.control.pool_grow(1, [shop.worker.hostname], reply=True, timeout=PATIENCE)
    assert wait_until(lambda: processes() == 3, patience=PATIENCE)
    shop.app.control.pool_shrink(1, [shop.worker.hostname], reply=True, timeout=PATIENCE)
    assert wait_until(lambda: processes() == 2, patience=PATIENCE)


def test_a_worker_takes_up_a_queue_and_drops_it(shop: Shop) -> None:
    def queues() -> set[str]:
        return {queue["name"] for queue in shop.ask(shop.worker).active_queues()[shop.worker.hostname]}

    shop.app.control.add_consumer("extra", destination=[shop.worker.hostname], reply=True, timeout=PATIENCE)
    # Celery: replies that it will, and does so in a later turn of its loop.
    assert wait_until(lambda: "extra" in queues(), patience=PATIENCE)
    shop.app.control.cancel_consumer("extra", [shop.worker.hostname], reply=True, timeout=PATIENCE)
    assert wait_until(lambda: "extra" not in queues(), patience=PATIENCE)


def test_events_of_tasks_are_sent_only_while_they_are_enabled(shop: Shop) -> None:
    control, to = shop.app.control, [shop.worker.hostname]
    with Watcher(shop.app) as watcher:
        control.enable_events(to, reply=True, timeout=PATIENCE)
        first = shop.console.ask("send", name="peers.add", args=[1, 1], countdown=3600)
        watcher.wait_for(lambda: any(event["uuid"] == first for event in watcher.of_type("task-received")))

        control.disable_events(to, reply=True, timeout=PATIENCE)
        unheard = shop.console.ask("send", name="peers.add", args=[1, 1])
        shop.wait_for_state(unheard, "SUCCESS")
        control.enable_events(to, reply=True, timeout=PATIENCE)
        last = shop.console.ask("send", name="peers.add", args=[1, 1], countdown=3600)

        watcher.wait_for(lambda: any(event["uuid"] == last for event in watcher.of_type("task-received")))
        assert unheard not in {event["uuid"] for event in watcher.of_type("task-received")}


def test_a_worker_sends_a_heartbeat_when_asked(shop: Shop) -> None:
    with Watcher(shop.app) as watcher:
        name = shop.worker.hostname
        watcher.wait_for(lambda: name in watcher.state.workers)
        beats = len(watcher.state.workers[name].heartbeats)

        shop.app.control.heartbeat([name])

        watcher.wait_for(lambda: len(watcher.state.workers[name].heartbeats) > beats)


def test_a_worker_that_is_told_to_shuts_down_and_no_other_does(shop: Shop, pair: Pair) -> None:
    with Watcher(shop.app) as watcher, pair.worker("--without-mingle", "-Q", "none", pool="solo") as worker:
        watcher.wait_for(lambda: worker.hostname in watcher.state.workers)

        shop.app.control.shutdown([worker.hostname])

        assert wait_until(lambda: not worker.is_alive, patience=PATIENCE)
        assert (worker.exit_code, worker.errors()) == (0, [])
        watcher.wait_for(lambda: watcher.state.workers[worker.hostname].has_left)
        others = shop.app.control.ping([shop.worker.hostname, shop.busy.hostname], timeout=PATIENCE)
        assert len(others) == 2


# -- who is meant, and who answers


@pytest.mark.parametrize(
    ("whom", "rate"),
    [
        (Whom(destination=["wide@celery"]), "11/m"),
        (Whom(pattern="w?de@*"), "12/m"),
        (Whom(pattern="wide@(celery|other)$", matcher="pcre"), "13/m"),
    ],
    ids=["destination", "glob", "pcre"],
)
def test_a_command_reaches_those_who_are_meant_and_no_other(shop: Shop, whom: Whom, rate: str) -> None:
    answer = shop.app.control.rate_limit(TASK, rate, reply=True, timeout=PATIENCE, limit=1, **whom)

    limits = shop.rate_limit(shop.worker), shop.rate_limit(shop.busy)

    assert answer == [{shop.worker.hostname: {"ok": "new rate limit set successfully"}}]
    # The other one answers in order: had it been meant, it would have obeyed by now.
    assert limits == (f"{TASK} [rate_limit={rate}]", TASK)


def test_a_limit_ends_the_wait_before_all_have_answered(shop: Shop) -> None:
    with frozen(shop.busy):
        replies = shop.app.control.inspect(limit=2, timeout=PATIENCE, known=[shop.busy.hostname]).ping()

    assert set(replies) == {shop.worker.hostname, NODE}
    assert replies.silent == []


@pytest.fixture(scope="module")
def replies_of_some(shop: Shop) -> Replies:
    """The answers to a question that a paused worker and nobody were asked too."""
    with frozen(shop.busy):
        asked = [shop.worker.hostname, shop.busy.hostname, "nobody@celery"]
        return shop.app.control.inspect(asked, timeout=5, known=[shop.busy.hostname]).ping()


def test_a_worker_that_answers_is_neither_silent_nor_absent(shop: Shop, replies_of_some: Replies) -> None:
    answered = dict(replies_of_some)

    assert answered == {shop.worker.hostname: {"ok": "pong"}}


def test_a_paused_worker_that_was_heard_before_is_silent(shop: Shop, replies_of_some: Replies) -> None:
    silent = replies_of_some.silent

    assert silent == [shop.busy.hostname]


def test_a_name_that_nobody_has_is_absent(replies_of_some: Replies) -> None:
    absent = replies_of_some.absent

    assert absent == ["nobody@celery"]


def test_a_receiver_that_wakes_the_workers_sees_them_at_once(shop: Shop) -> None:
    # They beat once an hour: it is not by chance.
    with Watcher(shop.app) as watcher:
        names = {shop.worker.hostname, shop.busy.hostname}

        watcher.wait_for(lambda: names <= set(watcher.state.workers))

        assert all(watcher.state.workers[name].alive for name in names)


# -- Celery's clients and workers ask our node


def test_our_node_answers_a_ping_of_celerys_client(shop: Shop) -> None:
    answers = shop.console.ask("ping", destination=[NODE], timeout=PATIENCE)

    assert answers == [{NODE: {"ok": "pong"}}]


def test_our_node_answers_beside_celerys_workers(shop: Shop) -> None:
    answers = shop.console.ask("ping", limit=3, timeout=PATIENCE)

    assert {name for answer in answers for name in answer} == {NODE, shop.worker.hostname, shop.busy.hostname}


@pytest.mark.parametrize(
    ("method", "args", "is_right"),
    [
        ("stats", [], lambda reply: reply["pid"] > 0 and reply["clock"].isdigit()),
        ("clock", [], lambda reply: reply["clock"] > 0),
        ("hello", ["gen1@celery", {}], lambda reply: reply["clock"] > 0 and REVOKED_HERE in reply["revoked"]),
    ],
)
def test_our_node_tells_celerys_client_about_itself(
    shop: Shop, method: str, args: list[Any], is_right: Callable[[Any], bool]
) -> None:
    answers = shop.console.ask("inspect", method=method, args=args, destination=[NODE], timeout=PATIENCE)

    assert set(answers) == {NODE}
    assert is_right(answers[NODE])


def test_our_node_tells_a_celery_client_that_it_lacks_a_command(shop: Shop) -> None:
    before = shop.node.mailbox.refused["unknown"]

    answers = shop.console.ask(
        "broadcast", command="shutdown", destination=[NODE], reply=True, timeout=PATIENCE
    )

    assert answers == [{NODE: {"error": "unknown command 'shutdown'"}}]
    assert shop.console.ask("ping", destination=[NODE], timeout=PATIENCE) == [{NODE: {"ok": "pong"}}]
    assert shop.node.mailbox.refused["unknown"] == before + 1
    assert shop.node.is_running


def test_a_worker_that_starts_meets_our_node_and_learns_what_is_revoked(shop: Shop) -> None:
    revoked = shop.ask(shop.busy).revoked()[shop.busy.hostname]

    log = shop.busy.log()

    assert REVOKED_HERE in revoked
    assert "mingle: sync with 2 nodes" in log
    assert "mingle: sync complete" in log


def test_no_worker_logs_an_error_because_of_us(shop: Shop) -> None:
    errors = shop.worker.errors() + shop.busy.errors()

    assert errors == []
    assert shop.worker.is_alive
    assert shop.busy.is_alive
