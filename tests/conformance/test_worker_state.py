"""Statements on worker state synchronization: a worker of ours joins one of Celery's, which knows more."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, Final

import pytest
from celery.worker import state as celery_state

from celeriac import Celeriac
from celeriac.config import Settings
from celeriac.core.clock import LamportClock
from celeriac.errors import TaskRevoked
from celeriac.model.election import Election
from celeriac.model.message import Message
from celeriac.node.result import AsyncResult
from celeriac.node.revoked import SharedRevokedSet
from celeriac.programs.process import wait_until
from celeriac.testing.peers import CeleryWorker
from celeriac.wire.control import decode_request
from celeriac.wire.hello import decode_revoked
from celeriac.wire.names import node_queue
from celeriac.worker.steps.mingle import MingleStep
from celeriac.worker.worker import Worker
from tests.component.worker.kit import Site
from tests.interop.conftest import PAIRS, paired

PATIENCE: Final = 90.0
#: The clock that Celery's worker has before ours starts.
AHEAD: Final = 50_000
THEIRS, OURS = "c@celery", "o@ours"


def come_true(condition: Callable[[], object]) -> bool:
    return wait_until(lambda: bool(condition()), patience=PATIENCE)


@dataclass
class Meeting:
    """A worker of ours that has joined a cluster with a worker of Celery's."""

    client: Celeriac
    celery: CeleryWorker
    worker: Worker
    #: The commands on the wire.
    commands: list[dict[str, Any]]
    #: Results of two tasks that waited: the first was revoked before our worker came.
    waited: list[AsyncResult]
    joined: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def say(self, kind: str, hostname: str, *, clock: int | None = None) -> None:
        """Send an event in the name of a node, with a clock of its own."""
        node = Celeriac(self.client.conf.broker_url, environ={})
        node.clock.adjust((self.worker.clock.value if clock is None else clock) - 1)
        with node.events.Dispatcher(hostname=hostname) as dispatcher:
            dispatcher.send(kind, freq=2.0)

    def sees(self, hostname: str) -> bool:
        return hostname in self.worker.gossip.state.workers

    def revoked_at_celery(self) -> list[str]:
        return list(self.client.control.inspect([THEIRS], timeout=PATIENCE).revoked()[THEIRS])


@contextmanager
def listening(app: Celeriac) -> Iterator[list[dict[str, Any]]]:
    """Record the commands that go over the broker."""
    commands: list[dict[str, Any]] = []
    over = Event()
    link = app.connection()

    def receive(message: Message) -> None:
        request = decode_request(message)
        commands.append({"method": request.method, "arguments": dict(request.arguments)})

    def drain() -> None:
        while not over.is_set():
            link.drain(0.1)

    link.subscribe(node_queue(app.conf, "spy@ours"), receive)
    thread = Thread(target=drain)
    thread.start()
    try:
        yield commands
    finally:
        over.set()
        thread.join()
        link.close()


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
def meeting(request: pytest.FixtureRequest) -> Iterator[Meeting]:
    with ExitStack() as stack:
        pair = stack.enter_context(paired(request, *request.param))
        client = Celeriac(pair.url, pair.backend, environ={})
        stack.callback(client.close)
        celery = stack.enter_context(pair.worker(hostname=THEIRS, pool="solo", events=False))
        commands = stack.enter_context(listening(client))
        waited = prepare(client)
        app = Celeriac(pair.url, pair.backend, environ={}, worker_mingle_timeout=5.0)
        stack.callback(app.close)
        app.task(name="v.echo")(lambda value: value)
        worker = app.Worker(OURS, concurrency=1, queues=["waits"])
        worker.revoked.add("at-ours")
        meeting = Meeting(client, celery, worker, commands, waited)
        gossip = worker.gossip
        gossip.on_node_join.append(lambda member: meeting.joined.append(member.hostname))
        gossip.on_node_leave.append(lambda member: meeting.left.append(member.hostname))
        gossip.on_node_lost.append(lambda member: meeting.lost.append(member.hostname))
        stack.enter_context(worker)
        yield meeting


def prepare(client: Celeriac) -> list[AsyncResult]:
    """Have Celery's worker know revoked tasks and a high clock, and tasks wait for ours."""
    inspect = client.control.inspect([THEIRS], timeout=PATIENCE)
    client.control.revoke(["at-celery", "while-away"], [THEIRS], reply=True, timeout=PATIENCE)

    def is_ahead() -> bool:
        far = Celeriac(client.conf.broker_url, environ={})
        far.clock.adjust(AHEAD)
        with far.events.Dispatcher(hostname="far@ours") as dispatcher:
            dispatcher.send("worker-heartbeat", freq=2.0)
        return int(inspect.clock()[THEIRS]["clock"]) > AHEAD

    assert come_true(is_ahead)
    return [
        client.send_task("v.echo", [id_], task_id=id_, queue="waits") for id_ in ("while-away", "after-all")
    ]


