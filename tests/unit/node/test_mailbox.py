"""The node's side of control: what it answers, what it refuses, and that nothing upsets it."""

import json
import logging
import os
from collections.abc import Callable
from typing import Any

import pytest

from celeriac import RevokedSet
from celeriac.config import Settings
from celeriac.core.clock import MAX_JUMP
from celeriac.errors import AccessRefused, CallerError, ConnectionLost
from celeriac.model.clock import MAX_CLOCK
from celeriac.model.message import Exchange, Message
from celeriac.node.clock import SharedClock
from celeriac.node.mailbox import TASK_QUESTIONS, Handler, Later, Mailbox
from celeriac.transport.memory import MemoryBroker, MemoryConnection
from tests.builders import nested

NODE = "w1@web"
REPLY_TO = {"exchange": "reply.celery.pidbox", "routing_key": "2350"}
#: Every command of Celery's that is not answered by default.
COMMANDS = [
    "election", "heartbeat", "enable_events", "disable_events", "revoke", "terminate",
    "revoke_by_stamped_headers", "rate_limit", "time_limit", "pool_grow", "pool_shrink", "pool_restart",
    "autoscale", "add_consumer", "cancel_consumer", "shutdown", "active", "reserved", "scheduled", "revoked",
    "registered", "active_queues", "query_task", "conf", "report", "memsample", "memdump", "objgraph",
    "dump_conf",
]  # fmt: skip


class Moment:
    """A time that goes on when it is told to."""

    def __init__(self, at: float = 1000.0) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


def message(method: object = "ping", /, *, headers: Any = None, **fields: object) -> Message:
    """Return a request that wants a reply, unless ``reply_to`` says otherwise."""
    body = {"method": method, "arguments": {}, "ticket": "8acc", "reply_to": REPLY_TO, **fields}
    return Message(json.dumps(body).encode(), headers={"clock": 1} if headers is None else headers)


class Node:
    """A mailbox on a broker, and what it sent."""

    def __init__(
        self,
        *,
        settings: Settings | None = None,
        handlers: dict[str, Handler] | None = None,
        revoked: RevokedSet | None = None,
    ) -> None:
        self.broker = MemoryBroker()
        self.clock = SharedClock()
        self.now = Moment()
        self.wall_time = Moment(1_794_703_817.0)
        self.mailbox = Mailbox(
            NODE,
            settings=settings or Settings(),
            clock=self.clock,
            handlers=handlers,
            revoked=revoked,
            now=self.now,
            wall_time=self.wall_time,
        )
        self.mailbox.attach(self.broker.connect())

    def receive(self, message: Message) -> Any:
        """Receive a request, and return the value of the reply; None when there was none."""
        before = len(self.broker.published)
        self.mailbox.receive(message)
        sent = [json.loads(sent.body)[NODE] for _, sent in self.broker.published[before:]]
        assert len(sent) <= 1
        return sent[0] if sent else None

    @property
    def refused(self) -> dict[str, int]:
        return dict(self.mailbox.refused)


def allowing(*commands: str, **handlers: Handler) -> Node:
    return Node(settings=Settings(control_allow=commands), handlers=handlers)


# -- what is always answered


def test_a_ping_is_answered() -> None:
    node = Node()

    answer = node.receive(message("ping"))

    assert answer == {"ok": "pong"}
    assert node.refused == {}


def test_a_reply_goes_where_it_is_awaited_with_ticket_and_clock() -> None:
    node = Node()

    node.mailbox.receive(message("ping", headers={"clock": 40}))

    ((exchange, reply),) = node.broker.published
    assert (exchange, reply.routing_key) == ("reply.celery.pidbox", "2350")
    assert reply.headers == {"ticket": "8acc", "clock": 42}
    assert json.loads(reply.body) == {NODE: {"ok": "pong"}}


def test_a_request_without_a_wish_for_a_reply_gets_none() -> None:
    node = Node()

    answer = node.receive(message("ping", reply_to=None, ticket=None))

    assert answer is None
    assert node.refused == {}


def test_the_clock_is_told() -> None:
    node = Node()
    node.clock.adjust(99)

    answer = node.receive(message("clock"))

    assert answer == {"clock": 102}


