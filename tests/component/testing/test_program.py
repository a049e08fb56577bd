"""Commands of tests end with the tests, also if those are killed."""

import os
import subprocess
import sys
from pathlib import Path

from celeriac.programs.process import wait_until

_ROOT = Path(__file__).parents[3]
#: Starts a command that would run for minutes, says its process id, and waits to be killed.
_TESTS = """
from tests.program import Program
program = Program("--version", before="import time; time.sleep(600)")
print(program.pid, flush=True)
program.wait(600)
"""


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_command_ends_when_its_tests_are_killed() -> None:
    with subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-c", _TESTS], cwd=_ROOT, stdout=subprocess.PIPE, text=True
    ) as tests:
        assert tests.stdout is not None
        pid = int(tests.stdout.readline())

        tests.kill()

    assert wait_until(lambda: not is_running(pid), patience=60)
