"""Statements on leader election: workers of ours on real brokers, watched by Celery's own event receiver."""

import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Thread
from typing import Any, Final

import celery
import pytest
from kombu.clocks import LamportClock as KombuClock

from celeriac import CallerError, Celeriac, LamportClock, MemoryBroker
from celeriac.core.election import Candidacy
from celeriac.core.election_effect import Act, Claim
from celeriac.core.election_rules import Grants, Rules
from celeriac.core.membership import Liveness
from celeriac.model.election import Ack, Candidate, Elect, Election, Granted
from celeriac.node.election import elected_task_id
from celeriac.node.result import AsyncResult
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleriacWorker
from celeriac.testing.rabbit import RabbitNode
from celeriac.worker.steps.gossip import GossipStep
from celeriac.worker.worker import Worker
from tests.component.worker.hall import TIMEOUTS, Hall, refusal
from tests.interop.conftest import BROKERS
from tests.program import own_environment, run_program
from tests.tidy.repository import ROOT

PATIENCE: Final = 90.0
SHOP: Final = ROOT / "examples" / "shop.py"
GHOST: Final = "ghost@celery"
#: The workers of an election that is held without a broker.
LOW, HIGH = "a@lab.1", "b@lab.1"


def come_true(condition: Callable[[], object]) -> bool:
    return wait_until(lambda: bool(condition()), patience=PATIENCE)


def vhost_of(request: pytest.FixtureRequest, stack: ExitStack, name: str) -> str:
    rabbit: RabbitNode = request.getfixturevalue("rabbit_server")
    rabbit.add_vhost(name)
    stack.callback(rabbit.delete_vhost, name)
    return rabbit.url_of(name)


class Recording(Thread):
    """Every event, as Celery's own receiver reads it."""

    def __init__(self, app: celery.Celery) -> None:
        super().__init__(daemon=True)
        self.events: list[dict[str, Any]] = []
        self._connection = app.connection_for_read()
        self._receiver = app.events.Receiver(self._connection, handlers={"*": self.events.append})

    def run(self) -> None:
        self._receiver.capture(limit=None, timeout=None, wakeup=False)

    def of(self, kind: str, id_: str) -> list[dict[str, Any]]:
        """Return the events of a type on one election or task."""
        return [each for each in list(self.events) if each["type"] == kind and id_ in _ids(each)]

    def stop(self) -> None:
        self._receiver.should_stop = True
        self.join()
        self._connection.release()


def _ids(event: dict[str, Any]) -> set[object]:
    return {event.get("id"), event.get("eid"), event.get("uuid")}


@dataclass
class Arena:
    """Three workers of ours, a client of ours and one of Celery's on one broker."""

    app: Celeriac
    celery: celery.Celery
    recording: Recording
    workers: list[Worker]
    apps: list[Celeriac]
    #: Workers and their actions on the topic ``tidy``.
    tidied: list[tuple[str, object]] = field(default_factory=list)
    joined: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def names(self) -> set[str]:
        return {each.hostname for each in self.workers}

    def add_handlers(self, worker: Worker) -> None:
        def fail(_: object) -> None:
            raise ValueError("planned")

        # With one argument, as Celery calls it.
        worker.gossip.election_handlers["tidy"] = lambda action: self.tidied.append((worker.hostname, action))
        worker.gossip.election_handlers["boom"] = fail

    def know_each_other(self) -> bool:
        return all(len(each.gossip.peers()) >= len(self.workers) - 1 for each in self.workers)

    def is_alone(self) -> bool:
        """Return whether no worker takes a node of an earlier test to be alive."""
        return all(
            {each.hostname for each in one.gossip.membership.alive()} == self.names for one in self.workers
        )

    def tidy(self, id_: str, action: object = None) -> list[str]:
        """Have one of the workers tidy, and return its name, once for each time."""
        self.app.control.election(id_, "tidy", action, force=True)
        assert come_true(lambda: self.is_over(id_))
        return [name for name, done in list(self.tidied) if done == action]

    def is_over(self, id_: str) -> bool:
        known = [each.parts.elector.elections.all.get(id_) for each in self.workers]
        return all(each is not None and each.is_over for each in known)

    def value_of(self, result: AsyncResult) -> Any:
        return result.get(timeout=PATIENCE)

    def candidates(self, id_: str) -> list[tuple[int, str]]:
        """Return the clock and the full name of each candidate of an election."""
        return [(e["clock"], f"{e['hostname']}.{e['pid']}") for e in self.recording.of("worker-elect", id_)]

    def runs(self, task_id: str) -> int:
        """Return how often a task came to a worker."""
        assert come_true(
            lambda: (
                self.recording.of("task-received", task_id) and self.recording.of("task-succeeded", task_id)
            )
        )
        return len(self.recording.of("task-received", task_id))

    def say(self, kind: str, **fields: Any) -> None:
        """Send an event in the name of another node."""
        with self.app.events.Dispatcher(hostname=GHOST) as dispatcher:
            dispatcher.send(kind, **fields)


