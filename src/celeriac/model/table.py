"""The tables that the pipeline publishes: every column, its type and what it means.

Types are spelled as Spark and people spell them. No name is a word of SQL, such as ``at`` or ``end``, so
that nobody has to quote it. Moments are seconds of the epoch by the clock of who sent
the event, unless it is said otherwise. The reference in the docs and what Spark writes are compared with
this in tests, so there is one place where a column is said.
"""

from typing import Final, NamedTuple

__all__ = ["COURSE", "HISTORY_EVENT", "INNER_COLUMNS", "TABLES", "Column", "Table"]


class Column(NamedTuple):
    """One column of a table."""

    name: str
    type: str
    meaning: str


class Table(NamedTuple):
    """One table; ``day`` is in all of them: the UTC date that a row is filed under."""

    name: str
    #: Goes up when a column changes its meaning or goes away. One that is added keeps it.
    version: int
    meaning: str
    columns: tuple[Column, ...]

    @property
    def ddl(self) -> str:
        """The columns as Spark takes a schema."""
        return ", ".join(f"`{column.name}` {column.type}" for column in self.columns)


#: What is kept of each event of a task, so that events that come later can be joined to it.
HISTORY_EVENT: Final = (
    "struct<type:string, at:double, clock:bigint, host:string, pid:bigint, retries:bigint, name:string, "
    "queue:string, root_id:string, parent_id:string, runtime:double, eta_at:double, requeue:boolean, "
    "row:bigint>"
)
#: The same of a task that one process received, started and ended, once and in order, as far as its other
#: columns do not say it. That is nearly every task, and numbers are quick to write and to read.
COURSE: Final = (
    "struct<sent_clock:bigint, sent_pid:bigint, sent_row:bigint, pid:bigint, received_clock:bigint, "
    "received_row:bigint, started_clock:bigint, started_row:bigint, ended_clock:bigint, ended_row:bigint, "
    "eta_at:double>"
)
#: The columns that only the pipeline needs.
INNER_COLUMNS: Final = ("course", "history")


def _columns(*told: tuple[str, str, str]) -> tuple[Column, ...]:
    return tuple(Column(*each) for each in told)


_DAY: Final = ("day", "string", "the UTC date that the row is filed under: 2026-11-14")

