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
#: Before the commands of a group that are described in a table.
_COMMANDS: Final = "| Command | Does | Options of its own |\n|---|---|---|\n"
_COMMAND_TABLE: Final = re.compile(re.escape(_COMMANDS) + r"(?:\|.*\n)*")
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
        text = found[0]
        options = _options(command) if not path else _shared(command, without=common)
        if _COMMANDS in text:  # a group whose commands have no sections of their own
            shared = common | {each.name for each in options}
            rows = [_command_row(found[1], each, without=shared) for each in command.commands.values()]  # type: ignore[attr-defined]
            text = _COMMAND_TABLE.sub(lambda _: _COMMANDS + "".join(f"{row}\n" for row in rows), text)
        rows = [_row(each) for each in options]
        rows += [] if path else ["| `--help`, `-h` | Show the help and exit. |"]
        return _TABLE.sub(lambda _: _HEAD + "".join(f"{row}\n" for row in rows), text, count=1)

    return _SECTION.sub(section, page)


def _options(command: Any) -> list[Any]:
    return [each for each in command.params if each.param_type_name == "option"]


def _shared(command: Any, *, without: set[str]) -> list[Any]:
    """Return the options of a command, or those that all commands of a group have."""
    below = list(getattr(command, "commands", {"": command}).values())
    names = set.intersection(*({each.name for each in _options(one)} for one in below)) - without
    return [each for each in _options(below[0]) if each.name in names]


def _command_row(group: str, command: Any, *, without: set[str]) -> str:
    arguments = " ".join(_value(each) for each in command.params if each.param_type_name == "argument")
    own = "; ".join(_short(each) for each in _options(command) if each.name not in without)
    name = f"`{group} {command.name}`{f' `{arguments}`' if arguments else ''}"
    return f"| {name} | {_marked(command.get_short_help_str(200))} | {own} |"


def _short(option: Any) -> str:
    value = "" if option.is_flag else f" `{_value(option)}`"
    return f"`{option.opts[0]}`{value}: {_marked(option.help or '').rstrip('.')}"


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
