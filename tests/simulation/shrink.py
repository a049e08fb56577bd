"""Makes a failing run small: what is not needed for the failure is left out."""

from collections.abc import Iterator

from tests.simulation.plan import ALL, LEADER, Plan
from tests.simulation.run import Outcome, run_plan

__all__ = ["describe", "shrink"]


def shrink(plan: Plan, *, most_runs: int = 400) -> tuple[Plan, Outcome]:
    """Drop faults and nodes, one by one, while the same promise is broken; return what is left."""
    outcome = run_plan(plan, is_traced=True)
    law, runs = outcome.law, 0
    is_smaller = bool(law)
    while is_smaller and runs < most_runs:
        is_smaller = False
        for smaller in _smaller(plan):
            runs += 1
            tried = run_plan(smaller, is_traced=True)
            if tried.law == law:
                plan, outcome, is_smaller = smaller, tried, True
                break
            if runs >= most_runs:
                break
    return plan, outcome


def _smaller(plan: Plan) -> Iterator[Plan]:
    for index in range(len(plan.faults)):
        yield plan._replace(faults=plan.faults[:index] + plan.faults[index + 1 :])
    for index in range(len(plan.nodes)):
        if len(plan.nodes) > 1:
            yield plan._replace(nodes=plan.nodes[:index] + plan.nodes[index + 1 :])
    profile = plan.profile
    for quiet in (
        {"loss": 0.0},
        {"duplication": 0.0},
        {"longest_delay": 0.1},
        {"arbiter_loss": 0.0},
        {"arbiter_delay": 0.03},
    ):
        calmer = profile._replace(**quiet)  # type: ignore[arg-type]
        if calmer != profile:
            yield plan._replace(profile=calmer)
    for number, fault in enumerate(plan.faults):
        if fault.length > 0.5:
            shorter = fault._replace(length=fault.length / 2)
            yield plan._replace(faults=(*plan.faults[:number], shorter, *plan.faults[number + 1 :]))


def describe(plan: Plan, outcome: Outcome) -> str:
    """Tell a run for people."""
    profile = plan.profile
    faults = [
        f"  {fault.at:9.3f}  {fault.kind}, node {fault.node}, {fault.length:.3f} s" for fault in plan.faults
    ]
    order = "in order of each sender" if plan.is_ordered else "in no order"
    weather = (
        f"{len(plan.nodes)} nodes, ttl {plan.ttl:g} s, healed after {plan.heal_at:.1f} s; "
        f"loss {profile.loss:.0%}, duplication {profile.duplication:.0%}, "
        f"delays to {profile.longest_delay:g} s, {order}"
    )
    title = f"{outcome.replay}: {outcome.violation or 'no promise was broken'}"
    count = f"{len(faults)} faults; node {LEADER} is whoever was granted it last, {ALL} is all"
    return "\n".join((title, weather, count, *faults, *outcome.transcript))
