"""Where a row of the log is found again, and the day that it is filed under."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from celeriac.model.events import MAX_TIMESTAMP

__all__ = ["DAY_SECONDS", "day_of", "moment", "row_of"]

DAY_SECONDS: Final = 86_400.0
#: Sequence numbers of one recorder: a million events a second for nine years.
_NUMBERS: Final = 2**48


def row_of(recorders: Sequence[str]) -> Column:
    """Return the reference of a row of the log: the place of its recorder among all, and its number."""
    known = F.array(*map(F.lit, recorders)).cast("array<string>")
    code = F.array_position(known, F.col("recorder")) - 1
    return F.when(code >= 0, code * F.lit(_NUMBERS) + F.col("sequence"))


def moment(column: Column) -> Column:
    """Return a moment as it is, or null where it is none: 0, negative, not finite or after the year 2100."""
    return F.when((column > 0) & (column < F.lit(MAX_TIMESTAMP)), column)


def day_of(column: Column) -> Column:
    """Return the UTC date of a moment as text, whatever the time zone of the session; 1970-01-01 of none."""
    days = F.floor(F.coalesce(moment(column), F.lit(0.0)) / F.lit(DAY_SECONDS))
    return F.date_from_unix_date(days.cast("int")).cast("string")
