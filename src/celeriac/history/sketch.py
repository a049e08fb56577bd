"""Quantiles from the KLL sketches that Spark makes: any number of them are merged into one."""

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from celeriac.errors import DiskError, ImproperlyConfigured
from celeriac.model.answer import Spread

__all__ = ["spread"]

_RANKS: Final = (0.5, 0.95, 0.99)
#: As Spark makes them, unless it is told otherwise.
_K: Final = 200


@cache
def _kind() -> Any:
    try:
        from datasketches import kll_doubles_sketch  # noqa: PLC0415  (needs the extra, and is slow to load)
    except ImportError as error:
        raise ImproperlyConfigured(
            f"quantiles need {error.name}, which is not installed: pip install 'celeriac[history]'"
        ) from error
    return kll_doubles_sketch


def spread(count: int, total: float | None, largest: float | None, sketches: Iterable[bytes]) -> Spread:
    """Return a distribution of so many values, from their sum, the largest of them, and their sketches."""
    if not count:
        return Spread()
    kind = _kind()
    merged = kind(_K)
    try:
        for each in sketches:
            merged.merge(kind.deserialize(each))
    except (ValueError, RuntimeError, IndexError, MemoryError) as error:
        raise DiskError(
            f"cannot read a sketch of the roll-ups: {error}; run celeriac pipeline backfill for its time "
            "range"
        ) from None
    mean = None if total is None else total / count
    if merged.is_empty():
        return Spread(count, mean, max=largest)
    p50, p95, p99 = (float(each) for each in merged.get_quantiles(list(_RANKS), True))
    return Spread(count, mean, p50, p95, p99, largest)
