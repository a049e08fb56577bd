"""The tables of options in the reference of commands, from the program itself.

``python -m scripts.docs.option_tables`` writes them into the page; a test compares.
"""

import re
from enum import Enum
from typing import Any, Final

from rich.text import Text
from typer.main import get_command

from celeriac.cli.root import app
from scripts.docs.markdown import cell
from tests.tidy.repository import ROOT

__all__ = ["PAGE", "with_option_tables"]

PAGE: Final = ROOT / "docs" / "reference" / "commands.md"
_HEAD: Final = "| Option | Means |\n|---|---|\n"
_SECTION: Final = re.compile(r"^## `(celeriac[ \w-]*)`\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_TABLE: Final = re.compile(re.escape(_HEAD) + r"(?:\|.*\n)*")
#: An option, a setting, a variable, a URL.
_NAME: Final = re.compile(
    r"((?<![\w-])--?[A-Za-z][a-z-]*|\b[A-Za-z]+_[A-Za-z_]*[A-Za-z]|\b[a-z0-9]+://[^\s,;]*[^\s,;.])"
)


def with_option_tables(page: str) -> str:
    """Return the page with the options of each command as the program has them now."""
    program = get_command(app)
    common = {each.name for each in program.params}

    def section(found: re.Match[str]) -> str:
        path = found[1].split()[1:]
        command = program
        for name in path:
            command = command.commands[name]  # type: ignore[attr-defined]
        if path and hasattr(command, "commands"):  # options that its commands share, in the words of the page
            return found[0]
        options = [each for each in command.params if each.param_type_name == "option"]
        rows = [_row(each) for each in options if not path or each.name not in common]
        rows += [] if path else ["| `--help`, `-h` | Show the help and exit. |"]
        return _TABLE.sub(lambda _: _HEAD + "".join(f"{row}\n" for row in rows), found[0], count=1)

    return _SECTION.sub(section, page)


def _row(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in sorted(option.opts, key=len, reverse=True))
    value = f" `{_value(option)}`" if not option.is_flag else ""
    default = _default(option)
    text = _marked(Text.from_markup(option.help or "").plain) + (f" Default: `{default}`." if default else "")
    return f"| {names}{value.replace('|', chr(92) + '|')} | {text} |"


def _marked(text: str) -> str:
    """Return a help text with options, settings, variables and URLs as code."""
    parts = _NAME.split(text)
    # Every other part is a name. The rest keeps the spaces at its ends, which a cell has not.
    return "".join(f"`{part}`" if place % 2 else cell(f"x{part}x")[1:-1] for place, part in enumerate(parts))


def _value(option: Any) -> str:
    kind = option.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum) and not option.metavar:
        return "|".join(str(each.value) for each in kind)
    return option.metavar or "N"


def _default(option: Any) -> str:
    value = option.default.value if isinstance(option.default, Enum) else option.default
    is_shown = option.show_default and isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if is_shown and "efault" not in (option.help or "") else ""


if __name__ == "__main__":
    PAGE.write_text(with_option_tables(PAGE.read_text()))
