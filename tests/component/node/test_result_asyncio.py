"""Results in event loops: awaited, cancelled, timed out, and never in the way of the loop."""

import asyncio
import gc
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Event, Thread, get_ident
from typing import Any
from weakref import ref

import pytest

from celeriac.errors import AccessRefused, CallerError, NetworkError, RemoteError, ResultTimeout
from celeriac.node.result import AsyncResult
from celeriac.programs.process import wait_until
from tests.results import PATIENCE, Store, StoreBackend, failed, meta, settled


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def backend(store: Store) -> Iterator[StoreBackend]:
    backend = StoreBackend(store)
    yield backend
    backend.close()


async def until(condition: Callable[[], object]) -> None:
    """Give way to the loop until something holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.001)


async def waiters(backend: StoreBackend, number: int) -> None:
    await until(lambda: backend.health().waiters == number)


def others() -> set["asyncio.Task[Any]"]:
    """Return the tasks of the loop that are not the test's own."""
    return asyncio.all_tasks() - {asyncio.current_task()}


# -- awaiting


def test_a_result_can_be_awaited(backend: StoreBackend, store: Store) -> None:
    async def main() -> Any:
        waiting = asyncio.ensure_future(_value(backend.result("a")))
        await waiters(backend, 1)
        store.finish("a")
        return await waiting

    value = asyncio.run(main())

    assert value == "a"


async def _value(result: AsyncResult) -> Any:
    return await result


def test_get_gives_an_awaitable_in_a_loop(backend: StoreBackend, store: Store) -> None:
    store.put(meta("a"))

    async def main() -> Any:
        return await backend.result("a").get(timeout=PATIENCE)

    assert asyncio.run(main()) == 42


def test_a_failure_is_raised_or_returned_in_a_loop_too(backend: StoreBackend, store: Store) -> None:
    store.put(failed("a"))

    async def main() -> Any:
        with pytest.raises(RemoteError, match="task a"):
            await backend.result("a")
        return await backend.result("a").get(propagate=False)

    assert isinstance(asyncio.run(main()), RemoteError)


def test_a_result_that_is_known_is_there_at_once(backend: StoreBackend, store: Store) -> None:
    store.put(meta("a"))
    result = backend.result("a")
    result.get()
    asked = store.asked["look"]

    async def main() -> Any:
        return await result

    assert asyncio.run(main()) == 42
    assert store.asked["look"] == asked


def test_the_loop_goes_on_while_a_result_is_waited_for(backend: StoreBackend, store: Store) -> None:
    may_answer = Event()
    store.before["open"] = lambda: may_answer.wait(PATIENCE)

    async def main() -> tuple[int, Any]:
        waiting = asyncio.ensure_future(_value(backend.result("a")))
        turns = 0
        while turns < 100:
            await asyncio.sleep(0)
            turns += 1
        is_waiting = not waiting.done()
        may_answer.set()
        store.finish("a")
        return turns if is_waiting else 0, await waiting

    assert asyncio.run(main()) == (100, "a")


def test_the_loop_goes_on_while_the_store_is_asked_for_what_is_there_now(
    backend: StoreBackend, store: Store
) -> None:
    may_answer = Event()
    store.before["look"] = lambda: may_answer.wait(PATIENCE)
    store.put(meta("a"))

    async def main() -> Any:
        waiting = asyncio.ensure_future(backend.result("a").get(timeout=0))
        for _ in range(100):
            await asyncio.sleep(0)
        is_waiting = not waiting.done()
        may_answer.set()
        return is_waiting, await waiting

    assert asyncio.run(main()) == (True, 42)


def test_a_thousand_tasks_can_wait_at_once(backend: StoreBackend, store: Store) -> None:
    ids = [str(number) for number in range(1000)]

    async def main() -> list[Any]:
        waits = asyncio.gather(*(backend.result(task_id).get(timeout=PATIENCE) for task_id in ids))
        await waiters(backend, 1000)
        store.finish(*ids)
        return await waits

    assert asyncio.run(main()) == ids
    assert settled(lambda: backend.health().watched == 0)


