"""The addresses of pages of tasks and workers, whatever their names hold."""

import posixpath
from urllib.parse import unquote

import pytest

from celeriac.web.pages.visit import name_of, path_of

NAMES = [
    "3f0e7a1c-5d7c-4c59-9a43-0a4a9f9e9a10",
    "celery@web-1.example.com",
    "a/b ?c#d%41&e",
    "ünïcode",
    "x" * 120,
    "x" * 121,
    "\x1b[31m/../?#" + "x" * 190,
    "a\nb",
    "\u202etxt",
    "half \ud800 of a pair",
    ".",
    "..",
    "a/../b",
    "./a",
    "~",
    "~home",
    "~YQ",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_path_leads_to_the_name_that_it_was_made_of(name: str) -> None:
    path = path_of("tasks", name)
    # As a server has it, which reads what is quoted; and a proxy may tidy it before.
    served = posixpath.normpath(unquote(path))

    assert served.startswith("/tasks/")
    assert name_of(served.removeprefix("/tasks/")) == name
    assert path.isascii()
    assert path.isprintable()


def test_no_two_names_have_one_path() -> None:
    paths = {path_of("tasks", name) for name in [*NAMES, "a\\nb", "x" * 119 + "…", "\\x1b"]}

    assert len(paths) == len(NAMES) + 3


def test_what_most_names_are_can_be_read_in_the_address() -> None:
    assert path_of("workers", "celery@web-1") == "/workers/celery%40web-1"
    assert path_of("tasks", "a/b") == "/tasks/a%2Fb"


@pytest.mark.parametrize("part", ["~", "~a", "~____", "~a b", "~YQ==x", "~é", "plain", "~/etc"])
def test_what_somebody_wrote_is_left_as_it_is(part: str) -> None:
    assert name_of(part) == part
