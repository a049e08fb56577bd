"""Wheel and sdist are complete; ``make dist`` tries each extra."""

import shlex
import tomllib
from pathlib import Path

import pytest

from scripts.dist import BARE, CHECKS, Check, build, problems_of_sdist, problems_of_wheel
from tests.tidy.command_line import read_command
from tests.tidy.repository import ROOT
from tests.tidy.test_commands_reference import COMMANDS

OURS = [check for checks in CHECKS.values() for check in checks if check.arguments]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("dist"))


def test_the_wheel_that_is_built_from_the_sdist_has_the_package_and_the_licence(
    built: tuple[Path, Path],
) -> None:
    wheel, _ = built

    assert list(problems_of_wheel(wheel)) == []


def test_the_sdist_has_the_package_and_the_licence(built: tuple[Path, Path]) -> None:
    _, sdist = built

    assert list(problems_of_sdist(sdist)) == []


def test_every_extra_is_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert set(CHECKS) == {BARE, *project["optional-dependencies"]}
    assert all(CHECKS.values())


def test_for_every_extra_of_a_command_one_fails_without_it() -> None:
    missing = {check.missing for checks in CHECKS.values() for check in checks} - {""}

    # No command needs eventlet: it is for programs.
    assert missing == set(CHECKS) - {BARE, "all", "eventlet"}


@pytest.mark.parametrize(
    "check", [each for each in OURS if "--help" not in each.arguments], ids=lambda each: each.title
)
def test_the_program_understands_what_is_tried(check: Check) -> None:
    words = shlex.split(check.arguments)

    if words != ["--version"]:
        assert read_command(words) in COMMANDS
