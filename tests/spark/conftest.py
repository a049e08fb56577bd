"""One Spark for all tests of a run: it takes ten seconds to start."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from celeriac.pipeline.session import open_session
from tests.spark.published import QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Clusters of several Javas, and a million tasks in memory, take minutes: ``make soak`` has them.
_LONG = ["test_cluster.py", "test_million.py"]
collect_ignore = [] if os.environ.get("HYPOTHESIS_PROFILE") == "long" else _LONG


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    with open_session(
        master="local[2]",
        # What is planned anew while it runs takes longer than these small frames do.
        conf={**QUICK, "spark.sql.adaptive.enabled": "false"},
    ) as session:
        yield session
