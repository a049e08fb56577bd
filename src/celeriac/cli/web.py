"""``celeriac web``: the dashboard and its API."""

import socket
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.log_reading import find_log
from celeriac.cli.session import Session
from celeriac.config.settings import LOG_FOLDER, WAREHOUSE_FOLDER
from celeriac.errors import CallerError, ImproperlyConfigured
from celeriac.masking import sanitize_url
from celeriac.model.election import Level
from celeriac.node.history import redactor_of
from celeriac.node.stop_signals import stop_command
from celeriac.store.audit import Audit
from celeriac.store.recorder_status import read_statuses

if TYPE_CHECKING:
    from uvicorn import Server

    from celeriac.app import Celeriac
    from celeriac.node.event_enabler import EventEnabler
    from celeriac.node.replay import Replay
    from celeriac.web.board import Board

__all__ = ["not_served", "shown", "web"]

#: A number that nothing else is known to use.
PORT: Final = 8765
#: Tasks to have in memory where no setting says it: some 200 MB. People look for one of this morning, too.
_MOST_TASKS: Final = 100_000

Host = Annotated[
    str,
    typer.Option(
        "--host", metavar="ADDRESS", help="Address to listen on. Any but this machine's own needs --accounts."
    ),
]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 for a free one.")]
Log = Annotated[
    str | None,
    typer.Option(
        "--log",
        metavar="URL",
        help=f"Event log. Default: the setting log_url, {LOG_FOLDER}, if there is one.",
    ),
]
Tables = Annotated[
    str | None,
    typer.Option(
        "--warehouse", metavar="URL", help=f"Tables. Default: the setting warehouse_url, {WAREHOUSE_FOLDER}."
    ),
]
Accounts = Annotated[
    Path | None,
    typer.Option(
        "--accounts", metavar="FILE", help="Accounts file, made by celeriac access add. Default: no login."
    ),
]
AllowedHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-host",
        metavar="NAME",
        help="Additional allowed Host header, e.g. behind a proxy. Repeatable.",
    ),
]
TrustedProxy = Annotated[
    list[str] | None,
    typer.Option(
        "--trusted-proxy",
        metavar="ADDRESS",
        help="Take client addresses from X-Forwarded-For of this proxy: an address, or a network in "
        "CIDR notation. Repeatable. Default: none.",
    ),
]

AllowControl = Annotated[
    bool,
    typer.Option("--allow-control", help="Enable actions: revoke and retry tasks, control workers."),
]
EnableEvents = Annotated[
    bool,
    typer.Option(
        "--enable-events", help="Turn on task events of all workers, at start and when a worker joins."
    ),
]
AuditFile = Annotated[
    Path,
    typer.Option(
        "--audit",
        metavar="FILE",
        help="Audit log: one JSON line per action. Required writable by --allow-control.",
    ),
]


def web(
    session: Session,
    *,
    host: Host = "127.0.0.1",
    port: Port = PORT,
    log: Log = None,
    warehouse: Tables = None,
    accounts: Accounts = None,
    allowed_host: AllowedHost = None,
    trusted_proxy: TrustedProxy = None,
    allow_control: AllowControl = False,
    enable_events: EnableEvents = False,
    audit: AuditFile = Path("celeriac-audit.jsonl"),
) -> Code:
    """Serve the dashboard, the HTTP API and Prometheus metrics, until Ctrl-C or SIGTERM.

    Read-only without --allow-control. The API is at /api/v1, described by /api/v1/openapi.json. With an
    event log (celeriac record) the dashboard shows any time of the past; with tables (celeriac pipeline
    run) it shows months of history.

    For example:
      celeriac web --broker redis://127.0.0.1:6379/0
      celeriac web --port 8080 --log /var/lib/celeriac/log
      celeriac web --host 0.0.0.0 --accounts accounts.json --allowed-host tasks.example.com
    """
    try:
        from celeriac.web.access import Access  # noqa: PLC0415  (needs the extra)
        from celeriac.web.action import Actions  # noqa: PLC0415
        from celeriac.web.connection import ConnectionLimits  # noqa: PLC0415
        from celeriac.web.pages.mount import add_pages  # noqa: PLC0415
        from celeriac.web.proxy import TrustedProxies  # noqa: PLC0415
        from celeriac.web.server import check_address, hosts_of, make_app, make_server  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ImproperlyConfigured(
            f"the dashboard needs {error.name}, which is not installed: pip install 'celeriac[web]'"
        ) from error
    access = Access(file=accounts, allow_control=allow_control)
    check_address(host, access)
    limits = ConnectionLimits(proxies=TrustedProxies(trusted_proxy or ()))
    noted = Audit(audit)
    if allow_control:
        noted.check()
    if session.app.conf.sources()["max_tasks_in_memory"] == "default":
        session.app.configure(max_tasks_in_memory=_MOST_TASKS)
    with ExitStack() as stack:
        link = stack.enter_context(_listening(host, port))
        board = _board(session.app, stack, log=log, warehouse=warehouse)
        if enable_events:
            stack.enter_context(_event_enabler(session.app, board))
        address = f"http://{shown(host)}:{link.getsockname()[1]}"
        broker = sanitize_url(session.app.conf.broker_url)
        served = f"served at {address} (API: {address}/api/v1)"
        output.say(f"watching {broker}, {served}; stop with {stop_command()}")
        actions = Actions(board, session.app.control, noted, send=session.app.send_task)
        allowed = actions if allow_control else None
        app = make_app(board, access, allowed, hosts=hosts_of(host, allowed_host or ()))
        add_pages(app, board, access, allowed)
        _serve(make_server(app, limits), board, link)
    return Code.OK


