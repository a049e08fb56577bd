"""Puts the dashboard together, and serves it."""

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from ipaddress import ip_address
from itertools import takewhile
from pathlib import Path
from typing import Final

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles
from starlette.routing import Match

from celeriac.errors import CallerError, CeleriacError
from celeriac.node.stop_signals import stop_signals
from celeriac.views.text import visible
from celeriac.web import login, metrics
from celeriac.web.access import Access
from celeriac.web.action import Actions
from celeriac.web.api import cluster, control, history, stream, tasks
from celeriac.web.api.part import Problem, Unknown
from celeriac.web.board import Board
from celeriac.web.connection import MAX_HEAD_BYTES, ConnectionLimits, bounded_protocols, limited_server_log
from celeriac.web.guard import Guard

__all__ = ["API", "check_address", "hosts_of", "make_app", "make_server"]

API: Final = "/api/v1"
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
_STATIC: Final = Path(__file__).parent / "static"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
#: How long requests that are under way may take to end.
_PATIENCE: Final = 3
#: Of a message from a browser: most have some hundred bytes, and one that chooses all rows of a page up to
#: 500,000. Each connection may hold as much in memory.
MAX_MESSAGE_BYTES: Final = 512 * 1024


def make_app(
    board: Board,
    access: Access,
    actions: Actions | None = None,
    *,
    hosts: Iterable[str] = _LOOPBACK,
    keep_alive: float = stream.KEEP_ALIVE,
) -> FastAPI:
    """Return the dashboard: all that it serves, behind its guard. Without ``actions`` nobody can act.

    A stream of events is silent for ``keep_alive`` seconds at the most.
    """
    app = FastAPI(
        title="Celeriac",
        version=version("celeriac"),
        description="Tasks, workers and history of a Celery cluster.",
        openapi_url=f"{API}/openapi.json",
        # Their pages are made of scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
    )
    app.state.board, app.state.access, app.state.actions = board, access, actions
    app.state.keep_alive = keep_alive
    for part in (tasks.router, cluster.router, history.router, stream.router, control.router):
        app.include_router(part, prefix=API, responses={400: {"model": Problem}, 503: {"model": Problem}})
    app.include_router(login.router)
    app.include_router(metrics.router)
    app.add_exception_handler(CallerError, _refused)
    app.add_exception_handler(Unknown, _not_found)
    app.add_exception_handler(CeleriacError, _failed)
    app.add_exception_handler(RequestValidationError, _unreadable)

    @app.get("/healthz", include_in_schema=False)
    async def health() -> PlainTextResponse:
        """Check the event stream."""
        is_well = board.watcher.is_receiving
        return PlainTextResponse(
            "ok\n" if is_well else "disconnected from the broker\n", 200 if is_well else 503
        )

    app.add_api_route("/api/{path:path}", _nothing, methods=[*_METHODS], include_in_schema=False)

    app.mount("/static", StaticFiles(directory=_STATIC), name="static")
    app.add_middleware(Guard, access=access, hosts=[*hosts])
    return app


def _nothing(request: Request) -> JSONResponse:
    """Tell a program that there is nothing, or not so, before a page would tell it to a person."""
    before = [*takewhile(lambda route: getattr(route, "endpoint", None) is not _nothing, request.app.routes)]
    allowed = [
        method
        for method in _METHODS
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in before)
    ]
    if allowed:
        headers = {"Allow": ", ".join(allowed)}
        return JSONResponse(
            {"detail": f"Method not allowed. Use {' or '.join(allowed)}."}, 405, headers=headers
        )
    path = visible(request.scope["path"], 200)
    return JSONResponse({"detail": f"No such endpoint: {path}. See {API}/openapi.json"}, 404)


def _refused(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 400)


def _unreadable(_: Request, error: Exception) -> JSONResponse:
    """Say what is wrong with a request, without what it said: that may be long, or no text."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - is called for no other
    detail = [
        {
            "loc": [visible(part, 200) if isinstance(part, str) else part for part in each["loc"]],
            "msg": visible(each["msg"], 200),
            "type": each["type"],
        }
        for each in error.errors()
    ]
    return JSONResponse({"detail": detail}, 422)


def _not_found(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 404)


def _failed(_: Request, error: Exception) -> JSONResponse:
    """Answer for what is not there at the moment: a disk, a broker, the tables."""
    return JSONResponse({"detail": str(error)}, 503)


def check_address(host: str, access: Access) -> None:
    """Refuse to serve others than this machine without knowing who they are."""
    if access.is_open and not _is_loopback(host):
        raise CallerError(
            f"Cannot serve on {host} without accounts: other machines can connect to it. Add a user with "
            "celeriac access add FILE NAME and use --accounts FILE, or omit --host"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def hosts_of(host: str, allowed: Iterable[str]) -> list[str]:
    """Return the names under which it may be asked for."""
    own = [host] if host not in ("0.0.0.0", "::") else [socket.gethostname(), socket.getfqdn()]  # noqa: S104 - is compared
    return [*_LOOPBACK, *own, *allowed]


def make_server(app: FastAPI, limits: ConnectionLimits | None = None) -> uvicorn.Server:
    """Return what serves it, ``run(sockets=[…])``, until SIGINT or SIGTERM, or its ``should_exit`` is set."""
    limits = limits or ConnectionLimits()
    http, websocket = bounded_protocols(limits)
    proxies = limits.proxies.networks
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=_PATIENCE,
        http=http,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        ws=websocket,
        ws_max_size=MAX_MESSAGE_BYTES,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
    )
    return _Server(config)


class _Server(uvicorn.Server):
    """Stops on the signals that stop any program of ours; uvicorn's own handlers take ignored ones too."""

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until stopped."""
        with stop_signals(self.handle_exit), limited_server_log():
            super().run(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no handlers, and send no signal again at the end."""
        yield
