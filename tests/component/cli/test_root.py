"""What holds for every command: its options, its help, and how it ends."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import celeriac
from celeriac.app import Celeriac
from celeriac.cli.exit import Code, code_of
from celeriac.cli.program import COMMANDS as NAMES
from celeriac.cli.program import program
from celeriac.cli.root import app
from celeriac.errors import (
    AccessRefused,
    CallerError,
    CeleriacError,
    ConnectionLost,
    ImproperlyConfigured,
    NetworkError,
    ResultTimeout,
)
from tests.component.cli.kit import HOSTILE, Cluster, is_harmless

COMMANDS = [
    ["up"], ["status"], ["events"], ["inspect"], ["result"], ["conf"], ["control", "revoke"],
    ["control", "shutdown"],
]  # fmt: skip


@pytest.mark.parametrize("command", [[], *COMMANDS], ids=" ".join)
def test_every_command_tells_the_version(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--version"])

    assert result.exit_code == 0
    assert result.stdout == f"celeriac {celeriac.__version__}\n"


@pytest.mark.parametrize("command", [[], *COMMANDS], ids=" ".join)
def test_every_command_takes_the_common_options(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--help"], terminal_width=200)

    assert result.exit_code == 0
    assert all(option in result.stdout for option in ("--broker", "--config", "--debug", "--version"))


@pytest.mark.parametrize("command", ["up", "status", "events", "inspect ping", "result", "conf"])
def test_the_help_of_a_command_has_examples(command: str) -> None:
    result = CliRunner().invoke(app, [*command.split(), "--help"], terminal_width=200)

    assert f"\n   celeriac {command}" in result.stdout


def test_without_a_command_the_help_is_shown() -> None:
    result = CliRunner().invoke(app, [])

    assert "Usage: celeriac [OPTIONS] COMMAND" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["conf", "--json", "--broker", "redis://one/0"],
        ["--broker", "redis://one/0", "conf", "--json"],
        ["-b", "redis://two/0", "conf", "--json", "-b", "redis://one/0"],
    ],
)
def test_common_options_may_stand_before_or_after_the_command(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    result = CliRunner().invoke(app, arguments)

    assert json.loads(result.stdout)["broker_url"] == {"value": "redis://one/0", "source": "argument"}


def test_a_file_of_settings_can_be_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('event_exchange = "mine"\n')

    result = CliRunner().invoke(app, ["conf", "--json", "--config", str(file)])

    assert json.loads(result.stdout)["event_exchange"] == {"value": "mine", "source": f"file {file}"}


def test_the_settings_are_shown_with_their_sources_and_without_passwords(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CELERIAC_BROKER_URL", "redis://:hush@one/0")

    result = CliRunner().invoke(app, ["conf"])

    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0] == ["SETTING", "VALUE", "SOURCE"]
    assert rows[1] == ["broker_url", '"redis://:**@one/0"', "variable", "CELERIAC_BROKER_URL"]
    assert "hush" not in result.output


# -- how commands end


def failing(error: Exception) -> Any:
    """Return what assembles no app, but fails."""

    def assemble(**_: object) -> Celeriac:
        raise error

    return assemble


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (AccessRefused("x"), 77),
        (ConnectionLost("x"), 69),
        (NetworkError("x"), 69),
        (ResultTimeout("x"), 69),
        (ImproperlyConfigured("x"), 78),
        (CallerError("x"), 2),
        (CeleriacError("x"), 1),
        (RuntimeError("x"), 1),
    ],
)
def test_an_error_ends_a_command_with_its_code(cluster: Cluster, error: Exception, code: int) -> None:
    result = cluster.run("conf", assemble=failing(error))

    assert code_of(error) == code
    assert result.exit_code == code


def test_an_error_is_one_line_on_standard_error(cluster: Cluster) -> None:
    result = cluster.run("conf", assemble=failing(ImproperlyConfigured("event_ttl is no setting")))

    assert result.stdout == ""
    assert result.stderr == "error: event_ttl is no setting\n"


def test_the_log_of_a_service_that_did_not_start_follows_in_lines_of_its_own(cluster: Cluster) -> None:
    result = cluster.run(
        "conf", assemble=failing(CeleriacError("valkey ended with 1; its log:\nno\x1b disk"))
    )

    assert result.stderr == "error: valkey ended with 1; its log:\nno\\x1b disk\n"


def test_what_a_broker_says_stays_in_one_line(cluster: Cluster) -> None:
    result = cluster.run("conf", assemble=failing(AccessRefused("refused:\nroot# ")))

    assert result.stderr == "error: refused:\\nroot# \n"


def test_a_fault_of_ours_says_how_to_report_it(cluster: Cluster) -> None:
    result = cluster.run("conf", assemble=failing(KeyError("odd")))

    assert result.stderr == (
        "error: internal error, KeyError: 'odd'. Run the command again with --debug, and report its output\n"
    )


@pytest.mark.parametrize("error", [ImproperlyConfigured(HOSTILE), KeyError(HOSTILE), ValueError(HOSTILE)])
@pytest.mark.parametrize("options", [[], ["--debug"]])
def test_hostile_text_in_an_error_emits_no_escape_code(
    cluster: Cluster, error: Exception, options: list[str]
) -> None:
    result = cluster.run("conf", *options, assemble=failing(error))

    assert "x1b[31m" in result.stderr
    assert is_harmless(result.output)


def test_with_debug_the_whole_trace_is_shown(cluster: Cluster) -> None:
    result = cluster.run("conf", "--debug", assemble=failing(ConnectionLost("gone")))

    assert result.exit_code == 69
    assert result.stderr.startswith("Traceback (most recent call last):\n")
    assert result.stderr.endswith("celeriac.errors.ConnectionLost: gone\n")


def test_ctrl_c_ends_a_command_with_130_and_no_trace(cluster: Cluster) -> None:
    def interrupt(**_: object) -> Celeriac:
        raise KeyboardInterrupt

    result = cluster.run("conf", assemble=interrupt)

    assert result.exit_code == 130
    assert result.output == ""


def test_a_command_that_does_not_exist_is_a_mistake_in_usage() -> None:
    result = CliRunner().invoke(app, ["evnets"])

    assert result.exit_code == 2


def test_the_help_lists_every_exit_code() -> None:
    result = CliRunner().invoke(app, ["--help"], terminal_width=200)

    told = " ".join(result.stdout.split()).partition("Exit codes:")[2]
    assert all(f"{code.value} " in told for code in Code)


def loaded_by(program_text: str) -> set[str]:
    """Return the modules that are loaded after a piece of a program."""
    command = [sys.executable, "-c", f"import sys; {program_text}; print(*sys.modules)"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return {*done.stdout.split()}


def test_the_help_loads_no_heavy_package() -> None:
    loaded = loaded_by("import celeriac.cli.root")

    assert "celeriac.cli.root" in loaded
    assert {"celery", "kombu", "redis", "rich.live", "celeriac.testing.brokers"}.isdisjoint(loaded)


@pytest.mark.parametrize("name", NAMES)
def test_a_command_that_is_loaded_alone_says_what_it_says_among_the_others(name: str) -> None:
    alone = CliRunner().invoke(program(name), [name, "--help"], prog_name="celeriac")

    assert alone.exit_code == 0
    assert alone.stdout == CliRunner().invoke(app, [name, "--help"], prog_name="celeriac").stdout


def test_a_command_loads_no_other() -> None:
    loaded = loaded_by("from celeriac.cli.program import program; program('history')")

    assert "celeriac.cli.history" in loaded
    assert {"celeriac.cli.worker", "celeriac.app", "celeriac.node.client"}.isdisjoint(loaded)
