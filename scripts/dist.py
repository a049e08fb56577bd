"""Build wheel and sdist, install each extra alone, and run the commands that need it.

``python -m scripts.dist`` tries all of them, ``python -m scripts.dist web tui`` only these extras. ``bare``
is the wheel without an extra. Each is installed into a fresh environment at the versions of
``requirements/run.txt``. A command whose extra is missing has to fail with one line that names the extra.
"""

import os
import pty
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

__all__ = ["BARE", "CHECKS", "Check", "build", "main", "problems_of_sdist", "problems_of_wheel"]

ROOT: Final = Path(__file__).parents[1]
DIST: Final = ROOT / "build" / "dist"
BARE: Final = "bare"
#: Nobody listens there.
_NO_BROKER: Final = "--broker redis://127.0.0.1:1/0"
_UNAVAILABLE: Final = 69
_CONFIGURATION: Final = 78
#: For one command: Spark takes long on a busy machine.
_SECONDS: Final = 1800.0

_LOG: Final = """
import json

from celeriac import Celeriac, MemoryBroker, decode

app = Celeriac(MemoryBroker(), log_url="log")
with app.history.writer() as log:
    for clock, event in enumerate(("received", "started", "succeeded"), 1):
        fields = {"type": f"task-{event}", "uuid": "t-1", "name": "shop.pay", "hostname": "w1@web"}
        fields |= {"clock": clock, "timestamp": 1790000000.0 + clock}
        log.append(decode(json.dumps(fields).encode()))
"""
_APP: Final = """
from celeriac import Celeriac, MemoryBroker

app = Celeriac(MemoryBroker(), backend="rpc://")


@app.task
def add(x, y):
    return x + y
"""
_RESULT: Final = """
from celeriac import Celeriac, MemoryBroker

app = Celeriac(MemoryBroker(), backend="rpc://", result_drainer="{drainer}")
app.backend.store_result("t1", 5, reply_to=app.backend.reply_to)
print("result", app.AsyncResult("t1").get(timeout=30))
"""


@dataclass(frozen=True)
class Check:
    """A command of ``celeriac``, or a program, and how it has to end."""

    arguments: str = ""
    #: The text of a Python program, run instead of a command.
    program: str = ""
    code: int = 0
    #: It is in the output.
    output: str = ""
    #: The extra that is missing, which one line has to name.
    missing: str = ""
    has_terminal: bool = False

    @property
    def title(self) -> str:
        """The command as a user types it."""
        return f"celeriac {self.arguments}" if self.arguments else "a program"


#: The checks of each extra: commands that work with it alone, and commands whose extra is missing then.
CHECKS: Final[dict[str, tuple[Check, ...]]] = {
    BARE: (
        Check("--version", output="celeriac "),
        Check("--help", output="Usage"),
        Check("conf", output="broker_url"),
        Check(f"status {_NO_BROKER}", code=_UNAVAILABLE),
        Check("worker -A shop:app -P threads --graph", output="pool"),
        Check(program=_RESULT.format(drainer="default"), output="result 5"),
        Check("up", missing="demo"),
        Check("web", missing="web"),
        Check("top", missing="tui", has_terminal=True),
        Check("record log", missing="history"),
        Check("replay log", missing="history"),
        Check("log stat log", missing="history"),
        Check("history tables --warehouse tables", output="attempts"),
        Check("history latency --warehouse tables", missing="history"),
        Check("snapshot --parquet pictures --for 1", missing="history"),
        Check("snapshot --database sqlite:///pictures.db --for 1", missing="database"),
        Check("pipeline run log --warehouse new", missing="pipeline"),
        Check("export otel log", missing="otel"),
        Check("worker -A shop:app -P gevent", missing="gevent"),
    ),
    "demo": (Check("up --data data --port 0 --pipeline-every 0 --for 3", output="dashboard"),),
    "gevent": (
        Check("worker -A shop:app -P gevent --graph", output="pool"),
        Check(program="from gevent import monkey\nmonkey.patch_all()" + _RESULT.format(drainer="gevent")),
    ),
    "eventlet": (
        Check(program="import eventlet\neventlet.monkey_patch()" + _RESULT.format(drainer="eventlet")),
    ),
    "history": (
        Check("log stat log", output="3"),
        Check("replay log"),
        Check("events --log log", output="task-succeeded"),
        Check("history tables --warehouse tables", output="attempts"),
        Check('history sql --warehouse tables "SELECT name, state FROM tasks"', output="SUCCESS"),
        Check(f"record new {_NO_BROKER}", code=_UNAVAILABLE),
        Check("history export tasks --warehouse tables --to delta:lake", missing="delta"),
    ),
    "pipeline": (
        Check("pipeline run log --warehouse new"),
        Check('history sql --warehouse new "SELECT name, state FROM tasks"', output="SUCCESS"),
    ),
    "delta": (Check("history export tasks --warehouse tables --to delta:lake"),),
    "web": (
        Check("web --help", output="--allow-control"),
        Check(f"web --port 0 {_NO_BROKER}", code=_UNAVAILABLE),
        Check("access list --accounts none.json"),
    ),
    "tui": (
        Check("top --help", output="--allow-control"),
        Check(f"top {_NO_BROKER}", code=_UNAVAILABLE, has_terminal=True),
        Check("top --log log", missing="history", has_terminal=True),
    ),
    "otel": (
        Check("export otel --help", output="--endpoint"),
        Check("export otel log --endpoint http://127.0.0.1:1", code=_UNAVAILABLE),
    ),
    "database": (
        Check(f"snapshot --database sqlite:///pictures.db --for 1 {_NO_BROKER}", code=_UNAVAILABLE),
    ),
}
#: Extras whose checks read tables; to make them takes Spark.
_WITH_TABLES: Final = {BARE, "history", "delta", "all"}
#: Together they break nothing of each other.
CHECKS["all"] = tuple(check for checks in CHECKS.values() for check in checks if not check.missing)


