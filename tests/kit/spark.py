"""One Spark for all tests of a process, as it takes ten seconds to start; another one if its Java dies.

A death fails the one test that it interrupts, whose report has Java's last words. The next test that asks for
``spark`` gets a new one, and so do the fixtures that were made with the dead one.

Processes that run no test of Spark do not import it.
"""

from collections.abc import Generator, Iterator
from pathlib import Path
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.live import IS_LONG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Seconds in which a Java that does not answer any more ends by itself: it may write why.
_EXIT_TIMEOUT: Final = 30.0
_LAST_CHARS: Final = 4000
#: Spark's own defaults.
_COMPILED: Final = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}


class JavaWatch:
    """Knows the Spark that the tests share, and whether its Java is alive."""

    def __init__(self, session: "SparkSession", folder: Path) -> None:
        self.session = session
        self._folder = folder
        self._java = session.sparkContext._gateway.proc  # type: ignore[union-attr]
        self.is_reported = False

    @property
    def is_alive(self) -> bool:
        """Whether Java answers, and its Spark has not been stopped by an error."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415

        try:
            return not self.session.sparkContext._jsc.sc().isStopped()
        except (Py4JError, OSError, AttributeError):
            return False

    def last_words(self) -> str:
        """Return how Java ended, and the end of all that it wrote."""
        self.is_reported = True
        try:
            ending = f"it ended with exit code {self._java.wait(_EXIT_TIMEOUT)}"
        except TimeoutExpired:
            ending = "it runs, but its Spark has stopped"
        texts = [
            f"{path}\n{path.read_text(errors='replace')[-_LAST_CHARS:]}" for path in self._folder.iterdir()
        ]
        return "\n\n".join([ending, *texts])


_WATCH: Final = pytest.StashKey[JavaWatch]()
_FIXTURE: Final = pytest.StashKey[tuple[pytest.FixtureDef[Any], Any]]()


@pytest.fixture(scope="session")
def spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[SparkSession]":
    from celeriac.pipeline.session import open_session  # noqa: PLC0415
    from tests.spark.published import INTERPRETED, QUICK  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("spark")
    # In the long form of all tests plans are compiled and rows are split; else in those that ask for
    # ``compiled_spark`` or ``split_spark``.
    conf = QUICK if IS_LONG else INTERPRETED
    with open_session(master="local[2]", conf=conf, log_file=folder / "spark.log") as session:
        request.config.stash[_WATCH] = JavaWatch(session, folder)
        yield session
    del request.config.stash[_WATCH]


@pytest.fixture(scope="session")
def split_spark(spark: "SparkSession") -> "SparkSession":
    """The same Spark, with the rows of a table in two tasks."""
    from tests.spark.published import SPLIT  # noqa: PLC0415

    return _new_session(spark, SPLIT)


@pytest.fixture(scope="session")
def compiled_spark(spark: "SparkSession") -> "SparkSession":
    """The same Spark, with plans compiled and rows split as in the product."""
    from tests.spark.published import SPLIT  # noqa: PLC0415

    return _new_session(spark, {**SPLIT, **_COMPILED})


def _new_session(spark: "SparkSession", settings: dict[str, str]) -> "SparkSession":
    session = spark.newSession()
    for name, value in settings.items():
        session.conf.set(name, value)
    return session


def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    """Note the fixture, so that it can be finished before the end of the session."""
    if fixturedef.argname == "spark" and fixturedef.scope == "session":
        request.config.stash[_FIXTURE] = fixturedef, request


def _watch_of(item: pytest.Item) -> JavaWatch | None:
    """Return the watch of the shared Spark, if there is one and the test uses it."""
    is_user = "spark" in getattr(item, "fixturenames", ())
    return item.config.stash.get(_WATCH, None) if is_user else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Finish a Spark that is dead, with all fixtures that were made with it: they are made again."""
    watch = _watch_of(item)
    if watch is None or watch.is_alive:
        return
    words = None if watch.is_reported else watch.last_words()
    fixture, request = item.config.stash[_FIXTURE]
    fixture.finish(request)
    if words is not None:
        pytest.fail(f"Java died after the tests that used it: {words}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail the test in which Java dies, and have Java's last words in its report."""
    report = yield
    watch = _watch_of(item)
    if watch is not None and not watch.is_reported and not watch.is_alive:
        report.sections.append(("Java died", watch.last_words()))
        if report.passed:
            report.outcome = "failed"
            report.longrepr = "Java died during this test"
    return report
