"""The link between a page and its browser: only who opened a page is heard on it, and only so often.

NiceGUI takes from any link whatever names a page by its id, and such an id stands in addresses, which proxies
write down. So each message is looked at here first.

Engine.IO takes any message before that, and Socket.IO keeps binary messages until all parts of an event are
there. Browsers send us none. A connection is closed by a binary message, by one that cannot be read, and by
too many.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import Any, Final
from urllib.parse import parse_qs

from nicegui import Client, core
from nicegui import app as pages
from starlette.requests import HTTPConnection
from starlette.types import Scope

from celeriac.node.rate_limited_log import RateLimitedLog
from celeriac.web.access import Access
from celeriac.web.guard import credential_of, owner_of

__all__ = ["Budget", "keep_links_apart"]

logger = logging.getLogger(__name__)

_ROOT: Final = "/"
#: How a Socket.IO packet begins that has binary attachments.
_BINARY: Final = ("5", "6")
_UNREADABLE: Final = "unexpected message"
#: What a browser says on a link, once it has said whose it is; each names the page that is meant.
_HEARD: Final = ("event", "javascript_response", "ack")
#: Messages that a link may send at once, and in a second for ever. Who drags a slider or types sends some
#: twenty a second.
_MOST_AT_ONCE: Final = 300.0
_MOST_A_SECOND: Final = 60.0
#: Seconds between two checks whether the logins of all links still hold. A check of 500 takes milliseconds.
_CHECK_SECONDS: Final = 1.0


class Budget:
    """How many messages somebody may still send; it fills up with time."""

    def __init__(self, now: float) -> None:
        self._left = _MOST_AT_ONCE
        self._filled_at = now

    def spend(self, now: float) -> bool:
        """Take one message, and say whether it was still allowed."""
        filled = self._left + _MOST_A_SECOND * (now - self._filled_at)
        self._left, self._filled_at = min(_MOST_AT_ONCE, filled), now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


def keep_links_apart(access: Access) -> None:
    """Have pages heed nobody but those who opened them, for as long as they are let in."""
    core.sio.eio.cors_allowed_origins = []  # the guard has asked already, and no other site is told anything
    core.sio.eio.transports = ["websocket"]
    links = _Links(access, core.sio.handlers[_ROOT])
    core.sio.handlers = {_ROOT: links.handlers()}
    packets = _Packets(core.sio.eio.handlers)
    core.sio.eio.handlers = packets.handlers()
    pages.timer(_CHECK_SECONDS, links.close_logged_out)


class _Packets:
    """Looks at what comes over a connection, by its Engine.IO id, before Socket.IO does."""

    def __init__(self, handlers: Mapping[str, Callable[..., Awaitable[Any]]]) -> None:
        self._handlers = handlers
        self._budgets: dict[str, Budget] = {}
        self._log = RateLimitedLog(logger)

    def handlers(self) -> dict[str, Callable[..., Awaitable[Any]]]:
        """Return what Engine.IO calls."""
        return {"connect": self._connect, "message": self._receive, "disconnect": self._disconnect}

    async def _connect(self, name: str, environ: dict[str, Any]) -> Any:
        self._budgets[name] = Budget(monotonic())
        return await self._handlers["connect"](name, environ)

    async def _disconnect(self, name: str, reason: str) -> None:
        self._budgets.pop(name, None)
        await self._handlers["disconnect"](name, reason)

    async def _receive(self, name: str, packet: object) -> None:
        budget = self._budgets.get(name)
        if budget is None:
            return  # it is about to be closed
        if not budget.spend(monotonic()):
            await self._refuse(name, "too many messages")
            return
        if not isinstance(packet, str) or packet.startswith(_BINARY):
            await self._refuse(name, _UNREADABLE)
            return
        try:
            await self._handlers["message"](name, packet)
        except Exception:  # noqa: BLE001 - Socket.IO raises errors of many kinds
            await self._refuse(name, _UNREADABLE)

    async def _refuse(self, name: str, reason: str) -> None:
        self._budgets.pop(name, None)
        environ = core.sio.environ.get(name)
        owner = "" if environ is None else owner_of(HTTPConnection(environ["asgi.scope"]))
        self._log.write(logging.WARNING, reason, "web: closed a WebSocket of %s: %s", owner, reason)
        await _close(name)


class _Links:
    def __init__(self, access: Access, heard: Mapping[str, Callable[..., Any]]) -> None:
        self._access = access
        self._heard = heard

    def handlers(self) -> dict[str, Callable[..., Any]]:
        """Return what takes the messages of links; not what would write into our log what a browser says."""
        return {
            "connect": self._connect,
            "handshake": self._shake_hands,
            "disconnect": self._disconnect,
            **{name: self._checked(self._heard[name]) for name in _HEARD},
        }

    async def close_logged_out(self) -> None:
        """Close the links whose login has ended, by a logout or by its age.

        Their pages check then whether they are logged in, and go to the login page: ``static/login.js``.
        """
        for name, environ in [*core.sio.environ.items()]:
            if not self._is_logged_in(environ["asgi.scope"]):
                await _close(name)

    def _is_logged_in(self, scope: Scope) -> bool:
        return self._access.lasts(_login_of(scope))

    async def _connect(self, link: str, environ: dict[str, Any], auth: Any = None) -> bool:
        asked = parse_qs(environ.get("QUERY_STRING", "")).get("client_id", [""])[0]
        scope: Scope = environ["asgi.scope"]
        # The login may have ended since the guard let the WebSocket in.
        if not (_is_of(asked, scope) and self._is_logged_in(scope)):
            return False
        await self._heard["connect"](link, environ, auth)
        return True

    async def _shake_hands(self, link: str, told: Any) -> bool:
        page = _page_in(told)
        answer = _is_of(page, _scope_of(link)) and await self._heard["handshake"](link, told)
        return await self._is_heeded(link, is_meant=bool(answer))

    def _disconnect(self, link: str, *_: Any) -> None:
        self._heard["disconnect"](link)

    def _checked(self, take: Callable[[str, dict[str, Any]], None]) -> Callable[..., Any]:
        async def taken(link: str, told: Any) -> None:
            # A link that has shaken hands is in a room of the name of its page.
            if await self._is_heeded(link, is_meant=_page_in(told) in core.sio.rooms(link)):
                take(link, told)

        return taken

    async def _is_heeded(self, link: str, *, is_meant: bool) -> bool:
        """Say whether a message is for a page of its sender, who is still logged in; else close the link."""
        if is_meant and self._is_logged_in(_scope_of(link)):
            return True
        await _close(core.sio.manager.eio_sid_from_sid(link, _ROOT))
        return False


async def _close(name: str | None) -> None:
    """Close a WebSocket by its Engine.IO id, if it is still there.

    ``core.sio.disconnect`` asks the browser to stop, which it need not obey. ``core.sio.eio.disconnect``
    leaves the WebSocket open: it sends a packet that browsers ignore there, so that a page notices the end
    only when no ping comes, half a minute later. Without an id it closes all.
    """
    socket = core.sio.eio.sockets.get(name)
    if socket is not None:
        await socket.close(wait=False)
        await socket.queue.put(None)  # has its writer close the WebSocket


def _page_in(told: Any) -> str:
    page = told.get("client_id") if isinstance(told, dict) else None
    return page if isinstance(page, str) else ""


def _is_of(page: str, scope: Scope) -> bool:
    """Tell whether a page was opened by who asks now, with the same login."""
    client = Client.instances.get(page)
    if client is None:
        # It is gone, or was of a program that ran before: the browser is told so, and loads it anew.
        return True
    opened: Scope = client.request.scope
    return opened["celeriac.user"] == scope["celeriac.user"] and _login_of(opened) == _login_of(scope)


def _scope_of(link: str) -> Scope:
    scope: Scope = core.sio.get_environ(link)["asgi.scope"]
    return scope


def _login_of(scope: Scope) -> str | None:
    return credential_of(HTTPConnection(scope))
