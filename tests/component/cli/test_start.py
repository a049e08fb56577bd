"""A command loads no more than it needs: the time of its start is the time to load modules."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from celeriac.cli import main
from celeriac.cli.program import COMMANDS, named_command, program
from celeriac.cli.root import app

#: Modules that no command needs to show its version or its help; each takes 20 ms or more to load.
HEAVY = {
    "amqp",
    "celeriac.app",
    "celeriac.config",
    "celeriac.node.state",
    "celery",
    "duckdb",
    "hiredis",
    "kombu",
    "markdown_it",
    "msgspec",
    "numpy",
    "pandas",
    "pyarrow",
    "pydantic",
    "pygments",
    "pyspark",
    "redis",
    "rich.live",
    "rich.markdown",
    "rich.traceback",
    "textual",
}
#: What a question to the tables needs besides; it loads the settings and DuckDB's files alone.
NEEDED_FOR_TABLES = {"celeriac.config", "msgspec"}


def loaded_by(*arguments: str, cwd: Path) -> set[str]:
    """Return the modules that a new process has loaded when it has run a command."""
    text = (
        "import atexit, sys; atexit.register(lambda: print('\\n', *sys.modules, file=sys.stderr)); "
        "from celeriac.cli import main; main()"
    )
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", text, *arguments], capture_output=True, text=True, check=False, cwd=cwd
    )
    return {*done.stderr.split()}


@pytest.mark.parametrize(
    "arguments",
    [("--version",), ("status", "--help"), ("-b", "redis://h/0", "status", "--help")],
    ids=" ".join,
)
def test_version_and_help_load_no_heavy_module(arguments: tuple[str, ...], tmp_path: Path) -> None:
    loaded = loaded_by(*arguments, cwd=tmp_path)

    assert "celeriac.cli" in loaded
    assert loaded & HEAVY == set()


def test_version_loads_no_parser(tmp_path: Path) -> None:
    assert loaded_by("--version", cwd=tmp_path) & {"typer", "rich", "celeriac.cli.program"} == set()


def test_a_question_to_the_tables_loads_no_way_to_a_broker(tmp_path: Path) -> None:
    loaded = loaded_by("history", "latency", cwd=tmp_path)

    assert "celeriac.history.warehouse" in loaded
    assert loaded & (HEAVY - NEEDED_FOR_TABLES) == set()


def test_a_probe_loads_neither_kombu_nor_a_parser(tmp_path: Path) -> None:
    loaded = loaded_by("probe", "-d", "w@h", "-b", "redis://127.0.0.1:1/0", cwd=tmp_path)

    assert "celeriac.transport.quick_redis" in loaded
    assert loaded & {"kombu", "redis", "typer", "rich", "pydantic"} == set()


def test_modules_are_not_collected_while_they_load_nor_later(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    was_enabled: list[bool] = []
    monkeypatch.setattr("gc.freeze", lambda: was_enabled.append(gc.isenabled()))
    monkeypatch.setattr(sys, "argv", ["celeriac", "conf", "--help"])

    with pytest.raises(SystemExit):
        main()

    assert was_enabled == [False]
    assert gc.isenabled()
    assert "celeriac conf" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ([], None),
        (["status"], "status"),
        (["-b", "redis://h/0", "--debug", "history", "sql"], "history"),
        (["--broker=redis://h/0", "status"], "status"),
        (["--config", "status", "inspect"], "inspect"),
        (["-A", "status", "--app", "web", "inspect"], "inspect"),
        (["--help"], None),
        (["staus"], None),
        (["-b"], None),
    ],
)
def test_the_command_is_found_after_the_common_options(arguments: list[str], command: str | None) -> None:
    assert named_command(arguments) == command


def test_a_help_text_is_the_same_as_with_all_of_rich(tmp_path: Path) -> None:
    text = "import rich.markdown, rich.traceback; from celeriac.cli import main; main()"
    command = [sys.executable, "-c", text, "status", "--help"]
    whole = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)  # noqa: S603

    light = subprocess.run(
        [sys.executable, "-c", "from celeriac.cli import main; main()", "status", "--help"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )

    assert "Show the status of all nodes" in light.stdout
    assert light.stdout == whole.stdout


def test_the_help_lists_every_command_in_a_group() -> None:
    text = CliRunner().invoke(app, ["--help"], terminal_width=100).stdout

    panels = ["Start here", "Look", "Act", "Run tasks", "History", "Admin"]
    positions = [text.index(f"─ {panel} ─") for panel in panels]
    assert positions == sorted(positions)
    assert "─ Commands ─" not in text
    assert all(f"│ {name} " in text for name in COMMANDS)


def test_a_wrong_name_is_answered_with_the_nearest_command() -> None:
    result = CliRunner().invoke(program(named_command(["staus"])), ["staus"])

    assert result.exit_code == 2
    assert "Did you mean 'status'?" in result.output


def test_completion_offers_commands_and_options(tmp_path: Path) -> None:
    def complete(words: str, position: int) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-c", "from celeriac.cli import main; main()"],
            env={"_CELERIAC_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(position)},
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        return {*done.stdout.split()}

    assert {"status", "history", "doctor", "probe"} <= complete("celeriac ", 1)
    assert complete("celeriac sta", 1) == {"status"}
    assert "--listen" in complete("celeriac status --li", 2)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["status", "--timeout", "soon"], "Invalid value for '--timeout'"),
        (["status", "--timeout", "-1"], "Invalid value for '--timeout'"),
        (["status", "--matcher", "odd"], "Invalid value for '--matcher'"),
        (["history", "top", "--limit", "1.5"], "Invalid value for '--limit'"),
        (["history", "top", "--limit", "0"], "Invalid value for '--limit'"),
        (["probe"], "Missing option '--destination'"),
    ],
)
def test_a_bad_value_is_still_refused(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(app, arguments, terminal_width=120)

    assert result.exit_code == 2
    assert text in result.output