def test_stats_tell_of_the_process_and_hold_no_address() -> None:
    node = Node()
    node.now.at += 12.4

    answer = node.receive(message("stats"))

    assert answer["pid"] == os.getpid()
    assert answer["clock"] == "2"
    assert answer["uptime"] == 12
    assert answer["total"] == {}
    assert answer["broker"] == {"transport": "memory"}
    assert len(answer["rusage"]) == 16
    assert answer["rusage"]["maxrss"] > 0


@pytest.mark.parametrize("command", ["ping", "clock", "stats"])
def test_arguments_that_celery_ignores_are_ignored(command: str) -> None:
    node = Node()

    answer = node.receive(message(command, arguments={"colour": "red", "safe": True}))

    assert "error" not in answer


# -- hello


@pytest.mark.parametrize("told", [["a", "b"], {"b": 2.0, "a": 1.0}, {"b": [2.0, "b"], "a": [1.0, "a"]}])
def test_nodes_that_meet_tell_each_other_what_is_revoked(told: object) -> None:
    revoked = RevokedSet()
    revoked.add("old", now=999.0)
    node = Node(revoked=revoked)

    answer = node.receive(message("hello", arguments={"from_node": "w2@web", "revoked": told}))

    assert answer == {"revoked": ["old", "a", "b"], "clock": 3}
    assert list(revoked) == ["old", "a", "b"]


def test_a_hello_with_more_ids_than_a_node_keeps_pushes_out_no_others() -> None:
    revoked = RevokedSet()
    revoked.add("own", now=999.0)
    node = Node(revoked=revoked)
    node.receive(message("hello", arguments={"from_node": "w2@web", "revoked": ["theirs"]}))

    node.receive(
        message("hello", arguments={"from_node": "w3@web", "revoked": [f"x{n}" for n in range(60_000)]})
    )

    assert len(revoked) == 50_000
    assert {"own", "theirs"} <= set(revoked)


def test_a_hello_of_our_own_is_answered_with_nothing() -> None:
    node = Node()

    node.mailbox.receive(message("hello", arguments={"from_node": NODE, "revoked": ["a"]}))

    ((_, reply),) = node.broker.published
    assert json.loads(reply.body) == {NODE: None}
    assert list(node.mailbox.revoked) == []


@pytest.mark.parametrize("revoked", [None, "abc", 7, [None, 1, "x" * 300], [[]], {"": 1}])
def test_a_hello_with_odd_ids_is_still_answered(revoked: object) -> None:
    node = Node()

    answer = node.receive(message("hello", arguments={"from_node": "w2@web", "revoked": revoked}))

    assert answer["revoked"] == []


@pytest.mark.parametrize("arguments", [{}, {"from_node": None}, {"from_node": ["w2@web"]}])
def test_a_hello_of_nobody_is_an_error(arguments: dict[str, object]) -> None:
    node = Node()

    answer = node.receive(message("hello", arguments=arguments))

    assert answer["error"].startswith("TypeError(")
    assert node.mailbox.failed == {"hello": 1}


# -- the list of what is allowed


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_not_allowed_does_nothing_and_is_answered_with_an_error(command: str) -> None:
    calls: list[object] = []
    node = Node(handlers={command: lambda **arguments: calls.append(arguments)})

    answer = node.receive(message(command))
    unasked = node.receive(message(command, reply_to=None, ticket=None))

    assert answer == {"error": f"command {command!r} is not allowed on this node: add it to control_allow"}
    assert unasked is None
    assert calls == []
    assert node.refused == {"heartbeat" if command == "heartbeat" else "not-allowed": 2}


def test_a_command_that_is_allowed_and_known_is_obeyed() -> None:
    node = allowing("revoke", revoke=lambda task_id, **_: {"ok": f"tasks {task_id} flagged as revoked"})

    answer = node.receive(message("revoke", arguments={"task_id": "t1", "terminate": False}))

    assert answer == {"ok": "tasks t1 flagged as revoked"}


def test_a_command_that_is_allowed_but_unknown_is_answered_with_an_error() -> None:
    node = allowing("revoke")

    answer = node.receive(message("revoke", destination=[NODE]))

    assert answer == {"error": "unknown command 'revoke'"}
    assert node.refused == {"unknown": 1}


def test_an_unknown_command_gets_no_advice_to_allow_it() -> None:
    node = Node()

    answer = node.receive(message("shutdown", destination=[NODE]))

    assert answer == {"error": "unknown command 'shutdown'"}
    assert node.refused == {"unknown": 1}


