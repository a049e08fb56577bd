"""A leader knows when it leads no more, and gives it up in good order."""

from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from celeriac.app import Celeriac
from celeriac.errors import CallerError, ConnectionLost
from celeriac.node import leadership as leadership_module
from celeriac.node import term as term_module
from celeriac.transport import memory_arbiter
from celeriac.transport.memory import MemoryBroker
from tests.fickle import PATIENCE, Fickle, come_true, lead, leader_threads, raising


class Clock:
    """A clock that goes on when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def app(broker: MemoryBroker) -> Iterator[Celeriac]:
    app = Celeriac(broker, environ={})
    yield app
    app.close()
    assert come_true(lambda: not leader_threads()), "a thread of a leader was left"


@pytest.fixture
def fickle(app: Celeriac) -> Fickle:
    return Fickle(app.arbiter)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (leadership_module, term_module, memory_arbiter):
        monkeypatch.setattr(module, "monotonic", clock)
    return clock


# -- losing it


def test_at_its_deadline_it_leads_no_more_though_no_thread_says_so(fickle: Fickle, clock: Clock) -> None:
    hanging, going_on = Event(), Event()

    def hang(*_: object, **__: object) -> bool:
        hanging.set()
        going_on.wait(PATIENCE)
        return True

    fickle.instead["renew"] = hang
    leader = lead(fickle, ttl=0.5)
    leader.elect()
    clock.now += 0.2  # it is time to renew
    assert hanging.wait(PATIENCE)

    clock.now += 0.5 * 0.94 - 0.2 - 0.001
    before = leader.is_leader(), leader.time_left() > 0
    clock.now += 0.002
    after = leader.is_leader(), leader.time_left() > 0

    assert before == (True, True)
    assert after == (False, False)
    going_on.set()
    leader.resign()


def test_a_renewal_counts_from_when_it_was_asked_for(fickle: Fickle, clock: Clock) -> None:
    def answer_late(*_: object, **__: object) -> bool:
        clock.now += 0.4
        return True

    fickle.instead["renew"] = answer_late
    leader = lead(fickle, ttl=60)
    leader.elect()
    asked_at = clock.now
    clock.now += 20

    leader._term._woken.set()  # type: ignore[union-attr]  # as if it had slept for so long

    assert come_true(lambda: "renew" in fickle.asked and leader._term._candidacy.deadline > 1060)  # type: ignore[union-attr]
    assert leader._term.deadline == pytest.approx(asked_at + 20 + 60 * 0.94)  # type: ignore[union-attr]
    leader.resign()


def test_a_grant_that_comes_too_late_is_not_used(fickle: Fickle, clock: Clock) -> None:
    def answer_late(*args: Any, **kwargs: Any) -> object:
        del fickle.instead["claim"]
        granted = fickle.arbiter.claim(*args, **kwargs)
        clock.now += 10
        return granted

    fickle.instead["claim"] = answer_late
    leader = lead(fickle, ttl=0.5)

    led = leader.elect()

    assert led
    assert leader.time_left() > 0
    assert fickle.asked.count("claim") == 2
    leader.resign()


def test_who_is_told_that_it_is_anothers_steps_down(fickle: Fickle) -> None:
    reasons: list[str] = []
    fickle.instead["renew"] = lambda *_, **__: False
    leader = lead(fickle, ttl=6, on_step_down=reasons.append)

    leader.elect()

    assert come_true(lambda: reasons)
    assert reasons == ["lost to another node"]
    assert come_true(lambda: not leader_threads())
    assert not leader.is_leader()


def test_who_cannot_renew_steps_down_and_stays_so_until_it_enters_again(
    fickle: Fickle, caplog: pytest.LogCaptureFixture
) -> None:
    reasons: list[str] = []
    fickle.instead["renew"] = raising(ConnectionLost("away"))
    leader = lead(fickle, ttl=0.5, on_step_down=reasons.append)
    leader.elect()
    first = leader.token

    ended = come_true(lambda: not leader_threads())
    fickle.instead.clear()
    led_between = leader.is_leader()
    led_again = leader.elect()

    assert ended
    assert reasons == ["not renewed in time"]
    assert not led_between
    assert led_again
    assert leader.token > first
    assert "leadership 'report': lost: not renewed in time" in caplog.messages
    leader.resign()


def test_a_fault_of_the_arbiter_ends_a_term_in_good_order(app: Celeriac, fickle: Fickle) -> None:
    reasons: list[str] = []
    fickle.instead["renew"] = raising(RuntimeError("a bug"))

    lead(fickle, ttl=0.5, on_step_down=reasons.append).elect()

    assert come_true(lambda: not leader_threads())
    assert reasons == ["not renewed in time"]
    assert fickle.asked[-1] == "release"
    assert app.arbiter.leases() == []


# -- giving it up


def test_who_steps_down_is_told_before_others_can_lead(app: Celeriac) -> None:
    seen: list[object] = []

    def step_down(reason: str) -> None:
        seen.extend([reason, leader.is_leader(), app.leadership("report").elect(timeout=0)])

    leader = app.leadership("report", on_step_down=step_down)
    leader.elect()

    leader.resign()

    assert seen == ["resigned", False, False]
    assert app.arbiter.leases() == []


def test_who_takes_too_long_to_step_down_is_not_waited_for(
    app: Celeriac, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(term_module, "_STEP_DOWN_PATIENCE", 0.01)
    going_on, ended = Event(), Event()

    def take_long(_: str) -> None:
        going_on.wait(PATIENCE)
        ended.set()

    leader = app.leadership("report", on_step_down=take_long)
    leader.elect()

    leader.resign()
    leases = app.arbiter.leases()

    assert leases == []
    assert not ended.is_set()
    going_on.set()
    assert ended.wait(PATIENCE)


def test_a_fault_in_stepping_down_keeps_nothing(app: Celeriac, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: str) -> None:
        raise ValueError("planned")

    leader = app.leadership("report", on_step_down=fail)
    leader.elect()

    leader.resign()

    assert app.arbiter.leases() == []
    assert "leadership 'report': the on_lost callback failed" in caplog.messages


def test_who_cannot_release_it_is_not_kept(fickle: Fickle, app: Celeriac) -> None:
    fickle.instead["release"] = raising(ConnectionLost("away"))
    leader = lead(fickle)
    leader.elect()

    leader.resign()

    assert not leader.is_leader()
    assert come_true(lambda: not leader_threads())
    assert len(app.arbiter.leases()) == 1  # until it expires


def test_to_resign_twice_is_to_resign(app: Celeriac) -> None:
    leader = app.leadership("report")
    leader.elect()

    leader.resign()
    leader.resign()

    assert not leader.is_leader()


def test_an_error_inside_gives_it_up_and_goes_on(app: Celeriac) -> None:
    with pytest.raises(LookupError), app.leadership("report"):
        raise LookupError

    assert app.arbiter.leases() == []


# -- notes


def test_what_a_leader_leaves_the_next_one_finds(app: Celeriac) -> None:
    with app.leadership("report") as first:
        left = first.leave_note(b"page 7")
        own = first.note

    with app.leadership("report") as second:
        found = second.note

    assert left
    assert own == found == b"page 7"


def test_who_does_not_lead_leaves_nothing(fickle: Fickle) -> None:
    leader = lead(fickle)
    never = leader.leave_note(b"x")
    with leader:
        pass

    after = leader.leave_note(b"x")

    assert not never
    assert not after
    assert "renew" not in fickle.asked


def test_who_finds_by_a_note_that_it_is_lost_leads_no_more(fickle: Fickle) -> None:
    reasons: list[str] = []
    leader = lead(fickle, on_step_down=reasons.append)
    leader.elect()
    fickle.instead["renew"] = lambda *_, **__: False

    left = leader.leave_note(b"x")
    led = leader.is_leader()

    assert not left
    assert not led
    assert leader.note == b""
    assert come_true(lambda: reasons == ["lost to another node"])


def test_a_note_that_may_be_left_or_not_is_told(fickle: Fickle) -> None:
    leader = lead(fickle)
    leader.elect()
    fickle.instead["renew"] = raising(ConnectionLost("away"))

    with pytest.raises(ConnectionLost):
        leader.leave_note(b"x")

    assert leader.is_leader()
    leader.resign()


def test_a_note_that_is_too_long_is_refused(app: Celeriac) -> None:
    with app.leadership("report") as leader:
        with pytest.raises(CallerError, match="65,536"):
            leader.leave_note(b"x" * 70_000)

        assert leader.is_leader()
