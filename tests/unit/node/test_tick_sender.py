"""Sending at most once: again where nothing has left, and never where something may have."""

from collections.abc import Iterator

import pytest

from celeriac.config import Settings
from celeriac.errors import AccessRefused, ConnectionLost
from celeriac.model.message import Queue
from celeriac.model.task_request import Posting, TaskRequest
from celeriac.node.tick_sender import Outcome, TickSender
from celeriac.transport.memory import MemoryBroker, MemoryConnection

POSTING = Posting(TaskRequest("t1", "shop.report"), "reports")


class Link(MemoryConnection):
    """A link that can be told to fail."""

    confirmation: Exception | int = 0
    declaration: Exception | None = None

    def declare(self, queue: Queue) -> None:
        if self.declaration is not None:
            raise self.declaration
        super().declare(queue)

    def unconfirmed(self, timeout: float = 0.0) -> int:  # noqa: ARG002
        if isinstance(self.confirmation, Exception):
            raise self.confirmation
        return self.confirmation


class Office:
    """A sender, its broker and its links."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.links: list[Link] = []
        self.sender = TickSender(self.connect, settings=Settings())

    def connect(self) -> Link:
        self.links.append(Link(self.broker))
        return self.links[-1]

    def send(self, posting: Posting = POSTING, *, may: bool = True) -> Outcome:
        return self.sender.send(posting, may_send=lambda: may)

    @property
    def ids(self) -> list[object]:
        return [message.headers["id"] for _, message in self.broker.published]


@pytest.fixture
def office() -> Iterator[Office]:
    made = Office()
    yield made
    made.sender.close()


def test_a_message_is_sent_and_the_link_is_kept(office: Office) -> None:
    outcomes = [office.send(), office.send(POSTING._replace(request=TaskRequest("t2", "shop.report")))]

    assert outcomes == [Outcome.SENT, Outcome.SENT]
    assert office.ids == ["t1", "t2"]
    assert len(office.links) == 1


def test_a_message_to_an_exchange_goes_over_a_fresh_link(office: Office) -> None:
    office.send()

    outcome = office.send(POSTING._replace(exchange="shop"))

    assert outcome is Outcome.SENT
    assert [exchange for exchange, _ in office.broker.published] == ["", "shop"]
    assert len(office.links) == 2


def test_a_link_that_was_lost_meanwhile_is_replaced_before_anything_is_sent(office: Office) -> None:
    office.send()
    office.broker.cut()

    outcome = office.send(POSTING._replace(request=TaskRequest("t2", "shop.report")))

    assert outcome is Outcome.SENT
    assert office.ids == ["t1", "t2"]


def test_while_the_broker_is_away_nothing_has_left(office: Office) -> None:
    office.broker.stop()
    first = office.send()
    office.broker.start()

    second = office.send()

    assert (first, second) == (Outcome.NOT_YET, Outcome.SENT)
    assert office.ids == ["t1"]


def test_who_may_not_send_any_more_at_the_last_moment_does_not(office: Office) -> None:
    outcome = office.send(may=False)

    assert outcome is Outcome.NOT_YET
    assert office.ids == []


@pytest.mark.parametrize("confirmation", [ConnectionLost("cut"), 1])
def test_what_was_not_confirmed_may_have_left_and_its_link_is_spent(
    office: Office, confirmation: Exception | int
) -> None:
    office.send()
    office.links[0].confirmation = confirmation

    outcome = office.send()

    assert outcome is Outcome.UNKNOWN
    assert office.send() is Outcome.SENT
    assert len(office.links) == 2


def test_what_the_broker_refuses_is_refused_and_told(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    office.send()
    office.links[0].declaration = AccessRefused("no right to write")

    outcome = office.send()

    assert outcome is Outcome.REFUSED
    assert "shop.report[t1] not sent: no right to write" in caplog.text
