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
    #: What nobody can beat, where that is known: the bare client, which does nothing with what it gets.
    limit: float | None = None

    @property
    def ratio(self) -> float:
        """How many times better ours is."""
        return self.peer / self.ours if self.lower_is_better else self.ours / self.peer


def show(name: str, rows: dict[str, Row], **more: float) -> None:
    """Print the table, and the line of JSON, with what else it is to say."""
    width = max(map(len, rows))
    has_limit = any(row.limit is not None for row in rows.values())
    print(
        f"\n{'row':<{width}}  {'ours':>12}  {'peer':>12}  {'ratio':>7}", f"{'limit':>12}" * has_limit, " unit"
    )
    for label, row in rows.items():
        limit = f"{row.limit or 0:>12,.0f}" * has_limit
        print(
            f"{label:<{width}}  {row.ours:>12,.0f}  {row.peer:>12,.0f}  {row.ratio:>7.2f}",
            limit,
            "",
            row.unit,
        )
    figures = {label: _figures(row) for label, row in rows.items()}
    lowest = min(figure["ratio"] for figure in figures.values())
    print(json.dumps({"bench": name, "rows": figures, "ratio": lowest, **more}))


def _figures(row: Row) -> dict[str, float]:
    figures = {"ours": round(row.ours, 1), "peer": round(row.peer, 1), "ratio": round(row.ratio, 2)}
    return figures if row.limit is None else figures | {"limit": round(row.limit, 1)}
