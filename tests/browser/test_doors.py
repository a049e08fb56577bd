"""Who may come in by which door of a dashboard that has pages: each of them, for everybody.

Those of the API are in ``tests/component/web/test_guard.py``.
"""

import re
from collections.abc import Iterator

import httpx
import pytest
from nicegui import app as pages

from celeriac.web.access import Role
from celeriac.web.pages import mount
from tests.browser.kit import PATIENCE, Dashboard
from tests.browser.team import TOKENS
from tests.http_client import http_client

NOBODY = None
#: What a browser asks for to have a live link.
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport="


@pytest.fixture(scope="module")
def client(locked: Dashboard) -> Iterator[httpx.Client]:
    """A client that is not logged in, with a new connection for each request."""
    limits = httpx.Limits(max_keepalive_connections=0)
    with http_client(locked.address, timeout=PATIENCE, limits=limits) as client:
        yield client


def asked(
    client: httpx.Client, role: Role | None, path: str, method: str = "GET", **headers: str
) -> httpx.Response:
    """Ask as somebody, and return the answer without what it holds."""
    if role is not NOBODY:
        headers["Authorization"] = f"Bearer {TOKENS[role]}"
    with client.stream(method, path, headers={"Accept": "text/html", **headers}) as answer:
        return answer


def paths() -> list[str]:
    """Return the path of every page and of all else that comes with pages, with something for what varies."""
    assert mount.PAGES
    told = [str(route.path) for route in pages.routes]  # type: ignore[attr-defined]
    assert {"/", "/tasks/{uuid:path}", "/workers/{name:path}", "/_nicegui_ws"} < set(told)
    return [re.sub(r"{\w+(:path)?}", "t1", path) for path in told]


def page_paths() -> list[str]:
    return [path for path in paths() if not path.startswith("/_nicegui")]


def assets(at: Dashboard) -> list[str]:
    """Return the paths of all scripts and styles that a page names."""
    page = at.client.get("/tasks").text
    found = sorted(set(re.findall(r"/(?:_nicegui|static)/[\w./-]+\.(?:js|css)", page)))
    assert {path.split("/")[1] for path in found} == {"_nicegui", "static"}, found
    return found


def test_nobody_gets_in_by_any_door_without_saying_who_he_is(locked: Dashboard, client: httpx.Client) -> None:
    doors = [*paths(), *assets(locked), "/favicon.ico", "/nothing", "/static/nothing", f"{SOCKET}polling"]

    looked = {path: asked(client, NOBODY, path) for path in doors}
    acted = {path: asked(client, NOBODY, path, "POST").status_code for path in doors}

    assert len(doors) > 20
    assert {path: each.status_code for path, each in looked.items() if each.status_code != 303} == {}
    assert {each.headers["location"].partition("?")[0] for each in looked.values()} == {"/login"}
    assert set(acted.values()) == {401}
    assert asked(client, NOBODY, f"{SOCKET}websocket", **UPGRADE).status_code == 403


@pytest.mark.parametrize("role", list(Role))
def test_who_is_let_in_sees_all_pages_and_has_a_live_link(
    locked: Dashboard, client: httpx.Client, role: Role
) -> None:
    doors = [*page_paths(), *assets(locked), "/favicon.ico"]

    looked = {path: asked(client, role, path).status_code for path in doors}
    others = {asked(client, role, path).status_code for path in paths()}

    assert {path: status for path, status in looked.items() if status != 200} == {}
    assert not others & {303, 401, 403}
    assert asked(client, role, f"{SOCKET}websocket", **UPGRADE).status_code == 101


@pytest.mark.parametrize("role", list(Role))
def test_no_page_takes_what_is_sent_to_it_and_a_viewer_may_send_nothing_at_all(
    locked: Dashboard, client: httpx.Client, role: Role
) -> None:
    doors = [*page_paths(), *assets(locked)]

    told = {asked(client, role, path, "POST").status_code for path in doors}

    assert told == ({403} if role is Role.VIEWER else {405})
