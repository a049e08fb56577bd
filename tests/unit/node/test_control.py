"""The asker's side of control: commands as Celery's nodes read them, and replies that cannot do harm."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from time import monotonic
from typing import Any

import pytest

from celeriac.config import Settings
from celeriac.core.clock import MAX_JUMP
from celeriac.errors import CallerError, ConnectionLost
from celeriac.model.message import Exchange
from celeriac.node import call as call_module
from celeriac.node import control as control_module
from celeriac.node.clock import SharedClock
from celeriac.node.control import Control
from celeriac.node.signature import Signature
from celeriac.transport.memory import MemoryBroker, MemoryConnection
from celeriac.wire.control import Request
from tests.builders import nested
from tests.cluster import Cluster, Peer, Stepping

#: Long enough for what is said at once, and no test waits for it to pass but those that must.
SHORT = 0.02
PONG = {"ok": "pong"}


def pong(peer: Peer, request: Request) -> None:
    peer.reply(request, PONG)


def elector(peer: Peer, request: Request) -> Peer:
    return peer.beat() if request.method == "heartbeat" else peer.reply(request, PONG)


def our_elector(peer: Peer, request: Request) -> Peer:
    return peer.beat(sw_ident="py-celeriac") if request.method == "heartbeat" else peer.reply(request, PONG)


def sent(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the bodies of all requests."""
    return [json.loads(message.body) for name, message in cluster.broker.published if name == "celery.pidbox"]


def only_one_wait(cluster: Cluster) -> None:
    """Fail a call that waits again after every node had its turn to answer."""
    waits = iter([None])

    def step() -> None:
        assert next(waits, "again") is None, "the call waits on"

    cluster.on_step = step


# -- broadcast


def test_replies_are_a_list_of_node_and_value() -> None:
    cluster = Cluster()
    cluster.node("w1@web")
    cluster.node("w2@web")

    replies = cluster.control().broadcast("ping", reply=True, timeout=SHORT)

    assert replies == [{"w1@web": PONG}, {"w2@web": PONG}]


def test_a_command_without_a_wish_for_replies_returns_none() -> None:
    cluster = Cluster()
    peer = cluster.peer("w1@web", pong)

    returned = cluster.control().broadcast("shutdown")
    cluster.step()

    assert returned is None
    assert peer.requests == [
        Request("shutdown", clock=1, expires_at=peer.requests[0].expires_at),
    ]


def test_a_connection_names_the_broker_of_a_command() -> None:
    cluster, other = Cluster(), Cluster()
    other.node("w1@other")
    control = Control(cluster.broker.connect, settings=Settings(), clock=SharedClock(), hostname="gen7@web")
    link = Stepping(other)

    replies = control.broadcast("ping", reply=True, timeout=SHORT, connection=link)
    pongs = control.inspect(timeout=SHORT, connection=link).ping()
    control.election("e1", "tidy", connection=link, force=True)

    assert replies == [{"w1@other": PONG}]
    assert pongs == {"w1@other": PONG}
    assert [each["method"] for each in sent(other)] == ["ping", "heartbeat", "ping", "election"]
    assert cluster.broker.published == []


@pytest.mark.parametrize(
    "call",
    [
        lambda control, odd: control.inspect(connection=odd),
        lambda control, odd: control.broadcast("ping", connection=odd),
        lambda control, odd: control.election("e1", "tidy", connection=odd, force=True),
    ],
)
def test_what_is_no_connection_is_refused(call: Callable[[Control, object], object]) -> None:
    cluster = Cluster()

    with pytest.raises(CallerError, match=r"invalid connection of type int: pass app.connection\(\)"):
        call(cluster.control(), 42)

    assert cluster.broker.published == []


def test_nobody_there_is_an_empty_list() -> None:
    cluster = Cluster()

    replies = cluster.control().broadcast("ping", reply=True, timeout=SHORT)

    assert replies == []


def test_the_wait_ends_when_all_who_were_named_have_answered() -> None:
    cluster = Cluster()
    cluster.node("w1@web")
    cluster.node("w2@web")
    cluster.node("w3@web")
    only_one_wait(cluster)

    replies = cluster.control().broadcast("ping", destination=["w3@web", "w1@web"], reply=True, timeout=60.0)

    assert replies == [{"w1@web": PONG}, {"w3@web": PONG}]


