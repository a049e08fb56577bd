"""The receiver of events under asyncio, on the broker in this process."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest

from celeriac import AsyncEventReceiver, Celeriac, ConnectionLost, MemoryBroker
from celeriac.model.events import Event
from celeriac.wire.names import event_exchange
from tests.builders import body, task

PATIENCE = 120.0


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def app(broker: MemoryBroker) -> Celeriac:
    return Celeriac(broker, environ={}, broker_retry_base=0.001, broker_retry_cap=0.01)


def publish(broker: MemoryBroker, *uuids: str) -> None:
    with broker.connect() as link:
        events = [task("started", uuid) for uuid in uuids]
        link.publish(event_exchange("celeryev", "memory"), body(events), routing_key="task.multi")


@asynccontextmanager
async def listening(app: Celeriac, broker: MemoryBroker, **options: Any) -> AsyncIterator[AsyncEventReceiver]:
    """A receiver that is subscribed: it has seen a first event."""
    async with app.events.AsyncReceiver(**options) as receiver:
        waiting = asyncio.create_task(take(receiver, 1))
        for _ in count():
            publish(broker, "first")
            done, _pending = await asyncio.wait([waiting], timeout=0.05)
            if done:
                break
        await asyncio.wait_for(waiting, PATIENCE)
        yield receiver


async def take(receiver: AsyncEventReceiver, number: int) -> list[Event]:
    """Take some events that are not the first."""
    taken: list[Event] = []
    async for event in receiver:
        if number == 1 or event.get("uuid") != "first":
            taken.append(event)
        if len(taken) == number:
            break
    return taken


async def until(receiver: AsyncEventReceiver, uuid: str) -> list[str]:
    """Take events until one comes; return the types of all but the first ones."""
    types = []
    async for event in receiver:
        if event.get("uuid") != "first":
            types.append(event.type)
        if event.get("uuid") == uuid:
            break
    return types


def test_events_come_one_by_one_and_the_state_has_them(app: Celeriac, broker: MemoryBroker) -> None:
    state = app.events.State()

    async def watch() -> list[str]:
        async with listening(app, broker, state=state) as receiver:
            publish(broker, "a", "b", "last")
            return await asyncio.wait_for(until(receiver, "last"), PATIENCE)

    types = asyncio.run(watch())

    assert types == ["task-started"] * 3
    assert {"a", "b", "last"} <= set(state.tasks)


def test_a_wait_that_is_cancelled_loses_nothing(app: Celeriac, broker: MemoryBroker) -> None:
    async def watch() -> list[str]:
        async with listening(app, broker) as receiver:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(until(receiver, "never"), 0.05)
            publish(broker, "a", "last")
            return await asyncio.wait_for(until(receiver, "last"), PATIENCE)

    assert asyncio.run(watch()) == ["task-started"] * 2


def test_the_loop_goes_on_while_nothing_comes(app: Celeriac, broker: MemoryBroker) -> None:
    async def watch() -> int:
        turns = 0
        async with listening(app, broker) as receiver:
            waiting = asyncio.create_task(until(receiver, "last"))
            for _ in range(100):
                await asyncio.sleep(0)
                turns += 1
            publish(broker, "last")
            await asyncio.wait_for(waiting, PATIENCE)
        return turns

    assert asyncio.run(watch()) == 100


def test_a_cut_is_mended_and_told_as_a_gap(app: Celeriac, broker: MemoryBroker) -> None:
    async def watch() -> list[str]:
        async with listening(app, broker) as receiver:
            broker.cut()
            gap = asyncio.create_task(take_gap(receiver))
            types = [await asyncio.wait_for(gap, PATIENCE)]
            publish(broker, "last")
            return types + await asyncio.wait_for(until(receiver, "last"), PATIENCE)

    async def take_gap(receiver: AsyncEventReceiver) -> str:
        async for event in receiver:
            if event.group == "cluster":
                return event.type
        raise AssertionError

    assert asyncio.run(watch()) == ["cluster-gap", "task-started"]


def test_a_broker_that_is_not_there_at_the_start_is_an_error(app: Celeriac, broker: MemoryBroker) -> None:
    broker.stop()

    async def watch() -> None:
        async with app.events.AsyncReceiver() as receiver:
            await take(receiver, 1)

    with pytest.raises(ConnectionLost):
        asyncio.run(watch())


def test_no_thread_is_left_when_it_is_closed(app: Celeriac, broker: MemoryBroker) -> None:
    def threads() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if each.name.startswith("celeriac-link")]

    async def watch() -> tuple[AsyncEventReceiver, list[threading.Thread]]:
        async with listening(app, broker) as receiver:
            return receiver, threads()

    # The receiver is kept: a thread pool also ends when nothing refers to it any more.
    _receiver, opened = asyncio.run(watch())
    for thread in opened:
        thread.join(PATIENCE)

    assert opened
    assert [thread for thread in opened if thread.is_alive()] == []
