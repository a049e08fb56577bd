"""Rows with a cursor, of which only those are made that are seen."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget

__all__ = ["Column", "Listing"]


class Column(NamedTuple):
    """A column: of a width of its own, or else with a share of what the others leave."""

    head: str
    width: int | None = None
    share: int = 1
    #: How wide the listing has to be for the column to be there.
    least: int = 0


class Listing(Widget, can_focus=True):
    """Shows rows of any kind; ``cells`` says what the columns of a row show, and ``key`` which row it is.

    The cursor stays with its row while that is there. At either end it asks for more (:class:`Beyond`), which
    who has more rows than it gave can answer.
    """

    DEFAULT_CSS = """
    Listing { height: 1fr; }
    Listing:focus { background: $boost; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "first", "First", show=False),
        Binding("end,G", "last", "Last", show=False),
        Binding("enter", "open", "Open"),
    ]
    _STYLES: ClassVar[dict[bool, str]] = {True: "reverse", False: "underline"}

    class Opened(Message):
        """Somebody chose a row."""

        def __init__(self, listing: "Listing", row: Any) -> None:
            super().__init__()
            self.listing = listing
            self.row = row

        @property
        def control(self) -> "Listing":
            """The listing that it is a row of."""
            return self.listing

    class Beyond(Message):
        """Somebody wants rows after the last (1), before the first (-1), or the very first (0)."""

        def __init__(self, listing: "Listing", step: int) -> None:
            super().__init__()
            self.listing = listing
            self.step = step

        @property
        def control(self) -> "Listing":
            """The listing that has no more."""
            return self.listing

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        cells: Callable[[Any], Sequence[Text]],
        key: Callable[[Any], str],
        empty: str = "",
        is_part: bool = False,
        id: str | None = None,  # noqa: A002  (Textual's name)
    ) -> None:
        super().__init__(id=id)
        #: What is shown where there are no rows.
        self.empty = empty
        #: Whether the rows are a page of a longer list, so that keys that turn pages ask for another.
        self._is_part = is_part
        self._heads: Final = tuple(columns)
        self._cells = cells
        self._key_of = key
        self._rows: Sequence[Any] = ()
        self._cursor = 0
        #: The row that the cursor stays with; none while nobody has chosen one.
        self._kept: str | None = None
        #: The first row that is seen.
        self._top = 0

    # -- what it shows

    def renew(self, rows: Sequence[Any]) -> None:
        """Show these rows from now on."""
        self._rows = rows
        if self._kept is not None:
            keys = (number for number, row in enumerate(rows) if self._key_of(row) == self._kept)
            self._cursor = next(keys, self._cursor)
        self._cursor = max(0, min(self._cursor, len(rows) - 1))
        self.refresh()

    @property
    def rows(self) -> Sequence[Any]:
        """The rows that it was given."""
        return self._rows

    @property
    def chosen(self) -> Any:
        """The row under the cursor; None if there are none."""
        return self._rows[self._cursor] if self._rows else None

    @property
    def room(self) -> int:
        """How many rows are seen at once."""
        return max(1, self.size.height - 1)

    def choose(self, number: int) -> None:
        """Put the cursor on a row."""
        self._cursor = max(0, min(number, len(self._rows) - 1))
        self._kept = self._key_of(self.chosen) if self._rows else None
        self.refresh()

    def let_go(self) -> None:
        """Put the cursor on the first row, whichever that will be."""
        self._cursor, self._kept = 0, None
        self.refresh()

    def render(self) -> RenderableType:
        """Return the heads, and the rows that there is room for."""
        if not self._rows:
            return Text(self.empty, style="dim")
        heads = [(place, head) for place, head in enumerate(self._heads) if self.size.width >= head.least]
        table = Table(box=None, expand=True, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        for _, head in heads:
            share = head.share if head.width is None else None
            table.add_column(head.head, width=head.width, ratio=share, no_wrap=True, overflow="ellipsis")
        for number, row in self._seen():
            cells = self._cells(row)
            style = self._STYLES[self.has_focus] if number == self._cursor else ""
            table.add_row(*(cells[place] for place, _ in heads), style=style)
        return table

    def _seen(self) -> list[tuple[int, Any]]:
        last_top = max(0, len(self._rows) - self.room)
        self._top = min(max(self._top, self._cursor - self.room + 1), self._cursor, last_top)
        return list(enumerate(self._rows[self._top : self._top + self.room], self._top))

    # -- what keys do

    def action_move(self, step: int) -> None:
        """Move the cursor; beyond the ends, ask for more."""
        wanted = self._cursor + step
        if 0 <= wanted < len(self._rows):
            self.choose(wanted)
        else:
            self.post_message(self.Beyond(self, step))

    def action_page(self, step: int) -> None:
        """Move the cursor by what is seen at once, or ask for another page."""
        end = 0 if step < 0 else len(self._rows) - 1
        if self._is_part or self._cursor == end:
            self.post_message(self.Beyond(self, step))
        else:
            self.choose(self._cursor + step * self.room)

    def action_first(self) -> None:
        """Go to the first row of all."""
        self.let_go()
        self.post_message(self.Beyond(self, 0))

    def action_last(self) -> None:
        """Go to the last row."""
        self.choose(len(self._rows) - 1)

    def action_open(self) -> None:
        """Choose the row under the cursor."""
        if self._rows:
            self.post_message(self.Opened(self, self.chosen))
