"""Workers elect one of them, and that one acts."""

import logging
from collections.abc import Callable, Iterator
from threading import Event
from time import monotonic

import pytest

from celeriac.core import elections
from celeriac.errors import AccessRefused, CallerError, ConnectionLost, ImproperlyConfigured
from celeriac.model.election import Election, Level, Mode, RecordState
from celeriac.worker.elector import Elector, election_key
from tests.component.worker.hall import TOPIC, Acted, Hall, refusal
from tests.component.worker.kit import PATIENCE, come_true
from tests.fickle import Fickle, raising


def fail(_: Acted) -> None:
    raise ValueError("planned")


def test_each_of_many_elections_has_one_winner() -> None:
    ids = [f"e{number}" for number in range(30)]

    with Hall().running() as hall:
        for id_ in ids:
            hall.call(id_, action={"page": id_})
        assert come_true(lambda: hall.is_over(*ids))

    assert {id_: len(hall.winners(id_)) for id_ in ids} == dict.fromkeys(ids, 1)
    assert all(each.action == {"page": each.mandate.id} for each in hall.acted)
    assert len({each.mandate.token for each in hall.acted}) == 30


def test_who_acts_has_a_mandate() -> None:
    with Hall().running() as hall:
        hall.call("e1", mode="takeover")
        assert come_true(lambda: hall.is_over("e1"))
        ((_, _, mandate),) = hall.acted

    assert (mandate.id, mandate.topic, mandate.mode) == ("e1", TOPIC, Mode.TAKEOVER)
    assert (mandate.token, mandate.level) == (1, Level.L3)
    assert not mandate.still_leader()  # it is done
    assert repr(mandate) == "<Mandate for e1 on note, token 1, level L3>"


def test_while_it_acts_nobody_else_can_be_elected() -> None:
    seen: list[tuple[bool, float]] = []

    def look(acted: Acted) -> None:
        seen.append((acted.mandate.still_leader(), acted.mandate.deadline()))

    with Hall(act=look).running() as hall:
        hall.call("e1")
        assert come_true(lambda: hall.is_over("e1"))

    assert seen == [(True, float("inf"))]


def test_a_lone_worker_elects_itself() -> None:
    with Hall(1).running() as hall:
        hall.call("e1")
        assert come_true(lambda: hall.is_over("e1"))

    assert hall.winners("e1") == ["w1@lab"]


def test_an_election_is_held_once_however_often_it_is_called() -> None:
    with Hall().running() as hall:
        hall.call("e1", action=1)
        hall.call("e1", action=1)
        assert come_true(lambda: hall.is_over("e1"))
        hall.call("e1", action=2)
        hall.call("e2")
        assert come_true(lambda: hall.is_over("e2"))

    assert len(hall.winners("e1")) == 1


def test_workers_that_were_started_anew_do_not_hold_it_again() -> None:
    hall = Hall()
    with hall.running():
        hall.call("e1")
        assert come_true(lambda: hall.is_over("e1"))

    hall.workers = [hall.worker(each.hostname) for each in hall.workers]
    with hall.running():
        hall.call("e1")
        assert come_true(lambda: hall.is_over("e1"))

    assert len(hall.winners("e1")) == 1


# -- what goes wrong


def test_in_mode_once_nobody_tries_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    with Hall(act=fail).running() as hall:
        hall.call("e1")
        assert come_true(lambda: hall.is_over("e1"))
        record = hall.arbiter.read(election_key("e1"))

    assert len(hall.winners("e1")) == 1
    assert record.state is RecordState.FAILED
    assert f"election e1: the action failed, topic={TOPIC}" in caplog.messages


def test_in_mode_takeover_another_tries_after_a_failure() -> None:
    def fail_once(_: Acted) -> None:
        if len(hall.acted) == 1:
            raise ValueError("planned")

    hall = Hall(act=fail_once)
    with hall.running():
        hall.call("e1", mode="takeover")
        assert come_true(lambda: hall.is_over("e1"))
        record = hall.arbiter.read(election_key("e1"))

    first, second = hall.acted
    assert first.node != second.node
    assert second.mandate.token > first.mandate.token
    assert record.state is RecordState.DONE


def test_in_mode_takeover_each_tries_once_at_the_most() -> None:
    with Hall(act=fail).running() as hall:
        hall.call("e1", mode="takeover")
        assert come_true(lambda: hall.is_over("e1"))

    assert sorted(hall.winners("e1")) == ["w1@lab", "w2@lab", "w3@lab"]


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()])
def test_a_handler_that_wants_to_end_all_ends_nothing(error: BaseException) -> None:
    def end(acted: Acted) -> None:
        if acted.action == "end":
            raise error

    ids = [f"e{number}" for number in range(20)]
    with Hall(1, act=end).running() as hall:
        for id_ in ids:
            hall.call(id_, action="end")
        hall.call("last")
        assert come_true(lambda: hall.is_over(*ids, "last"))
        phases = hall.phases("last")

    assert phases == ["done"]