# -- mingle


def test_128_a_worker_says_hello_when_it_starts(meeting: Meeting) -> None:
    """A worker broadcasts `hello` with its name and its revoked tasks when it starts."""
    hellos = [each["arguments"] for each in meeting.commands if each["method"] == "hello"]

    assert hellos[0] == {"from_node": OURS, "revoked": ["at-ours"]}


def test_129_a_worker_says_hello_after_a_restart_of_its_connection() -> None:
    """A worker says hello again after its connection was lost and restarted."""
    site = Site()

    def hellos() -> int:
        return sum(b'"hello"' in message.body for _, message in list(site.broker.published))

    with site.worker():
        assert come_true(lambda: hellos() == 2)  # the second one once it can be reached itself
        site.broker.cut()

        assert come_true(lambda: hellos() >= 3)


class Asked:
    """Takes the place of ``control``: notes what is asked, and gives answers."""

    def __init__(self, *answers: dict[str, object]) -> None:
        self.answers = list(answers)
        self.timeouts: list[float] = []

    def broadcast(self, _command: str, _arguments: object, *, timeout: float, **_: object) -> object:
        self.timeouts.append(timeout)
        return self.answers


def mingle(*answers: dict[str, object], driver: str = "redis") -> tuple[MingleStep, Asked]:
    asked: Any = Asked(*answers)
    timeout = Settings().worker_mingle_timeout
    step = MingleStep(
        asked,
        hostname=OURS,
        clock=idle_worker().clock,
        revoked=SharedRevokedSet(),
        driver=driver,
        timeout=timeout,
    )
    return step, asked


def test_130_hello_waits_one_second() -> None:
    """A worker waits one second for the answers to its hello, by default."""
    step, asked = mingle()

    step.start()

    assert asked.timeouts == [1.0]


def test_131_a_worker_drops_its_own_reply() -> None:
    """A worker drops its own reply to its hello."""
    step, _ = mingle({OURS: {"clock": 10**6, "revoked": ["x"]}}, {THEIRS: {"clock": 7, "revoked": []}})

    step.start()

    assert step.neighbours == (THEIRS,)
    assert step._clock.value == 7
    assert list(step._revoked) == []


def test_132_a_worker_takes_over_the_clock_of_the_cluster(meeting: Meeting) -> None:
    """A worker that starts moves its clock past the highest of the cluster."""
    app = Celeriac(meeting.client.conf.broker_url, environ={})
    # Mingle alone, since gossip takes over clocks too.
    step = MingleStep(
        app.control,
        hostname="meets@v",
        clock=app.clock,
        revoked=SharedRevokedSet(),
        driver="redis",
        timeout=1.0,
    )

    def is_ahead() -> bool:
        step.start()
        return app.clock.value > AHEAD

    assert come_true(is_ahead)
    assert meeting.worker.clock.value > AHEAD


def test_133_a_worker_learns_revoked_tasks(meeting: Meeting) -> None:
    """A worker that starts takes over the tasks that its neighbors revoked."""
    assert {"at-celery", "while-away"} <= set(meeting.worker.revoked)


def test_134_a_worker_teaches_revoked_tasks(meeting: Meeting) -> None:
    """The neighbors take over the tasks that the starting worker revoked."""
    assert come_true(lambda: "at-ours" in meeting.revoked_at_celery())


def test_135_a_worker_answers_hello(meeting: Meeting) -> None:
    """A worker answers `hello` with its clock and its revoked tasks, and merges those of the sender."""
    inspect = meeting.client.control.inspect([OURS], timeout=PATIENCE)

    answer = inspect.hello("x@v", ["at-x"])[OURS]

    assert {"at-celery", "at-ours"} <= set(decode_revoked(answer["revoked"]))
    assert answer["clock"] > AHEAD
    assert "at-x" in meeting.worker.revoked


def test_136_revoked_tasks_are_a_limited_set() -> None:
    """Revoked tasks are a set limited in number and age, by Celery's numbers; `revoked.add(id)` adds one."""
    revoked = idle_worker().revoked
    small = SharedRevokedSet(max_size=2, max_age=10.0)

    revoked.add("t1")
    for second, task_id in enumerate(("a", "b", "c")):
        small.add(task_id, now=100.0 + second)
    in_number = list(small)
    small.purge(now=111.5)

    assert list(revoked) == ["t1"]
    assert (revoked.max_size, revoked.max_age) == (celery_state.REVOKES_MAX, celery_state.REVOKE_EXPIRES)
    assert in_number == ["b", "c"]
    assert list(small) == ["c"]