def test_the_wait_ends_at_the_limit() -> None:
    cluster = Cluster()
    for n in range(5):
        cluster.node(f"w{n}@web")
    only_one_wait(cluster)

    replies = cluster.control().broadcast("ping", reply=True, timeout=60.0, limit=2)

    assert replies == [{"w0@web": PONG}, {"w1@web": PONG}]


def test_one_name_may_be_given_as_a_text() -> None:
    cluster = Cluster()
    cluster.node("w1@web")

    replies = cluster.control().broadcast("ping", destination="w1@web", reply=True, timeout=60.0)

    assert replies == [{"w1@web": PONG}]
    assert sent(cluster)[0]["destination"] == ["w1@web"]


def test_the_time_is_that_of_the_whole_call_however_replies_trickle() -> None:
    cluster = Cluster()
    peer = cluster.peer("w0@web", pong)
    cluster.on_step = lambda: peer.requests and peer.reply(peer.requests[0], PONG)
    began = monotonic()

    replies = cluster.control().broadcast("ping", reply=True, timeout=0.1)

    assert replies is not None
    assert len(replies) > 2
    assert 0.1 <= monotonic() - began < 5.0


def test_no_time_takes_what_is_there() -> None:
    cluster = Cluster()
    cluster.node("w1@web")

    replies = cluster.control().broadcast("ping", reply=True, timeout=0)

    assert replies == [{"w1@web": PONG}]


def test_a_callback_gets_each_reply() -> None:
    cluster = Cluster()
    cluster.node("w1@web")
    cluster.node("w2@web")
    seen: list[object] = []

    replies = cluster.control().broadcast("ping", reply=True, timeout=SHORT, callback=seen.append)

    assert seen == replies == [{"w1@web": PONG}, {"w2@web": PONG}]


def test_what_a_callback_raises_reaches_the_caller() -> None:
    cluster = Cluster()
    cluster.node("w1@web")

    def fail(_: object) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        cluster.control().broadcast("ping", reply=True, timeout=SHORT, callback=fail)


def test_the_reply_queue_is_there_before_the_request_is_sent() -> None:
    order: list[str] = []

    class Noting(MemoryConnection):
        def subscribe(self, queue: Any, deliver: Any, *, acknowledges: bool = False) -> None:
            order.append(queue.exchange.name)
            super().subscribe(queue, deliver, acknowledges=acknowledges)

        def publish(self, exchange: Exchange, body: bytes, **options: Any) -> None:
            order.append(exchange.name)
            super().publish(exchange, body, **options)

    broker = MemoryBroker()
    control = Control(lambda: Noting(broker), settings=Settings(), clock=SharedClock(), hostname="gen7@web")

    control.broadcast("ping", reply=True, timeout=0)
    control.inspect(timeout=0).ping()

    assert order == [
        "reply.celery.pidbox",
        "celery.pidbox",
        "reply.celery.pidbox",
        "celeryev",
        "celery.pidbox",
        "celery.pidbox",
    ]


def test_nothing_is_left_at_the_broker() -> None:
    cluster = Cluster()

    cluster.control().broadcast("ping", reply=True, timeout=0)
    cluster.control().inspect(timeout=0).ping()

    assert cluster.broker._queues == {}


@pytest.mark.parametrize("pattern", ["w2*", "*2@*"])
def test_a_pattern_is_a_shell_pattern_unless_said_otherwise(pattern: str) -> None:
    cluster = Cluster()
    cluster.node("w1@web")
    cluster.node("w2@web")

    replies = cluster.control().broadcast("ping", reply=True, timeout=SHORT, pattern=pattern)

    assert replies == [{"w2@web": PONG}]


