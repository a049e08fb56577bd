"""The tasks that a program knows, by name."""

import sys
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from celeriac.errors import CallerError, NotRegistered
from celeriac.node.task import Task

__all__ = ["TaskRegistry", "task_name"]

#: What the module is called that a program was started with, and in a process that it has spawned.
_MAIN: Final = ("__main__", "__mp_main__")


class TaskRegistry(Mapping[str, Task]):
    """Tasks by name, in the order they were defined."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}

    def add(self, task: Task) -> Task:
        """Add a task, and return it; the same function once more, as of a module read twice, replaces it."""
        there = self._tasks.get(task.name)
        if there is not None and _place(there) != _place(task):
            raise CallerError(
                f"two tasks are named {task.name!r}, {_place(there)} and {_place(task)}: rename one, as in "
                "@app.task(name=…)"
            )
        self._tasks[task.name] = task
        return task

    def __getitem__(self, name: str) -> Task:
        try:
            return self._tasks[name]
        except KeyError:
            raise NotRegistered(self._told(name)) from None

    def __contains__(self, name: object) -> bool:
        return name in self._tasks

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._tasks))

    def __len__(self) -> int:
        return len(self._tasks)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a task, or ``default``."""
        return self._tasks.get(name, default)

    def _told(self, name: str) -> str:
        near = get_close_matches(str(name)[:200], self._tasks, n=3)
        hint = f"; similar: {', '.join(near)}" if near else ""
        return f"no task is named {name!r:.200}{hint}: import the module that defines it, or correct the name"


def task_name(function: Callable[..., Any]) -> str:
    """Return the name of a function as a task: its module and its own.

    The module that a program was started with goes by the name that others would import it by.
    """
    module = function.__module__
    if module in _MAIN:
        module = _importable(module)
    return f"{module}.{function.__name__}"


def _importable(module: str) -> str:
    main = sys.modules.get(module)
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name not in _MAIN:
        name: str = spec.name  # started with python -m
        return name.removesuffix(".__main__")
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else module


def _place(task: Task) -> str:
    function = getattr(task, "__wrapped__", task.run)
    module = function.__module__
    return f"{_importable(module) if module in _MAIN else module}.{function.__qualname__}"
