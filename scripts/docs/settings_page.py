"""The reference of settings, from their definitions: each default with its reason."""

import inspect
import re
from dataclasses import fields

from celeriac.config import Limits, Settings
from scripts.docs.docstring import spelled
from scripts.docs.markdown import code

__all__ = ["reasons", "settings_page"]

_HEAD = """# The reason of each default

The comments on the definitions, read from the program when this page was built.

"""
_LIMITS = """
## Limits

The most that one peer may send before it is refused or cut and counted: `Limits`, for [`Gate`](api.md#gate).

"""
_FIELD = re.compile(r"    (?P<name>[a-z]\w*): ")


def reasons(kind: type) -> dict[str, str]:
    """Return the comments above the fields of a class, by name; fields in a row share one."""
    found: dict[str, str] = {}
    why = ""
    is_told = True
    for line in inspect.getsource(kind).splitlines():
        if line.startswith("    #: "):
            why = line[7:] if is_told else f"{why} {line[7:]}"
            is_told = False
        elif field := _FIELD.match(line):
            found[field["name"]] = spelled(why)
            is_told = True
        elif not line:
            why = ""
    return found


def settings_page() -> str:
    """Return the page."""
    return _HEAD + _table(Settings) + _LIMITS + _table(Limits)


def _table(kind: type[Settings | Limits]) -> str:
    made, why = kind(), reasons(kind)
    rows = [
        f"{code(each.name)}\n:   Default {code(repr(getattr(made, each.name)))}. {why.get(each.name, '')}\n"
        for each in fields(kind)
        if not each.name.startswith("_")
    ]
    return "\n".join(rows)