def test_a_pattern_may_be_an_expression() -> None:
    cluster = Cluster()
    cluster.node("w1@web")
    cluster.node("w2@web")

    replies = cluster.control().broadcast("ping", reply=True, timeout=SHORT, pattern="w[2-9]", matcher="pcre")

    assert replies == [{"w2@web": PONG}]


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"command": "a b"}, "letters"),
        ({"arguments": {"x": object()}}, "JSON"),
        ({"arguments": {"x": "\ud800"}}, "JSON"),
        ({"arguments": {"x": "y" * 70_000}}, "64 KiB"),
        ({"arguments": {"x": ["y"] * 3000}}, "2,048 items"),
        ({"arguments": {"x": nested(40)}}, "deeper"),
        ({"destination": [""]}, "node names"),
        ({"destination": [1]}, "node names"),
        ({"pattern": "(a*)*b", "matcher": "pcre"}, "too expensive to match"),
        ({"pattern": "a", "matcher": "sql"}, "'glob' or 'pcre'"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": None}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
    ],
)
@pytest.mark.parametrize("reply", [False, True])
def test_what_nodes_would_refuse_is_not_sent(options: dict[str, Any], hint: str, reply: bool) -> None:
    cluster = Cluster()

    with pytest.raises(CallerError, match=hint):
        cluster.control().broadcast(**{"command": "ping", "reply": reply, **options})

    assert cluster.broker.published == []


@pytest.mark.parametrize("reply", [False, True])
def test_a_command_that_the_broker_does_not_confirm_is_reported(reply: bool) -> None:
    class Unsure(MemoryConnection):
        def unconfirmed(self, timeout: float = 0.0) -> int:  # noqa: ARG002
            return 1

    broker = MemoryBroker()
    control = Control(lambda: Unsure(broker), settings=Settings(), clock=SharedClock(), hostname="gen7@web")

    with pytest.raises(
        ConnectionLost, match="the broker did not confirm the command 'shutdown'; the command may or"
    ):
        control.shutdown(reply=reply, timeout=SHORT)


# -- the clock


def test_every_request_is_stamped_and_later_than_the_one_before() -> None:
    cluster = Cluster()
    clock = SharedClock(41)
    control = cluster.control(clock)

    control.broadcast("ping")
    control.broadcast("ping")

    assert [message.headers["clock"] for _, message in cluster.broker.published] == [42, 43]


def test_a_reply_moves_the_clock_past_its_own() -> None:
    cluster = Cluster()
    cluster.peer("w1@web", lambda peer, request: peer.reply(request, PONG, clock=500))
    clock = SharedClock()

    cluster.control(clock).broadcast("ping", reply=True, timeout=SHORT)

    assert clock.value == 501


@pytest.mark.parametrize("bad", [2**63 - 1, 2**100, 2**52, MAX_JUMP * 2, "abc", [], True, -1])
def test_one_poisoned_node_does_not_move_the_clock_and_is_heard_all_the_same(bad: Any) -> None:
    cluster = Cluster()
    cluster.peer("w1@web", lambda peer, request: peer.reply(request, PONG, clock=bad))
    for n in range(2, 5):
        cluster.peer(f"w{n}@web", pong)
    clock = SharedClock()
    control = cluster.control(clock)

    for _ in range(3):
        replies = control.broadcast("ping", reply=True, timeout=SHORT)

    assert replies is not None
    assert len(replies) == 4
    assert clock.value < 100
    assert clock.rejected == {"w1@web": 3}


# -- replies that are not what they should be


@pytest.mark.parametrize(
    ("send", "reason"),
    [
        (lambda peer, request: peer.reply(request, PONG, ticket="another"), "ticket"),
        (lambda peer, request: peer.send(request, b"{"), "json"),
        (lambda peer, request: peer.send(request, b"\x80\x04."), "json"),
        (lambda peer, request: peer.send(request, b"[]"), "not-a-reply"),
        (lambda peer, request: peer.send(request, b"{}"), "not-a-reply"),
        (lambda peer, request: peer.send(request, b'{"a": 1, "b": 2}'), "not-a-reply"),
        (lambda peer, request: peer.send(request, b'{"\\u001b[2J": 1}'), "node"),
        (lambda peer, request: peer.send(request, b'{"w1@web": 1}', {"ticket": 7}), "ticket"),
        (lambda peer, request: peer.send(request, b"[" * 2_000_000), "size"),
        (lambda peer, request: peer.reply(request, nested(40)), "depth"),
        (lambda peer, request: peer.reply(request, [0] * 100_001), "items"),
        (lambda peer, request: peer.reply(request, "x" * 2**20), "size"),
    ],
)
def test_a_bad_reply_is_counted_and_spoils_no_other(
    send: Callable[[Peer, Request], object], reason: str
) -> None:
    cluster = Cluster()
    cluster.peer("w1@web", send)
    cluster.peer("w2@web", pong)
    control = cluster.control()

    replies = control.broadcast("ping", reply=True, timeout=SHORT)

    assert replies == [{"w2@web": PONG}]
    assert control.refused == {reason: 1}