def test_a_topic_that_nobody_knows_is_logged_and_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with Hall().running() as hall:
        hall.call("e1", "unknown")
        hall.call("e2")
        assert come_true(lambda: hall.is_over("e2"))
        phases = hall.phases("e1")

    assert phases == ["observing"] * 3
    logged = [each for each in caplog.messages if "no handler for topic 'unknown'" in each]
    assert len(logged) == 3
    assert "gossip.election_handlers" in logged[0]


def test_only_who_knows_the_topic_can_win() -> None:
    hall = Hall()
    for worker in hall.workers[1:]:
        del worker.gossip.election_handlers[TOPIC]

    with hall.running():
        for number in range(5):
            hall.call(f"e{number}")
        assert come_true(lambda: len(hall.acted) == 5)

    assert {each.node for each in hall.acted} == {"w1@lab"}


def test_an_arbiter_that_is_away_is_asked_again() -> None:
    hall = Hall()
    hall.arbiter.instead["claim"] = raising(ConnectionLost("away"))
    with hall.running():
        hall.call("e1")
        assert come_true(lambda: hall.arbiter.asked.count("claim") >= 3)
        early = list(hall.acted)

        hall.arbiter.instead.clear()
        assert come_true(lambda: hall.is_over("e1"))

    assert early == []
    assert len(hall.winners("e1")) == 1


def test_an_arbiter_that_forgets_to_answer_grants_it_to_one() -> None:
    hall = Hall()

    def grant_and_be_lost(*args: object, **kwargs: object) -> object:
        hall.arbiter.instead.pop("claim", None)
        hall.arbiter.arbiter.claim(*args, **kwargs)
        raise ConnectionLost("gone before it answered")

    hall.arbiter.instead["claim"] = grant_and_be_lost
    with hall.running():
        hall.call("e1")
        assert come_true(lambda: hall.is_over("e1"))

    assert len(hall.winners("e1")) == 1


def test_where_nobody_decides_nobody_acts(caplog: pytest.LogCaptureFixture) -> None:
    hall = Hall()
    hall.arbiter.instead["look"] = raising(ImproperlyConfigured("name a Redis in election_url"))

    with hall.running():
        hall.call("e1")
        assert come_true(lambda: caplog.text.count("election 'e1': this node does not take part") == 3)
        phases = hall.phases("e1")

    assert phases == ["", "", ""]
    assert hall.acted == []
    assert "name a Redis in election_url" in caplog.text


def test_below_the_wanted_level_nobody_acts(caplog: pytest.LogCaptureFixture) -> None:
    hall = Hall(election_min_level="L2")
    hall.arbiter.instead["look"] = lambda: Level.L1
    hall.arbiter.level, hall.arbiter.reason = Level.L1, "nothing is kept on disk"

    with hall.running():
        hall.call("e1")
        assert come_true(lambda: caplog.text.count("election 'e1': this node does not take part") == 3)
        phases = hall.phases("e1")

    assert phases == ["", "", ""]
    assert hall.acted == []
    logged = [each for each in caplog.messages if "below election_min_level (L2)" in each]
    assert logged
    assert "nothing is kept on disk" in logged[0]
    assert "claim" not in hall.arbiter.asked


@pytest.mark.parametrize(
    ("look", "reason"),
    [
        (lambda: Level.L1, "level is L1, below election_min_level (L2): nothing is kept on disk (w1@lab)"),
        (
            raising(ImproperlyConfigured("name a Redis in election_url")),
            "cannot use the arbiter of elections: name a Redis",
        ),
        (
            raising(AccessRefused("no permission: allow EVAL")),
            "cannot use the arbiter of elections: no permission: allow EVAL",
        ),
    ],
)
def test_the_caller_is_told_that_the_arbiter_keeps_all_workers_from_acting(
    look: Callable[[], Level], reason: str
) -> None:
    hall = Hall(1)
    hall.arbiter.instead["look"] = look
    hall.arbiter.level, hall.arbiter.reason = Level.L1, "nothing is kept on disk"

    with hall.running():
        text = refusal(lambda timeout: hall.site.app.control.election("e1", TOPIC, timeout=timeout))

    assert reason in text
    assert hall.acted == []