@pytest.fixture(scope="module", params=BROKERS)
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer({"appendonly": "yes", "appendfsync": "everysec"}))
        url, backend = redis.url, redis.url_of(1)
        if request.param == "amqp":
            url = vhost_of(request, stack, "conformance-election")
        settings: dict[str, Any] = {"environ": {}, "worker_mingle_timeout": 0.1, "election_actions": ["v.*"]}
        apps = [Celeriac(url, backend, **settings) for _ in range(3)]
        for app in apps:
            stack.callback(app.close)
            app.task(name="v.add")(lambda x, y: x + y)
        client = Celeriac(url, backend, environ={})
        stack.callback(client.close)
        recording = Recording(peer := celery.Celery(broker=url, backend=backend))
        stack.callback(peer.close)
        recording.start()
        stack.callback(recording.stop)
        workers = [
            app.Worker(f"w{number}@arena", concurrency=1, task_events=True)
            for number, app in enumerate(apps, 1)
        ]
        arena = Arena(client, peer, recording, workers, apps)
        for worker in workers:
            arena.add_handlers(worker)
        gossip = workers[0].gossip
        for handlers, names in (
            (gossip.on_node_join, arena.joined),
            (gossip.on_node_leave, arena.left),
            (gossip.on_node_lost, arena.lost),
        ):
            handlers.append(lambda member, names=names: names.append(member.hostname))  # type: ignore[misc]
        for worker in workers:
            stack.enter_context(worker)
        assert come_true(arena.know_each_other), "they did not meet"
        assert come_true(lambda: recording.events), "nothing is recorded"
        yield arena


def answered(call: Callable[[float], AsyncResult]) -> AsyncResult:
    """Call an election, each time with a longer timeout, until the workers have answered in time."""
    for timeout in TIMEOUTS:
        with suppress(CallerError):
            return call(timeout)
    raise AssertionError("no worker answered in time")


def idle_worker(broker: str | MemoryBroker | None = None, **settings: Any) -> Worker:
    """Return a worker that is not started."""
    return Celeriac(broker or MemoryBroker(), environ={}, **settings).Worker("w@v", concurrency=1)


# -- gossip is a step of the worker


def test_032_gossip_is_a_step_of_the_worker() -> None:
    """`Gossip` is a step of the worker."""
    worker = idle_worker()

    steps = {step.name: step for step in worker.graph}

    assert steps["gossip"] is worker.gossip
    assert isinstance(worker.gossip, GossipStep)


def test_033_gossip_keeps_the_clock(arena: Arena) -> None:
    """Gossip keeps the Lamport clock of the worker, as `gossip.clock`."""
    gossip = arena.workers[0].gossip
    ahead = gossip.clock.value + 1_000
    arena.app.clock.adjust(ahead)

    arena.say("worker-heartbeat", freq=2.0)

    assert gossip.clock is arena.apps[0].clock
    assert come_true(lambda: gossip.clock.value > ahead)
    arena.say("worker-offline", freq=2.0)


