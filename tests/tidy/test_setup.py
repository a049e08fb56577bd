"""The setup needs a uv, wherever it is from, and never another user's rights."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.repository import ROOT

#: Notes what it is asked for. A pip that installs leaves one behind.
UV = """#!/bin/bash
if [ "$1" = --version ]; then echo "uv {version}"; else echo "uv $*" >>"$TOLD"; fi
"""
PYTHON = """#!/bin/bash
case "$*" in
    "-m pip --version") {pip} ;;
    "-m pip install"*) echo "pip $*" >>"$TOLD"; mkdir -p .tools/bin; cp "$UV" .tools/bin/uv ;;
    "-c import ensurepip, venv") {venv} ;;
    "-m venv .tools") echo "venv" >>"$TOLD"; mkdir -p .tools/bin; cp "$0" .tools/bin/python ;;
    *) exec '{real}' "$@" ;;
esac
"""
FORBIDDEN = """#!/bin/bash
echo "asked for $(basename "$0")" >>"$TOLD"
exit 1
"""
PINNED = (ROOT / "requirements" / "uv.txt").read_text().split()[0].partition("==")[2]


class Machine:
    """A checkout, and programs that only note what they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told = folder / "told"
        self.programs = folder / "programs"
        self.programs.mkdir()
        shutil.copytree(ROOT / "scripts", folder / "scripts")
        (folder / "requirements").mkdir()
        shutil.copy(ROOT / "requirements" / "uv.txt", folder / "requirements")
        for name in ("sudo", "apt-get"):
            self.add(self.programs / name, FORBIDDEN)
        self.add(folder / "uv", UV.format(version=PINNED))
        # Before any that this machine may have.
        self.add(self.programs / "uv", UV.format(version="0.1.0"))

    def add(self, program: Path, text: str) -> None:
        program.write_text(text)
        program.chmod(0o755)

    def run(self, *, has_pip: bool, has_venv: bool) -> subprocess.CompletedProcess[str]:
        text = PYTHON.format(pip=f"exit {not has_pip:d}", venv=f"exit {not has_venv:d}", real=sys.executable)
        self.add(self.programs / "python3.11", text)
        return subprocess.run(
            ["/bin/bash", "scripts/setup"],
            cwd=self.folder,
            env={
                "PATH": f"{self.programs}:/usr/bin:/bin",
                "TOLD": str(self.told),
                "UV": str(self.folder / "uv"),
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def run_test_setup(self) -> subprocess.CompletedProcess[str]:
        """Run the second stage of the setup, with the programs alone that it is made of."""
        (self.folder / ".tools" / "bin").mkdir(parents=True)
        shutil.copy(self.folder / "uv", self.folder / ".tools" / "bin" / "uv")
        (self.folder / "requirements" / "celery57.in").touch()
        for name in ("basename", "dirname", "env", "mkdir"):
            program = shutil.which(name)
            assert program is not None
            (self.programs / name).symlink_to(program)
        text = PYTHON.format(pip="exit 1", venv="exit 1", real=sys.executable)
        self.add(self.programs / "python3.11", text)
        return subprocess.run(
            ["/bin/bash", "scripts/setup-tests"],
            cwd=self.folder,
            env={"PATH": str(self.programs), "TOLD": str(self.told), "HOME": str(self.folder)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def kinds(machine: Machine) -> list[str]:
    return [line.split()[0] for line in machine.told.read_text().splitlines()]


@pytest.mark.parametrize("version", [PINNED, "99.0.1"])
def test_a_uv_of_the_machine_will_do(machine: Machine, version: str) -> None:
    machine.add(machine.programs / "uv", UV.format(version=version))

    done = machine.run(has_pip=False, has_venv=False)

    assert done.returncode == 0, done.stderr
    assert kinds(machine) == ["uv"] * 3
    assert (machine.folder / ".tools" / "bin" / "uv").readlink() == machine.programs / "uv"


@pytest.mark.parametrize("has_venv", [False, True])
def test_one_that_is_too_old_is_not_taken_and_pip_installs_the_pinned_one_by_its_hash(
    machine: Machine, has_venv: bool
) -> None:
    done = machine.run(has_pip=True, has_venv=has_venv)

    assert done.returncode == 0, done.stderr
    assert kinds(machine) == ["pip", *["uv"] * 3]
    assert "--require-hashes --requirement requirements/uv.txt --target .tools" in machine.told.read_text()


def test_where_there_is_no_pip_the_one_of_an_environment_does_it(machine: Machine) -> None:
    done = machine.run(has_pip=False, has_venv=True)

    assert done.returncode == 0, done.stderr
    assert kinds(machine) == ["venv", "pip", *["uv"] * 3]


def test_where_there_is_nothing_one_sentence_says_what_to_install(machine: Machine) -> None:
    done = machine.run(has_pip=False, has_venv=False)

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert f"apt-get install python{sys.version_info.major}.{sys.version_info.minor}-venv" in done.stderr
    assert not machine.told.exists()


def test_what_is_there_already_is_not_installed_again(machine: Machine) -> None:
    machine.run(has_pip=True, has_venv=False)
    machine.told.unlink()

    done = machine.run(has_pip=True, has_venv=False)

    assert done.returncode == 0, done.stderr
    assert kinds(machine) == ["uv"] * 3


@pytest.mark.parametrize("has_apt", [False, True])
def test_missing_servers_are_named_in_one_line_to_a_user_who_cannot_install_them(
    machine: Machine, has_apt: bool
) -> None:
    machine.add(machine.programs / "id", "#!/bin/bash\necho 1000\n")
    if not has_apt:
        (machine.programs / "apt-get").unlink()

    done = machine.run_test_setup()

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "as root, run: apt-get install redis-server" in done.stderr
    assert "chromium-headless-shell" in done.stderr
    assert "apt-get" not in (machine.told.read_text() if machine.told.exists() else "")
