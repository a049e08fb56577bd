"""How a worker meets others: mingle, gossip, heartbeats, and what a lost link does to them."""

import json
import logging
import os
from collections.abc import Callable, Iterator
from threading import Thread
from time import monotonic
from typing import Any

import pytest

from celeriac.config import Settings
from celeriac.core.membership import Liveness, Member
from celeriac.transport.memory import MemoryConnection
from celeriac.wire.control import Request, decode_request
from celeriac.wire.names import event_exchange, node_queue
from celeriac.worker.worker import Worker
from tests.builders import worker as worker_event
from tests.cluster import Peer
from tests.component.worker.kit import HOST, HandPool, Site, come_true

OTHER = "w2@lab"


class PeerThread:
    """A peer that answers while a worker runs."""

    def __init__(self, site: Site, answer: object, name: str = OTHER) -> None:
        self._site = site

        def reply(peer: Peer, request: Request) -> None:
            if request.method == "hello":
                peer.reply(request, answer)

        self.link = site.broker.connect()
        self.peer = Peer(name, self.link, reply)
        self._is_over = False
        self._thread = Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        while not self._is_over:
            self.link.drain(0.02)

    def __enter__(self) -> Peer:
        self._thread.start()
        return self.peer

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()
        self.link.close()


def say(site: Site, subject: str, **fields: Any) -> None:
    """Send an event of another node."""
    event = worker_event(subject, **{"hostname": OTHER, **fields})
    with site.app.connection() as link:
        link.publish(
            event_exchange("celeryev", "memory"), json.dumps(event).encode(), routing_key=f"worker.{subject}"
        )


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def worker(site: Site) -> Iterator[Worker]:
    with site.worker() as worker:
        yield worker


# -- mingle


def has_learnt(worker: Worker, condition: Callable[[], bool]) -> bool:
    """Have a worker say hello until it knows something: who is busy does not answer in time."""

    def is_learnt() -> bool:
        if not condition():
            worker.parts.mingle.greet_again()
        return condition()

    return come_true(is_learnt)


@pytest.mark.parametrize("revoked", [["a", "b"], {"a": 1.5, "b": 2.5}, {"a": [1.5, "a"], "b": [2.5, "b"]}])
def test_a_worker_takes_over_the_clock_and_the_revoked_tasks_of_its_neighbours(revoked: object) -> None:
    site = Site(worker_mingle_timeout=0.2)

    with PeerThread(site, {"clock": 5000, "revoked": revoked}), site.worker() as worker:
        assert has_learnt(worker, lambda: worker.parts.mingle.neighbours == (OTHER,))
        learnt, clock = list(worker.revoked), site.app.clock.value

    assert learnt == ["a", "b"]
    assert clock >= 5000


