"""What a worker must not do, however slow its arbiter is and whatever others say."""

from threading import Event
from time import monotonic
from typing import Any

import pytest

from celeriac.model.election import Level
from celeriac.worker import elector as module
from tests.component.worker.hall import TOPIC, Acted, Hall
from tests.component.worker.kit import PATIENCE, come_true


@pytest.mark.parametrize("mode", ["lease", "takeover"])
def test_what_a_candidate_says_first_does_not_make_several_act(mode: str) -> None:
    said = {"topic": TOPIC, "action": "another", "cver": 1, "x": 2, "mode": mode, "pid": 9, "clock": 1}
    with Hall().running() as hall:
        hall.say("elect", "w9@lab", id="e1", **said)
        hall.say("elect", "w9@lab", id="e2", **said | {"mode": "once"})
        assert come_true(lambda: "" not in hall.phases("e2"))  # so both were heard

        hall.call("e1", action="ours")
        assert come_true(lambda: hall.is_over("e1"))

    assert [(each.action, each.mandate.mode.value) for each in hall.acted] == [("ours", "once")]


def test_a_level_that_falls_while_we_ask_is_not_acted_on(caplog: pytest.LogCaptureFixture) -> None:
    hall = Hall(1)

    def claim(*args: Any, **kwargs: Any) -> object:
        hall.arbiter.level = Level.L1  # as by a new link, to another server
        return hall.arbiter.arbiter.claim(*args, **kwargs)

    hall.arbiter.instead["look"] = lambda: Level.L3
    hall.arbiter.instead["claim"] = claim
    with hall.running():
        hall.call("e1")
        assert come_true(lambda: hall.is_over("e1"))

    assert hall.acted == []
    assert "below election_min_level" in caplog.text


def test_what_could_not_be_begun_in_its_time_is_not_begun(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ACTORS", 1)
    going_on = Event()

    def act(acted: Acted) -> None:
        if acted.mandate.id == "hangs":
            going_on.wait(PATIENCE)

    hall = Hall(1, act=act, election_ttl=0.5)
    with hall.running():
        hall.call("hangs")
        assert come_true(lambda: hall.winners("hangs"))
        hall.call("late", mode="takeover")
        assert come_true(lambda: hall.phases("late") == ["acting"])
        candidacy = hall.workers[0].parts.elector.elections.all["late"]
        assert come_true(lambda: monotonic() > candidacy.deadline)

        going_on.set()
        assert come_true(lambda: hall.is_over("late"))

    assert hall.winners("late") == []
    assert "lease expired before the action started" in caplog.text


def test_a_claim_that_waited_for_its_turn_is_granted_for_its_whole_time() -> None:
    hall = Hall(1, election_ttl=3.0)
    hanging, going_on = Event(), Event()

    def hang() -> Level:
        hanging.set()
        going_on.wait(PATIENCE)
        return hall.arbiter.arbiter.look()  # type: ignore[no-any-return]

    hall.arbiter.instead["look"] = hang
    with hall.running():
        hall.call("e1", mode="takeover")
        assert hanging.wait(PATIENCE)
        asked_at = monotonic()
        assert come_true(lambda: monotonic() > asked_at + 3.0)

        going_on.set()
        assert come_true(lambda: hall.is_over("e1"))

    assert hall.winners("e1") == ["w1@lab"]
    assert hall.arbiter.asked.count("claim") == 1


def test_what_was_done_is_told_though_all_claims_hang() -> None:
    acting, going_on = Event(), Event()
    hanging: list[bool] = []

    def act(_: Acted) -> None:
        acting.set()
        assert come_true(lambda: len(hanging) == 2)  # all that claim

    def hang_unless_first() -> Level:
        if acting.is_set():
            hanging.append(True)
            going_on.wait(PATIENCE)
        return hall.arbiter.arbiter.look()  # type: ignore[no-any-return]

    hall = Hall(1, act=act)
    hall.arbiter.instead["look"] = hang_unless_first
    with hall.running():
        hall.call("e1", mode="takeover")
        assert acting.wait(PATIENCE)
        hall.call("e2")
        hall.call("e3")

        is_told = come_true(lambda: hall.phases("e1") == ["done"])
        going_on.set()
        assert come_true(lambda: hall.is_over("e2", "e3"))

    assert is_told
