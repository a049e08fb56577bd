"""Where a row of the log is found again, when it was, and the day that it is filed under."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from celeriac.model.events import MAX_TIMESTAMP

__all__ = ["DAY_SECONDS", "ROWS_OF_A_RECORDER", "day_of", "moment", "row_of"]

DAY_SECONDS: Final = 86_400.0
#: A reference to a row is the code of its recorder times this, and its number: a million events a second for
#: nine years.
ROWS_OF_A_RECORDER: Final = 2**48


def row_of(recorders: Sequence[str]) -> Column:
    """Return the reference of a row of the log: the place of its recorder among all, and its number."""
    code = F.raise_error(F.concat(F.lit("the manifest names no recorder "), F.col("recorder"))).cast("bigint")
    for number, recorder in reversed(list(enumerate(recorders))):
        first = F.lit(number * ROWS_OF_A_RECORDER).cast("bigint")
        code = F.when(F.col("recorder") == recorder, first).otherwise(code)
    return code + F.col("sequence")


def moment(column: Column) -> Column:
    """Return a moment as it is, or null where it is none: 0, negative, not finite or after the year 2100."""
    return F.when((column > 0) & (column < F.lit(MAX_TIMESTAMP)), column)


def day_of(column: Column) -> Column:
    """Return the UTC date of a moment as text, whatever the time zone of the session; 1970-01-01 of none."""
    days = F.floor(F.coalesce(moment(column), F.lit(0.0)) / F.lit(DAY_SECONDS))
    return F.date_from_unix_date(days.cast("int")).cast("string")