# -- build


def build(folder: Path) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it; return the wheel and the sdist."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder), "--target"]
    _run([*command, "sdist"], ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as unpacked:
        _run(["tar", "--extract", "--file", str(sdist), "--directory", unpacked], ROOT)
        (source,) = Path(unpacked).iterdir()
        _run([*command, "wheel"], source)
    (wheel,) = folder.glob("*.whl")
    return wheel, sdist


def problems_of_wheel(wheel: Path) -> Iterator[str]:
    """Yield what the wheel lacks, and what it should not have."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        head = archive.read(metadata).decode().partition("\n\n")[0].splitlines()
    info = metadata.partition("/")[0]
    wanted = {f"celeriac/{name}" for name in _files(ROOT / "src" / "celeriac")}
    wanted |= {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")}
    wanted.add(f"{info}/licenses/LICENSE")
    yield from (f"the wheel lacks {name}" for name in sorted(wanted - names))
    yield from (f"the wheel has {name}" for name in sorted(names - wanted))
    yield from (
        f"METADATA lacks {line}"
        for line in ("License-Expression: Apache-2.0", "License-File: LICENSE")
        if line not in head
    )


def problems_of_sdist(sdist: Path) -> Iterator[str]:
    """Yield what the sdist lacks."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"LICENSE", "SECURITY.md", "README.md", "CHANGELOG.md", "pyproject.toml", "PKG-INFO"}
    wanted |= {f"src/celeriac/{name}" for name in _files(ROOT / "src" / "celeriac")}
    yield from (f"the sdist lacks {name}" for name in sorted(wanted - names))


def _files(folder: Path) -> set[str]:
    """Return the files below a folder that people wrote."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {path.as_posix() for path in paths if "__pycache__" not in path.parts}


# -- try


def _try(extra: str, wheel: Path, samples: Path, work: Path) -> list[str]:
    """Install the wheel with one extra, run its checks, and return what went wrong."""
    environment, folder = work / f"env-{extra}", work / extra
    began = monotonic()
    _say(f"{extra}: installing")
    shutil.copytree(samples, folder)
    uv = str(ROOT / ".tools" / "bin" / "uv")
    _run([uv, "venv", "--quiet", "--python", sys.executable, str(environment)], work)
    wanted = str(wheel) if extra == BARE else f"{wheel}[{extra}]"
    pins = str(ROOT / "requirements" / "run.txt")
    _run(
        [uv, "pip", "install", "--quiet", "--python", str(environment), "--constraint", pins, wanted],
        work,
        UV_PYTHON_DOWNLOADS="never",
        UV_NATIVE_TLS=os.environ.get("UV_NATIVE_TLS", "true"),
    )
    _say(f"{extra}: installed in {monotonic() - began:.0f} s")
    problems = []
    for check in CHECKS[extra]:
        began = monotonic()
        problem = _problem(check, environment / "bin", folder)
        _say(f"{extra}: {'FAILED' if problem else 'ok'} in {monotonic() - began:.1f} s: {check.title}")
        if problem:
            problems.append(f"{extra}: {check.title}: {problem}")
    shutil.rmtree(environment)
    return problems


def _problem(check: Check, programs: Path, folder: Path) -> str:
    """Run a check; return what was wrong, or nothing."""
    if check.program:
        command = [str(programs / "python"), "-c", check.program]
    else:
        command = [str(programs / "celeriac"), *shlex.split(check.arguments)]
    environ = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "TERM": "xterm-256color" if check.has_terminal else "dumb",
        "LANG": "C.UTF-8",
    }
    run = _in_terminal if check.has_terminal else _in_pipes
    code, output = run(command, folder, environ)
    errors = [line for line in output.splitlines() if "error: " in line]
    if check.missing:
        is_told = len(errors) == 1 and f"pip install 'celeriac[{check.missing}]'" in errors[0]
        if code != _CONFIGURATION or not is_told or "Traceback" in output:
            return f"code {code}, which should name celeriac[{check.missing}] in one line:\n{output[-2000:]}"
    elif code != check.code or check.output not in output or "Traceback" in output:
        return f"code {code}, not {check.code} with {check.output!r}:\n{output[-2000:]}"
    return ""


def _in_pipes(command: list[str], folder: Path, environ: dict[str, str]) -> tuple[int, str]:
    process = subprocess.Popen(  # noqa: S603
        command,
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # a Java that it started, too
        process.wait()
        return process.returncode, f"did not finish within {_SECONDS:.0f} s"
    return process.returncode, output


def _in_terminal(command: list[str], folder: Path, environ: dict[str, str]) -> tuple[int, str]:
    """Run a command that wants a terminal, and read what it writes there."""
    ours, theirs = pty.openpty()
    output = b""
    try:
        process = subprocess.Popen(  # noqa: S603
            command, cwd=folder, env=environ, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        ends_at = monotonic() + _SECONDS
        while monotonic() < ends_at:
            if select.select([ours], [], [], 1.0)[0]:
                try:
                    output += os.read(ours, 65536)
                except OSError:  # as Linux says that the other side is closed
                    break
            elif process.poll() is not None:
                break
        else:
            process.kill()
        return process.wait(), output.decode(errors="replace")
    finally:
        os.close(ours)


# -- all of it


def main(extras: list[str]) -> int:
    """Build, and try the extras; return the exit code."""
    if unknown := set(extras) - set(CHECKS):
        sys.stderr.write(f"unknown extra: {', '.join(sorted(unknown))}; use one of {', '.join(CHECKS)}\n")
        return 2
    began = monotonic()
    _say("building")
    shutil.rmtree(DIST, ignore_errors=True)
    wheel, sdist = build(DIST)
    for path in (sdist, wheel):
        _say(f"built {path.relative_to(ROOT)}, {path.stat().st_size / 1000:.0f} kB")
    problems = [*problems_of_sdist(sdist), *problems_of_wheel(wheel)]
    with tempfile.TemporaryDirectory(prefix="celeriac-dist-") as created:
        work = Path(created)
        chosen = extras or list(CHECKS)
        samples = _make_samples(work / "samples", has_tables=not _WITH_TABLES.isdisjoint(chosen))
        for extra in chosen:
            problems += _try(extra, wheel, samples, work)
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    _say(f"{len(problems)} problems, after {monotonic() - began:.0f} s")
    return 1 if problems else 0


def _make_samples(folder: Path, *, has_tables: bool) -> Path:
    """Make an app, a log and its tables, by the environment of development."""
    _say("making a log and its tables" if has_tables else "making a log")
    folder.mkdir()
    (folder / "shop.py").write_text(_APP)
    _run([sys.executable, "-c", _LOG], folder)
    if has_tables:
        _run([sys.executable, "-m", "celeriac", "pipeline", "run", "log", "--warehouse", "tables"], folder)
    return folder


def _run(command: list[str], folder: Path, **variables: str) -> None:
    done = subprocess.run(  # noqa: S603
        command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{shlex.join(command)} failed:\n{done.stdout}{done.stderr}")


def _say(line: str) -> None:
    sys.stdout.write(f"· {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
