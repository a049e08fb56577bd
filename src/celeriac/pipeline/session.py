"""A Spark to work with."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

__all__ = ["open_session"]


@contextmanager
def open_session(
    *, master: str | None = None, remote: str | None = None, conf: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Open a session of Spark, and stop it in the end."""
    builder = SparkSession.builder.appName("celeriac")
    builder = builder.remote(remote) if remote is not None else builder.master(master or "local[*]")
    settings = {"spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC", **(conf or {})}
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
