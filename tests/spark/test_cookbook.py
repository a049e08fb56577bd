"""The examples of the query cookbook that need Spark."""

from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import cookbook
from tests.tidy.repository import ROOT, blocks

PAGE = ROOT / "docs" / "howto" / "query-the-tables.md"


@pytest.mark.usefixtures("spark")
def test_the_examples_with_spark_print_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The examples use what is there, and start no Java.
    assert SparkSession.getActiveSession() is not None
    cookbook.publish_tables(tmp_path)
    monkeypatch.setenv(cookbook.MARK, str(tmp_path))
    namespace: dict[str, object] = {}
    shown = blocks(PAGE.read_text())

    run = []
    for block, output in pairwise(shown):
        if block.language == "python" and ("spark" in block.code or cookbook.MARK in block.code):
            exec(compile(block.code, str(PAGE), "exec"), namespace)  # noqa: S102 - our own page
            assert capsys.readouterr().out == output.code, f"line {output.line}"
            run.append(block)

    assert len(run) == 3