def test_034_gossip_tracks_workers_that_join_leave_and_are_lost(arena: Arena) -> None:
    """Gossip tracks in its state which workers join, leave and are lost."""
    state = arena.workers[0].gossip.state
    passing = Celeriac(arena.app.conf.broker_url, environ={}, worker_mingle_timeout=0.1)

    with passing.Worker("passing@arena", concurrency=1):
        is_seen = come_true(lambda: "passing@arena" in arena.joined and "passing@arena" in state.workers)
    has_left = come_true(lambda: "passing@arena" in arena.left)

    assert is_seen
    assert has_left
    assert state.workers["passing@arena"].alive is False
    # The third way to go is in statement 57.
    assert arena.names - {"w1@arena"} <= set(arena.joined)


def test_035_gossip_handles_elect_and_its_acknowledgement() -> None:
    """Gossip handles the events `worker-elect` and `worker-elect-ack`."""
    with Hall(1).running() as hall:
        hall.say("elect", "c1@celery", id="e1", topic="note", action=None, cver=1, clock=1, pid=7)
        hall.say("elect-ack", "c1@celery", id="e1", clock=2, pid=7)
        acknowledged = come_true(lambda: hall.site.events("worker-elect-ack")[1:])

        assert acknowledged
        assert {each["id"] for each in hall.site.events("worker-elect-ack")} == {"e1"}
        assert hall.phases("e1") != [""]


# -- how an election is called


def test_036_election_is_broadcast_as_a_command() -> None:
    """`app.control.election(id, topic, action)` broadcasts the control command `election`."""
    broker = MemoryBroker()

    Celeriac(broker, environ={}).control.election("el-1", "tidy", {"room": 7}, force=True)

    ((exchange, message),) = broker.published
    request = json.loads(message.body)
    assert exchange == "celery.pidbox"
    assert (request["method"], request["destination"]) == ("election", None)
    assert request["arguments"] == {"id": "el-1", "topic": "tidy", "action": {"room": 7}}


def test_037_election_takes_a_signature_and_a_connection(arena: Arena) -> None:
    """`app.control.election` takes a signature, of ours or Celery's, as action, and `connection=`."""
    ours = arena.app.signature("v.add", (20, 3)).clone(task_id="by-ours")
    theirs = arena.celery.signature("v.add", (20, 4)).clone(task_id="by-celery")

    with arena.app.connection() as connection:
        arena.app.control.election("e-ours", "task", ours, connection=connection, force=True)
    with arena.celery.connection() as connection:
        arena.app.control.election("e-celery", "task", theirs, connection=connection, force=True)

    assert arena.value_of(arena.app.AsyncResult("by-ours")) == 23
    assert arena.value_of(arena.app.AsyncResult("by-celery")) == 24


def test_038_a_signature_is_elected_and_has_a_result(arena: Arena) -> None:
    """`Signature.election()` has one worker send the task, and returns its `AsyncResult`."""
    result = answered(lambda timeout: arena.app.signature("v.add", (2, 3)).election(timeout=timeout))

    assert arena.value_of(result) == 5
    assert arena.runs(result.id) == 1


def test_039_an_elected_task_has_its_own_id_or_a_new_one(arena: Arena) -> None:
    """The elected task has the id in `options['task_id']`, or else a new one."""
    signature = arena.app.signature("v.add", (2, 3))

    named = signature.clone(task_id="my-task").election(force=True)
    new = [signature.election(force=True), signature.election(force=True)]

    assert named.id == "my-task"
    assert arena.value_of(named) == 5
    assert len({each.id for each in new}) == 2
    assert [arena.value_of(each) for each in new] == [5, 5]


def test_040_a_worker_that_gets_the_command_calls_gossip_election(arena: Arena) -> None:
    """A worker that gets the command stands, as by a call of `gossip.election(id, topic, action=None)`."""
    command = {"id": "by-command", "topic": "tidy", "action": "by command"}

    arena.app.control.broadcast("election", command, ["w2@arena"])
    arena.workers[1].gossip.election("by-call", "tidy", "by call")

    for id_, action in (("by-command", "by command"), ("by-call", "by call")):
        assert come_true(lambda action=action: ("w2@arena", action) in arena.tidied)  # type: ignore[misc]
        # The recording comes by a connection of its own, and so at any time.
        assert come_true(lambda id_=id_: arena.recording.of("worker-elect", id_))  # type: ignore[misc]
        assert {each["hostname"] for each in arena.recording.of("worker-elect", id_)} == {"w2@arena"}


