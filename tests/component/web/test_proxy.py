"""A dashboard behind a proxy knows its clients by the addresses that the proxy forwards, if it is trusted."""

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial

import httpx
import pytest

from celeriac.errors import CallerError
from celeriac.web.access import Access, Account, Role, hashed
from celeriac.web.connection import ConnectionLimits
from celeriac.web.proxy import TrustedProxies
from tests.component.web.kit import PATIENCE, Rig, served

PASSWORD = "correct horse"  # noqa: S105
#: Wrong guesses until an address waits.
GUESSES = 10
OPEN = 200
WRONG = 401
WAITS = 429

Serve = Callable[..., AbstractContextManager[httpx.Client]]


@pytest.fixture
def serve(rig: Rig) -> Serve:
    def start(*proxies: str) -> AbstractContextManager[httpx.Client]:
        access = Access([Account("ada", Role.OPERATOR, hashed(PASSWORD))])
        return served(rig, access, limits=ConnectionLimits(10, 2, proxies=TrustedProxies(proxies)))

    return start


def log_in(client: httpx.Client, forwarded: str, password: str = "wrong") -> int:  # noqa: S107
    """Return the status of a login that came by a proxy."""
    headers = {"X-Forwarded-For": forwarded, "Origin": str(client.base_url).rstrip("/")}
    return client.post("/login", data={"name": "ada", "password": password}, headers=headers).status_code


@pytest.mark.parametrize("proxy", ["127.0.0.1", "127.0.0.0/8"])
def test_guesses_are_counted_by_the_address_that_a_trusted_proxy_forwards(serve: Serve, proxy: str) -> None:
    with serve(proxy) as client:
        guesses = {log_in(client, "192.0.2.1") for _ in range(GUESSES)}

        assert guesses == {WRONG}
        assert log_in(client, "192.0.2.1", PASSWORD) == WAITS
        assert log_in(client, "192.0.2.2", PASSWORD) == 303


def test_a_client_cannot_choose_the_address_that_a_proxy_forwards(serve: Serve) -> None:
    with serve("127.0.0.1", "10.0.0.0/8") as client:
        # A client wrote the first, our proxies the others.
        for number in range(GUESSES):
            log_in(client, f"198.51.100.{number}, 192.0.2.1, 10.0.0.7")

        assert log_in(client, "198.51.100.99, 192.0.2.1", PASSWORD) == WAITS


@pytest.mark.parametrize("proxies", [(), ("10.0.0.0/8",)])
def test_a_forwarded_address_counts_from_a_trusted_proxy_alone(
    serve: Serve, proxies: tuple[str, ...]
) -> None:
    with serve(*proxies) as client:
        for number in range(GUESSES):
            log_in(client, f"192.0.2.{number}")

        assert log_in(client, "192.0.2.99", PASSWORD) == WAITS


@pytest.mark.parametrize("forwarded", ["", ",", "unknown", "x" * 20_000, "192.0.2.1:80:80", "[::1", "\xff"])
def test_a_forwarded_address_that_is_none_is_counted_as_it_is(serve: Serve, forwarded: str) -> None:
    with serve("127.0.0.1") as client:
        headers = {b"X-Forwarded-For": forwarded.encode("latin1")}
        answers = {client.get("/login", headers=headers).status_code}
        answers |= {
            client.get("/api/v1/overview", headers=headers | {b"Authorization": b"Bearer x"}).status_code
        }

    assert answers == {OPEN, WRONG}


def test_a_trusted_proxy_may_have_all_connections(serve: Serve) -> None:
    with ExitStack() as stack, serve("127.0.0.1") as client:
        place = (client.base_url.host, client.base_url.port or 0)
        connect = partial(socket.create_connection, place, timeout=PATIENCE)
        for address in ("127.0.0.2", "127.0.0.2", "127.0.0.1", "127.0.0.1", "127.0.0.1"):
            link = stack.enter_context(connect(source_address=(address, 0)))
            link.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert link.recv(12) == b"HTTP/1.1 200"
        other = stack.enter_context(connect(source_address=("127.0.0.2", 0)))

        assert other.recv(12) == b"HTTP/1.1 503"


@pytest.mark.parametrize("named", ["proxy.example.com", "10.0.0.1/8", "10.0.0.0/33", "*", ""])
def test_a_proxy_is_named_by_its_address(named: str) -> None:
    with pytest.raises(CallerError, match=r"Invalid --trusted-proxy .* Use an address"):
        TrustedProxies([named])
