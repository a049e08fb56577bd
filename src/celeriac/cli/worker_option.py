"""The options of ``celeriac worker``."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from celeriac.cli.worker_log import LEVELS
from celeriac.errors import CallerError

__all__ = ["Log", "Node", "PoolName", "Tuning"]

_NODE: Final = "Node"
_LOG: Final = "Logging"


class PoolName(StrEnum):
    """The ways to run tasks side by side."""

    PROCESSES = "processes"
    THREADS = "threads"
    SOLO = "solo"
    GEVENT = "gevent"


class Level(StrEnum):
    """The log levels."""

    DEBUG = LEVELS[0]
    INFO = LEVELS[1]
    WARNING = LEVELS[2]
    ERROR = LEVELS[3]
    CRITICAL = LEVELS[4]


@dataclass(frozen=True)
class Tuning:
    """Options that go before the settings of the app."""

    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            "-c",
            min=1,
            metavar="N",
            help="Number of tasks that run at a time. Default: one per CPU.",
        ),
    ] = None
    time_limit: Annotated[
        float | None,
        typer.Option("--time-limit", min=0.001, metavar="SECONDS", help="Kill tasks that run longer."),
    ] = None
    soft_time_limit: Annotated[
        float | None,
        typer.Option(
            "--soft-time-limit",
            min=0.001,
            metavar="SECONDS",
            help="Raise SoftTimeLimitExceeded in tasks that run longer.",
        ),
    ] = None
    prefetch_multiplier: Annotated[
        int | None,
        typer.Option(
            "--prefetch-multiplier",
            min=1,
            metavar="N",
            help="Tasks to prefetch, per running one.",
        ),
    ] = None
    max_tasks_per_child: Annotated[
        int | None,
        typer.Option(
            "--max-tasks-per-child", min=1, metavar="N", help="Replace a pool process after N tasks."
        ),
    ] = None
    heartbeat_interval: Annotated[
        float | None,
        typer.Option("--heartbeat-interval", min=0.1, metavar="SECONDS", help="Interval of heartbeats."),
    ] = None
    statedb: Annotated[
        str | None,
        typer.Option(
            "--statedb",
            "-S",
            metavar="FILE",
            help="File that keeps the clock and the revoked tasks over restarts.",
        ),
    ] = None
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="COMMANDS",
            help="Control commands to accept as well, such as shutdown. Repeatable.",
        ),
    ] = None

    def settings(self) -> dict[str, Any]:
        """Return what was given, as settings."""
        given = {
            "worker_concurrency": self.concurrency,
            "worker_state_db": self.statedb,
            "task_time_limit": self.time_limit,
            "task_soft_time_limit": self.soft_time_limit,
            "worker_prefetch_multiplier": self.prefetch_multiplier,
            "worker_max_tasks_per_child": self.max_tasks_per_child,
            "worker_heartbeat_interval": self.heartbeat_interval,
            "control_allow": _names(self.allow) or None,
        }
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class Node:
    """The node in its cluster."""

    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queues",
            "-Q",
            metavar="QUEUES",
            rich_help_panel=_NODE,
            help="Queues to consume from. Repeatable, or separated by commas.",
        ),
    ] = None
    hostname: Annotated[
        str,
        typer.Option(
            "--hostname",
            "-n",
            metavar="NAME",
            rich_help_panel=_NODE,
            help="Node name. %h: host name, %n: its first part, %d: the rest.",
        ),
    ] = "celery@%h"
    task_events: Annotated[
        bool,
        typer.Option("--task-events", "-E", rich_help_panel=_NODE, help="Send task events, for monitors."),
    ] = False
    without_mingle: Annotated[
        bool, typer.Option("--without-mingle", rich_help_panel=_NODE, help="Skip mingle at startup.")
    ] = False
    without_gossip: Annotated[
        bool,
        typer.Option(
            "--without-gossip", rich_help_panel=_NODE, help="Do not subscribe to events of other workers."
        ),
    ] = False
    without_heartbeat: Annotated[
        bool, typer.Option("--without-heartbeat", rich_help_panel=_NODE, help="Do not send heartbeats.")
    ] = False

    @property
    def queue_names(self) -> tuple[str, ...]:
        """The queues that were named; none for the default one."""
        return _names(self.queues)


@dataclass(frozen=True)
class Log:
    """The log output."""

    loglevel: Annotated[Level, typer.Option("--loglevel", "-l", rich_help_panel=_LOG, help="Log level.")] = (
        Level.INFO
    )
    logfile: Annotated[
        Path | None,
        typer.Option(
            "--logfile",
            "-f",
            metavar="FILE",
            rich_help_panel=_LOG,
            help="Log file. Default: stderr.",
        ),
    ] = None


def _names(given: list[str] | None) -> tuple[str, ...]:
    names = tuple(name.strip() for each in given or () for name in each.split(",") if name.strip())
    if given and not names:
        raise CallerError("No name is given. Write names separated by commas")
    return names
