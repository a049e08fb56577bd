"""What came of many runs, as totals and as a table."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from rich.table import Table

from celeriac.model.election import Mode
from tests.simulation.run import Outcome

__all__ = ["EXPECTED", "Totals", "never_met", "table"]

#: Each of these is met in any thousands of runs, or the runs prove nothing.
EXPECTED: Final = (
    "loss", "duplicate", "delay", "reorder", "partition", "view", "crash", "pause", "resign", "clock rate",
    "request lost", "request repeated", "late request", "reply lost", "late reply", "read held", "entry void",
    "slow write",
)  # fmt: skip
#: With fewer runs than this a fault may be missing by chance.
ENOUGH: Final = 2000

#: Which promise is counted under which heading.
_DOUBLE: Final = frozenset({"E1", "E2", "E3", "E6", "agreement"})
_OVERLAP: Final = frozenset({"E4"})
_LIVENESS: Final = frozenset({"E7", "progress"})


@dataclass(slots=True)
class Totals:
    """Of the runs of one mode."""

    mode: Mode
    elections: int = 0
    one: int = 0
    none: int = 0
    several: int = 0
    writes: int = 0
    stale: int = 0
    events: int = 0
    met: Counter[str] = field(default_factory=Counter)
    laws: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count a run."""
        self.elections += 1
        self.one += outcome.acts == 1
        self.none += outcome.acts == 0
        self.several += outcome.acts > 1
        self.writes += outcome.writes
        self.stale += outcome.stale
        self.events += outcome.events
        self.met.update(outcome.met)
        if outcome.violation is not None:
            self.laws[outcome.law] += 1
            self.failures.append(f"{outcome.replay}: {outcome.violation}")

    def merge(self, other: "Totals") -> None:
        """Add those of other runs."""
        for name in ("elections", "one", "none", "several", "writes", "stale", "events"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.met.update(other.met)
        self.laws.update(other.laws)
        self.failures += other.failures

    def broken(self, laws: frozenset[str]) -> int:
        """Return how many runs broke one of these promises."""
        return sum(count for law, count in self.laws.items() if law in laws)


def table(all_totals: list[Totals]) -> Table:
    """Return a table with a column for each mode."""
    made = Table(title="Elections on a bad network", title_justify="left")
    made.add_column("")
    for totals in all_totals:
        made.add_column(str(totals.mode), justify="right")
    named = _DOUBLE | _OVERLAP | _LIVENESS
    rows = [
        ("elections", [totals.elections for totals in all_totals]),
        ("acted on once", [totals.one for totals in all_totals]),
        ("by several in turn, each with a higher token", [totals.several for totals in all_totals]),
        ("by nobody", [totals.none for totals in all_totals]),
        ("double winners", [totals.broken(_DOUBLE) for totals in all_totals]),
        ("overlapping leases", [totals.broken(_OVERLAP) for totals in all_totals]),
        ("not decided after healing", [totals.broken(_LIVENESS) for totals in all_totals]),
        ("other promises broken", [totals.broken(frozenset(totals.laws) - named) for totals in all_totals]),
        ("writes taken by the sink", [totals.writes for totals in all_totals]),
        ("stale writes refused", [totals.stale for totals in all_totals]),
        ("events", [totals.events for totals in all_totals]),
    ]
    for name, counts in rows:
        made.add_row(name, *(f"{count:,}" for count in counts))
    made.add_section()
    for kind in EXPECTED:
        made.add_row(f"fault: {kind}", *(f"{totals.met[kind]:,}" for totals in all_totals))
    return made


def never_met(all_totals: list[Totals]) -> list[str]:
    """Return what should have gone wrong in so many runs, and never did."""
    if sum(totals.elections for totals in all_totals) < ENOUGH:
        return []
    met: Counter[str] = Counter()
    for totals in all_totals:
        met.update(totals.met)
    missing = [kind for kind in EXPECTED if not met[kind]]
    if len(all_totals) == len(Mode) and not sum(totals.stale for totals in all_totals):
        missing.append("stale write")
    return missing if len(all_totals) == len(Mode) else []