def test_137_a_task_revoked_while_the_worker_was_away_is_not_run(meeting: Meeting) -> None:
    """A task that was revoked while a worker was offline is not run when it comes."""
    revoked, other = meeting.waited

    with pytest.raises(TaskRevoked):
        revoked.get(timeout=PATIENCE)
    assert other.get(timeout=PATIENCE) == "after-all"


# -- gossip


def test_138_gossip_listens_to_events_of_workers(meeting: Meeting) -> None:
    """Gossip receives every event with the routing key `worker.#`, and no event of tasks."""
    node = Celeriac(meeting.client.conf.broker_url, environ={})

    with node.events.Dispatcher(hostname="listens@v") as dispatcher:
        dispatcher.send("task-started", uuid="t1")
        dispatcher.send("worker-heartbeat", freq=2.0)
    is_heard = come_true(lambda: "listens@v" in meeting.worker.gossip.membership.members)

    assert is_heard
    assert "t1" not in meeting.worker.gossip.state.tasks


def test_139_an_event_of_another_host_moves_state_and_clock(meeting: Meeting) -> None:
    """An event of another host updates the state and moves the clock past its own."""
    ahead = meeting.worker.clock.value + 1000

    meeting.say("worker-heartbeat", "other@v", clock=ahead)

    assert come_true(lambda: meeting.sees("other@v"))
    assert meeting.worker.clock.value > ahead


def test_140_an_event_of_the_own_host_forwards_the_clock() -> None:
    """An event of the worker's own host moves the clock forward by one, whatever its stamp."""
    worker = idle_worker()
    before = worker.clock.value

    worker.gossip.receive(Message(event_of(worker.hostname, clock=before + 1_000_000)))

    assert worker.clock.value == before + 1


def event_of(hostname: str, **fields: object) -> bytes:
    event = {"type": "worker-heartbeat", "hostname": hostname, "pid": 7, "clock": 3, "timestamp": 1.0}
    return json.dumps({**event, "utcoffset": 0, **fields}).encode()


def idle_worker() -> Worker:
    """Return a worker that is not started."""
    return Site().worker()


@pytest.mark.differs("Host of a gossip message")
@pytest.mark.parametrize("headers", [{}, {"hostname": "other@v"}, {"hostname": "w1@lab"}])
def test_141_the_host_is_read_from_the_event(headers: dict[str, object]) -> None:
    """Gossip reads the host of a message from the header `hostname`, and from the event if there is none."""
    gossip = idle_worker().gossip

    gossip.receive(Message(event_of("other@v"), headers=headers))

    assert list(gossip.state.workers) == ["other@v"]


def test_142_an_unreadable_message_is_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """A message that cannot be decoded is logged as an error, once a minute, counted, and harms nothing."""
    worker = idle_worker()
    bad = [
        Message(b"\x80\x04K\x01.", content_type="application/x-python-serialize"),
        Message(b'{"type": '),
        Message(b'{"hostname": "x@v"}'),
    ]

    for message in (*bad, *bad):
        worker.gossip.receive(message)
    worker.gossip.receive(Message(event_of("other@v")))

    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "gossip: unreadable message" in record.getMessage()
    assert worker.gossip.gate.refused.total() == 6
    assert worker.gossip.stats() == {"refused": dict(worker.gossip.gate.refused)}
    assert list(worker.gossip.state.workers) == ["other@v"]


def test_143_on_node_join_is_called(meeting: Meeting) -> None:
    """`on_node_join` is called when a node is new."""
    assert come_true(lambda: THEIRS in meeting.joined)


def test_144_on_node_leave_is_called(meeting: Meeting) -> None:
    """`on_node_leave` is called when a node shuts down."""
    passing = Celeriac(meeting.client.conf.broker_url, environ={}, worker_mingle_timeout=0.1)

    with passing.Worker("passing@ours", concurrency=1, queues=["none"]):
        assert come_true(lambda: "passing@ours" in meeting.joined)

    assert come_true(lambda: "passing@ours" in meeting.left)


def test_145_on_node_lost_is_called(meeting: Meeting) -> None:
    """`on_node_lost` is called when a node misses its heartbeats."""
    meeting.say("worker-online", "silent@v")
    is_seen = come_true(lambda: "silent@v" in meeting.joined)

    is_lost = come_true(lambda: "silent@v" in meeting.lost)

    assert is_seen
    assert is_lost
    assert "silent@v" not in meeting.left