def _event_enabler(app: "Celeriac", board: "Board") -> "EventEnabler":
    from celeriac.node.event_enabler import EventEnabler  # noqa: PLC0415 - not for --help

    return EventEnabler(app.control, board.watcher.presences)


def _serve(server: "Server", board: "Board", link: socket.socket) -> None:
    """Serve until a signal comes, or no events do any more: raises what keeps them from it."""

    def end() -> None:
        server.should_exit = True

    # What is shown would grow old, and nobody would know.
    board.watcher.on_end = end
    board.watcher.check()  # it may have ended before there was anybody to tell
    server.run(sockets=[link])
    board.watcher.check()


def _board(app: "Celeriac", stack: ExitStack, *, log: str | None, warehouse: str | None) -> "Board":
    from celeriac.history import Warehouse  # noqa: PLC0415  (needs the extra)
    from celeriac.node.queues import QueueLengths  # noqa: PLC0415
    from celeriac.node.watcher import Watcher  # noqa: PLC0415
    from celeriac.node.worker_setup import ask_setup  # noqa: PLC0415
    from celeriac.web.board import Board  # noqa: PLC0415

    found = find_log(app, log)
    place, is_kept = found or app.conf.log_url, found is not None

    def replay(since: float, until: float) -> "Replay":
        return app.history.replay(place, since=since, until=until)

    watcher = Watcher(
        app.events,
        hostname=app.hostname,
        redactor=redactor_of(app.conf),
        log=app.history.log(place) if is_kept else None,
        settle=1.0 + 2 * app.conf.log_sync_interval,
    )
    queues = QueueLengths(app.connection, app.control, watcher.state, default=app.conf.task_default_queue)
    board = Board(
        watcher,
        queues=queues,
        recorders=lambda: read_statuses(app.history.spool(place)) if is_kept else [],
        queue_trouble=lambda: queues.trouble,
        ask_setup=partial(ask_setup, app.control),
        replay=replay if is_kept else None,
        warehouse=Warehouse(warehouse or app.conf.warehouse_url, log=place),
        arbiter=lambda: app.arbiter,
        min_level=Level[app.conf.election_min_level],
        now=time,
    )
    stack.callback(app.close)
    stack.callback(board.close)
    stack.callback(queues.close)
    stack.enter_context(watcher).wait()
    return board


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        link = socket.create_server(address[:2], family=family)
        # asyncio does so only for sockets that say by themselves that they are of TCP, and without it every
        # answer after the first of a link waits 40 ms for the other side to acknowledge its head.
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise not_served(f"{host}:{port}", error) from None
    return link


def not_served(where: str, error: OSError) -> CallerError:
    """Return the error for an address that cannot be listened on."""
    return CallerError(f"Cannot listen on {where}: {error.strerror or error}. Use another --host or --port")


def shown(host: str) -> str:
    """Return a host as it stands in the address that people are told."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - is compared
        # Everywhere is no place to ask at; under this name it is allowed to be asked for.
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
