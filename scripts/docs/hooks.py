"""Hooks of mkdocs: parts of pages made of code, and files outside ``docs``.

Nothing made here is written into the repository. What is made of code is the last part of the page that is
written by hand about the same subject, so that each subject has one page.
"""

import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from scripts.docs.http_page import http_page
from scripts.docs.python_page import python_page
from scripts.docs.settings_page import settings_page

__all__ = ["on_files", "on_page_markdown"]

_ROOT: Final = Path(__file__).parents[2]
#: The last part of a page by its place: the title of the part, and the function that makes it.
MADE: Final[dict[str, tuple[str, Callable[[], str]]]] = {
    "reference/http-api.md": ("Every address, parameter and field", http_page),
    "reference/settings.md": ("The reason of each default", settings_page),
    "reference/api.md": ("Every signature and docstring", python_page),
}
#: Files of the repository that are pages too.
OUTSIDE: Final = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
}
_LINK: Final = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
_TITLE: Final = re.compile(r"\A# .+\n")
_FENCED: Final = re.compile(r"^(```.*?^```)$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside."""
    for source, place in OUTSIDE.items():
        files.append(File.generated(config, place, content=(_ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Correct links that leave the folder ``docs``, and add the part made of code."""
    place = page.file.src_uri
    if page.is_homepage:
        # It is the only page of its section.
        page.meta["hide"] = ["navigation"]
    home = {made: source for source, made in OUTSIDE.items()}.get(place, f"docs/{place}")
    whole = _LINK.sub(lambda link: _mended(link, home=home, place=place), markdown)
    if place not in MADE:
        return whole
    title, make = MADE[place]
    return f"{whole}\n## {title}\n{_lower_headings(_TITLE.sub('', make()))}"


def _lower_headings(markdown: str) -> str:
    """Return a page with each heading one level lower."""
    parts = _FENCED.split(markdown)
    # The odd ones are fenced blocks, in which a comment looks like a heading.
    return "".join(
        part if number % 2 else re.sub(r"^#", "##", part, flags=re.MULTILINE)
        for number, part in enumerate(parts)
    )


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
