"""``celeriac result`` says what it cannot do before it connects to anything."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from celeriac.cli.root import app
from tests.component.cli.kit import HOSTILE, is_harmless

NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture(autouse=True)
def _no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CELERIAC_RESULT_BACKEND", raising=False)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["result", *arguments])


def test_without_a_backend_it_says_how_to_name_one() -> None:
    result = run("t1")

    assert result.exit_code == 78
    assert result.stdout == ""
    assert "--backend URL" in result.stderr
    assert "CELERIAC_RESULT_BACKEND" in result.stderr


def test_the_backend_may_come_from_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELERIAC_RESULT_BACKEND", "rpc://")

    result = run("t1")

    assert "result_backend is rpc://" in result.stderr


def test_an_option_goes_before_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELERIAC_RESULT_BACKEND", "rpc://")

    result = run("t1", "--backend", NOWHERE)

    assert result.exit_code == 69


def test_results_that_are_messages_cannot_be_read_from_here_and_it_says_why() -> None:
    result = run("t1", "--backend", "rpc://")

    assert result.exit_code == 78
    assert "only the process that sent a task gets its result" in result.stderr
    assert "Redis" in result.stderr


def test_a_backend_that_is_not_known_is_a_mistake_in_the_configuration() -> None:
    result = run("t1", "--backend", "mongodb://127.0.0.1/0")

    assert result.exit_code == 78
    assert "use redis://" in result.stderr


def test_a_store_that_is_not_there_is_one_line_that_names_the_option() -> None:
    result = run("t1", "--backend", NOWHERE, "--wait")

    assert result.exit_code == 69
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.endswith("Start it, or name another with --backend URL\n")


def test_a_timeout_without_a_wait_is_not_ignored() -> None:
    result = run("t1", "--backend", NOWHERE, "--timeout", "3")

    assert result.exit_code == 2
    assert "Add --wait" in result.stderr


def test_an_empty_id_is_a_mistake_in_usage() -> None:
    result = run("", "--backend", NOWHERE)

    assert result.exit_code == 2


def test_hostile_text_in_an_argument_emits_no_escape_code() -> None:
    result = run(HOSTILE, "--backend", f"redis://{HOSTILE}")

    assert result.exit_code != 0
    assert is_harmless(result.output)
