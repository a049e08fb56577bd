"""``--format``: how a command writes its output."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from celeriac.cli import output
from celeriac.errors import CallerError

__all__ = ["PLAIN", "Format", "Output"]


class Format(StrEnum):
    """The formats of output."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


@dataclass(frozen=True)
class Output:
    """The format of what a command writes: people read tables, programs the others, with raw values."""

    form: Annotated[
        Format, typer.Option("--format", "-o", help="Output format. All but table have raw values.")
    ] = Format.TABLE
    is_json: Annotated[bool, typer.Option("--json", help="Same as -o json.")] = False

    @property
    def format(self) -> Format:
        """The format that was asked for."""
        return Format.JSON if self.is_json else self.form

    @property
    def is_table(self) -> bool:
        """A person reads it."""
        return self.format is Format.TABLE

    def write_rows(
        self, kind: Any, rows: Iterable[Any], *, styles: Mapping[str, str] | None = None, empty: str = ""
    ) -> None:
        """Write rows of one kind; ``empty`` is said in place of a table without rows."""
        listed = list(rows)
        names: tuple[str, ...] = kind._fields
        if not self.is_table:
            self.write_records(names, listed)
        elif listed:
            output.write_rows(kind, listed, styles or {})
        elif empty:
            output.say(empty)

    def write_records(self, names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Write rows for programs."""
        match self.format:
            case Format.CSV:
                from celeriac.cli.csv_output import write_csv  # noqa: PLC0415 - loads what exports need

                write_csv(names, rows)
            case Format.JSONL:
                for row in rows:
                    output.write_json(dict(zip(names, row, strict=True)))
            case _:
                output.write_json([dict(zip(names, row, strict=True)) for row in rows], indent=2)

    def write_object(self, value: object) -> bool:
        """Write one value as JSON, unless a person reads it; return whether it was written."""
        if self.format is Format.CSV:
            raise CallerError("Cannot write this as CSV: it has no rows. Use -o json")
        if not self.is_table:
            output.write_json(value, indent=2 if self.format is Format.JSON else None)
        return not self.is_table


#: The format that no option names.
PLAIN: Final = Output()
