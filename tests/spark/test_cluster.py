"""The same job on a real cluster, and through Spark Connect: the tables are the same."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import pyspark
import pytest

from celeriac.pipeline.java import find_java
from celeriac.programs.process import GuardedProcess, wait_until
from tests.spark.jobs import run_job
from tests.spark.published import INTERPRETED, SPLIT, Rows, events_of, tables_of, write_log

SPARK = Path(pyspark.__file__).parent
PATIENCE = 180.0
LOOPBACK = "127.0.0.1"
#: Of Java processes that have little to do.
SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cluster") / "log"
    write_log(folder, events_of(24), segments=2)
    return folder


@pytest.fixture(scope="module")
def here(log: Path) -> Rows:
    """The tables as this machine makes them."""
    warehouse = log.parent / "here"
    assert run_job(log, warehouse, chunk_events=10**6) == 0
    return tables_of(warehouse)


def test_a_cluster_of_a_master_and_two_workers_makes_the_same_tables(
    log: Path, here: Rows, tmp_path: Path
) -> None:
    warehouse = tmp_path / "warehouse"
    conf = {
        **INTERPRETED,
        **SPLIT,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
    }

    with cluster(tmp_path) as url:
        code = run_job(log, warehouse, master=url, conf=conf, chunk_events=10**6)

    assert code == 0
    assert tables_of(warehouse) == here
    # Both workers had a part in it.
    assert len(list((tmp_path / "work").glob("*/app-*"))) == 2


def test_through_spark_connect_the_tables_are_the_same(log: Path, here: Rows, tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"

    with connect_server(tmp_path) as url:
        code = run_job(log, warehouse, remote=url, conf={}, chunk_events=10**6)

    assert code == 0
    assert tables_of(warehouse) == here


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Have a standalone cluster from the package, on this machine alone."""
    port = free_port()
    url = f"spark://{LOOPBACK}:{port}"
    at = ["--host", LOOPBACK, "--webui-port", "0"]
    with ExitStack() as ends:
        command = ["org.apache.spark.deploy.master.Master", *at, "--port", str(port)]
        ends.enter_context(java(folder, "master", [str(SPARK / "bin" / "spark-class"), *command]))
        assert wait_until(lambda: is_open(port), patience=PATIENCE)
        for number in (1, 2):
            work = folder / "work" / str(number)
            command = ["org.apache.spark.deploy.worker.Worker", *at, "--cores", "1", "--memory", "1g"]
            command += ["--work-dir", str(work), url]
            name = f"worker{number}"
            ends.enter_context(java(folder, name, [str(SPARK / "bin" / "spark-class"), *command]))
            is_there = partial(is_registered, folder / f"{name}.log")
            assert wait_until(is_there, patience=PATIENCE)
        yield url


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Have a Spark Connect from the package."""
    port = free_port()
    conf = {
        **INTERPRETED,
        **SPLIT,
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": "false",
    }
    command = [str(SPARK / "bin" / "spark-submit"), "--master", "local[2]"]
    command += [each for name, value in conf.items() for each in ("--conf", f"{name}={value}")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with java(folder, "connect", command):
        assert wait_until(lambda: is_open(port), patience=PATIENCE)
        yield f"sc://{LOOPBACK}:{port}"


@contextmanager
def java(folder: Path, name: str, command: list[str]) -> Iterator[None]:
    home = str(find_java(os.environ).home)
    own = folder / f"own-{name}"
    own.mkdir()
    variables = {"JAVA_HOME": home, "SPARK_LOCAL_IP": LOOPBACK, "SPARK_DAEMON_JAVA_OPTS": SMALL}
    process = GuardedProcess(
        command,
        folder=own,
        log=folder / f"{name}.log",
        cwd=folder,
        environment={**os.environ, **variables, "SPARK_LOG_DIR": str(own), "SPARK_NO_DAEMONIZE": "1"},
    )
    try:
        yield
    finally:
        process.kill()


def is_registered(log: Path) -> bool:
    return "registered with master" in log.read_text()


def free_port() -> int:
    with socket.socket() as asking:
        asking.bind((LOOPBACK, 0))
        port: int = asking.getsockname()[1]
        return port


def is_open(port: int) -> bool:
    with suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1.0):
        return True
    return False
