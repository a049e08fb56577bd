"""One of all that ask for a name leads."""

import os
import signal
from collections.abc import Iterator
from threading import Barrier, Thread, main_thread
from typing import Any

import pytest

from celeriac.app import Celeriac
from celeriac.errors import AccessRefused, CallerError, ConnectionLost, ImproperlyConfigured
from celeriac.model.election import Level, Mode
from celeriac.transport.memory import MemoryBroker
from tests.fickle import KEY, PATIENCE, Fickle, come_true, lead, leader_threads, raising


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


# -- leading


def test_whoever_enters_leads_until_it_leaves(app: Celeriac) -> None:
    leader = app.leadership("report")

    with leader as entered:
        led = entered.is_leader()
        held = app.arbiter.leases()

    assert led
    assert [(each.key, each.mode) for each in held] == [(KEY, Mode.LEASE)]
    assert not leader.is_leader()
    assert app.arbiter.leases() == []


def test_before_it_is_entered_nobody_leads(app: Celeriac) -> None:
    leader = app.leadership("report")

    leader.resign()

    assert not leader.is_leader()
    assert (leader.token, leader.note, leader.time_left()) == (0, b"", 0.0)
    assert "is not leader" in repr(leader)


def test_a_leader_says_for_how_long_and_under_which_token(app: Celeriac) -> None:
    with app.leadership("report", ttl=60) as leader:
        left, token, level, text = leader.time_left(), leader.token, leader.level, repr(leader)

    assert 0 < left < 60
    assert token == 1
    assert level is Level.L3
    assert "is leader with token 1" in text


def test_two_of_one_process_exclude_each_other(app: Celeriac) -> None:
    first, second = app.leadership("report"), app.leadership("report")

    led = [first.elect(timeout=0), second.elect(timeout=0)]

    assert led == [True, False]
    assert not second.is_leader()
    first.resign()


def test_other_names_are_led_by_others(app: Celeriac) -> None:
    with app.leadership("report") as first, app.leadership("cleaning") as second:
        both = first.is_leader() and second.is_leader()

    assert both


def test_who_waits_leads_once_the_leader_resigns(app: Celeriac, fickle: Fickle) -> None:
    first, second = app.leadership("report"), lead(fickle)
    first.elect()
    waiting = Thread(target=second.elect)
    waiting.start()
    assert come_true(lambda: "claim" in fickle.asked)

    leads_early = second.is_leader()
    first.resign()

    assert not leads_early
    assert come_true(second.is_leader)
    assert second.token > first.token
    waiting.join()
    second.resign()


def test_who_waits_leads_once_the_leader_is_dead(app: Celeriac, fickle: Fickle) -> None:
    app.arbiter.claim(KEY, "dead", ttl=0.3, mode=Mode.LEASE)

    with lead(fickle) as leader:
        led = leader.is_leader()

    assert led
    assert leader.token == 2


def test_a_lease_is_renewed_for_as_long_as_it_is_wanted(fickle: Fickle) -> None:
    with lead(fickle, ttl=6) as leader:
        renewed = come_true(lambda: fickle.asked.count("renew") >= 2)
        led = leader.is_leader()

    assert renewed
    assert led
    assert fickle.asked[-1] == "release"


# -- asking for a while


def test_a_timeout_of_0_asks_once(app: Celeriac, fickle: Fickle) -> None:
    other = app.leadership("report")
    other.elect()

    led = lead(fickle).elect(timeout=0)

    assert not led
    assert fickle.asked == ["claim"]
    other.resign()


def test_after_its_timeout_nobody_waits_or_asks(app: Celeriac, fickle: Fickle) -> None:
    other, leader = app.leadership("report"), lead(fickle)
    other.elect()

    led = leader.elect(timeout=0.05)
    asked = len(fickle.asked)
    other.resign()

    assert not led
    assert not leader.is_leader()
    assert come_true(lambda: not leader_threads())
    assert len(fickle.asked) == asked
    assert app.arbiter.leases() == []


def test_within_its_timeout_it_comes_to_lead(app: Celeriac) -> None:
    leader = app.leadership("report")

    led = leader.elect(timeout=PATIENCE)

    assert led
    leader.resign()


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_with_a_timeout_it_is_raised_that_nobody_can_be_asked(
    app: Celeriac, broker: MemoryBroker, timeout: float
) -> None:
    broker.is_up = False

    with pytest.raises(ConnectionLost, match="is stopped"):
        app.leadership("report").elect(timeout=timeout)

    assert come_true(lambda: not leader_threads())


def test_without_a_timeout_it_waits_until_somebody_can_be_asked(
    broker: MemoryBroker, fickle: Fickle, caplog: pytest.LogCaptureFixture
) -> None:
    broker.is_up = False
    leader = lead(fickle)
    waiting = Thread(target=leader.elect)
    waiting.start()
    assert come_true(lambda: fickle.asked.count("claim") >= 3)

    broker.is_up = True

    assert come_true(leader.is_leader)
    waiting.join()
    leader.resign()
    assert [each for each in caplog.messages if "cannot reach the arbiter" in each] != []
    assert len([each for each in caplog.messages if "cannot reach the arbiter" in each]) == 1


