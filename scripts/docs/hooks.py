"""Hooks of mkdocs: pages made of code, and files outside ``docs``.

Nothing made here is written into the repository. A link between pages of ``docs`` has to lead to a file of a
checkout, so the pages that are made are linked from here, below the title of the page that they complete.
"""

import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from scripts.docs.command_page import command_page
from scripts.docs.http_page import http_page
from scripts.docs.python_page import python_page
from scripts.docs.settings_page import settings_page

__all__ = ["on_files", "on_page_markdown"]

_ROOT: Final = Path(__file__).parents[2]
#: Pages that are made of code.
MADE: Final[dict[str, Callable[[], str]]] = {
    "reference/cli.md": command_page,
    "reference/http.md": http_page,
    "reference/defaults.md": settings_page,
    "reference/python.md": python_page,
}
#: Files of the repository that are pages too.
OUTSIDE: Final = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
}
#: The line on a page by hand that links the page made of code.
_COMPLETED: Final = {
    "reference/commands.md": "[Every command and option](cli.md), as `--help` says them.",
    "reference/http-api.md": "[Every address, parameter and field](http.md), as OpenAPI says them.",
    "reference/settings.md": "[The reason of each default](defaults.md), from the code.",
    "reference/api.md": "[Every signature and docstring](python.md), from the code.",
}
_LINK: Final = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
_TITLE: Final = re.compile(r"\A# .+\n")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and those from outside."""
    for place, make in MADE.items():
        files.append(File.generated(config, place, content=make()))
    for source, place in OUTSIDE.items():
        files.append(File.generated(config, place, content=(_ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Correct links that leave the folder ``docs``, and link the page made of code."""
    place = page.file.src_uri
    if page.is_homepage:
        # It is the only page of its section.
        page.meta["hide"] = ["navigation"]
    if place in MADE:
        return markdown
    if place in _COMPLETED:
        markdown = _TITLE.sub(lambda title: f'{title[0]}\n!!! tip ""\n    {_COMPLETED[place]}\n', markdown)
    home = {made: source for source, made in OUTSIDE.items()}.get(place, f"docs/{place}")
    return _LINK.sub(lambda link: _mended(link, home=home, place=place), markdown)


def _mended(link: re.Match[str], *, home: str, place: str) -> str:
    """Return a link from a place to a page; for a target that is no page, the text and the path."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(home), link["target"]))
    is_inside = home.startswith("docs/") and target.startswith("docs/")
    if is_inside or not (_ROOT / target).exists():
        # A link that mkdocs understands and checks, or code that looks like one.
        return link[0]
    if not target.startswith("docs/") and target not in OUTSIDE:
        return f"{link['text']} (`{target}`)"
    to = OUTSIDE.get(target, target.removeprefix("docs/"))
    return f"[{link['text']}]({posixpath.relpath(to, posixpath.dirname(place) or '.')}{link['anchor'] or ''})"
