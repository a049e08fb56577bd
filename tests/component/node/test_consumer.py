"""The consumer, turn by turn: every pitfall of Celery's drainers that one link can have."""

import errno
import gc
import logging
import os
from collections.abc import Callable, Iterator
from threading import Event, Thread
from threading import enumerate as threads
from typing import Any
from weakref import ref

import pytest

from celeriac.core.waiting import WaitingList
from celeriac.errors import AccessRefused, CeleriacError, NetworkError, ResultTimeout
from celeriac.model.result import ResultMeta
from celeriac.node import consumer as consumer_module
from celeriac.node.consumer import BaseResultConsumer
from celeriac.node.drain_failure import FAILURE_SPAN
from celeriac.node.slot import LastingSlot, Slot
from celeriac.runtime.threads import Threads
from tests.results import NEVER, PATIENCE, Link, Still, Store, StoreBackend, meta, quick, settled, slot_for

#: Settings by which attempts are about a second apart.
SECONDS = {"broker_retry_base": 1.0, "broker_retry_cap": 1.0}


@pytest.fixture
def store() -> Store:
    return Store()


def consumer_of(store: Store, **settings: Any) -> BaseResultConsumer:
    """Return a consumer that does something only when it is told to take a turn, and then at once."""
    at_once = {"broker_retry_base": 1e-9, "broker_retry_cap": 1e-9}
    return BaseResultConsumer(store.link(), settings=quick(**{**at_once, **settings}))


def turn(consumer: BaseResultConsumer, times: int = 4) -> None:
    """Do as many turns as anything needs: subscribe, be confirmed, read, be answered."""
    for _ in range(times):
        consumer.drain_events(0.0)


def armed(consumer: BaseResultConsumer, *task_ids: str, wants_all: bool = False) -> Slot:
    """Return a slot for tasks that the store has agreed to tell of."""
    slot = slot_for(*task_ids, wants_all=wants_all)
    consumer.consume_from(slot, task_ids)
    turn(consumer)
    return slot


