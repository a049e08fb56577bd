"""What every arbiter refuses before it asks anybody."""

from typing import Final

from celeriac.errors import CallerError
from celeriac.transport.arbiter import MAX_KEY_CHARS, MAX_NOTE_BYTES

__all__ = ["check_key", "check_note", "check_ttl"]

#: Three decades: a lease that is longer is a mistake in its unit.
_LONGEST: Final = 1e9


def check_key(key: str) -> None:
    """Raise CallerError for what no key can be made of."""
    if not key or len(key) > MAX_KEY_CHARS or not key.isprintable():
        raise CallerError(
            f"invalid election key {key!r:.40} of {len(key):,} characters: use 1 to {MAX_KEY_CHARS} "
            "printable characters"
        )


def check_note(note: bytes | None) -> None:
    """Raise CallerError for a note that is too long."""
    if note is not None and len(note) > MAX_NOTE_BYTES:
        raise CallerError(
            f"the note has {len(note):,} bytes, more than the limit of {MAX_NOTE_BYTES:,}: store it "
            "elsewhere and leave a reference"
        )


def check_ttl(ttl: float) -> None:
    """Raise CallerError for what is no length of time."""
    if not 0 < ttl <= _LONGEST:
        raise CallerError(f"invalid lease of {ttl} seconds: give a number of seconds above 0")
