"""The table of statements of the reference documents, from the tests in ``tests/conformance``.

A test ``test_073_…`` in ``test_monitoring.py`` holds statement 73, of the document on monitoring; the first
line of its docstring is the statement. Tests without a number are left out.
``@pytest.mark.differs("Heading")`` names the section of "Differences from Celery" that gives the reason. Run
``python -m scripts.docs.conformance_page`` to write the page again.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from scripts.docs.markdown import table

__all__ = ["DIFFERENCES", "PAGE", "Statement", "conformance_page", "read_differences", "read_statements"]

_ROOT: Final = Path(__file__).parents[2]
PAGE: Final = _ROOT / "docs" / "reference" / "conformance.md"
DIFFERENCES: Final = _ROOT / "docs" / "explanation" / "differences-from-celery.md"
#: The documents, by the test file that holds their statements.
_DOCUMENTS: Final = {
    "clocks": "Logical clocks and event ordering",
    "election": "Coordination with leader election",
    "monitoring": "Monitoring and events",
    "draining": "Asynchronous event draining",
    "worker_state": "Worker state synchronization",
    "history": "Log, pipeline and history",
}
_NAME: Final = re.compile(r"test_(?P<number>\d{3})_")
_HEAD: Final = """# Conformance

Celeriac implements the behavior that five reference documents describe for Celery, and adds a history.
Each statement of these documents is a test in `tests/conformance`, on real Redis, RabbitMQ and Celery workers
where a transport or a peer matters. This page is made from those tests. A result that differs from Celery
links to the reason in [Differences from Celery](../explanation/differences-from-celery.md).
"""


class Statement(NamedTuple):
    """A statement of a reference document, and the test that holds it."""

    number: int
    document: str
    text: str
    #: The heading that explains the difference from Celery; empty if there is none.
    difference: str
    test: str


def read_statements() -> list[Statement]:
    """Return the statements of all tests, by number."""
    return sorted(each for path in _files() for each in _statements_in(path))


def read_differences() -> set[str]:
    """Return the headings that the marks of all test functions name, with a number or without."""
    modules = (ast.parse(path.read_text(encoding="utf-8")) for path in _files())
    functions = (node for module in modules for node in module.body)
    return {
        _difference(node) for node in functions if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    } - {""}


def conformance_page() -> str:
    """Return the page."""
    statements = read_statements()
    parts = [_HEAD]
    for document in dict.fromkeys(each.document for each in statements):
        rows = [
            (str(each.number), each.text, _result(each)) for each in statements if each.document == document
        ]
        parts.append(f"## {document}\n\n{table(('No.', 'Statement', 'Result'), rows)}")
    return "\n".join(parts)


def _files() -> list[Path]:
    return sorted((_ROOT / "tests" / "conformance").glob("test_*.py"))


def _result(statement: Statement) -> str:
    if not statement.difference:
        return "works"
    anchor = re.sub(r"[^\w\- ]", "", statement.difference.lower()).replace(" ", "-")
    return f"[differs](../explanation/differences-from-celery.md#{anchor})"


def _statements_in(path: Path) -> Iterator[Statement]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if found := _NAME.match(node.name):
            text = (ast.get_docstring(node) or "").partition("\n")[0]
            test = f"{path.name}::{node.name}"
            yield Statement(int(found["number"]), _document(path), text, _difference(node), test)


def _document(path: Path) -> str:
    # A document with many statements has several files: test_monitoring.py, test_monitoring_state.py.
    name = path.stem.removeprefix("test_")
    return next(title for key, title in _DOCUMENTS.items() if name == key or name.startswith(f"{key}_"))


def _difference(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    for each in function.decorator_list:
        match each:
            case ast.Call(func=ast.Attribute(attr="differs"), args=[ast.Constant(value=str(heading))]):
                return heading
            case _:
                pass
    return ""


if __name__ == "__main__":
    PAGE.write_text(conformance_page(), encoding="utf-8")