def test_r9_each_task_gets_the_states_of_its_own(backend: StoreBackend, store: Store) -> None:
    seen: dict[str, list[str]] = {"a": [], "b": []}

    async def main() -> None:
        waits = asyncio.gather(
            *(
                backend.result(name).get(on_message=lambda each: seen[each.task_id].append(each.status))
                for name in seen
            )
        )
        await until(lambda: store.subscribed == {"a", "b"})
        store.put(meta("a", "STARTED"))
        store.finish("a", "b")
        await waits

    asyncio.run(main())

    assert seen == {"a": ["STARTED", "SUCCESS"], "b": ["SUCCESS"]}


# -- time


@pytest.mark.parametrize("timeout", [0, -1.0])
def test_r7_now_finds_what_is_stored_in_a_loop(backend: StoreBackend, store: Store, timeout: float) -> None:
    store.put(meta("a"))

    async def main() -> Any:
        return await backend.result("a").get(timeout=timeout)

    assert asyncio.run(main()) == 42


def test_r7_now_does_not_wait_in_a_loop(backend: StoreBackend, store: Store) -> None:
    async def main() -> None:
        with pytest.raises(ResultTimeout, match="task a"):
            await backend.result("a").get(timeout=0)

    asyncio.run(main())

    assert store.asked["subscribe"] == 0


def test_r7_a_timeout_ends_a_wait_in_a_loop_while_the_link_is_away(store: Store) -> None:
    backend = StoreBackend(store)
    store.stop()

    async def told() -> str:
        with pytest.raises(ResultTimeout) as caught:
            await backend.result("a").get(timeout=0.5)
        return str(caught.value)

    assert settled(lambda: "the store is away" in asyncio.run(told()))
    assert settled(lambda: backend.health().waiters == 0)
    backend.close()


def test_the_timeout_of_asyncio_ends_a_wait(backend: StoreBackend) -> None:
    async def main() -> int:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await backend.result("a")
        return len(others())

    assert asyncio.run(main()) == 0
    assert settled(lambda: backend.health().waiters == 0)


def test_wait_for_ends_a_wait(backend: StoreBackend) -> None:
    async def main() -> int:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(backend.result("a").get(), 0.05)
        return len(others())

    assert asyncio.run(main()) == 0
    assert settled(lambda: backend.health().waiters == 0)


def test_the_time_of_the_wait_itself_is_told_from_that_of_asyncio(backend: StoreBackend) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE):
            await backend.result("a").get(timeout=0.01)

    with pytest.raises(ResultTimeout, match="task a"):
        asyncio.run(main())


# -- cancelling


def test_a_wait_that_is_cancelled_leaves_nothing(backend: StoreBackend, store: Store) -> None:
    async def main() -> int:
        waits = [asyncio.ensure_future(_value(backend.result("a"))) for _ in range(10)]
        await waiters(backend, 10)
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        assert all(wait.cancelled() for wait in waits)
        return len(others())

    left = asyncio.run(main())

    assert left == 0
    assert settled(lambda: backend.health().watched == backend.health().waiters == 0)
    assert settled(lambda: store.subscribed == set())


def test_a_wait_that_is_cancelled_before_it_began_leaves_nothing(backend: StoreBackend) -> None:
    async def main() -> None:
        wait = asyncio.ensure_future(_value(backend.result("a")))
        wait.cancel()
        with suppress(asyncio.CancelledError):
            await wait

    asyncio.run(main())

    assert settled(lambda: backend.health().waiters == 0)


def test_a_wait_that_is_cancelled_while_the_store_is_asked_leaves_nothing(
    backend: StoreBackend, store: Store
) -> None:
    is_asked, may_answer = Event(), Event()

    def hold() -> None:
        is_asked.set()
        may_answer.wait(PATIENCE)

    store.before["look"] = hold

    async def main() -> bool:
        wait: asyncio.Future[Any] = asyncio.ensure_future(backend.result("a").get(timeout=0))
        await until(is_asked.is_set)
        wait.cancel()
        with suppress(asyncio.CancelledError):
            await wait
        may_answer.set()
        return wait.cancelled()

    assert asyncio.run(main())
    assert settled(lambda: backend.health().waiters == 0)


