"""Statements on draining in threads: consumers, drainers, waits, and connections that fail."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from threading import Event, Thread, get_ident
from threading import enumerate as threads
from time import monotonic, sleep
from typing import Any

import pytest
from celery.backends.asynchronous import Drainer as CeleryDrainer

from celeriac import Celeriac, MemoryBroker
from celeriac.config import Settings
from celeriac.errors import CeleriacError, ConnectionLost, RemoteError, ResultTimeout
from celeriac.model.result import ResultMeta
from celeriac.node import consumer as consumer_module
from celeriac.node import drainer as drainer_module
from celeriac.node.consumer import BaseResultConsumer
from celeriac.node.drain_failure import FAILURE_LIMIT, FAILURE_SPAN
from celeriac.node.drainer import Drainer, register_drainer
from celeriac.node.result import AsyncResult
from celeriac.node.slot import Slot
from celeriac.runtime.base import Flag, Runtime, Spawned
from celeriac.runtime.threads import Threads
from celeriac.testing.brokers import RedisServer
from tests.live import StartWorker, peer
from tests.results import PATIENCE, Store, meta, quick, settled, slot_for, waiting

#: The longest pause between two attempts to reconnect.
LONGEST_PAUSE = 0.05
#: The fixture of each broker, and the backend on it.
BACKENDS = [("redis_url", "redis_url"), ("amqp_url", "rpc://")]


class OwnRuntime:
    """A way of running code in the background that a program wrote for itself."""

    def __init__(self) -> None:
        self.spawned: list[str] = []

    def flag(self) -> Flag:
        return Event()

    def spawn(self, run: Callable[[], object], *, name: str) -> Spawned:
        self.spawned.append(name)
        thread = Thread(target=run, daemon=True)
        thread.start()
        return thread


class OwnDrainer(Drainer):
    """A drainer that a program wrote for itself."""

    def new_runtime(self) -> Runtime:
        return OwnRuntime()

    def drain_events_until(
        self,
        slot: Slot,
        timeout: float | None = None,
        interval: float | None = None,
        on_interval: Callable[[], object] | None = None,
    ) -> Iterator[None]:
        self.waits = (timeout, interval)
        return super().drain_events_until(slot, timeout, interval, on_interval)


def app_on(broker: str | MemoryBroker, backend: str, **settings: Any) -> Celeriac:
    short = {"broker_retry_base": 0.01, "broker_retry_cap": LONGEST_PAUSE}
    return Celeriac(broker, backend=backend, environ={}, **{**short, **settings})


def getting(app: Celeriac, task_id: str, timeout: float = PATIENCE) -> Callable[[], Any]:
    return lambda: app.AsyncResult(task_id).get(timeout=timeout)


@pytest.fixture
def app(redis_url: str) -> Iterator[Celeriac]:
    """An app whose results are kept in a real Redis."""
    app = app_on(redis_url, redis_url)
    yield app
    app.close()


# -- consumers and drainers


def test_107_a_consumer_sees_every_state_of_pending_results(app: Celeriac) -> None:
    """`BaseResultConsumer` keeps the pending results and calls `on_state_change` for each state."""
    seen: list[str] = []

    class Looking(BaseResultConsumer):
        def on_state_change(self, meta: ResultMeta) -> None:
            seen.append(meta.status)

    app.backend.ResultConsumer = Looking
    with waiting(app.backend.consumer, getting(app, "a")) as (future,):
        pending = app.backend.health().watched
        app.backend.store_result("a", 50, "PROGRESS")
        assert settled(lambda: seen)
        app.backend.store_result("a", "done")

    assert future.result() == "done"
    assert pending == 1
    assert list(dict.fromkeys(seen)) == ["PROGRESS", "SUCCESS"]
    assert settled(lambda: app.backend.health().watched == 0)


async def awaited(result: AsyncResult) -> object:
    return await result


@pytest.mark.parametrize("get", [AsyncResult.get, lambda result: asyncio.run(awaited(result))])
def test_a_consumer_sees_the_state_of_a_result_that_was_stored_before(
    redis_url: str, get: Callable[[AsyncResult], object]
) -> None:
    seen: list[str] = []

    class Looking(BaseResultConsumer):
        def on_state_change(self, meta: ResultMeta) -> None:
            seen.append(meta.status)

    app = app_on(redis_url, redis_url)
    app.backend.ResultConsumer = Looking
    app.backend.store_result("a", "done")
    value = get(app.AsyncResult("a"))
    app.close()

    assert value == "done"
    assert seen == ["SUCCESS"]


@pytest.mark.differs("Consumers and drainers of your own")
def test_108_drain_events_until_is_a_generator_that_ends_with_a_full_slot(app: Celeriac) -> None:
    """`Drainer.drain_events_until` is a generator that drains until a promise is fulfilled."""
    readers: set[int] = set()

    class Looking(BaseResultConsumer):
        def on_state_change(self, meta: ResultMeta) -> None:  # noqa: ARG002
            readers.add(get_ident())

    app.backend.ResultConsumer = Looking
    drainer = app.backend.drainer()
    slot = drainer.slot(["a", "b"])
    steps = drainer.drain_events_until(slot, PATIENCE)
    drainer.consumer.consume_from(slot, ["a", "b"])

    app.backend.store_result("a", 1)
    next(iter(steps))
    first = slot.take()
    app.backend.store_result("b", 2)
    rest = [each for _ in steps for each in slot.take()]

    assert inspect.isgenerator(steps)
    assert [(each.task_id, each.result) for each in first] == [("a", 1)]
    assert [(each.task_id, each.result) for each in rest] == [("b", 2)]
    # Celery's takes a promise, and reads the socket itself.
    assert list(inspect.signature(CeleryDrainer.drain_events_until).parameters)[:2] == ["self", "p"]
    assert list(inspect.signature(Drainer.drain_events_until).parameters)[:2] == ["self", "slot"]
    assert len(readers) == 1
    assert get_ident() not in readers


@pytest.mark.parametrize(("broker", "backend"), BACKENDS)
def test_110_register_drainer_makes_a_drainer_available(
    broker: str, backend: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drainer registered with `@register_drainer` is used where the setting `result_drainer` names it."""
    monkeypatch.setattr(drainer_module, "_drainers", dict(drainer_module._drainers))
    register_drainer("own")(OwnDrainer)
    url = request.getfixturevalue(broker)
    app = app_on(url, url if backend == broker else backend, result_drainer="own")
    reply_to = getattr(app.backend, "reply_to", "")

    with waiting(app.backend.consumer, lambda: app.AsyncResult("a").get(PATIENCE, interval=30)) as (future,):
        app.backend.store_result("a", 42, reply_to=reply_to)
    drainer = app.backend.drainer()
    app.close()

    assert future.result() == 42
    assert isinstance(drainer, OwnDrainer)
    assert isinstance(drainer.runtime, OwnRuntime)
    assert drainer.runtime.spawned == ["celeriac-results"]
    timeout, interval = drainer.waits
    assert timeout is not None
    assert 0 < timeout <= PATIENCE
    assert interval == 30


