"""Rows that were asked for, in the form that the program at hand works with."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from celeriac.errors import ImproperlyConfigured

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

__all__ = ["Answer", "Fetched", "Question"]


class Fetched(NamedTuple):
    """Rows as tuples, and the names of their columns."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


class Question:
    """A statement, and what DuckDB runs it with."""

    def __init__(self, cursor: Any, text: str, parameters: Mapping[str, object]) -> None:
        self.cursor = cursor
        self.text = text
        self.parameters = parameters

    def executed(self) -> Any:
        """Return a cursor that rows can be fetched from."""
        return self.cursor.execute(self.text, self.parameters or None)

    def relation(self) -> Any:
        """Return what frames are made from."""
        return self.cursor.sql(self.text, params=self.parameters or None)


class Answer:
    """Rows that are read when one of the methods is called, each time from the tables as they are then."""

    def __init__(self, run: Callable[[Callable[[Question], Any]], Any]) -> None:
        #: Gives a function the question, and returns what that makes of it.
        self._run = run

    def fetch(self, limit: int | None = None) -> Fetched:
        """Return tuples, the first ``limit`` of them or all; it needs no other package."""

        def taken(question: Question) -> Fetched:
            cursor = question.executed()
            columns = tuple(each[0] for each in cursor.description)
            return Fetched(columns, cursor.fetchall() if limit is None else cursor.fetchmany(limit))

        found: Fetched = self._run(taken)
        return found

    def dicts(self) -> list[dict[str, Any]]:
        """Return a dict for each row."""
        columns, rows = self.fetch()
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def arrow(self) -> "pa.Table":
        """Return a table of Arrow."""
        return self._made(lambda question: question.relation().to_arrow_table(), "pyarrow")

    def pandas(self) -> "pd.DataFrame":
        """Return a frame of pandas, which must be installed."""
        return self._made(lambda question: question.relation().df(), "pandas")

    def polars(self) -> "pl.DataFrame":
        """Return a frame of Polars, which must be installed."""
        return self._made(lambda question: question.relation().pl(), "polars")

    def _made(self, make: Callable[[Question], Any], package: str) -> Any:
        try:
            return self._run(make)
        except ImportError as error:
            raise ImproperlyConfigured(
                f"{error.name or package} is not installed: pip install {package}"
            ) from error
