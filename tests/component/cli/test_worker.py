"""``celeriac worker``: what it is told, what it says of itself, and how it fails."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from celeriac.app import Celeriac
from celeriac.cli import worker as command
from celeriac.cli.worker_log import logging_to
from celeriac.errors import DiskError
from celeriac.transport.memory import MemoryBroker
from celeriac.worker.worker import Worker
from tests.component.cli.kit import HOSTILE, Cluster, is_harmless, lines

APP = """
import os, signal, sys
from celeriac import Celeriac
from celeriac.transport.memory import MemoryBroker

broker = MemoryBroker()
app = Celeriac(broker, environ={}, worker_mingle_timeout=0.05)
other = 7

@app.task(name="shop.leave")
def leave():
    os.kill(os.getpid(), signal.SIGTERM)

Celeriac(broker, environ={}).send_task("shop.leave")
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An app in a module where the command is run, with a task in its queue that ends the worker."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "shoptasks.py").write_text(APP)
    yield "shoptasks:app"
    for name in [name for name in sys.modules if name.startswith("shop")]:
        del sys.modules[name]


# -- the graph


def test_the_graph_tells_the_steps_in_order_and_ends(cluster: Cluster, place: str) -> None:
    result = cluster.run("worker", "-A", place, "--graph", "-P", "threads")

    assert result.exit_code == 0
    assert [line.split()[1] for line in lines(result.stdout)] == [
        *("finisher", "pool", "connection", "events", "mingle", "gossip", "heart", "tasks", "control"),
    ]


def test_the_graph_tells_what_is_off(cluster: Cluster, place: str) -> None:
    result = cluster.run("worker", "-A", place, "--graph", "-P", "threads", "--without-gossip")

    assert any("gossip" in line and "off" in line for line in lines(result.stdout))


# -- a run


def test_a_worker_runs_until_a_signal_and_says_what_it_is_connected_to(cluster: Cluster, place: str) -> None:
    result = cluster.run("worker", "-A", place, "-P", "threads", "-c", "3", "-n", "mail@lab", "-E")

    assert result.exit_code == 0, result.stderr
    assert "worker mail@lab" in result.stderr
    assert "threads, 3 at a time" in result.stderr
    assert "worker and task events" in result.stderr
    assert "mail@lab ready." in result.stderr
    assert "Task shop.leave" in result.stderr
    assert "worker: mail@lab has stopped" in result.stderr


def test_the_log_goes_to_a_file(cluster: Cluster, place: str, tmp_path: Path) -> None:
    file = tmp_path / "worker.log"
    file.write_text("before\n")

    result = cluster.run("worker", "-A", place, "-P", "threads", "-n", "w@lab", "-f", str(file))

    assert result.exit_code == 0, result.stderr
    assert file.read_text().startswith("before\n")
    assert "w@lab ready." in file.read_text()
    assert "w@lab ready." not in result.stderr


def test_the_level_of_the_log_is_chosen(cluster: Cluster, place: str) -> None:
    result = cluster.run("worker", "-A", place, "-P", "threads", "-n", "w@lab", "-l", "error")

    assert result.exit_code == 0
    assert "w@lab ready." not in result.stderr


def test_a_log_that_cannot_be_written_is_named(cluster: Cluster, place: str, tmp_path: Path) -> None:
    file = tmp_path / "nowhere" / "worker.log"

    result = cluster.run("worker", "-A", place, "-P", "threads", "-f", str(file))

    assert result.exit_code == 1
    assert f"{file} cannot be written" in result.stderr


# -- options


def test_an_app_that_is_used_while_it_is_imported_can_be_run(
    cluster: Cluster, place: str, tmp_path: Path
) -> None:
    (tmp_path / "shoptasks.py").write_text(APP + "app.control\n")

    result = cluster.run("worker", "-A", place, "-P", "threads")

    assert result.exit_code == 0, result.stderr


def made(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, *arguments: str) -> Worker:
    """Return the worker that a command makes, which is not run."""
    found: list[Worker] = []

    def banner(app: Celeriac, worker: Worker) -> list[str]:  # noqa: ARG001
        found.append(worker)
        worker.stop()
        return []

    monkeypatch.setattr(command, "banner", banner)
    result = cluster.run("worker", *arguments)
    assert result.exit_code == 0, result.stderr
    return found[0]


@pytest.mark.parametrize(
    ("arguments", "queues"),
    [
        ((), ["celery"]),
        (("-Q", "mail"), ["mail"]),
        (("-Q", "mail, reports,"), ["mail", "reports"]),
        (("-Q", "mail", "-Q", "reports"), ["mail", "reports"]),
    ],
)
def test_queues_are_named_several_times_or_by_commas(
    cluster: Cluster,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    queues: list[str],
) -> None:
    worker = made(monkeypatch, cluster, "-A", place, "-P", "threads", *arguments)

    assert list(worker.tasks.queues) == queues