def test_111_the_default_drainer_blocks_only_the_thread_that_waits(app: Celeriac) -> None:
    """The default drainer blocks the thread that waits, and no other."""
    with waiting(app.backend.consumer, getting(app, "a"), getting(app, "b")) as (first, second):
        app.backend.store_result("b", "for the second")
        value = second.result(PATIENCE)
        was_waiting = not first.done()
        app.backend.store_result("a", "for the first")

    assert type(app.backend.drainer()).__name__ == "ThreadDrainer"
    assert (value, was_waiting) == ("for the second", True)
    assert first.result() == "for the first"


# -- waiting


def test_116_wait_for_pending_starts_the_drainer_and_waits(app: Celeriac) -> None:
    """`AsyncBackendMixin.wait_for_pending(result)` starts the drainer and waits for the result."""
    before = set(threads())

    with waiting(app.backend.consumer, lambda: app.backend.wait_for_pending(app.AsyncResult("a"))) as (
        future,
    ):
        started = {thread.name for thread in set(threads()) - before}
        app.backend.store_result("a", 42)

    assert "celeriac-results" in started
    assert future.result() == 42


@pytest.mark.parametrize("is_in_loop", [False, True], ids=["thread", "loop"])
def test_117_wait_for_pending_takes_the_arguments_of_celery(app: Celeriac, is_in_loop: bool) -> None:
    """`wait_for_pending` takes a timeout, an interval, callbacks and `propagate`."""
    intervals: list[int] = []
    states: list[Any] = []
    values: list[tuple[str, Any]] = []
    failing, never = app.AsyncResult("failing"), app.AsyncResult("never")

    def wait(result: AsyncResult, **options: Any) -> Any:
        if is_in_loop:
            return asyncio.run(app.backend.wait_for_pending_async(result, **options))
        return app.backend.wait_for_pending(result, **options)

    def store_after_some_intervals() -> None:
        intervals.append(get_ident())
        if len(intervals) == 3:
            app.backend.store_result("failing", 50, "PROGRESS")
        if states == ["PROGRESS"]:
            app.backend.store_result("failing", ValueError("no"), "FAILURE")

    # As Celery's AsyncResult.get calls it.
    error = wait(
        failing,
        timeout=PATIENCE,
        interval=0.01,
        on_interval=store_after_some_intervals,
        no_ack=True,
        propagate=False,
        callback=lambda task_id, value: values.append((task_id, value)),
        on_message=lambda body: states.append(body["status"]),
    )

    assert isinstance(error, RemoteError)
    assert values == [("failing", error)]
    assert states == ["PROGRESS", "FAILURE"]
    assert len(intervals) >= 3
    assert set(intervals) == {get_ident()}
    with pytest.raises(RemoteError, match="ValueError: no"):
        wait(failing, timeout=PATIENCE)
    with pytest.raises(ResultTimeout, match=r"within 0.01 s"):
        wait(never, timeout=0.01)


