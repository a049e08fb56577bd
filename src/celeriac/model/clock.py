"""What counts as a Lamport clock value."""

__all__ = ["MAX_CLOCK", "NEW_INCARNATION", "NO_CLOCK", "clock_value"]

#: Above 2^53 a JSON reader that knows only doubles loses the difference between
#: a value and the next one, and such a clock stops.
MAX_CLOCK = 2**53 - 1

#: Stands for an absent or invalid clock. Every sender counts before it stamps,
#: so no real stamp is 0, and 0 sorts before them all.
NO_CLOCK = 0

#: A clock that falls by more than this while time goes on belongs to a process
#: that was restarted under the same host and pid, as containers are.
NEW_INCARNATION = 1000


def clock_value(raw: object) -> int | None:
    """Return ``raw`` as a clock value, or None if it is none.

    An integral float is its integer. Booleans, fractions, infinities, texts,
    negatives and values past :data:`MAX_CLOCK` are not clocks.
    """
    if isinstance(raw, float) and raw.is_integer():
        raw = int(raw)
    if isinstance(raw, bool) or not isinstance(raw, int):
        return None
    return raw if 0 <= raw <= MAX_CLOCK else None
