"""What comes over the link of a page: only from who opened it, while he is let in, and not too much of it."""

import html
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from time import monotonic
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.browser.kit import PATIENCE, Dashboard
from tests.browser.team import PASSWORD
from tests.http_client import http_client

#: Seconds within which a link is closed: less than the 36 after which Engine.IO gives up one that is silent.
SOON = 25.0


def log_in(client: httpx.Client, name: str) -> None:
    assert client.post("/login", data={"name": name, "password": PASSWORD}).status_code == 303


class Opened:
    """A page that somebody's browser has loaded."""

    def __init__(self, client: httpx.Client, name: str, path: str) -> None:
        self.client = client
        log_in(self.client, name)
        text = self.client.get(path, headers={"Accept": "text/html"}).text
        found = re.search(r"client_id\W+([0-9a-f-]{36})", text)
        made = re.search(r"String\.raw`(.*?)`", text, re.DOTALL)
        assert found is not None
        assert made is not None
        self.id = found[1]
        self.elements: dict[str, Any] = json.loads(html.unescape(made[1]))

    def click(self, mark: str, value: str) -> str:
        """Return what a browser sends when a button is clicked."""
        number, button = next(
            (number, each)
            for number, each in self.elements.items()
            if each.get("props", {}).get(mark) == value
        )
        listener = next(each for each in button["events"] if each["type"] == "click")
        told = {
            "id": int(number),
            "client_id": self.id,
            "listener_id": listener["listener_id"],
            "args": ["{}"],
        }
        return "42" + json.dumps(["event", told])

    @contextmanager
    def link(self, page: str | None = None, **headers: str) -> Iterator[ClientConnection]:
        """Have a link to this page, or to one of another id."""
        page = page or self.id
        query = {
            "EIO": 4, "transport": "websocket", "client_id": page, "implicit_handshake": "true",
            "tab_id": f"tab-{page}", "document_id": f"document-{page}", "next_message_id": 0,
        }  # fmt: skip
        address = str(self.client.base_url).replace("http:", "ws:").rstrip("/")
        cookie = "; ".join(f"{name}={value}" for name, value in self.client.cookies.items())
        with connect(
            f"{address}/_nicegui_ws/socket.io/?{urlencode(query)}",
            additional_headers={"Cookie": cookie, **headers},
            max_size=None,
        ) as link:
            link.recv(PATIENCE)
            link.send("40")
            yield link


Open = Callable[[str, str], Opened]


@pytest.fixture
def opened(locked: Dashboard) -> Iterator[Open]:
    """Who logs in by a name and opens a page."""
    with ExitStack() as stack:

        def come(name: str, path: str) -> Opened:
            client = http_client(locked.address, timeout=PATIENCE)
            return Opened(stack.enter_context(client), name, path)

        yield come


def hear(link: ClientConnection, text: str, timeout: float = PATIENCE) -> bool:
    """Say whether something is said over a link before it ends. One of both has to come."""
    ends_at = monotonic() + timeout
    try:
        while True:
            told = link.recv(ends_at - monotonic())
            if told == "2":
                link.send("3")
            elif text in str(told):
                return True
    except ConnectionClosed:
        return False


def opened_dialogs(link: ClientConnection) -> int:
    """Return how many dialogs a page was told to show, as far as it was told anything by now."""
    told: list[str] = []
    with suppress(TimeoutError):
        while True:
            told.append(str(link.recv(0)))
    return sum("data-confirm-action" in each for each in told)


def test_nobody_can_click_on_the_page_of_another(opened: Open) -> None:
    theirs, own = opened("ada", "/tasks/t2"), opened("vera", "/workers")
    click = theirs.click("data-action", "revoke")

    with theirs.link() as operators:
        with own.link() as viewers:
            viewers.send(click)
            assert not hear(viewers, "data-confirm-action")  # it was cut off
        assert opened_dialogs(operators) == 0
        operators.send(click)

        assert hear(operators, "data-confirm-action")


def test_nobody_takes_over_the_link_of_another(opened: Open) -> None:
    theirs, own = opened("ada", "/tasks/t2"), opened("vera", "/workers")

    with own.link(page=theirs.id) as link:
        assert str(link.recv(PATIENCE)).startswith("44")  # it is refused

    with theirs.link() as link:
        assert str(link.recv(PATIENCE)).startswith("40")


def test_who_logs_out_is_not_heard_any_more(opened: Open) -> None:
    own = opened("ada", "/tasks/t2")

    with own.link() as link:
        assert own.client.post("/logout").status_code == 303
        link.send(own.click("data-action", "revoke"))

        assert not hear(link, "data-confirm-action")


@pytest.mark.parametrize("sends", [True, False])
def test_link_of_an_ended_login_is_closed(opened: Open, sends: bool) -> None:
    own = opened("vera", "/workers")

    with own.link() as link:
        assert own.client.post("/logout").status_code == 303
        if sends:
            link.send("42" + json.dumps(["ack", {"client_id": own.id, "next_message_id": 0}]))

        assert not hear(link, "anything at all", SOON)


def test_who_sends_without_end_is_cut_off(opened: Open) -> None:
    own, other = opened("vera", "/workers"), opened("ada", "/tasks/t2")

    with other.link() as others, own.link() as link:
        with suppress(ConnectionClosed):
            for _ in range(2_000):
                link.send("42" + json.dumps(["ack", {"client_id": own.id, "next_message_id": 0}]))

        assert not hear(link, "anything at all")
        others.send(other.click("data-action", "revoke"))
        assert hear(others, "data-confirm-action")


@pytest.mark.parametrize("origin", ["http://evil.example", "null"])
def test_no_page_of_another_site_has_a_link(opened: Open, origin: str) -> None:
    own = opened("vera", "/workers")

    with pytest.raises(InvalidStatus), own.link(Origin=origin):
        pass
    polled = own.client.get(
        "/_nicegui_ws/socket.io/", params={"EIO": 4, "transport": "polling"}, headers={"Origin": origin}
    )

    assert polled.status_code == 400
    assert not [name for name in polled.headers if name.startswith("access-control-")]


def test_too_many_pages_are_not_opened_and_those_that_are_go_on(opened: Open) -> None:
    own = opened("vera", "/workers")

    # Connected before: a page that no browser connects to within seconds makes room for others.
    with own.link() as link:
        assert str(link.recv(PATIENCE)).startswith("40")
        answers = [own.client.get("/none", headers={"Accept": "text/html"}).status_code for _ in range(510)]
        link.send("42" + json.dumps(["ack", {"client_id": own.id, "next_message_id": 0}]))
        is_open = link.ping().wait(PATIENCE)

    assert set(answers) == {404, 503}
    assert is_open
