"""Who looks at a page, as of when, and how what is shown is kept fresh."""

import logging
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

from fastapi import Request
from nicegui import ui
from starlette.concurrency import run_in_threadpool

from celeriac.errors import CallerError, CeleriacError
from celeriac.views.text import visible
from celeriac.web.access import Access, User
from celeriac.web.action import Actions
from celeriac.web.board import Board, Busy, Sight
from celeriac.web.guard import credential_of, user_of
from celeriac.web.panorama import panorama
from celeriac.web.shared import Shared

__all__ = ["Desk", "Visit", "address", "name_of", "path_of"]

_T = TypeVar("_T")

#: Seconds between two looks of a page. A browser is not to be flooded, and people do not read faster.
EVERY: Final = 1.0
#: How old what a page shows of the present may be, so that many pages cost little more than one.
_SHARED: Final = 0.5
#: After how many seconds somebody is let have another try, whom others kept from the past.
_AGAIN: Final = 3.0
_OLD: Final = "Update failed, so this page may show old data. See the dashboard log."
#: Names that are longer are not told as they are in paths, nor what begins like one that is not.
_PLAIN_CHARS: Final = 120
_CODED: Final = "~"

logger = logging.getLogger(__name__)


class Desk:
    """What all pages share. ``actions`` is None where nobody can act."""

    def __init__(self, board: Board, access: Access, actions: Actions | None) -> None:
        self.board = board
        self.access = access
        self.actions = actions
        #: The cluster as it is, and in a few numbers.
        self.sight = Shared(board.sight, seconds=_SHARED)
        self.panorama = Shared(lambda: panorama(board, self.sight()), seconds=_SHARED)


