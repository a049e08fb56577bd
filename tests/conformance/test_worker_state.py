"""Statements on worker state synchronization: workers of ours, and one of Celery's, on real brokers."""

import json
import logging
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final
from urllib.parse import urlsplit

import celery
import pytest
from celery.worker import state as celery_state

from celeriac import Celeriac, MemoryBroker, SharedClock
from celeriac.core.clock import LamportClock
from celeriac.errors import TaskRevoked
from celeriac.model.message import Message
from celeriac.node.result import AsyncResult
from celeriac.node.revoked import SharedRevokedSet
from celeriac.programs.process import wait_until
from celeriac.testing.peers import CeleryWorker
from celeriac.testing.rabbit import RabbitNode
from celeriac.wire.control import decode_request
from celeriac.wire.hello import decode_revoked
from celeriac.wire.names import node_queue
from celeriac.worker.steps.mingle import MingleStep
from celeriac.worker.worker import Worker
from tests.cables import Cables
from tests.component.worker.kit import Site
from tests.interop.conftest import PAIRS, paired
from tests.wires import AmqpWire, Raw, RedisWire

PATIENCE: Final = 90.0
#: The clock that Celery's worker has before ours starts.
AHEAD: Final = 50_000
#: A clock so far ahead that no single node is believed.
FAR: Final = 2**40
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
    #: The clock of a node after a hello that Celery's worker alone answered.
    mingled_clock: int
    #: Results of two tasks that waited: the first was revoked before our worker came.
    waited: list[AsyncResult]
    joined: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def say(self, kind: str, hostname: str, *, clock: int | None = None) -> None:
        """Send an event in the name of a node, with a clock of its own."""
        say(
            self.client.conf.broker_url,
            kind,
            hostname,
            clock=self.worker.clock.value if clock is None else clock,
        )

    def sees(self, hostname: str) -> bool:
        return hostname in self.worker.gossip.state.workers

    def revoked_at_celery(self) -> list[str]:
        return list(self.client.control.inspect([THEIRS], timeout=PATIENCE).revoked()[THEIRS])


def say(url: str, kind: str, hostname: str, *, clock: int = 1) -> None:
    """Send an event in the name of a node, with a clock of its own."""
    with closing(Celeriac(url, environ={})) as node:
        node.clock.adjust(clock - 1)
        with node.events.Dispatcher(hostname=hostname) as dispatcher:
            dispatcher.send(kind, freq=2.0)


@contextmanager
def listening(app: Celeriac) -> Iterator[list[dict[str, Any]]]:
    """Record the commands that go over the broker from the moment this is entered."""
    commands: list[dict[str, Any]] = []
    over = Event()
    link = app.connection()

    def receive(message: Message) -> None:
        request = decode_request(message)
        commands.append({"method": request.method, "arguments": dict(request.arguments)})

    def drain() -> None:
        while not over.is_set():
            link.drain(0.1)

    def is_received() -> bool:
        app.control.broadcast("ping")
        return bool(commands)

    link.subscribe(node_queue(app.conf, "spy@ours"), receive)
    thread = Thread(target=drain)
    thread.start()
    try:
        assert come_true(is_received)
        yield commands
    finally:
        over.set()
        thread.join()
        link.close()


