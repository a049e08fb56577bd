"""What happens, as it happens: in lines, or on a screen."""

from collections import deque
from contextlib import AbstractContextManager
from time import monotonic
from typing import Final, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from celeriac.cli import output
from celeriac.cli.painter import Painter, painted
from celeriac.cli.viewing import Viewing
from celeriac.model.events import Event, TaskEvent, WorkerHeartbeat
from celeriac.node.state import State
from celeriac.views.cluster import Totals, WorkerRow, totals, worker_rows
from celeriac.views.event import EventLine, event_line
from celeriac.views.format import format_rate
from celeriac.views.text import cells

__all__ = ["Face", "Lines", "Screen"]

#: Seconds between two lines of totals.
_TOTALS_EVERY: Final = 5.0
#: Seconds over which a rate is taken: steady, and yet of now.
_RATE_OVER: Final = 10.0
_MOST_WORKERS: Final = 8
#: Lines of a terminal that has room for what was printed before.
_HIGH_ENOUGH: Final = 30
_STYLES: Final = {"online": "green", "offline": "bold yellow", "left": "dim"}


class Face(Protocol):
    """Shows what a viewing has taken."""

    def show(self, view: Viewing) -> None:
        """Show what is new."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Rate:
    """How much a number grows each second, of late."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def update(self, number: int, *, now: float) -> float:
        """Take the number as it is now, and return how fast it grows."""
        self._seen.append((now, number))
        while self._seen[0][0] < now - _RATE_OVER:
            self._seen.popleft()
        began_at, first = self._seen[0]
        return (number - first) / (now - began_at) if now > began_at else 0.0


class Lines:
    """Prints an event to a line, and now and then what they add up to."""

    def __init__(self) -> None:
        self._painter = Painter()
        self._rate = Rate()
        self._told_at = monotonic()
        self._last: Totals | None = None

    def show(self, view: Viewing) -> None:
        """Print the new events, but no heartbeats."""
        for event in view.taken():
            if not isinstance(event, WorkerHeartbeat):
                self._painter.event(_line(event, view.state))
        now = monotonic()
        self._last = totals(view.state)
        rate = self._rate.update(self._last.events, now=now)
        if now >= self._told_at + _TOTALS_EVERY:
            self._told_at = now
            output.write(_totals_text(self._last, rate))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._last is not None:
            output.write(_totals_text(self._last, None))


class Screen:
    """Fills the terminal: totals, workers, tasks by state, and the last events."""

    def __init__(self, heading: list[str], console: Console | None = None) -> None:
        self._console = console or Console(markup=False, emoji=False, highlight=False)
        self._heading = heading
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self._lines: deque[EventLine] = deque(maxlen=200)
        self._notices: deque[str] = deque(maxlen=3)
        self._rate = Rate()
        self._log: AbstractContextManager[None] = output.log_to(self._notices.append)

    def show(self, view: Viewing) -> None:
        """Draw the screen anew."""
        shown = [event for event in view.taken() if not isinstance(event, WorkerHeartbeat)]
        self._lines.extend(_line(event, view.state) for event in shown[-(self._lines.maxlen or 0) :])
        self._live.update(self.picture(view.state, now=monotonic()), refresh=True)

    def picture(self, state: State, *, now: float) -> RenderableType:
        """Return all that the screen shows."""
        sums = totals(state)
        rate = self._rate.update(sums.events, now=now)
        workers = worker_rows(state)
        heading = self._heading if self._console.height >= _HIGH_ENOUGH else []
        head = [Text(line, no_wrap=True, overflow="ellipsis") for line in heading]
        head += [Text(line, style="bold yellow", no_wrap=True, overflow="ellipsis") for line in self._notices]
        sides = Table.grid(expand=True, padding=(0, 1))
        sides.add_column(ratio=3)
        sides.add_column(ratio=1)
        sides.add_row(_workers_panel(workers, self._console.width), _states_panel(sums))
        height = max(len(workers[:_MOST_WORKERS]) + 1, len(sums.tasks_by_state), 1) + 2
        left = max(1, self._console.height - len(head) - 1 - height - 2)
        events = Text("\n", no_wrap=True, overflow="ellipsis").join(
            painted(line) for line in list(self._lines)[-left:]
        )
        return Group(
            *head,
            Text(_totals_text(sums, rate), style="bold", no_wrap=True, overflow="ellipsis"),
            sides,
            Panel(events, title="events", title_align="left", height=left + 2, padding=(0, 1)),
        )

    def __enter__(self) -> Self:
        self._log.__enter__()
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        self._log.__exit__(None, None, None)


def _line(event: Event, state: State) -> EventLine:
    task = state.tasks.get(event.uuid) if isinstance(event, TaskEvent) else None
    return event_line(event, None if task is None else task.name)


def _totals_text(sums: Totals, rate: float | None) -> str:
    speed = "" if rate is None else f", {format_rate(rate)}"
    states = "".join(f", {count} {state}" for state, count in sums.tasks_by_state.items())
    workers = f"{sums.workers_online} of {sums.workers} workers online"
    return f"{sums.events:,} events{speed}; {workers}; {sums.tasks:,} tasks{states}"


def _workers_panel(rows: list[WorkerRow], width: int) -> Panel:
    table = Table(box=None, pad_edge=False, header_style="dim")
    # On a narrow terminal the last columns, version and pid, give way to the names.
    shown = 7 if width >= 120 else 6 if width >= 100 else 5
    for name in WorkerRow._fields[:shown]:
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for row in rows[:_MOST_WORKERS]:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in cells(row[:shown])))
    more = f" ({len(rows) - _MOST_WORKERS} more)" if len(rows) > _MOST_WORKERS else ""
    return Panel(table, title=f"workers{more}", title_align="left")


def _states_panel(sums: Totals) -> Panel:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(justify="right")
    for state, count in sums.tasks_by_state.items():
        table.add_row(Text(state), str(count))
    return Panel(table, title="tasks", title_align="left")