@pytest.mark.parametrize("selection", [{}, {"pattern": "w*", "matcher": "glob"}])
def test_a_node_without_tasks_leaves_an_unknown_command_to_others(selection: dict[str, str]) -> None:
    node = Node()

    answer = node.receive(message("enable_events", **selection))

    assert answer is None
    assert node.refused == {"unknown": 1}


def test_a_worker_answers_an_unknown_command_to_all_with_an_error() -> None:
    node = allowing(active=list)

    answer = node.receive(message("autoscale"))

    assert answer == {"error": "unknown command 'autoscale'"}


def test_a_handler_can_answer_later() -> None:
    answers: list[Callable[[object], None]] = []
    node = allowing("think", think=lambda: Later(answers.append))

    early = node.receive(message("think"))
    (answer,) = answers
    answer({"ok": "thought"})
    ((_, reply),) = node.broker.published

    assert early is None
    assert json.loads(reply.body) == {NODE: {"ok": "thought"}}
    assert reply.headers["ticket"] == "8acc"


@pytest.mark.parametrize("question", sorted(TASK_QUESTIONS))
def test_a_node_without_tasks_leaves_questions_about_tasks_without_a_reply(question: str) -> None:
    node = Node()

    answer = node.receive(message(question))

    assert answer is None
    assert node.refused == {"unknown": 1}


def test_an_attribute_of_the_mailbox_is_no_command() -> None:
    node = allowing("receive", "_stats", "attach")

    methods = ("receive", "_stats", "attach")
    answers = [node.receive(message(method, destination=[NODE])) for method in methods]

    assert [answer.keys() for answer in answers] == [{"error"}] * 3
    assert node.refused == {"unknown": 3}


def test_refusals_are_logged_once_a_minute_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    node = Node(handlers={"shutdown": lambda: None})
    caplog.set_level(logging.WARNING)

    for _ in range(50):
        node.receive(message("shutdown"))
        node.receive(message("ping", reply_to="x"))
    node.now.at += 60.0
    node.receive(message("shutdown"))

    assert [record.getMessage().partition(", reason")[0] for record in caplog.records] == [
        "control: refused a request, command='shutdown'",
        "control: refused a request, command='?'",
        "control: refused a request, command='shutdown'",
    ]
    assert "refused=51" in caplog.text
    assert "control_allow" in caplog.text
    assert node.refused == {"not-allowed": 51, "reply-to": 50}


def test_what_every_monitor_asks_for_is_counted_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()

    node.receive(message("heartbeat"))

    assert node.refused == {"heartbeat": 1}
    assert caplog.records == []


def test_nothing_of_a_peer_reaches_the_log_unescaped(caplog: pytest.LogCaptureFixture) -> None:
    node = allowing("grumble", grumble=raiser(ValueError("one\ntwo\x1b[31m")))

    node.receive(message("a\nb"))
    node.receive(message("grumble"))

    assert len(caplog.records) == 2
    assert all(
        "\n" not in record.getMessage() and "\x1b" not in record.getMessage() for record in caplog.records
    )


# -- whom it is for


@pytest.mark.parametrize(
    ("fields", "is_answered"),
    [
        ({"destination": [NODE]}, True),
        ({"destination": ["w2@web"]}, False),
        ({"destination": []}, True),
        ({"pattern": "w1@*", "matcher": "glob"}, True),
        ({"pattern": "w2@*", "matcher": "glob"}, False),
        ({"pattern": "w[1-5]@", "matcher": "pcre"}, True),
        ({"pattern": "w2@*", "matcher": None}, True),
    ],
)
def test_only_requests_for_this_node_are_answered(fields: dict[str, object], is_answered: bool) -> None:
    node = Node()

    answer = node.receive(message("ping", **fields))

    assert (answer is not None) is is_answered
    assert node.refused == {}


def test_a_command_for_another_node_is_not_counted_as_refused() -> None:
    node = Node()

    node.receive(message("shutdown", destination=["w2@web"]))

    assert node.refused == {}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"pattern": "(a*)*b", "matcher": "pcre"}, "pattern"),
        ({"pattern": "(", "matcher": "pcre"}, "pattern"),
        ({"pattern": "a" * 300, "matcher": "glob"}, "pattern"),
        ({"pattern": "a", "matcher": "sql"}, "matcher"),
    ],
)
def test_a_pattern_that_cannot_be_matched_is_refused(fields: dict[str, object], reason: str) -> None:
    node = Node()

    answer = node.receive(message("ping", **fields))

    assert answer is None
    assert node.refused == {reason: 1}


