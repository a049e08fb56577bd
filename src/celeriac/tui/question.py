"""A question with the answers yes and no, and the page of keys."""

from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

__all__ = ["HelpScreen", "Question"]

_HELP: Final = """\
Keys
  up, down        select a row; the next page follows at the end
  page up, down   turn pages
  home            first page, the latest tasks
  enter           open a task; on a worker, show its tasks
  tab             switch between workers and tasks, or to related tasks
  /               search
  w               the workflow of the task, as a tree
  p               the parent of the open task
  r               revoke the task, with --allow-control
  space           pause, continue
  escape          back
  q, ctrl-c       quit

Search: tasks that match every word
  some text       part of id, name, arguments, result, exception
  state:FAILURE   or the first letters; several separated by commas
  name:shop.*     worker:w1@*     globs
  root:ID         the tasks of a workflow
  since:1h        until:2026-11-14T10:00Z
  "two words"     quotes keep spaces

An asterisk in a workflow marks the critical path.
"""


class Question(ModalScreen[bool]):
    """Asks; whatever is not a yes is a no."""

    DEFAULT_CSS = """
    Question { align: center middle; }
    Question Static {
        width: 70; max-width: 90%; height: auto; padding: 1 2; border: heavy $warning; background: $surface;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape", "answer(False)", "No"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """Yield the question."""
        yield Static(Text(f"{self._question}\n\ny  yes        n  no"), markup=False)

    def action_answer(self, is_yes: bool) -> None:
        """Take the answer."""
        self.dismiss(is_yes)


class HelpScreen(ModalScreen[None]):
    """Says which keys there are."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen VerticalScroll {
        width: 76; max-width: 95%; height: auto; max-height: 95%;
        padding: 0 2; border: round $primary; background: $surface;
    }
    HelpScreen Static { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,enter", "dismiss", "Back")]

    def compose(self) -> ComposeResult:
        """Yield the page."""
        with VerticalScroll():
            yield Static(Text(_HELP), markup=False)