def test_118_results_of_a_celery_worker_arrive_over_redis(
    redis_url: str, app: Celeriac, celery_worker: StartWorker
) -> None:
    """The Redis backend brings the results of Celery workers."""
    celery_worker(peer("5.7"), redis_url, pool="solo")

    added = app.send_task("peers.add", [2, 3])
    failed = app.send_task("peers.fail", ["on purpose"])
    retried = app.send_task("peers.retry_then_succeed")

    assert added.get(timeout=PATIENCE) == 5
    with pytest.raises(RemoteError, match="ValueError: on purpose"):
        failed.get(timeout=PATIENCE)
    assert retried.get(timeout=PATIENCE) == 2


def test_119_results_of_a_celery_worker_arrive_as_messages(amqp_url: str, celery_worker: StartWorker) -> None:
    """The RPC backend brings the results of Celery workers as messages."""
    celery_worker(peer("5.7"), amqp_url, pool="solo")
    app = app_on(amqp_url, "rpc://")

    results = app.ResultSet([app.send_task("peers.add", [number, number]) for number in range(3)])
    failed = app.send_task("peers.fail", ["on purpose"])
    values = results.join(timeout=PATIENCE)

    assert values == [0, 2, 4]
    with pytest.raises(RemoteError, match="ValueError: on purpose"):
        failed.get(timeout=PATIENCE)
    app.close()


# -- connections that fail


