"""A Spark to work with: in a Java of our own, on a cluster, behind Spark Connect, or one that is there."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from logging import LogRecord, getLogger
from pathlib import Path
from signal import SIG_IGN, SIGINT, getsignal, signal
from threading import current_thread, main_thread
from types import FrameType
from typing import IO, Any, Final

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from celeriac.errors import ImproperlyConfigured, NetworkError
from celeriac.masking import MASK, masked, sanitize_place, sanitize_url
from celeriac.pipeline.class_archive import ClassArchive
from celeriac.pipeline.java import cache_folder, find_java
from celeriac.pipeline.java_class import keep_classes
from celeriac.store.disk import failed

__all__ = ["is_remote", "open_session", "reason_of"]

_GIB: Final = 1024**3
#: Half of the memory, so that the page cache has as much; more than 16 GB only make the collector slow.
_MOST_MEMORY, _LEAST_MEMORY = 16 * _GIB, _GIB
#: A log that is larger is begun anew.
_MAX_LOG_BYTES: Final = 16 * 1024 * 1024
#: How long Java may take to end; the first time it writes the archive of its classes.
_PATIENCE: Final = 180.0
_REASON_CHARS: Final = 400
#: Of each session of ours, wherever it runs. Results must not depend on where that is.
_SQL: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    # Else an aggregation of sketches sorts as soon as it has 128 groups.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    "spark.sql.caseSensitive": "true",
    # So many days are written at once; else rows are sorted by day before they are.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
#: Of a Java that we start.
_STATIC: Final = {
    "spark.app.name": "celeriac",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Else each call looks up the line of Python it is in, and errors are printed before they are raised.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # Steps that were compiled are kept for the next run, which has the same ones: some 300, not 100.
    "spark.sql.codegen.cache.maxEntries": "1000",
    # Ids of tasks and their arguments can tell whose they are.
    "spark.hadoop.fs.permissions.umask-mode": "077",
}
#: For the driver and for executors, before the options that the user gives.
_JAVA: Final = (
    # Java leaves long methods to its interpreter, and Spark makes one method of all steps that follow each
    # other: the fold takes half as long again then.
    "-XX:-DontCompileHugeMethods",
    # A full code cache ends Java. It holds the steps that were compiled, which are kept, and options that
    # compile less, as TieredStopAtLevel=1, would shrink it to 48 MB.
    "-XX:ReservedCodeCacheSize=256m",
)
_DRIVER_OPTIONS: Final = "spark.driver.extraJavaOptions"
_EXECUTOR_OPTIONS: Final = "spark.executor.extraJavaOptions"
_LOOPBACK: Final = "127.0.0.1"
_LOCAL: Final = {
    # Of the machine's name there may be no address, or one that is not reached from here.
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
}
#: All that Spark says goes where its Java's standard error goes: to a file.
_LOG4J: Final = """rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


@contextmanager
def open_session(
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    log_file: Path | None = None,
) -> Iterator[SparkSession]:
    """Have a session of Spark, and stop it in the end.

    ``master`` is where it runs, all processors of this machine by default; ``remote`` is the ``sc://…`` of a
    Spark Connect. A session that is there already, as within a notebook, is used with settings of our own,
    and goes on in the end. What Spark says goes to ``log_file``, else to ``spark.log`` in the user's cache.
    Raises ImproperlyConfigured if Spark or Java is missing or does not start, NetworkError if what
    ``remote`` names cannot be reached.
    """
    given = dict(conf or {})
    if remote is not None:
        with _connected(remote, given) as session:
            yield session
        return
    active = SparkSession.getActiveSession()
    if active is not None:
        if not is_remote(active):
            keep_classes(active)
        yield _own_settings(active.newSession(), given)
        return
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        with _submitted(given) as session:
            yield session
        return
    with _started(master or "local[*]", given, log_file) as session:
        yield session


