"""Leading in an event loop, which is never blocked."""

import asyncio
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from celeriac.app import Celeriac
from celeriac.errors import AccessRefused, ConnectionLost
from celeriac.transport.memory import MemoryBroker
from tests.fickle import PATIENCE, Fickle, come_true, lead, leader_threads, raising


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def app(broker: MemoryBroker) -> Iterator[Celeriac]:
    app = Celeriac(broker, environ={})
    yield app
    app.close()
    assert come_true(lambda: not leader_threads()), "a thread of a leader was left"


@pytest.fixture
def fickle(app: Celeriac) -> Fickle:
    return Fickle(app.arbiter)


def others() -> set[asyncio.Task[Any]]:
    """Return the tasks of the loop but for the present one."""
    return asyncio.all_tasks() - {asyncio.current_task()}


async def until(event: Event) -> None:
    while not event.is_set():
        await asyncio.sleep(0)


def test_whoever_enters_leads_until_it_leaves(app: Celeriac) -> None:
    async def run() -> tuple[bool, bool, int]:
        async with app.leadership("report") as leader:
            led = leader.is_leader()
        return led, leader.is_leader(), len(others())

    seen = asyncio.run(run())

    assert seen == (True, False, 0)
    assert app.arbiter.leases() == []


def test_an_error_inside_gives_it_up(app: Celeriac) -> None:
    async def run() -> None:
        async with app.leadership("report"):
            raise LookupError

    with pytest.raises(LookupError):
        asyncio.run(run())

    assert app.arbiter.leases() == []


@pytest.mark.parametrize("question", ["claim", "release"])
def test_the_loop_goes_on_while_the_arbiter_hangs(app: Celeriac, fickle: Fickle, question: str) -> None:
    hanging, going_on = Event(), Event()

    def hang(*args: Any, **kwargs: Any) -> Any:
        hanging.set()
        going_on.wait(PATIENCE)
        return getattr(app.arbiter, question)(*args, **kwargs)

    fickle.instead[question] = hang

    async def run() -> bool:
        async def use() -> None:
            async with lead(fickle):
                pass

        using = asyncio.create_task(use())
        await until(hanging)
        for _ in range(100):
            await asyncio.sleep(0)
        was_waiting = not using.done()
        going_on.set()
        await using
        return was_waiting and not others()

    assert asyncio.run(run())
    assert app.arbiter.leases() == []


def test_after_its_timeout_nobody_waits(app: Celeriac) -> None:
    async def run() -> tuple[bool, bool, int]:
        led = await app.leadership("report").elect_async(timeout=0.05)
        once = await app.leadership("report").elect_async(timeout=0)
        return led, once, len(others())

    with app.leadership("report"):
        seen = asyncio.run(run())

        # That of the other; who was not elected is told so just before its thread ends.
        assert come_true(lambda: len(leader_threads()) == 1)
    assert seen == (False, False, 0)


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_with_a_timeout_it_is_raised_that_nobody_can_be_asked(
    app: Celeriac, broker: MemoryBroker, timeout: float
) -> None:
    broker.is_up = False

    with pytest.raises(ConnectionLost, match="is stopped"):
        asyncio.run(app.leadership("report").elect_async(timeout=timeout))

    assert come_true(lambda: not leader_threads())


def test_a_refusal_is_raised_at_once(fickle: Fickle) -> None:
    fickle.instead["claim"] = raising(AccessRefused("no such user"))

    with pytest.raises(AccessRefused):
        asyncio.run(lead(fickle).elect_async())

    assert fickle.asked == ["claim"]


def test_who_is_cancelled_while_it_waits_gives_it_up(
    app: Celeriac, fickle: Fickle, caplog: pytest.LogCaptureFixture
) -> None:
    other, leader = app.leadership("report"), lead(fickle)
    other.elect()

    async def run() -> int:
        waiting = asyncio.create_task(leader.elect_async())
        while "claim" not in fickle.asked:
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return len(others())

    left = asyncio.run(run())
    other.resign()

    assert left == 0
    assert come_true(lambda: not leader_threads())
    assert not leader.is_leader()
    assert app.arbiter.leases() == []
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


def test_who_is_cancelled_while_the_arbiter_hangs_ends_at_once_and_keeps_nothing(
    app: Celeriac, fickle: Fickle, caplog: pytest.LogCaptureFixture
) -> None:
    hanging, going_on = Event(), Event()

    def hang(*args: Any, **kwargs: Any) -> Any:
        hanging.set()
        going_on.wait(PATIENCE)
        return app.arbiter.claim(*args, **kwargs)

    fickle.instead["claim"] = hang
    leader = lead(fickle)

    async def run() -> None:
        waiting = asyncio.create_task(leader.elect_async())
        await until(hanging)
        waiting.cancel()
        await waiting

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    going_on.set()  # the loop is closed by now, and it is granted

    assert come_true(lambda: not leader_threads())
    assert not leader.is_leader()
    assert app.arbiter.leases() == []
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


def test_who_is_cancelled_while_it_leads_resigns(app: Celeriac) -> None:
    async def run() -> None:
        entered = asyncio.Event()

        async def use() -> None:
            async with app.leadership("report"):
                entered.set()
                await asyncio.sleep(PATIENCE)

        using = asyncio.create_task(use())
        await entered.wait()
        using.cancel()
        await using

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())

    assert app.arbiter.leases() == []


def test_of_many_tasks_one_leads_at_a_time(app: Celeriac) -> None:
    leading: list[int] = []
    most = 0

    async def take_a_turn(number: int) -> int:
        nonlocal most
        async with app.leadership("report") as leader:
            leading.append(number)
            most = max(most, len(leading))
            await asyncio.sleep(0.001)
            leading.remove(number)
        return leader.token

    async def run() -> list[int]:
        return await asyncio.gather(*(take_a_turn(number) for number in range(5)))

    tokens = asyncio.run(run())

    assert most == 1
    assert sorted(tokens) == [1, 2, 3, 4, 5]