def test_the_caller_is_told_that_the_arbiter_answers_questions_and_grants_nothing() -> None:
    hall = Hall(1)
    hall.arbiter.instead["read"] = raising(AccessRefused("no permission: allow EVAL"))

    with hall.running():
        text = refusal(lambda timeout: hall.site.app.control.election("e1", TOPIC, timeout=timeout))

    assert "cannot use the arbiter of elections: no permission: allow EVAL (w1@lab)" in text
    assert "claim" not in hall.arbiter.asked


@pytest.fixture
def idle() -> Iterator[Hall]:
    """A worker that is not started, whose elector is called directly."""
    hall = Hall(1)
    yield hall
    hall.workers[0].parts.elector.close(0.0)


def join(elector: Elector, id_: str, topic: str = TOPIC) -> list[str]:
    """Call an election, and return where the answers come."""
    answers: list[str] = []
    elector.join(Election(id_, topic), 0.0, answers.append)
    return answers


def test_an_election_is_answered_once_the_level_is_known(idle: Hall) -> None:
    elector = idle.workers[0].parts.elector
    going_on = Event()

    def hang() -> Level:
        going_on.wait(PATIENCE)
        idle.arbiter.level = Level.L1
        return Level.L1

    idle.arbiter.instead["look"] = hang
    answers = [join(elector, f"e{number}") for number in range(3)]
    elector.tick(0.0)
    early = [list(each) for each in answers]
    going_on.set()
    is_answered = come_true(lambda: elector.tick(0.0) and all(answers))

    assert early == [[], [], []]
    assert is_answered
    assert all("the election level is L1, below election_min_level" in reason for (reason,) in answers)
    assert idle.arbiter.asked.count("look") == 1
    assert list(elector.elections.all) == []


def test_a_reason_that_needs_no_level_is_answered_at_once(idle: Hall) -> None:
    elector = idle.workers[0].parts.elector

    answers = join(elector, "e1", "unknown")

    assert ["no handler for topic 'unknown'" in each for each in answers] == [True]
    assert idle.arbiter.asked == []


def test_an_election_waits_for_no_level_that_cannot_be_looked_up(idle: Hall) -> None:
    elector = idle.workers[0].parts.elector
    idle.arbiter.instead["look"] = raising(ConnectionLost("away"))

    answers = join(elector, "e1")
    is_answered = come_true(lambda: elector.tick(0.0) and answers)

    assert is_answered
    assert answers == [""]
    assert list(elector.elections.all) == ["e1"]


def test_an_election_that_waits_for_the_level_is_refused_by_a_worker_that_stops(idle: Hall) -> None:
    elector = idle.workers[0].parts.elector
    going_on = Event()
    idle.arbiter.instead["look"] = lambda: going_on.wait(PATIENCE)

    answers = join(elector, "e1")
    elector.close(0.0)
    elector.tick(0.0)
    going_on.set()

    assert answers == ["the worker is stopping"]
    assert list(elector.elections.all) == []


