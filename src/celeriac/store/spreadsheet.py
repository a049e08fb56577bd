"""How a spreadsheet reads a cell of CSV: a text that begins like a formula is run, and may send data away."""

from typing import Final

__all__ = ["FORMULA_STARTS", "escape_formula"]

#: The first character of a formula, or one that a spreadsheet skips before it. The last four are the wide
#: forms of the first four, which some spreadsheets take for the same.
FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def escape_formula(text: str) -> str:
    """Return a text with an apostrophe before it if a spreadsheet would run it."""
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text
