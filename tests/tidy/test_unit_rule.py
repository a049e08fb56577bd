"""``tests/unit`` uses no disk, no socket, no other process, and never waits on the wall clock."""

import ast
from collections.abc import Iterator
from typing import Final

import pytest

from tests.tidy.repository import ROOT, named

UNIT = ROOT / "tests" / "unit"
_DISK: Final = "touches the disk"
_SOCKET: Final = "opens a socket"
_PROCESS: Final = "starts or signals a process"
_WAIT: Final = "waits on the wall clock"
#: Fixtures and methods that no unit test may use, wherever they come from.
NAMES: Final = {
    **dict.fromkeys(("tmp_path", "tmp_path_factory", "tmpdir"), _DISK),
    **dict.fromkeys(("read_text", "read_bytes", "write_text", "write_bytes"), _DISK),
    **dict.fromkeys(("mkdir", "iterdir", "unlink", "rmtree"), _DISK),
    **dict.fromkeys(("socketpair", "create_connection", "urlopen"), _SOCKET),
    **dict.fromkeys(("Popen", "fork", "kill", "pthread_kill"), _PROCESS),
    **dict.fromkeys(("redis_url", "amqp_url", "own_redis", "hurt_rabbit", "celery_worker"), _PROCESS),
    **dict.fromkeys(("wait_until", "come_true"), _WAIT),
}
#: Modules, and names of modules, that no unit test may import.
IMPORTS: Final = {
    **dict.fromkeys(("tempfile", "shutil"), _DISK),
    **dict.fromkeys(("socket", "httpx"), _SOCKET),
    **dict.fromkeys(
        ("subprocess", "multiprocessing", "tests.program", "tests.results.run_program"), _PROCESS
    ),
    **dict.fromkeys(("time.sleep", "tests.results.settled", "tests.arbiter_contract.granted"), _WAIT),
}
#: Functions that no unit test may call.
CALLS: Final = {
    **dict.fromkeys(("open", "os.open", "os.pipe", "os.read", "os.write"), _DISK),
    "time.sleep": _WAIT,
}


def breaches(source: str) -> Iterator[str]:
    """Yield what in a module breaks the rule, each with its line and the reason."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) if name in NAMES:
                yield f"{node.lineno}: {name} {NAMES[name]}"
            case ast.Import(names=aliases):
                yield from _imported(node.lineno, *(alias.name for alias in aliases))
            case ast.ImportFrom(module=str(module), names=aliases):
                yield from _imported(node.lineno, *(f"{module}.{alias.name}" for alias in aliases))
            case ast.Call(func=called) if (name := ast.unparse(called)) in CALLS:
                yield f"{node.lineno}: {name} {CALLS[name]}"
            case ast.Call(func=ast.Attribute(attr="sleep"), args=[ast.Constant(value=seconds)]) if seconds:
                yield f"{node.lineno}: sleep {_WAIT}"


def _imported(line: int, *names: str) -> Iterator[str]:
    for name in names:
        for banned, reason in IMPORTS.items():
            if name == banned or name.startswith(f"{banned}."):
                yield f"{line}: {banned} {reason}"
        last = name.rpartition(".")[2]
        if last in NAMES:
            yield f"{line}: {last} {NAMES[last]}"


def test_unit_tests_do_no_io_and_do_not_wait() -> None:
    modules = sorted(UNIT.rglob("*.py"))

    found = [f"{named(path)}:{breach}" for path in modules for breach in breaches(path.read_text())]

    assert modules
    assert found == [], "move the file, or these tests of it, to tests/component"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def test_a(tmp_path: object) -> None: ...", _DISK),
        ("open('x')", _DISK),
        ("path.write_text('x')", _DISK),
        ("import os\nos.pipe()", _DISK),
        ("from tempfile import mkdtemp", _DISK),
        ("import socket", _SOCKET),
        ("from socket import create_server", _SOCKET),
        ("def test_a(redis_url: str) -> None: ...", _PROCESS),
        ("import subprocess", _PROCESS),
        ("from tests.results import meta, run_program", _PROCESS),
        ("os.kill(1, 2)", _PROCESS),
        ("from celeriac.programs.process import wait_until", _WAIT),
        ("from time import monotonic, sleep", _WAIT),
        ("import time\ntime.sleep(seconds)", _WAIT),
        ("await asyncio.sleep(0.1)", _WAIT),
        ("from tests.results import settled", _WAIT),
    ],
)
def test_a_breach_of_the_rule_is_found(source: str, reason: str) -> None:
    found = list(breaches(source))

    assert found
    assert all(breach.endswith(reason) for breach in found)


@pytest.mark.parametrize(
    "source",
    [
        "from celeriac.web.pages.socket import Budget",
        "await asyncio.sleep(0)",
        "link.open()",
        "settled = link.settled",
        "thread.join(120)",
    ],
)
def test_what_keeps_the_rule_is_no_breach(source: str) -> None:
    assert list(breaches(source)) == []
