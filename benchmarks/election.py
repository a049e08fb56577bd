"""Who wins: our elections beside those of Celery's ``Gossip``, under the same adversary.

Five nodes, all candidates, each of which begins at any moment; see ``election_schedule`` for what a schedule
is. Nothing fails in it but what fails by itself. The order in which messages are read is chosen to be bad, so
the shares are those of schedules, and not of elections in the field: they show what can happen.
"""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from random import Random
from time import perf_counter
from typing import Any, Final, Protocol

from benchmarks.election_nodes import CelerySide, OurSide
from benchmarks.election_schedule import Node, Order, Tally, play

NODES, SCHEDULES, SEED = 5, 20_000, 7

Report = dict[Order, dict[str, Tally]]


class Side(Protocol):
    """Whose workers take part."""

    def nodes(self, random: Random) -> list[Node]:
        """Return workers that have just started."""


SIDES: Final[dict[str, Callable[[int], Side]]] = {"ours": OurSide, "celery": CelerySide}


def judge(side: Side, order: Order, *, schedules: int, seed: int, spread: int = 1) -> Tally:
    """Hold many elections, the same ones for a seed."""
    tally = Tally()
    for number in range(schedules):
        random = Random(seed * 1_000_003 + number)
        tally.add(play(side.nodes(random), order, random, spread=spread))
    return tally


def run(*, schedules: int | None = None, nodes: int = NODES, seed: int = SEED, spread: int = 1) -> Report:
    """Hold all elections, in both orders, on both sides."""
    begun = perf_counter()
    report: Report = {}
    for order in Order:
        report[order] = {
            name: judge(make(nodes), order, schedules=schedules or SCHEDULES, seed=seed, spread=spread)
            for name, make in SIDES.items()
        }
        for name, tally in report[order].items():
            for what, count in tally.crashes.most_common():
                print(f"· {name}, order {order}: {count:,} workers ended by {what}", file=sys.stderr)
    ours = [sides["ours"] for sides in report.values()]
    is_met = not any(tally.two_or_more or tally.crashed for tally in ours)
    print(
        f"· goal: ours never two winners, no crash: {'met' if is_met else 'MISSED'};"
        f" {nodes} nodes, {ours[0].elections:,} schedules each, seed {seed}; {perf_counter() - begun:.0f} s",
        file=sys.stderr,
    )
    return report


def shares(tally: Tally) -> dict[str, float]:
    """Return the shares of all elections; ``crashed`` overlaps with the three others, which add up to 1."""
    return {
        "one": tally.share(tally.one),
        "none": tally.share(tally.none),
        "two_or_more": tally.share(tally.two_or_more),
        "crashed": tally.share(tally.crashed),
    }


def show(name: str, report: Report) -> None:
    """Print the table, and the line of JSON: the order per sender first, the total order as one field."""
    columns = ("one", "none", "two or more", "crashed", "one, no crash", "left behind")
    print(f"\n{'order':<10}  {'side':<6}", *(f"{column:>13}" for column in columns))
    for order, sides in report.items():
        for side, tally in sides.items():
            all_ = [
                *shares(tally).values(),
                tally.share(tally.one_without_crash),
                tally.share(tally.left_behind),
            ]
            print(f"{order:<10}  {side:<6}", *(f"{share:>13.2%}" for share in all_))
    figures: dict[str, Any] = {
        order: {side: shares(tally) for side, tally in sides.items()} for order, sides in report.items()
    }
    first = report[Order.PER_SENDER]
    print(
        json.dumps(
            {
                "bench": name,
                **figures[Order.PER_SENDER],
                "total_order": figures[Order.TOTAL],
                "left_behind": {side: tally.share(tally.left_behind) for side, tally in first.items()},
                "schedules": first["ours"].elections,
            }
        )
    )


def main(arguments: list[str]) -> None:
    """Run it with fewer schedules or more, with other nodes, or with another adversary."""
    parser = ArgumentParser(prog="python -m benchmarks.election", description=__doc__)
    parser.add_argument("--schedules", type=int, default=SCHEDULES)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument(
        "--spread",
        type=int,
        default=1,
        help="nodes begin at any of so many steps, not as soon as they are chosen",
    )
    show("election", run(**vars(parser.parse_args(arguments))))


if __name__ == "__main__":
    main(sys.argv[1:])
