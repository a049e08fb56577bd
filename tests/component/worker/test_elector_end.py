"""Many elections at a time, and what becomes of them when a worker ends."""

from threading import Event
from threading import enumerate as all_threads

from celeriac.model.election import Mode, RecordState
from celeriac.worker.elector import election_key
from tests.component.worker.hall import Acted, Hall
from tests.component.worker.kit import PATIENCE, come_true


def election_threads() -> int:
    """Return how many threads ask and act for elections."""
    names = ("celeriac-arbiter", "celeriac-ender", "celeriac-election")
    return len([each for each in all_threads() if each.name.startswith(names)])


def test_many_elections_at_a_time_take_few_threads() -> None:
    ids = [f"e{number}" for number in range(200)]
    most = 0
    full = Event()

    def act(_: Acted) -> None:
        nonlocal most
        most = max(most, election_threads())
        if len(hall.acted) >= 8:
            full.set()
        full.wait(PATIENCE)

    hall = Hall(2, act=act)
    with hall.running():
        for id_ in ids:
            hall.call(id_)
        assert come_true(lambda: hall.is_over(*ids))

    assert {len(hall.winners(id_)) for id_ in ids} == {1}
    assert 8 <= most <= 2 * (8 + 2 + 2)
    assert come_true(lambda: election_threads() == 0)


def test_what_it_tells_of_elections_is_in_its_statistics() -> None:
    with Hall(1).running() as hall:
        hall.call("e1")
        assert come_true(lambda: hall.is_over("e1"))
        stats = hall.workers[0].parts.elector.stats()

    assert stats == {"level": "L3", "min-level": "L2", "phases": {"done": 1}, "mixed": 0, "turned-away": 0}


def test_a_worker_that_stops_ends_what_it_acts_on() -> None:
    acting, going_on = Event(), Event()

    def act(_: Acted) -> None:
        acting.set()
        going_on.wait(PATIENCE)

    hall = Hall(1, act=act)
    with hall.running():
        hall.call("e1")
        assert acting.wait(PATIENCE)
        hall.workers[0].stop()
        going_on.set()

    assert hall.arbiter.read(election_key("e1")).state is RecordState.DONE


def test_a_worker_that_stops_while_it_claims_acts_on_what_it_is_granted() -> None:
    claiming, going_on = Event(), Event()
    hall = Hall(1)

    def answer_late(*args: object, **kwargs: object) -> object:
        claiming.set()
        going_on.wait(PATIENCE)
        return hall.arbiter.arbiter.claim(*args, **kwargs)

    hall.arbiter.instead["claim"] = answer_late
    with hall.running():
        hall.call("e1")
        assert claiming.wait(PATIENCE)
        hall.workers[0].stop()
        assert come_true(lambda: hall.workers[0].parts.elector._is_closing)
        going_on.set()

    assert hall.winners("e1") == ["w1@lab"]
    assert hall.arbiter.read(election_key("e1")).state is RecordState.DONE


def test_a_worker_that_stops_leaves_what_is_open_to_others() -> None:
    acting, going_on = Event(), Event()

    def act(_: Acted) -> None:
        acting.set()
        going_on.wait(PATIENCE)

    hall = Hall(1, act=act)
    hall.arbiter.arbiter.claim(election_key("e1"), "another", ttl=3600, mode=Mode.TAKEOVER)
    with hall.running():
        hall.call("e1", mode="takeover")
        hall.call("e2")
        assert acting.wait(PATIENCE)
        assert come_true(lambda: hall.phases("e1") == ["watching"])

        hall.workers[0].stop()
        left = come_true(lambda: hall.phases("e1") == ["following"])
        going_on.set()

    assert left
    assert hall.winners("e1") == []


def test_a_worker_that_must_end_now_does_not_wait_for_a_handler() -> None:
    acting, going_on = Event(), Event()

    def act(_: Acted) -> None:
        acting.set()
        going_on.wait(PATIENCE)

    hall = Hall(1, act=act)
    with hall.running():
        hall.call("e1")
        assert acting.wait(PATIENCE)
        hall.workers[0].stop_now()

    assert hall.arbiter.read(election_key("e1")).state is RecordState.HELD
    going_on.set()
