"""The repository keeps its own rules."""

import ast
import re
import tomllib
from collections.abc import Iterator

from tests.tidy.repository import ROOT, modules, named, texts

MAX_MODULE_LINES = 600
MAX_FUNCTION_LINES = 60
#: Places of one machine. Spelled in parts, or this file would hold them too.
MACHINE_PATHS = tuple(f"/{place}" for place in ("root/", "home/", "work/", "tmp/scratch"))
#: Words that name nothing.
VAGUE = re.compile(r"^_*(handle|process)_|(^|_)(manager|helper|util)s?($|_)", re.IGNORECASE)

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def definitions() -> Iterator[tuple[str, Definition]]:
    """Yield every function and class of the package, and where it is."""
    for module in modules():
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, Definition):
                yield f"{named(module)}:{node.lineno} {node.name}", node


def test_no_module_is_longer_than_600_lines() -> None:
    lengths = {named(module): len(module.read_text().splitlines()) for module in modules()}

    long = {name: lines for name, lines in lengths.items() if lines > MAX_MODULE_LINES}

    assert lengths
    assert long == {}


def test_no_function_is_longer_than_60_lines() -> None:
    functions = [(place, node) for place, node in definitions() if not isinstance(node, ast.ClassDef)]

    lengths = {place: (node.end_lineno or node.lineno) - node.lineno + 1 for place, node in functions}

    assert lengths
    assert {place: lines for place, lines in lengths.items() if lines > MAX_FUNCTION_LINES} == {}


def test_no_name_of_the_package_is_vague() -> None:
    names = [(place, node.name) for place, node in definitions()]
    names += [(named(module), module.stem) for module in modules()]

    vague = [place for place, name in names if VAGUE.search(name)]

    assert vague == []


def test_no_text_names_a_place_of_one_machine() -> None:
    found = [
        f"{named(path)}: {place}"
        for path, text in texts()
        for place in MACHINE_PATHS
        if re.search(rf"(?<![\w.]){place}", text)
    ]

    assert found == []


def test_there_are_pins_for_the_project_and_for_each_peer() -> None:
    peers = {path.stem for path in (ROOT / "requirements").glob("*.in")}

    pins = {path.stem for path in (ROOT / "requirements").glob("*.txt")}

    assert peers
    assert pins == {"run", "dev", "uv"} | peers


def test_the_pins_hold_no_address() -> None:
    pins = sorted((ROOT / "requirements").glob("*.txt"))

    with_address = [named(path) for path in pins if "://" in path.read_text()]

    assert pins
    assert with_address == []


def test_every_pin_has_a_hash() -> None:
    pins = "\n".join(path.read_text() for path in (ROOT / "requirements").glob("*.txt"))

    entries = re.findall(r"^\S+==.*?(?=^\S|\Z)", pins, re.MULTILINE | re.DOTALL)

    assert entries
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_the_gate_before_a_change_checks_and_then_tests() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()

    commands = [command for line in lines if line[:1] != "#" for command in re.findall(r"\bmake \w+", line)]

    assert sorted(commands) == ["make check", "make sim", "make test"]
    assert "set -euo pipefail" in lines


def test_the_hooks_before_a_commit_are_those_of_make_check() -> None:
    makefile = (ROOT / "Makefile").read_text()
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()

    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    entries = re.findall(r"entry: (.*)", hooks)

    assert recipe is not None
    assert entries == [line.strip().replace("$(RUN)", ".venv/bin/") for line in recipe[1].splitlines()]
    assert re.findall(r"repo: (.*)", hooks) == ["local"]


def first_cells(heading: str) -> list[list[str]]:
    """Return the names in the first column of the table that follows a heading on how to contribute."""
    _, _, below = (ROOT / "CONTRIBUTING.md").read_text().partition(f"\n## {heading}\n")
    part = below.partition("\n## ")[0]
    return [re.findall(r"`([^`]+)`", row) for row in re.findall(r"^\| (`[^|]*) \|", part, re.MULTILINE)]


def test_the_packages_of_the_page_are_those_of_the_contract() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    layers = next(each for each in project["tool"]["importlinter"]["contracts"] if each["id"] == "layers")
    packages = [layer.split(" | ") for layer in layers["layers"]]

    # The program itself is not in the table.
    assert [["__main__"], *first_cells("Packages")] == packages


def test_the_folders_of_tests_that_are_told_of_are_those_there_are() -> None:
    folders = {
        f"tests/{each.parent.relative_to(ROOT / 'tests').parts[0]}"
        for each in (ROOT / "tests").rglob("*/test_*.py")
    }

    told = [name for row in first_cells("Tests") for name in row]

    assert len(told) == len(set(told))
    assert {each for each in told if each.startswith("tests/")} == folders
