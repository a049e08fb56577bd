"""The reference of commands names each of them, with each of its options and no others."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from celeriac.cli.exit import Code
from scripts.docs.option_tables import with_option_tables
from tests.tidy.command_line import PROGRAM
from tests.tidy.repository import ROOT

PAGE = (ROOT / "docs" / "reference" / "commands.md").read_text()
_OPTION = re.compile(r"`(--?[A-Za-z][a-z-]*)`")
#: Those that the page tells once for all commands.
COMMON = {"--broker", "-b", "--app", "-A", "--config", "--debug", "--version", "--help", "-h"}


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield a command and those below it, with what people type to run them."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{path} {name}")


COMMANDS = dict(commands(PROGRAM, "celeriac"))
#: Those that the page lists in a table of their group.
IN_A_TABLE = [path for path in COMMANDS if re.match("celeriac (control|inspect) ", path)]
WITH_SECTION = [path for path in COMMANDS if path not in ("celeriac", *IN_A_TABLE)]
GROUPS = ["celeriac control", "celeriac inspect"]


def known(path: str) -> set[str]:
    """Return the options that the program knows."""
    return {name for option in COMMANDS[path].params for name in option.opts if name.startswith("-")}


def section(path: str) -> str:
    """Return the part of the page about a command."""
    return PAGE.partition(f"\n## `{path}`\n")[2].partition("\n## ")[0]


def told(text: str) -> set[str]:
    """Return the options that a part of the page names."""
    return set(_OPTION.findall(text))


def test_the_tables_of_options_are_those_of_the_program() -> None:
    assert with_option_tables(PAGE) == PAGE, "write them: .venv/bin/python -m scripts.docs.option_tables"


@pytest.mark.parametrize("path", [path for path in WITH_SECTION if path not in GROUPS])
def test_the_section_of_a_command_has_its_options_and_no_others(path: str) -> None:
    rows = "\n".join(line for line in section(path).splitlines() if line.startswith("|"))

    assert told(rows) - COMMON == known(path) - COMMON


@pytest.mark.parametrize("path", IN_A_TABLE)
def test_the_row_of_a_command_has_its_options_and_no_others(path: str) -> None:
    rows = section(" ".join(path.split()[:2])).splitlines()
    (row,) = [line for line in rows if line.startswith(f"| `{path}`")]
    shared = {option for line in rows if line.startswith("| `-") for option in told(line.split(" | ")[0])}

    assert shared == known(path) & shared
    assert told(row) >= known(path) - COMMON - shared


def test_the_common_options_are_those_of_the_program_and_of_every_command() -> None:
    common = told(section("celeriac"))

    assert common == known("celeriac") | {"--help", "-h"}
    assert all(known(path) >= COMMON - {"--help", "-h"} for path in COMMANDS)


def test_no_command_is_told_that_does_not_exist() -> None:
    named = set(re.findall(r"^## `(celeriac[ \w]*)`$", PAGE, re.MULTILINE))
    rows = set(re.findall(r"^\| `(celeriac (?:control|inspect) [\w-]+)`", PAGE, re.MULTILINE))

    assert named | rows == set(COMMANDS)


def test_the_exit_codes_are_those_of_the_program() -> None:
    rows = PAGE.partition("\n## Exit codes\n")[2].partition("\n## ")[0]

    assert re.findall(r"^\| (\d+) \|", rows, re.MULTILINE) == [str(code.value) for code in Code]
