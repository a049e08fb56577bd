"""Results in threads: what get() returns and raises, and that a wait leaves nothing behind."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread, current_thread, get_ident, main_thread
from typing import Any

import pytest

from celeriac import Celeriac, MemoryBroker
from celeriac.errors import (
    AccessRefused,
    CallerError,
    ConnectionLost,
    NetworkError,
    RemoteError,
    ResultTimeout,
    ResultUnreadable,
    TaskRevoked,
)
from celeriac.model.result import Failure, ResultMeta, ResultTree
from celeriac.node.drainer import ThreadDrainer, register_drainer
from celeriac.node.result import AsyncResult
from celeriac.node.result_set import ResultSet
from celeriac.node.slot import Slot
from celeriac.runtime.base import Flag
from celeriac.runtime.threads import Threads
from tests.results import PATIENCE, Store, StoreBackend, failed, meta, settled, waiting


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def backend(store: Store) -> Iterator[StoreBackend]:
    backend = StoreBackend(store)
    yield backend
    backend.close()


@pytest.fixture
def bare() -> Iterator[StoreBackend]:
    """A backend without a store: every result comes once."""
    backend = StoreBackend(Store(has_store=False))
    yield backend
    backend.close()


# -- what get() gives


def test_get_takes_the_callback_and_no_ack_of_celery(backend: StoreBackend, store: Store) -> None:
    values: list[tuple[str, object]] = []
    store.put(meta("a", result=3))

    value = backend.result("a").get(callback=lambda *call: values.append(call), no_ack=True)

    assert value == 3
    assert values == [("a", 3)]


def test_a_result_that_is_stored_is_returned_without_waiting(backend: StoreBackend, store: Store) -> None:
    store.put(meta("a", result={"sum": 3}))

    value = backend.result("a").get()

    assert value == {"sum": 3}
    assert store.asked["subscribe"] == 0


def test_a_result_that_comes_later_is_waited_for(backend: StoreBackend, store: Store) -> None:
    result = backend.result("a")

    with waiting(backend.consumer, lambda: result.get(timeout=PATIENCE)) as (future,):
        store.finish("a")

    assert future.result() == "a"
    assert result.successful()


def test_a_result_that_is_known_is_not_asked_for_again(backend: StoreBackend, store: Store) -> None:
    store.put(meta("a"))
    result = backend.result("a")
    result.get()
    asked = store.asked["look"]

    again = result.get()

    assert again == 42
    assert result.ready()
    assert store.asked["look"] == asked


def test_a_failure_is_raised_as_text_and_values(backend: StoreBackend, store: Store) -> None:
    store.put(failed("a", "no such file"))

    with pytest.raises(RemoteError, match="task a: ValueError: no such file") as caught:
        backend.result("a").get()

    error = caught.value
    assert (error.task_id, error.exc_type, error.exc_module) == ("a", "ValueError", "builtins")
    assert (error.exc_args, error.traceback) == (("no such file",), "Traceback")


def test_a_failure_is_returned_if_it_is_not_to_be_raised(backend: StoreBackend, store: Store) -> None:
    store.put(failed("a"))

    value = backend.result("a").get(propagate=False)

    assert isinstance(value, RemoteError)
    assert value.exc_type == "ValueError"


def test_a_task_that_was_revoked_has_an_error_of_its_own(backend: StoreBackend, store: Store) -> None:
    store.put(meta("a", "REVOKED", Failure("TaskRevokedError", ("terminated",))))

    with pytest.raises(TaskRevoked, match="terminated"):
        backend.result("a").get()

    assert backend.result("a").state == "REVOKED"


def test_a_result_that_cannot_be_read_says_why(backend: StoreBackend, store: Store) -> None:
    store.put(ResultMeta("a", "", fault="it is not JSON"))

    with pytest.raises(ResultUnreadable, match="cannot read the result of task a: it is not JSON"):
        backend.result("a").get()

    assert isinstance(backend.result("a").get(propagate=False), ResultUnreadable)


def test_a_result_that_cannot_be_read_ends_a_wait_that_has_begun(backend: StoreBackend, store: Store) -> None:
    result = backend.result("a")

    with waiting(backend.consumer, lambda: result.get(timeout=PATIENCE)) as (future,):
        store.put(ResultMeta("a", "", fault="it is not JSON"))

    assert isinstance(future.exception(), ResultUnreadable)


def test_the_retry_of_a_task_does_not_end_a_wait(backend: StoreBackend, store: Store) -> None:
    result = backend.result("a")

    with waiting(backend.consumer, lambda: result.get(timeout=PATIENCE)) as (future,):
        store.put(meta("a", "RETRY", Failure("Retry")))
        store.finish("a")

    assert future.result() == "a"


# -- R7: time


@pytest.mark.parametrize("timeout", [0, 0.0, -1.0])
def test_r7_now_finds_what_is_stored(backend: StoreBackend, store: Store, timeout: float) -> None:
    store.put(meta("a"))

    value = backend.result("a").get(timeout=timeout)

    assert value == 42


def test_r7_now_does_not_wait_for_what_is_not_there(backend: StoreBackend, store: Store) -> None:
    with pytest.raises(ResultTimeout, match="no result of task a within 0 s"):
        backend.result("a").get(timeout=0)

    assert store.asked["subscribe"] == 0
    assert settled(lambda: backend.health().watched == 0)


def test_r7_a_timeout_is_a_timeout_error(backend: StoreBackend) -> None:
    with pytest.raises(TimeoutError, match=r"no result of task a within 0\.05 s"):
        backend.result("a").get(timeout=0.05)

    assert settled(lambda: backend.health().waiters == 0)


def test_r7_a_timeout_ends_a_wait_while_the_link_is_away(store: Store) -> None:
    backend = StoreBackend(store)
    store.stop()

    def told() -> str:
        with pytest.raises(ResultTimeout) as caught:
            backend.result("a").get(timeout=0.5)
        return str(caught.value)

    assert settled(lambda: "last error of the result connection: the store is away" in told())
    assert settled(lambda: backend.health().waiters == 0)
    backend.close()


def test_r7_a_timeout_ends_a_wait_whose_link_is_lost_meanwhile(store: Store) -> None:
    backend = StoreBackend(store)

    with waiting(backend.consumer, lambda: backend.result("a").get(timeout=0.5)) as (future,):
        store.stop()

    assert isinstance(future.exception(), ResultTimeout)
    assert settled(lambda: backend.health().waiters == 0)
    backend.close()


def test_r7_now_finds_what_is_stored_after_the_link_was_lost_while_nobody_waited(
    backend: StoreBackend, store: Store
) -> None:
    with waiting(backend.consumer, lambda: backend.result("b").get(timeout=PATIENCE)):
        assert settled(lambda: store.open_links == 1)
        store.finish("b")
    store.cut()
    assert settled(lambda: backend.health().last_error)

    store.put(meta("a"))
    value = backend.result("a").get(timeout=0)

    assert value == 42


def test_r7_now_finds_what_came_although_the_link_is_away(bare: StoreBackend) -> None:
    bare.store.put(meta("a"))
    assert settled(lambda: bare.result("a").ready())

    bare.store.stop()
    assert settled(lambda: bare.health().last_error)
    value = bare.result("a").get(timeout=0)

    assert value == 42


@pytest.mark.parametrize("timeout", [float("inf"), 1e12])
def test_a_timeout_longer_than_any_clock_is_as_good_as_none(
    backend: StoreBackend, store: Store, timeout: float
) -> None:
    with waiting(backend.consumer, lambda: backend.result("a").get(timeout=timeout)) as (future,):
        store.finish("a")

    assert future.result() == "a"


def test_a_wait_can_be_begun_again_after_its_time_was_up(backend: StoreBackend, store: Store) -> None:
    result = backend.result("a")
    with pytest.raises(ResultTimeout):
        result.get(timeout=0.01)
    # Who gave up leaves the list a moment later.
    assert settled(lambda: backend.health().waiters == 0)

    with waiting(backend.consumer, lambda: result.get(timeout=PATIENCE)) as (future,):
        store.finish("a")

    assert future.result() == "a"


# -- R8, R9: callbacks of who waits


def test_r8_who_waits_is_woken_by_the_result_alone(backend: StoreBackend, store: Store) -> None:
    woken: list[int] = []
    result = backend.result("a")

    wait = waiting(
        backend.consumer,
        lambda: result.get(
            timeout=PATIENCE, interval=PATIENCE, on_interval=lambda: woken.append(get_ident())
        ),
    )
    with wait as (future,):
        store.finish("a")

    assert future.result() == "a"
    assert len(woken) == 1


def test_with_an_interval_who_waits_is_called_again_and_again(backend: StoreBackend, store: Store) -> None:
    calls = [0]

    def count() -> None:
        calls[0] += 1
        if calls[0] == 3:
            store.finish("a")

    value = backend.result("a").get(timeout=PATIENCE, interval=0.001, on_interval=count)

    assert value == "a"
    assert calls[0] >= 3


def test_on_interval_is_called_each_second_unless_said_otherwise(backend: StoreBackend, store: Store) -> None:
    waits: list[float | None] = []

    class Noted(Threads):
        def flag(self) -> Flag:
            flag = super().flag()
            wait = flag.wait

            def note(timeout: float | None = None) -> object:
                waits.append(timeout)
                return wait(timeout)

            flag.wait = note  # type: ignore[method-assign]
            return flag

    backend.drainer().runtime = Noted()
    with waiting(backend.consumer, lambda: backend.result("a").get(on_interval=bool)) as (future,):
        assert settled(lambda: waits)
        store.finish("a")

    assert future.result() == "a"
    assert set(waits) == {1.0}


def test_r9_each_who_waits_gets_the_states_of_its_own_task(backend: StoreBackend, store: Store) -> None:
    seen: dict[str, list[str]] = {"a": [], "b": []}

    def wait(task_id: str) -> Any:
        return backend.result(task_id).get(
            timeout=PATIENCE, on_message=lambda meta: seen[task_id].append(f"{meta.task_id} {meta.status}")
        )

    with waiting(backend.consumer, lambda: wait("a"), lambda: wait("b")):
        assert settled(lambda: store.subscribed == {"a", "b"})
        store.put(meta("a", "STARTED"), meta("b", "PROGRESS", 10), meta("b", "PROGRESS", 20))
        store.finish("a", "b")

    assert seen["a"] == ["a STARTED", "a SUCCESS"]
    assert seen["b"] == ["b PROGRESS", "b PROGRESS", "b SUCCESS"]


def test_r9_two_who_wait_for_one_task_both_see_all_of_it(backend: StoreBackend, store: Store) -> None:
    seen: list[list[str]] = [[], []]

    def wait(mine: list[str]) -> Any:
        return backend.result("a").get(timeout=PATIENCE, on_message=lambda meta: mine.append(meta.status))

    with waiting(backend.consumer, lambda: wait(seen[0]), lambda: wait(seen[1])) as futures:
        assert settled(lambda: store.subscribed == {"a"})
        store.put(meta("a", "STARTED"))
        assert settled(lambda: seen == [["STARTED"], ["STARTED"]])
        store.finish("a")

    assert seen == [["STARTED", "SUCCESS"]] * 2
    assert [future.result() for future in futures] == ["a", "a"]


def test_on_message_runs_in_the_thread_that_waits(backend: StoreBackend, store: Store) -> None:
    names: list[str] = []

    def wait() -> tuple[str, Any]:
        value = backend.result("a").get(
            timeout=PATIENCE, on_message=lambda _: names.append(current_thread().name)
        )
        return current_thread().name, value

    with waiting(backend.consumer, wait) as (future,):
        store.finish("a")

    assert future.result() == (names[0], "a")


def test_an_on_message_that_raises_ends_its_own_wait_and_no_other(
    backend: StoreBackend, store: Store
) -> None:
    def refuse(_: ResultMeta) -> None:
        raise RuntimeError("not this one")

    with waiting(
        backend.consumer,
        lambda: backend.result("a").get(timeout=PATIENCE, on_message=refuse),
        lambda: backend.result("a").get(timeout=PATIENCE),
    ) as (refusing, other):
        store.put(meta("a", "STARTED"))
        assert settled(refusing.done)
        assert settled(lambda: backend.health().waiters == 1)
        store.finish("a")

    assert str(refusing.exception()) == "not this one"
    assert other.result() == "a"


# -- who waits, and is interrupted


@pytest.mark.usefixtures("default_signals")
def test_ctrl_c_ends_a_wait_and_leaves_nothing(backend: StoreBackend, store: Store) -> None:
    def interrupt() -> None:
        assert settled(lambda: backend.health().waiters == 1)
        signal.pthread_kill(main_thread().ident or 0, signal.SIGINT)

    interrupter = Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        backend.result("a").get(timeout=PATIENCE)
    interrupter.join()

    assert settled(lambda: backend.health().waiters == 0)
    assert settled(lambda: store.subscribed == set())
    store.finish("a")
    assert backend.result("a").get(timeout=PATIENCE) == "a"


def test_ctrl_c_just_as_a_wait_begins_leaves_nothing(backend: StoreBackend, store: Store) -> None:
    def press() -> None:
        if backend.health().waiters and current_thread() is main_thread():
            store.before.clear()
            raise KeyboardInterrupt

    store.before["interrupt"] = press
    with pytest.raises(KeyboardInterrupt):
        backend.result("a").get(timeout=PATIENCE)

    assert settled(lambda: backend.health().waiters == 0)


def test_an_error_out_of_on_interval_leaves_nothing(backend: StoreBackend, store: Store) -> None:
    def stop() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        backend.result("a").get(timeout=PATIENCE, interval=0.001, on_interval=stop)

    assert settled(lambda: backend.health().waiters == 0)
    assert settled(lambda: store.subscribed == set())


def test_r4_all_who_wait_are_told_that_access_is_refused_each_with_an_error_of_its_own(
    backend: StoreBackend, store: Store
) -> None:
    waits = [lambda: backend.result("a").get(timeout=PATIENCE)] * 5

    with waiting(backend.consumer, *waits) as futures:
        store.refuses = True
        store.cut()

    errors = [future.exception() for future in futures]
    assert [type(error) for error in errors] == [AccessRefused] * 5
    assert len({id(error) for error in errors}) == 5


def test_r4_who_waits_after_the_refusal_was_mended_gets_the_result(
    backend: StoreBackend, store: Store
) -> None:
    with waiting(backend.consumer, lambda: backend.result("a").get(timeout=PATIENCE)) as (refused,):
        store.refuses = True
        store.cut()
    consumer = backend.consumer

    store.refuses = False
    with waiting(backend.consumer, lambda: backend.result("a").get(timeout=PATIENCE)) as (future,):
        store.finish("a")

    assert isinstance(refused.exception(), AccessRefused)
    assert future.result() == "a"
    assert backend.consumer is consumer


def test_r2_who_waits_does_not_notice_that_the_link_was_lost(backend: StoreBackend, store: Store) -> None:
    ids = [str(number) for number in range(20)]
    waits = [lambda task_id=task_id: backend.result(task_id).get(timeout=PATIENCE) for task_id in ids]

    with waiting(backend.consumer, *waits) as futures:
        for task_id in ids:
            store.stop()
            store.finish(task_id)
            store.start()

    assert [future.result() for future in futures] == ids


# -- two kinds of results for one task


def test_two_results_of_one_task_are_waited_for_apart(backend: StoreBackend, store: Store) -> None:
    one, other = backend.result("a"), backend.result("a")

    with waiting(backend.consumer, lambda: one.get(timeout=PATIENCE)) as (future,):
        with pytest.raises(ResultTimeout):
            other.get(timeout=0.05)
        store.finish("a")

    assert future.result() == "a"


def test_one_result_can_be_waited_for_in_many_threads(backend: StoreBackend, store: Store) -> None:
    result = backend.result("a")
    waits = [lambda: result.get(timeout=PATIENCE)] * 20

    with waiting(backend.consumer, *waits) as futures:
        store.finish("a")

    assert {future.result() for future in futures} == {"a"}


# -- results that are watched before anybody waits


def test_a_result_that_is_watched_is_known_once_it_comes(backend: StoreBackend, store: Store) -> None:
    result = backend.add_pending_result(backend.result("a"))

    store.finish("a")
    is_known = settled(lambda: not result.is_pending)
    asked = store.asked["look"]

    assert is_known
    assert result.get() == "a"
    assert store.asked["look"] == asked


def test_a_result_that_is_watched_no_more_leaves_nothing(backend: StoreBackend, store: Store) -> None:
    result = backend.add_pending_result(backend.result("a"))
    assert settled(lambda: store.subscribed == {"a"})

    backend.remove_pending_result(result)

    assert settled(lambda: backend.health().watched == 0)
    assert settled(lambda: store.subscribed == set())


def test_a_result_that_is_watched_twice_is_not_watched_after_it_was_removed(backend: StoreBackend) -> None:
    result = backend.add_pending_result(backend.result("a"))

    backend.add_pending_result(result)
    backend.remove_pending_result(result)

    assert settled(lambda: backend.health().watched == 0)


def test_a_look_that_began_before_the_result_came_does_not_undo_it(
    backend: StoreBackend, store: Store
) -> None:
    result = backend.add_pending_result(backend.result("a"))
    assert settled(lambda: store.subscribed == {"a"})
    store.put(meta("a", "STARTED"))
    read = backend.read

    def read_slowly(task_ids: Any, *, timeout: float) -> dict[str, ResultMeta]:
        found = read(task_ids, timeout=timeout)
        store.finish("a")
        assert settled(lambda: not result.is_pending)
        return found

    backend.read = read_slowly  # type: ignore[method-assign]
    first_state = result.state
    is_pending = result.is_pending

    assert first_state in {"STARTED", "SUCCESS"}
    assert not is_pending


# -- parents


def test_the_failure_of_a_task_before_it_ends_a_wait(backend: StoreBackend, store: Store) -> None:
    first = backend.result("first")
    last = backend.result("last", parent=backend.result("middle", parent=first))

    with waiting(backend.consumer, lambda: last.get(timeout=PATIENCE)) as (future,):
        store.put(meta("middle"))
        store.put(failed("first", "no input"))

    error = future.exception()
    assert isinstance(error, RemoteError)
    assert (error.task_id, error.exc_args) == ("first", ("no input",))
    assert settled(lambda: backend.health().waiters == 0)


def test_the_failure_of_a_task_before_it_that_is_stored_is_found_at_once(
    backend: StoreBackend, store: Store
) -> None:
    store.put(failed("first"))

    with pytest.raises(RemoteError, match="task first"):
        backend.result("last", parent=backend.result("first")).get(timeout=0)

    assert store.asked["subscribe"] == 0


def test_the_failure_of_a_task_before_it_that_is_known_already_ends_a_wait(
    backend: StoreBackend, store: Store
) -> None:
    store.put(failed("first"))
    first = backend.result("first")
    first.get(propagate=False)

    with pytest.raises(RemoteError, match="task first"):
        backend.result("last", parent=first).get(timeout=0.5)

    assert settled(lambda: backend.health().waiters == 0)


def test_the_success_of_a_task_before_it_ends_nothing(backend: StoreBackend, store: Store) -> None:
    last = backend.result("last", parent=backend.result("first"))

    with waiting(backend.consumer, lambda: last.get(timeout=PATIENCE)) as (future,):
        store.finish("first")
        store.finish("last")

    assert future.result() == "last"


def test_a_result_that_is_there_ends_a_wait_although_a_task_before_it_is_not_known(
    backend: StoreBackend, store: Store
) -> None:
    last = backend.result("last", parent=backend.result("first"))

    with waiting(backend.consumer, lambda: last.get(timeout=PATIENCE)) as (future,):
        store.finish("last")

    assert future.result() == "last"
    assert settled(lambda: backend.health().waiters == 0)
    assert settled(lambda: store.subscribed == set())


# -- children


def test_the_children_of_a_task_are_results_and_sets_of_results(backend: StoreBackend, store: Store) -> None:
    chained = ResultTree("c", parent=ResultTree("b"))
    group = ResultTree("g", members=(ResultTree("m1"), ResultTree("m2")))
    store.put(meta("a", children=(chained, group)))

    one, many = backend.result("a").children

    assert isinstance(one, AsyncResult)
    assert isinstance(many, ResultSet)
    assert (one.id, one.parent) == ("c", backend.result("b"))
    assert (many.id, [each.id for each in many]) == ("g", ["m1", "m2"])


def test_a_group_in_a_group_is_waited_for_as_its_tasks(backend: StoreBackend, store: Store) -> None:
    inner = ResultTree("inner", members=(ResultTree("m1"), ResultTree("m2")))
    store.put(meta("a", children=(ResultTree("outer", members=(inner, ResultTree("m3"))),)))
    store.finish("m1", "m2", "m3")

    [child] = backend.result("a").children

    assert child.get(timeout=PATIENCE) == ["m1", "m2", "m3"]


def test_the_failure_of_a_group_before_it_in_its_chain_ends_a_wait(
    backend: StoreBackend, store: Store
) -> None:
    group = ResultTree("g", members=(ResultTree("m1"), ResultTree("m2")))
    store.put(meta("a", children=(ResultTree("after", parent=group),)))
    store.put(failed("m2"))

    [child] = backend.result("a").children

    with pytest.raises(RemoteError, match="m2"):
        child.get(timeout=PATIENCE)


def test_the_children_of_a_task_can_be_waited_for(backend: StoreBackend, store: Store) -> None:
    group = ResultTree("g", members=(ResultTree("m1"), ResultTree("m2")))
    store.put(meta("a", children=(ResultTree("b"), group)))
    store.finish("b", "m2", "m1")

    values = [child.get(timeout=PATIENCE) for child in backend.result("a").children]

    assert values == ["b", ["m1", "m2"]]


# -- what is known now


def test_of_a_task_that_nobody_knows_the_state_is_pending(backend: StoreBackend) -> None:
    result = backend.result("a")

    state = result.state

    assert state == "PENDING"
    assert (result.ready(), result.successful(), result.failed()) == (False, False, False)
    assert (result.result, result.traceback, result.date_done, result.children) == (None, None, None, [])


def test_the_state_of_a_task_that_goes_on_is_looked_up_each_time(backend: StoreBackend, store: Store) -> None:
    result = backend.result("a")
    states = []

    for status in ("STARTED", "PROGRESS", "SUCCESS"):
        store.put(meta("a", status, 5))
        states.append(result.status)

    assert states == ["STARTED", "PROGRESS", "SUCCESS"]
    assert result.info == 5


def test_what_is_known_cannot_be_learned_while_the_store_is_away(backend: StoreBackend, store: Store) -> None:
    store.stop()

    with pytest.raises(ConnectionLost):
        _ = backend.result("a").state

    assert backend.result("a").is_pending


def test_a_failed_task_says_so(backend: StoreBackend, store: Store) -> None:
    store.put(failed("a"))

    result = backend.result("a")

    assert (result.ready(), result.successful(), result.failed()) == (True, False, True)
    assert isinstance(result.result, RemoteError)
    assert result.traceback == "Traceback"


# -- the task itself


def test_a_result_that_is_forgotten_is_gone_here_and_there(backend: StoreBackend, store: Store) -> None:
    store.put(meta("a"))
    result = backend.add_pending_result(backend.result("a"))
    result.get(timeout=PATIENCE)

    result.forget()

    assert result.state == "PENDING"
    assert store.look(["a"]) == {}
    assert settled(lambda: backend.health().watched == 0)


def test_a_result_that_came_once_can_be_forgotten(bare: StoreBackend) -> None:
    bare.store.put(meta("a"))
    result = bare.result("a")
    result.get(timeout=PATIENCE)

    result.forget()

    assert result.state == "PENDING"


def test_to_revoke_a_task_is_to_tell_the_workers() -> None:
    broker = MemoryBroker()
    app = Celeriac(broker, backend="redis://127.0.0.1:1/0", environ={})

    app.AsyncResult("a").revoke(terminate=True, signal="SIGUSR1")

    ((exchange, message),) = broker.published
    assert exchange == "celery.pidbox"
    assert b'"revoke"' in message.body
    assert b'"SIGUSR1"' in message.body


def test_a_result_without_a_control_says_how_to_get_one(backend: StoreBackend) -> None:
    with pytest.raises(CallerError, match=r"app\.AsyncResult"):
        backend.result("a").revoke()


@pytest.mark.parametrize("task_id", ["", None, 7])
def test_an_id_is_a_text(backend: StoreBackend, task_id: Any) -> None:
    with pytest.raises(CallerError, match="task ids are strings of 1 to"):
        backend.result(task_id)


def test_results_of_one_task_are_equal(backend: StoreBackend) -> None:
    one, same, other = backend.result("a"), backend.result("a"), backend.result("b")

    made = {one, same, other}

    assert made == {one, other}
    assert one != "a"
    assert (str(one), repr(one)) == ("a", "<AsyncResult a>")


# -- callbacks


def test_then_is_called_with_the_result_once_the_task_has_ended(backend: StoreBackend, store: Store) -> None:
    called: list[AsyncResult] = []
    result = backend.result("a").then(called.append)

    store.finish("a")

    assert settled(lambda: called == [result])
    assert not result.is_pending


def test_then_is_called_for_a_failure_too(backend: StoreBackend, store: Store) -> None:
    called: list[bool] = []
    backend.result("a").then(lambda result: called.append(result.failed()))

    store.put(failed("a"))

    assert settled(lambda: called == [True])


def test_then_is_called_for_what_is_stored_or_known_already(backend: StoreBackend, store: Store) -> None:
    called: list[AsyncResult] = []
    store.put(meta("a"))
    known = backend.result("a")
    known.get()

    known.then(called.append)
    backend.result("a").then(called.append)

    assert settled(lambda: len(called) == 2)


def test_then_is_called_for_what_came_once_and_before(bare: StoreBackend) -> None:
    called: list[str] = []
    bare.store.put(meta("a"))
    assert settled(lambda: bare.result("a").ready())

    bare.result("a").then(lambda result: called.append(result.id))

    assert settled(lambda: called == ["a"])


def test_then_is_called_although_nobody_holds_the_result(backend: StoreBackend, store: Store) -> None:
    called: list[str] = []
    backend.result("a").then(lambda result: called.append(result.id))
    assert settled(lambda: store.subscribed == {"a"})

    store.finish("a")

    assert settled(lambda: called == ["a"])
    assert settled(lambda: backend.health().watched == 0)


def test_then_is_not_called_if_the_end_cannot_be_learned_but_on_error_is(
    backend: StoreBackend, store: Store
) -> None:
    called: list[AsyncResult] = []
    errors: list[Exception] = []
    backend.result("a").then(called.append, errors.append)
    assert settled(lambda: store.subscribed == {"a"})

    store.refuses = True
    store.cut()

    assert settled(lambda: len(errors) == 1)
    assert isinstance(errors[0], AccessRefused)
    assert called == []


def test_a_callback_may_wait_for_another_result(backend: StoreBackend, store: Store) -> None:
    values: list[object] = []
    backend.result("a").then(lambda _: values.append(backend.result("b").get(timeout=PATIENCE)))

    store.finish("a")
    assert settled(lambda: backend.health().waiters == 1)
    store.finish("b")

    assert settled(lambda: values == ["b"])


def test_a_callback_that_takes_its_time_keeps_nobody_from_a_result(
    backend: StoreBackend, store: Store
) -> None:
    is_called, may_go_on = Event(), Event()

    def block(_: AsyncResult) -> None:
        is_called.set()
        may_go_on.wait(PATIENCE)

    backend.result("a").then(block)
    store.finish("a")
    assert is_called.wait(PATIENCE)
    with waiting(backend.consumer, lambda: backend.result("b").get(timeout=PATIENCE)) as (future,):
        store.finish("b")
    is_still_called = not may_go_on.is_set()
    may_go_on.set()

    assert future.result() == "b"
    assert is_still_called


def test_a_callback_that_raises_keeps_no_other_from_being_called(
    backend: StoreBackend, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[AsyncResult] = []

    def refuse(_: AsyncResult) -> None:
        raise RuntimeError("not this one")

    backend.result("a").then(refuse).then(called.append)
    store.finish("a")

    assert settled(lambda: len(called) == 1)
    assert "not this one" in caplog.text


# -- the end of a backend


def test_who_waits_when_the_backend_is_closed_is_told(backend: StoreBackend) -> None:
    with waiting(backend.consumer, lambda: backend.result("a").get(timeout=PATIENCE)) as (future,):
        backend.close()

    assert isinstance(future.exception(), NetworkError)


def test_a_backend_that_was_closed_begins_anew(backend: StoreBackend, store: Store) -> None:
    with pytest.raises(ResultTimeout):
        backend.result("a").get(timeout=0.01)
    backend.close()

    with waiting(backend.consumer, lambda: backend.result("a").get(timeout=PATIENCE)) as (future,):
        store.finish("a")

    assert future.result() == "a"


@register_drainer("closing")
class ClosingDrainer(ThreadDrainer):
    """A drainer by which a backend is closed just when somebody begins to wait."""

    backend: StoreBackend | None = None

    def slot(self, task_ids: Any, *, wants_all: bool = False) -> Slot:
        backend, type(self).backend = type(self).backend, None
        if backend is not None:
            backend.close()
        return super().slot(task_ids, wants_all=wants_all)


def test_who_begins_to_wait_just_as_the_backend_is_closed_is_told_or_gets_the_result(store: Store) -> None:
    backend = ClosingDrainer.backend = StoreBackend(store, result_drainer="closing")

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(backend.result("a").get, timeout=10.0)
        assert settled(lambda: ClosingDrainer.backend is None)
        store.finish("a")

    assert future.exception() is None or isinstance(future.exception(), NetworkError)
    backend.close()
