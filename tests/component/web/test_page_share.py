"""A user has a share of the pages that may be open, so that others find room."""

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from nicegui import Client
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse

from celeriac.web.access import Role, User
from celeriac.web.guard import owner_of
from celeriac.web.pages import mount

PAGE = PlainTextResponse("a page")


def scope_of(name: str) -> dict[str, Any]:
    return {"type": "http", "path": "/", "headers": [], "celeriac.user": User(name, Role.VIEWER)}


def ask(name: str) -> int:
    """Return the status of a page that a user asks for."""

    async def room(scope: Any, receive: Any, send: Any) -> None:
        await mount._Room(PAGE)(scope | scope_of(name), receive, send)

    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(room)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/")

    return asyncio.run(get()).status_code


@pytest.mark.parametrize("count", [100, 499])
def test_pages_of_one_user_leave_room_for_another(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    page = SimpleNamespace(request=HTTPConnection(scope_of("ada")))
    monkeypatch.setattr(Client, "instances", dict.fromkeys(map(str, range(count)), page))
    monkeypatch.setattr(Client, "prune_instances", lambda **_: None)

    assert owner_of(HTTPConnection(scope_of("ada"))) != owner_of(HTTPConnection(scope_of("ben")))
    assert (ask("ada"), ask("ben")) == (503, 200)


def test_pages_without_a_browser_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    page = SimpleNamespace(request=HTTPConnection(scope_of("ada")))
    instances = dict.fromkeys(map(str, range(100)), page)
    ages: list[float] = []

    def prune(*, client_age_threshold: float) -> None:
        ages.append(client_age_threshold)
        instances.popitem()

    monkeypatch.setattr(Client, "instances", instances)
    monkeypatch.setattr(Client, "prune_instances", prune)

    assert ask("ada") == 200
    assert ages == [10.0]
