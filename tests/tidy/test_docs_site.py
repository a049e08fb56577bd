"""The docs can be built as a site, which fetches nothing from elsewhere, and whose references are whole."""

import os
import re
import subprocess
import sys
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path

import pytest

import celeriac
from celeriac import history
from celeriac.config import Limits, Settings
from scripts.docs.hooks import MADE, OUTSIDE
from scripts.docs.http_page import description
from scripts.docs.markdown import table
from scripts.docs.settings_page import reasons
from tests.tidy.repository import ROOT, named, pages

#: What a browser fetches by itself when it shows a page: the tag, and the attribute that names it.
FETCHED = {
    ("audio", "src"),
    ("embed", "src"),
    ("form", "action"),
    ("iframe", "src"),
    ("image", "href"),
    ("img", "src"),
    ("img", "srcset"),
    ("input", "src"),
    ("link", "href"),
    ("object", "data"),
    ("script", "src"),
    ("source", "src"),
    ("source", "srcset"),
    ("use", "href"),
    ("video", "poster"),
    ("video", "src"),
}
#: Addresses in the theme's script, with what a page has where they are asked for: a diagram of Mermaid, or a
#: link to a host of repositories. The last is for browsers from before 2020.
ASKED_ON_DEMAND = {
    "https://unpkg.com/mermaid@": 'class="mermaid"',
    "https://api.github.com/": 'data-md-component="source"',
    "https://${e}/api/v4/projects/": 'data-md-component="source"',
    "https://unpkg.com/resize-observer-polyfill": None,
}


