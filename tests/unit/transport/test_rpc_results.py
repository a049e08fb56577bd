"""Results as messages, over the broker in memory."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import pytest

from celeriac.config import Settings
from celeriac.errors import CallerError, ConnectionLost
from celeriac.model.message import Exchange, Message
from celeriac.model.result import Failure, ResultMeta
from celeriac.transport.memory import MemoryBroker, MemoryConnection
from celeriac.transport.result_link import Arrived, News
from celeriac.transport.rpc_results import RpcResultLink, RpcResultSender

PATIENCE = 120.0
QUEUE = "celeriac.reply.1"
SUCCESS = ResultMeta("task-1", "SUCCESS", 3)


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def link(broker: MemoryBroker) -> Iterator[RpcResultLink]:
    made = new_link(broker)
    made.open()
    yield made
    made.close()


def new_link(broker: MemoryBroker, **settings: Any) -> RpcResultLink:
    return RpcResultLink(broker.connect(), queue_name=QUEUE, settings=Settings(**settings))


def send(broker: MemoryBroker, meta: ResultMeta, *, reply_to: str = QUEUE) -> None:
    sender = RpcResultSender(broker.connect())
    sender.send(meta, reply_to=reply_to, correlation_id=meta.task_id, is_persistent=False, timeout=PATIENCE)
    sender.close()


def metas(news: list[News]) -> list[ResultMeta]:
    return [each.meta for each in news if isinstance(each, Arrived)]


def put(broker: MemoryBroker, message: Message) -> None:
    """Put a message as any peer may write it into the queue."""
    broker.send(Exchange("", "direct"), message._replace(routing_key=QUEUE), broker.join())


# -- what comes


def test_a_result_that_was_sent_arrives_as_it_was(broker: MemoryBroker, link: RpcResultLink) -> None:
    failure = ResultMeta("task-2", "FAILURE", Failure("ValueError", ("planned",), "builtins"), "Traceback…")

    send(broker, SUCCESS)
    send(broker, failure)

    news = link.drain(PATIENCE)
    assert metas(news) == [SUCCESS, failure]
    assert all(isinstance(each, Arrived) and each.size > 20 for each in news)


def test_the_states_of_a_task_come_in_order(broker: MemoryBroker, link: RpcResultLink) -> None:
    states = ["RECEIVED", "STARTED", "PROGRESS", "SUCCESS"]

    for state in states:
        send(broker, ResultMeta("task-1", state))

    assert [meta.status for meta in metas(link.drain(PATIENCE))] == states


def test_what_was_sent_to_another_queue_does_not_come(broker: MemoryBroker, link: RpcResultLink) -> None:
    send(broker, SUCCESS, reply_to="another")

    assert link.drain(0.0) == []


def test_the_task_is_that_of_the_document_before_that_of_the_message(
    broker: MemoryBroker, link: RpcResultLink
) -> None:
    document = {"status": "SUCCESS", "result": 3}
    put(broker, Message(json.dumps(document | {"task_id": "task-1"}).encode(), correlation_id="other"))

    assert metas(link.drain(PATIENCE)) == [SUCCESS]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message(b"\x80\x04.", content_type="application/x-python-serialize"), "content-type"),
        (Message(b"{}", content_encoding="binary"), "content-encoding"),
        (Message(b"{}", headers={"compression": "application/zstd"}), "compression"),
        (Message(b"", fault="body-size"), "body-size"),
        (Message(b"", fault="envelope"), "envelope"),
    ],
)
def test_what_may_not_be_read_is_counted_and_told_to_who_waits_for_it(
    broker: MemoryBroker, link: RpcResultLink, message: Message, reason: str
) -> None:
    put(broker, message)
    put(broker, message._replace(correlation_id="task-1"))

    (meta,) = metas(link.drain(PATIENCE))

    assert meta.task_id == "task-1"
    assert meta.fault
    assert meta.is_ready
    assert link.refused == {reason: 2, "task-id": 1}


@pytest.mark.parametrize("document", [b"", b"nonsense", b"[1]", b'{"status": "SUCCESS"}'])
def test_what_names_no_task_is_counted_and_harms_nothing(
    broker: MemoryBroker, link: RpcResultLink, document: bytes
) -> None:
    put(broker, Message(document))
    send(broker, SUCCESS)

    assert metas(link.drain(PATIENCE)) == [SUCCESS]
    assert link.refused == {"task-id": 1}


def test_a_result_that_is_too_long_is_told_by_its_fault(broker: MemoryBroker) -> None:
    link = new_link(broker, result_max_bytes=100)
    link.open()

    send(broker, ResultMeta("task-1", "SUCCESS", "x" * 200))

    (meta,) = metas(link.drain(PATIENCE))
    assert meta.task_id == "task-1"
    assert "100 bytes" in meta.fault


# -- the life of a link


def test_there_is_nothing_to_subscribe_to_or_to_read(link: RpcResultLink) -> None:
    link.subscribe(["task-1"])
    link.read(["task-1"])
    link.unsubscribe(["task-1"])

    assert (link.has_store, link.drain(0.0)) == (False, [])


def test_an_interrupt_ends_a_drain_that_waits(link: RpcResultLink) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(link.drain, PATIENCE)

        link.interrupt()

        assert waiting.result(PATIENCE / 2) == []


def test_an_interrupt_ends_the_next_drain_which_brings_what_is_there(
    broker: MemoryBroker, link: RpcResultLink
) -> None:
    send(broker, SUCCESS)
    link.interrupt()

    drained = metas(link.drain(PATIENCE)), link.drain(0.0)

    assert drained == ([SUCCESS], [])


def test_what_came_while_the_link_was_lost_arrives_by_its_clone(
    broker: MemoryBroker, link: RpcResultLink
) -> None:
    broker.cut()
    with pytest.raises(ConnectionLost):
        link.drain(0.0)
    send(broker, SUCCESS)

    clone = link.clone()
    clone.open()

    assert metas(clone.drain(PATIENCE)) == [SUCCESS]


def test_what_came_while_the_link_was_closed_arrives_by_its_clone(
    broker: MemoryBroker, link: RpcResultLink
) -> None:
    link.close()
    link.close()
    send(broker, SUCCESS)

    clone = link.clone()
    clone.open()

    assert metas(clone.drain(PATIENCE)) == [SUCCESS]


def test_a_queue_that_is_deleted_keeps_nothing(broker: MemoryBroker, link: RpcResultLink) -> None:
    link.delete()
    send(broker, SUCCESS)

    clone = link.clone()
    clone.open()

    assert clone.drain(0.0) == []


def test_to_delete_where_the_broker_is_away_is_no_error(broker: MemoryBroker, link: RpcResultLink) -> None:
    broker.stop()

    link.delete()


def test_a_link_that_is_not_open_is_of_no_use(broker: MemoryBroker) -> None:
    link = new_link(broker)

    with pytest.raises(ConnectionLost, match="not open"):
        link.drain(0.0)


# -- sending


class Counted(MemoryConnection):
    """A link that counts its clones, and theirs, and may confirm nothing."""

    def __init__(self, broker: MemoryBroker, made: list[object] | None = None, *, pending: int = 0) -> None:
        super().__init__(broker)
        self.made: list[object] = [] if made is None else made
        self.pending = pending

    def clone(self) -> Self:
        clone = type(self)(self.broker, self.made, pending=self.pending)
        self.made.append(clone)
        return clone

    def unconfirmed(self, timeout: float = 0.0) -> int:  # noqa: ARG002
        return self.pending


def test_a_link_is_used_again(broker: MemoryBroker) -> None:
    counted = Counted(broker)
    sender = RpcResultSender(counted)

    for _ in range(5):
        sender.send(SUCCESS, reply_to=QUEUE, correlation_id="", is_persistent=False, timeout=PATIENCE)

    assert len(counted.made) == 1


def test_a_link_that_went_stale_is_replaced_unnoticed(broker: MemoryBroker, link: RpcResultLink) -> None:
    counted = Counted(broker)
    sender = RpcResultSender(counted)
    sender.send(SUCCESS, reply_to=QUEUE, correlation_id="", is_persistent=False, timeout=PATIENCE)
    broker.cut()

    sender.send(SUCCESS, reply_to=QUEUE, correlation_id="", is_persistent=False, timeout=PATIENCE)

    clone = link.clone()
    clone.open()
    assert (len(counted.made), metas(clone.drain(PATIENCE))) == (2, [SUCCESS, SUCCESS])


def test_a_broker_that_is_away_is_a_lost_connection(broker: MemoryBroker) -> None:
    sender = RpcResultSender(broker.connect())
    broker.stop()

    with pytest.raises(ConnectionLost):
        sender.send(SUCCESS, reply_to=QUEUE, correlation_id="", is_persistent=False, timeout=PATIENCE)


def test_what_is_not_confirmed_in_time_is_a_lost_connection(broker: MemoryBroker) -> None:
    sender = RpcResultSender(Counted(broker, pending=1))

    with pytest.raises(ConnectionLost, match="did not confirm"):
        sender.send(SUCCESS, reply_to=QUEUE, correlation_id="", is_persistent=False, timeout=PATIENCE)


def test_many_threads_send_at_once(broker: MemoryBroker, link: RpcResultLink) -> None:
    sender = RpcResultSender(broker.connect())
    results = [ResultMeta(f"task-{number}", "SUCCESS", number) for number in range(200)]

    def do(meta: ResultMeta) -> None:
        sender.send(meta, reply_to=QUEUE, correlation_id="", is_persistent=False, timeout=PATIENCE)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(do, results))

    assert sorted(metas(link.drain(PATIENCE))) == sorted(results)
    assert len(sender._idle) <= 4
    sender.close()
    assert len(sender._idle) == 0


def test_what_cannot_be_sent_is_the_callers_to_mend(broker: MemoryBroker) -> None:
    sender = RpcResultSender(broker.connect())
    odd = ResultMeta("task-1", "SUCCESS", object())

    with pytest.raises(CallerError, match="task-1"):
        sender.send(odd, reply_to=QUEUE, correlation_id="", is_persistent=False, timeout=PATIENCE)
