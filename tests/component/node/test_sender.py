"""Sending tasks: what returned has arrived, over links that are kept and made again."""

import os
from collections.abc import Iterator
from threading import Thread

import pytest

from celeriac.config import Settings
from celeriac.errors import AccessRefused, ConnectionLost
from celeriac.model.message import Message, Queue
from celeriac.model.task_request import Posting, TaskRequest
from celeriac.node import sender as module
from celeriac.node.sender import TaskSender
from celeriac.programs.process import wait_until
from celeriac.transport.memory import MemoryBroker, MemoryConnection
from celeriac.wire.names import task_queue

SETTINGS = Settings(broker_retry_base=0.001, broker_retry_cap=0.01)


class Watched(MemoryConnection):
    """A link that counts itself, and what it declares."""

    made: list["Watched"]

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self.declared: list[str] = []
        self.is_closed = False
        self.made.append(self)

    def declare(self, queue: Queue) -> None:
        super().declare(queue)
        self.declared.append(queue.name)

    def close(self) -> None:
        self.is_closed = True
        super().close()


class Office:
    """A sender on a broker in memory, and the links that it made."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.links: list[Watched] = []
        self._kind = type("Link", (Watched,), {"made": self.links})
        self.sender = TaskSender(self.connect, settings=SETTINGS)

    def connect(self) -> Watched:
        link: Watched = self._kind(self.broker)
        return link

    def sent(self) -> list[Message]:
        return [message for _, message in self.broker.published]

    def ids(self) -> list[object]:
        return [message.headers["id"] for message in self.sent()]


@pytest.fixture
def office() -> Iterator[Office]:
    made = Office()
    yield made
    made.sender.close()


def posting(task_id: str = "t1", queue: str = "celery", exchange: str = "", **fields: object) -> Posting:
    return Posting(TaskRequest(task_id, "shop.pay", **fields), queue, exchange)  # type: ignore[arg-type]


def test_a_task_is_sent_with_all_that_its_message_says(office: Office) -> None:
    office.sender.post([posting(reply_to="here", correlation_id="c1")._replace(priority=4)])

    [message] = office.sent()
    assert (message.routing_key, message.priority, message.correlation_id) == ("celery", 4, "c1")
    assert (message.reply_to, message.headers["task"], message.body) == ("here", "shop.pay", b"[[],{},{}]")


def test_a_queue_is_there_before_a_task_is_sent_to_it(office: Office) -> None:
    office.sender.post([posting(queue="slow")])

    received: list[Message] = []
    with office.broker.connect() as reader:
        reader.subscribe(task_queue(SETTINGS, "slow"), received.append)
        reader.drain(1.0)
    assert len(received) == 1


def test_a_queue_is_declared_once_for_each_link(office: Office) -> None:
    office.sender.post([posting(), posting(), posting(queue="slow")])
    office.sender.post([posting()])

    assert [link.declared for link in office.links] == [["celery", "slow"]]


def test_with_an_exchange_of_its_own_a_task_needs_no_queue_of_ours(office: Office) -> None:
    office.sender.post([posting(queue="key", exchange="tasks")])

    assert office.links[0].declared == []
    assert [exchange for exchange, _ in office.broker.published] == ["tasks"]


def test_tasks_are_sent_in_their_order(office: Office) -> None:
    office.sender.post([posting(str(number)) for number in range(600)])

    assert office.ids() == [str(number) for number in range(600)]


def test_nothing_to_send_needs_no_link(office: Office) -> None:
    office.sender.post([])

    assert office.links == []


def test_a_link_that_is_idle_is_used_again(office: Office) -> None:
    for _ in range(5):
        office.sender.post([posting()])

    assert len(office.links) == 1


def test_a_link_that_was_idle_for_long_is_made_anew(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    office.sender.post([posting()])
    monkeypatch.setattr(module, "_MAX_IDLE_SECONDS", 0.0)

    office.sender.post([posting()])

    assert [link.is_closed for link in office.links] == [True, False]


def test_an_idle_link_that_was_lost_is_noticed_by_nobody(office: Office) -> None:
    office.sender.post([posting("t1")])
    office.broker.cut()

    office.sender.post([posting("t2")])

    assert office.ids() == ["t1", "t2"]
    assert office.links[0].is_closed


def test_a_broker_that_comes_back_in_time_gets_the_task(office: Office) -> None:
    office.broker.stop()
    thread = Thread(target=office.sender.post, args=([posting("t1")],))

    thread.start()
    wait_until(lambda: len(office.links) > 2, patience=120)
    office.broker.start()
    thread.join(120)

    assert office.ids() == ["t1"]


def test_a_broker_that_stays_away_is_told_in_time(office: Office) -> None:
    office.broker.stop()

    with pytest.raises(ConnectionLost):
        office.sender.post([posting()], timeout=0.05)

    assert office.links
    assert all(link.is_closed for link in office.links)


def test_a_refusal_is_told_at_once(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AccessRefused("not you")

    monkeypatch.setattr(Watched, "declare", refuse)

    with pytest.raises(AccessRefused, match="not you"):
        office.sender.post([posting()])

    assert [link.is_closed for link in office.links] == [True]


def test_what_the_broker_has_is_not_sent_again(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = iter([1, 0])
    monkeypatch.setattr(Watched, "unconfirmed", lambda *_: next(missing))

    office.sender.post([posting("t1"), posting("t2")])

    assert office.ids() == ["t1", "t2", "t2"]


def test_what_is_never_confirmed_is_told(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watched, "unconfirmed", lambda *_: 1)

    with pytest.raises(ConnectionLost, match="does not confirm messages"):
        office.sender.post([posting()], timeout=0.02)


def test_threads_that_send_at_once_share_no_link_and_keep_a_few(office: Office) -> None:
    def send(start: int) -> None:
        for number in range(20):
            office.sender.post([posting(f"{start}-{number}")])

    threads = [Thread(target=send, args=(start,)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(office.ids())) == 160
    assert sum(not link.is_closed for link in office.links) <= 4


def test_a_sender_that_was_closed_ends_its_links_and_can_send_again(office: Office) -> None:
    office.sender.post([posting("t1")])

    office.sender.close()
    ended = [link.is_closed for link in office.links]
    office.sender.post([posting("t2")])

    assert ended == [True]
    assert office.ids() == ["t1", "t2"]


def test_a_sender_that_nobody_has_any_more_ends_its_links() -> None:
    office = Office()
    office.sender.post([posting()])

    del office.sender

    assert office.links[0].is_closed


def test_an_id_that_no_broker_has_room_for_is_no_correlation_id(office: Office) -> None:
    office.sender.post([posting("ü" * 200)])

    assert office.sent()[0].correlation_id == ""


def test_a_forked_child_makes_links_of_its_own(office: Office) -> None:
    office.sender.post([posting("t1")])
    read, write = os.pipe()

    child = os.fork()
    if child == 0:
        try:
            office.sender.post([posting("t2")])
            os.write(write, f"{len(office.links)}{int(office.links[0].is_closed)}".encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    told = os.read(read, 10)
    os.close(read)
    os.close(write)

    assert told == b"20"  # two links, and the first, the parent's, left as it was
