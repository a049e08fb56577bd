"""An arbiter that fails, hangs and lies where a test wants it to, and those that ask it."""

from collections.abc import Callable
from threading import Thread
from threading import enumerate as all_threads
from typing import Any

from celeriac.model.election import Level
from celeriac.node.leadership import Leadership
from celeriac.node.term import lease_key
from celeriac.programs.process import wait_until

__all__ = ["KEY", "PATIENCE", "Fickle", "come_true", "lead", "leader_threads", "raising"]

#: Far more than needed, for a busy machine.
PATIENCE = 30.0
KEY = lease_key("report")


class Fickle:
    """An arbiter asked through somebody who can fail, hang or lie."""

    def __init__(self, arbiter: Any) -> None:
        self.arbiter = arbiter
        self.level: Level = arbiter.level
        self.reason: str = arbiter.reason
        #: What was asked, in order.
        self.asked: list[str] = []
        #: What is done in place of asking, by question.
        self.instead: dict[str, Callable[..., Any]] = {}

    def __getattr__(self, question: str) -> Callable[..., Any]:
        def ask(*args: Any, **kwargs: Any) -> Any:
            self.asked.append(question)
            if question in self.instead:
                return self.instead[question](*args, **kwargs)
            return getattr(self.arbiter, question)(*args, **kwargs)

        return ask


def raising(error: Exception) -> Callable[..., Any]:
    """Return what raises an error, whatever it is asked."""

    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


def lead(arbiter: Any, name: str = "report", **options: Any) -> Leadership:
    """Return a leadership that asks an arbiter of the test's own."""
    options = {"hostname": "h1", "min_level": Level.L2, **options}
    return Leadership(name, arbiter=lambda: arbiter, **options)


def come_true(condition: Callable[[], object]) -> bool:
    """Look until the condition holds, or all patience is gone; say whether it came to hold."""
    return wait_until(lambda: bool(condition()), patience=PATIENCE)


def leader_threads() -> list[Thread]:
    """Return the threads of those that lead, or wait to."""
    return [each for each in all_threads() if each.name.startswith("celeriac-leader")]