def test_an_election_that_finds_no_room_is_refused(idle: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    elector = idle.workers[0].parts.elector
    elector.level.look()
    monkeypatch.setattr(elections, "MAX_ELECTIONS", 1)

    answers = [join(elector, "e1"), join(elector, "e2")]

    assert [len(each) for each in answers] == [1, 1]
    assert answers[0] == [""]
    assert "elections in progress, the maximum: retry later" in answers[1][0]


def test_too_many_elections_wait_for_no_level(idle: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    elector = idle.workers[0].parts.elector
    going_on = Event()
    idle.arbiter.instead["look"] = lambda: going_on.wait(PATIENCE)
    monkeypatch.setattr("celeriac.worker.elector.MAX_ELECTIONS", 1)

    answers = [join(elector, "e1"), join(elector, "e2")]
    going_on.set()

    assert answers[0] == []
    assert "elections in progress, the maximum: retry later" in answers[1][0]


def test_a_claim_that_the_arbiter_refuses_is_the_reason_for_the_next_election(idle: Hall) -> None:
    elector = idle.workers[0].parts.elector
    elector.level.look()
    idle.arbiter.instead["claim"] = raising(AccessRefused("no permission: allow HSET"))

    elector.stand(Election("e1", TOPIC))
    is_refused = come_true(lambda: elector.tick(monotonic()) and elector.level.refusal)
    answers = join(elector, "e2")

    assert is_refused
    assert answers == ["cannot use the arbiter of elections: no permission: allow HSET"]


def test_an_election_that_is_refused_for_the_level_is_not_held_and_the_next_one_is(idle: Hall) -> None:
    elector = idle.workers[0].parts.elector
    idle.arbiter.level = Level.L1
    elector.level.look()
    idle.arbiter.level = Level.L3

    (reason,) = join(elector, "e1")
    is_level_known = come_true(lambda: not elector.level.refusal)
    answers = join(elector, "e2")

    assert "the election level is L1, below election_min_level" in reason
    assert is_level_known
    assert answers == [""]
    assert list(elector.elections.all) == ["e2"]


def test_many_refused_elections_look_up_the_level_once(idle: Hall) -> None:
    elector = idle.workers[0].parts.elector
    idle.arbiter.level = Level.L1
    elector.level.look()
    looking, going_on = Event(), Event()

    def hang() -> Level:
        looking.set()
        going_on.wait(PATIENCE)
        return Level.L1

    idle.arbiter.asked.clear()
    idle.arbiter.instead["look"] = hang
    refusals = [reason for number in range(20) for reason in join(elector, f"e{number}")]
    is_looking = looking.wait(PATIENCE)
    asked = idle.arbiter.asked.count("look")
    going_on.set()

    assert len(refusals) == 20
    assert all(refusals)
    assert is_looking
    assert asked == 1


def test_a_level_refusal_never_vanishes_while_the_level_is_looked_up(idle: Hall) -> None:
    level = idle.workers[0].parts.elector.level
    seen: list[str] = []

    class Watched(Fickle):
        @property
        def reason(self) -> str:
            seen.append(level.refusal)
            return "nothing is kept on disk"

        @reason.setter
        def reason(self, _: str) -> None: ...

    watched = Watched(idle.arbiter)
    watched.level, watched.instead["look"] = Level.L1, lambda: Level.L1
    level._arbiter = lambda: watched
    level.look()
    seen.clear()

    level.look()

    assert seen
    assert "" not in seen


def test_the_level_is_told_when_a_worker_starts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    with Hall(1).running():
        told = come_true(
            lambda: any(
                each.startswith("election: level L3 (election_min_level L2)") for each in caplog.messages
            )
        )

    assert told


# -- who calls it


def test_a_node_can_stand_by_itself() -> None:
    with Hall().running() as hall:
        hall.workers[1].gossip.election("e1", TOPIC, [1, 2])
        assert come_true(lambda: hall.acted)
        assert come_true(lambda: hall.phases("e1")[1] == "done")

    ((node, action, _),) = hall.acted
    assert (node, action) == ("w2@lab", [1, 2])


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("", TOPIC), "an election id"),
        (("e1", ""), "topic"),
        (("e1", TOPIC, object()), "JSON"),
        (("e1", TOPIC, "x" * 20_000), "store it elsewhere and send a reference"),
    ],
)
def test_an_election_that_cannot_be_told_is_refused(arguments: tuple[str, str], match: str) -> None:
    worker = Hall(1).workers[0]

    with pytest.raises(CallerError, match=match):
        worker.gossip.election(*arguments)


@pytest.mark.parametrize("mode", ["lease", "always"])
def test_a_mode_that_is_not_for_workers_is_refused(mode: str) -> None:
    worker = Hall(1).workers[0]

    with pytest.raises(CallerError, match="once or takeover"):
        worker.gossip.election("e1", TOPIC, mode=mode)


def test_a_lease_that_another_calls_is_no_election_of_workers(caplog: pytest.LogCaptureFixture) -> None:
    with Hall(1).running() as hall:
        hall.site.app.control.broadcast("election", {"id": "e1", "topic": TOPIC, "mode": "lease"})
        hall.call("e2")
        assert come_true(lambda: hall.is_over("e2"))

    assert hall.winners("e1") == []
    assert any(
        "mode lease is not for worker elections: use app.leadership()" in each for each in caplog.messages
    )


@pytest.mark.parametrize(
    "arguments", [{}, {"id": "e1"}, {"id": ["e1"], "topic": TOPIC}, {"id": "e1", "topic": 7}]
)
def test_a_command_that_is_no_election_harms_nothing(arguments: dict[str, object]) -> None:
    with Hall(1).running() as hall:
        hall.site.app.control.broadcast("election", arguments)
        hall.call("e2")
        assert come_true(lambda: hall.is_over("e2"))

    assert hall.winners("e1") == []


def test_without_gossip_a_node_takes_no_part(caplog: pytest.LogCaptureFixture) -> None:
    hall = Hall(1)
    silent = hall.worker("w9@lab", without_gossip=True)

    with silent, hall.running():
        hall.call("e1")
        assert come_true(lambda: hall.is_over("e1"))
        assert come_true(lambda: any("the worker runs without gossip" in each for each in caplog.messages))
        with pytest.raises(CallerError, match="start it with gossip"):
            silent.gossip.election("e2", TOPIC)

    assert [each.node for each in hall.acted] == ["w1@lab"]