_TASKS: Final = Table(
    "tasks",
    2,
    "one row for each task: the same answer as State gives of the same events",
    _columns(
        ("uuid", "string", "the id of the task"),
        ("name", "string", "its name; null while no event said it"),
        ("state", "string", "the furthest it got: SUCCESS, FAILURE, … or a custom one"),
        ("phase", "string", "queued, received, running, retry_wait, requeued or done"),
        ("worker", "string", "the node that has, or had, the task"),
        ("client", "string", "the node that sent it"),
        ("queue", "string", "where it was sent"),
        ("root_id", "string", "the first task of its workflow, which may be itself"),
        ("parent_id", "string", "the task that sent it; a retry does not hide it"),
        ("retries", "bigint", "the number of its last attempt, from 0"),
        ("attempts", "bigint", "attempts so far; 0 if no worker received it"),
        ("deliveries", "bigint", "how often a worker received it"),
        ("executions", "bigint", "how often a worker started it"),
        ("is_redelivered", "boolean", "whether it was delivered more often than it was tried"),
        (
            "is_conflict",
            "boolean",
            "whether it succeeded and failed, succeeded twice, or did either in an attempt that was retried",
        ),
        ("sent_at", "double", "when a client sent it"),
        ("received_at", "double", "when a worker received it, of the last attempt"),
        ("started_at", "double", "when a worker started it last"),
        ("succeeded_at", "double", "when it returned"),
        ("failed_at", "double", "when it raised for good"),
        ("retried_at", "double", "when it raised last and was to be tried again"),
        ("revoked_at", "double", "when it was cancelled"),
        ("rejected_at", "double", "when a worker refused it last"),
        ("state_at", "double", "when it got into its state"),
        ("clock", "bigint", "the Lamport clock of the event that gave it its state"),
        ("runtime", "double", "the seconds that it ran by the worker's measure, if it returned"),
        ("first_at", "double", "the first moment that an event of it tells, if any does"),
        ("last_at", "double", "the last moment that an event of it tells, if any does"),
        ("seen_at", "double", "when an event of it was first recorded, by the recorder's clock"),
        ("description_row", "bigint", "the event in the log that says its arguments"),
        ("result_row", "bigint", "the event in the log that says its result"),
        ("error_row", "bigint", "the event in the log that says what it raised last"),
        ("course", COURSE, "what is kept of its events, if each thing happened once; else null"),
        (
            "history",
            f"array<{HISTORY_EVENT}>",
            "what is kept of its events, where there is no course",
        ),
        _DAY,
    ),
)
_ATTEMPTS: Final = Table(
    "attempts",
    1,
    "one row for each time that a task was tried",
    _columns(
        ("uuid", "string", "the id of the task"),
        ("name", "string", "the name of the task"),
        ("queue", "string", "where it was sent"),
        ("worker", "string", "the node that tried"),
        ("pid", "bigint", "the process that tried"),
        ("retries", "bigint", "the number of the attempt, from 0"),
        ("received_at", "double", "when the worker received it"),
        ("started_at", "double", "when the worker started it"),
        ("ended_at", "double", "when the attempt ended"),
        ("outcome", "string", "SUCCESS, FAILURE, REVOKED, RETRY or REJECTED; null while it is open"),
        (
            "wait",
            "double",
            "seconds from when it could have run (sent, received again, its eta) to its start",
        ),
        ("run", "double", "seconds that it ran: by the worker's measure, or else from start to end"),
        ("counted_at", "double", "the moment it is counted under: its end, else its start, else its receipt"),
        _DAY,
    ),
)
_ROLLUP: Final = (
    ("name", "string", "the name of the tasks"),
    ("worker", "string", "the node that tried them"),
    ("queue", "string", "where they were sent"),
    ("attempts", "bigint", "attempts"),
    ("succeeded", "bigint", "those that returned"),
    ("failed", "bigint", "those that raised for good"),
    ("retried", "bigint", "those that are tried again"),
    ("revoked", "bigint", "those that were cancelled"),
    ("waits", "bigint", "attempts whose wait is known"),
    ("wait_sum", "double", "the sum of their waits, in seconds"),
    ("wait_max", "double", "the longest of them"),
    ("wait_sketch", "binary", "their distribution: a KLL sketch of doubles, which can be merged with others"),
    ("runs", "bigint", "attempts whose run time is known"),
    ("run_sum", "double", "the sum of their run times, in seconds"),
    ("run_max", "double", "the longest of them"),
    ("run_sketch", "binary", "their distribution, as for waits"),
    _DAY,
)
_MINUTES: Final = Table(
    "rollups_minute",
    1,
    "counts and distributions of the attempts of each minute; one minute may be filed under several days",
    _columns(("begin_at", "double", "the minute's first moment"), *_ROLLUP),
)
_HOURS: Final = Table(
    "rollups_hour",
    1,
    "the same of each hour",
    _columns(("begin_at", "double", "the hour's first moment"), *_ROLLUP),
)
_FAILURES: Final = Table(
    "failures",
    1,
    "one row for each time that a task raised",
    _columns(
        ("uuid", "string", "the id of the task"),
        ("raised_at", "double", "when it raised"),
        ("outcome", "string", "FAILURE, or RETRY where it was to be tried again"),
        ("worker", "string", "the node on which it raised"),
        ("exception", "string", "what it raised, up to 1,000 characters"),
        ("row", "bigint", "the event in the log that has the traceback"),
        _DAY,
    ),
)
_BEATS: Final = Table(
    "beats",
    1,
    "what a worker process said of itself in a minute",
    _columns(
        ("worker", "string", "its node name"),
        ("pid", "bigint", "the process"),
        ("minute_at", "double", "the minute's first moment, by the recorder's clock"),
        ("first_at", "double", "the first receipt in it"),
        ("last_at", "double", "the last one"),
        ("online_at", "double", "the last receipt of worker-online in it"),
        ("offline_at", "double", "the last receipt of worker-offline in it"),
        ("freq", "double", "seconds between heartbeats, the longest told"),
        ("active", "bigint", "tasks it ran, the most told"),
        ("processed", "bigint", "tasks it has begun since it started, the most told"),
        ("load", "double", "its load average of one minute, the highest told"),
        ("drift_min", "double", "receipt less timestamp, in seconds, the least"),
        ("drift_max", "double", "the same, the most"),
        ("software", "string", "what it runs, and its version"),
        _DAY,
    ),
)
_WORKERS: Final = Table(
    "workers",
    1,
    "one row for each time that a worker process was there, cut at midnight UTC",
    _columns(
        ("worker", "string", "its node name"),
        ("pid", "bigint", "the process"),
        ("begin_at", "double", "when it was first heard of, by the recorder's clock"),
        ("end_at", "double", "when it was last heard of"),
        (
            "ending",
            "string",
            "offline if it said so, lost if it fell silent, midnight if it went on, open if it may",
        ),
        ("is_restart", "boolean", "whether the node was there before on that day, as another process"),
        ("active_max", "bigint", "the most tasks it ran at once"),
        ("processed", "bigint", "tasks it has begun since it started"),
        ("load_max", "double", "its highest load"),
        ("drift", "double", "how far its clock was off at most, in seconds, by the least delay of a minute"),
        ("software", "string", "what it runs, and its version"),
        _DAY,
    ),
)
_WORKFLOWS: Final = Table(
    "workflows",
    1,
    "one row for each first task that sent others",
    _columns(
        ("root_id", "string", "the id of the first task"),
        ("name", "string", "its name"),
        ("tasks", "bigint", "tasks of the workflow"),
        ("succeeded", "bigint", "those that returned"),
        ("failed", "bigint", "those that raised for good, or were cancelled"),
        ("open", "bigint", "those that have not ended"),
        ("depth", "bigint", "the most tasks in a line from the first one; null in too large a workflow"),
        ("begin_at", "double", "when its first event was"),
        ("end_at", "double", "when its last event was"),
        ("makespan", "double", "seconds between the two"),
        (
            "critical_path",
            "array<string>",
            "the line of tasks, by who sent whom, that ended last, from the first; null as above",
        ),
        ("critical_run", "double", "the seconds that those ran"),
        _DAY,
    ),
)
_GAPS: Final = Table(
    "gaps",
    1,
    "when nobody listened, so that events may be missing",
    _columns(
        ("recorder", "string", "who did not"),
        ("since_at", "double", "from when, by its clock"),
        ("until_at", "double", "until when"),
        ("reason", "string", "what broke the link"),
        ("attempts", "bigint", "how often it was tried in vain to make it again"),
        _DAY,
    ),
)
_ANOMALIES: Final = Table(
    "anomalies",
    1,
    "what looks wrong",
    _columns(
        ("kind", "string", "stuck_task, retry_storm, slow_task, clock_drift or gap"),
        ("noticed_at", "double", "when"),
        ("subject", "string", "the task's id or name, the worker or the recorder it is about"),
        ("value", "double", "what was measured"),
        ("usual", "double", "what is usual, or the limit"),
        ("text", "string", "the same in words"),
        _DAY,
    ),
)
_FAULTS: Final = Table(
    "faults",
    1,
    "input that could not be used, or only in part",
    _columns(
        ("kind", "string", "damaged, too_new, no_id, absurd_time or oversized"),
        ("source", "string", "the segment, or the recorder"),
        ("first_row", "bigint", "the first event in the log it is about, if it is about single ones"),
        ("rows", "bigint", "how many events it is about"),
        ("text", "string", "what is wrong, and what was done"),
        _DAY,
    ),
)

#: All tables, by name. ``beats`` is there so that ``workers`` can be made anew.
TABLES: Final[dict[str, Table]] = {
    table.name: table
    for table in (
        _TASKS,
        _ATTEMPTS,
        _MINUTES,
        _HOURS,
        _FAILURES,
        _BEATS,
        _WORKERS,
        _WORKFLOWS,
        _GAPS,
        _ANOMALIES,
        _FAULTS,
    )
}