class Fetches(HTMLParser):
    """Collects what a page fetches, and the identifiers in it."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if (tag, name) in FETCHED and value:
                self.addresses.append(value)
            if name == "id" and value:
                self.ids.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]

    done = subprocess.run(  # noqa: S603
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def read(page: Path) -> Fetches:
    found = Fetches()
    found.feed(page.read_text())
    return found


def text_of(page: Path) -> str:
    """Return what a reader sees of a page, in one line."""
    words = re.sub(r"<[^>]+>", "", page.read_text().partition("<article")[2].partition("</article>")[0])
    for spelled, mark in (("&lt;", "<"), ("&gt;", ">"), ("&#124;", "|"), ("&quot;", '"'), ("&amp;", "&")):
        words = words.replace(spelled, mark)
    return " ".join(words.split())


def built(source: str) -> str:
    """Return where a page of Markdown is in the site."""
    return "index.html" if source == "README.md" else source.removesuffix(".md") + ".html"


def test_every_page_is_in_the_site_and_in_its_navigation(site: Path) -> None:
    folder = ROOT / "docs"
    sources = {page.relative_to(folder).as_posix() for page in pages() if folder in page.parents}
    navigation = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))

    there = {page.relative_to(site).as_posix() for page in site.rglob("*.html")} - {"404.html"}

    assert navigation == sources | set(OUTSIDE.values())
    assert there == {built(source) for source in navigation}


def test_a_page_has_one_title_in_the_navigation_and_at_its_top() -> None:
    entries = re.findall(r'^ +- "?([^"\n]+?)"?: (\S+\.md)$', (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    tops = {
        target: (ROOT / "docs" / target).read_text().partition("\n")[0].removeprefix("# ")
        for _, target in entries
        if target not in OUTSIDE.values()
    }

    # Titles of decisions are sentences, and shorter in the navigation.
    different = {
        target: (title, tops[target])
        for title, target in entries
        if target in tops and title != tops[target] and not target.startswith("decisions/")
    }

    assert len(tops) > 50
    assert different == {"README.md": ("Home", "Celeriac: documentation")}


def test_a_howto_has_an_imperative_for_a_title() -> None:
    titles = [page.read_text().partition("\n")[0] for page in (ROOT / "docs" / "howto").glob("*.md")]

    assert titles
    assert [each for each in titles if re.match(r"# (?:How|What|Who|When|Why)\b", each)] == []


def test_nothing_that_is_made_is_in_the_repository() -> None:
    assert [place for place in OUTSIDE.values() if (ROOT / "docs" / place).exists()] == []


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    fetched = {
        f"{page.name}: {address}"
        for page in site.rglob("*.html")
        for address in read(page).addresses
        if re.match(r"(?:[a-z]+:)?//", address)
    }

    assert fetched == set()


def test_every_file_that_a_page_fetches_is_there(site: Path) -> None:
    pairs = [(page, address) for page in site.rglob("*.html") for address in read(page).addresses]
    # The page for what is not found does not know where it is.
    local = [(page, address) for page, address in pairs if page.name != "404.html" and address[0] not in "#/"]

    missing = [address for page, address in local if not (page.parent / address.partition("?")[0]).exists()]

    assert local
    assert missing == []


def test_no_style_fetches_anything_from_elsewhere(site: Path) -> None:
    styles = "\n".join(path.read_text() for path in site.rglob("*.css"))
    styles += "\n".join(path.read_text() for path in site.rglob("*.html"))

    fetched = re.findall(r"url\(\s*[\"']?((?:https?:)?//[^)]+)", styles) + re.findall(r"@import[^;]+", styles)

    assert fetched == []


def test_scripts_ask_elsewhere_only_for_what_no_page_has(site: Path) -> None:
    html = "\n".join(page.read_text() for page in site.rglob("*.html"))
    scripts = "\n".join(path.read_text() for path in site.rglob("*.js"))

    asked = re.findall(r"[\"'`](https?://[^\"'`\s]+|//[\w-]+\.[^\"'`\s]+)", scripts)
    unexplained = [
        address for address in asked if not address.startswith(("http://www.w3.org/", *ASKED_ON_DEMAND))
    ]

    assert asked
    assert unexplained == []
    assert [mark for mark in ASKED_ON_DEMAND.values() if mark and mark in html] == []


def test_pictures_fetch_nothing() -> None:
    pictures = sorted((ROOT / "docs").rglob("*.svg"))

    with_address = [
        named(path) for path in pictures if re.search(r"(href|src|url\()\W*https?:", path.read_text())
    ]

    assert pictures
    assert with_address == []


def test_the_reference_of_the_api_has_every_address_parameter_and_field(site: Path) -> None:
    page = text_of(site / "reference" / "http-api.html")
    api = description()

    routes = [
        (f"{method.upper()} {path}", route)
        for path, methods in api["paths"].items()
        for method, route in methods.items()
    ]
    fields_of = [
        name for schema in api["components"]["schemas"].values() for name in schema.get("properties", ())
    ]
    parameters = [each["name"] for _, route in routes for each in route.get("parameters", ())]

    assert len(routes) > 20
    assert [name for name, _ in routes if name not in page] == []
    assert [
        name for name in (*parameters, *fields_of, *api["components"]["schemas"]) if name not in page
    ] == []


def test_the_reference_of_settings_has_each_with_its_default_and_its_reason(site: Path) -> None:
    page = text_of(site / "reference" / "settings.html")

    names = {
        each.name: repr(getattr(kind(), each.name))
        for kind in (Settings, Limits)
        for each in fields(kind)
        if not each.name.startswith("_")
    }

    assert [name for name, default in names.items() if f"{name} Default {default}." not in page] == []
    assert [name for name in names if not (reasons(Settings) | reasons(Limits))[name]] == []


def test_the_reference_of_names_has_every_public_name(site: Path) -> None:
    ids = read(site / "reference" / "api.html").ids

    names = {f"celeriac.{name}" for name in celeriac.__all__ if name != "history"}
    names |= {f"celeriac.history.{name}" for name in history.__all__}

    assert names - ids == set()


def test_no_docstring_shows_what_only_sphinx_reads(site: Path) -> None:
    page = text_of(site / "reference" / "api.html")

    assert re.findall(r":(?:class|meth|func|data|mod|attr):", page) == []


def test_the_part_made_of_code_is_the_last_of_its_page(site: Path) -> None:
    last = {
        source: re.findall(r"<h2[^>]*>([^<]+)", (site / built(source)).read_text())[-1] for source in MADE
    }

    assert last == {source: title for source, (title, _) in MADE.items()}


def test_a_column_that_no_row_fills_is_left_out() -> None:
    made = table(("Name", "Default", "Means"), [("a", "", "first"), ("b", "", "second")])

    assert made == "| Name | Means |\n|---|---|\n| a | first |\n| b | second |\n"
    assert table(("Name",), []) == ""
