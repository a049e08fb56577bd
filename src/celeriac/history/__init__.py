"""Answers from the tables of the pipeline, without Spark: ``celeriac.history.open(warehouse)``."""

from celeriac.history.answer import Answer, Fetched
from celeriac.history.warehouse import Warehouse, open  # noqa: A004 - read as celeriac.history.open
from celeriac.model.answer import Exported

__all__ = ["Answer", "Exported", "Fetched", "Warehouse", "open"]