def test_a_reply_of_who_was_not_asked_is_counted_and_takes_nobodys_place() -> None:
    cluster = Cluster()
    cluster.peer("w1@web", lambda peer, request: peer.reply(request, "forged", node="w9@web"))
    cluster.peer("w2@web", pong)
    control = cluster.control()

    replies = control.broadcast("ping", destination=["w2@web"], reply=True, timeout=60.0)

    assert replies == [{"w2@web": PONG}]
    assert control.refused == {"unasked": 1}


def test_a_reply_without_a_ticket_counts() -> None:
    cluster = Cluster()
    cluster.peer("w1@web", lambda peer, request: peer.reply(request, PONG, ticket=None))

    replies = cluster.control().broadcast("ping", reply=True, timeout=SHORT)

    assert replies == [{"w1@web": PONG}]


def test_two_nodes_of_one_name_both_answer() -> None:
    cluster = Cluster()
    cluster.peer("w1@web", lambda peer, request: [peer.reply(request, n) for n in (1, 2)])

    replies = cluster.control().broadcast("ping", reply=True, timeout=SHORT)

    assert replies == [{"w1@web": 1}, {"w1@web": 2}]


def test_two_nodes_of_one_name_do_not_hide_another() -> None:
    cluster = Cluster()
    cluster.peer("w1@web", lambda peer, request: [peer.reply(request, n) for n in (1, 2)])
    late = cluster.peer("w2@web")
    cluster.on_step = lambda: late.requests and late.reply(late.requests[0], PONG)

    replies = cluster.control().broadcast("ping", destination=["w1@web", "w2@web"], reply=True, timeout=60.0)

    assert replies == [{"w1@web": 1}, {"w1@web": 2}, {"w2@web": PONG}]


def test_a_flood_of_names_is_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_module, "MAX_NODES", 10)
    cluster = Cluster()
    cluster.peer(
        "w1@web", lambda peer, request: [peer.reply(request, n, node=f"w{n}@web") for n in range(50)]
    )
    control = cluster.control()

    replies = control.broadcast("ping", reply=True, timeout=SHORT)

    assert replies is not None
    assert len(replies) == 10
    assert control.refused == {"too-many": 40}


def test_a_flood_of_bytes_is_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_module, "MAX_REPLY_BYTES", 10_000)
    cluster = Cluster()
    cluster.peer("w1@web", lambda peer, request: [peer.reply(request, "x" * 1000) for _ in range(50)])
    control = cluster.control()

    replies = control.broadcast("ping", reply=True, timeout=SHORT)

    assert replies is not None
    assert len(replies) == 9
    assert control.refused == {"too-many": 41}


# -- the link


def test_a_lost_link_ends_the_wait_with_an_error() -> None:
    cluster = Cluster()
    asked = Event()
    cluster.peer("w1@web", lambda *_: asked.set())
    control = cluster.threaded_control()

    def cut() -> None:
        asked.wait(30.0)
        cluster.broker.cut()

    cutting = Thread(target=cut)
    cutting.start()

    with cluster.running(), pytest.raises(ConnectionLost):
        control.broadcast("ping", reply=True, timeout=60.0)
    cutting.join()


def test_no_broker_is_an_error_and_the_next_call_may_do_better() -> None:
    cluster = Cluster()
    control = cluster.threaded_control()
    cluster.broker.stop()

    with pytest.raises(ConnectionLost):
        control.ping(timeout=SHORT)
    cluster.broker.start()

    assert control.ping(timeout=0) == []


