"""The options of ``celeriac worker``."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from celeriac.cli.worker_log import LEVELS
from celeriac.errors import CallerError

__all__ = ["Log", "Node", "PoolName", "Tuning"]

_NODE: Final = "The node"
_LOG: Final = "Log"


class PoolName(StrEnum):
    """The ways to run tasks side by side."""

    PROCESSES = "processes"
    THREADS = "threads"
    SOLO = "solo"
    GEVENT = "gevent"


class Level(StrEnum):
    """What is worth a line of log."""

    DEBUG = LEVELS[0]
    INFO = LEVELS[1]
    WARNING = LEVELS[2]
    ERROR = LEVELS[3]
    CRITICAL = LEVELS[4]


@dataclass(frozen=True)
class Tuning:
    """What outweighs the settings of the app."""

    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency", "-c", min=1, metavar="N", help="Tasks at a time; else one per processor."
        ),
    ] = None
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit", min=0.001, metavar="SECONDS", help="End tasks that take longer than this."
        ),
    ] = None
    soft_time_limit: Annotated[
        float | None,
        typer.Option("--soft-time-limit", min=0.001, metavar="SECONDS", help="Warn tasks that take longer."),
    ] = None
    prefetch_multiplier: Annotated[
        int | None,
        typer.Option(
            "--prefetch-multiplier",
            min=1,
            metavar="N",
            help="Tasks taken ahead, for each that runs at a time.",
        ),
    ] = None
    max_tasks_per_child: Annotated[
        int | None,
        typer.Option(
            "--max-tasks-per-child", min=1, metavar="N", help="Replace a process after so many tasks."
        ),
    ] = None
    heartbeat_interval: Annotated[
        float | None,
        typer.Option(
            "--heartbeat-interval", min=0.1, metavar="SECONDS", help="How often to send a heartbeat."
        ),
    ] = None
    statedb: Annotated[
        str | None,
        typer.Option(
            "--statedb",
            "-S",
            metavar="FILE",
            help="Keep the clock and the revoked tasks there over restarts.",
        ),
    ] = None
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="COMMANDS",
            help="Obey these commands beyond questions, revoke, elections and events, such as shutdown.",
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
    """What the worker is in its cluster."""

    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queues",
            "-Q",
            metavar="QUEUES",
            rich_help_panel=_NODE,
            help="Queues to take tasks from, several times or parted by commas.",
        ),
    ] = None
    hostname: Annotated[
        str,
        typer.Option(
            "--hostname",
            "-n",
            metavar="NAME",
            rich_help_panel=_NODE,
            help="The name of this node; %h is the host, %n its first part, %d the rest.",
        ),
    ] = "celery@%h"
    task_events: Annotated[
        bool,
        typer.Option(
            "--task-events", "-E", rich_help_panel=_NODE, help="Send events of tasks, for who watches."
        ),
    ] = False
    without_mingle: Annotated[
        bool, typer.Option("--without-mingle", rich_help_panel=_NODE, help="Ask no neighbours at start.")
    ] = False
    without_gossip: Annotated[
        bool, typer.Option("--without-gossip", rich_help_panel=_NODE, help="Do not listen to other workers.")
    ] = False
    without_heartbeat: Annotated[
        bool, typer.Option("--without-heartbeat", rich_help_panel=_NODE, help="Send no heartbeats.")
    ] = False

    @property
    def queue_names(self) -> tuple[str, ...]:
        """The queues that were named; none for the default one."""
        return _names(self.queues)


@dataclass(frozen=True)
class Log:
    """Where the log goes, and what of it."""

    loglevel: Annotated[
        Level, typer.Option("--loglevel", "-l", rich_help_panel=_LOG, help="What is worth a line of log.")
    ] = Level.INFO
    logfile: Annotated[
        Path | None,
        typer.Option(
            "--logfile",
            "-f",
            metavar="FILE",
            rich_help_panel=_LOG,
            help="Write the log there, not to stderr.",
        ),
    ] = None


def _names(given: list[str] | None) -> tuple[str, ...]:
    names = tuple(name.strip() for each in given or () for name in each.split(",") if name.strip())
    if given and not names:
        raise CallerError("no name is given: write them parted by commas")
    return names
