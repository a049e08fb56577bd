"""The commands on the pages are commands of the program, with options that it has."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.exceptions import TyperException

from tests.tidy.command_line import read_command
from tests.tidy.repository import ROOT, blocks, named, pages, prose
from tests.tidy.test_commands_reference import COMMANDS

README = (ROOT / "README.md").read_text()
#: The prompt of commands by the language of a block: a page that shows output too has one.
_SHELL = {"sh": "", "console": "$ "}


def lines_of(page: Path) -> Iterator[tuple[str, str]]:
    """Yield the shell commands on a page, each with its page and line."""
    for block in blocks(page.read_text()):
        prompt = _SHELL.get(block.language)
        if prompt is None:
            continue
        lines = block.code.replace("\\\n", " ").splitlines()
        while lines:
            line = lines.pop(0)
            while line.startswith(prompt) and lines and _is_open(line):
                line += f"\n{lines.pop(0)}"
            if line.startswith(prompt):
                yield f"{named(page)}:{block.line} {line.partition(chr(10))[0]}", line.removeprefix(prompt)


def _is_open(line: str) -> bool:
    """Tell whether a quoted text goes on in the next line."""
    try:
        shlex.split(line, comments=True)
    except ValueError:
        return True
    return False


def of_ours(line: str) -> Iterator[list[str]]:
    """Yield the arguments of each ``celeriac`` in a line of shell."""
    words = shlex.split(line, comments=True)
    while words:
        end = next((number for number, word in enumerate(words) if word in ("|", "&&", ";", "&", ">")), None)
        command, words = words[:end], words[len(words) if end is None else end + 1 :]
        while command and (command[0] in ("sudo", "nohup") or re.fullmatch(r"[A-Z_]+=.*", command[0])):
            command = command[1:]
        if command and command[0].rpartition("/")[2] == "celeriac":
            yield command[1:]


LINES = [(where, line) for page in pages() for where, line in lines_of(page)]
COMMAND_LINES = [(where, words) for where, line in LINES for words in of_ours(line)]


@pytest.mark.parametrize(
    "words", [each for _, each in COMMAND_LINES], ids=[where for where, _ in COMMAND_LINES]
)
def test_the_program_understands_the_command(words: list[str]) -> None:
    assert read_command(words).startswith("celeriac ")


def test_commands_are_found_on_many_pages() -> None:
    found = {where.partition(":")[0] for where, _ in COMMAND_LINES}

    assert len(COMMAND_LINES) > 80
    assert {"README.md", "docs/howto/migrate-from-flower.md", "docs/howto/troubleshoot.md"} <= found


def test_a_command_with_an_unknown_option_is_found() -> None:
    (words,) = of_ours("CELERIAC_BROKER_URL=redis://h celeriac record log --chek | tail")

    with pytest.raises(TyperException, match="No such option: --chek"):
        read_command(words)


def test_a_command_in_running_text_exists() -> None:
    missing = set()
    # The changelog also names commands that are gone.
    for page in (each for each in pages() if each.name != "CHANGELOG.md"):
        for words in re.findall(r"`celeriac((?: [a-z][\w-]*)+)", prose(page.read_text())):
            path = "celeriac"
            for word in words.split():
                if not any(each.startswith(f"{path} ") for each in COMMANDS):
                    break  # what follows are arguments
                path = f"{path} {word}"
                if path not in COMMANDS:
                    missing.add(f"{named(page)}: celeriac{words}")

    assert missing == set()


def test_every_target_of_make_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    named_targets = {
        target for page in pages() for target in re.findall(r"`make ([a-z][a-z-]*)", page.read_text())
    } | {line.split()[1] for _, line in LINES if re.match(r"make [a-z]", line)}

    assert {"up", "test", "dist"} <= named_targets
    assert named_targets <= targets


def test_the_first_screen_of_the_readme_has_the_commands_to_begin_with() -> None:
    first = README.partition("\n## Why")[0]
    commands = [line for block in blocks(first) if block.language == "sh" for line in block.code.splitlines()]

    assert len(first.splitlines()) < 45
    assert [line.split("#")[0].split()[0] for line in commands] == [
        "pip",
        "celeriac",
        "celeriac",
        "make",
        "make",
    ]
    assert "monitoring" in first.splitlines()[2].lower()
    assert "docs/screenshots/overview.png" in first
    assert "--enable-events" in first


def test_the_gate_runs_the_test_command_of_the_readme() -> None:
    shown = {line.split("#")[0].strip() for where, line in LINES if where.startswith("README.md")}
    gate = (ROOT / ".ci" / "run").read_text().splitlines()

    assert "make test" in shown
    assert "make test" in gate


def test_the_readme_fits_into_two_screens() -> None:
    assert len(README.splitlines()) <= 120
