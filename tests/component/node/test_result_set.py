"""Sets of results: waited for together, in threads and in event loops."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from celeriac import Celeriac, MemoryBroker
from celeriac.errors import AccessRefused, RemoteError, ResultTimeout
from celeriac.node.result_set import ResultSet
from tests.results import PATIENCE, Store, StoreBackend, failed, meta, settled, waiting


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def backend(store: Store) -> Iterator[StoreBackend]:
    backend = StoreBackend(store)
    yield backend
    backend.close()


# -- R18: an empty set


def test_r18_an_empty_set_has_nothing_to_wait_for(backend: StoreBackend, store: Store) -> None:
    empty = backend.results()

    assert empty.join() == []
    assert list(empty.iter_native()) == []
    assert list(empty.as_completed()) == []
    assert sum(store.asked.values()) == 0


def test_r18_an_empty_set_has_nothing_to_wait_for_in_a_loop(backend: StoreBackend) -> None:
    empty = backend.results()

    async def main() -> tuple[Any, Any, list[str]]:
        return await empty, await empty.join(timeout=0), [each.id async for each in empty]

    assert asyncio.run(main()) == ([], [], [])


def test_r18_an_empty_set_is_ready_and_has_not_failed(backend: StoreBackend) -> None:
    empty = backend.results()

    known = (empty.ready(), empty.waiting(), empty.successful(), empty.failed(), empty.completed_count())

    assert known == (True, False, True, False, 0)
    assert len(empty) == 0


# -- waiting for all


def test_values_come_in_the_order_of_the_set(backend: StoreBackend, store: Store) -> None:
    results = backend.results("a", "b", "c")

    with waiting(backend.consumer, lambda: results.join(timeout=PATIENCE)) as (future,):
        for task_id in ("c", "a", "b"):
            store.finish(task_id)

    assert future.result() == ["a", "b", "c"]
    assert settled(lambda: backend.health().watched == 0)


def test_what_is_known_or_stored_already_is_not_waited_for(backend: StoreBackend, store: Store) -> None:
    store.finish("a", "b", "c")
    results = backend.results("a", "b", "c")
    results[1].get()

    values = results.get(timeout=PATIENCE)

    assert values == ["a", "b", "c"]
    assert store.asked["subscribe"] == 0


def test_a_thousand_results_are_one_wait(backend: StoreBackend, store: Store) -> None:
    ids = [str(number) for number in range(1000)]
    results = backend.results(*ids)

    with waiting(backend.consumer, lambda: results.join(timeout=PATIENCE)) as (future,):
        waiters = backend.health().waiters
        store.finish(*reversed(ids))

    assert future.result() == ids
    assert waiters == 1


def test_the_first_failure_is_raised_while_others_still_run(backend: StoreBackend, store: Store) -> None:
    results = backend.results("a", "b")

    with waiting(backend.consumer, lambda: results.join(timeout=PATIENCE)) as (future,):
        store.put(failed("b"))

    assert isinstance(future.exception(), RemoteError)
    assert settled(lambda: backend.health().waiters == 0)
    assert settled(lambda: store.subscribed == set())


def test_failures_are_values_if_they_are_not_to_be_raised(backend: StoreBackend, store: Store) -> None:
    store.put(failed("a"))
    store.finish("b")

    first, second = backend.results("a", "b").join(propagate=False)

    assert isinstance(first, RemoteError)
    assert second == "b"


def test_with_a_callback_each_value_is_handed_over_as_it_comes(backend: StoreBackend, store: Store) -> None:
    handed: list[tuple[str, Any]] = []
    results = backend.results("a", "b")

    def wait() -> Any:
        return results.join(timeout=PATIENCE, callback=lambda task_id, value: handed.append((task_id, value)))

    with waiting(backend.consumer, wait) as (future,):
        store.finish("b")
        assert settled(lambda: handed == [("b", "b")])
        store.finish("a")

    assert future.result() == []
    assert handed == [("b", "b"), ("a", "a")]


def test_a_callback_that_raises_ends_the_wait_and_leaves_nothing(backend: StoreBackend, store: Store) -> None:
    def refuse(task_id: str, value: Any) -> None:
        raise RuntimeError(f"{task_id} {value}")

    store.finish("a")
    with pytest.raises(RuntimeError, match="a a"):
        backend.results("a", "b").join(timeout=PATIENCE, callback=refuse)

    assert settled(lambda: backend.health().waiters == 0)


def test_a_result_that_is_in_twice_is_waited_for_once(backend: StoreBackend, store: Store) -> None:
    results = backend.results("a", "b", "a")
    store.finish("a", "b")

    values = results.join(timeout=PATIENCE)

    assert len(results) == 2
    assert values == ["a", "b"]


# -- R7: time


def test_r7_the_time_is_for_all_of_them_together(backend: StoreBackend, store: Store) -> None:
    store.finish("a")

    with pytest.raises(ResultTimeout):
        backend.results("a", "b").join(timeout=0.05)

    assert settled(lambda: backend.health().waiters == 0)


def test_r7_now_is_for_sets_too(backend: StoreBackend, store: Store) -> None:
    store.finish("a", "b")

    values = backend.results("a", "b").join(timeout=0)

    assert values == ["a", "b"]
    with pytest.raises(ResultTimeout):
        backend.results("a", "c").join(timeout=0)


def test_r7_what_is_there_is_told_before_the_time_is_up(backend: StoreBackend, store: Store) -> None:
    store.finish("a")

    completed = iter(backend.results("a", "b").as_completed(timeout=0))
    first = next(completed)

    assert first.id == "a"
    with pytest.raises(ResultTimeout):
        next(completed)


# -- as they end


def test_results_come_as_they_end(backend: StoreBackend, store: Store) -> None:
    results = backend.results("a", "b", "c")
    order: list[str] = []

    def collect() -> None:
        order.extend(result.get() for result in results.as_completed(timeout=PATIENCE))

    with waiting(backend.consumer, collect):
        for task_id in ("c", "a", "b"):
            store.finish(task_id)
            assert settled(lambda: set(order) >= {task_id})  # noqa: B023 - called at once

    assert order == ["c", "a", "b"]


def test_results_come_as_they_end_in_a_loop(backend: StoreBackend, store: Store) -> None:
    results = backend.results("a", "b", "c")

    async def main() -> list[str]:
        order: list[str] = []
        store.finish("c")
        async for result in results:
            order.append(result.id)
            if len(order) < 3:
                store.finish("ab"[len(order) - 1])
        return order

    assert asyncio.run(main()) == ["c", "a", "b"]
    assert settled(lambda: backend.health().waiters == 0)


def test_ids_and_states_come_as_tasks_end(backend: StoreBackend, store: Store) -> None:
    store.put(failed("a"))
    store.finish("b")

    ended = dict(backend.results("a", "b").iter_native(timeout=PATIENCE))

    assert ended == {"a": failed("a"), "b": meta("b", result="b")}


def test_who_stops_in_the_middle_leaves_nothing(backend: StoreBackend, store: Store) -> None:
    store.finish("a")

    for result in backend.results("a", "b").as_completed(timeout=PATIENCE):
        assert result.id == "a"
        break

    assert settled(lambda: backend.health().waiters == 0)
    assert settled(lambda: store.subscribed == set())


def test_a_result_that_is_taken_out_while_it_is_waited_for_harms_nobody(
    backend: StoreBackend, store: Store
) -> None:
    results = backend.results("a", "b")
    removed = results[0]

    with waiting(backend.consumer, lambda: results.join(timeout=PATIENCE)) as (future,):
        results.discard(removed)
        store.finish("a", "b")

    assert future.result()[-1] == "b"


def test_values_come_in_the_order_of_the_set_in_a_loop(backend: StoreBackend, store: Store) -> None:
    store.finish("b", "a")

    async def main() -> tuple[Any, Any]:
        return await backend.results("a", "b"), await backend.results("b", "a").join(timeout=PATIENCE)

    assert asyncio.run(main()) == (["a", "b"], ["b", "a"])


def test_a_set_that_is_cancelled_leaves_nothing(backend: StoreBackend, store: Store) -> None:
    async def main() -> None:
        async with asyncio.timeout(0.05):
            await backend.results("a", "b")

    with pytest.raises(TimeoutError):
        asyncio.run(main())

    assert settled(lambda: backend.health().waiters == 0)
    assert settled(lambda: store.subscribed == set())


def test_r4_a_set_is_told_that_access_is_refused(backend: StoreBackend, store: Store) -> None:
    with waiting(backend.consumer, lambda: backend.results("a", "b").join(timeout=PATIENCE)) as (future,):
        store.refuses = True
        store.cut()

    assert isinstance(future.exception(), AccessRefused)


def test_the_failure_of_a_task_before_one_of_a_set_ends_the_wait(backend: StoreBackend, store: Store) -> None:
    last = backend.result("last", parent=backend.result("first"))
    results = ResultSet([backend.result("a"), last], backend=backend)

    with waiting(backend.consumer, lambda: results.join(timeout=PATIENCE)) as (future,):
        store.finish("a")
        store.put(failed("first"))

    assert isinstance(future.exception(), RemoteError)


def test_r9_all_states_of_all_tasks_can_be_seen(backend: StoreBackend, store: Store) -> None:
    seen: list[str] = []
    results = backend.results("a", "b")

    def wait() -> Any:
        return results.join(
            timeout=PATIENCE, on_message=lambda each: seen.append(f"{each.task_id} {each.status}")
        )

    with waiting(backend.consumer, wait):
        assert settled(lambda: store.subscribed == {"a", "b"})
        store.put(meta("b", "STARTED"))
        store.finish("a", "b")

    assert seen == ["b STARTED", "a SUCCESS", "b SUCCESS"]


# -- what is known now


def test_what_is_known_of_a_set(backend: StoreBackend, store: Store) -> None:
    store.finish("a")
    store.put(failed("b"))
    results = backend.results("a", "b", "c")

    known = (results.ready(), results.waiting(), results.successful(), results.failed())

    assert known == (False, True, False, True)
    assert results.completed_count() == 1


@pytest.mark.parametrize("ask", ["ready", "successful", "failed", "completed_count"])
def test_what_is_known_of_a_set_is_learned_with_one_question(
    backend: StoreBackend, store: Store, ask: str
) -> None:
    results = backend.results(*(str(number) for number in range(50)))

    getattr(results, ask)()

    assert store.asked["look"] == 1


def test_what_is_known_of_a_set_is_there_after_it_was_fetched(backend: StoreBackend, store: Store) -> None:
    store.finish("a")

    async def main() -> tuple[int, bool]:
        results = await backend.results("a", "b").fetch()
        return results.completed_count(), results.ready()

    assert asyncio.run(main()) == (1, False)
    assert store.asked["look"] == 1


# -- the set itself


def test_results_can_be_added_and_taken_out(backend: StoreBackend) -> None:
    results = backend.results("a")
    b, c = backend.result("b"), backend.result("c")

    results.update([b, c])
    results.remove(b)
    results.discard(b)

    assert [each.id for each in results] == ["a", "c"]
    assert (b in results, c in results, results[1]) == (False, True, c)
    with pytest.raises(KeyError):
        results.remove(b)


def test_a_set_that_is_forgotten_is_gone(backend: StoreBackend, store: Store) -> None:
    store.finish("a", "b")
    results = backend.results("a", "b")
    results.join()

    results.forget()

    assert store.look(["a", "b"]) == {}
    assert results.completed_count() == 0


def test_to_revoke_a_set_is_to_revoke_each_of_it() -> None:
    broker = MemoryBroker()
    app = Celeriac(broker, backend="redis://127.0.0.1:1/0", environ={})

    app.ResultSet(["a", app.AsyncResult("b")]).revoke()

    assert [b'"a"' in message.body for _, message in broker.published] == [True, False]
    assert [b'"b"' in message.body for _, message in broker.published] == [False, True]


def test_a_set_says_how_many_it_holds(backend: StoreBackend) -> None:
    results = backend.results("a", "b")

    results.id = "g"

    assert repr(results) == "<ResultSet of 2, group g>"