def is_remote(session: SparkSession) -> bool:
    """Say whether a session is one of Spark Connect, where Java's objects are out of reach."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def reason_of(error: BaseException) -> str:
    """Return what Spark says is wrong, in one line."""
    exception = getattr(error, "java_exception", None)
    with suppress(Py4JError, OSError):
        if exception is not None:
            return str(exception.toString()).splitlines()[0][:_REASON_CHARS]
    told = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return told[:_REASON_CHARS]


def _own_settings(session: SparkSession, conf: Mapping[str, str]) -> SparkSession:
    """Have our settings in a session of somebody else's; what it does not let us set, it decides."""
    for name, value in {**_SQL, **conf}.items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session


@contextmanager
def _connected(remote: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    try:
        session = SparkSession.builder.remote(remote).create()
        _own_settings(session, conf)
    except (ImportError, PySparkException) as error:
        shown = sanitize_url(remote)
        reason = reason_of(error).replace(remote, shown)
        raise NetworkError(
            f"Spark Connect is not reachable at {shown}: {reason}; start it there, or give another address "
            "with --remote"
        ) from error
    try:
        yield session
    finally:
        with suppress(PySparkException):
            session.stop()
        # Else no Spark of this machine can be started in this process any more.
        os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)


@contextmanager
def _submitted(conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """Have the session of a program that spark-submit runs, which has said where and how."""
    session = SparkSession.builder.appName("celeriac").getOrCreate()
    keep_classes(session)
    try:
        yield _own_settings(session, conf)
    finally:
        session.stop()


@contextmanager
def _started(master: str, conf: dict[str, str], log_file: Path | None) -> Iterator[SparkSession]:
    """Start a Java of our own, and end it."""
    java = find_java(os.environ)
    cache = cache_folder(os.environ)
    archive = ClassArchive(cache, java, Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent))
    is_local = master.startswith("local")
    log = log_file or cache / "spark.log"
    with _opened(log) as file:
        driver = [
            *_JAVA,
            f"-Dlog4j2.configurationFile=file:{_log4j(cache)}",
            f"-XX:ErrorFile={log.parent}/hs_err_pid%p.log",
            *archive.options(),
        ]
        settings = {
            **_STATIC,
            **_SQL,
            **(_LOCAL if is_local else {}),
            "spark.master": master,
            "spark.driver.memory": f"{_memory() // 1024**2}m",
            **conf,
            _DRIVER_OPTIONS: _join_options(driver, conf.get(_DRIVER_OPTIONS)),
            _EXECUTOR_OPTIONS: _join_options(_JAVA, conf.get(_EXECUTOR_OPTIONS)),
        }
        variables = {"JAVA_HOME": str(java.home), **(_local_variables() if is_local else {})}
        is_well = False
        before = getsignal(SIGINT)
        with _variables(variables):
            gateway = _launched(settings, file, log)
        try:
            with _variables(variables):
                session = _begun(settings, gateway, master, log)
            keep_classes(session)
            if "spark.sql.shuffle.partitions" not in conf:
                # Small enough that one fits in the caches, and so many that none has to wait for a slow one.
                session.conf.set(
                    "spark.sql.shuffle.partitions", str(8 * session.sparkContext.defaultParallelism)
                )
            _end_on_interrupt(gateway.proc, is_ignored=before is SIG_IGN)
            yield session
            is_well = True
        finally:
            if current_thread() is main_thread():
                signal(SIGINT, before)
            _end(gateway, is_well=is_well)
            (archive.keep if is_well else archive.drop)()


def _local_variables() -> dict[str, str]:
    return {
        "SPARK_LOCAL_IP": _LOOPBACK,
        # Else Spark runs the python3 of the path, which may be another one, or none.
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON") or sys.executable,
    }


@contextmanager
def _variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _join_options(options: Sequence[str], given: str | None) -> str:
    """Return Java's options as one text: ours first, so that the user's override them."""
    quoted = [f'"{each}"' if " " in each else each for each in options]
    return " ".join([*quoted, given or ""]).strip()


