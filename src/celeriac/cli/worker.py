"""``celeriac worker``: a node that runs tasks."""

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import celeriac
from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.session import Session
from celeriac.cli.worker_log import LEVELS, logging_to
from celeriac.errors import CallerError, CeleriacError, ImproperlyConfigured
from celeriac.masking import sanitize_url
from celeriac.node.identity import node_name
from celeriac.views.text import visible

if TYPE_CHECKING:
    from celeriac.app import Celeriac
    from celeriac.worker.worker import Worker

__all__ = ["worker"]

_BEGIN_PATCHED: Final = (
    "from gevent.monkey import patch_all; patch_all(); from celeriac.cli import main; main()"
)
_MOST_TASKS: Final = 20
#: So many names, or a URL, and still a row.
_ROW_CHARS: Final = 900


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


Place = Annotated[
    str,
    typer.Option(
        "--app",
        "-A",
        metavar="MODULE:APP",
        show_default=False,
        help="Where the app with the tasks is, such as shop.tasks:app.",
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option("--concurrency", "-c", min=1, metavar="N", help="Tasks at a time; else one per processor."),
]
PoolOption = Annotated[
    PoolName,
    typer.Option(
        "--pool",
        "-P",
        help="How tasks run: processes can be killed, threads are lighter, gevent is for thousands that "
        "wait, solo runs one at a time.",
    ),
]
Queues = Annotated[
    list[str] | None,
    typer.Option(
        "--queues",
        "-Q",
        metavar="QUEUES",
        help="Queues to take tasks from, several times or parted by commas.",
    ),
]
NodeName = Annotated[
    str,
    typer.Option(
        "--hostname",
        "-n",
        metavar="NAME",
        help="The name of this node; %h is the host, %n its first part, %d the rest.",
    ),
]
TaskEvents = Annotated[
    bool, typer.Option("--task-events", "-E", help="Send events of tasks, for who watches.")
]
LogLevel = Annotated[Level, typer.Option("--loglevel", "-l", help="What is worth a line of log.")]
LogFile = Annotated[
    Path | None, typer.Option("--logfile", "-f", metavar="FILE", help="Write the log there, not to stderr.")
]
StateDb = Annotated[
    str | None,
    typer.Option(
        "--statedb", "-S", metavar="FILE", help="Keep the clock and the revoked tasks there over restarts."
    ),
]
TimeLimit = Annotated[
    float | None,
    typer.Option("--time-limit", min=0.001, metavar="SECONDS", help="End tasks that take longer than this."),
]
SoftTimeLimit = Annotated[
    float | None,
    typer.Option("--soft-time-limit", min=0.001, metavar="SECONDS", help="Warn tasks that take longer."),
]
Prefetch = Annotated[
    int | None,
    typer.Option(
        "--prefetch-multiplier", min=1, metavar="N", help="Tasks taken ahead, for each that runs at a time."
    ),
]
MaxTasks = Annotated[
    int | None,
    typer.Option("--max-tasks-per-child", min=1, metavar="N", help="Replace a process after so many tasks."),
]
Heartbeat = Annotated[
    float | None,
    typer.Option("--heartbeat-interval", min=0.1, metavar="SECONDS", help="How often to send a heartbeat."),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="COMMANDS",
        help="Commands to obey beyond those that only ask, and revoke: such as terminate,shutdown,pool_grow.",
    ),
]
WithoutMingle = Annotated[bool, typer.Option("--without-mingle", help="Ask no neighbours at start.")]
WithoutGossip = Annotated[bool, typer.Option("--without-gossip", help="Do not listen to other workers.")]
WithoutHeartbeat = Annotated[bool, typer.Option("--without-heartbeat", help="Send no heartbeats.")]
ShowGraph = Annotated[bool, typer.Option("--graph", help="Print the steps of the worker in order, and end.")]


