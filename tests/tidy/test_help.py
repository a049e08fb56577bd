"""Help texts are shown as they are written."""

import re
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from typing import Any

import pytest

from tests.tidy.command_line import PROGRAM
from tests.tidy.repository import ROOT
from tests.tidy.test_commands_reference import COMMANDS

#: A package with an extra.
_EXTRA = re.compile(r"celeriac\[[\w,]+\]")


def texts_of(command: Any) -> str:
    """Return what a command, its options and its arguments say of themselves, as it is written."""
    texts = [command.help, command.epilog, *(getattr(each, "help", "") for each in command.params)]
    return "\n".join(text or "" for text in texts).replace("\\[", "[")


@cache
def help_of(path: str) -> str:
    """Return what a user sees, in one line: words are wrapped, and some stand in a frame."""
    with redirect_stdout(StringIO()) as shown:
        PROGRAM.main([*path.split()[1:], "--help"], prog_name="celeriac", standalone_mode=False)
    return " ".join(shown.getvalue().replace("│", " ").split())


@pytest.mark.parametrize("path", COMMANDS)
def test_help_shows_every_extra_that_its_text_names(path: str) -> None:
    shown = help_of(path)

    missing = [extra for extra in _EXTRA.findall(texts_of(COMMANDS[path])) if extra not in shown]

    assert missing == []
    assert re.findall(r"pip install '?celeriac\b(?!\[)", shown) == []


def test_some_help_names_an_extra() -> None:
    named = {extra for command in COMMANDS.values() for extra in _EXTRA.findall(texts_of(command))}

    assert {"celeriac[demo]", "celeriac[tui]"} <= named


@pytest.mark.parametrize("path", COMMANDS)
def test_help_shows_no_markup(path: str) -> None:
    shown = help_of(path)

    assert "``" not in shown
    assert "\\[" not in shown


def test_the_help_of_up_says_how_to_install_the_demo() -> None:
    assert "pip install 'celeriac[demo]'" in help_of("celeriac up")


def test_the_help_of_status_names_its_exit_codes() -> None:
    page = (ROOT / "docs" / "tutorial" / "watch-a-cluster.md").read_text()

    assert "0 if all is well, 1 if a node is missing, 69 if there is none" in page
    assert all(re.search(rf"\b{code}\s+if\b", help_of("celeriac status")) for code in (0, 1, 69))