def test_many_threads_share_one_control() -> None:
    cluster = Cluster()
    names = [f"w{n}@web" for n in range(4)]
    for name in names:
        cluster.node(name)
    control = cluster.threaded_control()

    with cluster.running(), ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(control.ping, destination=names, timeout=60.0) for _ in range(40)]
        replies = [call.result() for call in calls]

    assert all(sorted(node for answer in reply for node in answer) == names for reply in replies)
    assert control.refused == {}


# -- the commands


@pytest.mark.parametrize(
    ("command", "method", "arguments"),
    [
        (lambda c: c.revoke("t1"), "revoke", {"task_id": "t1", "terminate": False, "signal": "SIGTERM"}),
        (
            lambda c: c.revoke(["t1", "t2"], terminate=True, signal="SIGKILL"),
            "revoke",
            {"task_id": ["t1", "t2"], "terminate": True, "signal": "SIGKILL"},
        ),
        (lambda c: c.terminate("t1"), "revoke", {"task_id": "t1", "terminate": True, "signal": "SIGTERM"}),
        (
            lambda c: c.revoke_by_stamped_headers({"order": ["7"]}),
            "revoke_by_stamped_headers",
            {"headers": {"order": ["7"]}, "terminate": False, "signal": "SIGTERM"},
        ),
        (
            lambda c: c.rate_limit("shop.pay", "5/m"),
            "rate_limit",
            {"task_name": "shop.pay", "rate_limit": "5/m"},
        ),
        (
            lambda c: c.time_limit("shop.pay", soft=5, hard=9),
            "time_limit",
            {"task_name": "shop.pay", "hard": 9, "soft": 5},
        ),
        (lambda c: c.pool_grow(2), "pool_grow", {"n": 2}),
        (lambda c: c.pool_shrink(), "pool_shrink", {"n": 1}),
        (
            lambda c: c.pool_restart(["shop"], reload=True),
            "pool_restart",
            {"modules": ["shop"], "reload": True, "reloader": None},
        ),
        (lambda c: c.autoscale(8, 2), "autoscale", {"max": 8, "min": 2}),
        (
            lambda c: c.add_consumer("fast", options={"expires": 5}),
            "add_consumer",
            {"queue": "fast", "exchange": None, "exchange_type": "direct", "routing_key": None, "expires": 5},
        ),
        (lambda c: c.cancel_consumer("fast"), "cancel_consumer", {"queue": "fast"}),
        (lambda c: c.enable_events(), "enable_events", {}),
        (lambda c: c.disable_events(), "disable_events", {}),
        (lambda c: c.heartbeat(), "heartbeat", {}),
        (lambda c: c.shutdown(), "shutdown", {}),
        (
            lambda c: c.election("e1", "task", {"task": "shop.pay"}, force=True),
            "election",
            {"id": "e1", "topic": "task", "action": {"task": "shop.pay"}},
        ),
    ],
)
def test_a_command_is_sent_as_celery_sends_it(
    command: Callable[[Control], object], method: str, arguments: dict[str, object]
) -> None:
    cluster = Cluster()

    returned = command(cluster.control())

    assert returned is None
    assert sent(cluster) == [
        {"method": method, "arguments": arguments, "destination": None, "pattern": None, "matcher": None}
    ]


def test_every_command_can_be_sent_to_some_and_be_answered() -> None:
    cluster = Cluster()
    cluster.node("w1@web", allow=("pool_grow",), pool_grow=lambda n: {"ok": f"{n} more"})
    cluster.node("w2@web", allow=("pool_grow",), pool_grow=lambda n: {"ok": f"{n} more"})

    replies = cluster.control().pool_grow(3, destination=["w2@web"], reply=True, timeout=60.0)

    assert replies == [{"w2@web": {"ok": "3 more"}}]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("of_ours", [0, 1, 5])
def test_an_election_among_few_of_celerys_is_refused(workers: int, of_ours: int) -> None:
    cluster = Cluster()
    for n in range(workers):
        cluster.peer(f"w{n}@web", elector)
    for n in range(of_ours):
        cluster.peer(f"ours{n}@web", our_elector)

    with pytest.raises(
        CallerError, match=rf"fewer than 3 Celery workers.* and {workers} answered.*force=True"
    ):
        cluster.control().election("e1", "task", timeout=SHORT)

    assert [body["method"] for body in sent(cluster)] == ["heartbeat", "ping"]


