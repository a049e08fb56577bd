"""``/api/v1/events``: events as they come, as server-sent events."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from fnmatch import fnmatchcase
from time import monotonic
from typing import Annotated, Final

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from celeriac.model.events import Event
from celeriac.views.event import event_dict
from celeriac.views.text import json_text
from celeriac.web.access import Access
from celeriac.web.api.part import board_of
from celeriac.web.board import Board
from celeriac.web.guard import credential_of, owner_of

__all__ = ["KEEP_ALIVE", "router"]

router = APIRouter(tags=["events"])

#: As often as a page can use it; a message of many events costs little more than that of one.
_PAUSE: Final = 0.5
#: Events of one message at the most; the rest is told as a number.
_MOST_AT_ONCE: Final = 500
_MOST_CHARS: Final = 500_000
#: After so many seconds without a message there is a line that says nothing: proxies cut a stream that is
#: silent for a minute, some sooner.
KEEP_ALIVE: Final = 15.0


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def events(
    request: Request,
    board: Annotated[Board, Depends(board_of)],
    type: Annotated[str, Query(max_length=200, description="Event type, a glob: task-*")] = "*",  # noqa: A002
    limit: Annotated[
        int | None, Query(ge=1, le=1_000_000, description="End after this number of events")
    ] = None,
) -> StreamingResponse:
    """Stream events as server-sent events: `events`, and `overlooked` with the number of dropped events.

    A comment line every 15 seconds keeps an idle connection open.
    """
    if refusal := board.watcher.refusal(owner_of(request)):
        raise HTTPException(503, refusal)
    return StreamingResponse(_messages(request, board, type, limit), media_type="text/event-stream")


async def _messages(request: Request, board: Board, glob: str, limit: int | None) -> AsyncIterator[str]:
    access: Access = request.app.state.access
    credential = credential_of(request)
    with board.watcher.listening(owner_of(request)) as listener:
        yield ": listening\n\n"
        left, told_at = limit, monotonic()
        while access.lasts(credential) and not await request.is_disconnected():
            told, overlooked = listener.taken()
            wanted = [event for event in told if fnmatchcase(event.type, glob)]
            overlooked += len(wanted[_MOST_AT_ONCE:])
            shown = wanted[:_MOST_AT_ONCE] if left is None else wanted[: min(left, _MOST_AT_ONCE)]
            if shown:
                # It takes a while, and who asks for something else meanwhile is not to wait.
                texts = await run_in_threadpool(_texts, shown)
                overlooked += len(shown) - len(texts)
                yield f"event: events\ndata: [{', '.join(texts)}]\n\n"
                left = None if left is None else left - len(texts)
            if overlooked:
                yield _message("overlooked", overlooked)
            if left == 0:
                return
            if shown or overlooked:
                told_at = monotonic()
            elif monotonic() - told_at >= request.app.state.keep_alive:
                yield ": nothing yet\n\n"
                told_at = monotonic()
            await asyncio.sleep(_PAUSE)


def _texts(events: Sequence[Event]) -> list[str]:
    """Return events as JSON; as many as a message may be long."""
    texts: list[str] = []
    room = _MOST_CHARS
    for event in events:
        texts.append(json_text(event_dict(event)))
        room -= len(texts[-1])
        if room < 0:
            break
    return texts


def _message(kind: str, data: object) -> str:
    return f"event: {kind}\ndata: {json_text(data)}\n\n"
