"""Clients that hold connections open keep nobody else from the dashboard."""

import resource
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.attack.dashboard import PATIENCE, dashboard
from tests.http_client import NO_CERTIFICATES, http_client

#: The usual limit on open files, and more connections than that.
FILES, CONNECTIONS = 1024, 1200
HALF = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def many_files() -> Iterator[None]:
    """Let this process open all the files that it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_half_sent_heads_of_one_address_keep_no_other_address_out(redis_url: str, tmp_path: Path) -> None:
    with dashboard(redis_url, tmp_path, files=FILES) as (address, log, _), ExitStack() as stack:
        host, port = urlsplit(f"//{address}").hostname, urlsplit(f"//{address}").port
        links = []
        for _ in range(CONNECTIONS):
            link = stack.enter_context(socket.create_connection((host, port), timeout=PATIENCE))
            links.append(link)
            link.sendall(HALF)
        other = http_client(
            f"http://{address}",
            transport=httpx.HTTPTransport(verify=NO_CERTIFICATES, local_address="127.0.0.2"),
            timeout=PATIENCE,
        )
        with other:
            health = [other.get("/healthz").status_code for _ in range(3)]
        answers = Counter(status_of(link) for link in links)

    assert health == [200, 200, 200]
    # On a slow machine some run out of the time for a head, and others take their places.
    assert answers.keys() <= {"503", "408", ""}
    refused = answers["503"] + answers["408"]
    # One line a minute for each status.
    assert 0 < log.read_text().count("web: refused 127.0.0.1 with") < refused


def status_of(link: socket.socket) -> str:
    """Return the status of the answer; an empty text if there is none by now."""
    link.setblocking(False)
    try:
        return link.recv(100)[9:12].decode()
    except BlockingIOError:
        return ""