# -- messages between workers


@pytest.fixture(scope="module")
def held(arena: Arena) -> str:
    """The id of an election that all workers have heard."""
    arena.tidy("held", {"room": 7})
    assert come_true(lambda: arena.recording.of("worker-elect", "held"))
    return "held"


def test_041_candidates_announce_themselves(arena: Arena, held: str) -> None:
    """A candidate broadcasts `worker-elect` with `id`, `topic`, `action` and `cver=1`."""
    elects = arena.recording.of("worker-elect", held)

    said = [{name: each[name] for name in ("id", "topic", "action", "cver")} for each in elects]

    assert said
    assert said == [{"id": "held", "topic": "tidy", "action": {"room": 7}, "cver": 1}] * len(said)


def test_042_every_worker_acknowledges_every_candidate(arena: Arena, held: str) -> None:
    """Every worker, candidates too, answers each `worker-elect` with `worker-elect-ack` and the id."""

    def wanted() -> set[tuple[str, str]]:
        return {(name, candidate) for name in arena.names for _, candidate in arena.candidates(held)}

    def acks() -> set[tuple[str, str]]:
        return {(e["hostname"], e["cand"]) for e in arena.recording.of("worker-elect-ack", held)}

    # A worker may hear of another candidate after the election is over.
    assert come_true(lambda: acks() == wanted())


@pytest.mark.differs("Internal names of gossip")
def test_043_gossip_has_the_names_that_a_program_reaches_for() -> None:
    """Gossip has `full_hostname`, `consensus_requests`, `consensus_replies`, `on_elect` and `call_task`."""
    gossip = idle_worker(worker_heartbeat_interval=4.0).gossip

    internal = ("consensus_requests", "consensus_replies", "on_elect", "call_task", "periodic")

    assert gossip.full_hostname.startswith("w@v.")
    assert (gossip.interval, gossip.heartbeat_interval) == (5.0, 4.0)
    assert not any(hasattr(gossip, name) for name in internal)


# -- the winner


def candidacy(name: str = LOW) -> Candidacy:
    rules = Rules(name, f"{name}.boot", lambda: 0.5, alive=lambda: [HIGH if name == LOW else LOW])
    return Candidacy(Election("e1", "tidy"), rules, Grants(), ttl=15.0, may_act=True, now=100.0)


def stand(machine: Candidacy, *candidates: Candidate, acknowledged_by: tuple[str, ...] = (LOW, HIGH)) -> bool:
    """Have a node stand among these candidates, itself included; return whether it claims first."""
    machine.stand(100.0)
    for each in candidates:
        machine.receive_elect(Elect(machine.election, each), 100.0)
    for name in acknowledged_by:
        for each in candidates:
            machine.receive_ack(Ack("e1", name, each.name), 100.0)
    return any(isinstance(effect, Claim) for effect in machine.tick(100.0))


@pytest.mark.differs("An arbiter decides elections")
def test_044_a_leader_needs_the_grant_of_the_arbiter() -> None:
    """A candidate leads once it has as many acknowledgements as there are alive workers."""
    machine = candidacy()

    claims = stand(machine, Candidate(5, LOW), Candidate(9, HIGH))
    effects = machine.answer(Granted(1), 100.0)

    assert claims
    assert any(isinstance(effect, Act) for effect in effects)


