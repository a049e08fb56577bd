"""Rows of several recorders in the order in which they were received, with a batch of each in memory."""

from collections.abc import Iterator, Sequence
from math import inf
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Rows", "Stream", "merged"]

#: No clock of ours shows less.
_BEGINNING: Final = -inf


class Rows(NamedTuple):
    """Some rows, and a key for each: they go before all rows of a higher one, whosever they are."""

    batch: pa.RecordBatch
    keys: pa.DoubleArray

    def split(self, count: int) -> "tuple[Rows, Rows]":
        """Return the first so many rows, and the others."""
        front = Rows(self.batch.slice(0, count), self.keys.slice(0, count))
        return front, Rows(self.batch.slice(count), self.keys.slice(count))


class Stream:
    """The rows of one recorder, by their numbers.

    The key of a row is the time at which it was received, or that of a row before it where that is later:
    a clock that was set back changes nothing about the order in which one recorder wrote.
    """

    def __init__(self) -> None:
        self.head: Rows | None = None
        self.is_over = False
        self._reached = _BEGINNING

    @property
    def floor(self) -> float:
        """No row that is still to come has a lower key."""
        return max(self._reached, self.next_at())

    def next_at(self) -> float:
        """Return the least time at which the next row can have been received, as far as is known."""
        raise NotImplementedError

    def next_rows(self) -> tuple[pa.RecordBatch, pa.BooleanArray | None] | None:
        """Return the next rows, and which of them are wanted, or None for all; None if there are no more."""
        raise NotImplementedError

    def advance(self) -> None:
        """Have rows at the head, if there are more of them in what is read next."""
        found = self.next_rows()
        if found is None:
            self.is_over = True
            return
        batch, mask = found
        if not batch.num_rows:
            return
        keys = _keys(batch, self._reached)
        self._reached = keys[-1].as_py()
        if mask is not None:
            batch, keys = batch.filter(mask), keys.filter(mask)
        if batch.num_rows:
            self.head = Rows(batch, keys)

    def take_until(self, key: float, *, is_included: bool) -> Rows | None:
        """Return the rows at the head up to a key, and keep the others there."""
        if self.head is None:
            return None
        compare = pc.less_equal if is_included else pc.less
        count = pc.sum(compare(self.head.keys, key)).as_py()
        taken, left = self.head.split(count)
        self.head = left if left.batch.num_rows else None
        return taken if taken.batch.num_rows else None


def merged(streams: Sequence[Stream]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all streams by their keys; of equal ones those of an earlier stream come first."""
    while waiting := [stream for stream in streams if stream.head is not None or not stream.is_over]:
        if len(waiting) == 1:
            yield from _all_of(waiting[0])
            return
        ready = [stream for stream in waiting if stream.head is not None]
        # Up to the end of what is at hand of the one that is least far; its next rows may be as old as that.
        limit, rank = min(
            ((stream.head.keys[-1].as_py(), waiting.index(stream)) for stream in ready if stream.head),
            default=(inf, 0),
        )
        late = [stream for stream in waiting if stream.head is None and stream.floor <= limit]
        if late:
            # One at a time: what it brings may be enough to go on, and no other need be opened yet.
            min(late, key=lambda stream: stream.floor).advance()
            continue
        parts = [stream.take_until(limit, is_included=place <= rank) for place, stream in enumerate(waiting)]
        yield from _sorted([part for part in parts if part is not None])


def _all_of(stream: Stream) -> Iterator[pa.RecordBatch]:
    while stream.head is not None or not stream.is_over:
        if stream.head is not None:
            batch, stream.head = stream.head.batch, None
            yield batch
        if not stream.is_over:
            stream.advance()


def _sorted(parts: Sequence[Rows]) -> Iterator[pa.RecordBatch]:
    if len(parts) == 1:
        yield parts[0].batch
        return
    keys = pa.chunked_array([part.keys for part in parts]).combine_chunks()
    table = pa.Table.from_batches([part.batch for part in parts])
    # Arrow's sort keeps the order of equals, and so that of each recorder.
    yield from table.take(pc.sort_indices(keys)).combine_chunks().to_batches()


def _keys(batch: pa.RecordBatch, reached: float) -> pa.DoubleArray:
    received = batch.column("received_at")
    known = pc.if_else(pc.fill_null(pc.is_finite(received), False), received, reached)
    return pc.cumulative_max(known, start=reached)
