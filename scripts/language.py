"""Figures on the language of texts that people read: ``python -m scripts.language``.

Prints, for each area, its words, how often "what" and "who" stand in 1,000 of them, the banned words and
the texts with a bad beginning; with ``--list`` also where they are. ``tests/tidy/test_language.py`` has the
bounds.

An area is a folder of the package, the docs, the files of ``deploy`` or the public docstrings. A text of the
package is a string of two words or more that is no docstring, or a docstring that is shown: the help of a
command, the description of an address of the HTTP API.
"""

import argparse
import ast
import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml  # type: ignore[import-untyped]

__all__ = ["BANNED", "ROOT", "Text", "all_texts", "bad_words", "has_bad_begin", "main", "rate", "read_python"]

ROOT: Final = Path(__file__).parents[1]
_PACKAGE: Final = ROOT / "src" / "celeriac"

#: By pattern: what to write. Celery, Prometheus and Python have words for all of these.
BANNED: Final = {
    r"anew": "again",
    r"mend(?:s|ed|ing)?": "fix, repair or correct",
    r"parted": "separated",
    r"farewells?": "shutdown event",
    r"for ever": "indefinitely",
    r"beside": "alongside, next to",
    r"ailments?": "problem",
    r"told|tells?|telling": "reported, shows",
    r"hears?|heard|hearing": "receive, see",
    r"patience": "timeout",
    r"spell(?:s|ed|ing)?": "encode, write",
    r"at the least": "at least",
    r"so many": "the number",
    r"sign of life": "heartbeat, answer",
    r"moments?": "time, timestamp",
    r"he|him|his": "they, or the role",
    r"the link (?:to|of|is|was)|loss(?:es)? of the link": "connection, disconnect",
    r"clocks disagree": "clock skew",
    r"who sent whom": "parent and child tasks",
    r"relatives": "related tasks",
    r"crew|chores?|lineup": "supervisor, job",
    r"(?<!there )(?:is|are|was|were) no (?!longer|more|less|different)[a-z]\w*": "is not a …, invalid …",
}
_BANNED: Final = {re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE): fix for pattern, fix in BANNED.items()}
_BAD_BEGIN: Final = re.compile(r"\W*(?:what|who|that|it|this)(?!['-])\b", re.IGNORECASE)
_WORD: Final = re.compile(r"[A-Za-z][\w'-]*")
#: Strings that are programs, patterns or statements.
_CODE: Final = re.compile(
    r"redis\.p?call|\b(?:SELECT|INSERT|DELETE|CREATE|WHERE|VALUES|CONFLICT|CAST|STRUCT|GROUP BY|ORDER BY)\b"
    r"|^\s*(?:import|from|def|class)\s|[#.]\w+ \{ |\(\?[:P=!<i]|\\[bsdw]\b|struct<|^<[a-z]"
)
#: A decorator whose function has a docstring that users see.
_SHOWS: Final = frozenset({"add_command", "callback", "command", "delete", "get", "post", "put"})


class Text(NamedTuple):
    """A text, and where it is."""

    area: str
    place: str
    text: str
    #: A label, message or heading, whose beginning counts; not a paragraph.
    is_whole: bool = True


def all_texts() -> Iterator[Text]:
    """Yield every text that people read, and where it is."""
    for module in sorted(_PACKAGE.rglob("*.py")):
        below = module.relative_to(_PACKAGE).parts
        area = below[0] if len(below) > 1 else "celeriac"
        yield from read_python(area, module.relative_to(ROOT).as_posix(), module.read_text())
    for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        yield from read_page("docs", page.relative_to(ROOT).as_posix(), page.read_text())
    yield from read_deploy()
    yield from read_api()
    yield from read_openapi()
    for module in sorted((ROOT / "scripts").rglob("*.py")):
        if module != Path(__file__).resolve():
            yield from read_python("scripts", module.relative_to(ROOT).as_posix(), module.read_text())
    yield from read_makefile((ROOT / "Makefile").read_text())


# -- the package


def read_python(area: str, place: str, source: str) -> Iterator[Text]:
    """Yield the texts of a module."""
    tree = ast.parse(source)
    docstrings = {id(node): shown for node, shown in _docstrings(tree)}
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        text = _text_of(node)
        if text is None or id(node) in parts or not docstrings.get(id(node), True):
            continue
        if len(_WORD.findall(text)) > 1 and " " in text and not _CODE.search(text):
            yield Text(area, f"{place}:{getattr(node, 'lineno', 0)}", text)


def _text_of(node: ast.AST) -> str | None:
    """Return a string as it is written, an expression within it as a brace."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text_of(part) or "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _docstrings(tree: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """Yield docstrings, and whether they are shown."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                decorators = getattr(node, "decorator_list", [])
                is_function = not isinstance(node, ast.Module | ast.ClassDef)
                yield first.value, is_function and not _SHOWS.isdisjoint(map(_name_of, decorators))


def _name_of(decorator: ast.expr) -> str:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


# -- pages, and what is deployed


