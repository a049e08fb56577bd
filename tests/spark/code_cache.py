"""How full Java's code cache is."""

from typing import NamedTuple

from pyspark.sql import SparkSession


class CodeCache(NamedTuple):
    """Bytes of compiled code."""

    used: int
    limit: int


def code_cache(spark: SparkSession) -> CodeCache:
    """Return the use of the code cache of the Java under a session; it may consist of several heaps."""
    java = spark.sparkContext._jvm.java.lang.management.ManagementFactory  # type: ignore[union-attr]
    heaps = [pool.getUsage() for pool in java.getMemoryPoolMXBeans() if pool.getName().startswith("Code")]
    return CodeCache(sum(heap.getUsed() for heap in heaps), sum(heap.getMax() for heap in heaps))
