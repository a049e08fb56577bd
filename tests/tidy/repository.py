"""The files of this repository, and what its pages hold."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from os import walk
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "celeriac"

_BUILT = {"__pycache__", "build", "dist"}
_FENCED = re.compile(r"^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    language: str
    code: str
    #: The line of the page where the code begins.
    line: int
    #: Only blank lines part it from the block before it.
    is_adjacent: bool


def files() -> Iterator[Path]:
    """Yield the files that people wrote, and none that a tool made."""
    for folder, below, names in walk(ROOT):
        below[:] = [name for name in below if name == ".ci" or not (name.startswith(".") or name in _BUILT)]
        yield from (Path(folder, name) for name in names)


def texts() -> Iterator[tuple[Path, str]]:
    """Yield the files that are text, and the text."""
    for path in files():
        try:
            yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def modules() -> list[Path]:
    """Return the modules of the package."""
    return sorted(SOURCE.rglob("*.py"))


@cache
def pages() -> list[Path]:
    """Return the pages of documentation."""
    return sorted(path for path in files() if path.suffix == ".md")


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    found = []
    end = 0
    for fence in _FENCED.finditer(text):
        between = text[end : fence.start()]
        line = text.count("\n", 0, fence.start("code")) + 1
        is_adjacent = end > 0 and not between.strip()
        found.append(Block(fence["language"], fence["code"], line, is_adjacent))
        end = fence.end()
    return found


def prose(text: str) -> str:
    """Return a page without its fenced blocks."""
    return _FENCED.sub("", text)


def named(path: Path) -> str:
    """Return a path as people write it."""
    return path.relative_to(ROOT).as_posix()
