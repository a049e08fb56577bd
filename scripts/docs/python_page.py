"""The reference of the public names, as requests to mkdocstrings, which reads their docstrings."""

import inspect
from collections.abc import Callable
from types import ModuleType

import celeriac
from celeriac import history

__all__ = ["python_page"]

_HEAD = """# Every public name

Signatures and docstrings, read from the code when this page was built.
"""
_GROUPS: dict[str, Callable[[object], bool]] = {
    "Classes": lambda each: inspect.isclass(each) and not issubclass(each, BaseException),
    "Functions": inspect.isfunction,
    "Errors": lambda each: inspect.isclass(each) and issubclass(each, BaseException),
    "Modules": lambda each: isinstance(each, ModuleType) and each is not history,
}
#: Their members are listed once, where they begin: errors and records are of a few kinds.
_ALIKE = ("Errors", "Modules")
_OWN = "    options:\n      inherited_members: false\n"


def python_page() -> str:
    """Return the page."""
    groups = {
        title: [f"celeriac.{name}" for name in celeriac.__all__ if belongs(getattr(celeriac, name))]
        for title, belongs in _GROUPS.items()
    }
    groups["`celeriac.history`"] = [f"celeriac.history.{name}" for name in history.__all__]
    parts = [_HEAD]
    for title, names in groups.items():
        parts += [f"## {title}", *(f"::: {name}\n{_OWN if title in _ALIKE else ''}" for name in names)]
    return "\n\n".join(parts) + "\n"