# -- hostile input


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (message()._replace(content_type="application/x-python-serialize"), "content-type"),
        (message()._replace(content_type="application/x-yaml"), "content-type"),
        (message()._replace(content_type="application/x-msgpack"), "content-type"),
        (message()._replace(content_encoding="binary"), "content-encoding"),
        (message()._replace(body=b"\x80\x04K\x01."), "json"),
        (message()._replace(body=b""), "json"),
        (message()._replace(body=b'{"method": "ping"'), "json"),
        (message()._replace(body=b'{"method":' + b"[" * 60_000), "json"),
        (message()._replace(body=b'"ping"'), "not-a-request"),
        (message()._replace(body=b"[1, 2]"), "not-a-request"),
        (message()._replace(body=b"null"), "not-a-request"),
        (message(arguments={"x": "y" * 70_000}), "size"),
        (message(arguments={"x": nested(40)}), "depth"),
        (message(arguments={f"k{n}": n for n in range(3000)}), "items"),
        (message(arguments=["x"]), "arguments"),
        (message(arguments={"x": 10**30}), "integer"),
        (message(7), "method"),
        (message(None), "method"),
        (message("__import__('os').system('x')"), "method"),
        (message(destination="w1@web"), "destination"),
        (message(destination=[7]), "destination"),
        (message(ticket=["8acc"]), "ticket"),
        (message(ticket="x" * 1000), "ticket"),
        (message(reply_to={"exchange": "reply.celery.pidbox"}), "reply-to"),
        (message(reply_to={"exchange": "reply.celery.pidbox", "routing_key": "x" * 300}), "reply-to"),
        (message(reply_to="reply.celery.pidbox"), "reply-to"),
    ],
)
def test_a_bad_request_is_counted_and_the_next_one_is_answered(bad: Message, reason: str) -> None:
    node = Node()

    first = node.receive(bad)
    second = node.receive(message("ping"))

    assert first is None
    assert node.refused == {reason: 1}
    assert second == {"ok": "pong"}


@pytest.mark.parametrize(
    "exchange",
    ["", "celery", "celeryev", "amq.direct", "celery.pidbox", "reply.shop.pidbox", "reply.celery.pidboxes"],
)
def test_no_peer_makes_us_publish_anywhere_but_to_the_replies(exchange: str) -> None:
    calls: list[object] = []
    node = allowing("count", count=lambda: calls.append(1))
    place = {"exchange": exchange, "routing_key": "celery"}

    node.mailbox.receive(message("count", reply_to=place))

    assert node.broker.published == []
    assert calls == []
    assert sum(node.refused.values()) == 1
    assert node.refused.keys() <= {"reply-exchange", "reply-to"}


def test_the_place_of_replies_is_that_of_the_settings() -> None:
    node = Node(settings=Settings(control_exchange="shop"))

    answer = node.receive(message("ping", reply_to={"exchange": "reply.shop.pidbox", "routing_key": "k"}))

    assert answer == {"ok": "pong"}


# -- the clock


@pytest.mark.parametrize(
    "clock",
    [2**63 - 1, 2**63, 2**100, 2**53, MAX_CLOCK, 2**52, MAX_JUMP * 2, 1e308, "abc", [], {}, True, -5, 0.5,
     float("nan"), float("inf")],
)  # fmt: skip
def test_a_poisoned_clock_is_not_followed_and_the_next_request_is_answered(clock: object) -> None:
    node = Node()

    for _ in range(5):
        node.receive(message("ping", headers={"clock": clock}))
    answer = node.receive(message("clock", headers={"clock": 1}))

    assert answer["clock"] < 50
    assert all(0 < int(str(sent.headers["clock"])) < 50 for _, sent in node.broker.published)
    assert sum(node.clock.rejected.values()) == 5


def test_many_clients_with_one_far_clock_are_still_one_peer() -> None:
    node = Node()

    for n in range(20):
        far = message("hello", headers={"clock": 2**50 + n}, arguments={"from_node": f"w{n + 2}@web"})
        node.receive(far)

    assert node.clock.value < 100


@pytest.mark.parametrize(
    ("headers", "expected"), [({"clock": 500}, 502), ({"clock": 0}, 3), ({}, 3), ({"clock": None}, 3)]
)
def test_a_request_moves_the_clock_past_its_own(headers: dict[str, object], expected: int) -> None:
    node = Node()

    node.receive(message("ping", headers=headers))

    assert node.clock.value == expected
    assert node.clock.rejected == {}


