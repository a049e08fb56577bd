"""What the parts of the API share."""

from typing import Annotated

from fastapi import Query, Request
from pydantic import BaseModel
from starlette.convertors import PathConvertor, register_url_convertor

from celeriac.errors import CeleriacError
from celeriac.web.board import Board

__all__ = ["At", "Problem", "Unknown", "board_of"]

At = Annotated[
    float | None,
    Query(
        gt=0,
        lt=4_102_444_800,
        allow_inf_nan=False,
        description="Return the state at this time, in seconds since the epoch, by replay of the event log. "
        "Default: now",
    ),
]


class _NameConvertor(PathConvertor):
    """The rest of a path, whatever is in it: that of Starlette ends at a line's end."""

    regex = r"[\s\S]*"


register_url_convertor("name", _NameConvertor())


class Problem(BaseModel):
    """An error: the reason and the fix."""

    detail: str


class Unknown(CeleriacError):
    """No object of that name exists."""


# A coroutine, though it waits for nothing: else it would be run in a thread of its own. So is task_filter.
async def board_of(request: Request) -> Board:
    """Return what the app knows."""
    board: Board = request.app.state.board
    return board