class PauseClock:
    """A clock that is also a flag: a wait moves it on, and takes no time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.before_wait: Callable[[], object] = bool

    def set(self) -> None: ...
    def clear(self) -> None: ...

    def wait(self, timeout: float | None = None) -> None:
        assert self.now < 1060.0, "it waits indefinitely"
        self.before_wait()
        self.now += timeout or 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> PauseClock:
    """The clock of consumers, which only their pauses move on."""
    clock = PauseClock()
    monkeypatch.setattr(consumer_module, "monotonic", lambda: clock.now)
    return clock


@pytest.fixture
def running(store: Store) -> Iterator[BaseResultConsumer]:
    """A consumer that drains in a thread of its own."""
    consumer = BaseResultConsumer(store.link(), settings=quick())
    consumer.start(Threads())
    yield consumer
    consumer.stop()


def wait_at(slot: Slot) -> list[ResultMeta]:
    """Wait as long as a test may until a slot is full, and return what came."""
    taken = []
    while not slot.ready and slot.flag.wait(PATIENCE):
        taken += slot.take()
    return taken + slot.take()


# -- R1: subscribe, confirm, then read


def test_r1_a_result_stored_before_the_confirmation_is_found(store: Store) -> None:
    consumer, slot = consumer_of(store), slot_for("a")
    store.holds_confirmations = True

    consumer.consume_from(slot, ["a"])
    turn(consumer)
    store.put(meta("a"))
    turn(consumer)
    was_told_early = slot.has_news
    store.release()
    turn(consumer)

    assert not was_told_early
    assert slot.take() == [meta("a")]


def test_r1_a_result_stored_after_the_confirmation_is_told(store: Store) -> None:
    consumer = consumer_of(store)

    slot = armed(consumer, "a")
    store.put(meta("a"))
    turn(consumer)

    assert slot.take() == [meta("a")]


def test_r1_nothing_is_read_before_the_subscription_is_confirmed(store: Store) -> None:
    consumer = consumer_of(store)
    store.holds_confirmations = True

    consumer.consume_from(slot_for("a"), ["a"])
    turn(consumer)
    asked_before = [name for name, _ in store.log if name in {"subscribe", "read"}]
    store.release()
    turn(consumer)

    assert asked_before == ["subscribe"]
    assert ("read", ("a",)) in store.log


def test_r1_a_result_that_is_both_read_and_told_is_handed_out_once(store: Store) -> None:
    consumer, slot = consumer_of(store), slot_for("a")
    store.holds_answers = True
    store.put(meta("a"))

    consumer.consume_from(slot, ["a"])
    turn(consumer)
    store.put(meta("a"))
    store.release()
    turn(consumer)

    assert slot.take() == [meta("a")]
    assert slot.ready


def test_an_answer_that_comes_late_does_not_undo_what_was_told_before_it(store: Store) -> None:
    consumer, slot = consumer_of(store), slot_for("a", wants_all=True)
    store.holds_answers = True
    store.put(meta("a", "STARTED"))

    consumer.consume_from(slot, ["a"])
    turn(consumer)
    store.put(meta("a"))
    store.release()
    turn(consumer)

    assert slot.take()[-1] == meta("a")
    assert consumer.health().watched == 0


# -- R2: after a loss, subscribe again and only then read


def test_r2_a_result_stored_while_the_link_is_away_is_found(store: Store) -> None:
    consumer = consumer_of(store)
    slot = armed(consumer, "a")

    store.cut()
    turn(consumer)
    store.put(meta("a"))
    turn(consumer)

    assert slot.take() == [meta("a")]


def test_r2_a_result_stored_between_the_new_link_and_its_confirmation_is_found(store: Store) -> None:
    consumer = consumer_of(store)
    slot = armed(consumer, "a")
    store.holds_confirmations = True

    store.cut()
    turn(consumer)
    store.put(meta("a"))
    store.release()
    turn(consumer)

    assert slot.take() == [meta("a")]


def test_r2_all_that_is_watched_is_subscribed_to_again_before_it_is_read(store: Store) -> None:
    consumer = consumer_of(store)
    armed(consumer, "a", "b")
    store.log.clear()

    store.cut()
    turn(consumer, 8)

    asked = [call for call in store.log if call[0] in {"subscribe", "read"}]
    assert asked == [("subscribe", ("a", "b")), ("read", ("a", "b"))]


def test_r2_the_link_is_up_only_once_everything_is_confirmed_again(store: Store) -> None:
    consumer = consumer_of(store)
    armed(consumer, "a")
    phases = [consumer.health().phase]
    store.holds_confirmations = True

    store.cut()
    turn(consumer, 1)
    phases.append(consumer.health().phase)
    turn(consumer)
    phases.append(consumer.health().phase)
    store.release()
    turn(consumer)

    assert phases == ["up", "down", "resync"]
    assert consumer.health().phase == "up"


def test_a_notice_that_was_lost_is_made_up_for_by_reading_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(consumer_module, "monotonic", lambda: now[0])
    consumer = consumer_of(store)
    slot = armed(consumer, "a")

    store.drops_notices = True
    store.put(meta("a"))
    turn(consumer)
    was_told = slot.has_news
    now[0] += 8.0
    turn(consumer)

    assert not was_told
    assert slot.take() == [meta("a")]


def test_a_notice_that_comes_twice_is_one_result(store: Store) -> None:
    consumer = consumer_of(store)
    slot = armed(consumer, "a", "b")
    store.copies = 3

    store.put(meta("a"))
    turn(consumer)

    assert slot.take() == [meta("a")]
    assert not slot.ready


# -- R3: one thread uses the link, and nobody waits for a lock while it waits


def test_r3_only_one_thread_ever_uses_the_link_however_many_come_and_go(store: Store) -> None:
    backend = StoreBackend(store)
    rounds, workers = 30, 12
    values: list[object] = []

    def come_and_go(mine: int) -> None:
        for number in range(rounds):
            task_id = f"{mine}-{number}"
            # Dropped at once: its finalizer runs here, while others wait, subscribe and cancel.
            backend.add_pending_result(backend.result(f"{task_id}-dropped"))
            held = backend.add_pending_result(backend.result(task_id))
            finisher = Thread(target=store.finish, args=(task_id,))
            finisher.start()
            values.append(held.get(timeout=PATIENCE))
            finisher.join()
            if number % 10 == mine % 10:
                store.cut()

    workers_at_it = [Thread(target=come_and_go, args=(mine,)) for mine in range(workers)]
    for thread in workers_at_it:
        thread.start()
    for thread in workers_at_it:
        thread.join()

    assert sorted(map(str, values)) == sorted(f"{a}-{b}" for a in range(workers) for b in range(rounds))
    assert store.intrusions == []
    assert settled(lambda: backend.health().watched == 0 and not store.subscribed)
    backend.close()


def test_r3_nobody_is_kept_waiting_by_the_wait_for_the_link(
    store: Store, running: BaseResultConsumer
) -> None:
    is_at_it, may_go_on = Event(), Event()
    slots = [slot_for("a"), slot_for("b")]
    running.consume_from(slots[0], ["a"])
    assert settled(lambda: running.health().phase == "up")

    def block() -> None:
        is_at_it.set()
        may_go_on.wait(PATIENCE)

    store.before["drain"] = block
    store.put(meta("x"))
    running.consume_from(slot_for("c"), ["c"])
    assert is_at_it.wait(PATIENCE)
    # The thread that drains is stuck in its link. None of these asks it for anything.
    running.consume_from(slots[1], ["b"])
    running.cancel_for(slots[0])
    running.drop(slots[1])
    health = running.health()
    is_still_stuck = not may_go_on.is_set()
    may_go_on.set()
    store.before.clear()

    assert is_still_stuck
    assert health.waiters == 2
    assert settled(lambda: running.health().watched == 1)


def test_r3_a_finalizer_may_run_in_the_thread_that_drains(store: Store) -> None:
    consumer = consumer_of(store)
    slots = [armed(consumer, "a"), armed(consumer, "b")]

    class Dropping(BaseResultConsumer):
        def on_state_change(self, meta: ResultMeta) -> None:
            assert meta.task_id == "a"
            self.drop(slots[1])

    consumer.__class__ = Dropping
    store.put(meta("a"))
    turn(consumer)

    assert slots[0].take() == [meta("a")]
    assert consumer.health().watched == 0
    assert store.subscribed == set()


def test_two_who_wait_for_one_task_both_get_it_and_then_nobody_is_subscribed(store: Store) -> None:
    consumer = consumer_of(store)
    slots = [armed(consumer, "a"), armed(consumer, "a")]

    store.put(meta("a"))
    turn(consumer)

    assert [slot.take() for slot in slots] == [[meta("a")], [meta("a")]]
    assert store.subscribed == set()


def test_one_of_two_who_leaves_takes_nothing_from_the_other(store: Store) -> None:
    consumer = consumer_of(store)
    leaving, staying = armed(consumer, "a"), armed(consumer, "a")

    consumer.cancel_for(leaving)
    turn(consumer)
    store.put(meta("a"))
    turn(consumer)

    assert leaving.take() == []
    assert staying.take() == [meta("a")]


# -- R4: what cannot be mended by trying is told, and is not for ever


def test_r4_whoever_waits_is_told_that_access_is_refused(store: Store) -> None:
    consumer = consumer_of(store)
    slots = [armed(consumer, "a"), armed(consumer, "b")]

    store.refuses = True
    store.cut()
    turn(consumer)

    assert [type(slot.error) for slot in slots] == [AccessRefused, AccessRefused]
    assert all(slot.ready for slot in slots)
    assert consumer.health().watched == 0


def test_r4_after_the_refusal_is_mended_the_same_consumer_works(store: Store) -> None:
    consumer = consumer_of(store)
    store.refuses = True
    refused = armed(consumer, "a")

    store.refuses = False
    slot = armed(consumer, "a")
    store.put(meta("a"))
    turn(consumer)

    assert isinstance(refused.error, AccessRefused)
    assert slot.take() == [meta("a")]
    assert consumer.health().last_error is None


def test_r4_a_store_that_is_away_for_long_is_nobodys_failure(store: Store) -> None:
    consumer = consumer_of(store)
    store.stop()
    slot = armed(consumer, "a")

    turn(consumer, 200)
    was_ready = slot.ready
    store.start()
    store.put(meta("a"))
    turn(consumer)

    assert not was_ready
    assert slot.take() == [meta("a")]


# -- R5: a fault of ours is nobody's loss


@pytest.mark.parametrize("call", ["open", "subscribe", "read", "drain"])
def test_r5_an_unexpected_error_loses_nobody(
    store: Store, running: BaseResultConsumer, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    slots = [slot_for("a"), slot_for("b")]
    store.fail(call, RuntimeError("a bug"))

    running.consume_from(slots[0], ["a"])
    running.consume_from(slots[1], ["b"])
    assert settled(lambda: not store.faults[call])
    store.put(meta("a"))
    first = wait_at(slots[0])
    store.put(meta("b"))

    assert first == [meta("a")]
    assert wait_at(slots[1]) == [meta("b")]
    assert [record.levelno for record in caplog.records if record.exc_info] == [logging.ERROR]


@pytest.mark.parametrize(
    "error", [OSError(errno.EMFILE, os.strerror(errno.EMFILE)), RuntimeError("a bug")], ids=["EMFILE", "bug"]
)
def test_r5_an_error_while_a_fresh_link_is_made_loses_nobody(
    store: Store, running: BaseResultConsumer, error: Exception
) -> None:
    slot = slot_for("a")
    running.consume_from(slot, ["a"])
    assert settled(lambda: running.health().phase == "up")

    store.fail("clone", error, times=3)
    store.cut()
    assert settled(lambda: not store.faults["clone"])
    store.put(meta("a"))

    assert wait_at(slot) == [meta("a")]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_r5_a_killed_thread_is_logged_and_replaced(
    store: Store, running: BaseResultConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    slot = slot_for("a")
    store.fail("drain", SystemExit())

    running.consume_from(slot, ["a"])
    assert settled(lambda: not store.faults["drain"])
    store.put(meta("a"))

    assert wait_at(slot) == [meta("a")]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "killed by SystemExit()" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_r5_a_link_that_fails_to_close_loses_nobody(
    store: Store, running: BaseResultConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Link) -> None:
        raise ValueError("not closed")

    slot = slot_for("a")
    monkeypatch.setattr(Link, "close", fail)
    store.fail("drain", RuntimeError("a bug"))

    running.consume_from(slot, ["a"])
    assert settled(lambda: not store.faults["drain"])
    store.put(meta("a"))

    assert wait_at(slot) == [meta("a")]


def test_r5_a_kill_that_repeats_reaches_those_who_wait(
    store: Store, clock: PauseClock, caplog: pytest.LogCaptureFixture
) -> None:
    class KilledError(BaseException):
        """Not an Exception, like the timeouts of gevent and eventlet."""

    class Killed(BaseResultConsumer):
        def drain_events(self, timeout: float | None = None) -> None:  # noqa: ARG002
            raise KilledError

    slot = slot_for("a")
    runtime, consumer = Still(lambda: clock), Killed(store.link(), settings=quick(**SECONDS))
    consumer.start(runtime)
    consumer.consume_from(slot, ["a"])
    start = clock.now

    while not slot.ready:
        with pytest.raises(KilledError):
            runtime.spawned.pop()()

    assert isinstance(slot.error, CeleriacError)
    assert isinstance(slot.error.__cause__, KilledError)
    assert clock.now - start >= FAILURE_SPAN
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert len(runtime.spawned) == 1


def test_r5_those_who_wait_get_the_error_if_a_killed_thread_cannot_be_replaced(store: Store) -> None:
    class KilledError(BaseException):
        """Not an Exception, like the timeouts of gevent and eventlet."""

    class Limited(Still):
        def spawn(self, run: Callable[[], object], *, name: str) -> "Still":
            if is_full:
                raise RuntimeError("can't start new thread")
            return super().spawn(run, name=name)

    is_full, slots = False, [slot_for("a"), slot_for("b"), slot_for("c")]
    runtime, consumer = Limited(), consumer_of(store)
    consumer.start(runtime)
    consumer.consume_from(slots[0], ["a"])
    is_full = True
    store.fail("drain", KilledError())

    with pytest.raises(KilledError):
        runtime.spawned.pop()()
    # It started the consumer before the thread was killed.
    consumer.consume_from(slots[1], ["b"])
    is_full = False
    consumer.start(runtime)
    consumer.consume_from(slots[2], ["c"])

    for slot in slots[:2]:
        assert isinstance(slot.error, CeleriacError)
        assert "can't start new thread" in str(slot.error)
        assert isinstance(slot.error.__cause__, RuntimeError)
    assert slots[2].error is None
    assert len(runtime.spawned) == 1


def test_r5_a_timeout_neither_loses_the_link_nor_spins(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    class Slow(BaseResultConsumer):
        turns = 0

        def drain_events(self, timeout: float | None = None) -> None:  # noqa: ARG002
            self.turns += 1
            if self.turns == 3:
                self.stop_soon()
            raise TimeoutError("timed out")

    pause = Patient()
    runtime, consumer = Still(lambda: pause), Slow(store.link(), settings=quick())
    consumer.start(runtime)
    consumer.consume_from(slot_for("a"), ["a"])
    runtime.spawned.pop()()

    assert consumer.turns == 3
    assert consumer.health().attempts == 0
    assert len(pause.waits) >= 2
    assert caplog.records == []


@pytest.mark.parametrize("call", ["open", "subscribe", "read"])
def test_r5_a_timeout_of_connecting_or_sending_is_a_lost_connection(
    store: Store, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer, slot = consumer_of(store), slot_for("a")
    store.fail(call, TimeoutError("no answer"))
    store.put(meta("a"))

    consumer.consume_from(slot, ["a"])
    turn(consumer, 8)

    assert slot.take() == [meta("a")]
    assert (store.asked["open"], store.asked["close"]) == (2, 1)
    assert [(record.levelname, "no answer" in record.message) for record in caplog.records] == [
        ("WARNING", True)
    ]


def test_r6_a_timeout_of_connecting_is_not_tried_again_before_its_time(store: Store) -> None:
    pause, consumer = Patient(), consumer_of(store, **NEVER)
    consumer.start(Still(lambda: pause))
    store.fail("open", TimeoutError("no answer"), times=1000)

    consumer.consume_from(slot_for("a"), ["a"])
    for _ in range(500):
        consumer.drain_events()

    assert store.asked["open"] == 1


@pytest.mark.parametrize("error", [RuntimeError("a bug"), OSError("gone")])
@pytest.mark.parametrize("call", ["open", "read", "drain"])
def test_r5_an_unexpected_error_that_stays_reaches_those_who_wait(
    store: Store, clock: PauseClock, call: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    consumer, slot, later = consumer_of(store, **SECONDS), slot_for("a"), slot_for("a")
    runtime, start = Still(lambda: clock), clock.now

    def wait_again() -> None:
        if slot.ready and store.faults:
            store.faults.clear()
            consumer.consume_from(later, ["a"])
            store.put(meta("a"))

    def stop_at_the_end() -> None:
        if later.ready:
            consumer.stop_soon()

    store.fail(call, error, times=1000)
    clock.before_wait = wait_again
    store.before["drain"] = stop_at_the_end
    consumer.start(runtime)
    consumer.consume_from(slot, ["a"])
    runtime.spawned.pop()()

    assert isinstance(slot.error, CeleriacError)
    assert slot.error.__cause__ is error
    assert clock.now - start >= FAILURE_SPAN
    assert later.take() == [meta("a")]
    level = "WARNING" if isinstance(error, OSError) else "ERROR"
    assert [record.levelname for record in caplog.records] == [level]


def test_r5_who_looks_at_states_and_fails_harms_nobody(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(BaseResultConsumer):
        def on_state_change(self, meta: ResultMeta) -> None:
            raise RuntimeError(f"cannot look at {meta.task_id}")

    consumer = Failing(store.link(), settings=quick())
    slot = armed(consumer, "a", "b")
    store.put(meta("a"), meta("b"))
    turn(consumer)

    assert slot.take() == [meta("a"), meta("b")]
    assert store.asked["open"] == 1
    assert len([record for record in caplog.records if record.exc_info]) == 2


def test_r5_one_who_is_woken_and_fails_harms_nobody_else(store: Store) -> None:
    def refuse(_: ResultMeta | Exception) -> None:
        raise RuntimeError("not now")

    consumer = consumer_of(store)
    consumer.consume_from(LastingSlot(refuse), ["a"])
    slot = armed(consumer, "a")
    store.put(meta("a"))
    turn(consumer)

    assert slot.take() == [meta("a")]
    assert store.asked["open"] == 1


def test_every_state_that_comes_can_be_looked_at(store: Store) -> None:
    seen: list[ResultMeta] = []

    class Looking(BaseResultConsumer):
        def on_state_change(self, meta: ResultMeta) -> None:
            seen.append(meta)

    consumer = Looking(store.link(), settings=quick())
    armed(consumer, "a")
    store.put(meta("a", "STARTED"))
    turn(consumer)
    store.put(meta("a"))
    turn(consumer)

    assert [each.status for each in seen] == ["STARTED", "SUCCESS"]


def test_a_function_assigned_to_one_consumer_sees_each_state(store: Store) -> None:
    seen: list[ResultMeta] = []
    consumer = consumer_of(store)
    consumer.on_state_change = seen.append  # type: ignore[method-assign, assignment]
    armed(consumer, "a")
    store.put(meta("a"))
    turn(consumer)

    assert seen == [meta("a")]


# -- R6: no spinning


class Patient:
    """A flag that never lets anybody wait, and says how long they would have."""

    def __init__(self) -> None:
        self.waits: list[float | None] = []

    def set(self) -> None: ...
    def clear(self) -> None: ...

    def wait(self, timeout: float | None = None) -> None:
        self.waits.append(timeout)


def test_r6_a_link_that_fails_is_not_tried_again_before_its_time(store: Store) -> None:
    pause, consumer = Patient(), consumer_of(store, **NEVER)
    consumer.start(Still(lambda: pause))
    store.stop()

    consumer.consume_from(slot_for("a"), ["a"])
    for _ in range(500):
        consumer.drain_events()

    assert store.asked["open"] == 1
    assert len(pause.waits) == 499
    assert all(wait is not None and wait > 0 for wait in pause.waits)


def test_r6_an_unexpected_error_that_stays_is_not_met_in_a_spin(store: Store) -> None:
    consumer = consumer_of(store, **NEVER)
    store.fail("drain", RuntimeError("a bug"), times=1_000_000)

    consumer.start(Threads())
    consumer.consume_from(slot_for("a"), ["a"])
    assert settled(lambda: consumer.health().last_error)
    # Each of these wakes the loop, which then finds that it is not time yet.
    for number in range(100):
        consumer.consume_from(slot_for(str(number)), [str(number)])
    consumer.stop()

    assert store.asked["open"] == 1
    assert store.asked["drain"] == 1


def test_r6_an_idle_link_is_waited_at_for_seconds(store: Store, running: BaseResultConsumer) -> None:
    for number in range(100):
        running.consume_from(slot_for(str(number)), [str(number)])

    is_idle = settled(lambda: store.waits and store.waits[-1] > 1.0)
    turns = store.asked["drain"]

    assert is_idle
    # Subscribing, confirming and reading take a few turns for each, and no more.
    assert turns <= 500


def test_r6_without_a_link_and_without_waiters_nothing_is_tried(store: Store) -> None:
    pause, consumer = Patient(), consumer_of(store)
    consumer.start(Still(lambda: pause))

    for _ in range(100):
        consumer.drain_events()

    assert store.asked["open"] == 0
    assert len(pause.waits) == 100


# -- R8, R12: who comes is heard at once, whatever the loop is at


class Hooked:
    """A flag that lets something happen just before it is lowered, or just before somebody waits."""

    def __init__(self) -> None:
        self.before_clear: Callable[[], object] = bool
        self.before_wait: Callable[[], object] = bool
        #: Waits that nobody ended beforehand.
        self.slept = 0
        self._is_raised = False

    def set(self) -> None:
        self._is_raised = True

    def clear(self) -> None:
        self.before_clear()
        self._is_raised = False

    def wait(self, timeout: float | None = None) -> None:  # noqa: ARG002
        self.before_wait()
        self.slept += not self._is_raised


@pytest.mark.parametrize("moment", ["before_clear", "before_wait"])
def test_r12_who_comes_while_the_loop_goes_to_sleep_is_not_slept_through(store: Store, moment: str) -> None:
    flag, consumer, slot = Hooked(), consumer_of(store), slot_for("a")
    consumer.start(Still(lambda: flag))

    def come() -> None:
        if not consumer.health().waiters:
            consumer.consume_from(slot, ["a"])

    setattr(flag, moment, come)
    consumer.drain_events()

    assert consumer.health().waiters == 1
    assert flag.slept == 0


def test_r12_who_comes_while_the_loop_goes_to_drain_is_not_slept_through(store: Store) -> None:
    consumer = consumer_of(store)
    armed(consumer, "a")

    def come() -> None:
        store.before.clear()
        consumer.consume_from(slot_for("b"), ["b"])

    store.before["drain"] = come
    consumer.drain_events()  # it would wait for seconds, if it were not interrupted
    turn(consumer)

    assert store.subscribed == {"a", "b"}


def test_r8_a_result_wakes_who_waits_without_any_interval(store: Store, running: BaseResultConsumer) -> None:
    slot = slot_for("a")
    running.consume_from(slot, ["a"])
    assert settled(lambda: store.waits and store.waits[-1] > 1.0)
    turns = store.asked["drain"]

    store.put(meta("a"))
    came = wait_at(slot)

    assert came == [meta("a")]
    assert store.asked["drain"] - turns <= 2


# -- R10: what nobody asked for


def test_r10_results_that_nobody_asked_for_are_remembered_within_a_limit() -> None:
    store = Store(has_store=False)
    consumer = consumer_of(store)

    turn(consumer)
    store.finish(*(str(number) for number in range(10_500)))
    turn(consumer)

    assert consumer._waiting.early == 10_000
    assert consumer.recall("499") is None
    assert consumer.recall("10499") == meta("10499", result="10499")


def test_r10_where_results_are_stored_nothing_is_remembered(store: Store) -> None:
    consumer = consumer_of(store)
    slot = armed(consumer, "a")

    consumer.cancel_for(slot)
    store.put(meta("a"))
    turn(consumer)

    assert consumer._waiting.early == 0
    assert consumer.recall("a") is None


def test_r10_a_result_that_came_before_somebody_asked_is_handed_over() -> None:
    store = Store(has_store=False)
    consumer, slot = consumer_of(store), slot_for("a")
    turn(consumer)

    store.put(meta("a"))
    turn(consumer)
    consumer.consume_from(slot, ["a"])

    assert slot.take() == [meta("a")]


# -- R11: links


def test_r11_every_link_that_was_lost_is_closed(store: Store) -> None:
    consumer = consumer_of(store)
    armed(consumer, "a")

    for _ in range(50):
        store.cut()
        turn(consumer)

    assert store.asked["open"] == 51
    assert store.asked["close"] == 50
    assert store.open_links == 1


# -- nothing is left


def structures(waiting: WaitingList) -> dict[str, int]:
    """Return how much the list holds, by what it holds it in."""
    held = {name: len(value) for name, value in vars(waiting).items() if isinstance(value, dict | set)}
    for name in ("_deadlines", "_polls"):
        held |= {f"{name}{inner}": len(value) for inner, value in vars(getattr(waiting, name)).items()}
    return {name: size for name, size in held.items() if size}


def test_ten_thousand_results_that_are_dropped_leave_nothing(store: Store) -> None:
    backend = StoreBackend(store)
    results = [backend.result(str(number)) for number in range(10_000)]
    backend.add_pending_results(results)
    assert settled(lambda: len(store.subscribed) == 10_000)
    last = ref(results[-1])

    results.clear()
    gc.collect()
    is_empty = settled(lambda: backend.health().watched == 0 and not store.subscribed)

    assert last() is None
    assert is_empty
    assert settled(lambda: structures(backend.consumer._waiting) == {})
    backend.close()


def test_a_slot_of_which_all_came_leaves_nothing(store: Store) -> None:
    consumer = consumer_of(store)
    slot = armed(consumer, "a", "b")

    store.put(meta("a"), meta("b"))
    turn(consumer)

    assert slot.ready
    assert structures(consumer._waiting) == {}
    assert store.subscribed == set()


# -- the end


def test_whoever_waits_when_the_consumer_is_stopped_is_told(
    store: Store, running: BaseResultConsumer
) -> None:
    slot = slot_for("a")
    running.consume_from(slot, ["a"])

    running.stop()

    assert isinstance(slot.error, NetworkError)
    assert store.open_links == 0


def test_whoever_comes_after_the_consumer_was_stopped_is_told_too(running: BaseResultConsumer) -> None:
    slot = slot_for("a")
    running.stop()

    running.consume_from(slot, ["a"])

    assert isinstance(slot.error, NetworkError)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_whoever_waits_is_told_of_the_end_even_if_the_link_does_not_end_well(
    store: Store, running: BaseResultConsumer
) -> None:
    slot = slot_for("a")
    running.consume_from(slot, ["a"])
    assert settled(lambda: running.health().phase == "up")
    store.fail("delete", RuntimeError("a bug"))

    running.stop()

    assert isinstance(slot.error, NetworkError)


def test_a_consumer_can_be_stopped_twice_and_before_it_was_started(store: Store) -> None:
    consumer = consumer_of(store)

    consumer.stop()
    consumer.stop()
    consumer.start(Threads())

    assert store.asked["open"] == 0


def test_a_consumer_that_is_started_twice_drains_once(store: Store) -> None:
    consumer, runtime = consumer_of(store), Still()

    consumer.start(runtime)
    consumer.start(runtime)

    assert len(runtime.spawned) == 1


def test_a_consumer_whose_thread_cannot_be_started_can_be_started_later(store: Store) -> None:
    class Full(Still):
        def spawn(self, run: Callable[[], object], *, name: str) -> "Still":
            raise RuntimeError(f"can't start new thread for {name}: {run}")

    consumer, runtime = consumer_of(store), Still()
    with pytest.raises(RuntimeError, match="can't start"):
        consumer.start(Full())

    consumer.start(runtime)

    assert len(runtime.spawned) == 1


def test_who_drops_the_last_result_and_the_backend_ends_the_thread(store: Store) -> None:
    before = set(threads())
    backends = [StoreBackend(store)]
    with pytest.raises(ResultTimeout):
        backends[0].result("a").get(timeout=0.05)
    ours = {thread for thread in threads() if thread.name == "celeriac-results"} - before
    gone = ref(backends[0])

    backends.clear()
    gc.collect()

    assert gone() is None
    assert settled(lambda: store.open_links == 0)
    assert ours
    assert settled(lambda: not any(thread.is_alive() for thread in ours))


# -- until it is up


def test_who_waits_for_the_link_is_told_when_it_is_up() -> None:
    store = Store(has_store=False)
    consumer = consumer_of(store)
    consumer.start(Threads())

    is_up = consumer.wait_until_up(Threads().flag(), PATIENCE)

    assert is_up
    assert store.open_links == 1
    consumer.stop()


def test_who_waits_for_a_link_that_does_not_come_is_told_so() -> None:
    store = Store(has_store=False)
    store.stop()
    consumer = consumer_of(store)
    consumer.start(Threads())

    is_up = consumer.wait_until_up(Threads().flag(), 0.05)

    assert not is_up
    assert consumer._up_flags == []
    consumer.stop()


def test_who_waits_for_a_link_that_is_refused_is_told_why() -> None:
    store = Store(has_store=False)
    store.refuses = True
    consumer = consumer_of(store)
    consumer.start(Threads())

    with pytest.raises(AccessRefused, match="access refused by"):
        consumer.wait_until_up(Threads().flag(), PATIENCE)

    assert consumer._up_flags == []
    consumer.stop()


def test_health_says_what_is_wrong_and_for_how_many(store: Store) -> None:
    consumer = consumer_of(store)
    armed(consumer, "a", "b")

    store.stop()
    turn(consumer, 3)
    health = consumer.health()

    assert (health.phase, health.watched, health.waiters) == ("down", 2, 1)
    assert health.last_error == "the store is away"
    assert health.attempts == 3
