"""Text as Markdown shows it."""

from collections.abc import Iterable, Sequence

__all__ = ["cell", "code", "table"]


def cell(text: str) -> str:
    """Return text that stands in a cell of a table as it is."""
    for mark, spelled in (("&", "&amp;"), ("<", "&lt;"), ("|", "&#124;"), ("*", "&#42;"), ("_", "&#95;")):
        text = text.replace(mark, spelled)
    # Nobody follows these: they are examples of addresses, and of markup.
    return " ".join(text.replace("[", "&#91;").split())


def code(text: str) -> str:
    """Return text as code; an empty text stays empty."""
    return f"`{text}`" if text else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table without the columns that no row fills; nothing, if there are no rows."""
    body = [*rows]
    filled = [place for place in range(len(head)) if any(row[place] for row in body)]
    lines = [f"| {' | '.join(row[place] for place in filled)} |" for row in (head, *body)]
    return "\n".join([lines[0], f"|{'---|' * len(filled)}", *lines[1:], ""]) if body else ""