def read_page(area: str, place: str, text: str) -> Iterator[Text]:
    """Yield the headings and lines of a page, without code and addresses."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code and line.strip():
            plain = re.sub(r"`[^`]*`|\]\([^)]*\)|<[^>]*>", " ", line)
            yield Text(area, f"{place}:{number}", plain, is_whole=line.startswith("#"))


def read_deploy() -> Iterator[Text]:
    """Yield the texts of alerts and of the dashboard for Grafana."""
    for path in sorted((ROOT / "deploy").rglob("*")):
        place = path.relative_to(ROOT).as_posix()
        if path.name == "alerts.yaml":
            for text in _labels(yaml.safe_load(path.read_text())):
                yield Text("deploy", place, re.sub(r"\{\{.*?\}\}|`[^`]*`", "{}", text))
        elif path.suffix == ".json":
            for text in _labels(json.loads(path.read_text())):
                yield Text("deploy", place, text)


def _labels(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, below in value.items():
            if name in ("title", "description", "legendFormat", "label", "summary") and isinstance(
                below, str
            ):
                yield below
            else:
                yield from _labels(below)
    elif isinstance(value, list):
        for each in value:
            yield from _labels(each)


def read_makefile(text: str) -> Iterator[Text]:
    """Yield the help of each target."""
    for number, line in enumerate(text.splitlines(), 1):
        if found := re.match(r"[a-z-]+:.*?## (.*)", line):
            yield Text("scripts", f"Makefile:{number}", found[1])


# -- the reference of public names, and of settings


def read_api() -> Iterator[Text]:
    """Yield the docstrings of the reference of public names, and the comments of that of settings."""
    import celeriac  # noqa: PLC0415 - only the reference needs it
    from celeriac import history  # noqa: PLC0415
    from celeriac.config import Limits, Settings  # noqa: PLC0415
    from scripts.docs.settings_page import reasons  # noqa: PLC0415

    seen: set[int] = set()
    for owner in (celeriac, history):
        for name in owner.__all__:
            public = getattr(owner, name)
            for place, member in [(name, public), *_members(name, public)]:
                text = getattr(member, "__doc__", None)
                if text and id(member) not in seen and not inspect.ismodule(member):
                    seen.add(id(member))
                    plain = re.sub(r"``[^`]*``|:[a-z]+:`[^`]*`", " ", inspect.cleandoc(text))
                    yield Text("api", place, plain)
    for kind in (Settings, Limits):
        for name, why in reasons(kind).items():
            yield Text("api", f"{kind.__name__}.{name}", re.sub(r"`+[^`]*`+", " ", why))


def read_openapi() -> Iterator[Text]:
    """Yield the descriptions of addresses, parameters and fields of the HTTP API."""
    from scripts.docs.http_page import description  # noqa: PLC0415

    for place, text in _descriptions("", description()):
        yield Text("openapi", place, re.sub(r"`+[^`]*`+", " ", text))


def _descriptions(place: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, below in value.items():
            if name in ("description", "summary") and isinstance(below, str):
                yield place, below
            else:
                yield from _descriptions(f"{place}/{name}", below)


def _members(owner: str, public: object) -> Iterator[tuple[str, object]]:
    if inspect.isclass(public):
        for kind in public.__mro__:
            if kind.__module__.startswith("celeriac"):
                for name, member in vars(kind).items():
                    is_shown = not name.startswith("_")
                    if is_shown and (callable(member) or isinstance(member, property | classmethod)):
                        yield f"{owner}.{name}", member


# -- figures


def bad_words(text: str) -> list[tuple[str, str]]:
    """Return the banned words of a text, and what to write."""
    return [(found[0], fix) for pattern, fix in _BANNED.items() for found in pattern.finditer(text)]


def has_bad_begin(text: str) -> bool:
    """Return whether a text begins with What, Who, That, It or This; one that begins with a space goes on."""
    return not text.startswith(" ") and _BAD_BEGIN.match(text) is not None


def rate(word: str, texts: Iterable[str]) -> float:
    """Return how often a word stands in 1,000 words."""
    words: list[str] = [each.lower() for text in texts for each in _WORD.findall(text)]
    return 1000 * words.count(word) / max(len(words), 1)


def main(arguments: list[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Figures on the language of texts that people read.")
    parser.add_argument("areas", nargs="*", help="areas to show; default: all")
    parser.add_argument("--list", action="store_true", help="also list each banned word and bad beginning")
    options = parser.parse_args(arguments)
    texts = [each for each in all_texts() if not options.areas or each.area in options.areas]
    print(f"{'area':<14}{'texts':>7}{'words':>8}{'what':>7}{'who':>7}{'banned':>8}{'begin':>7}")
    areas = [*Counter(each.area for each in texts), "all"]
    for area in areas:
        ours = [each for each in texts if area in (each.area, "all")]
        plain = [each.text for each in ours]
        words = sum(len(_WORD.findall(text)) for text in plain)
        banned = sum(len(bad_words(text)) for text in plain)
        begins = sum(each.is_whole and has_bad_begin(each.text) for each in ours)
        rates = f"{rate('what', plain):>7.2f}{rate('who', plain):>7.2f}"
        print(f"{area:<14}{len(ours):>7}{words:>8}{rates}{banned:>8}{begins:>7}")
    if options.list:
        for each in texts:
            for word, fix in bad_words(each.text):
                print(f"{each.place}: {word!r}, write {fix}: {' '.join(each.text.split())[:120]}")
            if each.is_whole and has_bad_begin(each.text):
                print(f"{each.place}: bad beginning: {' '.join(each.text.split())[:120]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
