"""Sends the events of a worker, whatever comes of it: no task, and no heartbeat, hangs on an event."""

import logging
from collections.abc import Mapping
from math import inf
from time import monotonic
from typing import Any, Final

from celeriac.config import Limits
from celeriac.errors import CeleriacError
from celeriac.node.dispatcher import EventDispatcher
from celeriac.wire.text import CUT_MARK, MAX_INTEGER, clean_text

__all__ = ["Teller"]

logger = logging.getLogger(__name__)

#: What is left of a field of an event that cannot be sent as it is, and of how many of them: an event of
#: these fits, even if JSON takes six bytes for each character.
_FIELD: Final = Limits(text_chars=1000)
_MAX_FIELDS: Final = 20
#: Of a traceback the end says most.
_TRACEBACK_CHARS: Final = 10_000
#: Between two lines of log for one kind of trouble.
_LOG_INTERVAL: Final = 60.0


class Teller:
    """Sends events from any thread, and never raises."""

    def __init__(self, dispatcher: EventDispatcher) -> None:
        self._dispatcher = dispatcher
        self._logged_at: dict[type[Exception], float] = {}

    def tell(self, kind: str, /, **fields: Any) -> None:
        """Send an event; one that cannot be sent as it is, in a cut form."""
        try:
            self._dispatcher.send(kind, **fields)
        except ValueError:  # it is too long, or holds what JSON cannot
            self._tell_cut(kind, fields)
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody only wanted to tell something
            self._log(kind, error)

    def flush(self) -> None:
        """Send what is gathered."""
        try:
            self._dispatcher.flush()
        except CeleriacError as error:
            self._log("events", error)

    def _tell_cut(self, kind: str, fields: Mapping[str, Any]) -> None:
        names = list(fields)[:_MAX_FIELDS]
        try:
            cut: dict[str, Any] = {clean_text(name, _FIELD): _cut(name, fields[name]) for name in names}
            self._dispatcher.send(kind, **cut)
        except Exception as error:  # noqa: BLE001 - what a task wants to tell may be anything
            self._log(kind, error)

    def _log(self, kind: str, error: Exception) -> None:
        now = monotonic()
        if now - self._logged_at.get(type(error), -inf) >= _LOG_INTERVAL:
            self._logged_at[type(error)] = now
            logger.warning("events: cannot send %.100r: %s", kind, error)


def _cut(name: str, value: object) -> object:
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) < MAX_INTEGER else CUT_MARK
    text = value if isinstance(value, str) else repr(value)
    if name == "traceback" and len(text) > _TRACEBACK_CHARS:
        text = CUT_MARK + "\n" + text[-_TRACEBACK_CHARS:]
        return clean_text(text, Limits())
    return clean_text(text, _FIELD)