def test_a_request_for_another_node_moves_the_clock_too() -> None:
    node = Node()

    node.receive(message("ping", destination=["w2@web"], headers={"clock": 500}))

    assert node.clock.value == 501


# -- what handlers do


def raiser(error: BaseException) -> Handler:
    def raise_it(**_: object) -> object:
        raise error

    return raise_it


class UnshowableError(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (raiser(ValueError("Autoscale not enabled")), "ValueError('Autoscale not enabled')"),
        (raiser(KeyError("x")), "KeyError('x')"),
        (raiser(UnshowableError()), "UnshowableError"),
        (raiser(ConnectionLost("the database is away")), "ConnectionLost('the database is away')"),
        (raiser(ValueError("\ud800")), "ValueError('\\ud800')"),
        (object, "TypeError('Encoding objects of type object is unsupported')"),
    ],
)
def test_a_handler_that_fails_is_an_error_to_the_one_who_asked(handler: Handler, error: str) -> None:
    node = allowing("try", **{"try": handler})

    answer = node.receive(message("try"))

    assert answer == {"error": error}
    assert node.mailbox.failed == {"try": 1}


def test_a_long_error_is_cut() -> None:
    node = allowing("try", **{"try": raiser(ValueError("x" * 100_000))})

    answer = node.receive(message("try"))

    assert len(answer["error"]) == 1000


def test_a_text_that_no_json_holds_is_an_error_and_no_crash() -> None:
    node = allowing("try", **{"try": lambda: "\ud800"})

    answer = node.receive(message("try"))

    assert answer["error"].startswith("UnicodeEncodeError(")


@pytest.mark.parametrize("arguments", [{"colour": "red"}, {"task_id": 1, "self": 2}, {}])
def test_arguments_that_a_handler_does_not_take_are_an_error(arguments: dict[str, object]) -> None:
    node = allowing("revoke", revoke=lambda task_id: task_id)

    answer = node.receive(message("revoke", arguments=arguments))

    assert answer["error"].startswith("TypeError(")


def test_a_handler_that_fails_without_a_wish_for_a_reply_is_counted() -> None:
    node = allowing("try", **{"try": raiser(ValueError())})

    answer = node.receive(message("try", reply_to=None))

    assert answer is None
    assert node.mailbox.failed == {"try": 1}


def test_a_handler_may_end_the_process() -> None:
    node = allowing("shutdown", shutdown=raiser(SystemExit(0)))

    with pytest.raises(SystemExit):
        node.receive(message("shutdown"))


def test_a_handler_takes_the_place_of_a_built_in_one() -> None:
    node = Node(handlers={"stats": lambda **_: {"pool": {}}})

    answer = node.receive(message("stats"))

    assert answer == {"pool": {}}


# -- late commands


@pytest.mark.parametrize(
    ("late_by", "is_obeyed"), [(-10.0, True), (0.0, True), (15.0, True), (17.0, False), (1e6, False)]
)
def test_a_command_that_changes_something_is_refused_when_it_comes_too_late(
    late_by: float, is_obeyed: bool
) -> None:
    node = allowing("shrink", shrink=lambda: {"ok": "done"})

    answer = node.receive(message("shrink", headers={"expires": node.wall_time() - late_by}))

    assert (answer is not None) is is_obeyed
    assert node.refused == ({} if is_obeyed else {"expired": 1})


@pytest.mark.parametrize("expires", [0, None, "soon", float("nan"), -1])
def test_a_command_without_an_expiry_is_never_too_late(expires: object) -> None:
    node = allowing("shrink", shrink=lambda: {"ok": "done"})

    answer = node.receive(message("shrink", headers={"expires": expires}))

    assert answer == {"ok": "done"}


@pytest.mark.parametrize(
    ("command", "arguments"),
    [("ping", {}), ("clock", {}), ("stats", {}), ("hello", {"from_node": "w2@web"})],
)
def test_a_question_is_never_too_late(command: str, arguments: dict[str, str]) -> None:
    late, on_time = Node(), Node()

    answer = late.receive(message(command, arguments=arguments, headers={"expires": 1.0}))

    # The same answer, but for the memory and the time that the process has used since.
    expected = on_time.receive(message(command, arguments=arguments, headers={}))
    assert {**answer, "rusage": None} == {**expected, "rusage": None}
    assert "error" not in answer
    assert late.refused == {}


