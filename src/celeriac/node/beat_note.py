"""What the leader of a beat leaves for those that follow: the last tick of each entry."""

import json
import logging
from collections.abc import Mapping
from math import isfinite

from celeriac.model.events import MAX_TIMESTAMP
from celeriac.transport.arbiter import MAX_NOTE_BYTES

__all__ = ["read_note", "spell_note"]

logger = logging.getLogger(__name__)


def spell_note(ticks: Mapping[str, float]) -> bytes:
    """Return the last tick of each entry as JSON; the last of the entries are left out if it is too long."""
    names = list(ticks)
    while len(note := json.dumps({name: ticks[name] for name in names}).encode()) > MAX_NOTE_BYTES:
        # A part at a time: the more is too much, the quicker it fits.
        del names[-max(1, len(names) // 10) :]
    return note


def read_note(note: bytes) -> dict[str, float]:
    """Return the last tick of each entry; what cannot be read is told, and counts as never noted."""
    if not note:
        return {}
    try:
        found = json.loads(note)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        logger.warning("beat: cannot read the saved schedule state; every entry starts with its next tick")
        return {}
    ticks = {name: float(at) for name, at in found.items() if _is_moment(at)}
    if len(ticks) < len(found):
        logger.warning(
            "beat: the saved schedule state is incomplete; some entries start with their next tick"
        )
    return ticks


def _is_moment(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and isfinite(value) and 0 <= value <= MAX_TIMESTAMP  # type: ignore[operator, arg-type]
