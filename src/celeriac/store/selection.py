"""Which rows of a log are asked for: decided on whole columns, before an event is built."""

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from fnmatch import translate
from math import inf
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from celeriac.errors import CallerError

__all__ = ["Selection", "moments"]

#: Tasks whose names are remembered, so that what became of them is found: 10 MB.
_MAX_HEARD: Final = 100_000


class Selection:
    """What ``since``, ``until``, ``types``, ``task`` and ``worker`` select; nothing of them selects all.

    A task is given by its id, or by a glob of names. Only what a client or worker says when it sends or
    receives a task has the name, so the rest of a task's rows is known by its id from there on: rows have
    to be given in order, all of them.
    """

    def __init__(
        self,
        *,
        since: float | None = None,
        until: float | None = None,
        types: Sequence[str] = (),
        task: str | None = None,
        worker: str | None = None,
    ) -> None:
        if since is not None and until is not None and since > until:
            raise CallerError(f"since ({since:f}) is after until ({until:f}): swap them")
        self.since = -inf if since is None else since
        self.until = inf if until is None else until
        self._types = _glob(*([types] if isinstance(types, str) else types))
        self._worker = None if worker is None else _glob(worker)
        self._task = task
        self._name = None if task is None else _glob(task)
        #: Ids of tasks whose names fit, the one seen longest ago first.
        self._heard: OrderedDict[str, None] = OrderedDict()

    @property
    def has_memory(self) -> bool:
        """Whether rows tell which later ones are selected."""
        return self._task is not None

    @property
    def columns(self) -> set[str]:
        """What has to be there of rows to decide about them."""
        needed = {"type"} if self._types is not None else set()
        needed |= {"hostname"} if self._worker is not None else set()
        needed |= {"uuid", "name"} if self._task is not None else set()
        return needed | ({"timestamp", "received_at"} if self.since > -inf or self.until < inf else set())

    def admits(self, *, begin_at: float, end_at: float) -> bool:
        """Return whether a row of these moments can be selected."""
        return end_at >= self.since and begin_at <= self.until

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray | None:
        """Return for each row whether it is selected; None for all of them."""
        masks: list[pa.BooleanArray] = []
        # The first of all: names are to be heard in rows too that are not selected.
        if self._task is not None:
            masks.append(self._of_task(batch))
        if self._types is not None:
            masks.append(_fitting(_encoded(batch.column("type")), self._types))
        if self._worker is not None:
            masks.append(_fitting(_encoded(batch.column("hostname")), self._worker))
        if self.since > -inf or self.until < inf:
            at = moments(batch)
            masks.append(pc.and_(pc.greater_equal(at, self.since), pc.less_equal(at, self.until)))
        if not masks:
            return None
        mask = masks[0]
        for other in masks[1:]:
            mask = pc.and_(mask, other)
        return mask

    def _of_task(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        assert self._name is not None  # noqa: S101  # for the type checker: it is set together with the task
        uuids = _encoded(batch.column("uuid"))
        heard = self._newly_heard(batch, _fitting(_encoded(batch.column("name")), self._name))
        known: list[str | None] = uuids.dictionary.to_pylist()
        is_known = [each == self._task or each in self._heard or each in heard for each in known]
        mask = pc.fill_null(pc.take(pa.array(is_known, pa.bool_()), uuids.indices), False)
        if heard:
            # Up to there nothing said what the task is: so it does not matter how rows lie in batches.
            begins = pa.array([heard.get(each or "", 0) for each in known], pa.int64())
            rows = pa.array(range(batch.num_rows), pa.int64())
            is_after = pc.greater_equal(rows, pc.take(begins, uuids.indices))
            mask = pc.and_(mask, pc.fill_null(is_after, False))
        self._remember([each for each, fits in zip(known, is_known, strict=True) if fits and each])
        return mask

    def _newly_heard(self, batch: pa.RecordBatch, is_named: pa.BooleanArray) -> dict[str, int]:
        """Return the tasks whose names fit and were not heard before, with the row that says so."""
        rows = pc.indices_nonzero(is_named)
        heard: dict[str, int] = {}
        for row, uuid in zip(rows.to_pylist(), batch.column("uuid").take(rows).to_pylist(), strict=True):
            if uuid is not None and uuid != self._task and uuid not in self._heard:
                heard.setdefault(uuid, row)
        return heard

    def _remember(self, uuids: Sequence[str]) -> None:
        for uuid in uuids:
            self._heard[uuid] = None
            self._heard.move_to_end(uuid)
        while len(self._heard) > _MAX_HEARD:
            self._heard.popitem(last=False)


def moments(batch: pa.RecordBatch) -> pa.DoubleArray:
    """Return when the event of each row happened, as :func:`~celeriac.store.columns.event_moment` says."""
    stamps = pc.fill_null(batch.column("timestamp"), 0.0)
    received = pc.fill_null(batch.column("received_at"), 0.0)
    return pc.if_else(pc.equal(stamps, 0.0), received, stamps)


def _glob(*globs: str) -> Callable[[str], object] | None:
    """Return what says whether a text fits one of some globs; None if there is none."""
    return re.compile("|".join(map(translate, globs))).match if globs else None


def _encoded(column: pa.Array) -> pa.DictionaryArray:
    """Return a column as codes of its distinct values."""
    if pa.types.is_dictionary(column.type):
        if len(column.dictionary) <= len(column):
            return column
        column = column.cast(column.type.value_type)
    return column.dictionary_encode()


def _fitting(column: pa.DictionaryArray, fits: Callable[[str], object]) -> pa.BooleanArray:
    values = column.dictionary.to_pylist()
    flags = pa.array([value is not None and bool(fits(value)) for value in values], pa.bool_())
    return pc.fill_null(pc.take(flags, column.indices), False)
