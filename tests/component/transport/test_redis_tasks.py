"""Taking tasks over one socket: what is asked, what is made of the answers, and of what is told unasked."""

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from celeriac.config import Settings
from celeriac.errors import ConnectionLost
from celeriac.model.message import Delivery, Exchange, Queue
from celeriac.transport import redis_pipe
from celeriac.transport.redis import RedisConnection
from celeriac.transport.redis_clock import RedisClock
from celeriac.transport.redis_link import RedisLink
from celeriac.transport.redis_names import RedisNames
from celeriac.transport.redis_pipe import RedisPipe
from celeriac.transport.redis_tasks import RedisTasks, is_own_tag
from celeriac.wire.envelope import wrap

PATIENCE = 120.0
OK = b"+OK\r\n"
NOTHING = b"*0\r\n"
ONE = b":1\r\n"
PUSH = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$5\r\ntasks\r\n"
REFUSED = b"-NOPERM this user has no permissions\r\n"
ENVELOPE = wrap(b"[]", exchange="", routing_key="tasks", headers={}, delivery_tag="1")
COMMANDS = {b"EVAL", b"EXISTS", b"PING", b"ZREM", b"HDEL"}
QUEUE = Queue("tasks", Exchange("", "direct"), "tasks", is_exclusive=False, is_auto_deleted=False)


def taken(*envelopes: bytes) -> bytes:
    """Return what the server says when it took these from the first queue."""
    items = b"".join(b":0\r\n$%d\r\n%s\r\n" % (len(envelope), envelope) for envelope in envelopes)
    return b"*%d\r\n%s" % (2 * len(envelopes), items)


def existing(count: int) -> bytes:
    """Return what the server says when it is to tell of changes, and so many lists are there now."""
    return OK + b":%d\r\n" % count


class Server:
    """The other end of a socket, whose words the test says."""

    def __init__(self) -> None:
        self.end, self._sock = socket.socketpair()
        self.end.setblocking(False)
        self.connection_kwargs: dict[str, Any] = {}

    def connection_class(self) -> Any:
        """Return a connection as a library would make it."""
        return SimpleNamespace(_sock=self._sock, connect=lambda: None, disconnect=self._sock.close)

    def say(self, *answers: bytes) -> None:
        self.end.sendall(b"".join(answers))

    def heard(self) -> list[str]:
        """Return the names of the commands that came."""
        try:
            words = self.end.recv(1_000_000).split(b"\r\n")
        except BlockingIOError:
            return []
        return [word.decode() for word in words if word in COMMANDS]


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.end.close()
    server._sock.close()


@pytest.fixture
def link(server: Server) -> RedisLink:
    return RedisLink(server, "redis://web1")


def names_by(**options: Any) -> RedisNames:
    connection = RedisConnection(Settings(broker_url="redis://web1/3", broker_transport_options=options))
    return RedisNames(connection._read_options(connection._ways[0], None))


class Worker:
    """Takes from one queue, and holds what it is given."""

    def __init__(self, server: Server, *, answers: bytes = OK + OK + OK, prefetch: int = 10) -> None:
        self.server = server
        self.deliveries: list[Delivery] = []
        server.say(answers)
        self.tasks = RedisTasks(
            RedisLink(server, "redis://web1"),
            names_by(),
            queues_of=lambda _exchange, _key: [],
            visibility_timeout=3600.0,
            clock=RedisClock(),
            left_over={},
        )
        self.tasks.consume(QUEUE, self.deliveries.append)
        self.tasks.prefetch = prefetch
        server.heard()

    def turn(self, *answers: bytes) -> list[str]:
        """Ask, have something answered, and return what was asked."""
        self.tasks.prepare()
        asked = self.server.heard()
        if answers:
            self.server.say(*answers)
            for take, delivery in self.tasks.receive(self.tasks.link.read(PATIENCE)):
                take(delivery)
        return asked


# -- names


@pytest.mark.parametrize(
    ("priority", "step"),
    [(-5, ""), (0, ""), (2, ""), (3, "3"), (5, "3"), (6, "6"), (8, "6"), (9, "9"), (255, "9")],
)
def test_a_priority_is_rounded_down_to_a_step(priority: int, step: str) -> None:
    name = names_by().list_of("tasks", priority)

    assert name == (f"tasks\x06\x16{step}" if step else "tasks")


def test_the_lists_of_a_queue_are_those_of_the_steps() -> None:
    names = names_by(priority_steps=[0, 5], sep="/", global_keyprefix="team:")

    assert names.lists("tasks") == ["team:tasks", "team:tasks/5"]


