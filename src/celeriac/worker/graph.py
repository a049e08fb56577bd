"""The parts of a worker, and the order in which they start and stop."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from threading import RLock
from typing import ClassVar

from celeriac.errors import CallerError

__all__ = ["Graph", "Step"]

logger = logging.getLogger(__name__)


class Step:
    """One part of a worker.

    ``requires`` names parts that must run for this one to run: it starts after them, stops before
    them, and restarts with them. ``after`` is order alone: it starts after those, and is
    left alone when they restart.
    """

    name: ClassVar[str]
    requires: ClassVar[tuple[str, ...]] = ()
    after: ClassVar[tuple[str, ...]] = ()
    #: A step that is switched off keeps its place, and does nothing.
    is_enabled: bool = True
    #: The reason why a step is off though nobody switched it off; empty if there is none.
    unsupported: str = ""

    def start(self) -> None:
        """Begin; raises :class:`~celeriac.errors.NetworkError` if what it needs cannot be reached."""

    def stop(self) -> None:
        """End in good order. Called once for each start, also for one that failed halfway; raises nothing."""

    def __repr__(self) -> str:
        return f"<step {self.name}>"


class Graph:
    """Steps in the order that their needs give; where those leave a choice, the order they were given in.

    Any thread may start, stop and restart them: one after the other.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = {step.name: step for step in steps}
        if len(self._steps) != len(steps):
            names = [step.name for step in steps]
            twice = sorted({name for name in names if names.count(name) > 1})
            raise CallerError(f"two steps are named {', '.join(twice)}; give each step a unique name")
        for step in steps:
            for need in (*step.requires, *step.after):
                if need not in self._steps:
                    raise CallerError(
                        f"step {step.name!r} needs step {need!r}, which is missing: add it, or remove both"
                    )
        self._order = self._sorted()
        self._started: list[Step] = []
        self._mutex = RLock()

    def __iter__(self) -> Iterator[Step]:
        """Yield the steps in the order they start in."""
        return iter(self._order)

    def start(self, name: str | None = None) -> None:
        """Start what is enabled and does not run yet: every step, or one and what it requires.

        If one fails, those that were started before it, this time, are stopped again.
        """
        with self._mutex:
            self._start(self._order if name is None else self._needs(name))

    def stop(self) -> None:
        """Stop what runs, in reverse; what one raises keeps no other from being stopped."""
        with self._mutex:
            self._stop(self._order)

    def restart(self, name: str) -> None:
        """Stop a step and all that require it, in reverse, and start them again; the others run on.

        If one fails to start, none of these runs; to call it again is fine.
        """
        affected = self.dependents(name)
        with self._mutex:
            self._stop(affected)
            self._start(affected)

    def dependents(self, name: str) -> list[Step]:
        """Return a step and all that require it, directly or not, in the order they start in."""
        found = {name}
        for step in self._order:
            if found.intersection(step.requires):
                found.add(step.name)
        return [step for step in self._order if step.name in found]

    def text(self) -> str:
        """Return the graph for people: a line for each step, in order, with what it needs."""
        width = max(len(step.name) for step in self._order)
        lines = []
        for number, step in enumerate(self._order, 1):
            needs = [
                f"{word} {', '.join(names)}"
                for word, names in (("requires", step.requires), ("after", step.after))
                if names
            ]
            off = [] if step.is_enabled else ["off"]
            lines.append(f"{number}. {step.name:<{width}}  {'; '.join([*off, *needs])}".rstrip())
        return "\n".join(lines)

    def _needs(self, name: str) -> list[Step]:
        """Return a step and all that it requires, directly or not, in the order they start in."""
        found = {name}
        for step in reversed(self._order):
            if step.name in found:
                found.update(step.requires)
        return [step for step in self._order if step.name in found]

    def _start(self, steps: Iterable[Step]) -> None:
        begun: list[Step] = []
        try:
            for step in steps:
                if step.is_enabled and step not in self._started:
                    begun.append(step)
                    self._started.append(step)
                    step.start()
        except BaseException:
            self._stop(begun)
            raise

    def _stop(self, steps: Sequence[Step]) -> None:
        for step in reversed(steps):
            if step in self._started:
                self._started.remove(step)
                try:
                    step.stop()
                except Exception:  # the others are to be stopped all the same
                    logger.exception("worker: step %s failed to stop", step.name)

    def _sorted(self) -> list[Step]:
        order: list[Step] = []
        waiting = list(self._steps.values())
        placed: set[str] = set()
        while waiting:
            ready = [step for step in waiting if placed.issuperset((*step.requires, *step.after))]
            if not ready:
                raise CallerError(f"circular dependency between steps: {' → '.join(self._circle(waiting))}")
            first = ready[0]
            order.append(first)
            placed.add(first.name)
            waiting.remove(first)
        return order

    def _circle(self, waiting: list[Step]) -> list[str]:
        """Return the names along a circle, the first again at the end."""
        names = {step.name for step in waiting}
        path = [waiting[0].name]
        while path.count(path[-1]) == 1:
            step = self._steps[path[-1]]
            path.append(next(need for need in (*step.requires, *step.after) if need in names))
        return path[path.index(path[-1]) :]
