"""One user with many pages and streams of events keeps no other user out."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from celeriac.node.watcher import MAX_LISTENERS_OF_OWNER
from celeriac.programs.process import wait_until
from celeriac.web.access import Account, Role, hashed, new_token, write_accounts
from tests.attack.dashboard import PATIENCE, dashboard
from tests.http_client import http_client
from tests.raw_websocket import RawWebSocket

#: As many as there may be of all users together.
PAGES = 500
NAMES = ("ada", "ben")
#: WebSockets that a user may have.
SOCKETS = 200

Clients = dict[str, httpx.Client]


@contextmanager
def two_users(broker: str, folder: Path) -> Iterator[Clients]:
    """Run a dashboard with two users; yield the client of each."""
    tokens = {name: new_token(name) for name in NAMES}
    accounts = folder / "accounts.json"
    write_accounts(
        accounts, [Account(name, Role.VIEWER, hashed(tokens[name]), is_token=True) for name in NAMES]
    )
    with dashboard(broker, folder, "--accounts", str(accounts)) as (address, _, _), ExitStack() as stack:
        yield {
            name: stack.enter_context(
                http_client(
                    f"http://{address}",
                    headers={"Authorization": f"Bearer {token}"},
                    timeout=PATIENCE,
                )
            )
            for name, token in tokens.items()
        }


@pytest.fixture
def clients(redis_url: str, tmp_path: Path) -> Iterator[Clients]:
    with two_users(redis_url, tmp_path) as clients:
        yield clients


def test_pages_of_one_user_leave_room_for_another_and_are_released(clients: Clients) -> None:
    answers = Counter(clients["ada"].get("/").status_code for _ in range(PAGES))

    assert answers.keys() <= {200, 503}
    assert clients["ben"].get("/").status_code == 200
    # No browser connected to them: they make room within seconds.
    assert wait_until(lambda: clients["ada"].get("/").status_code == 200, patience=PATIENCE)


def test_streams_of_one_user_leave_room_for_another(clients: Clients) -> None:
    with ExitStack() as stack:

        def listen(name: str) -> tuple[int, str, object]:
            stream = stack.enter_context(clients[name].stream("GET", "/api/v1/events"))
            lines = stream.iter_lines()
            # With the iterator, or the stream would end.
            return stream.status_code, next(lines), lines

        own = [listen("ada") for _ in range(MAX_LISTENERS_OF_OWNER)]
        refused, other = listen("ada"), listen("ben")

    assert [(status, line) for status, line, _ in own] == [(200, ": listening")] * MAX_LISTENERS_OF_OWNER
    assert refused[0] == 503
    assert "16 event streams are open for ada: close one first" in refused[1]
    assert other[:2] == (200, ": listening")


def test_websockets_of_one_user_from_many_addresses_leave_room_for_another(clients: Clients) -> None:
    with ExitStack() as stack:

        def connect(name: str, number: int = 0) -> int:
            websocket = RawWebSocket(
                clients[name].base_url.netloc.decode(),
                source=f"127.0.2.{number % 50}",
                headers=f"Authorization: {clients[name].headers['Authorization']}",
            )
            return stack.enter_context(websocket).status

        own = Counter(connect("ada", number) for number in range(SOCKETS + 10))
        other = connect("ben")

    assert own == {101: SOCKETS, 503: 10}
    assert other == 101


def test_websockets_without_a_login_take_no_place(clients: Clients) -> None:
    address = clients["ada"].base_url.netloc.decode()

    def connect(headers: str) -> int:
        with RawWebSocket(address, headers=headers) as websocket:
            return websocket.status

    # Of a wrong token so few that their address is not held back.
    refused = {connect("") for _ in range(SOCKETS + 10)} | {connect("Authorization: Bearer wrong")}

    assert refused == {403}
    assert connect(f"Authorization: {clients['ada'].headers['Authorization']}") == 101