def test_a_refusal_is_raised_at_once_however_long_one_would_wait(fickle: Fickle) -> None:
    fickle.instead["claim"] = raising(AccessRefused("no such user: mend election_url"))

    with pytest.raises(AccessRefused, match="no such user"):
        lead(fickle).elect()

    assert fickle.asked == ["claim"]


def test_a_fault_of_the_arbiter_is_raised_where_it_was_entered(fickle: Fickle) -> None:
    fickle.instead["claim"] = raising(RuntimeError("a bug"))

    with pytest.raises(RuntimeError, match="a bug"), lead(fickle):
        pytest.fail("nobody was asked")

    assert come_true(lambda: not leader_threads())


def test_a_claim_that_was_done_and_not_answered_is_asked_for_again(app: Celeriac, fickle: Fickle) -> None:
    def lose_the_answer(*args: Any, **kwargs: Any) -> object:
        del fickle.instead["claim"]
        fickle.arbiter.claim(*args, **kwargs)
        raise ConnectionLost("gone before it answered")

    fickle.instead["claim"] = lose_the_answer
    leader = lead(fickle)

    with leader:
        led = leader.is_leader()

    assert led
    assert leader.token == 1
    assert app.arbiter.leases() == []


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize("is_interrupting", [True, False])
def test_what_is_interrupted_is_given_up(app: Celeriac, fickle: Fickle, is_interrupting: bool) -> None:
    # Whether a signal ends the wait of the system that it comes in: loops of asyncio have it go on, say.
    signal.siginterrupt(signal.SIGINT, is_interrupting)
    other, leader = app.leadership("report"), lead(fickle)
    other.elect()

    def interrupt() -> None:
        assert come_true(lambda: "claim" in fickle.asked)
        signal.pthread_kill(main_thread().ident or 0, signal.SIGINT)

    interrupting = Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        leader.elect()
    interrupting.join()

    signal.siginterrupt(signal.SIGINT, True)
    assert not leader.is_leader()
    other.resign()
    assert come_true(lambda: not leader_threads())
    assert app.arbiter.leases() == []


# -- levels


def test_a_level_that_is_too_low_is_refused_with_the_fix(app: Celeriac, fickle: Fickle) -> None:
    fickle.level, fickle.reason = Level.L1, "Redis keeps nothing on disk: set appendonly to yes"

    with pytest.raises(
        ImproperlyConfigured, match=r"level is L1, below election_min_level L2.*appendonly"
    ) as raised:
        lead(fickle).elect()

    assert "election_min_level" in str(raised.value)
    assert app.arbiter.leases() == []


def test_a_level_that_is_wanted_suffices(fickle: Fickle) -> None:
    fickle.level = Level.L1

    with lead(fickle, min_level=Level.L1) as leader:
        led = leader.is_leader()

    assert led


def test_the_level_of_the_app_is_that_of_its_settings(broker: MemoryBroker) -> None:
    app = Celeriac(broker, environ={}, election_min_level="L3")

    with app.leadership("report") as leader:
        wanted = leader._min_level

    assert wanted is Level.L3
    app.close()


# -- entering it


def test_to_enter_it_twice_is_refused(app: Celeriac) -> None:
    leader = app.leadership("report")

    with leader, pytest.raises(CallerError, match="already entered"):
        leader.elect()

    assert app.arbiter.leases() == []


def test_it_can_be_entered_again_under_a_higher_token(app: Celeriac) -> None:
    leader = app.leadership("report")
    tokens = []

    for _ in range(3):
        with leader:
            tokens.append(leader.token)

    assert tokens == [1, 2, 3]


def test_of_threads_that_enter_it_at_once_one_does(app: Celeriac) -> None:
    leader = app.leadership("report")
    together = Barrier(8)
    outcomes: list[object] = []

    def enter() -> None:
        together.wait()
        try:
            outcomes.append(leader.elect())
        except CallerError:
            outcomes.append("refused")

    threads = [Thread(target=enter) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert sorted(map(str, outcomes)) == ["True"] + ["refused"] * 7
    leader.resign()
    assert app.arbiter.leases() == []


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 194])
def test_a_name_that_no_key_can_hold_is_refused(app: Celeriac, name: str) -> None:
    with pytest.raises(CallerError, match="printable strings"):
        app.leadership(name)


@pytest.mark.parametrize("ttl", [0, -1, 0.49, float("nan"), float("inf"), 21_601, "15", None])
def test_a_lease_of_no_use_is_refused(app: Celeriac, ttl: Any) -> None:
    with pytest.raises(CallerError, match=r"from 0\.5 to 21600"):
        app.leadership("report", ttl=ttl)


def test_a_forked_child_leads_nothing_and_ends_nothing_of_its_parents(app: Celeriac) -> None:
    leader = app.leadership("report")
    leader.elect()

    child = os.fork()
    if child == 0:
        code = 1
        try:
            leader.resign()
            mine = leader.is_leader(), leader.time_left(), leader.leave_note(b"x")
            code = 0 if mine == (False, 0.0, False) else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert leader.is_leader()
    leader.resign()


def test_an_arbiter_that_is_closed_meanwhile_harms_no_leader(app: Celeriac) -> None:
    leader = app.leadership("report")
    leader.elect()

    app.close()

    assert leader.is_leader()
    leader.resign()
    assert app.arbiter.leases() == []
