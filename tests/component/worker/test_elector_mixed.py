"""Workers of ours in elections of Celery's workers, of which a test sends the events."""

import json
from time import monotonic
from typing import Any

import pytest

from celeriac.model.message import Message
from tests.builders import worker as worker_event
from tests.component.worker.hall import TOPIC, Hall
from tests.component.worker.kit import come_true

CELERY = "c1@lab"
#: Lower than that of any clock of ours here.
EARLY, LATE = 1, 2**40


def beat(hall: Hall, hostname: str = CELERY, ident: str = "py-celery") -> None:
    """Let a worker of Celery's be there."""
    hall.say("heartbeat", hostname, sw_ident=ident, pid=7, clock=1)
    assert come_true(lambda: all(f"{hostname}.7" in each.gossip.peers() for each in hall.workers))


def stand(hall: Hall, id_: str = "e1", *, clock: int = EARLY, topic: str = TOPIC, **fields: Any) -> None:
    """Let a worker of Celery's stand."""
    told = {"id": id_, "topic": topic, "action": None, "cver": 1, "pid": 7, "clock": clock, **fields}
    hall.say("elect", CELERY, **told)


def nominated(hall: Hall, id_: str = "e1") -> list[str]:
    """Return who of ours stood."""
    return [
        each["hostname"]
        for each in hall.site.events("worker-elect")
        if each["id"] == id_ and each.get("x") == 2
    ]


def acknowledged(hall: Hall, id_: str = "e1") -> set[str]:
    return {each["hostname"] for each in hall.site.events("worker-elect-ack") if each["id"] == id_}


@pytest.mark.parametrize("clock", [EARLY, LATE])
def test_beside_a_worker_of_celerys_ours_stand_and_follow(clock: int) -> None:
    with Hall().running() as hall:
        beat(hall)
        stand(hall, clock=clock)
        hall.call("e1")
        assert come_true(lambda: hall.is_over("e1"))
        stats = hall.workers[0].parts.elector.stats()

    assert hall.acted == []
    assert sorted(nominated(hall)) == ["w1@lab", "w2@lab", "w3@lab"]
    assert acknowledged(hall) == {"w1@lab", "w2@lab", "w3@lab"}
    assert stats["mixed"] == 1


def test_who_may_not_act_stands_for_company_and_no_more() -> None:
    with Hall().running() as hall:
        beat(hall)
        stand(hall, topic="task", action={"task": "evil.run"})
        assert come_true(lambda: hall.is_over("e1"))

    assert hall.site.posted() == []
    assert sorted(nominated(hall)) == ["w1@lab", "w2@lab", "w3@lab"]


def test_at_level_0_ours_act_too_if_they_are_preferred() -> None:
    with Hall(election_min_level="L0").running() as hall:
        beat(hall)
        stand(hall, clock=LATE)
        hall.call("e1")
        assert come_true(lambda: hall.is_over("e1"))

    assert len(hall.winners("e1")) == 1


def test_at_level_0_celerys_is_let_win_if_it_is_preferred() -> None:
    with Hall(election_min_level="L0").running() as hall:
        beat(hall)
        stand(hall)
        hall.call("e1")
        assert come_true(lambda: hall.is_over("e1"))

    assert hall.acted == []


def test_where_celerys_are_there_and_do_not_stand_ours_act() -> None:
    with Hall().running() as hall:
        beat(hall)
        hall.call("e1")
        assert come_true(lambda: hall.is_over("e1"))

    assert len(hall.winners("e1")) == 1


def test_who_refuses_takes_no_part_where_celerys_are_there(caplog: pytest.LogCaptureFixture) -> None:
    with Hall(election_mixed="refuse").running() as hall:
        beat(hall)
        hall.call("e1")
        stand(hall)
        stand(hall, "e2")
        hall.workers[0].gossip.election("e3", TOPIC)  # of its own, in which nobody else stands
        assert come_true(lambda: hall.phases("e3")[0] == "done")

    assert [each.mandate.id for each in hall.acted] == ["e3"]
    assert nominated(hall) == nominated(hall, "e2") == []
    assert acknowledged(hall) == set()
    assert any(
        "Celery workers are present, and election_mixed is refuse: set it to" in each
        for each in caplog.messages
    )


def test_who_refuses_gives_up_when_it_hears_of_a_candidate_of_celerys() -> None:
    hall = Hall(election_mixed="refuse")
    hall.arbiter.arbiter.claim("election/e1", "another", ttl=3600, mode="takeover")
    with hall.running():
        hall.call("e1", mode="takeover")
        assert come_true(lambda: hall.phases("e1") == ["watching"] * 3)

        stand(hall)
        assert come_true(lambda: hall.is_over("e1"))

    assert hall.acted == []


def test_who_refuses_acts_among_its_own() -> None:
    with Hall(election_mixed="refuse").running() as hall:
        hall.call("e1")
        assert come_true(lambda: hall.is_over("e1"))

    assert len(hall.winners("e1")) == 1


def test_nothing_that_nodes_say_makes_one_act_on_what_is_not_allowed() -> None:
    hall = Hall(1)
    (worker,) = hall.workers
    elect = {"id": "e1", "topic": "task", "action": {"task": "evil.run"}, "cver": 1}
    won = {"eid": "e1", "inc": "w9@lab.9.abc", "winner": "w9@lab", "token": 3, "expires_in": 0}
    now = monotonic()

    for kind, fields in (
        ("worker-elect", elect | {"x": 2, "mode": "takeover"}),
        ("worker-elect", elect),  # as Celery's say it: ours stand for company
        ("cluster-elected", won),
        ("cluster-resign", {"resource": "e1", "owner": "w9@lab.9.abc", "token": 3}),
    ):
        event = worker_event("x", hostname="w9@lab") | {"type": kind} | fields
        worker.gossip.receive(Message(json.dumps(event).encode()))
    for _ in range(10):
        now += 10
        worker.parts.elector.tick(now)

    assert hall.phases("e1") == ["following"]
    assert hall.arbiter.asked == []
    assert hall.site.posted() == []
