"""Gossip: what an event of another node moves, and what one of our own does not."""

from typing import Any

import pytest
from msgspec.structs import replace

from celeriac.core.clock import LamportClock
from celeriac.core.gossip import Effect, ElectionHeard, Gossip, suspicion_fields
from celeriac.core.membership import Joined, Left, Lost, Membership, Suspected
from celeriac.core.state import ClusterState
from celeriac.model.events import Event
from celeriac.wire.event import Gate
from tests.builders import AT, WORKER, as_kombu_reads, only, task, worker

US = "us@here"
PID = 19036


class Node:
    """A node that hears events, in a time of its own."""

    def __init__(self, clock: int = 0) -> None:
        self.clock = LamportClock(clock)
        self.state = ClusterState(now=lambda: AT)
        self.membership = Membership(US)
        self.gossip = Gossip(US, clock=self.clock, state=self.state, membership=self.membership)

    def hear(self, event: dict[str, Any], now: float = 0.0) -> list[Effect]:
        return self.gossip.receive(read(event), now, received_at=AT)


def read(event: dict[str, Any]) -> Event:
    converted = Gate().convert(as_kombu_reads(event))
    return only(None if converted is None else converted[0])


def other(kind: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "hostname": WORKER,
        "pid": PID,
        "clock": 30,
        "timestamp": AT,
        "utcoffset": 0,
        **fields,
    }


def wait(node: Node, begin: float, end: float) -> list[Effect]:
    effects: list[Effect] = []
    for number in range(int((end - begin) * 2) + 1):
        effects += node.gossip.tick(begin + number / 2)
    return effects


def test_an_event_of_another_node_moves_clock_state_and_membership() -> None:
    node = Node()

    effects = node.hear(worker("heartbeat", clock=25))

    assert effects == [Joined(WORKER, PID)]
    assert node.clock.value == 26
    assert node.state.workers[WORKER].processed == 7


def test_an_event_of_our_own_only_forwards_the_clock() -> None:
    node = Node(clock=5)

    effects = node.hear(worker("heartbeat", hostname=US, clock=25))

    assert effects == []
    assert node.clock.value == 6
    assert not node.state.workers


def test_an_event_of_our_own_is_the_echo_of_a_heartbeat() -> None:
    node = Node()
    node.membership.beat(25, 0.0)

    node.hear(worker("heartbeat", hostname=US, clock=25))
    wait(node, 0.0, 10.0)

    assert node.membership.health.score == 0


def test_a_farewell_is_a_leave() -> None:
    node = Node()
    node.hear(worker("online", clock=25))

    effects = node.hear(worker("offline", clock=26))

    assert effects == [Left(WORKER, PID)]


def test_a_poisoned_clock_neither_moves_ours_nor_makes_true_ones_stale() -> None:
    node = Node()
    node.hear(worker("online", clock=25))
    node.hear(worker("heartbeat", clock=2**53 - 1, timestamp=AT + 1))

    effects = node.hear(worker("offline", clock=27, timestamp=AT + 2))

    assert effects == [Left(WORKER, PID)]
    assert node.clock.value < 100


def test_a_heartbeat_on_request_does_not_widen_the_window() -> None:
    node = Node()
    node.hear(worker("heartbeat", clock=25))

    node.hear(other("worker-heartbeat", freq=5.0))

    assert node.membership.members[WORKER].freq == 2.0


@pytest.mark.parametrize("kind", ["worker-elect", "worker-elect-ack", "cluster-elected", "cluster-resign"])
def test_an_election_moves_the_clock_and_no_attribute_of_a_worker(kind: str) -> None:
    node = Node()
    node.hear(worker("online", clock=25))

    effects = node.hear(other(kind, id="e1", topic="task", action=None, cver=1, active=99))

    assert [type(effect) for effect in effects] == [ElectionHeard]
    assert node.clock.value == 31
    assert node.state.workers[WORKER].active == 1


def test_an_election_is_a_sign_of_life() -> None:
    node = Node()

    effects = node.hear(other("worker-elect", id="e1"))

    assert effects[0] == Joined(WORKER, PID)


@pytest.mark.parametrize("kind", ["worker-elect", "worker-elect-ack", "cluster-elected", "cluster-resign"])
def test_what_we_say_of_an_election_comes_back_to_us(kind: str) -> None:
    node = Node()

    effects = node.hear(other(kind, id="e1", hostname=US))

    assert [type(effect) for effect in effects] == [ElectionHeard]
    assert node.clock.value == 1
    assert US not in node.state.workers


def test_what_else_we_say_is_nothing_new_to_us() -> None:
    node = Node()

    effects = node.hear(worker("heartbeat", hostname=US))

    assert effects == []


def test_task_events_are_signs_of_life() -> None:
    node = Node()
    node.hear(worker("heartbeat", clock=25), now=0.0)

    node.hear(task("started", clock=30), now=5.0)

    assert node.membership.members[WORKER].heard_at == 5.0
    assert node.clock.value == 31
    assert "t1" in node.state.tasks


def test_a_client_is_no_member_and_its_clock_is_not_used() -> None:
    node = Node(clock=10)

    effects = node.hear(task("sent", clock=9000))

    assert effects == []
    assert node.clock.value == 11
    assert list(node.membership.members) == [US]


def test_the_suspicion_of_another_node_confirms_ours() -> None:
    node = Node()
    node.hear(worker("heartbeat", clock=25))
    node.hear(worker("heartbeat", clock=25, hostname="witness@there"))
    told = suspicion_fields(Suspected(WORKER, PID, phi=9.0, silence=7.0))

    node.hear(other("cluster-suspect", hostname="witness@there", **told))

    assert node.membership.members[WORKER].confirmed_by == {"witness@there"}


@pytest.mark.parametrize(
    "told", [{}, {"suspect": 7, "suspect_pid": PID}, {"suspect": WORKER, "suspect_pid": "7"}]
)
def test_a_suspicion_that_cannot_be_read_confirms_nothing(told: dict[str, Any]) -> None:
    node = Node()
    node.hear(worker("heartbeat", clock=25))
    node.hear(worker("heartbeat", clock=25, hostname="witness@there"))

    node.hear(other("cluster-suspect", hostname="witness@there", **told))

    assert node.membership.members[WORKER].confirmed_by == set()


def test_an_unknown_event_between_workers_is_a_sign_of_life_and_nothing_more() -> None:
    node = Node()

    effects = node.hear(other("worker-mood", active=99))

    assert effects == [Joined(WORKER, PID)]
    assert not node.state.workers


def test_an_event_of_an_unknown_group_only_moves_the_clock() -> None:
    node = Node()

    effects = node.hear(other("shop-opened"))

    assert effects == []
    assert node.clock.value == 31
    assert list(node.membership.members) == [US]


def test_time_passes_for_the_membership_too() -> None:
    node = Node()
    node.hear(worker("heartbeat", clock=25), now=0.0)

    effects = wait(node, 0.0, 10.0)

    assert [type(effect) for effect in effects] == [Suspected, Lost]


def test_the_moment_of_receipt_in_the_event_is_used_where_none_is_given() -> None:
    node = Node()
    event = replace(read(worker("heartbeat")), local_received=AT + 1)

    node.gossip.receive(event, 0.0)

    assert node.state.workers[WORKER].heartbeats == [AT + 1]