def worker(
    session: Session,
    *,
    place: Place,
    concurrency: Concurrency = None,
    pool: PoolOption = PoolName.PROCESSES,
    queues: Queues = None,
    hostname: NodeName = "celery@%h",
    task_events: TaskEvents = False,
    loglevel: LogLevel = Level.INFO,
    logfile: LogFile = None,
    statedb: StateDb = None,
    time_limit: TimeLimit = None,
    soft_time_limit: SoftTimeLimit = None,
    prefetch_multiplier: Prefetch = None,
    max_tasks_per_child: MaxTasks = None,
    heartbeat_interval: Heartbeat = None,
    allow: Allow = None,
    without_mingle: WithoutMingle = False,
    without_gossip: WithoutGossip = False,
    without_heartbeat: WithoutHeartbeat = False,
    graph: ShowGraph = False,
) -> Code:
    """Run tasks from queues, in one cluster with workers of Celery.

    Ctrl-C or SIGTERM once: takes no more tasks, and ends when those that run have ended. Twice:
    ends now, and the tasks that ran go back to their queues.

    For example:
      celeriac worker -A shop.tasks:app
      celeriac worker -A shop.tasks:app -P threads -c 20 -Q mail,reports -n mail@%h -E
      celeriac worker -A shop.tasks:app --graph
    """
    if pool is PoolName.GEVENT:
        _begin_patched()
    app = _load(place)
    given = _given(
        broker_url=session.broker,
        worker_concurrency=concurrency,
        worker_state_db=statedb,
        task_time_limit=time_limit,
        task_soft_time_limit=soft_time_limit,
        worker_prefetch_multiplier=prefetch_multiplier,
        worker_max_tasks_per_child=max_tasks_per_child,
        worker_heartbeat_interval=heartbeat_interval,
        control_allow=_names(allow) or None,
    )
    # Else a module that uses its app while it is imported is fine.
    if given:
        app.configure(**given)
    made = app.Worker(
        node_name(hostname),
        pool=pool.value,
        place=place,
        queues=_names(queues),
        task_events=task_events or None,
        without_mingle=without_mingle,
        without_gossip=without_gossip,
        without_heartbeat=without_heartbeat,
    )
    if graph:
        output.write(made.graph.text())
        return Code.OK
    with logging_to(logfile, level="debug" if session.is_debug else loglevel.value):
        for line in banner(app, made):
            output.say(line)
        made.run()
        app.close()
    return Code.OK


def banner(app: "Celeriac", made: "Worker") -> list[str]:
    """Return what a worker says of itself when it starts."""
    conf = app.conf
    names = sorted(app.tasks)
    shown = ", ".join(names[:_MOST_TASKS]) + (
        f" and {len(names) - _MOST_TASKS} more" if names[_MOST_TASKS:] else ""
    )
    is_wide = not made.parts.events.dispatcher.groups
    rows = {
        "broker": sanitize_url(conf.broker_url),
        "results": sanitize_url(conf.result_backend) if conf.result_backend else "not kept",
        "pool": f"{made.pool.name}, {made.pool.size} at a time",
        "queues": ", ".join(made.tasks.queues),
        "events": "of workers and tasks" if is_wide else "of workers; -E sends those of tasks too",
        "commands": ", ".join(conf.control_allow) or "questions and revoke; --allow names others to obey",
        "state": conf.worker_state_db or "forgotten at the end; --statedb FILE keeps it",
        "tasks": shown or "none: import the modules that define them where the app is",
    }
    return [
        f"celeriac {celeriac.__version__}, worker {made.hostname}, process {os.getpid()}",
        *(f"  {name:<9} {visible(text, _ROW_CHARS)}" for name, text in rows.items()),
    ]


def _load(place: str) -> "Celeriac":
    from celeriac.app import Celeriac  # noqa: PLC0415 - loads the ways to every broker
    from celeriac.worker.pool.child import load_app  # noqa: PLC0415

    # As for any program: modules are looked for where it was started.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        app = load_app(place)
    except CeleriacError:
        raise
    except Exception as error:
        raise ImproperlyConfigured(_why_not_loaded(place, error)) from error
    if not isinstance(app, Celeriac):
        raise ImproperlyConfigured(
            f"{place!r} is a {type(app).__name__}, not a Celeriac app: name the one that has the tasks"
        )
    return app


def _why_not_loaded(place: str, error: Exception) -> str:
    module = place.partition(":")[0]
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing is not None and f"{module}.".startswith(f"{missing}."):
        return f"there is no module {missing!r}: start the worker where it is, or mend --app"
    # Not ours to mend, and not that of --app: what it says itself is the way to it.
    return f"{module} cannot be imported, {type(error).__name__}: {error}; --debug shows where"


def _begin_patched() -> None:
    """Begin anew with everything patched: what was imported by now holds on to what was there before."""
    try:
        from gevent.monkey import is_module_patched  # noqa: PLC0415 - only who wants greenlets has it
    except ImportError as error:
        raise ImproperlyConfigured("gevent is not installed: pip install 'celeriac[gevent]'") from error
    if not is_module_patched("socket"):
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-c", _BEGIN_PATCHED, *sys.argv[1:]])  # noqa: S606


def _given(**settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _names(given: list[str] | None) -> tuple[str, ...]:
    names = tuple(name.strip() for each in given or () for name in each.split(",") if name.strip())
    if given and not names:
        raise CallerError("no name is given: write them parted by commas")
    return names
