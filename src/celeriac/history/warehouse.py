"""The tables that the pipeline publishes, and the questions that they answer."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final, Self, TypeVar

from celeriac.errors import CallerError, DiskError
from celeriac.history.answer import Answer, Question
from celeriac.history.edition import Edition, FilesGone
from celeriac.history.source import known_table, picked, quoted
from celeriac.history.span import EVER, By, Span
from celeriac.history.story import task_story
from celeriac.history.times import Per, Ranking, attempt_times, nothing_at, times_per, top_names
from celeriac.history.worker import worker_sessions
from celeriac.history.workflow import workflow_story
from celeriac.model.answer import (
    AttemptTimes,
    Comparison,
    Exported,
    TableSize,
    TaskStory,
    Top,
    WorkerSession,
    WorkflowStory,
)
from celeriac.model.table import TABLES
from celeriac.store.manifest import Manifest, read_manifest
from celeriac.store.place import place_for

__all__ = ["Side", "Warehouse", "open"]

_T = TypeVar("_T")
#: A glob of the names of tasks, or two moments.
Side = str | tuple[float | None, float | None]

#: The moments at which a row begins and ends, of tables whose rows have some.
_MOMENTS: Final = {
    "tasks": ("seen_at", "seen_at"),
    "beats": ("minute_at", "minute_at"),
    "workers": ("begin_at", "end_at"),
    "workflows": ("begin_at", "end_at"),
    "gaps": ("since_at", "until_at"),
    "attempts": ("counted_at", "counted_at"),
    "rollups_minute": ("begin_at", "begin_at"),
    "rollups_hour": ("begin_at", "begin_at"),
    "failures": ("raised_at", "raised_at"),
    "anomalies": ("noticed_at", "noticed_at"),
}
#: Where the day follows from the moment, so that only some days need be looked at. A row of the others can
#: tell of a moment long after the day that it is filed under: of the end of a task that waited, say. DuckDB
#: passes over their files by what these say of themselves.
_FILED_BY_MOMENT: Final = ("tasks", "beats")


def open(  # noqa: A001
    warehouse: str | Path, *, log: str | Path | None = None, memory: str = "1GB"
) -> "Warehouse":
    """Return the warehouse at a folder or URL, as published by ``celeriac pipeline run``.

    ``log`` is the location of the log of the tables, if it was moved.
    ``memory`` limits the memory of a query. Raises CallerError if nothing is published there.
    """
    opened = Warehouse(warehouse, log=log, memory=memory)
    opened.refresh()
    return opened


class Warehouse:
    """Queries published tables. Each query sees the last published version as a whole.

    Any thread may query. ``since`` and ``until`` are seconds since the epoch; ``until`` is
    exclusive. Close it, or use it in a ``with``.
    """

    def __init__(self, warehouse: str | Path, *, log: str | Path | None = None, memory: str = "1GB") -> None:
        self.place = place_for(warehouse)
        self._url = str(warehouse)
        self._log = log
        self._memory = memory
        self._mutex = Lock()
        self._edition: Edition | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.place.url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all files; the next question opens them again."""
        with self._mutex:
            if self._edition is not None:
                self._edition.close()
            self._edition = None

    def refresh(self) -> Manifest:
        """Look for a new published version, and return its manifest. Every query does this automatically."""
        return self._now().manifest

    @property
    def tables(self) -> dict[str, TableSize]:
        """How large each table is, by name."""
        manifest = self.refresh()
        return {name: _size(name, manifest) for name in TABLES}

    def table(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        since: float | None = None,
        until: float | None = None,
        *,
        where: Mapping[str, object] | None = None,
    ) -> Answer:
        """Return rows of a table: all columns or some, of a span of time.

        ``where`` gives columns the value that they are to have, or a list of values of which they have one.
        """
        table = known_table(name)
        chosen = picked([column.name for column in table.columns] if columns is None else columns, table)
        span = Span(since, until).checked()
        tests, parameters = _tests(picked(list(where or {}), table), where or {})
        days = EVER
        if name in _MOMENTS and span != Span():
            begin, end = _MOMENTS[name]
            tests += [f"{quoted(end)} >= $since", f"{quoted(begin)} < $until"]
            parameters |= {"since": span.begin_at, "until": span.end_at}
        if name in _FILED_BY_MOMENT or name not in _MOMENTS:
            days = span.days
        condition = f" WHERE {' AND '.join(tests)}" if tests else ""
        text = f"SELECT {', '.join(map(quoted, chosen))} FROM {{{name}}}{condition}"  # noqa: S608 - of names of ours

        def run(make: Callable[[Question], Any]) -> Any:
            return self._ask(lambda edition: edition.run(make, text, parameters, {name: days}))

        return Answer(run)

    def sql(self, text: str, *, timeout: float | None = 60.0) -> Answer:
        """Return the rows of one SELECT in DuckDB's SQL, over views that are named as the tables.

        It can read the tables and nothing else, and has ``timeout`` seconds, None for as long as it takes.
        Raises CallerError for any other statement.
        """

        def run(make: Callable[[Question], Any]) -> Any:
            return self._ask(lambda edition: edition.run_foreign(make, text, timeout=timeout))

        return Answer(run)

    def top(
        self,
        by: Ranking = "slowest",
        since: float | None = None,
        until: float | None = None,
        limit: int = 10,
    ) -> list[Top]:
        """Return the names of tasks with the longest mean run time, the most failures or the most retries."""
        span = Span(since, until).checked()
        return self._ask(lambda edition: top_names(edition, span, by=by, limit=limit))

    def latency(
        self,
        task: str | None = None,
        since: float | None = None,
        until: float | None = None,
        *,
        by: By | None = None,
        worker: str | None = None,
        queue: str | None = None,
    ) -> list[AttemptTimes]:
        """Return how long attempts waited and ran, in all or for each ``minute``, ``hour`` or ``day`` of UTC.

        ``task``, ``worker`` and ``queue`` are names, or globs of names. Times in which there were no
        attempts are left out. ``since`` counts as the beginning of its minute.
        """
        span = Span(since, until).checked()
        return self._ask(
            lambda edition: attempt_times(edition, span, task=task, worker=worker, queue=queue, by=by)
        )

    def latency_per(
        self,
        per: Per,
        since: float | None = None,
        until: float | None = None,
        *,
        task: str | None = None,
        worker: str | None = None,
        queue: str | None = None,
        limit: int = 50,
    ) -> list[Top]:
        """Return queue waits and run times of the attempts of each ``task``, ``worker`` or ``queue``.

        Groups with the most attempts come first, and ``limit`` is the number of groups. Attempts without a
        name are in the group None. Other arguments are as in ``latency``.
        """
        span = Span(since, until).checked()
        return self._ask(
            lambda edition: times_per(
                edition, span, per=per, task=task, worker=worker, queue=queue, limit=limit
            )
        )

    def task(self, id: str) -> TaskStory:  # noqa: A002 - as tasks have it
        """Return all data of one task; arguments and result as long as the log has them."""
        return self._ask(lambda edition: task_story(edition, id, self._log))

    def workflow(self, root: str, *, limit: int = 10_000) -> WorkflowStory:
        """Return the tasks that a task brought about; ``root`` may also be one of them."""
        return self._ask(lambda edition: workflow_story(edition, root, limit=limit))

    def workers(self, since: float | None = None, until: float | None = None) -> list[WorkerSession]:
        """Return when worker processes were there."""
        span = Span(since, until).checked()
        return self._ask(lambda edition: worker_sessions(edition, span))

    def compare(
        self,
        a: Side,
        b: Side,
        *,
        task: str | None = None,
        since: float | None = None,
        until: float | None = None,
        worker: str | None = None,
        queue: str | None = None,
    ) -> Comparison:
        """Return the attempts of two sides: two task names, or two time ranges.

        Names, or globs of them, are compared from ``since`` to ``until``; time ranges are pairs of
        timestamps, for the tasks that match ``task``, or all. ``worker`` and ``queue`` filter both sides.
        """

        def times(edition: Edition, side: Side) -> AttemptTimes:
            name, span = (side, Span(since, until)) if isinstance(side, str) else (task, Span(*side))
            found = attempt_times(edition, span.checked(), task=name, worker=worker, queue=queue)
            return found[0] if found else nothing_at()

        return self._ask(
            lambda edition: Comparison(_label(a), _label(b), times(edition, a), times(edition, b))
        )

    def export(
        self,
        table: str,
        to: str,
        *,
        since: float | None = None,
        until: float | None = None,
        name: str | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> Exported:
        """Write a table elsewhere, or the UTC days of it that ``since`` and ``until`` are in and between.

        ``to`` is ``postgresql://…``, ``delta:FOLDER``, or a file whose name ends with ``.parquet`` or
        ``.csv``. ``name`` is that of the table in PostgreSQL, ``history_…`` by default.
        """
        from celeriac.history.export import export  # noqa: PLC0415 - only who exports loads it

        days = Span(since, until).checked().days
        known_table(table)
        return self._ask(lambda edition: export(edition, table, to, days=days, name=name, progress=progress))

    def _ask(self, question: Callable[[Edition], _T]) -> _T:
        """Ask of what is published now; once more if that was replaced meanwhile."""
        edition = self._now()
        try:
            return question(edition)
        except FilesGone:
            newer = self._now()
            if newer is edition:
                raise
            return question(newer)

    def _now(self) -> Edition:
        manifest = read_manifest(self.place)
        if manifest is None:
            raise CallerError(
                f"No tables in {self.place.url} yet. celeriac up makes them every 10 minutes; without it, "
                "run celeriac pipeline run. Or name another warehouse"
            )
        for name, version in manifest.schemas.items():
            known = TABLES[name].version if name in TABLES else 0
            if version > known:
                raise DiskError(
                    f"{self.place.url} has {name} of version {version}, newer than {known}: upgrade Celeriac"
                )
        with self._mutex:
            if self._edition is None or _identity(self._edition.manifest) != _identity(manifest):
                # One that is replaced is not closed: others may be asking.
                self._edition = Edition(self.place, self._url, manifest, memory=self._memory)
            return self._edition


def _identity(manifest: Manifest) -> tuple[int, float]:
    """Return what tells one manifest from another: in a warehouse that is made anew versions begin again."""
    return manifest.version, manifest.published_at


def _tests(columns: Sequence[str], where: Mapping[str, object]) -> tuple[list[str], dict[str, object]]:
    """Return conditions with parameters for their values."""
    tests: list[str] = []
    parameters: dict[str, object] = {}
    for number, column in enumerate(columns):
        value = where[column]
        is_several = isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes)
        parameters[f"value_{number}"] = list(value) if is_several else value  # type: ignore[call-overload]
        test = f"list_contains($value_{number}, {quoted(column)})"
        tests.append(test if is_several else f"{quoted(column)} IS NOT DISTINCT FROM $value_{number}")
    return tests, parameters


def _size(name: str, manifest: Manifest) -> TableSize:
    days = manifest.tables.get(name, {})
    files = [each for part in days.values() for each in part]
    return TableSize(
        name,
        sum(each.rows for each in files),
        sum(each.bytes for each in files),
        len(files),
        len(days),
        min(days, default=None),
        max(days, default=None),
        TABLES[name].meaning,
    )


def _label(side: Side) -> str:
    if isinstance(side, str):
        return side
    begin, end = ("" if each is None else _moment_text(each) for each in side)
    return f"{begin}..{end}"


def _moment_text(at: float) -> str:
    from datetime import UTC, datetime  # noqa: PLC0415

    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
