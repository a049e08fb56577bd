"""A Java that dies fails the one test that it interrupts."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: A run of tests with fixtures of this folder. To ask Java for the size of a list takes no job of Spark.
PLANTED = """
import pytest

@pytest.fixture(scope="module")
def numbers(spark):
    made = spark.sparkContext._jvm.java.util.ArrayList()
    made.add(3)
    return made

def test_before(numbers):
    assert numbers.size() == 1

def test_that_kills(spark, numbers):
    spark.sparkContext._jvm.System.err.println("".join(["fare", "well"]))
    spark.sparkContext._gateway.proc.kill()
    numbers.size()

def test_after(numbers):
    assert numbers.size() == 1

def test_that_passes_and_kills(spark):
    spark.sparkContext._gateway.proc.kill()
"""


def test_a_dead_java_fails_one_test_and_the_next_has_another(tmp_path: Path) -> None:
    (tmp_path / "test_planted.py").write_text(PLANTED)

    run = subprocess.run(  # noqa: S603 - of our own making
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "tests.kit.spark",
            "-v",
            "--basetemp",
            tmp_path / "t",
            tmp_path,
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTEST_ADDOPTS": "-p no:cacheprovider"},
    )

    assert dict(re.findall(r"::(\w+) (PASSED|FAILED|ERROR)", run.stdout)) == {
        "test_before": "PASSED",
        "test_that_kills": "FAILED",
        "test_after": "PASSED",
        "test_that_passes_and_kills": "FAILED",
    }, run.stdout
    assert run.stdout.count("farewell") == 1
    assert run.stdout.count("it ended with exit code -9") == 2