def test_one_of_two_who_is_cancelled_takes_nothing_from_the_other(
    backend: StoreBackend, store: Store
) -> None:
    result = backend.result("a")

    async def main() -> Any:
        leaving, staying = (asyncio.ensure_future(_value(result)) for _ in range(2))
        await waiters(backend, 2)
        leaving.cancel()
        await asyncio.wait([leaving])
        store.finish("a")
        return await staying

    assert asyncio.run(main()) == "a"


def test_a_loop_that_ends_while_results_are_waited_for_ends_quietly(
    backend: StoreBackend, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        for number in range(10):
            asyncio.ensure_future(_value(backend.result(str(number))))  # noqa: RUF006 - left to the loop
        await waiters(backend, 10)

    asyncio.run(main())

    assert settled(lambda: backend.health().waiters == 0)
    assert caplog.text == ""


def test_who_leaves_results_as_they_end_in_the_middle_leaves_nothing(
    backend: StoreBackend, store: Store
) -> None:
    async def main() -> str:
        store.finish("a")
        async for result in backend.results("a", "b", "c"):
            return result.id
        return ""

    first = asyncio.run(main())

    assert first == "a"
    assert settled(lambda: backend.health().waiters == 0)
    assert settled(lambda: store.subscribed == set())


# -- errors


def test_r4_all_tasks_are_told_that_access_is_refused(backend: StoreBackend, store: Store) -> None:
    async def main() -> list[Any]:
        waits = asyncio.gather(*(backend.result("a").get() for _ in range(5)), return_exceptions=True)
        await waiters(backend, 5)
        store.refuses = True
        store.cut()
        return await waits

    errors = asyncio.run(main())

    assert [type(error) for error in errors] == [AccessRefused] * 5


def test_r5_an_unexpected_error_in_the_thread_that_drains_loses_no_task(
    backend: StoreBackend, store: Store
) -> None:
    async def main() -> tuple[Any, Any]:
        before = asyncio.ensure_future(_value(backend.result("a")))
        await until(lambda: store.subscribed == {"a"})
        store.fail("drain", RuntimeError("a bug"))
        after = asyncio.ensure_future(_value(backend.result("b")))
        await until(lambda: not store.faults["drain"])
        store.finish("a", "b")
        return await before, await after

    assert asyncio.run(main()) == ("a", "b")


def test_who_waits_in_a_loop_when_the_backend_is_closed_is_told(backend: StoreBackend) -> None:
    async def main() -> None:
        wait = asyncio.ensure_future(_value(backend.result("a")))
        await waiters(backend, 1)
        await asyncio.to_thread(backend.close)
        await wait

    with pytest.raises(NetworkError):
        asyncio.run(main())


def test_a_drainer_for_threads_is_not_used_in_a_loop(store: Store) -> None:
    backend = StoreBackend(store, result_drainer="default")

    async def main() -> None:
        await backend.result("a").get(timeout=PATIENCE)

    with pytest.raises(CallerError, match="result_drainer"):
        asyncio.run(main())

    assert settled(lambda: backend.health().waiters == 0)
    backend.close()


@pytest.mark.parametrize("wait", [lambda result: result.get(timeout=1.0), lambda result: result.then(print)])
def test_a_drainer_for_loops_says_that_there_is_no_loop(store: Store, wait: Callable[[Any], Any]) -> None:
    backend = StoreBackend(store, result_drainer="asyncio")

    with pytest.raises(CallerError, match="event loop"):
        wait(backend.result("a"))

    assert settled(lambda: backend.health().waiters == 0)
    backend.close()


# -- what is known without waiting


def test_what_is_known_is_there_after_it_was_fetched(backend: StoreBackend, store: Store) -> None:
    store.put(meta("a", "STARTED", {"pid": 7}))

    async def main() -> tuple[str, Any, bool]:
        result = await backend.result("a").fetch()
        return result.state, result.info, result.ready()

    assert asyncio.run(main()) == ("STARTED", {"pid": 7}, False)


@pytest.mark.parametrize("name", ["state", "result", "traceback", "children"])
def test_what_was_not_fetched_says_how_to_fetch_it(backend: StoreBackend, name: str) -> None:
    async def main() -> None:
        getattr(backend.result("a"), name)

    with pytest.raises(CallerError, match=r"await result\.fetch\(\)"):
        asyncio.run(main())


# -- callbacks


def test_then_is_called_in_the_loop_it_was_said_in(backend: StoreBackend, store: Store) -> None:
    called: list[tuple[str, int]] = []

    async def main() -> None:
        backend.result("a").then(lambda result: called.append((result.id, get_ident())))
        await until(lambda: store.subscribed == {"a"})
        store.finish("a")
        await until(lambda: called)

    asyncio.run(main())

    assert called == [("a", get_ident())]


def test_then_is_called_for_what_is_known_already_in_a_loop(backend: StoreBackend, store: Store) -> None:
    called: list[AsyncResult] = []
    store.put(meta("a"))
    result = backend.result("a")
    result.get()

    async def main() -> None:
        result.then(called.append)
        await until(lambda: called)

    asyncio.run(main())

    assert called == [result]


def test_then_of_a_loop_that_is_closed_is_not_called_and_nobody_is_troubled(
    backend: StoreBackend, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[AsyncResult] = []

    async def main() -> None:
        backend.result("a").then(called.append)
        await until(lambda: store.subscribed == {"a"})

    asyncio.run(main())
    store.finish("a", "b")

    assert backend.result("b").get(timeout=PATIENCE) == "b"
    assert settled(lambda: backend.health().watched == 0)
    assert called == []
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


# -- several loops


def test_loops_of_several_threads_wait_side_by_side(backend: StoreBackend, store: Store) -> None:
    loops, waits = 5, 20
    values: dict[int, list[Any]] = {}

    def run(mine: int) -> None:
        async def main() -> list[Any]:
            return await asyncio.gather(
                *(backend.result(f"{mine}-{each}").get(timeout=PATIENCE) for each in range(waits))
            )

        values[mine] = asyncio.run(main())

    threads = [Thread(target=run, args=(mine,)) for mine in range(loops)]
    for thread in threads:
        thread.start()
    assert settled(lambda: backend.health().waiters == loops * waits)
    store.finish(*(f"{mine}-{each}" for each in range(waits) for mine in range(loops)))
    for thread in threads:
        thread.join()

    assert values == {mine: [f"{mine}-{each}" for each in range(waits)] for mine in range(loops)}
    assert store.intrusions == []


def test_one_result_can_be_awaited_in_one_loop_after_the_other(backend: StoreBackend, store: Store) -> None:
    result = backend.result("a")

    async def wait_briefly() -> None:
        with pytest.raises(ResultTimeout):
            await result.get(timeout=0.01)

    asyncio.run(wait_briefly())
    asyncio.run(wait_briefly())
    store.finish("a")

    assert asyncio.run(_value(result)) == "a"


def test_threads_and_loops_wait_side_by_side(backend: StoreBackend, store: Store) -> None:
    values: list[Any] = []
    thread = Thread(target=lambda: values.append(backend.result("a").get(timeout=PATIENCE)))

    async def main() -> Any:
        thread.start()
        wait = asyncio.ensure_future(_value(backend.result("a")))
        await waiters(backend, 2)
        store.finish("a")
        return await wait

    value = asyncio.run(main())
    thread.join()

    assert [value, *values] == ["a", "a"]


def test_a_loop_that_has_ended_is_not_kept(backend: StoreBackend, store: Store) -> None:
    gone: list[ref[AbstractEventLoop]] = []

    async def main() -> Any:
        gone.append(ref(asyncio.get_running_loop()))
        wait = asyncio.ensure_future(_value(backend.result("a")))
        await waiters(backend, 1)
        store.finish("a")
        return await wait

    asyncio.run(main())

    # Who drains may still have in hand what it gave away.
    assert wait_until(lambda: gc.collect() >= 0 and gone[0]() is None, patience=PATIENCE)


def test_a_result_that_comes_when_its_loop_was_closed_harms_nobody(
    backend: StoreBackend, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.new_event_loop()
    abandoned = loop.create_task(_value(backend.result("a")))
    while backend.health().waiters == 0:
        loop.run_until_complete(asyncio.sleep(0.001))
    # Closed with a task in it, as a program does that ends in a hurry. It is no fault of ours.
    abandoned._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()

    store.finish("a", "b")

    assert backend.result("b").get(timeout=PATIENCE) == "b"
    assert settled(lambda: backend.health().watched == 0)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
    with suppress(RuntimeError):
        abandoned.get_coro().close()