def hellos(commands: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the arguments of each `hello`."""
    return [each["arguments"] for each in list(commands) if each["method"] == "hello"]


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
def meeting(request: pytest.FixtureRequest) -> Iterator[Meeting]:
    with ExitStack() as stack:
        pair = stack.enter_context(paired(request, *request.param))
        client = Celeriac(pair.url, pair.backend, environ={})
        stack.callback(client.close)
        celery = stack.enter_context(pair.worker(hostname=THEIRS, pool="solo", events=False))
        commands = stack.enter_context(listening(client))
        waited = prepare(client)
        mingled_clock = clock_after_mingle(pair.url, answers=1)
        # It may come after the answers: over a connection of its own.
        assert come_true(lambda: hellos(commands))
        commands.clear()
        app = Celeriac(pair.url, pair.backend, environ={})
        stack.callback(app.close)
        app.task(name="v.echo")(lambda value: value)
        worker = app.Worker(OURS, concurrency=1, queues=["waits"])
        worker.revoked.add("at-ours")
        wait_for_answers(worker.parts.mingle, 1)
        meeting = Meeting(client, celery, worker, commands, mingled_clock, waited)
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
        say(client.conf.broker_url, "worker-heartbeat", "far@ours", clock=AHEAD)
        return int(inspect.clock()[THEIRS]["clock"]) > AHEAD

    assert come_true(is_ahead)
    return [
        client.send_task("v.echo", [id_], task_id=id_, queue="waits") for id_ in ("while-away", "after-all")
    ]


@pytest.fixture(params=["redis_url", "amqp_url"])
def url(request: pytest.FixtureRequest) -> str:
    """An empty database of Redis, or virtual host of RabbitMQ."""
    return str(request.getfixturevalue(request.param))


@contextmanager
def working(
    url: str, hostname: str = OURS, *, settings: dict[str, Any] | None = None, **choices: Any
) -> Iterator[Worker]:
    """Have a worker of ours on a real broker, with a clock of its own, and no tasks to run."""
    quick = {"worker_mingle_timeout": 0.1, "broker_retry_base": 0.01, "broker_retry_cap": 0.05}
    with (
        closing(Celeriac(url, environ={}, **{**quick, **(settings or {})})) as app,
        app.Worker(hostname, concurrency=1, queues=["none"], **choices) as worker,
    ):
        yield worker


def wait_for_answers(step: MingleStep, count: int) -> None:
    """Have a hello end once so many nodes have answered, however long they take."""
    step._timeout = PATIENCE
    step._control.broadcast = partial(step._control.broadcast, limit=count)  # type: ignore[method-assign]


def mingle_step(control: Any, *, clock: SharedClock | None = None, driver: str = "redis") -> MingleStep:
    """Return the step alone: a whole worker takes over clocks from gossip too."""
    return MingleStep(
        control,
        hostname=OURS,
        clock=clock or SharedClock(),
        revoked=SharedRevokedSet(),
        driver=driver,
        timeout=PATIENCE,
    )


def clock_after_mingle(url: str, *, answers: int) -> int:
    """Return the clock of a new node after a hello that so many nodes answered."""
    with closing(Celeriac(url, environ={})) as app:
        step = mingle_step(app.control, clock=app.clock)
        wait_for_answers(step, answers)
        step.start()
        assert len(step.neighbours) == answers
        return app.clock.value


# -- mingle


def test_128_a_worker_says_hello_when_it_starts(meeting: Meeting) -> None:
    """A worker broadcasts `hello` with its name and its revoked tasks when it starts."""
    is_said = come_true(lambda: hellos(meeting.commands))

    assert is_said
    assert hellos(meeting.commands)[0] == {"from_node": OURS, "revoked": ["at-ours"]}


def test_129_a_worker_says_hello_after_a_restart_of_its_connection(url: str) -> None:
    """A worker says hello again after its connection was lost and restarted."""
    port = urlsplit(url).port
    assert port is not None
    with (
        closing(Celeriac(url, environ={})) as client,
        listening(client) as commands,
        Cables() as cables,
        # The worker alone is behind the cable.
        working((cable := cables.lay(port)).url_of(url, port=port)),
    ):
        assert come_true(lambda: len(hellos(commands)) == 2)  # the second one once it can be reached itself
        cable.cut()
        cable.mend()

        assert come_true(lambda: len(hellos(commands)) >= 4)

    assert {each["from_node"] for each in hellos(commands)} == {OURS}


class Asked:
    """Takes the place of ``control``: notes each timeout, and gives answers."""

    def __init__(self, *answers: Mapping[str, object]) -> None:
        self.answers = list(answers)
        self.timeouts: list[float] = []

    def broadcast(self, _command: str, _arguments: object, *, timeout: float, **_: object) -> object:
        self.timeouts.append(timeout)
        return self.answers


def test_130_hello_waits_one_second() -> None:
    """A worker waits one second for the answers to its hello, by default."""
    asked: Any = Asked()
    step = Celeriac(MemoryBroker(), environ={}).Worker(OURS, concurrency=1).parts.mingle
    step._control = asked

    step.start()

    assert asked.timeouts == [1.0]


def test_131_a_worker_drops_its_own_reply(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """A worker drops its own reply to its hello."""
    with working(url, "n@v"), working(url) as worker:
        step = worker.parts.mingle

        def is_answered_by_both() -> bool:
            _, is_answered_by_itself = step._greet()
            return is_answered_by_itself and bool(step.neighbours)

        assert come_true(is_answered_by_both)

    assert step.neighbours == ("n@v",)
    assert "invalid reply" not in caplog.text


def test_a_reply_in_the_name_of_the_worker_itself_teaches_nothing() -> None:
    answers = {OURS: {"clock": 10**6, "revoked": ["x"]}}, {THEIRS: {"clock": 7, "revoked": []}}
    step = mingle_step(Asked(*answers))

    step.start()

    assert step.neighbours == (THEIRS,)
    assert step._clock.value == 7
    assert list(step._revoked) == []


@pytest.mark.differs("Clocks that are far ahead")
@pytest.mark.parametrize(
    ("clocks", "highest"),
    [
        ((10_000, AHEAD), AHEAD),
        ((10_000, 20_000, AHEAD), AHEAD),
        # One of three is not believed, one of two and two of three are.
        ((10_000, 20_000, FAR), 20_000),
        ((10_000, FAR), FAR),
        ((10_000, FAR, FAR + 7), FAR),
    ],
)
def test_132_a_worker_takes_over_the_clock_of_the_cluster(
    url: str, clocks: tuple[int, ...], highest: int
) -> None:
    """A worker that starts moves its clock past the highest of the cluster."""
    with ExitStack() as stack:
        for number, clock in enumerate(clocks):
            alone = working(url, f"n{number}@v", without_mingle=True, without_gossip=True)
            stack.enter_context(alone).clock.adjust(clock)

        value = clock_after_mingle(url, answers=len(clocks))

    assert highest <= value < highest + 5_000


def test_a_worker_takes_over_the_clock_of_a_celery_worker(meeting: Meeting) -> None:
    assert meeting.mingled_clock > AHEAD


def test_133_a_worker_learns_revoked_tasks(meeting: Meeting) -> None:
    """A worker that starts takes over the tasks that its neighbors revoked."""
    assert {"at-celery", "while-away"} <= set(meeting.worker.revoked)


def test_134_a_worker_teaches_revoked_tasks(meeting: Meeting) -> None:
    """The neighbors take over the tasks that the starting worker revoked, and do not run them."""
    assert come_true(lambda: "at-ours" in meeting.revoked_at_celery())

    result = meeting.client.send_task("peers.add", [1, 2], task_id="at-ours")

    with pytest.raises(TaskRevoked):
        result.get(timeout=PATIENCE)


def test_135_a_worker_answers_hello(meeting: Meeting) -> None:
    """A worker answers `hello` with its clock and its revoked tasks, and merges those of the sender."""
    with celery.Celery(broker=meeting.client.conf.broker_url, set_as_current=False) as client:
        answer = client.control.inspect([OURS], timeout=PATIENCE).hello("x@v", ["at-x"])[OURS]

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


def test_140_an_event_of_the_own_host_forwards_the_clock(meeting: Meeting) -> None:
    """An event of the worker's own host moves the clock forward by one, whatever its stamp."""
    worker = idle_worker()
    before, far = worker.clock.value, meeting.worker.clock.value + 1_000_000

    worker.gossip.receive(Message(event_of(worker.hostname, clock=before + 1_000_000)))
    # Celery's worker takes the stamp for its own clock, and its next heartbeat would bring it to ours.
    meeting.celery.signal(signal.SIGSTOP)
    try:
        meeting.say("worker-heartbeat", OURS, clock=far)
        meeting.say("worker-heartbeat", "later@v")
        is_seen = come_true(lambda: meeting.sees("later@v"))
        reached = meeting.worker.clock.value
    finally:
        meeting.celery.signal(signal.SIGCONT)

    assert worker.clock.value == before + 1
    assert is_seen
    assert reached < far


def sees(worker: Worker, hostname: str) -> bool:
    return hostname in worker.gossip.state.workers


def becomes_known(hostname: str, worker: Worker, url: str) -> bool:
    """Send events of a node until a worker has received one; from then on it misses none."""

    def is_seen() -> bool:
        say(url, "worker-heartbeat", hostname)
        return sees(worker, hostname)

    return come_true(is_seen)


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


def test_142_an_unreadable_message_is_logged_as_an_error(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """A message that cannot be decoded is logged as an error, once a minute, counted, and harms nothing."""
    bad = [
        Raw(b"\x80\x04K\x01.", content_type="application/x-python-serialize"),
        Raw(b'{"type": '),
        Raw(b'{"hostname": "x@v"}'),
    ]

    with (
        working(url) as worker,
        closing(Celeriac(url, environ={})) as client,
        (RedisWire if url.startswith("redis") else AmqpWire)(url) as wire,
    ):
        assert becomes_known("first@v", worker, url)
        for raw in (*bad, *bad):
            wire.send_event(raw)
        wire.send_event(Raw(event_of("other@v")))
        is_seen = come_true(lambda: sees(worker, "other@v"))
        stats = client.control.inspect([OURS], timeout=PATIENCE).stats()[OURS]

    assert is_seen
    assert stats["gossip"]["refused"] == {"content-type": 2, "json": 2, "type": 2}
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "gossip: unreadable message" in record.getMessage()


def test_143_on_node_join_is_called(meeting: Meeting) -> None:
    """`on_node_join` is called when a node is new."""
    assert come_true(lambda: THEIRS in meeting.joined)


def test_144_on_node_leave_is_called(meeting: Meeting) -> None:
    """`on_node_leave` is called when a node shuts down."""
    passing = Celeriac(meeting.client.conf.broker_url, environ={}, worker_mingle_timeout=0.1)

    with passing.Worker("passing@ours", concurrency=1, queues=["none"]):
        assert come_true(lambda: "passing@ours" in meeting.joined)

    assert come_true(lambda: "passing@ours" in meeting.left)
    assert "passing@ours" not in meeting.lost


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
@pytest.mark.parametrize(("heartbeat", "ttl"), [(2.0, 30_000), (1.0, 30_000), (4.0, 60_000)])
def test_147_messages_wait_for_fifteen_heartbeats(
    rabbit_server: RabbitNode, amqp_url: str, heartbeat: float, ttl: int
) -> None:
    """Messages in the gossip queue expire after `heartbeat_interval` seconds, by default 2."""
    vhost = urlsplit(amqp_url).path[1:]

    with working(amqp_url, settings={"worker_heartbeat_interval": heartbeat}) as worker:
        listed = rabbit_server.list_queues(vhost, "name", "arguments")

    queues = [each["arguments"] for each in listed if each["name"].startswith("celeryev.")]
    assert worker.gossip.heartbeat_interval == heartbeat
    assert queues == [{"x-message-ttl": ttl, "x-expires": 60_000, "x-max-length": 20_000}] * 2


# -- switched off


def test_148_without_mingle_no_hello_is_said(url: str) -> None:
    """With `without_mingle` a worker says no hello, and gossips all the same."""
    with (
        closing(Celeriac(url, environ={})) as client,
        listening(client) as commands,
        working(url, without_mingle=True) as worker,
    ):
        assert becomes_known("other@v", worker, url)
        client.control.broadcast("clock")
        # All earlier events of the worker came before this one.
        assert come_true(lambda: "clock" in [each["method"] for each in list(commands)])

    assert hellos(commands) == []


def test_149_without_gossip_a_worker_sees_nobody_and_takes_no_part(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With `without_gossip` a worker receives no events and takes part in no election."""
    with (
        closing(Celeriac(url, environ={})) as client,
        working(url, "deaf@v", without_gossip=True) as deaf,
        working(url) as other,
    ):
        is_seen = come_true(lambda: sees(other, "deaf@v"))
        client.control.election("e1", "tidy", force=True)
        is_refused = come_true(lambda: "take part: the worker runs without gossip" in caplog.text)
        is_held = come_true(lambda: list(other.parts.elector.elections.all) == ["e1"])

    assert is_seen
    assert is_refused
    assert is_held
    assert list(deaf.gossip.state.workers) == []
    assert list(deaf.parts.elector.elections.all) == []


@pytest.mark.differs("Absent parts of a worker")
@pytest.mark.parametrize("command", ["autoscale", "pool_restart", "revoke_by_stamped_headers"])
def test_command_for_an_absent_part_is_answered_with_an_error(redis_url: str, command: str) -> None:
    with (
        closing(Celeriac(redis_url, environ={})) as client,
        working(redis_url, settings={"control_allow": [command]}),
    ):
        (reply,) = client.control.broadcast(command, {}, [OURS], reply=True, timeout=PATIENCE) or []

    assert reply == {OURS: {"error": f"unknown command {command!r}"}}


# -- transports


def test_150_mingle_runs_on_three_transports() -> None:
    """Of Celery's transports mingle runs on `amqp`, `redis` and `gcpubsub`; others are logged as off."""
    steps = {
        driver: mingle_step(Asked(), driver=driver)
        for driver in ("amqp", "redis", "gcpubsub", "filesystem", "sql")
    }

    assert [driver for driver, step in steps.items() if step.is_enabled] == ["amqp", "redis", "gcpubsub"]
    assert "transport filesystem" in steps["filesystem"].unsupported


FOLDERS: Final = (("data", "_in"), ("data", "_out"), ("control", ""))


def test_151_gossip_runs_on_two_transports(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Gossip runs on `amqp` and `redis`; on another transport it is off, which is logged once."""
    folders = {f"{name}_folder{way}": str(tmp_path) for name, way in FOLDERS}

    with (
        working(url) as worker,
        working("filesystem://", settings={"broker_transport_options": folders}) as other,
    ):
        is_enabled = [each.parts.mingle.is_enabled and each.gossip.is_enabled for each in (worker, other)]

    off = [each.getMessage() for each in caplog.records if ": off, " in each.getMessage()]
    assert is_enabled == [True, False]
    assert [text.partition(":")[0] for text in off] == ["mingle", "gossip"]
    assert all("transport filesystem" in text for text in off)


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
