"""A run of the tests ends with a list of those that failed, and prints progress without a terminal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PLANTED = """
import os
import pytest

def test_passes():
    pass

def test_fails():
    assert 1 + 1 == 3, "wrong sum"

@pytest.fixture
def broken():
    raise ValueError("broken fixture")

def test_has_no_fixture(broken):
    pass

def test_is_skipped():
    pytest.skip("not here")

@pytest.mark.parametrize("text", ["a b"])
def test_ends_its_process(text):
    os._exit(3)
"""


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a parallel run over planted failures prints."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "test_planted.py").write_text(_PLANTED)
    (folder / "test_unreadable.py").write_text("raise ImportError('no such part')\n")
    plugins = ["tests.kit.summary", "tests.kit.late_collection", "tests.kit.schedule", "xdist"]
    plugins.append("no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *(f"-p{each}" for each in plugins), "-n", "1"]
    done = subprocess.run(  # noqa: S603
        [*command, "--rootdir", str(folder), "--continue-on-collection-errors", str(folder)],
        cwd=_ROOT,
        env={**os.environ, "HYPOTHESIS_PROFILE": "ci", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("test_planted.py::test_fails", "AssertionError: wrong sum"),
        ("test_planted.py::test_has_no_fixture", "setup: ValueError: broken fixture"),
        ("'test_planted.py::test_ends_its_process[a b]'", "worker 'gw0' crashed while running"),
        ("test_unreadable.py", "ImportError: no such part"),
    ],
)
def test_each_failure_is_listed_with_its_reason_and_a_command(output: str, test: str, reason: str) -> None:
    listed = output.partition("= failed tests =")[2]

    entry = listed.partition(test.strip("'") + "\n")[2].splitlines()

    assert reason in entry[0]
    assert entry[1].strip() == f"repeat: HYPOTHESIS_PROFILE=ci .venv/bin/pytest {test}"


def test_a_failure_is_printed_when_it_happens(output: str) -> None:
    during = output.partition("= FAILURES =")[0]

    assert "FAILED test_planted.py::test_fails\n       AssertionError: wrong sum" in during


def test_passed_and_skipped_tests_are_not_listed_as_failed(output: str) -> None:
    listed = output.partition("= failed tests =")[2]

    assert listed.count("repeat:") == 4
    assert "1 passed, 1 skipped" in listed
    assert "skipped test_planted.py::test_is_skipped: not here\n" in output
