"""How every benchmark reports: a table for people, one JSON line for programs."""

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One measurement of ours and of the peer; a ratio above 1 means that ours is better."""

    ours: float
    peer: float
    unit: str
    lower_is_better: bool = False

    @property
    def ratio(self) -> float:
        """How many times better ours is."""
        return self.peer / self.ours if self.lower_is_better else self.ours / self.peer


def show(name: str, rows: dict[str, Row]) -> None:
    """Print the table, and the line of JSON."""
    width = max(map(len, rows))
    print(f"\n{'row':<{width}}  {'ours':>12}  {'peer':>12}  {'ratio':>7}  unit")
    for label, row in rows.items():
        print(f"{label:<{width}}  {row.ours:>12,.0f}  {row.peer:>12,.0f}  {row.ratio:>7.2f}  {row.unit}")
    figures = {
        label: {"ours": round(row.ours, 1), "peer": round(row.peer, 1), "ratio": round(row.ratio, 2)}
        for label, row in rows.items()
    }
    lowest = min(figure["ratio"] for figure in figures.values())
    print(json.dumps({"bench": name, "rows": figures, "ratio": lowest}))
