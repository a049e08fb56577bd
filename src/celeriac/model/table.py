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


_DAY: Final = ("day", "string", "the UTC date of the partition: 2026-11-14")

_TASKS: Final = Table(
    "tasks",
    2,
    "one row for each task: the same result as State computes from the same events",
    _columns(
        ("uuid", "string", "task id"),
        ("name", "string", "task name; null if no event has it"),
        ("state", "string", "the latest state: SUCCESS, FAILURE, … or a custom one"),
        ("phase", "string", "queued, received, running, retry_wait, requeued or done"),
        ("worker", "string", "the node that runs, or ran, the task"),
        ("client", "string", "the node that sent the task"),
        ("queue", "string", "queue or routing key that the task was sent to"),
        ("root_id", "string", "the first task of its workflow, which may be the task itself"),
        ("parent_id", "string", "the task that sent this task; retries do not change it"),
        ("retries", "bigint", "number of the last attempt, from 0"),
        ("attempts", "bigint", "number of attempts; 0 if no worker received the task"),
        ("deliveries", "bigint", "number of times a worker received the task"),
        ("executions", "bigint", "number of times a worker started the task"),
        ("is_redelivered", "boolean", "whether deliveries exceed attempts"),
        (
            "is_conflict",
            "boolean",
            "whether the task succeeded and failed, succeeded twice, or did either in a retried attempt",
        ),
        ("sent_at", "double", "when a client sent the task"),
        ("received_at", "double", "when a worker received the last attempt"),
        ("started_at", "double", "when a worker last started the task"),
        ("succeeded_at", "double", "when the task returned"),
        ("failed_at", "double", "when the task failed finally"),
        ("retried_at", "double", "when the task last raised and was scheduled for a retry"),
        ("revoked_at", "double", "when the task was revoked"),
        ("rejected_at", "double", "when a worker last rejected the task"),
        ("state_at", "double", "when the task entered its state"),
        ("clock", "bigint", "the Lamport clock of the event that set the state"),
        ("runtime", "double", "run time in seconds as reported by the worker, if the task returned"),
        ("first_at", "double", "the earliest timestamp of its events, if any"),
        ("last_at", "double", "the latest timestamp of its events, if any"),
        ("seen_at", "double", "when its first event was recorded, by the recorder's clock"),
        ("description_row", "bigint", "reference of the event in the log that has the arguments"),
        ("result_row", "bigint", "reference of the event in the log that has the result"),
        ("error_row", "bigint", "reference of the event in the log that has the last exception"),
        ("course", COURSE, "a compact form of its events, if each event occurred once; otherwise null"),
        (
            "history",
            f"array<{HISTORY_EVENT}>",
            "a compact form of its events, if there is no course",
        ),
        _DAY,
    ),
)
_ATTEMPTS: Final = Table(
    "attempts",
    1,
    "one row for each attempt of a task",
    _columns(
        ("uuid", "string", "task id"),
        ("name", "string", "task name"),
        ("queue", "string", "queue or routing key that the task was sent to"),
        ("worker", "string", "the node of the attempt"),
        ("pid", "bigint", "the process of the attempt"),
        ("retries", "bigint", "number of the attempt, from 0"),
        ("received_at", "double", "when the worker received the task"),
        ("started_at", "double", "when the worker started the task"),
        ("ended_at", "double", "when the attempt ended"),
        ("outcome", "string", "SUCCESS, FAILURE, REVOKED, RETRY or REJECTED; null while it is open"),
        (
            "wait",
            "double",
            (
                "queue wait in seconds: from the earliest possible start (sent, redelivered, its eta) to the "
                "start"
            ),
        ),
        ("run", "double", "run time in seconds: as reported by the worker, otherwise from start to end"),
        (
            "counted_at",
            "double",
            "the time used to assign the attempt to an interval: its end, otherwise its start or receipt",
        ),
        _DAY,
    ),
)
_ROLLUP: Final = (
    ("name", "string", "task name"),
    ("worker", "string", "the node of the attempts"),
    ("queue", "string", "queue or routing key that the tasks were sent to"),
    ("attempts", "bigint", "attempts"),
    ("succeeded", "bigint", "attempts that returned"),
    ("failed", "bigint", "attempts that failed finally"),
    ("retried", "bigint", "attempts that are retried"),
    ("revoked", "bigint", "attempts that were revoked"),
    ("waits", "bigint", "attempts with a known queue wait"),
    ("wait_sum", "double", "sum of queue waits, in seconds"),
    ("wait_max", "double", "longest queue wait, in seconds"),
    (
        "wait_sketch",
        "binary",
        "distribution of queue waits: a KLL sketch of doubles, which can be merged with others",
    ),
    ("runs", "bigint", "attempts with a known run time"),
    ("run_sum", "double", "sum of run times, in seconds"),
    ("run_max", "double", "longest run time, in seconds"),
    ("run_sketch", "binary", "distribution of run times: a KLL sketch"),
    _DAY,
)
_MINUTES: Final = Table(
    "rollups_minute",
    1,
    "counts and distributions of attempts per minute; one minute may be filed under several days",
    _columns(("begin_at", "double", "begin of the minute"), *_ROLLUP),
)
_HOURS: Final = Table(
    "rollups_hour",
    1,
    "counts and distributions of attempts per hour",
    _columns(("begin_at", "double", "begin of the hour"), *_ROLLUP),
)
_FAILURES: Final = Table(
    "failures",
    1,
    "one row for each exception of a task",
    _columns(
        ("uuid", "string", "task id"),
        ("raised_at", "double", "when the task raised the exception"),
        ("outcome", "string", "FAILURE, or RETRY if the task was scheduled for a retry"),
        ("worker", "string", "the node that ran the task"),
        ("exception", "string", "the exception, up to 1,000 characters"),
        ("row", "bigint", "reference of the event in the log that has the traceback"),
        _DAY,
    ),
)
_BEATS: Final = Table(
    "beats",
    1,
    "one row for each worker process and minute, from its heartbeats",
    _columns(
        ("worker", "string", "node name of the worker"),
        ("pid", "bigint", "process id"),
        ("minute_at", "double", "begin of the minute, by the recorder's clock"),
        ("first_at", "double", "first receipt of an event in the minute"),
        ("last_at", "double", "last receipt of an event in the minute"),
        ("online_at", "double", "last receipt of worker-online in the minute"),
        ("offline_at", "double", "last receipt of worker-offline in the minute"),
        ("freq", "double", "longest reported heartbeat interval, in seconds"),
        ("active", "bigint", "highest reported number of active tasks"),
        ("processed", "bigint", "highest reported number of tasks started since the process started"),
        ("load", "double", "highest reported load average of one minute"),
        ("drift_min", "double", "lowest receipt time less timestamp, in seconds"),
        ("drift_max", "double", "highest receipt time less timestamp, in seconds"),
        ("software", "string", "software of the worker and its version"),
        _DAY,
    ),
)
_WORKERS: Final = Table(
    "workers",
    1,
    "one row for each session of a worker process, split at midnight UTC",
    _columns(
        ("worker", "string", "node name of the worker"),
        ("pid", "bigint", "process id"),
        ("begin_at", "double", "when the process was first seen, by the recorder's clock"),
        ("end_at", "double", "when the process was last seen"),
        (
            "ending",
            "string",
            (
                "offline after a clean shutdown, lost if it became silent, midnight if it continues on the "
                "next day, open if it may still run"
            ),
        ),
        ("is_restart", "boolean", "whether another process of the same node was seen before on the same day"),
        ("active_max", "bigint", "highest number of active tasks"),
        ("processed", "bigint", "number of tasks started since the process started"),
        ("load_max", "double", "highest load average"),
        ("drift", "double", "largest clock skew in seconds, by the lowest delay of a minute"),
        ("software", "string", "software of the worker and its version"),
        _DAY,
    ),
)
_WORKFLOWS: Final = Table(
    "workflows",
    1,
    "one row for each first task that sent other tasks",
    _columns(
        ("root_id", "string", "id of the first task"),
        ("name", "string", "name of the first task"),
        ("tasks", "bigint", "number of tasks in the workflow"),
        ("succeeded", "bigint", "tasks that succeeded"),
        ("failed", "bigint", "tasks that failed finally, or were revoked"),
        ("open", "bigint", "tasks that have not finished"),
        ("depth", "bigint", "most tasks in a path from the first one; null if the workflow is too large"),
        ("begin_at", "double", "time of its first event"),
        ("end_at", "double", "time of its last event"),
        ("makespan", "double", "seconds between the first and the last event"),
        (
            "critical_path",
            "array<string>",
            "the path of parent and child tasks that finished last, from the first task; null as above",
        ),
        ("critical_run", "double", "sum of run times on the critical path, in seconds"),
        _DAY,
    ),
)
_GAPS: Final = Table(
    "gaps",
    1,
    "periods without a recorder connection, in which events may be missing",
    _columns(
        ("recorder", "string", "the recorder that missed the events"),
        ("since_at", "double", "begin of the gap, by the recorder's clock"),
        ("until_at", "double", "end of the gap, by the recorder's clock"),
        ("reason", "string", "reason for the disconnect"),
        ("attempts", "bigint", "number of failed attempts to reconnect"),
        _DAY,
    ),
)
_ANOMALIES: Final = Table(
    "anomalies",
    1,
    "suspicious observations",
    _columns(
        ("kind", "string", "stuck_task, retry_storm, slow_task, clock_drift or gap"),
        ("noticed_at", "double", "when"),
        ("subject", "string", "task id, task name, worker or recorder of the anomaly"),
        ("value", "double", "measured value"),
        ("usual", "double", "usual value, or the limit"),
        ("text", "string", "description in words"),
        _DAY,
    ),
)
_FAULTS: Final = Table(
    "faults",
    1,
    "input that could not be used, or only in part",
    _columns(
        ("kind", "string", "damaged, too_new, no_id, absurd_time or oversized"),
        ("source", "string", "the segment or the recorder"),
        (
            "first_row",
            "bigint",
            "reference of the first affected event in the log, if single events are affected",
        ),
        ("rows", "bigint", "number of affected events"),
        ("text", "string", "the problem, and how it was handled"),
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