class Visit:
    """One page in one browser."""

    def __init__(self, desk: Desk, request: Request, at: float | None) -> None:
        self.desk = desk
        self.at = at
        # As it was asked for, since names in it may hold anything; with one slash, or it would be a host.
        raw: bytes = request.scope["raw_path"]
        self.path: str = "/" + raw.decode("ascii", "replace").lstrip("/")
        #: What the address asks for, but the moment; some of it more than once.
        self.query: dict[str, str | list[str]] = {
            name: request.query_params.getlist(name) for name in request.query_params if name != "at"
        }
        self.user: User = user_of(request)
        self._credential = credential_of(request)
        #: Where it is told that something cannot be shown; the frame makes it.
        self.notice: ui.label | None = None
        #: What keeps each part of the page from being shown; nothing for those that are well.
        self._problems: dict[object, str] = {}
        #: The way back to the present, where the past is shown; the frame makes it.
        self.to_live: ui.link | None = None

    @property
    def is_live(self) -> bool:
        """Whether the cluster is shown as it is now."""
        return self.at is None

    @property
    def is_let_in(self) -> bool:
        """Whether who opened the page is still logged in: its link outlives a logout."""
        return self.desk.access.lasts(self._credential)

    @property
    def may_act(self) -> bool:
        """Whether who looks may act on the cluster as it is now."""
        return self.is_live and self.desk.actions is not None and self.desk.access.may_act(self.user)

    def acting(self) -> tuple[Actions, User]:
        """Return what carries out an action, and for whom; CallerError for somebody who may not act."""
        if not self.is_let_in:
            raise CallerError("You are logged out. Log in again.")
        actions = self.desk.actions
        if actions is None or not self.may_act:
            raise CallerError("Viewers cannot act, and actions need the live view.")
        return actions, self.user

    def sight(self) -> Sight:
        """Return the cluster as of the moment that is shown; in the past it may take seconds."""
        return self.desk.sight() if self.is_live else self.desk.board.sight(self.at)

    def link(self, path: str, /, **query: object) -> str:
        """Return the address of another page, as of the same moment."""
        return address(path, self.at, **query)

    def asked(self, query: Mapping[str, list[str]]) -> None:
        """Have the address of the page ask for something else, so that it can be shared and loaded again."""
        self.query = dict(query)
        if self.to_live is not None:
            self.to_live.props["href"] = address(self.path, None, **self.query)
        ui.navigate.history.replace(self.link(self.path, **self.query))

    def keep(
        self,
        load: Callable[[], _T],
        show: Callable[[_T], Awaitable[None] | None],
        *,
        every: float = EVERY,
    ) -> Callable[[], Awaitable[None]]:
        """Show what ``load`` returns, and again whenever some time has passed; once only for the past.

        ``load`` runs in a thread, so that a page that takes long holds up no other. Returns what does it at
        once, for whoever changed what is asked for.
        """
        is_busy = is_asked_again = is_settled = False
        client = ui.context.client

        async def refresh() -> None:
            nonlocal is_busy, is_asked_again, is_settled
            if not self.is_let_in:
                return  # the link is closed in a moment, and the page goes to the login page
            if is_busy:
                # What is under way may have begun before something else was asked for.
                is_asked_again = True
                return
            is_busy = True
            try:
                is_settled = await self._shown(load, show)
                while is_asked_again:
                    is_asked_again = False
                    is_settled = await self._shown(load, show)
            finally:
                is_busy = is_asked_again = False

        async def look() -> None:
            # A page that somebody has left is kept for a while, in case that only its link was lost.
            if not is_busy and client.has_socket_connection:
                await refresh()
            if is_settled and not self.is_live:
                timer.cancel()

        timer = ui.timer(every if self.is_live else _AGAIN, look)
        return refresh

    async def _shown(self, load: Callable[[], _T], show: Callable[[_T], Any]) -> bool:
        """Return whether there is nothing to wait for."""
        try:
            told = await run_in_threadpool(load)
            made = show(told)
            if isawaitable(made):
                await made
        except Busy as error:
            self.tell(str(error), of=load)
            return False
        except CeleriacError as error:
            self.tell(str(error), of=load)
        except Exception:
            # Or the page would show its last numbers as those of now.
            logger.exception("web: a page update failed")
            self.tell(_OLD, of=load)
        else:
            self.tell("", of=load)
        return True

    def tell(self, text: str, *, of: object = None) -> None:
        """Show above the page what keeps it, or a part of it, from being shown; an empty text clears it."""
        # Errors of other layers are lower-case, as a terminal shows them after a prefix.
        self._problems[of] = text[:1].upper() + text[1:]
        text = next(filter(None, self._problems.values()), "")
        if self.notice is not None and self.notice.text != text:
            self.notice.set_text(text)
            self.notice.set_visibility(bool(text))


def address(path: str, at: float | None, /, **query: object) -> str:
    """Return the address of a page as of a moment; without what is not said."""
    told = {name: value for name, value in query.items() if value not in (None, "", [])}
    if at is not None:
        told["at"] = f"{at:.0f}"
    return f"{path}?{urlencode(told, doseq=True)}" if told else path


def path_of(page: str, name: str) -> str:
    """Return the path of the page of one task or worker, whatever its name holds; see :func:`name_of`."""
    is_plain = visible(name, _PLAIN_CHARS) == name and not name.startswith(_CODED)
    # What does not print, is long, or means another page to a browser or a proxy is told in base64.
    if is_plain and not {".", ".."} & set(name.split("/")):
        return f"/{page}/{quote(name, safe='')}"
    told = urlsafe_b64encode(name.encode("utf-8", "surrogatepass")).decode()
    return f"/{page}/{_CODED}{told.rstrip('=')}"


def name_of(part: str) -> str:
    """Return the name that the last part of a path tells, as :func:`path_of` made it or somebody wrote it."""
    if not part.startswith(_CODED):
        return part
    coded = part.removeprefix(_CODED)
    try:
        told = b64decode(coded + "=" * (-len(coded) % 4), altchars=b"-_", validate=True)
        return told.decode("utf-8", "surrogatepass") or part
    except ValueError:
        return part
