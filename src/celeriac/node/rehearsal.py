"""A log that is not written: it shows what redaction would do to the events of a cluster."""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from celeriac.errors import ImproperlyConfigured
from celeriac.model.events import Event

if TYPE_CHECKING:
    from celeriac.core.redaction import Redactor

__all__ = ["Masked", "Rehearsal"]

#: What the settings have done to a task's fields as a whole, as the redactor counts it.
_POLICIES: Final = ("hashed", "dropped")


class Masked(NamedTuple):
    """What redaction would change in one field, and by which rule."""

    field: str
    rule: str
    values: int
    #: One of them, as the log would have it.
    example: str


class _Nothing(NamedTuple):
    recorder: str = ""
    last_received_at: float | None = None
    damage: tuple[str, ...] = ()


class Rehearsal:
    """Takes what a log would, and keeps nothing but counts and one example of each."""

    sealed = 0
    pending_seals = 0

    def __init__(self, redactor: "Redactor") -> None:
        #: Events that were looked at.
        self.recorded = 0
        self._columns = _load("celeriac.store.columns")
        self._redact = _load("celeriac.store.redacting").BatchRedactor(redactor)
        self._masked: dict[tuple[str, str], tuple[int, str]] = {}

    def masked(self) -> list[Masked]:
        """Return what would be masked, by field and rule, and what whole tasks' fields would become."""
        by_rule = [Masked(*key, *told) for key, told in self._masked.items()]
        whole = [
            Masked("", name, self._redact.masked[name], "") for name in _POLICIES if self._redact.masked[name]
        ]
        return sorted(by_rule) + whole

    def open(self) -> _Nothing:
        """Open nothing."""
        return _Nothing()

    def append(self, events: Sequence[Event]) -> None:
        """Redact events, and note what changes."""
        batch = self._columns.to_batch(events, recorder="dry-run", first=self.recorded + 1)
        for field, rule, text in self._redact.explain(batch):
            count, example = self._masked.get((field, rule), (0, text))
            self._masked[field, rule] = (count + 1, example)
        self._redact(batch)
        self.recorded += len(events)

    def sync(self) -> None:
        """Write nothing."""

    def take_lost(self) -> None:
        """Lose nothing."""

    def tick(self) -> None:
        """Seal nothing."""

    def close(self) -> None:
        """Close nothing."""


def _load(module: str) -> Any:
    # Only who has to do with a log loads Arrow.
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ImproperlyConfigured(
            f"the history needs {error.name}, which is not installed: pip install 'celeriac[history]'"
        ) from error
