"""Docstrings as Markdown: roles of Sphinx become code, and comments above attributes become docstrings."""

import re
from typing import Any

from griffe import Attribute, Docstring, Extension, Object

__all__ = ["Spelling", "spelled"]

_ROLE = re.compile(r":[a-z]+:`(?P<short>~?)(?P<path>[^`]+)`")
_COMMENT = "#:"


def spelled(text: str) -> str:
    """Return a docstring with the targets of its roles as code."""
    return _ROLE.sub(lambda role: f"`{_name(role['path'], is_short=bool(role['short']))}`", text)


def _name(path: str, *, is_short: bool) -> str:
    return path.rpartition(".")[2] if is_short else path


class Spelling(Extension):
    """Converts each docstring as it is read."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Convert a docstring."""
        if obj.docstring is not None:
            obj.docstring.value = spelled(obj.docstring.value)

    def on_attribute_instance(self, *, attr: Attribute, **_: Any) -> None:
        """Take the comment above an attribute for its docstring, where it has none."""
        path = attr.filepath
        # A list of paths is a package without a file of its own, and no attribute is in one.
        if attr.docstring is None and attr.lineno is not None and not isinstance(path, list):
            lines = attr.lines_collection[path]
            first = last = attr.lineno - 1
            while first > 0 and lines[first - 1].strip().startswith(_COMMENT):
                first -= 1
            text = " ".join(line.strip().removeprefix(_COMMENT).strip() for line in lines[first:last])
            if text:
                attr.docstring = Docstring(spelled(text), lineno=first + 1, parent=attr)
