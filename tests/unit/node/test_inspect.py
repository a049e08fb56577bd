"""Questions to nodes: what they answer, and who among them keeps silent."""

from collections.abc import Callable
from typing import Any

import pytest

from celeriac.core.clock import MAX_JUMP
from celeriac.model.message import Exchange
from celeriac.node import call as call_module
from celeriac.node.clock import SharedClock
from celeriac.wire.control import Request
from tests.cluster import Cluster, Peer

#: Long enough for what is said at once.
SHORT = 0.02
PONG = {"ok": "pong"}


def pong(peer: Peer, request: Request) -> None:
    peer.reply(request, PONG)


def silent_but_alive(peer: Peer, request: Request) -> None:
    if request.method == "heartbeat":
        peer.beat()


def test_the_answers_of_nodes_are_by_name() -> None:
    cluster = Cluster()
    cluster.node("w1@web")
    cluster.node("w2@web")

    replies = cluster.control().inspect(timeout=SHORT).ping()

    assert replies == {"w1@web": PONG, "w2@web": PONG}
    assert (replies.silent, replies.absent, replies.errors) == ([], [], {})


def test_nobody_is_as_false_as_none() -> None:
    cluster = Cluster()

    replies = cluster.control().inspect(timeout=0).active()

    assert not replies


def test_a_node_that_shows_itself_but_does_not_answer_is_silent() -> None:
    cluster = Cluster()
    cluster.peer("w3@web", silent_but_alive)
    cluster.peer("w2@web", silent_but_alive)
    cluster.peer("w1@web", pong)
    cluster.peer("w4@web")

    replies = cluster.control().inspect(timeout=SHORT).ping()

    assert replies == {"w1@web": PONG}
    assert replies.silent == ["w2@web", "w3@web"]
    assert replies.absent == []


def test_a_node_that_was_named_and_neither_heard_nor_answered_is_absent() -> None:
    cluster = Cluster()
    cluster.peer("w1@web", pong)
    cluster.peer("w2@web", silent_but_alive)
    cluster.peer("w5@web", silent_but_alive)

    inspect = cluster.control().inspect(["w1@web", "w2@web", "w3@web"], timeout=SHORT)
    replies = inspect.ping()

    assert replies == {"w1@web": PONG}
    assert replies.silent == ["w2@web"]
    assert replies.absent == ["w3@web"]


def test_a_node_that_the_caller_knows_is_silent_and_not_absent() -> None:
    cluster = Cluster()

    some = cluster.control().inspect(["w1@web", "w2@web"], timeout=SHORT, known=["w1@web"]).ping()
    everyone = cluster.control().inspect(timeout=SHORT, known=["w1@web"]).ping()

    assert (some.silent, some.absent) == (["w1@web"], ["w2@web"])
    assert (everyone.silent, everyone.absent) == (["w1@web"], [])


def test_only_nodes_that_the_pattern_fits_can_be_silent() -> None:
    cluster = Cluster()
    cluster.peer("w1@web", silent_but_alive)
    cluster.peer("w2@db", lambda peer, _: peer.beat())

    replies = cluster.control().inspect(timeout=SHORT, pattern="*@web").ping()

    assert replies.silent == ["w1@web"]


def test_a_node_that_left_is_not_silent() -> None:
    cluster = Cluster()
    cluster.peer("w1@web", lambda peer, _: [peer.beat(), peer.beat("offline")])

    replies = cluster.control().inspect(timeout=SHORT).ping()

    assert replies.silent == []


def test_who_asks_is_not_silent_unless_it_was_named() -> None:
    cluster = Cluster()
    cluster.peer("w1@web", silent_but_alive)

    everyone = cluster.control(hostname="w1@web").inspect(timeout=SHORT).ping()
    named = cluster.control(hostname="w1@web").inspect("w1@web", timeout=SHORT).ping()

    assert everyone.silent == []
    assert named.silent == ["w1@web"]


def test_nobody_is_silent_when_the_limit_ended_the_wait() -> None:
    cluster = Cluster()
    cluster.peer("w1@web", pong)
    cluster.peer("w2@web", silent_but_alive)

    replies = cluster.control().inspect(timeout=60.0, limit=1).ping()

    assert replies == {"w1@web": PONG}
    assert replies.silent == []


def test_a_node_that_answers_with_an_error_is_told_apart() -> None:
    cluster = Cluster()
    cluster.peer("w1@web", pong)
    cluster.peer("w2@web", lambda peer, request: peer.reply(request, {"error": "KeyError('active')"}))
    cluster.peer("w3@web", lambda peer, request: peer.reply(request, "x" * 7 * 2**20))

    replies = cluster.control().inspect(timeout=SHORT, known=["w2@web", "w3@web"]).active()

    assert replies == {"w1@web": PONG}
    assert replies.errors["w2@web"] == "KeyError('active')"
    assert replies.errors["w3@web"].startswith("reply too long: use stats")
    assert replies.silent == []


