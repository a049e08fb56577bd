"""Stands before the dashboard: who may come in by which door, and what a browser may do with what it gets."""

import re
from collections.abc import Iterable
from secrets import token_urlsafe
from typing import Final
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from celeriac.errors import CallerError
from celeriac.web.access import ANYONE, Access, User
from celeriac.web.guess import run_guess
from celeriac.web.proxy import network_of

__all__ = ["COOKIE", "Guard", "address_of", "credential_of", "nonce_of", "owner_of", "user_of"]

#: What a browser shows once its user is logged in.
COOKIE: Final = "celeriac_login"
#: Methods that change nothing.
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
#: Methods by which a browser follows a link.
_LINK_METHODS: Final = frozenset({"GET", "HEAD"})
#: What a browser says of who has it ask, where that is the page of another site.
_ELSEWHERE: Final = ("cross-site", "same-site")
#: What somebody may ask for who is not let in yet.
_OPEN: Final = ("/login", "/healthz")
#: What is asked by programs, and so answered in JSON or text, and not with a page to log in.
_FOR_PROGRAMS: Final = ("/api/", "/metrics")
#: What has effects though it is no command to the cluster.
_HARMLESS: Final = ("/login", "/logout")
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    # Not "no-referrer": with that a browser says of its own forms that they come from nowhere.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
#: Pages are put together in the browser by Vue, which compiles its templates there: that takes eval, and
#: styles of elements. Scripts within the page run only with the nonce of the answer. Pages are made with it:
#: added to all scripts of a finished page, it would let injected ones run too.
_POLICY: Final = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'"
)
_HOST: Final = re.compile(r"[A-Za-z0-9.:_\[\]-]{1,300}")


def user_of(connection: HTTPConnection) -> User:
    """Return who asks; the guard let him in."""
    user: User = connection.scope["celeriac.user"]
    return user


def credential_of(connection: HTTPConnection) -> str | None:
    """Return the cookie or bearer token that a request was let in with; None without accounts."""
    credential: str | None = connection.scope.get("celeriac.credential")
    return credential


def owner_of(connection: HTTPConnection) -> str:
    """Return whose share of pages and streams a request uses: its user, or its network without accounts."""
    name = user_of(connection).name
    return network_of(address_of(connection)) if name == ANYONE else name


def nonce_of(connection: HTTPConnection) -> str:
    """Return the nonce that lets the scripts in a page run."""
    nonce: str = connection.scope["celeriac.nonce"]
    return nonce


class Guard:
    """An ASGI application before another.

    ``hosts`` are the names under which it is served. A page of another site that sends a browser here, under
    whatever name, is refused.
    """

    def __init__(self, app: ASGIApp, *, access: Access, hosts: Iterable[str]) -> None:
        self._app = app
        self._access = access
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let it through, or answer in its place."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refusal = self._refused(scope) or await self._unknown(scope)
        if refusal is None:
            refusal = self._forbidden(scope)
        answer = _Answer(scope, send) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send if answer is None else answer)
        elif answer is not None:
            await refusal(scope, receive, answer)
        else:
            # Closed before it is accepted, which a browser sees as a refusal.
            await receive()
            await send({"type": "websocket.close", "code": 1008})

    def _refused(self, scope: Scope) -> Response | None:
        """Refuse who asks for another host, or comes from the page of another site."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if _name_of(host) not in self._hosts:
            return PlainTextResponse("Host not allowed. Add it with --allowed-host.\n", 421)
        origin = headers.get("origin")
        is_safe = scope["type"] == "http" and scope["method"] in _SAFE
        if origin is not None and not is_safe and _site_of(origin) != host.lower():
            return PlainTextResponse("Cross-origin request refused.\n", 403)
        if headers.get("sec-fetch-site") in _ELSEWHERE and not _is_link(scope, headers):
            return PlainTextResponse("Cross-site request refused. Other sites may only link here.\n", 403)
        return None

    async def _unknown(self, scope: Scope) -> Response | None:
        """Find out who asks, and refuse somebody who does not say it."""
        connection = HTTPConnection(scope)
        # Not that of the URL, which some versions put together from what the browser says of the host.
        path = scope["path"]
        try:
            user = self._access.anyone() or await self._told(connection)
        except CallerError as error:
            return JSONResponse({"detail": str(error)}, 429)
        if user is not None:
            scope["celeriac.user"] = user
            return None
        if path in _OPEN:
            return None
        if path == "/logout":
            # The login ended before: in another tab, or by its age.
            return RedirectResponse("/login", 303)
        if scope["type"] == "http" and scope["method"] == "GET" and not path.startswith(_FOR_PROGRAMS):
            query = scope["query_string"].decode("ascii", "replace")
            target = scope["raw_path"].decode("ascii", "replace") + (f"?{query}" if query else "")
            return RedirectResponse(f"/login?next={quote(target, safe='/')}", 303)
        return JSONResponse(
            {"detail": "Authentication required. Send a bearer token, or log in."},
            401,
            headers={"WWW-Authenticate": "Bearer"},
        )

    async def _told(self, connection: HTTPConnection) -> User | None:
        kind, _, token = connection.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and token:
            token = connection.scope["celeriac.credential"] = token.strip()
            # Who is known does not wait behind those who guess.
            return self._access.by_login(token) or await run_guess(
                self._access.by_token, token, address_of(connection)
            )
        login = connection.scope["celeriac.credential"] = connection.cookies.get(COOKIE)
        return None if login is None else self._access.by_login(login)

    def _forbidden(self, scope: Scope) -> Response | None:
        """Refuse a command where none is allowed, or from somebody who may not give any."""
        if scope["type"] != "http" or scope["method"] in _SAFE or scope["path"] in _HARMLESS:
            return None
        if not self._access.allow_control:
            detail = "Read-only. To enable actions, restart with --allow-control."
            return JSONResponse({"detail": detail}, 403)
        user = scope.get("celeriac.user")
        if user is None or not self._access.may_act(user):
            return JSONResponse({"detail": "Viewers cannot act. Ask an operator."}, 403)
        return None


class _Answer:
    """Adds the headers of every answer, and has the application make its page with the nonce in them."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._send = send
        self._is_for_programs = str(scope["path"]).startswith(_FOR_PROGRAMS)
        self._nonce = scope["celeriac.nonce"] = token_urlsafe(18)

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            if self._is_for_programs:
                headers["Cache-Control"] = "no-store"
            headers["Content-Security-Policy"] = _POLICY.format(nonce=self._nonce)
        await self._send(message)


def address_of(connection: HTTPConnection) -> str:
    """Return the address of a client: the one that a trusted proxy forwards, or that of its connection."""
    return "" if connection.client is None else connection.client.host


def _is_link(scope: Scope, headers: Headers) -> bool:
    """Return whether a browser opens a page, as it does when a user follows a link; a form may post."""
    is_page = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return is_page and scope["type"] == "http" and scope["method"] in _LINK_METHODS


def _site_of(origin: str) -> str | None:
    """Return the host that the page of an origin is from; None for what is no origin."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _name_of(host: str) -> str:
    """Return the name of a host without its port: ``[::1]:8080`` is ``::1``; nothing for what is none."""
    if not _HOST.fullmatch(host):
        return ""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""