@pytest.mark.parametrize(
    "member", [b"", b"key", b"key\x06\x16queue", b"a\x06\x16b\x06\x16c\x06\x16d", b"\xff"]
)
def test_what_is_no_binding_leads_nowhere(member: bytes) -> None:
    assert names_by().bound(member) is None


def test_a_binding_is_read_as_it_was_written() -> None:
    names = names_by()
    queue = QUEUE._replace(exchange=Exchange("news", "topic"), routing_key="news.#")

    bound = names.bound(names.binding(queue).encode())

    assert bound == ("news.#", "news.#", "tasks")


@pytest.mark.parametrize(
    ("tag", "is_ours"), [("celeriac.1.2", True), ("8acc", False), (7, False), (None, False)]
)
def test_tags_of_ours_are_told_by_their_shape(tag: object, is_ours: bool) -> None:
    assert is_own_tag(tag) is is_ours


# -- what is asked


def test_where_nothing_waits_nothing_more_is_asked_until_something_is_told(server: Server) -> None:
    worker = Worker(server)

    first = worker.turn(NOTHING, NOTHING, existing(0))  # the first looks for what others left
    quiet = worker.turn()
    worker.turn(PUSH)
    told = worker.turn(taken(ENVELOPE), existing(0))

    assert (first, quiet, told) == (["EVAL", "EXISTS"], [], ["EVAL", "EXISTS"])
    assert [delivery.queue for delivery in worker.deliveries] == ["tasks"]


def test_what_is_told_right_after_the_answer_is_not_missed(server: Server) -> None:
    worker = Worker(server)

    worker.turn(NOTHING, NOTHING, existing(0), PUSH)

    assert worker.turn() == ["EVAL", "EXISTS"]


def test_what_is_told_before_it_was_asked_whether_something_is_there_is_old_news(server: Server) -> None:
    worker = Worker(server)

    worker.turn(NOTHING, NOTHING, PUSH, existing(0))

    assert worker.turn() == []


def test_what_came_between_taking_and_asking_is_taken_at_once(server: Server) -> None:
    worker = Worker(server)

    worker.turn(NOTHING, NOTHING, existing(1))

    assert worker.turn() == ["EVAL", "EXISTS"]


def test_while_as_many_come_as_can_nobody_asks_whether_there_are_more(server: Server) -> None:
    worker = Worker(server, prefetch=2)
    worker.turn(NOTHING, taken(ENVELOPE, ENVELOPE), existing(1))

    for delivery in worker.deliveries:
        worker.tasks.unsettled.settle(str(delivery.tag), goes_back=False)

    assert worker.turn() == ["ZREM", "HDEL", "EVAL"]


def test_nothing_is_taken_while_too_much_is_unsettled(server: Server) -> None:
    worker = Worker(server, prefetch=1)
    worker.turn(NOTHING, taken(ENVELOPE), existing(1))

    worker.turn(PUSH)

    assert worker.turn() == []


def test_one_question_is_asked_at_a_time(server: Server) -> None:
    worker = Worker(server)

    asked = [worker.turn() for _ in range(3)]

    assert asked == [["EVAL", "EXISTS"], [], []]


@pytest.mark.parametrize(
    "answers",
    [REFUSED + REFUSED + REFUSED, OK + REFUSED + REFUSED, OK + OK + REFUSED],
    ids=["HELLO", "CLIENT TRACKING", "CLIENT CACHING"],
)
def test_who_is_not_told_looks_again_by_itself(server: Server, answers: bytes) -> None:
    worker = Worker(server, answers=answers)

    asked = worker.turn(NOTHING, NOTHING)
    wait = worker.tasks.prepare()

    assert asked == ["EVAL"]
    assert 0 < wait <= 0.2


# -- what may be lost


def test_what_was_asked_for_and_not_answered_may_have_been_taken(server: Server) -> None:
    worker = Worker(server, prefetch=3)
    worker.turn(NOTHING, taken(ENVELOPE), existing(0))
    worker.turn(PUSH)
    worker.turn()

    unfinished = worker.tasks.unfinished()

    (first,) = (str(delivery.tag) for delivery in worker.deliveries)
    prefix = first.removesuffix("000000000000")
    assert unfinished == {f"{prefix}000000000001": True, f"{prefix}000000000002": True}