class PauseClock(Threads):
    """Threads for a consumer whose pauses after failures take no time, but move its clock on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = monotonic()
        self.waits: list[float | None] = []
        event = Event()
        self.set, self.clear, self._wait = event.set, event.clear, event.wait
        patch.setattr(consumer_module, "monotonic", lambda: self.now)

    def flag(self) -> Flag:
        return self

    def wait(self, timeout: float | None = None) -> None:
        if timeout is None or timeout > LONGEST_PAUSE:
            self._wait(timeout)  # nobody waits for a result
        else:
            self.waits.append(timeout)
            self.now += timeout
            sleep(0)  # others run meanwhile


class Turns(BaseResultConsumer):
    """A consumer that counts its turns, and notes the failed attempts at each turn without a connection."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.turns = 0
        #: Attempts that failed, and pauses, by the time of a turn.
        self.down: list[tuple[int, int]] = []

    def drain_events(self, timeout: float | None = None) -> None:
        self.turns += 1
        if self.is_down and isinstance(self._pause, PauseClock):
            self.down.append((self._backoff.attempts, len(self._pause.waits)))
        super().drain_events(timeout)


class Records(logging.Handler):
    """Keeps the log records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@dataclass(frozen=True)
class Outage:
    """How waits went while their Redis was away, and the work of the consumer meanwhile."""

    value: object
    #: The error of a wait with a timeout meanwhile.
    error: str
    #: Attempts that failed, pauses and turns without a connection.
    attempts: int
    pauses: list[float | None]
    turns: int
    records: list[logging.LogRecord]


@pytest.fixture(scope="module")
def outage() -> Outage:
    """A Redis that is killed while somebody waits, and starts again after some attempts to reconnect."""
    handler, logger = Records(), logging.getLogger("celeriac.node.drain_failure")
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        server = stack.enter_context(RedisServer())
        stack.callback(logger.setLevel, logger.level)
        stack.callback(logger.removeHandler, handler)
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        app = app_on(server.url, server.url)
        app.backend.ResultConsumer = Turns
        consumer, pause = app.backend.consumer, PauseClock(patch)
        assert isinstance(consumer, Turns)
        consumer.start(pause)
        # Without a timeout: the clock of the consumer may go on for longer than that.
        with waiting(consumer, lambda: app.AsyncResult("a").get()) as (lasting,), closing(app):
            assert settled(lambda: consumer.health().phase == "up")
            server.kill()
            assert settled(lambda: len(consumer.down) and consumer.down[-1][0] >= 10)
            with pytest.raises(ResultTimeout) as caught:
                app.AsyncResult("never").get(timeout=0.2)
            server.start()
            app.backend.store_result("a", "it came")
            value = lasting.result(PATIENCE)
        first, last = consumer.down[0], consumer.down[-1]
        return Outage(
            value=value,
            error=str(caught.value),
            attempts=last[0] - first[0],
            pauses=pause.waits[first[1] : last[1]],
            turns=len(consumer.down) - 1,
            records=handler.records,
        )


def lose_connection() -> None:
    raise ConnectionLost("cut")


def test_120_reconnect_on_error_reconnects_after_a_lost_connection() -> None:
    """`reconnect_on_error` handles the loss of a connection by reconnecting."""
    store, slot = Store(), slot_for("a")
    consumer = BaseResultConsumer(store.link(), settings=quick(broker_retry_base=1e-9, broker_retry_cap=1e-9))
    consumer.consume_from(slot, ["a"])
    consumer.drain_events(0.0)

    with consumer.reconnect_on_error():
        lose_connection()
    was_down = consumer.is_down
    for _ in range(4):
        consumer.drain_events(0.0)
    store.finish("a")
    consumer.drain_events(0.0)

    assert was_down
    assert consumer.is_up
    assert slot.take() == [meta("a", result="a")]


@pytest.mark.differs("Lost result stores")
def test_121_a_wait_outlasts_any_number_of_failed_attempts(outage: Outage) -> None:
    """Repeated failure to reconnect raises an error that says that the application must be restarted."""
    attempts = outage.attempts

    assert attempts >= 9
    assert outage.value == "it came"
    assert outage.error.startswith(
        "no result of task never within 0.2 s; last error of the result connection"
    )


def test_122_a_lost_connection_is_logged_as_a_warning(outage: Outage) -> None:
    """A lost connection in the drain loop is logged as a warning."""
    logged = [(record.levelname, record.getMessage().partition(":")[2][:14]) for record in outage.records]

    assert logged == [("WARNING", " no connection"), ("INFO", " connected to ")]


@pytest.mark.differs("Lost result stores")
def test_123_attempts_to_reconnect_are_separated_by_pauses(outage: Outage) -> None:
    """After a lost connection the drain loop sleeps for one second before the next attempt."""
    turns, pauses = outage.turns, outage.pauses

    assert turns == outage.attempts + len(pauses)  # a turn is an attempt or a pause
    assert len(pauses) >= outage.attempts
    assert all(pause is not None and 0 < pause <= LONGEST_PAUSE for pause in pauses)
    assert Settings().broker_retry_cap == 1.0


@pytest.mark.parametrize(("broker", "backend"), BACKENDS)
def test_124_an_error_of_drain_events_does_not_spin(
    broker: str,
    backend: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An `OSError` that `drain_events` raises again and again does not make the drain loop spin."""
    turns: list[float | None] = []

    def gone(timeout: float | None = None) -> None:
        turns.append(timeout)
        raise OSError("gone")

    url = request.getfixturevalue(broker)
    app = app_on(url, url if backend == broker else backend)
    consumer, pause = app.backend.consumer, PauseClock(monkeypatch)
    monkeypatch.setattr(consumer, "drain_events", gone)
    start = pause.now
    consumer.start(pause)
    with pytest.raises(CeleriacError, match=r"draining results failed .* OSError: gone") as caught:
        app.AsyncResult("x").get(timeout=PATIENCE)
    app.close()

    assert repr(caught.value.__cause__) == "OSError('gone')"
    assert pause.now - start >= FAILURE_SPAN
    assert len(turns) >= FAILURE_LIMIT
    # Each turn is followed by a pause, but for one that the end of the app cut short.
    assert len(turns) - len(pause.waits) <= 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_125_a_timeout_of_drain_events_ends_no_wait(
    app: Celeriac, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A timeout of `drain_events` ends neither the drain loop nor a wait."""

    class TimingOut(Turns):
        def drain_events(self, timeout: float | None = None) -> None:
            super().drain_events(timeout)
            if self.turns % 2:
                raise TimeoutError("timed out")

    monkeypatch.setattr(consumer_module, "_LONGEST_TURN", 0.001)
    app.backend.ResultConsumer = TimingOut
    consumer = app.backend.consumer
    assert isinstance(consumer, TimingOut)

    with waiting(consumer, getting(app, "a")) as (future,):
        assert settled(lambda: consumer.turns > 50)
        was_waiting = not future.done()
        app.backend.store_result("a", 42)

    assert was_waiting
    assert future.result() == 42
    assert app.backend.health().attempts == 0
    assert caplog.records == []


@pytest.mark.differs("Errors of the drain loop")
def test_127_an_error_that_keeps_coming_back_reaches_those_who_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next wait raises the exception that ended the drain loop."""

    class Failing(BaseResultConsumer):
        is_fixed = False

        def drain_events(self, timeout: float | None = None) -> None:
            if self.health().waiters and not self.is_fixed:
                raise RuntimeError("a bug")
            super().drain_events(timeout)

    app = app_on(MemoryBroker(), "rpc://")
    app.backend.ResultConsumer = Failing
    consumer = app.backend.consumer
    assert isinstance(consumer, Failing)
    consumer.start(PauseClock(monkeypatch))
    with pytest.raises(CeleriacError, match=r"draining results failed .* RuntimeError: a bug") as caught:
        app.AsyncResult("a").get(timeout=PATIENCE)
    consumer.is_fixed = True
    reply_to = getattr(app.backend, "reply_to", "")
    app.backend.store_result("a", 42, reply_to=reply_to)
    value = app.AsyncResult("a").get(timeout=PATIENCE)
    app.close()

    assert type(caught.value.__cause__) is RuntimeError
    assert value == 42
    assert [record.levelname for record in caplog.records] == ["ERROR"]
