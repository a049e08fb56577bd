"""A link for asyncio: what is cancelled loses nothing, and what is closed stays closed."""

import asyncio

import pytest

from celeriac.errors import ConnectionLost
from celeriac.model.message import Exchange, Message, Queue
from celeriac.transport.aio import AsyncConnection
from celeriac.transport.memory import MemoryBroker

EVENTS = Exchange("celeryev", "topic", is_durable=True)
QUEUE = Queue("celeryev.one", EVENTS, "#")


def publish(broker: MemoryBroker, body: bytes) -> None:
    with broker.connect() as link:
        link.publish(EVENTS, body, routing_key="task.sent")


def test_what_came_is_delivered_before_the_link_is_closed() -> None:
    broker = MemoryBroker()
    got: list[Message] = []

    async def run() -> None:
        link = AsyncConnection(broker.connect())
        await link.subscribe(QUEUE, got.append)
        publish(broker, b"1")
        # The thread takes it off the broker, and who asked for it is gone.
        await asyncio.to_thread(link._drain, 1.0)
        await link.close()

    asyncio.run(run())

    assert [message.body for message in got] == [b"1"]


def test_a_loss_that_nobody_was_there_to_hear_of_is_told_to_who_asks_next() -> None:
    broker = MemoryBroker()

    async def run() -> None:
        link = AsyncConnection(broker.connect())
        await link.subscribe(QUEUE, lambda _: None)
        broker.cut()
        with pytest.raises(ConnectionLost):
            await asyncio.to_thread(link._drain, 0.0)
        with pytest.raises(ConnectionLost):
            await link.drain(0.0)
        await link.close()

    asyncio.run(run())


def test_it_can_be_closed_twice_and_is_of_no_use_afterwards() -> None:
    broker = MemoryBroker()

    async def run() -> None:
        link = AsyncConnection(broker.connect())
        await link.close()
        await link.close()
        with pytest.raises(ConnectionLost, match="closed"):
            await link.drain(0.0)

    asyncio.run(run())


def test_who_is_cancelled_while_closing_leaves_no_queue_behind() -> None:
    broker = MemoryBroker()

    async def run() -> bool:
        link = AsyncConnection(broker.connect())
        await link.subscribe(QUEUE, lambda _: None)
        waiting = asyncio.create_task(link.drain(5.0))
        await asyncio.sleep(0)
        waiting.cancel()
        closing = asyncio.create_task(link.close())
        await asyncio.sleep(0)
        closing.cancel()
        await link.close()
        return broker.wait_for_subscriber(timeout=0)

    assert asyncio.run(run()) is False


def test_what_a_message_answers_to_comes_along_and_a_queue_can_be_acknowledged_and_deleted() -> None:
    broker = MemoryBroker()
    got: list[Message] = []
    replies = Queue("replies", Exchange("", "direct"), is_exclusive=False, is_auto_deleted=False)

    async def run() -> int:
        link = AsyncConnection(broker.connect())
        await link.subscribe(replies, got.append, acknowledges=True)
        for number in ("1", "2"):
            await link.publish(
                replies.exchange, b"{}", routing_key="replies", correlation_id=number, reply_to="me"
            )
        await link.drain(1.0)
        await link.delete_queue("replies")
        await link.publish(replies.exchange, b"{}", routing_key="replies")
        drained = await link.drain(0.0)
        await link.close()
        return drained

    drained = asyncio.run(run())

    assert [(message.correlation_id, message.reply_to) for message in got] == [("1", "me"), ("2", "me")]
    assert drained == 0
