"""The rules of ``celeriac doctor``: from facts about a cluster to findings, each with its reason and its fix.

Nothing here does I/O. :mod:`celeriac.cli.doctor_facts` collects the facts, and every rule is a function of
them alone. A rule that cannot know says so: its finding is neither good nor bad. Every text of a finding is
safe to show; a fix is one command or one setting, ready to be pasted.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from shlex import quote
from typing import Final, NamedTuple

from celeriac.core.worker import HEARTBEAT_DRIFT_MAX
from celeriac.model.election import Level
from celeriac.views.cluster import node_names
from celeriac.views.format import format_duration, format_size
from celeriac.views.text import number_text, visible

__all__ = [
    "BrokerState",
    "DiskState",
    "Durability",
    "Facts",
    "Finding",
    "Refusal",
    "Status",
    "TablesState",
    "WorkerState",
    "are_fine",
    "finding_lines",
    "findings",
]

#: Tables are made once a day, and a run takes a while: older ones are no longer made.
_TABLES_OLD: Final = 26 * 3600.0
#: A log has no room below either: a segment is some 64 MB, and compaction writes before it removes.
_ROOM_BYTES: Final = 1024**3
_ROOM_SHARE: Final = 0.05
#: Nodes that a fix names one by one.
_MOST_NAMED: Final = 3


class Status(StrEnum):
    """The outcome of a check."""

    OK = "ok"
    FAILED = "failed"
    #: It does not apply, or could not be found out.
    UNKNOWN = "unknown"


_MARKS: Final = {Status.OK: "✓", Status.FAILED: "✗", Status.UNKNOWN: "–"}  # noqa: RUF001 - a dash on purpose


class Finding(NamedTuple):
    """One line of the report."""

    name: str
    status: Status
    value: str
    reason: str = ""
    fix: str = ""
    #: Whether a failure of it fails the whole report.
    is_required: bool = True
    #: The nodes concerned; empty where it is not about single nodes.
    nodes: tuple[str, ...] = ()


class BrokerState(NamedTuple):
    """The broker, as it was found."""

    #: Its URL without secrets, as it is given again in a fix.
    url: str
    #: ``redis``, ``amqp`` or another family of kombu.
    driver: str = ""
    #: Product and version, as the server says; empty if it does not.
    version: str = ""
    #: Why it cannot be reached; empty if it can.
    error: str = ""
    #: Whether it is there, and refuses our user.
    is_refused: bool = False
    #: Seconds that our clock is ahead of the server's; None if it does not say.
    skew: float | None = None
    #: Of Redis, whether it has a log of writes; None where it does not say.
    has_log: bool | None = None
    #: Of Redis, other databases in which workers have declared the queues of their commands.
    other_databases: tuple[int, ...] = ()


class Refusal(NamedTuple):
    """Something that the broker does not let our user do."""

    use: str
    reason: str


class WorkerState(NamedTuple):
    """A worker that answers; None is what it does not say."""

    name: str
    #: Its settings worker_send_task_events and task_send_sent_event. They say nothing of ``-E``.
    events_setting: bool | None = None
    sent_setting: bool | None = None
    #: Tasks that it began while we listened, by its own count.
    begun: int | None = None
    #: Its task events that came meanwhile.
    task_events: int = 0
    #: Seconds that our clock is ahead of its own, by its heartbeats.
    skew: float | None = None


class Durability(NamedTuple):
    """The level of elections and locks at the broker, or the reason why it is not known."""

    level: Level | None
    min_level: Level
    reason: str


class DiskState(NamedTuple):
    """The disk of the log; a reason instead where it cannot be measured."""

    url: str
    free: int = 0
    total: int = 0
    reason: str = ""


class TablesState(NamedTuple):
    """The tables of the history."""

    url: str
    #: None if nothing is published.
    published_at: float | None = None
    error: str = ""


class Facts(NamedTuple):
    """Everything that was found out."""

    now: float
    broker: BrokerState
    #: Seconds that replies were waited for, and that events were listened for.
    timeout: float = 1.0
    listened: float = 0.0
    refusals: Sequence[Refusal] = ()
    workers: Sequence[WorkerState] = ()
    #: Nodes that send heartbeats, and do not answer.
    silent: Sequence[str] = ()
    #: Task-sent events that came, from any client.
    sent_events: int = 0
    durability: Durability | None = None
    #: Extras, and whether each is installed.
    extras: Mapping[str, bool] = {}
    disk: DiskState | None = None
    tables: TablesState | None = None
    #: The URL of the result backend without secrets; empty if none is set.
    backend: str = ""
    backend_error: str = ""


def are_fine(found: Sequence[Finding]) -> bool:
    """Return whether all required checks have passed."""
    return not any(each.is_required and each.status is Status.FAILED for each in found)


def finding_lines(finding: Finding) -> list[str]:
    """Return a finding for a terminal: one line, and where it failed the reason and the fix below."""
    lines = [f"{_MARKS[finding.status]} {finding.name:<14} {finding.value}".rstrip()]
    indent = " " * 17
    if finding.reason:
        lines.append(f"{indent}{finding.reason}")
    if finding.fix:
        lines.append(f"{indent}fix: {finding.fix}")
    return lines


def findings(facts: Facts) -> list[Finding]:
    """Return what holds, what does not, and what could not be found out, in the order it is read."""
    found = [_broker(facts.broker)]
    if not facts.broker.error:
        found += [
            _permissions(facts),
            _workers(facts),
            *_task_events(facts),
            _sent_events(facts),
            _skew(facts),
            _durability(facts),
            _backend(facts),
        ]
    return [*found, _extras(facts), _disk(facts), _tables(facts)]


# -- the broker


def _broker(broker: BrokerState) -> Finding:
    if broker.error:
        first = "correct user, password and virtual host" if broker.is_refused else "start it"
        fix = f"{first}, or name another: celeriac doctor --broker {_example(broker.url)}"
        return Finding("broker", Status.FAILED, visible(broker.url, 200), visible(broker.error, 400), fix)
    kind = visible(broker.version or broker.driver or "unknown kind", 80)
    return Finding("broker", Status.OK, f"{kind} at {visible(broker.url, 200)}")


def _permissions(facts: Facts) -> Finding:
    if not facts.refusals:
        return Finding("permissions", Status.OK, "the broker user may do all that Celeriac needs")
    uses = ", ".join(each.use for each in facts.refusals)
    fix = {
        "redis": "redis-cli ACL SETUSER NAME '~*' '&*' '+@all' '-@dangerous' '+info' '+config|get' '+keys'",
        "amqp": "rabbitmqctl set_permissions -p VHOST NAME '.*' '.*' '.*'",
    }.get(facts.broker.driver, "")
    reason = visible("; ".join(dict.fromkeys(each.reason for each in facts.refusals)), 400)
    return Finding("permissions", Status.FAILED, f"refused: {uses}", reason, fix)


def _durability(facts: Facts) -> Finding:
    name, found = "durability", facts.durability
    if found is None or found.level is None:
        reason = "" if found is None else visible(found.reason, 400)
        return Finding(name, Status.UNKNOWN, "unknown", reason, is_required=False)
    value = f"level {found.level} (required: {found.min_level})"
    # The reasons of levels are of the form "state: advice".
    state, _, advice = visible(found.reason, 400).partition(": ")
    if found.level >= found.min_level:
        return Finding(name, Status.OK, f"{value}: {state}")
    if facts.broker.driver == "redis" and facts.broker.has_log is False:
        advice = f"redis-cli -u {quote(visible(facts.broker.url, 200))} CONFIG SET appendonly yes"
    return Finding(name, Status.FAILED, value, state, advice)


def _backend(facts: Facts) -> Finding:
    name = "result backend"
    if not facts.backend:
        return Finding(name, Status.UNKNOWN, "none is set (result_backend)", is_required=False)
    if facts.backend_error:
        fix = "CELERIAC_RESULT_BACKEND=URL celeriac doctor  # with the right URL, once it runs"
        error = visible(facts.backend_error, 400)
        return Finding(name, Status.FAILED, visible(facts.backend, 200), error, fix)
    return Finding(name, Status.OK, f"answers at {visible(facts.backend, 200)}")


# -- the workers


def _workers(facts: Facts) -> Finding:
    name = "workers"
    names = tuple(each.name for each in facts.workers)
    if facts.silent:
        silent = tuple(sorted(facts.silent))
        return Finding(
            name,
            Status.FAILED,
            f"{len(names)} answer, {len(silent)} do not",
            f"heartbeats, but no answer within {format_duration(facts.timeout)}: {node_names([*silent])}",
            f"celeriac doctor --timeout {max(5.0, 2 * facts.timeout):g}  # then restart the silent ones",
            nodes=silent,
        )
    if names:
        count = f"{len(names)} answer{'s' if len(names) == 1 else ''}"
        return Finding(name, Status.OK, f"{count}: {node_names([*names])}", nodes=names)
    reason = f"no worker answers within {format_duration(facts.timeout)}"
    if facts.broker.other_databases:
        listed = ", ".join(map(str, facts.broker.other_databases))
        reason += f", and workers are in database {listed} of this Redis: the number in the URL is wrong"
        right = _with_database(facts.broker.url, facts.broker.other_databases[0])
        return Finding(name, Status.FAILED, "none", reason, f"celeriac doctor --broker {_example(right)}")
    where = {"amqp": ", or correct the virtual host", "redis": ", or correct the database"}
    fix = "celery -A PROJECT worker -E  # start one" + where.get(facts.broker.driver, "")
    return Finding(name, Status.FAILED, "none", reason, fix)


def _task_events(facts: Facts) -> list[Finding]:
    """Return a finding for the workers that send task events, for those that do not, and for the others."""
    if not facts.workers:
        return [Finding("task events", Status.UNKNOWN, "unknown: no worker answers")]
    sides: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    for each in facts.workers:
        sides[_sends_events(each)].append(each.name)
    found = []
    if on := sides[True]:
        found.append(Finding("task events", Status.OK, f"on: {node_names(on)}", nodes=tuple(on)))
    if off := sides[False]:
        reason = (
            f"tasks ran in {format_duration(facts.listened)} without task events: no task is seen or recorded"
        )
        fix = f"celeriac control enable-events{_destinations(off)}  # for good: start workers with -E"
        value = f"off: {node_names(off)}"
        found.append(Finding("task events", Status.FAILED, value, reason, fix, nodes=tuple(off)))
    if unsure := sides[None]:
        reason = (
            f"worker_send_task_events is not set, and no task ran in {format_duration(facts.listened)}: "
            "-E cannot be detected. Run it again while tasks run"
        )
        fix = f"celeriac control enable-events{_destinations(unsure)}"
        value = f"unknown: {node_names(unsure)}"
        found.append(Finding("task events", Status.UNKNOWN, value, reason, fix, nodes=tuple(unsure)))
    return found


def _sends_events(worker: WorkerState) -> bool | None:
    if worker.task_events:
        return True
    if worker.begun:  # a command may have turned off what a setting has on
        return False
    return True if worker.events_setting else None


def _sent_events(facts: Facts) -> Finding:
    name = "sent events"
    if facts.sent_events:
        return Finding(name, Status.OK, f"on: {facts.sent_events} received", is_required=False)
    settings = [each.sent_setting for each in facts.workers if each.sent_setting is not None]
    if not settings:
        return Finding(name, Status.UNKNOWN, "unknown: no worker says its settings", is_required=False)
    if all(settings):
        return Finding(name, Status.OK, "on, by the settings of the workers", is_required=False)
    return Finding(
        name,
        Status.FAILED,
        "off",
        "without them the time that tasks wait in queues is unknown",
        "task_send_sent_event = True  # in the configuration of the Celery app, for clients too",
        is_required=False,
    )


def _skew(facts: Facts) -> Finding:
    name = "clock skew"
    known = {each.name: each.skew for each in facts.workers if each.skew is not None}
    if facts.broker.skew is not None:
        known["the broker"] = facts.broker.skew
    if not known:
        return Finding(name, Status.UNKNOWN, "unknown: no heartbeat came")
    wrong = {each: skew for each, skew in known.items() if abs(skew) > HEARTBEAT_DRIFT_MAX}
    if not wrong:
        most = max(known.values(), key=abs)
        return Finding(name, Status.OK, f"at most {number_text(round(abs(most), 1)) or '0'} s")
    shown = "; ".join(
        f"{visible(each, 80)} is {number_text(round(abs(skew), 1))} s {'behind' if skew > 0 else 'ahead'}"
        for each, skew in sorted(wrong.items())
    )
    return Finding(
        name,
        Status.FAILED,
        f"above {HEARTBEAT_DRIFT_MAX} s: {visible(shown, 400)}",
        "times of events are wrong by as much, and workers may be taken for lost",
        "timedatectl set-ntp true  # on each of these machines; on this one, if all are off alike",
        nodes=tuple(sorted(wrong)),
    )


# -- this machine


def _extras(facts: Facts) -> Finding:
    there = ", ".join(name for name, is_there in facts.extras.items() if is_there) or "none"
    absent = ", ".join(name for name, is_there in facts.extras.items() if not is_there)
    value = f"{there}; not installed: {absent}" if absent else there
    return Finding("extras", Status.OK, value, is_required=False)


def _disk(facts: Facts) -> Finding:
    disk = facts.disk
    if disk is None or disk.reason:
        reason = "no log" if disk is None else visible(disk.reason, 200)
        return Finding("disk", Status.UNKNOWN, reason, is_required=False)
    value = f"{format_size(disk.free)} free of {format_size(disk.total)}, log in {visible(disk.url, 200)}"
    if disk.free >= _ROOM_BYTES and disk.free >= _ROOM_SHARE * disk.total:
        return Finding("disk", Status.OK, value)
    reason = "below 1 GiB or 5 %: a recorder drops events once the disk is full"
    return Finding("disk", Status.FAILED, value, reason, "CELERIAC_LOG_MAX_BYTES=10000000000  # or make room")


def _tables(facts: Facts) -> Finding:
    name, tables = "tables", facts.tables
    if tables is None or tables.error:
        reason = "unknown" if tables is None else visible(tables.error, 300)
        return Finding(name, Status.UNKNOWN, reason, is_required=False)
    url = visible(tables.url, 200)
    if tables.published_at is None:
        return Finding(name, Status.UNKNOWN, f"none in {url} yet: celeriac pipeline run", is_required=False)
    age = facts.now - tables.published_at
    value = f"published {format_duration(max(0.0, float(round(age))))} ago, in {url}"
    if age <= _TABLES_OLD:
        return Finding(name, Status.OK, value, is_required=False)
    fix = f"celeriac pipeline run --warehouse {quote(url)}"
    return Finding(name, Status.FAILED, value, "older than 26 hours", fix, is_required=False)


def _destinations(names: Sequence[str]) -> str:
    """Return the options that name some nodes; none where they are too many to be read."""
    return "".join(f" -d {quote(visible(name))}" for name in names) if len(names) <= _MOST_NAMED else ""


def _with_database(url: str, number: int) -> str:
    head, _, _ = url.partition("?")
    scheme, _, address = head.partition("://")
    return f"{scheme}://{address.partition('/')[0]}/{number}"


def _example(url: str) -> str:
    return quote(visible(url, 200))
