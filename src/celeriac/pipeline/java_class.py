"""Java classes that PySpark uses in every expression, looked up once for each session.

PySpark asks Java for the class and for the method each time it calls one: twice for each ``F.col``. Java then
searches all jars for a class of that name in each imported package before it finds the right one. A run of
the pipeline makes some ten thousand such requests, which take longer than the rows of a small log.
"""

from typing import Any, Final

from py4j.java_gateway import JavaClass  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

__all__ = ["keep_classes"]

#: The names by which PySpark asks for the classes that make expressions.
_NAMES: Final = ("functions", "org.apache.spark.sql.functions", "PythonUtils", "PythonSQLUtils")


class _KnownClass(JavaClass):  # type: ignore[misc]  # py4j has no types
    """A Java class that looks up each of its static methods once."""

    def __getattr__(self, name: str) -> Any:
        member = super().__getattr__(name)
        setattr(self, name, member)
        return member


def keep_classes(session: SparkSession) -> None:
    """Look up the classes of expressions now, and use them until the Java of the session ends.

    A session of Spark Connect has no such classes and must not be given.
    """
    java: Any = session.sparkContext._jvm  # noqa: SLF001 - there is no other way to ask
    for name in _NAMES:
        found = getattr(java, name)
        # PySpark reads an attribute of this object, which asks Java only for those that it does not have.
        setattr(java, name, _KnownClass(found._fqn, found._gateway_client))  # noqa: SLF001
