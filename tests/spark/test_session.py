"""Java is found, or brought along, or asked for; Spark keeps to itself."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from celeriac.errors import ImproperlyConfigured
from celeriac.pipeline import java, session
from celeriac.pipeline.class_archive import ClassArchive
from celeriac.pipeline.java import Java, cache_folder, find_java
from celeriac.pipeline.session import open_session
from tests.spark.code_cache import code_cache
from tests.spark.published import INTERPRETED


def fake_java(home: Path, version: str) -> Path:
    """Make a Java that says it is of a version, and does nothing else."""
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-20' >&2\n")
    binary.chmod(0o700)
    return home


def test_the_java_of_java_home_goes_before_the_one_on_the_path(tmp_path: Path) -> None:
    mine, theirs = fake_java(tmp_path / "mine", "21.0.8"), fake_java(tmp_path / "theirs", "17.0.1")

    found = find_java({"JAVA_HOME": str(mine), "PATH": str(theirs / "bin")})

    assert found == Java(mine, "21.0.8", 21)


def test_one_that_is_too_old_is_passed_by(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "11.0.2"), fake_java(tmp_path / "new", "17.0.1")

    found = find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")})

    assert found.home == new


def test_where_there_is_none_the_wheel_has_one_that_runs_without_the_module_it_lacks(tmp_path: Path) -> None:
    found = find_java({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)})

    assert found.major >= 17
    assert found.home.is_relative_to(tmp_path)
    told = subprocess.run(  # noqa: S603 - of our own making
        [found.home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f'"{found.version}"' in told.stderr


def test_without_a_home_that_can_be_written_to_the_cache_is_a_private_temporary_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", "/proc")  # not even root makes a folder there

    folder = cache_folder({})

    assert folder == tmp_path / f"celeriac-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_temporary_cache_that_others_can_write_to_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / f"celeriac-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)

    with pytest.raises(ImproperlyConfigured, match="set XDG_CACHE_HOME"):
        cache_folder({"XDG_CACHE_HOME": "/proc"})


def test_without_any_java_it_is_said_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(java, "import_module", missing)
    old = fake_java(tmp_path / "old", "11.0.2")

    with pytest.raises(ImproperlyConfigured, match=r"Java 17 or later.*is 11\.0\.2.*celeriac\[pipeline\]"):
        find_java({"PATH": str(old / "bin")})


def test_an_archive_of_classes_is_made_once_and_used_from_then_on(tmp_path: Path) -> None:
    first = ClassArchive(tmp_path, Java(Path("/java"), "17.0.1", 17), tmp_path)

    (making,) = first.options()
    Path(making.partition("=")[2]).write_bytes(b"classes")
    first.keep()

    assert making.startswith("-XX:ArchiveClassesAtExit=")
    assert f"-XX:SharedArchiveFile={first.path}" in first.options()
    assert ClassArchive(tmp_path, Java(Path("/java"), "21.0.1", 21), tmp_path).path != first.path


def test_nothing_is_kept_of_a_java_that_did_not_end_well(tmp_path: Path) -> None:
    archive = ClassArchive(tmp_path, Java(Path("/java"), "17.0.1", 17), tmp_path)
    (making,) = archive.options()
    Path(making.partition("=")[2]).write_bytes(b"half of the cl")

    archive.drop()

    assert list(tmp_path.iterdir()) == []


def test_a_session_that_is_there_is_used_with_settings_of_our_own_and_goes_on(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        with open_session() as session:
            zone = session.conf.get("spark.sql.session.timeZone")

        assert zone == "UTC"
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        assert spark.range(3).count() == 3
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_options_that_compile_less_leave_the_code_cache_as_large(spark: SparkSession) -> None:
    settings = spark.sparkContext.getConf()

    # Java alone would make it of 48 MB.
    assert "-XX:TieredStopAtLevel=1" in str(settings.get("spark.driver.extraJavaOptions"))
    assert code_cache(spark).limit == 256 * 1024**2
    assert "-XX:ReservedCodeCacheSize=256m" in str(settings.get("spark.executor.extraJavaOptions"))


def test_java_is_asked_once_for_the_classes_of_expressions(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]
    send, commands = client.send_command, list[str]()

    def note(command: str, *arguments: Any, **options: Any) -> Any:
        commands.append(command)
        return send(command, *arguments, **options)

    def say() -> None:
        F.transform(F.array(F.upper("a"), F.lit("b")), lambda text: F.coalesce(text, F.col("c")))

    say()
    monkeypatch.setattr(client, "send_command", note)
    say()

    assert commands
    assert not [command for command in commands if command.startswith("r\n")]


def test_secrets_of_settings_are_no_arguments_of_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "spark.master": "local[1]",
        "spark.driver.extraJavaOptions": "-Dkey=file:/x",
        "spark.hadoop.fs.s3a.secret.key": "hush-1",
        "spark.hadoop.fs.s3a.access.key": "hush-2",
        "spark.eventLog.dir": "hdfs://user:hush-3@host/logs",
        "spark.jars.packages": "org.example:lib:1.0",
    }
    seen: list[dict[str, str]] = []
    monkeypatch.setattr(session, "launch_gateway", lambda conf, _: seen.append(dict(conf.getAll())))

    with (tmp_path / "log").open("wb") as log:
        session._launched(given, log, tmp_path / "log")

    assert "hush" not in str(seen)
    assert [{*each} for each in seen] == [
        {"spark.master", "spark.driver.extraJavaOptions", "spark.jars.packages"}
    ]


# PySpark leaves its pipe to such a Java open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_java_that_ends_at_once_is_reported_with_the_name_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path / "java", "17.0.1")
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    with (
        pytest.raises(ImproperlyConfigured, match=r"cannot start Spark: .*; details are in .*x/log"),
        open_session(log_file=tmp_path / "x" / "log"),
    ):
        pass


#: Uses a session as a program does, and writes the sum that its Python workers return to a file.
PROGRAM = """
import json, signal, sys
from pathlib import Path
from celeriac.pipeline.session import open_session
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background; Spark installs a handler of its own
log, result, conf = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
with open_session(master="local[1]", log_file=log, conf=conf) as spark:
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    context = spark.sparkContext
    pid = context._jvm.java.lang.ProcessHandle.current().pid()
    assert context.getConf().get("spark.driver.host") == "127.0.0.1"
    assert spark.range(10).selectExpr("sum(id)").collect()[0][0] == 45
    total = context.parallelize([1, 2], 1).map(lambda number: number + 1).sum()
assert not Path(f"/proc/{pid}").exists(), pid
result.write_text(str(total))
"""


class Ended(NamedTuple):
    """The program above after its end."""

    done: subprocess.CompletedProcess[str]
    log: Path
    result: Path


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """The program above, run with another Python on the path, which fails."""
    folder = tmp_path_factory.mktemp("program")
    other = folder / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o700)
    variables = {**os.environ, "PYTHONPATH": "src", "PATH": f"{folder}:{os.environ['PATH']}"}
    variables.pop("PYSPARK_PYTHON", None)
    log, result = folder / "spark.log", folder / "result"
    done = subprocess.run(  # noqa: S603 - of our own making
        [sys.executable, "-c", PROGRAM, log, result, json.dumps(INTERPRETED)],
        capture_output=True,
        text=True,
        check=False,
        env=variables,
    )
    return Ended(done, log, result)


def test_a_session_says_nothing_on_the_screen_and_leaves_no_java_behind(program: Ended) -> None:
    done = program.done

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert program.log.stat().st_size
    assert cache_folder(os.environ).is_dir()


def test_python_workers_run_the_same_python_whatever_the_path_names(program: Ended) -> None:
    assert program.result.read_text() == "5", program.done.stderr
