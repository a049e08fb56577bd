"""The benchmark of elections holds them on both sides, and would see what is wrong with either."""

import json
from collections.abc import Sequence
from random import Random

import pytest

from benchmarks import election
from benchmarks.__main__ import main
from benchmarks.election_nodes import CelerySide, OurSide
from benchmarks.election_schedule import Order, Step, play
from celeriac.core.register import Register
from celeriac.model.election import Decision, Granted

SCHEDULES = 200
NODES = 5


class Speaker:
    """A node that says three things, each when it is chosen, and writes down what it hears."""

    def __init__(self, name: str, *, bears: int = 1000) -> None:
        self.name = name
        self.sent: list[tuple[str, int]] = []
        self.wins = 0
        self.heard: list[tuple[str, int]] = []
        self._bears = bears
        self._said = 3

    def begin(self) -> None:
        self._said = 0

    def receive(self, message: tuple[str, int]) -> None:
        self.heard.append(message)
        if len(self.heard) == self._bears:
            raise LookupError("enough")

    def own_steps(self) -> Sequence[Step]:
        return [Step(self, self._say)] if self._said < 3 else []

    def is_left_behind(self) -> bool:
        return False

    def _say(self) -> None:
        self.sent.append((self.name, self._said))
        self._said += 1


def test_a_run_prints_the_shares_of_both_sides_and_ours_has_one_winner_and_no_crash(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(election, "SCHEDULES", SCHEDULES)

    code = main(["election"])

    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (code, printed["bench"], printed["schedules"]) == (0, "election", SCHEDULES)
    for sides in (printed, printed["total_order"]):
        assert sides["ours"] == {"one": 1.0, "none": 0.0, "two_or_more": 0.0, "crashed": 0.0}
        assert list(sides["celery"]) == ["one", "none", "two_or_more", "crashed"]
        assert sum(sides["celery"][key] for key in ("one", "none", "two_or_more")) == pytest.approx(1)
    assert all(printed["celery"].values())
    assert printed["left_behind"]["ours"] == 0


def test_an_arbiter_that_grants_everybody_everything_is_seen_as_two_winners(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def grant(self: Register, *_: object, **__: object) -> Decision:
        self.last_token += 1
        return Granted(self.last_token)

    monkeypatch.setattr(Register, "claim", grant)

    tally = election.judge(OurSide(NODES), Order.PER_SENDER, schedules=20, seed=1)

    assert tally.two_or_more > 0


def test_a_lone_candidate_ends_a_worker_of_celery_and_not_one_of_ours() -> None:
    # Nobody else is there, so its own acknowledgement decides, on one candidate.
    theirs = election.judge(CelerySide(1), Order.TOTAL, schedules=1, seed=1)
    ours = election.judge(OurSide(1), Order.TOTAL, schedules=1, seed=1)

    assert theirs.crashes == {"IndexError: list index out of range": 1}
    assert (theirs.none, theirs.crashed) == (1, 1)
    assert (ours.one, ours.crashed) == (1, 0)


def test_a_seed_gives_the_same_elections_again() -> None:
    side = CelerySide(NODES)

    tallies = [election.judge(side, Order.PER_SENDER, schedules=50, seed=seed) for seed in (1, 1, 2)]

    assert tallies[0] == tallies[1] != tallies[2]


@pytest.mark.parametrize("spread", [1, 40])
@pytest.mark.parametrize("order", list(Order))
def test_every_node_hears_everything_once_in_the_order_that_was_promised(order: Order, spread: int) -> None:
    is_one_order = []
    for seed in range(30):
        nodes = [Speaker(name) for name in "abc"]
        play(nodes, order, Random(seed), spread=spread)

        for node in nodes:
            for name in "abc":
                assert [said for sender, said in node.heard if sender == name] == [0, 1, 2]
        is_one_order.append(all(node.heard == nodes[0].heard for node in nodes))

    assert all(is_one_order) == (order is Order.TOTAL)


def test_a_node_that_crashes_takes_no_further_part() -> None:
    nodes = [Speaker("a", bears=2), Speaker("b"), Speaker("c")]

    outcome = play(nodes, Order.PER_SENDER, Random(1), spread=10)

    assert [repr(error) for error in outcome.crashes] == ["LookupError('enough')"]
    assert len(nodes[0].heard) == 2
    assert len(nodes[1].heard) == len(nodes[2].heard) >= 6
