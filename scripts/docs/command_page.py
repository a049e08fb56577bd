"""The reference of commands, from the program itself."""

import re
from collections.abc import Iterator
from typing import Any

from rich.text import Text
from typer.main import get_command

from celeriac.cli.root import app
from scripts.docs.markdown import cell, code, table

__all__ = ["command_page"]

_HEAD = """# Every command and option

The text of `--help` for each command, read from the program when this page was built.

"""
#: The mark in a help text before lines that keep their breaks.
_VERBATIM = "\b\n"


def command_page() -> str:
    """Return the page."""
    return _HEAD + "\n".join(_section(command, context) for command, context in _tree(get_command(app)))


def _tree(command: Any, parent: Any = None, name: str = "celeriac") -> Iterator[tuple[Any, Any]]:
    """Yield a command and those below it, each with its context."""
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    yield command, context
    for below, each in getattr(command, "commands", {}).items():
        yield from _tree(each, context, below)


def _section(command: Any, context: Any) -> str:
    usage = command.get_usage(context).removeprefix("Usage:").strip()
    parts = [
        f"## `{context.command_path}`",
        f"```text\n{' '.join(usage.split())}\n```",
        *_prose(Text.from_markup(command.help or "").plain),
        *_tables(command, context),
        command.epilog or "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _prose(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n{2,}", text.strip()):
        if paragraph.startswith(_VERBATIM):
            title, _, lines = paragraph.removeprefix(_VERBATIM).partition("\n")
            yield title
            yield "```sh\n" + "\n".join(line.strip() for line in lines.splitlines()) + "\n```"
        else:
            yield cell(paragraph)


def _tables(command: Any, context: Any) -> Iterator[str]:
    """Yield the arguments and options, in the groups of the help."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for each in command.get_params(context):
        kind = "Arguments" if each.param_type_name == "argument" else "Options"
        record = each.get_help_record(context)
        if record is not None:
            names, meaning = record
            # With spaces between them, choices do not make a column as wide as all of them together.
            row = code(names.replace("|", " | ")), cell(meaning)
            groups.setdefault(each.rich_help_panel or kind, []).append(row)
    below = getattr(command, "commands", {})
    if below:
        yield "**Commands**"
        yield table(
            ("Command", "Does"),
            (
                (_link(f"{context.command_path} {name}"), cell(each.get_short_help_str(200)))
                for name, each in below.items()
            ),
        )
    for title, rows in groups.items():
        yield f"**{title}**"
        yield table(("Name", "Means"), rows)


def _link(path: str) -> str:
    return f"[`{path}`](#{path.replace(' ', '-')})"
