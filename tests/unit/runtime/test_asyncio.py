"""Flags of event loops: raised in any thread, and awaited by one task."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from threading import Thread
from typing import TypeVar
from weakref import ref

import pytest

from celeriac.runtime.asyncio import LoopFlag
from tests.results import PATIENCE

_T = TypeVar("_T")


def run(main: Callable[[LoopFlag], Awaitable[_T]]) -> _T:
    """Run something with a flag of the loop it runs in, bounded."""

    async def bounded() -> _T:
        async with asyncio.timeout(PATIENCE):
            return await main(LoopFlag(asyncio.get_running_loop()))

    return asyncio.run(bounded())


def test_a_flag_that_is_raised_in_another_thread_wakes_who_waits() -> None:
    async def main(flag: LoopFlag) -> bool:
        raiser = Thread(target=flag.set)
        asyncio.get_running_loop().call_soon(raiser.start)
        await flag.wait()
        raiser.join()
        return flag._is_raised

    assert run(main)


def test_a_flag_that_was_raised_keeps_nobody_waiting() -> None:
    async def main(flag: LoopFlag) -> int:
        flag.set()
        await flag.wait()
        await flag.wait()
        return len(asyncio.all_tasks())

    assert run(main) == 1


def test_a_flag_that_was_lowered_keeps_who_waits() -> None:
    async def main(flag: LoopFlag) -> bool:
        flag.set()
        await flag.wait()
        flag.clear()
        waiting = asyncio.ensure_future(flag.wait())
        for _ in range(10):
            await asyncio.sleep(0)
        is_waiting = not waiting.done()
        flag.set()
        await waiting
        return is_waiting

    assert run(main)


def test_a_wait_ends_when_its_time_is_up() -> None:
    async def main(flag: LoopFlag) -> bool:
        await flag.wait(0.001)
        return flag._is_raised

    assert not run(main)


def test_a_wait_that_is_cancelled_leaves_no_timer() -> None:
    async def main(flag: LoopFlag) -> int:
        waiting = asyncio.ensure_future(flag.wait(3600.0))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        loop = asyncio.get_running_loop()
        scheduled = loop._scheduled  # type: ignore[attr-defined]
        # The bound of the test has one of its own.
        return len([timer for timer in scheduled if not timer.cancelled()]) - 1

    assert run(main) == 0


def test_a_flag_that_is_raised_after_its_wait_was_cancelled_harms_nobody() -> None:
    async def main(flag: LoopFlag) -> bool:
        waiting = asyncio.ensure_future(flag.wait())
        await asyncio.sleep(0)
        flag.set()
        waiting.cancel()
        await asyncio.wait([waiting])
        await asyncio.sleep(0)
        return waiting.cancelled() and flag._future is None

    assert run(main)


def test_r12_no_wake_is_lost_between_threads_and_a_loop() -> None:
    turns = 3_000

    async def main(flag: LoopFlag) -> int:
        loop, there = asyncio.get_running_loop(), asyncio.Event()
        answers = 0

        def answer() -> None:
            for _ in range(turns):
                asyncio.run_coroutine_threadsafe(there.wait(), loop).result(PATIENCE)
                there.clear()
                flag.set()

        answerer = Thread(target=answer)
        answerer.start()
        while answers < turns:
            there.set()
            await flag.wait()
            flag.clear()
            answers += 1
        answerer.join()
        return answers

    assert run(main) == turns


def test_many_flags_that_are_raised_at_once_leave_turns_for_others() -> None:
    async def main(flag: LoopFlag) -> tuple[int, bool]:
        loop = asyncio.get_running_loop()
        flags = [flag, *(LoopFlag(loop) for _ in range(999))]
        waits = [asyncio.ensure_future(each.wait()) for each in flags]
        await asyncio.sleep(0)
        for each in flags:
            each.set()
        turns = 0
        while not waits[-1].done():
            await asyncio.sleep(0)
            turns += 1
        return turns, all(wait.done() for wait in waits)

    turns, are_done = run(main)

    assert are_done
    assert turns >= 5


def test_a_flag_of_a_loop_that_is_closed_can_be_raised() -> None:
    loop = asyncio.new_event_loop()
    flag = LoopFlag(loop)
    loop.close()

    flag.set()
    flag.set()

    assert not flag._is_raised


def test_a_loop_is_not_kept_by_its_flags() -> None:
    loop = asyncio.new_event_loop()
    flag = LoopFlag(loop)
    gone = ref(loop)
    loop.close()

    del flag, loop
    gc.collect()

    assert gone() is None


def test_a_loop_that_was_closed_is_not_kept_by_flags_that_are_raised_later() -> None:
    loop = asyncio.new_event_loop()
    flags = [LoopFlag(loop) for _ in range(3)]
    gone = ref(loop)
    loop.close()

    for flag in flags:
        flag.set()
    del flag, flags, loop
    gc.collect()

    assert gone() is None


@pytest.mark.parametrize("loops", [20])
def test_loops_of_many_threads_have_bells_of_their_own(loops: int) -> None:
    woken: list[int] = []

    def wait(mine: int) -> None:
        async def main(flag: LoopFlag) -> None:
            raiser = Thread(target=flag.set)
            raiser.start()
            await flag.wait()
            raiser.join()

        run(main)
        woken.append(mine)

    threads = [Thread(target=wait, args=(mine,)) for mine in range(loops)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(woken) == list(range(loops))
