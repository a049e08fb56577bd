"""What the screens have in common: they look anew when told to, away from the thread that draws."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from time import monotonic
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.screen import Screen

from celeriac.tui.sight import Sight

__all__ = ["Lookout"]


class Lookout(Screen[None]):
    """A screen that shows what a sight has.

    A look can take a while among a million tasks, so it is taken in another thread, and only one at a time.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "Back")]

    def __init__(self, sight: Sight) -> None:
        super().__init__()
        self.sight = sight
        self._is_looking = False
        #: Whether something else is asked for than when the look was begun.
        self._is_due = False
        #: Not before then is looked again by itself: as long as a look takes, others have the processor.
        self._rests_until = 0.0

    @abstractmethod
    def look(self) -> Callable[[], Any]:
        """Return a function that any thread may call, which returns what :meth:`present` shows."""

    @abstractmethod
    def present(self, seen: Any) -> None:
        """Show what a look has seen."""

    def on_screen_resume(self) -> None:
        """Look for the first time, or again, as time has passed."""
        self.renew()

    def tick(self) -> None:
        """Look again, if the last look is over and done with."""
        if not self._is_looking and monotonic() >= self._rests_until:
            self.renew()

    def renew(self) -> None:
        """Look again now, or else as soon as the look is over that is under way."""
        self._is_due = True
        if not self._is_looking and self.is_mounted:
            self._is_looking = True
            # Not a coroutine: nobody would await it if the app ended before the worker started.
            self.run_worker(self._keep_looking)  # type: ignore[arg-type]  # Textual's types cannot be inferred

    async def _keep_looking(self) -> None:
        try:
            while self._is_due:
                self._is_due = False
                began_at = monotonic()
                seen = await asyncio.to_thread(self.look())
                self._rests_until = 2 * monotonic() - began_at
                if not self._is_due:
                    self.present(seen)
        finally:
            self._is_looking = False

    def action_back(self) -> None:
        """Go to the screen before."""
        self.dismiss()
