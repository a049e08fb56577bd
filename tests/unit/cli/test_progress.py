"""Long work shows how far it is, to whoever waits at a terminal."""

import sys
from contextlib import suppress
from io import StringIO

import pytest

from celeriac.cli import progress as module
from celeriac.cli.progress import Progress


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have everything take long enough to be shown."""
    monkeypatch.setattr(module, "_SHOW_AFTER", 0.0)
    monkeypatch.setattr(module, "_SHOW_EVERY", 0.0)


@pytest.mark.usefixtures("no_patience")
def test_a_terminal_shows_how_much_is_done_and_nothing_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")

    with suppress(KeyboardInterrupt), Progress("reading") as progress:
        progress(5, 20)
        progress(25, 20)
        raise KeyboardInterrupt

    shown = terminal.getvalue()
    assert "reading" in shown
    assert " 5/20" in shown
    assert "25/25" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    assert shown.endswith("\x1b[2K")


@pytest.mark.usefixtures("no_patience")
def test_what_is_no_terminal_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    written = StringIO()
    monkeypatch.setattr(sys, "stderr", written)

    with Progress("reading") as progress:
        progress(5, 20)

    assert written.getvalue() == ""


def test_what_is_done_soon_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(module, "_SHOW_AFTER", 3600.0)
    monkeypatch.setattr(sys, "stderr", terminal)

    with Progress("reading") as progress:
        progress(20, 20)

    assert terminal.getvalue() == ""