def test_what_is_settled_is_unfinished_until_it_is_confirmed(server: Server) -> None:
    worker = Worker(server, prefetch=1)
    worker.turn(NOTHING, taken(ENVELOPE), existing(0))
    tag = str(worker.deliveries[0].tag)
    worker.tasks.unsettled.settle(tag, goes_back=False)

    before = worker.tasks.unfinished()
    worker.tasks.prefetch = 0
    worker.turn()
    written = worker.tasks.unfinished()
    worker.turn(ONE, ONE)

    assert (before, written, worker.tasks.unfinished()) == ({tag: False}, {tag: False}, {})


def test_what_was_said_first_of_a_delivery_holds(server: Server) -> None:
    unsettled = Worker(server).tasks.unsettled

    for goes_back in (True, False):
        unsettled.settle("celeriac.a", goes_back=goes_back)
        unsettled.settle("celeriac.b", goes_back=not goes_back)

    assert unsettled.unfinished() == {"celeriac.a": True, "celeriac.b": False}


def test_what_is_set_aside_goes_back_if_that_is_not_confirmed(server: Server) -> None:
    worker = Worker(server, prefetch=1)
    worker.turn(NOTHING, taken(ENVELOPE), existing(0))
    tag = str(worker.deliveries[0].tag)
    worker.tasks.prefetch = 0

    worker.tasks.set_aside(tag, queue="tasks", priority=0, seconds=60.0)
    before = worker.tasks.unfinished()
    worker.turn(ONE)

    assert (before, worker.tasks.unfinished()) == ({tag: True}, {})
    assert worker.tasks.unsettled.held == {}


# -- a link that answers when it likes


def test_each_answer_goes_to_who_asked(server: Server, link: RedisLink) -> None:
    answers: list[Any] = []
    pipe = RedisPipe(link, lambda: answers.append("told"))
    for name in ("first", "second"):
        pipe.ask("GET", name, then=answers.append)
    pipe.ask("GET", "whatever")
    server.say(b"$1\r\na\r\n", PUSH, b"$1\r\nb\r\n", b"$1\r\nc\r\n")

    pipe.finish(PATIENCE)

    assert (answers, pipe.is_waiting) == ([b"a", "told", b"b"], False)


def test_an_answer_that_nobody_asked_for_is_a_lost_link(server: Server, link: RedisLink) -> None:
    pipe = RedisPipe(link, lambda: None)
    server.say(OK)

    with pytest.raises(ConnectionLost, match="unexpected reply"):
        pipe.receive(link.read(PATIENCE))


def test_a_refusal_is_a_lost_link_where_nobody_expects_it(server: Server, link: RedisLink) -> None:
    pipe = RedisPipe(link, lambda: None)
    pipe.ask("HSET", "unacked", "tag", "entry")
    server.say(b"-OOM command not allowed\r\n")

    with pytest.raises(ConnectionLost, match="OOM"):
        pipe.finish(PATIENCE)

    assert link.is_lost


def test_an_answer_that_does_not_come_is_a_lost_link(link: RedisLink) -> None:
    pipe = RedisPipe(link, lambda: None)
    pipe.ask("GET", "a")

    with pytest.raises(ConnectionLost, match="no answer in time"):
        pipe.finish(0.01)


def test_a_silent_link_is_asked_whether_it_lives_and_then_lost(
    server: Server, link: RedisLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = RedisPipe(link, lambda: None)
    long = pipe.patience()
    monkeypatch.setattr(redis_pipe, "_SILENCE", 0.0)

    short = pipe.patience()
    monkeypatch.setattr(redis_pipe, "_PATIENCE", 0.0)

    assert long > short
    assert server.heard() == ["PING"]
    with pytest.raises(ConnectionLost, match="silent"):
        pipe.patience()


def test_who_was_too_slow_to_read_has_not_lost_the_link(
    server: Server, link: RedisLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = RedisPipe(link, lambda: None)
    pipe.ask("GET", "a")
    server.say(OK)
    monkeypatch.setattr(redis_pipe, "_PATIENCE", 0.0)

    wait = pipe.patience()

    assert wait == 0.0


def test_what_may_be_refused_says_why_it_was(server: Server, link: RedisLink) -> None:
    server.say(OK, REFUSED)
    refusal = link.attempt(("HELLO", 3), ("CLIENT", "TRACKING", "ON"))
    server.say(OK, OK)
    granted = link.attempt(("HELLO", 3), ("CLIENT", "TRACKING", "ON"))

    assert "no permissions" in refusal
    assert granted == ""
    assert not link.is_lost
