"""``celeriac worker``: a node that runs tasks."""

import os
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

import celeriac
from celeriac.cli import output
from celeriac.cli.app_option import load_own
from celeriac.cli.exit import Code
from celeriac.cli.session import Session
from celeriac.cli.worker_log import logging_to
from celeriac.cli.worker_option import Log, Node, PoolName, Tuning
from celeriac.errors import ImproperlyConfigured
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


PoolOption = Annotated[
    PoolName,
    typer.Option(
        "--pool",
        "-P",
        help="Pool: processes can be killed, threads are lighter, gevent is for thousands of waiting tasks, "
        "solo runs one at a time.",
    ),
]
ShowGraph = Annotated[bool, typer.Option("--graph", help="Print the boot steps in order, and exit.")]
_NODE: Final = Node()
_TUNING: Final = Tuning()
_LOG: Final = Log()


def worker(
    session: Session,
    *,
    pool: PoolOption = PoolName.PROCESSES,
    graph: ShowGraph = False,
    tuning: Tuning = _TUNING,
    node: Node = _NODE,
    log: Log = _LOG,
) -> Code:
    """Run the tasks of an app, in one cluster with workers of Celery. -A names the app, as MODULE:APP.

    Ctrl-C or SIGTERM: warm shutdown, running tasks finish first. Twice: cold shutdown, running tasks
    return to their queues.

    For example:
      celeriac worker -A shop.tasks:app
      celeriac worker -A shop.tasks:app -P threads -c 20 -Q mail,reports -n mail@%h -E
      celeriac worker -A shop.tasks:app --graph
    """
    if pool is PoolName.GEVENT:
        _begin_patched()
    place = session.app_name or ""
    app = load_own(place, "worker")
    given = tuning.settings() | ({"broker_url": session.broker} if session.broker else {})
    # Else a module that uses its app while it is imported is fine.
    if given:
        app.configure(**given)
    made = app.Worker(
        node_name(node.hostname),
        pool=pool.value,
        place=place,
        queues=node.queue_names,
        task_events=node.task_events or None,
        without_mingle=node.without_mingle,
        without_gossip=node.without_gossip,
        without_heartbeat=node.without_heartbeat,
    )
    if graph:
        output.write(made.graph.text())
        return Code.OK
    with logging_to(log.logfile, level="debug" if session.is_debug else log.loglevel.value):
        for line in banner(app, made):
            output.say(line)
        made.run()
        app.close()
    return Code.OK


def banner(app: "Celeriac", made: "Worker") -> list[str]:
    """Return the lines that a worker shows at its start."""
    conf = app.conf
    names = sorted(app.tasks)
    shown = ", ".join(names[:_MOST_TASKS]) + (
        f" and {len(names) - _MOST_TASKS} more" if names[_MOST_TASKS:] else ""
    )
    is_wide = not made.parts.events.dispatcher.groups
    rows = {
        "broker": sanitize_url(conf.broker_url),
        "results": sanitize_url(conf.result_backend) if conf.result_backend else "disabled",
        "pool": f"{made.pool.name}, {made.pool.size} at a time",
        "queues": ", ".join(made.tasks.queues),
        "events": "worker and task events" if is_wide else "worker events; -E adds task events",
        "commands": ", ".join(conf.control_allow)
        or "inspect, revoke, elections, events; --allow adds others",
        "state": conf.worker_state_db or "in memory; --statedb FILE keeps it over restarts",
        "tasks": shown or "none: import the modules that define them in the module of the app",
    }
    return [
        f"celeriac {celeriac.__version__}, worker {made.hostname}, process {os.getpid()}",
        *(f"  {name:<9} {visible(text, _ROW_CHARS)}" for name, text in rows.items()),
    ]


def _begin_patched() -> None:
    """Begin anew with everything patched: what was imported by now holds on to what was there before."""
    try:
        from gevent.monkey import is_module_patched  # noqa: PLC0415 - only who wants greenlets has it
    except ImportError as error:
        raise ImproperlyConfigured(
            "gevent is not installed. Install it: pip install 'celeriac[gevent]'"
        ) from error
    if not is_module_patched("socket"):
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-c", _BEGIN_PATCHED, *sys.argv[1:]])  # noqa: S606
