"""Commands started with SIGINT ignored, as scripts start them in the background: SIGTERM alone stops them."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from tests.interop.test_cli_elections import SHOP
from tests.program import Program, own_environment

PATIENCE = 60.0
#: Each command, with a text that it prints once it runs.
COMMANDS = {
    "up": (("up", "--port", "0", "--pipeline-every", "0"), r"^end +with kill {pid}$"),
    "worker": (("worker", "-A", "shop:app", "--concurrency", "1"), r" ready\.$"),
    "record": (("record", "log"), r"; stop with kill {pid}$"),
    "web": (("web", "--port", "0"), r"; stop with kill {pid}$"),
    "beat": (("beat",), r"process {pid}$"),
}
IGNORE_SIGINT = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    """A Redis that is trusted with elections."""
    with RedisServer({"appendonly": "yes", "appendfsync": "always"}) as server:
        yield server


def has(pid: int, kind: str, number: signal.Signals) -> bool:
    """Tell whether a process catches (``SigCgt``) or ignores (``SigIgn``) a signal."""
    found = re.search(rf"^{kind}:\s+(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return bool(int(found[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_started_with_sigint_ignored_keeps_ignoring_it_and_ends_on_sigterm(
    name: str, redis: RedisServer, tmp_path: Path
) -> None:
    arguments, pattern = COMMANDS[name]
    environment = own_environment(
        CELERIAC_BROKER_URL=redis.url,
        CELERIAC_BEAT_SCHEDULE='{"report": {"task": "shop.price", "schedule": 3600}}',
    )
    (tmp_path / SHOP.name).symlink_to(SHOP)
    path = tmp_path / "output"
    with (
        path.open("wb") as output,
        Program(
            *arguments, cwd=tmp_path, env=environment, stdout=output, stderr=output, before=IGNORE_SIGINT
        ) as program,
    ):
        ready = re.compile(pattern.format(pid=program.pid), re.MULTILINE)

        def is_ready() -> bool:
            assert program.poll() is None, path.read_text()
            # The handler of SIGTERM is installed last.
            return has(program.pid, "SigCgt", signal.SIGTERM) and ready.search(path.read_text()) is not None

        assert wait_until(is_ready, patience=PATIENCE), path.read_text()
        children = psutil.Process(program.pid).children(recursive=True)
        is_ignored = has(program.pid, "SigIgn", signal.SIGINT)
        program.send_signal(signal.SIGINT)
        program.terminate()
        code = program.wait()

    assert (is_ignored, code) == (True, 0), path.read_text()
    assert not [child for child in children if child.is_running()]
    assert bool(children) == (name in ("up", "worker"))
    assert "Ctrl-C" not in path.read_text()