def _memory() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # In a container there may be less than the machine has.
    with suppress(OSError, ValueError):
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return max(min(total // 2, _MOST_MEMORY), _LEAST_MEMORY)


@contextmanager
def _opened(log: Path) -> Iterator[IO[bytes]]:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        is_long = log.is_file() and log.stat().st_size > _MAX_LOG_BYTES
        file = log.open("wb" if is_long else "ab")
    except OSError as error:
        raise failed(f"{log} cannot be written", error) from None
    with file:
        yield file


def _log4j(cache: Path) -> Path:
    path = cache / "log4j2.properties"
    try:
        if not path.is_file() or path.read_text() != _LOG4J:
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_text(_LOG4J)
            draft.replace(path)
    except OSError as error:
        raise failed(f"{path} cannot be written", error) from None
    return path


def _launched(settings: Mapping[str, str], log: IO[bytes], path: Path) -> Any:
    # Every user of the machine can read the arguments of Java: secrets reach it with the session alone.
    arguments = {name: value for name, value in settings.items() if not _is_secret(name, value)}
    conf = SparkConf(loadDefaults=False).setAll(list(arguments.items()))
    try:
        return launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
    except (PySparkException, OSError) as error:
        raise ImproperlyConfigured(
            f"cannot start Spark: {_last_line(path) or error}; details are in {path}"
        ) from error


def _is_secret(name: str, value: str) -> bool:
    return name != _DRIVER_OPTIONS and (masked(name, "") == MASK or sanitize_place(value) != value)


def _begun(settings: Mapping[str, str], gateway: Any, master: str, log: Path) -> SparkSession:
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    try:
        return SparkSession(SparkContext(conf=conf, gateway=gateway))
    except (Py4JError, PySparkException, ValueError) as error:
        shown = sanitize_place(master)
        reason = reason_of(error).replace(master, shown)
        raise ImproperlyConfigured(
            f"cannot start Spark on {shown}: {reason}; details are in {log}"
        ) from error


def _last_line(path: Path) -> str:
    with suppress(OSError):
        lines = path.read_bytes()[-4096:].decode(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")
    return ""


def _end_on_interrupt(java: "subprocess.Popen[bytes]", *, is_ignored: bool) -> None:
    """Have Ctrl-C end Java at once: whoever waits for it is then told so, and nothing is written any more.

    If it was ignored before Spark took it, it is ignored again.
    """
    if current_thread() is not main_thread():
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        getLogger().addFilter(_is_told)
        java.kill()
        raise KeyboardInterrupt

    # Spark's own would ask Java to cancel its jobs, in the middle of another question.
    signal(SIGINT, SIG_IGN if is_ignored else interrupt)


def _is_told(record: LogRecord) -> bool:
    """Tell whether a record is worth to be shown: not that what was interrupted was interrupted."""
    return not record.msg.endswith("while sending command.") if isinstance(record.msg, str) else True


def _end(gateway: Any, *, is_well: bool) -> None:
    """Stop the session, and the Java under it, which else would live as long as this process."""
    context = SparkContext._active_spark_context  # noqa: SLF001 - there is no other way to ask
    # What is gone by itself need not be stopped.
    with suppress(Py4JError, PySparkException, OSError):
        session = SparkSession.getActiveSession() if context is not None else None
        if session is not None:
            session.stop()
        elif context is not None:
            context.stop()
    with suppress(Py4JError, OSError):
        gateway.shutdown()
    # So that the next session starts a Java, also if this one could not be asked to stop.
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001
    SparkSession._instantiatedSession = None  # noqa: SLF001
    getLogger().removeFilter(_is_told)
    java = gateway.proc
    if java is None:
        return
    if not is_well:
        java.kill()
    with suppress(OSError):
        java.stdin.close()
    try:
        java.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()
