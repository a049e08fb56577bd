"""A worker is asked for its queues and its pool; that it does not answer, or refuses, is told."""

import pytest

from celeriac.node import worker_setup
from celeriac.node.worker_setup import ask_setup
from celeriac.wire.control import Request
from tests.cluster import Cluster, Peer

ANSWERS = {"active_queues": [{"name": "celery"}, {"name": "mail"}], "stats": {"pool": {"max-concurrency": 4}}}


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nobody wait: what is said in memory is said at once."""
    monkeypatch.setattr(worker_setup, "_PATIENCE", 0.02)


def told(peer: Peer, request: Request) -> None:
    peer.reply(request, ANSWERS.get(request.method))


def told_of_queues_alone(peer: Peer, request: Request) -> None:
    if request.method == "active_queues":
        told(peer, request)


def refused(peer: Peer, request: Request) -> None:
    peer.reply(request, {"error": "not allowed"})


def test_one_worker_is_asked_for_its_queues_and_the_size_of_its_pool() -> None:
    cluster = Cluster()
    cluster.peer("w1@web", told)
    cluster.peer("w2@web", refused)

    setup = ask_setup(cluster.control(), "w1@web")

    assert setup[:3] == (("celery", "mail"), 4, "")


def test_a_worker_that_does_not_answer_or_refuses_is_told_as_such() -> None:
    cluster = Cluster()
    cluster.peer("w2@web", refused)
    cluster.peer("w3@web", told_of_queues_alone)

    setups = [ask_setup(cluster.control(), f"w{number}@web") for number in (1, 2, 3)]

    assert [each[:3] for each in setups] == [
        (None, None, "no reply"),
        (None, None, "error reply: not allowed"),
        (("celery", "mail"), None, "no reply"),
    ]
