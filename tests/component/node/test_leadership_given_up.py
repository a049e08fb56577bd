"""Who gives a leadership up before it has it, or cannot begin, leaves nothing behind."""

from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import pytest

from celeriac.app import Celeriac
from celeriac.model.election import Level, Mode
from celeriac.node.leadership import Leadership
from celeriac.transport.memory import MemoryBroker
from celeriac.transport.memory_arbiter import MemoryArbiter
from tests.fickle import PATIENCE, Fickle, come_true, lead, leader_threads


@pytest.fixture
def app() -> Iterator[Celeriac]:
    app = Celeriac(MemoryBroker(), environ={})
    yield app
    app.close()
    assert come_true(lambda: not leader_threads()), "a thread of a leader was left"


def test_who_gives_up_while_it_asks_comes_to_lead_nothing(
    app: Celeriac, caplog: pytest.LogCaptureFixture
) -> None:
    fickle = Fickle(app.arbiter)
    asking, going_on = Event(), Event()

    def claim(*args: Any, **kwargs: Any) -> object:
        asking.set()
        going_on.wait(PATIENCE)
        return app.arbiter.claim(*args, **kwargs)

    fickle.instead["claim"] = claim
    reasons: list[str] = []
    leader = lead(fickle, on_step_down=reasons.append)
    elected: list[bool] = []
    entering = Thread(target=lambda: elected.append(leader.elect()))
    caplog.set_level("INFO")

    entering.start()
    assert asking.wait(PATIENCE)
    resigning = Thread(target=leader.resign)
    resigning.start()
    term = leader._term
    assert term is not None
    assert come_true(lambda: term._is_leaving)
    going_on.set()
    for thread in (entering, resigning):
        thread.join(PATIENCE)

    assert elected == [False]
    assert reasons == []
    assert "leads" not in caplog.text
    assert fickle.asked == ["claim", "release"]
    assert app.arbiter.leases() == []


def test_a_token_rises_though_the_arbiter_has_forgotten_all() -> None:
    arbiters = [MemoryArbiter() for _ in range(4)]
    arbiters[0].claim("another", "h9", ttl=15, mode=Mode.LEASE, floor=41)
    leader = Leadership("report", arbiter=lambda: arbiters[0], hostname="h1", min_level=Level.L2)
    tokens = []

    for _ in range(3):
        leader.elect(timeout=0)
        tokens.append(leader.token)
        leader.resign()
        del arbiters[0]  # its disk is lost, and it begins anew

    assert tokens == [43, 44, 45]


def test_where_no_thread_can_be_started_nothing_has_begun(
    app: Celeriac, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = lead(app.arbiter)

    def refuse(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without_threads:
        without_threads.setattr(Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            leader.elect(timeout=0)

    assert leader.elect(timeout=0)
    leader.resign()
