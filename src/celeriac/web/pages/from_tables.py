"""What the tables know of something that is not in memory any more; they are not asked every second."""

from collections.abc import Callable
from time import monotonic
from typing import Final, Generic, NamedTuple, TypeVar

from celeriac.errors import CeleriacError
from celeriac.history import Warehouse
from celeriac.views.text import visible
from celeriac.web.pages.visit import Visit

__all__ = ["FromTables", "Told"]

_T = TypeVar("_T")

#: For how many seconds what they said is told again: they are written every few minutes.
_KEPT: Final = 30.0


class Told(NamedTuple, Generic[_T]):
    """What the tables said, or why nothing can be told."""

    story: _T | None
    reason: str = ""
    is_in_memory: bool = False


class FromTables(Generic[_T]):
    """Asks the tables for one thing."""

    def __init__(self, visit: Visit, ask: Callable[[Warehouse], _T]) -> None:
        self._visit = visit
        self._ask = ask
        self._known: Told[_T] | None = None
        self._asked_at = 0.0

    def look(self) -> Told[_T]:
        """Return what they know; it may take a second."""
        if not self._visit.is_live:
            # They know what happened since, too.
            return Told(
                None, "No events of it in the hour before this time. Choose another time, or go back to live."
            )
        if self._known is None or monotonic() > self._asked_at + _KEPT:
            try:
                self._known = Told(self._ask(self._visit.desk.board.warehouse))
            except CeleriacError as error:
                self._known = Told(None, f"Not found in the history tables either: {visible(error, 300)}")
            self._asked_at = monotonic()
        return self._known