@pytest.mark.parametrize("answer", [None, 7, "x", {}, {"clock": "late"}, {"error": "KeyError('hello')"}])
def test_an_answer_that_makes_no_sense_spoils_nothing(
    answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(worker_mingle_timeout=0.2)

    with (
        PeerThread(site, answer),
        PeerThread(site, {"clock": 9, "revoked": ["a"]}, "w3@lab"),
        site.worker() as worker,
    ):
        complaint = f"mingle: invalid reply of node {OTHER} to hello"
        assert has_learnt(worker, lambda: list(worker.revoked) == ["a"] and complaint in caplog.text)


def test_the_neighbours_are_told_what_is_revoked_here(site: Site) -> None:
    worker = site.worker()
    worker.revoked.add("mine", now=monotonic())

    with PeerThread(site, {"clock": 1, "revoked": []}) as peer, worker:
        assert come_true(lambda: any(request.method == "hello" for request in peer.requests))
        hello = next(request for request in peer.requests if request.method == "hello")

    assert hello.arguments == {"from_node": HOST, "revoked": ["mine"]}


def test_two_workers_that_start_at_once_learn_of_each_other(site: Site) -> None:
    one, two = site.worker(HandPool()), site.worker(HandPool(), hostname=OTHER)
    one.revoked.add("a", now=monotonic())
    two.revoked.add("b", now=monotonic())
    # As if both had said hello before either could answer.
    one.parts.mingle._greet()
    two.parts.mingle._greet()
    for each in (one, two):
        each.parts.mingle.is_enabled = False
    with one, two:
        for each in (one, two):
            each.parts.mingle.is_enabled = True

        assert has_learnt(two, lambda: set(one.revoked) == set(two.revoked) == {"a", "b"})


def test_the_second_hello_is_said_once_a_worker_can_be_reached(site: Site) -> None:
    with PeerThread(site, {"clock": 1, "revoked": []}) as peer, site.worker():
        assert come_true(lambda: [request.method for request in peer.requests].count("hello") == 2)


def test_a_broker_that_goes_away_during_the_second_hello_harms_nobody(site: Site, worker: Worker) -> None:
    site.broker.stop()

    worker.parts.mingle.greet_again()

    site.broker.start()


# -- gossip


def test_who_joins_leaves_and_is_back_is_told_to_handlers(site: Site, worker: Worker) -> None:
    told: list[tuple[str, str]] = []
    worker.gossip.on_node_join.append(lambda member: told.append(("join", member.hostname)))
    worker.gossip.on_node_leave.append(lambda member: told.append(("leave", member.hostname)))

    say(site, "online", clock=10)
    say(site, "offline", clock=11)
    say(site, "online", clock=12)

    assert come_true(lambda: len(told) == 3)
    assert told == [("join", OTHER), ("leave", OTHER), ("join", OTHER)]


def test_a_handler_that_raises_harms_no_other(
    site: Site, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    def fail(member: Member) -> None:
        raise RuntimeError(member.hostname)

    worker.gossip.on_node_join += [fail, lambda member: told.append(member.hostname)]

    say(site, "online")

    assert come_true(lambda: told == [OTHER])
    assert "gossip: a handler failed for node" in caplog.text
    assert site.app.control.ping(timeout=120.0, limit=1) == [{HOST: {"ok": "pong"}}]


@pytest.mark.usefixtures("worker")
def test_the_clock_moves_past_that_of_others(site: Site) -> None:
    say(site, "heartbeat", clock=7000)

    assert come_true(lambda: site.app.clock.value > 7000)


def test_events_of_our_own_make_us_no_member_twice(site: Site, worker: Worker) -> None:
    before = site.app.clock.value

    worker.parts.heart.beat()

    assert come_true(lambda: site.app.clock.value >= before + 2)  # sent, and heard
    assert list(worker.gossip.membership.members) == [HOST]


def test_a_suspect_is_asked_for_a_sign_of_life_and_the_others_are_told(site: Site) -> None:
    worker = site.worker()
    asked: list[Request] = []
    link = site.broker.connect()
    link.subscribe(node_queue(Settings(), OTHER), lambda message: asked.append(decode_request(message)))
    with worker:
        gossip = worker.gossip
        say(site, "online", pid=7)
        assert come_true(lambda: OTHER in gossip.membership.members)
        gossip.membership.members[OTHER].heard_at -= 60

        assert come_true(lambda: site.events("cluster-suspect"))
        assert come_true(lambda: link.drain(0.1) >= 0 and any(each.method == "heartbeat" for each in asked))

        assert gossip.membership.members[OTHER].state is Liveness.SUSPECT
    (suspect,) = site.events("cluster-suspect")
    assert (suspect["suspect"], suspect["suspect_pid"]) == (OTHER, 7)
    beats = [each for each in asked if each.method == "heartbeat"]
    assert beats[0].destination == (OTHER,)


def test_a_silent_node_is_lost(site: Site, worker: Worker) -> None:
    lost: list[str] = []
    worker.gossip.on_node_lost.append(lambda member: lost.append(member.hostname))
    say(site, "online")
    assert come_true(lambda: OTHER in worker.gossip.membership.members)
    member = worker.gossip.membership.members[OTHER]

    member.heard_at -= 60
    assert come_true(lambda: member.state is Liveness.SUSPECT)
    member.suspect_at -= 60

    assert come_true(lambda: lost == [OTHER])


def test_nobody_is_lost_while_there_is_no_link(site: Site, worker: Worker) -> None:
    lost: list[str] = []
    worker.gossip.on_node_lost.append(lambda member: lost.append(member.hostname))
    say(site, "online")
    assert come_true(lambda: OTHER in worker.gossip.membership.members)

    site.broker.stop()
    assert come_true(lambda: not worker.gossip.membership.health.is_connected)
    worker.gossip.membership.members[OTHER].heard_at -= 60
    for _ in range(20):
        worker.gossip._carry_out(worker.gossip._gossip.tick(monotonic()))

    assert lost == []
    assert worker.gossip.membership.members[OTHER].state is Liveness.ALIVE
    site.broker.start()


# -- heart


def test_a_heartbeat_tells_how_much_a_worker_does() -> None:
    site = Site(worker_heartbeat_interval=0.1)
    site.task("shop.pay")
    with site.worker() as worker:
        site.post()
        job = site.pool.begin()

        assert come_true(lambda: any(event["active"] for event in site.events("worker-heartbeat")))
        site.pool.end(job)
        assert come_true(lambda: worker.desk.ended)

    beat = next(event for event in site.events("worker-heartbeat") if event["active"])
    assert (beat["hostname"], beat["pid"], beat["freq"]) == (HOST, os.getpid(), 0.1)
    assert (beat["active"], beat["processed"], len(beat["loadavg"])) == (1, 1, 3)
    assert (beat["sw_ident"], beat["sw_ver"], beat["sw_sys"]) == ("py-celeriac", "1.0", "Linux")
    assert len(site.events("worker-heartbeat")) >= 1


def test_a_worker_says_when_it_comes_and_when_it_goes(site: Site) -> None:
    with site.worker():
        pass

    told = [event["type"] for event in site.events() if event["type"] != "worker-heartbeat"]
    assert told == ["worker-online", "worker-offline"]


@pytest.mark.usefixtures("worker")
def test_a_heartbeat_is_sent_on_request(site: Site) -> None:
    before = len(site.events("worker-heartbeat"))

    site.app.control.heartbeat()

    assert come_true(lambda: len(site.events("worker-heartbeat")) > before)
    assert site.events("worker-heartbeat")[-1]["active"] == 0


# -- a lost link


def test_after_a_lost_link_a_worker_says_that_it_is_there_and_hello_again(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with site.worker() as worker:
        site.broker.cut()

        assert come_true(lambda: len(site.events("worker-online")) == 2)
        assert come_true(lambda: "cluster: reconnected to other nodes" in caplog.text)
        say(site, "online")
        assert come_true(lambda: OTHER in worker.gossip.membership.members)
        assert site.app.control.ping(timeout=120.0, limit=1) == [{HOST: {"ok": "pong"}}]
    hellos = [message for where, message in site.broker.published if b'"hello"' in message.body]
    assert len(hellos) >= 3


def test_a_link_that_is_lost_again_while_it_is_mended_is_mended_again(site: Site) -> None:
    worker = site.worker()
    with worker:
        opened = 0
        connect = worker.parts.connection._connect

        def flaky() -> MemoryConnection:
            nonlocal opened
            opened += 1
            link = connect()
            assert isinstance(link, MemoryConnection)
            if opened == 1:
                link.open()
                site.broker.cut()  # this link, too, which its owner notices with the first step that uses it
            return link

        worker.parts.connection._connect = flaky
        site.broker.cut()

        assert come_true(lambda: opened >= 2)
        worker.parts.connection._connect = connect
        assert come_true(lambda: worker._cluster._is_connected)
        assert site.app.control.ping(timeout=120.0, limit=1) == [{HOST: {"ok": "pong"}}]


def test_what_goes_wrong_in_a_turn_does_not_end_the_thread(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("celeriac.worker.cluster._PAUSE", 0.01)
    worker = site.worker()
    with worker:
        tick, failures = worker.gossip.tick, [ValueError("odd")] * 3

        def fail(now: float) -> float:
            if failures:
                raise failures.pop()
            return tick(now)

        worker.gossip.tick = fail  # type: ignore[method-assign]

        assert come_true(lambda: not failures)
        assert site.app.control.ping(timeout=120.0, limit=1) == [{HOST: {"ok": "pong"}}]
    assert "a handler failed; continuing" in caplog.text
