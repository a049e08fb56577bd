"""How far long work is, for whoever waits for it at a terminal."""

import sys
from time import monotonic
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

__all__ = ["Progress"]

#: Work that is done sooner shows nothing.
_SHOW_AFTER: Final = 0.5
_SHOW_EVERY: Final = 0.1


class Progress:
    """A bar on standard error if that is a terminal, and nothing otherwise; gone when the work has ended."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._is_shown = sys.stderr.isatty()
        self._bar: Bar | None = None
        self._row: TaskID | None = None
        self._show_at = monotonic() + _SHOW_AFTER

    def __call__(self, done: int, total: int) -> None:
        """Take how much is done, and of how much."""
        if self._is_shown and monotonic() >= self._show_at:
            self._show(done, total)
            self._show_at = monotonic() + _SHOW_EVERY

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _show(self, done: int, total: int) -> None:
        from rich.console import Console  # noqa: PLC0415  (slow to load)
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415
        from rich.progress import TimeRemainingColumn as Remaining  # noqa: PLC0415

        if self._bar is None or self._row is None:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Remaining())
            self._bar = Progress(
                *columns, console=Console(stderr=True), transient=True, auto_refresh=False, expand=False
            )
            self._row = self._bar.add_task(self._what, total=total)
            self._bar.start()
        # A recorder that goes on meanwhile makes it more than was expected.
        self._bar.update(self._row, completed=done, total=max(done, total), refresh=True)