def test_045_the_lowest_clock_wins(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """The candidate with the lowest clock wins."""
    # Far longer than candidates and acknowledgements take, on a slow machine too.
    for name in ("NOMINATION", "STAGGER"):
        monkeypatch.setattr(f"celeriac.core.election.{name}", PATIENCE / 6)
    lowest = {}
    winners = {}
    # A node that acknowledges nothing would be waited for.
    assert come_true(arena.is_alone)
    for id_ in ("lowest-1", "lowest-2", "lowest-3"):
        winners[id_] = arena.tidy(id_, id_)
        assert come_true(lambda id_=id_: len(arena.candidates(id_)) == 3)  # type: ignore[misc]
        lowest[id_] = [min(arena.candidates(id_))[1].rpartition(".")[0]]
    claims = [
        stand(candidacy(HIGH), Candidate(own, HIGH), Candidate(other, LOW)) for own, other in ((5, 9), (9, 5))
    ]

    assert winners == lowest
    assert claims == [True, False]


@pytest.mark.parametrize(("name", "other"), [(LOW, HIGH), (HIGH, LOW)])
def test_046_equal_clocks_are_decided_by_name_and_process(name: str, other: str) -> None:
    """Among equal clocks the lowest `hostname.pid` wins."""
    claims = stand(candidacy(name), Candidate(5, name), Candidate(5, other))

    assert claims == (name == LOW)


def test_047_sort_heap_returns_the_lowest_entry() -> None:
    """`clock.sort_heap` returns the entry with the lowest clock, and then the lowest name."""
    heaps: list[list[tuple[Any, ...]]] = [
        [(3, "b@x.1"), (2, "c@x.1")],
        [(3, "b@x.1"), (3, "a@x.1")],
        [(9, "b@x.1"), (3, "c@x.1"), (3, "a@x.2")],
    ]

    ours = [LamportClock.sort_heap(heap) for heap in heaps]

    assert ours == [min(heap) for heap in heaps]
    assert ours == [KombuClock().sort_heap(sorted(heap)) for heap in heaps]
    assert LamportClock.sort_heap([(3, "a@x.1")]) == (3, "a@x.1")


# -- the action


def test_048_handlers_are_kept_by_topic(arena: Arena) -> None:
    """`election_handlers` holds handlers by topic, `task` by default; only the winner's is called."""
    topics = list(idle_worker().gossip.election_handlers)

    winners = arena.tidy("by-topic", {"room": 8})

    assert topics == ["task"]
    assert len(winners) == 1


def refused_handlers() -> list[Any]:
    async def later(action: object) -> None: ...

    class Later:
        async def __call__(self, action: object) -> None: ...

    def lazy(action: object) -> Iterator[object]:
        yield action

    class Lazy:
        def __call__(self, action: object) -> Iterator[object]:
            yield action

    async def streamed(action: object, mandate: object) -> AsyncIterator[object]:
        yield action, mandate

    deferred = [later, Later(), partial(lazy), lazy, Lazy(), streamed]
    return [None, 7, lambda: None, lambda a, b, c: None, lambda a, *, b: None, *deferred]  # noqa: ARG005


def test_049_a_handler_is_called_with_the_action() -> None:
    """A handler is called as `handler(action)` or `handler(action, mandate)`; any other is refused."""
    handlers = idle_worker().gossip.election_handlers
    calls: list[tuple[object, ...]] = []
    mandate: Any = "mandate"

    handlers["one"] = lambda action: calls.append((action,))
    handlers["own"] = lambda action, dry_run=False: calls.append((action, dry_run))
    handlers["two"] = lambda action, mandate: calls.append((action, mandate))
    handlers["any"] = lambda *arguments: calls.append(arguments)
    handlers["key"] = lambda action, *, mandate: calls.append((action, mandate))
    handlers["key or own"] = lambda action, dry_run=False, *, mandate=None: calls.append(
        (action, dry_run, mandate)
    )
    for topic in ("one", "own", "two", "any", "key", "key or own"):
        handlers[topic](7, mandate)

    assert calls == [(7,), (7, False), (7, mandate), (7, mandate), (7, mandate), (7, False, mandate)]
    for handler in refused_handlers():
        with pytest.raises(CallerError, match=r"invalid election handler for 'odd', .*handler\(action\)"):
            handlers["odd"] = handler
        with pytest.raises(CallerError, match=r"invalid election handler for 'odd', .*handler\(action\)"):
            handlers |= {"odd": handler}


def test_050_the_topic_task_sends_the_task_once(arena: Arena) -> None:
    """On the topic `task` the winner sends the signature, once."""
    ids = [f"once-{number}" for number in range(4)]

    for id_ in ids:
        arena.app.control.election(id_, "task", {"task": "v.add", "args": [1, 1]}, force=True)
    values = [arena.value_of(arena.app.AsyncResult(elected_task_id(id_))) for id_ in ids]

    assert values == [2, 2, 2, 2]
    assert [arena.runs(elected_task_id(id_)) for id_ in ids] == [1, 1, 1, 1]


@pytest.mark.differs("Elections start allowed tasks only")
def test_051_an_election_starts_allowed_tasks_only(arena: Arena) -> None:
    """`Signature.election()` runs any task."""
    signature = arena.app.signature("other.add", (2, 3))

    reason = refusal(lambda timeout: signature.election(id="not-allowed", timeout=timeout))

    assert "task other.add is not listed in election_actions (w1@arena, w2@arena, w3@arena)" in reason
    assert "not-allowed" in reason


def test_052_an_action_that_raises_is_logged_and_harms_no_worker(
    arena: Arena, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception of the action is logged, and the worker lives."""
    arena.app.control.election("boom-1", "boom", force=True)
    is_over = come_true(lambda: arena.is_over("boom-1"))
    winners = arena.tidy("after-boom", "after boom")

    assert is_over
    assert [
        each.levelno for each in caplog.records if "election boom-1: the action failed" in each.getMessage()
    ] == [logging.ERROR]
    assert len(winners) == 1


def test_053_an_unknown_topic_harms_no_worker(arena: Arena, caplog: pytest.LogCaptureFixture) -> None:
    """An election on a topic without a handler is acted on by nobody, logged, and refused at the caller."""
    reason = refusal(lambda timeout: arena.app.control.election("odd-1", "no-such-topic", timeout=timeout))

    winners = arena.tidy("after-odd", "after odd")

    assert "no handler for topic 'no-such-topic'" in reason
    assert "no handler for topic 'no-such-topic'" in caplog.text
    assert len(winners) == 1


# -- no silence


def test_a_redis_that_keeps_nothing_is_named_with_the_fix() -> None:
    """An election below `election_min_level` is refused at the caller, with the level and the settings."""
    with RedisServer({"save": ""}) as redis:
        app = Celeriac(redis.url, environ={}, worker_mingle_timeout=0.1)
        worker = app.Worker("w@v", concurrency=1)
        worker.gossip.election_handlers["tidy"] = lambda _: None
        with worker:
            reason = refusal(lambda timeout: app.control.election("e1", "tidy", timeout=timeout))
        app.close()

    assert "level is L1, below election_min_level (L2)" in reason
    assert "set appendonly to yes and appendfsync to always (w@v)" in reason


def test_enable_events_names_yes_and_skips_recorders(arena: Arena) -> None:
    """`celeriac control` without a terminal names `--yes`, and then only workers answer."""
    environment = own_environment(CELERIAC_BROKER_URL=arena.app.conf.broker_url)
    command = ("control", "enable_events", "--timeout", "10")

    with arena.app.connection() as connection:
        arena.app.mailbox("recorder@arena").attach(connection)
        draining = Event()

        def drain() -> None:
            while not draining.is_set():
                connection.drain(0.1)

        thread = Thread(target=drain, daemon=True)
        thread.start()
        unattended = run_program(*command, env=environment)
        sent = run_program(*command, "--yes", env=environment)
        draining.set()
        thread.join()

    assert unattended.returncode != 0
    assert "there is no terminal. Confirm with --yes" in unattended.stderr
    assert (sent.returncode, sent.stderr) == (0, "")
    assert {line.split(":")[0] for line in sent.stdout.splitlines()} == arena.names


# -- requirements


def gossip_on(driver: str) -> GossipStep:
    worker = idle_worker()
    return GossipStep(
        worker.parts.connection,
        settings=worker.settings,
        clock=worker.clock,
        hostname="w@v",
        pid=1,
        dispatcher=worker.parts.events.dispatcher,
        driver=driver,
    )


def test_054_gossip_runs_on_amqp_and_redis_only() -> None:
    """Of Celery's transports gossip runs on `amqp` and `redis` only; on others a worker logs that."""
    steps = {driver: gossip_on(driver) for driver in ("amqp", "redis", "gcpubsub", "filesystem", "sql")}

    enabled = [driver for driver, step in steps.items() if step.is_enabled]

    assert enabled == ["amqp", "redis"]
    assert "transport gcpubsub" in steps["gcpubsub"].unsupported
    assert "no election" in steps["gcpubsub"].unsupported


def test_055_gossip_requires_mingle() -> None:
    """Gossip requires mingle, which runs first."""
    worker = idle_worker()

    order = [step.name for step in worker.graph]

    assert "mingle" in GossipStep.requires
    assert order.index("mingle") < order.index("gossip")


@pytest.fixture
def ghost(arena: Arena) -> Iterator[str]:
    """A node that is alive by its heartbeats, and acknowledges no candidate."""
    is_over = Event()

    def beat() -> None:
        while not is_over.wait(0.5):
            arena.say("worker-heartbeat", freq=2.0)

    beating = Thread(target=beat, daemon=True)
    beating.start()
    try:
        assert come_true(lambda: all(is_alive(each, GHOST) for each in arena.workers))
        yield GHOST
    finally:
        is_over.set()
        beating.join()


@pytest.fixture
def gone(arena: Arena) -> str:
    """The name of a worker that was there, and was killed."""
    conf = arena.app.conf
    with CeleriacWorker(
        SHOP, url=conf.broker_url, backend=conf.result_backend, hostname="gone@arena"
    ) as worker:
        assert come_true(lambda: all(is_alive(each, worker.hostname) for each in arena.workers))
        worker.kill()
        return worker.hostname


def is_alive(worker: Worker, hostname: str) -> bool:
    return any(each.hostname == hostname for each in worker.gossip.membership.alive())


def test_056_a_node_that_does_not_acknowledge_delays_the_election(arena: Arena, ghost: str) -> None:
    """An alive node that sends no acknowledgement delays an election, and does not prevent it."""
    incomplete = candidacy()
    claims_at_once = stand(incomplete, Candidate(5, LOW), acknowledged_by=(LOW,))
    claims_when_due = any(isinstance(effect, Claim) for effect in incomplete.tick(incomplete.due_at))
    winners = arena.tidy("with-a-ghost", "with a ghost")

    assert not claims_at_once
    assert claims_when_due
    assert len(winners) == 1
    assert ghost not in {each["hostname"] for each in arena.recording.of("worker-elect-ack", "with-a-ghost")}


def test_057_nodes_without_heartbeats_are_removed(arena: Arena, gone: str) -> None:
    """A node that misses its heartbeats is lost, and counts no more."""
    # The handler is called after the member has changed.
    is_lost = come_true(lambda: gone in arena.lost)

    member = arena.workers[0].gossip.membership.members.get(gone)
    assert is_lost
    assert not is_alive(arena.workers[0], gone)
    assert member is None or member.state is Liveness.LOST
    assert not any(peer.startswith(gone) for peer in arena.workers[0].gossip.peers())


# -- with Celery; its workers take part in test_election_mixed.py


def test_058_an_election_of_a_celery_client_is_held(arena: Arena) -> None:
    """Workers of ours hold an election that a Celery client calls, and the client gets the result."""
    signature = arena.celery.signature("v.add", (100, 23)).clone(task_id="from-celery")

    with arena.celery.producer_or_acquire() as producer:
        arena.celery.control.election("from-celery", "task", signature, connection=producer.connection)
    value = arena.celery.AsyncResult("from-celery").get(timeout=PATIENCE)

    assert value == 123
    assert arena.runs("from-celery") == 1
