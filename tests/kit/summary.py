"""Progress and summary of a whole run: ``python -m pytest -p tests.kit.summary``, as ``make test`` does.

Thousands of dots hide the one failure among them until the run ends. This plugin prints a line of progress
every few seconds, each failure as it happens, and at the end a list of the failed tests: the test, one line
of reason, and the command that repeats it. It needs no terminal.
"""

import os
import shlex
from collections.abc import Generator
from time import monotonic
from typing import Final

import pytest

#: Seconds between two lines of progress: about fifty lines for a whole run.
PROGRESS_INTERVAL: Final = 10.0
_REASON_CHARS: Final = 200


class RunSummary:
    """Counts finished tests and keeps one line of reason for each failed one."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter
        self._started_at = self._printed_at = monotonic()
        self._total = self._finished = 0
        self._reasons: dict[str, str] = {}
        self._skipped: dict[str, str] = {}

    def add_total(self, count: int) -> None:
        """Take over how many tests there are; every process of a parallel run reports the same number."""
        self._total = max(self._total, count)

    def add(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """Take over one phase of a test; print a failure at once, and progress now and then."""
        if report.failed and report.nodeid not in self._reasons:
            self._reasons[report.nodeid] = format_reason(report)
            self._write(f"FAILED {report.nodeid}\n       {self._reasons[report.nodeid]}", red=True)
        if report.skipped and isinstance(report.longrepr, tuple):
            self._skipped[report.nodeid] = report.longrepr[2]
        if report.when == "teardown":
            self._finished += 1
            if monotonic() - self._printed_at >= PROGRESS_INTERVAL:
                self._printed_at = monotonic()
                self._write(self._format_progress())

    def print_lists(self) -> None:
        """List the skipped tests, and the failed ones with the commands that repeat them."""
        for nodeid, reason in self._skipped.items():
            self._write(f"skipped {nodeid}: {reason.removeprefix('Skipped: ')}")
        if not self._reasons:
            return
        self._reporter.section("failed tests", sep="=", red=True, bold=True)
        for nodeid, reason in self._reasons.items():
            self._write(f"{nodeid}\n    {reason}\n    repeat: {repeat_command(nodeid)}")

    def _format_progress(self) -> str:
        minutes, seconds = divmod(int(monotonic() - self._started_at), 60)
        share = 100 * self._finished // max(self._total, 1)
        return (
            f"[{share:3d}%] {self._finished} of {self._total} tests,"
            f" {len(self._reasons)} failed, {minutes}:{seconds:02d}"
        )

    def _write(self, text: str, **markup: bool) -> None:
        self._reporter.ensure_newline()
        self._reporter.write_line(text, **markup)
        self._reporter.flush()


def format_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return why a test failed, in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longreprtext
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # A traceback that is only text ends with its reason; pytest's own begins with it.
    reason = (lines[0] if crash is not None else lines[-1]) if lines else "no reason given"
    phase = f"{report.when}: " if report.when in ("setup", "teardown") else ""
    return f"{phase}{reason}"[:_REASON_CHARS]


def repeat_command(nodeid: str) -> str:
    """Return the command that runs one test again, with the same effort."""
    profile = os.environ.get("HYPOTHESIS_PROFILE")
    prefix = f"HYPOTHESIS_PROFILE={profile} " if profile else ""
    return f"{prefix}.venv/bin/pytest {shlex.quote(nodeid)}"


def pytest_configure(config: pytest.Config) -> None:
    """Print no lists of pytest's own, which have no commands."""
    config.option.reportchars = ""


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Begin to count, in the process that prints."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(_Listener(RunSummary(reporter)), "celeriac-summary")


class _Listener:
    """The hooks of the process that prints."""

    def __init__(self, summary: RunSummary) -> None:
        self._summary = summary

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._summary.add_total(len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._summary.add_total(len(ids))

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(
        self, report: pytest.CollectReport | pytest.TestReport
    ) -> tuple[str, str, str] | None:
        """Count as pytest does, and print no letter."""
        if report.failed:
            return ("failed" if report.when == "call" else "error"), "", ""
        if report.when == "call" or report.skipped:
            return report.outcome, "", ""
        return None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._summary.add(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._summary.add(report)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self) -> Generator[None]:
        """Print the lists last, below everything that other plugins print."""
        yield
        self._summary.print_lists()
