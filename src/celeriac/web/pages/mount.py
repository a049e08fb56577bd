"""Puts the pages before the API. NiceGUI has one app for each process, and so has the dashboard."""

import logging
import re
from collections import Counter
from contextlib import suppress
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from jinja2.ext import Extension
from nicegui import Client, ui
from nicegui import app as pages
from nicegui.client import templates
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from celeriac.node.rate_limited_log import RateLimitedLog
from celeriac.views.text import visible
from celeriac.web.access import Access
from celeriac.web.action import Actions
from celeriac.web.board import Board
from celeriac.web.guard import owner_of
from celeriac.web.pages import cluster, history, overview, task, tasks, worker, workers, workflow
from celeriac.web.pages.frame import frame
from celeriac.web.pages.part import empty
from celeriac.web.pages.socket import keep_links_apart
from celeriac.web.pages.visit import Desk

__all__ = ["add_pages"]

logger = logging.getLogger(__name__)

#: All of them: a page is there once its module is loaded.
PAGES: Final = (overview, tasks, workers, worker, cluster, history, task, workflow)
#: Pages that are open at once, some 0.4 MB each: in all, and of one user or address.
_MOST_OPEN: Final = 500
_MOST_OF_OWNER: Final = 100
#: WebSockets of one user or address: one for each page, and one that a browser that reconnects has left.
_MAX_SOCKETS_OF_OWNER: Final = 2 * _MOST_OF_OWNER
#: Seconds until a page that no browser has connected to makes room for others, if they need it.
_CONNECT_SECONDS: Final = 10.0
#: Paths at which there is no page: what a page is made of.
_ASSETS: Final = ("/_nicegui/", "/_nicegui_ws/")
#: How the messages of a page begin: with a type of Engine.IO, to close, to answer a ping, or for Socket.IO.
_PACKETS: Final = ("1", "3", "4")
#: The beginning of a script in a template, and the nonce there.
_SCRIPT: Final = re.compile(r"<script(?=[\s>])")
_NONCE: Final = "{{ request.scope['celeriac.nonce'] }}"
#: What is shown beside the name of a page in a browser: a root.
_ICON: Final = (
    '<svg viewBox="0 0 32 32" xmlns="http://www.w3.org/2000/svg">'
    '<circle cx="16" cy="18" r="10" fill="#2f9e44"/>'
    '<path d="M16 9c-1-4-4-6-7-7m7 7c1-4 4-6 7-7m-7 7V2" stroke="#2f9e44" stroke-width="2" fill="none"/>'
    "</svg>"
)


class _ScriptNonce(Extension):
    """Gives the nonce to the scripts of NiceGUI's template itself, and to none that is rendered into it."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:  # noqa: ARG002
        """Mark the scripts of a template before anything is rendered into it."""
        return _SCRIPT.sub(f'<script nonce="{_NONCE}"', source)


templates.env.add_extension(_ScriptNonce)


class _CompressedAssets(GZipMiddleware):
    """Compresses scripts and styles, which are megabytes; not pages, which have secrets in them."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_asset = scope["type"] == "http" and scope["path"].startswith("/_nicegui/")
        await (super().__call__ if is_asset else self.app)(scope, receive, send)


class _Room:
    """Opens no page or WebSocket for an owner who has too many, and no page where too many are open."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        #: The number of open WebSockets of each owner.
        self._sockets: Counter[str] = Counter()
        self._log = RateLimitedLog(logger)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._connect(scope, receive, send)
            return
        is_page = scope["type"] == "http" and not scope["path"].startswith(_ASSETS)
        app = _FULL if is_page and not _has_room(owner_of(HTTPConnection(scope))) else self._app
        await app(scope, receive, send)

    async def _connect(self, scope: Scope, receive: Receive, send: Send) -> None:
        owner = owner_of(HTTPConnection(scope))
        if self._sockets[owner] >= _MAX_SOCKETS_OF_OWNER:
            text = "web: refused a WebSocket of %s with 503: %d are open"
            self._log.write(logging.WARNING, "full", text, owner, self._sockets[owner])
            await _FULL(scope, receive, send)
            return

        async def receive_packet() -> Message:
            message = await receive()
            if message["type"] != "websocket.receive" or (message.get("text") or "").startswith(_PACKETS):
                return message
            self._log_closed(owner, "unexpected message")
            return {"type": "websocket.disconnect", "code": 1008}

        self._sockets[owner] += 1
        try:
            await self._app(scope, receive_packet, send)
        except OSError:  # the client is gone
            raise
        except Exception as error:  # noqa: BLE001 - of a message that Engine.IO cannot read
            self._log_closed(owner, visible(f"{type(error).__name__}: {error}"))
            with suppress(Exception):
                await send({"type": "websocket.close", "code": 1008})
        finally:
            self._sockets[owner] -= 1
            if not self._sockets[owner]:
                del self._sockets[owner]

    def _log_closed(self, owner: str, reason: str) -> None:
        self._log.write(logging.WARNING, "socket", "web: closed a WebSocket of %s: %s", owner, reason)


def _has_room(owner: str) -> bool:
    if _is_full(owner):
        Client.prune_instances(client_age_threshold=_CONNECT_SECONDS)
    return not _is_full(owner)


def _is_full(owner: str) -> bool:
    owners = [owner_of(client.request) for client in Client.instances.values()]
    return len(owners) >= _MOST_OPEN or owners.count(owner) >= _MOST_OF_OWNER


_FULL: Final = PlainTextResponse("Too many open pages. Close some, or try again in a minute.\n", 503)


@pages.exception_handler(404)
async def _missing(request: Request, _: Exception) -> Response:
    if "text/html" not in request.headers.get("accept", ""):
        # A page costs far more than this, and browsers ask for icons and maps by themselves.
        return PlainTextResponse("Page not found.\n", 404)
    text = "Check the URL, or use the links above."
    return _instead(request, 404, "Page not found", text)


@pages.exception_handler(RequestValidationError)
async def _unreadable(request: Request, error: RequestValidationError) -> Response:
    parts = sorted({str(each["loc"][-1]) for each in error.errors()})
    text = f"Invalid URL parameter: {', '.join(parts)}"
    if "text/html" not in request.headers.get("accept", ""):
        return PlainTextResponse(f"{text}\n", 422)
    return _instead(request, 422, "Invalid URL", text)


def _instead(request: Request, status: int, title: str, text: str) -> Response:
    """Return a page that says why the one that was asked for is not shown."""
    with Client(ui.page(""), request=request) as client, frame(request, title) as visit:
        empty(text)
        ui.link("Open Overview", visit.link("/"))
    return client.build_response(request, status)


def add_pages(app: FastAPI, board: Board, access: Access, actions: Actions | None) -> None:
    """Serve the pages with the API, from the same guard."""
    pages.state.desk = Desk(board, access, actions)
    # The guard lets nobody post without leave to act, and a page needs no other way than this.
    pages.config.socket_io_js_transports = ["websocket"]
    keep_links_apart(access)
    pages.add_middleware(_Room)
    # Its bar says that something is loaded, which here is the case all the time.
    pages.config.quasar_config["loadingBar"]["skipHijack"] = True
    ui.run_with(
        app,
        title="Celeriac",
        favicon=_ICON,
        dark=None,
        language="en-US",
        tailwind=False,
        binding_refresh_interval=None,
        # A laptop that was closed for a while takes up its page where it was.
        reconnect_timeout=30.0,
        message_history_length=100,
        gzip_middleware_factory=_CompressedAssets,
        show_welcome_message=False,
    )