# -- the link


def test_requests_come_by_the_link_and_replies_go_by_it() -> None:
    node = Node()
    client = node.broker.connect()
    link = node.broker.connect()
    node.mailbox.attach(link)
    request = message("ping")

    client.publish(Exchange("celery.pidbox", "fanout"), request.body, headers=request.headers)
    link.drain(0)

    assert [exchange for exchange, _ in node.broker.published] == ["celery.pidbox", "reply.celery.pidbox"]


def test_nothing_is_taken_when_remote_control_is_off() -> None:
    node = Node(settings=Settings(worker_enable_remote_control=False))
    request = message("ping")

    node.broker.connect().publish(Exchange("celery.pidbox", "fanout"), request.body)

    assert node.broker._queues == {}


def test_a_lost_link_is_told_to_the_one_who_drains() -> None:
    node = Node()
    node.broker.cut()

    with pytest.raises(ConnectionLost):
        node.receive(message("ping"))


def test_a_broker_that_forbids_replies_does_not_end_the_node() -> None:
    class Forbidding(MemoryConnection):
        def publish(self, *_: object, **__: object) -> None:
            raise AccessRefused("no")

    node = Node()
    node.mailbox.attach(Forbidding(node.broker))

    answer = node.receive(message("ping"))

    assert answer is None
    assert node.refused == {"reply-access": 1}


def test_a_mailbox_without_a_link_counts_the_replies_it_cannot_send() -> None:
    mailbox = Mailbox(NODE, settings=Settings(), clock=SharedClock())

    mailbox.receive(message("ping"))

    assert mailbox.refused == {"not-attached": 1}


@pytest.mark.parametrize("hostname", ["", "x" * 256, "a\nb", "\ud800"])
def test_a_node_has_a_name_that_a_queue_can_have(hostname: str) -> None:
    settings, clock = Settings(), SharedClock()

    with pytest.raises(CallerError, match="255 printable bytes"):
        Mailbox(hostname, settings=settings, clock=clock)


# -- what a worker adds


def test_commands_that_are_open_need_not_be_allowed() -> None:
    broker = MemoryBroker()
    mailbox = Mailbox(
        NODE,
        settings=Settings(),
        clock=SharedClock(),
        handlers={"active": lambda **_: [], "shutdown": lambda **_: None},
        open_commands={"active"},
    )
    mailbox.attach(broker.connect())

    mailbox.receive(message("active"))
    mailbox.receive(message("shutdown"))

    active, shutdown = (json.loads(reply.body)[NODE] for _, reply in broker.published)
    assert active == []
    assert "control_allow" in shutdown["error"]
    assert mailbox.refused == {"not-allowed": 1}


def test_an_open_command_may_come_late() -> None:
    broker = MemoryBroker()
    mailbox = Mailbox(
        NODE,
        settings=Settings(),
        clock=SharedClock(),
        handlers={"revoke": lambda **_: {"ok": "done"}},
        open_commands={"revoke"},
        wall_time=lambda: 1000.0,
    )
    mailbox.attach(broker.connect())

    mailbox.receive(message("revoke", headers={"clock": 1, "expires": 1.0}))

    assert len(broker.published) == 1


def test_stats_tell_what_a_node_adds_to_them() -> None:
    broker = MemoryBroker()
    mailbox = Mailbox(
        NODE, settings=Settings(), clock=SharedClock(), more_stats=lambda: {"total": {"shop.pay": 3}}
    )
    mailbox.attach(broker.connect())

    mailbox.receive(message("stats"))

    ((_, reply),) = broker.published
    stats = json.loads(reply.body)[NODE]
    assert (stats["total"], stats["pid"]) == ({"shop.pay": 3}, os.getpid())


def test_stats_that_fail_are_an_error_to_the_one_who_asked() -> None:
    def fail() -> dict[str, object]:
        raise RuntimeError("no stats now")

    broker = MemoryBroker()
    mailbox = Mailbox(NODE, settings=Settings(), clock=SharedClock(), more_stats=fail)
    mailbox.attach(broker.connect())

    mailbox.receive(message("stats"))

    ((_, reply),) = broker.published
    assert json.loads(reply.body)[NODE] == {"error": "RuntimeError('no stats now')"}