def test_an_election_that_nobody_would_hold_is_refused() -> None:
    cluster = Cluster()

    with pytest.raises(CallerError, match=r"no worker with gossip answered.*force=True"):
        cluster.control().election("e1", "task", timeout=SHORT)

    assert [body["method"] for body in sent(cluster)] == ["heartbeat", "ping"]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_election_among_few_of_ours_is_held(workers: int) -> None:
    cluster = Cluster()
    for n in range(workers):
        cluster.peer(f"w{n}@web", our_elector)

    cluster.control().election("e1", "task", timeout=SHORT)

    assert [body["method"] for body in sent(cluster)] == ["heartbeat", "ping", "election"]


def answering(value: object) -> Callable[[Peer, Request], Peer]:
    """Return a worker of ours that answers an election."""

    def answer(peer: Peer, request: Request) -> Peer:
        return peer.reply(request, value) if request.method == "election" else our_elector(peer, request)

    return answer


REFUSES = answering({"error": "task shop.pay is not listed in election_actions"})


def test_an_election_that_no_worker_may_act_in_is_refused_with_the_reasons() -> None:
    cluster = Cluster()
    cluster.peer("w1@web", REFUSES)
    cluster.peer("w2@web", REFUSES)
    cluster.peer("w3@web", answering({"error": "the worker runs without gossip"}))

    with pytest.raises(CallerError) as raised:
        cluster.control().election("e1", "task", timeout=SHORT)

    assert str(raised.value) == (
        "no worker can stand in the election 'e1': "
        "task shop.pay is not listed in election_actions (w1@web, w2@web); "
        "the worker runs without gossip (w3@web)"
    )


@pytest.mark.parametrize("other", [our_elector, answering({"ok": "takes part"}), answering(None)])
def test_an_election_that_one_worker_may_act_in_is_held(other: Callable[[Peer, Request], Peer]) -> None:
    cluster = Cluster()
    cluster.peer("w1@web", REFUSES)
    cluster.peer("w2@web", other)

    cluster.control().election("e1", "task", timeout=SHORT)

    assert [body["method"] for body in sent(cluster)] == ["heartbeat", "ping", "election"]


def test_a_worker_that_does_not_answer_may_act() -> None:
    cluster = Cluster()
    cluster.peer("w1@web", REFUSES)
    cluster.peer("w2@web", lambda peer, request: request.method != "election" and our_elector(peer, request))

    cluster.control().election("e1", "task", timeout=SHORT)


def test_a_worker_that_missed_the_count_and_may_act_ends_the_wait_too() -> None:
    cluster = Cluster()
    cluster.peer("w1@web", REFUSES)
    cluster.peer("w2@web", lambda peer, request: request.method == "election" and peer.reply(request, PONG))

    cluster.control().election("e1", "task", timeout=SHORT)

    assert [body["method"] for body in sent(cluster)] == ["heartbeat", "ping", "election"]


def test_an_election_that_no_worker_answers_may_or_may_not_be_held() -> None:
    cluster = Cluster()
    cluster.node("monitor@web")  # which answers that it has no such command
    cluster.peer("w1@web", lambda peer, request: request.method != "election" and our_elector(peer, request))

    with pytest.raises(
        CallerError, match=r"no worker answered the election 'e1'.*outcome is unknown.*timeout="
    ):
        cluster.control().election("e1", "task", timeout=SHORT)


def test_the_first_worker_that_may_act_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.peer("w1@web", our_elector)
    cluster.peer("w2@web", lambda peer, request: request.method != "election" and our_elector(peer, request))
    control = cluster.control()
    monkeypatch.setattr(control_module, "_check_electors", lambda *_: frozenset({"w1@web", "w2@web"}))
    only_one_wait(cluster)

    control.election("e1", "task", timeout=60.0)


def test_a_worker_that_answers_twice_may_act_if_one_answer_says_so() -> None:
    cluster = Cluster()
    cluster.peer("w1@web", lambda peer, request: [each(peer, request) for each in (REFUSES, our_elector)])

    cluster.control().election("e1", "task", timeout=SHORT)


