"""Elections keep their promises on a bad network, and the simulator that says so can be trusted."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from celeriac.model.election import Mode
from tests.simulation.__main__ import CHUNK, CYCLE, conclude, run_chunk
from tests.simulation.plan import FAULT_KINDS, PROFILES, draw
from tests.simulation.report import EXPECTED, Totals
from tests.simulation.run import run, run_plan
from tests.simulation.shrink import describe, shrink
from tests.simulation.world import MAX_EVENTS, Violation, World

#: Runs that failed once: a seed, a mode, a profile, and why.
CORPUS = Path(__file__).with_name("corpus.txt")
ROOT = Path(__file__).parents[2]
#: Of each mode and profile.
RUNS = 60


def corpus() -> list[tuple[int, Mode, str]]:
    lines = [line.split("#")[0].split() for line in CORPUS.read_text().splitlines()]
    return [(int(seed), Mode(mode), profile) for seed, mode, profile in filter(None, lines)]


@pytest.mark.parametrize("profile", list(PROFILES))
@pytest.mark.parametrize("mode", list(Mode))
def test_no_promise_is_broken(mode: Mode, profile: str) -> None:
    outcomes = [run(seed, mode, profile) for seed in range(RUNS)]

    assert [f"{outcome.replay}: {outcome.violation}" for outcome in outcomes if outcome.violation] == []
    assert all(outcome.events for outcome in outcomes)
    assert sum(outcome.acts > 0 for outcome in outcomes) > 0.7 * RUNS


@pytest.mark.parametrize(("seed", "mode", "profile"), corpus())
def test_what_failed_once_fails_no_more(seed: int, mode: Mode, profile: str) -> None:
    outcome = run(seed, mode, profile)

    assert outcome.violation is None, f"{outcome.replay}: {outcome.violation}"


@pytest.mark.parametrize("mode", list(Mode))
def test_every_fault_is_met(mode: Mode) -> None:
    met: Counter[str] = Counter()
    for seed in range(300):
        met.update(run(seed, mode, CYCLE[seed % len(CYCLE)]).met)

    assert [kind for kind in EXPECTED if not met[kind]] == []


def test_stale_writes_happen_and_only_the_sink_stops_them() -> None:
    outcomes = [run(seed, Mode.LEASE, "register-storm") for seed in range(60)]

    assert sum(outcome.stale for outcome in outcomes) > 0
    assert all(outcome.writes > 0 for outcome in outcomes)


@pytest.mark.parametrize("profile", list(PROFILES))
@pytest.mark.parametrize("mode", list(Mode))
def test_the_same_seed_gives_the_same_transcript(mode: Mode, profile: str) -> None:
    first = run(7, mode, profile, is_traced=True)

    second = run(7, mode, profile, is_traced=True)

    assert first.transcript == second.transcript
    assert len(first.transcript) > 10


def test_whether_a_transcript_is_written_changes_nothing() -> None:
    told = run(11, Mode.LEASE, "log-storm", is_traced=True)

    silent = run(11, Mode.LEASE, "log-storm")

    assert (told.events, told.met, told.acts) == (silent.events, silent.met, silent.acts)
    assert silent.transcript == []


def test_totals_do_not_depend_on_how_the_runs_are_divided() -> None:
    whole = run_chunk((Mode.TAKEOVER, 0, CHUNK, None))

    parts = Totals(Mode.TAKEOVER)
    for first in range(0, CHUNK, 10):
        parts.merge(run_chunk((Mode.TAKEOVER, first, 10, None)))

    assert parts == whole


def test_faults_are_drawn_before_anything_happens_and_do_not_depend_on_the_code_under_test() -> None:
    plans = [draw(seed, Mode.LEASE, PROFILES["register-storm"]) for seed in range(100)]

    assert plans == [draw(seed, Mode.LEASE, PROFILES["register-storm"]) for seed in range(100)]
    assert {fault.kind for plan in plans for fault in plan.faults} == set(FAULT_KINDS)
    assert {len(plan.nodes) for plan in plans} == set(range(2, 8))


def test_a_failing_run_is_made_small_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "celeriac.core.election.Candidacy.is_leader", lambda self, now: bool(self.token and now)
    )
    plans = (draw(seed, Mode.LEASE, PROFILES["register-storm"]) for seed in range(100))
    plan = next(plan for plan in plans if len(plan.faults) > 3 and run_plan(plan).law == "E4")

    smaller, outcome = shrink(plan)
    text = describe(smaller, outcome)

    assert outcome.law == "E4"
    assert (len(smaller.faults), len(smaller.nodes)) < (len(plan.faults), len(plan.nodes))
    assert text.startswith(f"SEED={plan.seed} MODE=lease PROFILE=register-storm: E4")
    assert "VIOLATION of E4" in text


def test_a_broken_promise_is_told_with_what_to_type_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("celeriac.core.register.Register.release", lambda *_, **__: True)
    monkeypatch.setattr(
        "celeriac.core.election.Candidacy.is_leader", lambda self, now: bool(self.token and now)
    )
    totals = run_chunk((Mode.LEASE, 0, CHUNK, "register-freeze"))

    code = conclude([totals], Console(width=200))

    told = capsys.readouterr().out
    assert code == 1
    assert totals.laws["E4"] > 0
    assert totals.failures[0] in told
    assert "VIOLATION of E4" in told


def test_a_fault_that_never_happened_in_thousands_of_runs_is_a_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    met = Counter(dict.fromkeys(EXPECTED, 1))
    whole = [Totals(mode, elections=1000, stale=1, met=met) for mode in Mode]
    lacking = [Totals(mode, elections=1000, stale=1, met=met - Counter(["pause"])) for mode in Mode]

    codes = [conclude(totals, Console()) for totals in (whole, lacking)]

    assert codes == [0, 1]
    assert "pause" in capsys.readouterr().out


def test_the_command_gives_the_same_table_on_one_core_and_on_two() -> None:
    command = [sys.executable, "-m", "tests.simulation", "--elections", "60", "--processes"]

    tables = [
        subprocess.run([*command, count], cwd=ROOT, capture_output=True, text=True, check=True).stdout  # noqa: S603
        for count in ("1", "2")
    ]

    one, two = (table.rsplit("\n", 2)[0] for table in tables)
    assert one == two
    assert "overlapping leases" in one


def test_a_run_without_an_end_is_broken_off() -> None:
    world = World(draw(0, Mode.ONCE, PROFILES["register-fair"]))

    def again() -> None:
        world.at(world.now, again)

    again()

    with pytest.raises(Violation, match=f"{MAX_EVENTS + 1:,} events"):
        world.run(1.0)