@pytest.mark.differs("Timing of gossip")
def test_146_lost_nodes_are_looked_for_twice_a_second() -> None:
    """Gossip looks for lost nodes every `interval` seconds, by default 5."""
    gossip = idle_worker().gossip

    due_at = gossip.tick(100.0)

    assert gossip.interval == 5.0
    assert due_at == 100.5


@pytest.mark.differs("Timing of gossip")
@pytest.mark.parametrize(("heartbeat", "ttl"), [(2.0, 30.0), (1.0, 30.0), (4.0, 60.0)])
def test_147_messages_wait_for_fifteen_heartbeats(heartbeat: float, ttl: float) -> None:
    """Messages in the gossip queue expire after `heartbeat_interval` seconds, by default 2."""
    gossip = Site(worker_heartbeat_interval=heartbeat).worker().gossip
    link: Any = Subscriptions()
    gossip._connection = SimpleNamespace(link=link)  # type: ignore[assignment]

    gossip.start()

    assert gossip.heartbeat_interval == heartbeat
    assert [queue.message_ttl for queue in link.queues] == [ttl, ttl]


class Subscriptions:
    """Takes the place of a connection, and notes the queues that are subscribed to."""

    driver = "amqp"

    def __init__(self) -> None:
        self.queues: list[Any] = []

    def subscribe(self, queue: Any, _deliver: object) -> None:
        self.queues.append(queue)


# -- switched off


def test_148_without_mingle_no_hello_is_said() -> None:
    """With `without_mingle` a worker says no hello, and gossips all the same."""
    site = Site()

    with site.worker(without_mingle=True) as worker:
        assert come_true(lambda: site.events("worker-online"))

        assert worker.gossip.is_enabled
    assert not any(b'"hello"' in message.body for _, message in site.broker.published)


def test_149_without_gossip_a_worker_sees_nobody_and_takes_no_part() -> None:
    """With `without_gossip` a worker hears no events and takes part in no election."""
    site = Site()
    deaf, other = site.worker(without_gossip=True), site.worker(hostname="w2@lab")
    other.gossip.election_handlers["tidy"] = lambda _: None

    with other, deaf:
        is_seen = come_true(lambda: deaf.hostname in other.gossip.membership.members)
        refusal = deaf.parts.elector.join(Election("e1", "tidy"), 0.0)

    assert is_seen
    assert list(deaf.gossip.state.workers) == []
    assert "this worker runs without gossip" in refusal


# -- transports


def test_150_mingle_runs_on_three_transports() -> None:
    """Of Celery's transports mingle runs on `amqp`, `redis` and `gcpubsub`; others are logged as off."""
    steps = {
        driver: mingle(driver=driver)[0] for driver in ("amqp", "redis", "gcpubsub", "filesystem", "sql")
    }

    assert [driver for driver, step in steps.items() if step.is_enabled] == ["amqp", "redis", "gcpubsub"]
    assert "transport filesystem" in steps["filesystem"].unsupported


FOLDERS: Final = (("data", "_in"), ("data", "_out"), ("control", ""))


def test_151_gossip_runs_on_two_transports(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Gossip is off on a transport such as `filesystem`, and the worker logs once what follows."""
    folders = {f"{name}_folder{way}": str(tmp_path) for name, way in FOLDERS}
    app = Celeriac("filesystem://", environ={}, broker_transport_options=folders)

    with app.Worker("w@v", concurrency=1) as worker:
        is_enabled = worker.gossip.is_enabled

    texts = [each.getMessage() for each in caplog.records if ": off, " in each.getMessage()]
    assert not is_enabled
    assert [text.partition(":")[0] for text in texts] == ["mingle", "gossip"]
    assert all("transport filesystem" in text for text in texts)


def test_152_mingle_precedes_gossip() -> None:
    """`Gossip.requires` includes mingle, so that the graph of steps starts mingle first."""
    text = idle_worker().graph.text().splitlines()

    assert [line for line in text if line.startswith(("5.", "6."))] == [
        "5. mingle      requires connection",
        "6. gossip      requires connection, mingle",
    ]


def test_153_the_winner_is_the_lowest_clock_and_name() -> None:
    """The winner of an election is the candidate with the lowest clock, and then the lowest full hostname."""
    candidates = [(9, "a@v.1"), (4, "c@v.1"), (4, "b@v.7")]

    winner = LamportClock.sort_heap(candidates)

    assert winner == (4, "b@v.7")
    assert idle_worker().gossip.full_hostname.rpartition(".")[0] == "w1@lab"
