"""Thousands of WebSockets, silent or with garbage, keep no other client out and fill no memory."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path

import httpx
import pytest

from celeriac.programs.process import wait_until
from tests.attack.dashboard import PATIENCE, Dashboard, dashboard
from tests.attack.test_slow_clients import many_files
from tests.http_client import NO_CERTIFICATES, http_client
from tests.live import IS_LONG
from tests.raw_websocket import BINARY, CONTINUATION, PING, TEXT, RawWebSocket, frame

__all__ = ["many_files"]

#: The usual limit on open files, and one for servers.
FILES = 8192 if IS_LONG else 1024
#: WebSockets, and the addresses that they come from.
SOCKETS, ADDRESSES = (2000, 20) if IS_LONG else (160, 2)
#: More of one address.
MORE = 2000 if IS_LONG else 300
#: As many as one user or address may have.
MOST_OF_OWNER = 200
#: Far more than each needs, and far less than each could have us keep.
BYTES_OF_ONE = 200_000
#: The interpreter gives no memory back at once.
BYTES_OF_ALL = 40_000_000

#: One after the other is sent over the WebSockets: the names say why each is garbage.
GARBAGE: dict[str, bytes] = {
    "nothing": b"",
    "random bytes": bytes(range(7, 256, 3)) * 20,
    "reserved bits": b"\xf1\x80\0\0\0\0",
    "unknown opcode": frame(b"x", 11),
    "no mask": b"\x81\x01x",
    "endless message": frame(b"x", announced=1 << 62),
    "half a message": frame(b"4" + b"x" * 60_000, announced=120_000),
    "compressed, but it is not": b"\xc1\x85\0\0\0\0hello",
    "no UTF-8": frame(b"\xff\xfe"),
    "empty": frame(b""),
    "unknown packet": frame("x"),
    "other packet": frame("9"),
    "bad base64": frame("b!"),
    "no Socket.IO": frame("4x"),
    "JSON": frame('4{"a": 1}'),
    "deep JSON": frame("42" + "[" * 50_000),
    "event before connect": frame('42["event",{}]'),
    "attachment before connect": frame('451-["event",{}]'),
    "binary": frame(b"x" * 1000, BINARY),
    "unknown namespace": frame("40/admin,") * 20,
    "connect to no page": frame("40"),
    "answer that nobody asked for": frame("43" + "9" * 90 + "[]"),
    "many pings": frame(b"x" * 100, PING) * 200,
    "many parts": frame(b"", is_last=False) + frame(b"", CONTINUATION, is_last=False) * 200,
    "text within a text": frame(b"4", is_last=False) + frame(b"4", TEXT),
}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def memory_of(pid: int) -> int:
    """Return the bytes of memory that a process has."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def sockets_of(pid: int) -> int:
    """Return the number of sockets that a process has open."""
    folder = Path(f"/proc/{pid}/fd")
    kinds: list[str] = []
    for each in folder.iterdir():
        try:
            kinds.append(str(each.readlink()))
        except FileNotFoundError:  # closed meanwhile
            continue
    return sum(kind.startswith("socket:") for kind in kinds)


def ask(running: Dashboard, path: str) -> int:
    """Return the status of a page, for somebody at another address."""
    transport = httpx.HTTPTransport(verify=NO_CERTIFICATES, local_address="127.0.0.99")
    with http_client(f"http://{running.address}", transport=transport, timeout=PATIENCE) as client:
        return client.get(path, headers={"Accept": "text/html"}).status_code


def warm(running: Dashboard) -> None:
    """Have the dashboard load what it needs for pages and WebSockets."""
    assert ask(running, "/") == 200
    with RawWebSocket(running.address, source="127.0.0.98") as websocket:
        assert websocket.read_until(b'"sid"')


def check_others_are_served(running: Dashboard) -> None:
    assert [ask(running, path) for path in ("/healthz", "/", "/api/v1/overview")] == [200] * 3
    with RawWebSocket(running.address, source="127.0.0.98") as websocket:
        assert websocket.status == 101
        assert websocket.read_until(b'"sid"')