def test_options_become_settings(cluster: Cluster, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = (
        *("--allow", "terminate,shutdown", "--allow", "pool_grow", "--time-limit", "60"),
        *("--soft-time-limit", "30", "--prefetch-multiplier", "2", "--heartbeat-interval", "5"),
        *("--max-tasks-per-child", "100", "-c", "4"),
    )

    worker = made(monkeypatch, cluster, "-A", place, "-P", "threads", *options)

    settings = worker.settings
    assert settings.control_allow == ("terminate", "shutdown", "pool_grow")
    assert (settings.task_time_limit, settings.task_soft_time_limit) == (60.0, 30.0)
    assert (settings.worker_heartbeat_interval, settings.worker_max_tasks_per_child) == (5.0, 100)
    assert (settings.worker_concurrency, settings.worker_prefetch_multiplier) == (4, 2)


def test_the_state_is_kept_where_it_is_told_to(
    cluster: Cluster, place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made(monkeypatch, cluster, "-A", place, "-P", "threads", "-S", str(tmp_path / "state"))

    assert (tmp_path / "state").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("-P", "prefork"),
        ("-c", "0"),
        ("-P", "threads", "-Q", ","),
        ("-P", "threads", "--allow", ""),
        ("-l", "loud"),
        ("--time-limit", "0"),
        ("-P", "threads", "-n", "w\x1b@lab"),
    ],
)
def test_options_that_make_no_sense_are_a_fault_of_usage(
    cluster: Cluster, place: str, arguments: tuple[str, ...]
) -> None:
    result = cluster.run("worker", "-A", place, *arguments)

    assert result.exit_code == 2
    assert is_harmless(result.stderr.replace("\x1b[", ""))


def test_without_an_app_nothing_begins(cluster: Cluster) -> None:
    assert cluster.run("worker").exit_code == 2


# -- an app that is not there


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("shopnone:app", "no module 'shopnone'. Run the command in the folder of the project"),
        ("shoptasks.deep:app", "no module 'shoptasks.deep'"),
        ("shoptasks:gone", "module shoptasks has no 'gone'"),
        ("shoptasks:other", "not an app but a int"),
        ("shoptasks", "give module and name of the app"),
        (":app", "give module and name of the app"),
        ("../shoptasks:app", "cannot load ../shoptasks"),
    ],
)
def test_an_app_that_cannot_be_found_is_told(cluster: Cluster, place: str, named: str, told: str) -> None:
    result = cluster.run("worker", "-A", named, "-P", "threads")

    assert result.exit_code == 78, (place, result.stderr)
    assert told in result.stderr


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("import shopmissing", "ModuleNotFoundError: No module named 'shopmissing'"),
        ("from os import nosuchname", "ImportError: cannot import name 'nosuchname'"),
        ("app = (", "SyntaxError"),
        ("raise RuntimeError('no database')", "RuntimeError: no database"),
    ],
)
def test_a_module_that_fails_by_itself_says_how(
    cluster: Cluster, place: str, tmp_path: Path, content: str, told: str
) -> None:
    (tmp_path / "shopbroken.py").write_text(content)

    result = cluster.run("worker", "-A", "shopbroken:app", "-P", "threads")

    assert result.exit_code == 78, place
    assert f"cannot load shopbroken, {told}" in result.stderr
    assert "in the folder of the project" not in result.stderr


def test_debug_shows_where_a_module_fails(cluster: Cluster, place: str, tmp_path: Path) -> None:
    (tmp_path / "shopbroken.py").write_text("def load():\n    raise RuntimeError('no database')\nload()\n")

    result = cluster.run("worker", "-A", "shopbroken:app", "-P", "threads", "--debug")

    assert result.exit_code == 78, place
    assert "in load" in result.stderr


# -- the banner


def test_the_banner_shows_no_password() -> None:
    app = Celeriac(
        "redis://user:hunter2@lab:6379/0",
        "redis://:hunter3@lab:6379/1",
        environ={},
        control_allow=("shutdown",),
    )

    text = "\n".join(command.banner(app, app.Worker("w@lab", pool="threads")))

    assert "hunter" not in text
    assert "redis://user:**@lab:6379/0" in text
    assert "shutdown" in text
    app.close()


def test_the_banner_can_do_nothing_to_a_terminal() -> None:
    app = Celeriac(MemoryBroker(), environ={}, worker_state_db=HOSTILE)
    app.task(name="shop.pay")(lambda: None)

    text = "\n".join(command.banner(app, app.Worker("w@lab", pool="threads", queues=[HOSTILE])))

    assert is_harmless(text)


def test_the_banner_names_no_more_tasks_than_can_be_read() -> None:
    app = Celeriac(MemoryBroker(), environ={})
    for number in range(50):
        app.task(name=f"shop.t{number:02}")(lambda: None)

    text = "\n".join(command.banner(app, app.Worker("w@lab", pool="threads")))

    assert f"and {len(app.tasks) - 20} more" in text
    assert "shop.t49" not in text


# -- lines of log


def test_lines_of_log_can_do_nothing_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_to(None, level="info"):
        logging.getLogger("shop").info("Task %s received", HOSTILE)

    told = capsys.readouterr().err
    assert is_harmless(told)
    assert "root# " in told


def test_a_record_of_several_lines_stands_under_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_to(None, level="info"):
        logging.getLogger("shop").info("one\n[2026-11-15 00:00:00,000: INFO/MainProcess] forged")

    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("INFO/MainProcess] one")
    assert second.startswith("    [2026")


def test_a_line_that_cannot_be_written_harms_nobody_who_writes_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)

    with logging_to(None, level="info"):
        logging.getLogger("shop").info("%d tasks", "many")
        logging.getLogger("shop").info("next")

    assert capsys.readouterr().err.splitlines()[-1].endswith("next")


def test_the_log_is_as_before_afterwards(tmp_path: Path) -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)

    with logging_to(tmp_path / "log", level="debug"):
        assert root.level == logging.DEBUG
    with pytest.raises(DiskError), logging_to(tmp_path, level="debug"):
        pass

    assert (list(root.handlers), root.level) == before
