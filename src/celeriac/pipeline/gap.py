"""The times when nobody listened."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from celeriac.model.events import Gap
from celeriac.pipeline.row import day_of

__all__ = ["gaps", "merged"]


def gaps(raw: DataFrame) -> DataFrame:
    """Return the gaps that recorders told of, each once, filed under the day they were recorded.

    What a peer sent under the same type has no ``since``, and is none.
    """
    is_ours = (F.col("type") == F.lit(f"{Gap.group}-{Gap.subject}")) & F.col("since").isNotNull()
    return merged(
        raw.where(is_ours).select(
            "recorder",
            F.col("since").alias("since_at"),
            F.col("until").alias("until_at"),
            "reason",
            "attempts",
            day_of(F.col("received_at")).alias("day"),
        )
    )


def merged(gaps: DataFrame) -> DataFrame:
    """Return gaps of several reads of a log, each once."""
    return gaps.distinct()