@pytest.mark.usefixtures("many_files")
def test_many_websockets_with_garbage_are_bounded_and_released(redis_url: str, tmp_path: Path) -> None:
    with dashboard(redis_url, tmp_path, files=FILES) as running, ExitStack() as stack:
        warm(running)
        assert wait_until(lambda: sockets_of(running.pid) < 12, patience=PATIENCE)
        sockets, memory = sockets_of(running.pid), memory_of(running.pid)
        garbage = cycle(GARBAGE.values())

        def attack(source: str) -> int:
            websocket = RawWebSocket(running.address, source=source)
            stack.callback(websocket.close)
            if websocket.status == 101:
                websocket.send(next(garbage))
            return websocket.status

        spread = Counter(attack(f"127.0.1.{number % ADDRESSES}") for number in range(SOCKETS))
        check_others_are_served(running)
        of_one = Counter(attack("127.0.0.1") for _ in range(MORE))
        check_others_are_served(running)
        grown = memory_of(running.pid) - memory
        stack.close()

        assert wait_until(lambda: sockets_of(running.pid) <= sockets, patience=PATIENCE)
        again = [attack("127.0.0.1") for _ in range(10)]
        text = running.log.read_text()

    print(f"{spread=} {of_one=} grown={grown >> 20} MiB, log of {len(text)} characters")
    assert spread == {101: SOCKETS}
    # Garbage closes most of them, and others take their places.
    assert of_one.keys() <= {101, 503}
    assert grown < BYTES_OF_ALL + BYTES_OF_ONE * (SOCKETS + MOST_OF_OWNER)
    assert again == [101] * 10
    assert "Traceback" not in text
    # Not a line for each of them.
    assert len(text.splitlines()) < 20, text


@pytest.mark.usefixtures("many_files")
def test_websockets_of_one_address_that_are_silent_are_bounded(redis_url: str, tmp_path: Path) -> None:
    with dashboard(redis_url, tmp_path, files=FILES) as running, ExitStack() as stack:
        statuses = Counter(
            stack.enter_context(RawWebSocket(running.address)).status for _ in range(MOST_OF_OWNER + 20)
        )
        check_others_are_served(running)
        text = running.log.read_text()

    assert statuses == {101: MOST_OF_OWNER, 503: 20}
    # One line for all of them, with the reason.
    assert text.count(f"refused a WebSocket of 127.0.0.1 with 503: {MOST_OF_OWNER} are open") == 1
    assert "ERROR" not in text


#: Engine.IO waits 24 seconds before it asks a browser for a sign of life, and 12 for the answer.
SOONER = (
    "from nicegui import ui; run = ui.run_with\n"
    "ui.run_with = lambda *args, **options: run(*args, **{**options, 'reconnect_timeout': 1.0})"
)


def test_websockets_that_never_send_a_byte_are_closed(redis_url: str, tmp_path: Path) -> None:
    before = "" if IS_LONG else SOONER
    with dashboard(redis_url, tmp_path, before=before) as running, ExitStack() as stack:
        silent = [stack.enter_context(RawWebSocket(running.address)) for _ in range(100 if IS_LONG else 20)]

        assert {each.status for each in silent} == {101}
        assert wait_until(lambda: all(each.is_closed() for each in silent), patience=PATIENCE)
        assert [stack.enter_context(RawWebSocket(running.address)).status for _ in silent] == [101] * len(
            silent
        )


# -- one client that wants the memory

#: Bytes that are sent in all, and so many of them may be kept.
SENT = (400 if IS_LONG else 60) * 1_000_000
KEPT = 30_000_000

Attack = Callable[[RawWebSocket], None]


def send_attachments(websocket: RawWebSocket) -> None:
    """Announce an event with billions of binary attachments, and send them."""
    websocket.send(frame('459999999999-["event",{}]'))
    attachment = frame(bytes(100_000), BINARY)
    for _ in range(SENT // len(attachment)):
        websocket.send(attachment)


def send_parts(websocket: RawWebSocket) -> None:
    """Send a message in very many parts of a byte."""
    websocket.send(frame(b"4", is_last=False))
    parts = frame(b"x", CONTINUATION, is_last=False) * 5_000
    for _ in range(SENT // 100 // len(parts)):
        websocket.send(parts)


def send_packets(websocket: RawWebSocket) -> None:
    """Send packets that cannot be read, each of which would be a traceback in the log."""
    packets = frame("4x") * 500
    for _ in range(20):
        websocket.send(packets)


@pytest.mark.parametrize(
    "attack", [send_attachments, send_parts, send_packets], ids=lambda each: each.__name__
)
def test_one_client_cannot_fill_memory_or_log(redis_url: str, tmp_path: Path, attack: Attack) -> None:
    with dashboard(redis_url, tmp_path) as running:
        warm(running)
        with http_client(f"http://{running.address}", timeout=PATIENCE) as client:
            page = client.get("/", headers={"Accept": "text/html"}).text
        found = re.search(r"client_id\W+([0-9a-f-]{36})", page)
        assert found is not None
        memory = memory_of(running.pid)
        with RawWebSocket(running.address, page=found[1]) as websocket:
            websocket.send(frame("40"))
            is_open = websocket.read_until(b"40{")
            attack(websocket)
            is_closed = wait_until(websocket.is_closed, patience=PATIENCE)
            grown = memory_of(running.pid) - memory
        check_others_are_served(running)
        text = running.log.read_text()

    assert is_open
    assert is_closed
    assert grown < KEPT
    assert "Traceback" not in text
    assert len(text.splitlines()) < 10, text
