"""A question that is answered by yes or no, and the page that says which keys there are."""

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
  up, down        choose a row; at the end the next page comes
  page up, down   turn pages
  home            back to what was heard of last
  enter           open a task; on a worker, show its tasks
  tab             go between workers and tasks, or to relatives
  /               search
  w               the workflow of the task, as a tree
  p               the parent of the task that is open
  r               revoke the task, if that is allowed
  space           pause, and go on
  escape          back
  q, ctrl-c       quit

Search: tasks that fit every word
  some text       part of id, name, arguments, result, exception
  state:FAILURE   the beginning will do; several parted by commas
  name:shop.*     worker:w1@*     globs
  root:ID         the tasks of a workflow
  since:1h        until:2026-11-14T10:00Z
  "two words"     quotes hold blanks together

An asterisk in a workflow marks the line of tasks that ended last.
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