def test_two_nodes_of_one_name_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    cluster.peer("w1@web", lambda peer, request: [peer.reply(request, n) for n in (1, 2)])

    replies = cluster.control().inspect(timeout=SHORT).ping()

    assert replies == {"w1@web": 2}
    assert "inspect: two nodes are named 'w1@web'; give each node a unique name" in caplog.text


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'{"type": "worker-heartbeat"}', b"[" * 100_000, b'{"hostname": "w9@web"}'],
)
def test_bad_events_are_counted_and_nobody_is_taken_for_alive(body: bytes) -> None:
    cluster = Cluster()
    events = Exchange("celeryev", "topic", is_durable=True)
    cluster.peer(
        "w1@web", lambda peer, _: peer.connection.publish(events, body, routing_key="worker.heartbeat")
    )
    control = cluster.control()

    replies = control.inspect(timeout=SHORT).ping()

    assert replies.silent == []
    assert body == b"[]" or sum(control.refused.values()) > 0


@pytest.mark.parametrize("clock", [2**63 - 1, MAX_JUMP * 2, "abc", None, float("inf")])
def test_a_poisoned_heartbeat_does_not_move_the_clock(clock: object) -> None:
    cluster = Cluster()
    cluster.peer("w1@web", lambda peer, _: peer.beat(clock=clock))
    own = SharedClock()

    replies = cluster.control(own).inspect(timeout=SHORT).ping()

    assert replies.silent == ["w1@web"]
    assert own.value < 50


def test_a_flood_of_heartbeats_is_heard_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_module, "MAX_NODES", 10)
    cluster = Cluster()
    cluster.peer("w1@web", lambda peer, _: [peer.beat(hostname=f"w{n}@web") for n in range(50)])

    replies = cluster.control().inspect(timeout=SHORT).ping()

    assert len(replies.silent) == 10


def test_a_ping_may_name_others_than_the_rest_of_the_questions() -> None:
    cluster = Cluster()
    cluster.node("w1@web")
    cluster.node("w2@web")
    inspect = cluster.control().inspect(["w1@web"], timeout=60.0)

    one, other, again = inspect.ping(), inspect.ping(["w2@web"]), inspect.ping()

    assert (list(one), list(other), list(again)) == (["w1@web"], ["w2@web"], ["w1@web"])


@pytest.mark.parametrize(
    ("question", "method", "arguments"),
    [
        (lambda i: i.ping(), "ping", {}),
        (lambda i: i.hello("w1@web", ["t1"]), "hello", {"from_node": "w1@web", "revoked": ["t1"]}),
        (lambda i: i.hello("w1@web"), "hello", {"from_node": "w1@web", "revoked": []}),
        (lambda i: i.clock(), "clock", {}),
        (lambda i: i.stats(), "stats", {}),
        (lambda i: i.active(), "active", {"safe": True}),
        (lambda i: i.active(safe=False), "active", {"safe": False}),
        (lambda i: i.reserved(), "reserved", {"safe": True}),
        (lambda i: i.scheduled(), "scheduled", {"safe": True}),
        (lambda i: i.revoked(), "revoked", {}),
        (lambda i: i.registered("rate_limit"), "registered", {"taskinfoitems": ["rate_limit"]}),
        (lambda i: i.registered_tasks(), "registered", {"taskinfoitems": []}),
        (lambda i: i.active_queues(), "active_queues", {}),
        (lambda i: i.query_task("t1", "t2"), "query_task", {"ids": ["t1", "t2"]}),
        (lambda i: i.query_task(["t1", "t2"]), "query_task", {"ids": ["t1", "t2"]}),
        (lambda i: i.conf(), "conf", {"with_defaults": False}),
        (lambda i: i.report(), "report", {}),
    ],
)
def test_a_question_is_sent_as_celery_sends_it(
    question: Callable[[Any], object], method: str, arguments: dict[str, object]
) -> None:
    cluster = Cluster()
    peer = cluster.peer("w1@web")

    question(cluster.control().inspect(timeout=0))

    assert [(request.method, request.arguments) for request in peer.requests] == [
        ("heartbeat", {}),
        (method, arguments),
    ]
    assert peer.requests[0].reply_to is None
    assert peer.requests[1].reply_to is not None


def test_nodes_of_ours_meet_by_a_hello() -> None:
    cluster = Cluster()
    mailbox = cluster.node("w1@web")
    ids = [f"{n:036}" for n in range(3000)]

    replies = cluster.control().inspect(["w1@web"], timeout=60.0).hello("w2@web", ids)

    assert replies["w1@web"]["revoked"] == ids
    assert list(mailbox.revoked) == ids
