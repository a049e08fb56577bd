"""Prometheus itself, on what it is to read: ``scripts/setup-tests`` sees to it that promtool is there."""

import subprocess
from shutil import which

from tests.tidy.repository import ROOT

__all__ = ["promtool"]


def promtool(*arguments: str, told: str = "") -> tuple[int, str]:
    """Return how it ended, and what it complained of."""
    program = which("promtool") or str(ROOT / ".peers" / "promtool")
    done = subprocess.run(  # noqa: S603
        [program, *arguments], input=told, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr
