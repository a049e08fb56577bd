"""``celeriac pipeline`` as far as it goes without a Spark."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from celeriac.cli.exit import Code
from celeriac.cli.root import app


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["pipeline", *arguments])


@pytest.mark.parametrize("pair", ["spark.executor.memory", "executor.memory=4g", "=x"])
def test_a_setting_of_spark_that_is_none_is_refused_before_spark_is_started(
    pair: str, tmp_path: Path
) -> None:
    told = run("run", str(tmp_path), "--conf", pair)

    assert told.exit_code == Code.USAGE
    assert "Use spark.NAME=VALUE" in told.stderr
    assert "starting" not in told.stderr


def test_where_spark_is_not_installed_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in sys.modules if name.startswith(("pyspark", "celeriac.pipeline."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)

    told = run("run", str(tmp_path))

    assert told.exit_code == Code.CONFIGURATION
    assert "pip install 'celeriac[pipeline]'" in told.stderr


def test_a_backfill_that_ends_before_it_begins_is_refused(tmp_path: Path) -> None:
    told = run("backfill", str(tmp_path), "--since", "2026-11-02T00:00Z", "--until", "2026-11-01T00:00Z")

    assert told.exit_code == Code.USAGE
    assert "--since is later than" in told.stderr
