"""Progress and summary of a whole run: ``python -m pytest -p tests.kit.summary``, as ``make test`` does.

Thousands of dots hide the one failure among them until the run ends. This plugin prints a line of progress
every few seconds, each failure as it happens, and at the end a list of the failed tests: the test, one line
of reason, and the command that repeats it. It needs no terminal.
"""

import json
import os
import shlex
from collections import Counter
from collections.abc import Generator, Iterable
from pathlib import Path
from time import monotonic
from typing import Final

import pytest

#: Seconds between two lines of progress: about fifty lines for a whole run.
PROGRESS_INTERVAL: Final = 10.0
_REASON_CHARS: Final = 200
#: Of a file below a second, which ``make durations`` does not write down.
_SHORT_SECONDS: Final = 0.3
DURATIONS: Final = Path(__file__).with_name("durations.json")


class RunSummary:
    """Counts finished tests and keeps one line of reason for each failed one.

    Its progress is that of measured seconds: a file is finished when its process begins another.
    """

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter
        self._started_at = self._printed_at = monotonic()
        self._finished = 0
        self._seconds: Counter[str] = Counter()
        self._finished_seconds = 0.0
        self._running: dict[str, str] = {}
        self._begun: dict[str, str] = {}
        self._reasons: dict[str, str] = {}
        self._skipped: dict[str, str] = {}

    def add_expected(self, nodeids: Iterable[str]) -> None:
        """Take over which files there are; every process of a parallel run reports the same ones."""
        measured = json.loads(DURATIONS.read_text())
        for file in {_file_of(nodeid) for nodeid in nodeids}:
            self._seconds[file] = measured.get(file, _SHORT_SECONDS)

    def note_begun(self, nodeid: str) -> None:
        """Take over which test of a file was begun last."""
        self._begun[_file_of(nodeid)] = nodeid

    def add(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """Take over one phase of a test; print a failure at once, and progress now and then."""
        # A process that ends abruptly is reported with the file that it ran.
        nodeid = self._begun.get(report.nodeid, report.nodeid)
        if report.failed and nodeid not in self._reasons:
            self._reasons[nodeid] = format_reason(report)
            self._write(f"FAILED {nodeid}\n       {self._reasons[nodeid]}", red=True)
        if report.skipped and isinstance(report.longrepr, tuple):
            self._skipped[report.nodeid] = report.longrepr[2]
        if report.when == "teardown":
            self._finished += 1
            self._note_running(_file_of(report.nodeid), getattr(report, "worker_id", ""))
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

    def _note_running(self, file: str, process: str) -> None:
        before = self._running.get(process, file)
        self._running[process] = file
        if before != file:
            self._finished_seconds += self._seconds[before]

    def _format_progress(self) -> str:
        minutes, seconds = divmod(int(monotonic() - self._started_at), 60)
        share = 100 * self._finished_seconds / max(self._seconds.total(), 1)
        return f"[{share:3.0f}%] {self._finished} tests, {len(self._reasons)} failed, {minutes}:{seconds:02d}"

    def _write(self, text: str, **markup: bool) -> None:
        self._reporter.ensure_newline()
        self._reporter.write_line(text, **markup)
        self._reporter.flush()


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


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
        self._summary.add_expected(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._summary.add_expected(ids)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._summary.note_begun(nodeid)

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
