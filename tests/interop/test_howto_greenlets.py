"""The programs of the how-to for greenlets, each in a process of its own, beside a real Redis."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.repository import ROOT, blocks

PAGE = ROOT / "docs" / "howto" / "wait-in-gevent.md"
PROGRAMS = ["gevent_results.py", "eventlet_results.py"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_program_prints_what_the_page_shows(program: str, redis_url: str) -> None:
    file: Path = ROOT / "examples" / program
    shown = blocks(PAGE.read_text())
    place = [block.code for block in shown].index(file.read_text())

    done = subprocess.run(  # noqa: S603
        [sys.executable, str(file)],
        env=dict(os.environ) | {"REDIS_URL": redis_url},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout == shown[place + 1].code