def test_nodes_that_cannot_be_elected_do_not_end_the_wait_for_those_that_can() -> None:
    cluster = Cluster()
    for n in range(3):
        cluster.node(f"monitor{n}@web")
    cluster.peer("w1@web", REFUSES)

    with pytest.raises(CallerError, match="no worker can stand in the election"):
        cluster.control().election("e1", "task", timeout=SHORT)


def test_the_answers_of_ours_do_not_matter_where_celerys_workers_decide() -> None:
    cluster = Cluster()
    for n in range(3):
        cluster.peer(f"w{n}@web", elector)
    cluster.peer("ours@web", REFUSES)

    cluster.control().election("e1", "task", timeout=SHORT)

    assert "reply_to" not in sent(cluster)[-1]


def test_reasons_that_workers_give_are_bounded() -> None:
    cluster = Cluster()
    for n in range(50):
        cluster.peer(f"w{n}@web", answering({"error": f"{n}" + "x" * 100_000}))

    with pytest.raises(CallerError, match=r"and 47 more reasons") as raised:
        cluster.control().election("e1", "task", timeout=SHORT)

    assert len(str(raised.value)) < 2000


def test_a_signature_is_an_action_and_a_connection_is_taken() -> None:
    cluster = Cluster()
    connection = Stepping(cluster)

    cluster.control().election("e1", "task", Signature("shop.pay", (7,)), connection, force=True)

    (body,) = sent(cluster)
    assert body["arguments"]["action"]["task"] == "shop.pay"
    assert body["arguments"]["action"]["args"] == [7]


def test_the_usual_mode_is_not_told_and_another_is() -> None:
    cluster = Cluster()
    control = cluster.control()

    control.election("e1", "note", 1, force=True)
    control.election("e2", "note", 1, mode="takeover", force=True)

    assert [body["arguments"] for body in sent(cluster)] == [
        {"id": "e1", "topic": "note", "action": 1},
        {"id": "e2", "topic": "note", "action": 1, "mode": "takeover"},
    ]


@pytest.mark.parametrize(
    ("arguments", "options", "fix"),
    [
        (("", "task"), {}, "an election id has up to 180 printable characters"),
        (("e1", "a\nb"), {}, "printable"),
        (("e1", "task", object()), {}, "JSON"),
        (("e1", "task", "x" * 17_000), {}, "store it elsewhere and send a reference"),
        (("e1", "task"), {"mode": "lease"}, "app.leadership"),
        (("e1", "task"), {"mode": "always"}, "once or takeover"),
    ],
)
def test_an_election_that_no_node_would_take_part_in_is_refused(
    arguments: tuple[Any, ...], options: dict[str, Any], fix: str
) -> None:
    cluster = Cluster()

    with pytest.raises(CallerError, match=fix):
        cluster.control().election(*arguments, force=True, **options)

    assert sent(cluster) == []


def test_nodes_that_are_no_workers_elect_nobody() -> None:
    cluster = Cluster()
    cluster.peer("w1@web", elector)
    cluster.peer("w2@web", elector)
    for n in range(5):
        cluster.node(f"monitor{n}@web")

    with pytest.raises(CallerError, match="2 answered"):
        cluster.control().election("e1", "task", timeout=SHORT)


def test_workers_that_answer_with_an_error_elect_nobody() -> None:
    cluster = Cluster()
    for n in range(5):
        cluster.peer(f"w{n}@web", lambda peer, request: peer.beat().reply(request, {"error": "busy"}))

    with pytest.raises(CallerError, match="no worker with gossip answered"):
        cluster.control().election("e1", "task", timeout=SHORT)


def test_one_name_that_answers_three_times_is_one_worker() -> None:
    cluster = Cluster()
    cluster.peer("w1@web", lambda peer, request: [elector(peer, request) for _ in range(3)])

    with pytest.raises(CallerError, match="1 answered"):
        cluster.control().election("e1", "task", timeout=SHORT)


def test_an_election_among_three_is_held() -> None:
    cluster = Cluster()
    for n in range(3):
        cluster.peer(f"w{n}@web", elector)

    cluster.control().election("e1", "task", timeout=SHORT)

    assert [body["method"] for body in sent(cluster)] == ["heartbeat", "ping", "election"]
