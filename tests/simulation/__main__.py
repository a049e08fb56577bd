"""Elections by the thousand: ``python -m tests.simulation``; ``make sim`` runs it."""

import argparse
import gc
import os
import sys
from multiprocessing import get_context
from time import perf_counter

from rich.console import Console
from rich.progress import Progress

from celeriac.model.election import Mode
from tests.simulation.plan import PROFILES, draw
from tests.simulation.report import Totals, never_met, table
from tests.simulation.run import run
from tests.simulation.shrink import describe, shrink

#: The profiles of consecutive seeds.
CYCLE = (
    "register-storm", "log-storm", "register-freeze", "log-freeze", "register-drift", "log-drift",
    "register-storm", "log-storm", "register-fair", "log-fair",
)  # fmt: skip
#: Runs that a process is given at a time.
CHUNK = 50
#: Objects between two looks for garbage: a run makes many, and all of them go together.
GARBAGE = 50_000


def main(arguments: list[str]) -> int:
    """Run elections, or one of them again; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="make sim", description="Simulate elections on a bad network.")
    parser.add_argument("--elections", type=int, default=20_000, help="of each mode")
    parser.add_argument("--mode", type=Mode, choices=list(Mode), help="only this one")
    parser.add_argument("--seed", type=int, help="replay this one run")
    parser.add_argument("--profile", choices=list(PROFILES), help="only this kind of weather")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    asked = parser.parse_args(arguments)
    if asked.seed is not None:
        return replay(asked.seed, asked.mode or Mode.ONCE, asked.profile or CYCLE[asked.seed % len(CYCLE)])
    return run_all(asked)


def replay(seed: int, mode: Mode, profile: str) -> int:
    """Tell one run in full, made small if it failed."""
    plan = draw(seed, mode, PROFILES[profile])
    smaller, outcome = shrink(plan)
    print(describe(smaller, outcome))
    return 1 if outcome.violation is not None else 0


def run_all(asked: argparse.Namespace) -> int:
    """Run a number of each mode on all cores, and print what came of it."""
    modes = [asked.mode] if asked.mode is not None else list(Mode)
    all_totals = {mode: Totals(mode) for mode in modes}
    chunks = [
        (mode, first, min(CHUNK, asked.first + asked.elections - first), asked.profile)
        for first in range(asked.first, asked.first + asked.elections, CHUNK)
        for mode in modes
    ]
    console = Console()
    began_at = perf_counter()
    # Forked processes share what is imported; nothing else is running here that a fork could break.
    pool = get_context("fork").Pool(asked.processes, initializer=gc.set_threshold, initargs=(GARBAGE,))
    with pool, Progress(console=console, transient=True) as bar:
        task = bar.add_task("elections", total=asked.elections * len(modes))
        for totals in pool.imap(run_chunk, chunks):
            all_totals[totals.mode].merge(totals)
            bar.advance(task, totals.elections)
    found = list(all_totals.values())
    console.print(table(found))
    console.print(f"{perf_counter() - began_at:.0f} s")
    return conclude(found, console)


def conclude(all_totals: list[Totals], console: Console) -> int:
    """Print what went wrong, the first of it in full; 1 if anything did."""
    failures = [failure for totals in all_totals for failure in totals.failures]
    missing = never_met(all_totals)
    for failure in failures[:20]:
        console.print(failure, soft_wrap=True, markup=False, highlight=False)
    if failures:
        console.print(f"{len(failures):,} runs broke a promise. The first, made small:\n")
        words = dict(word.split("=", 1) for word in failures[0].split(": ")[0].split())
        replay(int(words["SEED"]), Mode(words["MODE"]), words["PROFILE"])
    if missing:
        console.print(f"Never met, so that nothing is proved of it: {', '.join(missing)}.")
    return 1 if failures or missing else 0


def run_chunk(chunk: tuple[Mode, int, int, str | None]) -> Totals:
    """Run a few."""
    mode, first, count, profile = chunk
    totals = Totals(mode)
    for seed in range(first, first + count):
        totals.add(run(seed, mode, profile or CYCLE[seed % len(CYCLE)]))
    return totals


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
