"""Clients that send slowly, or connect very often, are cut off, and others are served meanwhile."""

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial

import httpx
import pytest
import uvicorn
from fastapi import FastAPI, WebSocket
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.sync.client import connect as connect_websocket

from celeriac.programs.process import wait_until
from celeriac.web.connection import MAX_HEAD_BYTES, ConnectionLimits
from celeriac.web.server import make_server
from tests.component.web.kit import PATIENCE, Rig, served, serving
from tests.raw_websocket import CONTINUATION, PING, RawWebSocket, frame

HALF = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
WHOLE = HALF + b"\r\n"

Serve = Callable[..., AbstractContextManager[httpx.Client]]


@pytest.fixture
def serve(rig: Rig) -> Serve:
    return partial(served, rig)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connect(client: httpx.Client, stack: ExitStack, address: str = "127.0.0.1") -> socket.socket:
    """Return a new connection to the dashboard from an address of this machine."""
    place = (client.base_url.host, client.base_url.port or 0)
    link = socket.create_connection(place, timeout=PATIENCE, source_address=(address, 0))
    return stack.enter_context(link)


def read_all(link: socket.socket) -> bytes:
    """Return all that comes until the dashboard closes the connection."""
    return b"".join(iter(partial(link.recv, 65_536), b""))


def read_answer(link: socket.socket) -> bytes:
    """Return the head of an answer whose connection stays open, with what came of its body."""
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += link.recv(65_536)
    return answer


@pytest.mark.parametrize("sent", [b"", b"G", HALF])
def test_client_without_a_whole_head_in_time_is_cut_off(serve: Serve, stack: ExitStack, sent: bytes) -> None:
    limits = ConnectionLimits(10, request_seconds=0.1)
    with serve(limits=limits) as client:
        link = connect(client, stack)
        link.sendall(sent)

        answer = read_all(link)

        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"no complete request within 0.1 seconds" in answer
        assert wait_until(lambda: limits.count == 0, patience=PATIENCE)


def test_client_that_sends_a_slow_second_head_is_cut_off(serve: Serve, stack: ExitStack) -> None:
    limits = ConnectionLimits(10, request_seconds=3600)
    with serve(limits=limits) as client:
        link = connect(client, stack)
        link.sendall(WHOLE)
        first = read_answer(link)
        limits.request_seconds = 0.1
        link.sendall(HALF)

        assert first.startswith(b"HTTP/1.1 200 ")
        assert b"HTTP/1.1 408 " in read_all(link)


def test_client_without_a_whole_body_in_time_is_cut_off(serve: Serve, stack: ExitStack) -> None:
    limits = ConnectionLimits(10, request_seconds=0.1)
    with serve(limits=limits) as client:
        link = connect(client, stack)
        link.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nname=")

        assert b"HTTP/1.1 408 " in read_all(link)
        assert wait_until(lambda: limits.count == 0, patience=PATIENCE)


@contextmanager
def handled_by(handler: logging.Handler, name: str) -> Iterator[None]:
    """Have a handler get the records of a logger meanwhile."""
    logging.getLogger(name).addHandler(handler)
    yield
    logging.getLogger(name).removeHandler(handler)


@pytest.mark.parametrize("ends", [False, True], ids=["timeout", "disconnect"])
def test_many_clients_that_send_half_a_body_or_garbage_are_few_lines_in_the_log(
    serve: Serve, stack: ExitStack, caplog: pytest.LogCaptureFixture, ends: bool
) -> None:
    limits = ConnectionLimits(100, request_seconds=0.1)
    half = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nname="
    upgrade = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    with serve(limits=limits) as client:
        # Its records go to no other logger.
        stack.enter_context(handled_by(caplog.handler, "uvicorn.error"))
        for sent in (half, b"\0 garbage\r\n\r\n", upgrade):
            for _ in range(5):
                link = connect(client, stack)
                link.sendall(sent)
                if ends:
                    link.shutdown(socket.SHUT_WR)
                read_answer(link) if sent == upgrade else read_all(link)

    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == len(set(lines)), lines
    assert not any(record.exc_info for record in caplog.records)


def test_answer_that_takes_longer_than_a_head_may_is_not_cut_off(serve: Serve) -> None:
    with serve(limits=ConnectionLimits(10, request_seconds=0.1), keep_alive=0.15) as client:
        while (kept_alive := listen(client)) is None:
            pass  # even this client was too slow

    assert len(kept_alive) == 6


def listen(client: httpx.Client) -> list[str] | None:
    """Return six lines of the stream of events; None if the head of the request came too late."""
    with client.stream("GET", "/api/v1/events") as stream:
        if stream.status_code == 408:
            return None
        return [line for line, _ in zip(stream.iter_lines(), range(6), strict=False)]


@pytest.mark.parametrize("parts", [1, 2])
def test_head_that_is_too_long_is_refused_also_if_it_comes_at_once(
    serve: Serve, stack: ExitStack, parts: int
) -> None:
    lines = HALF + b"X-A: " + b"a" * MAX_HEAD_BYTES + b"\r\n\r\n"
    with serve() as client:
        link = connect(client, stack)
        for part in range(parts):
            link.sendall(lines[part * len(lines) // parts : (part + 1) * len(lines) // parts])

        assert read_all(link).startswith(b"HTTP/1.1 431 ")


def test_head_and_body_that_come_at_once_are_taken(serve: Serve, stack: ExitStack) -> None:
    body = b"name=" + b"x" * MAX_HEAD_BYTES
    head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    with serve() as client:
        link = connect(client, stack)
        link.sendall(head + body)

        assert b" 431 " not in read_answer(link)


def test_one_address_has_a_share_of_the_connections(
    serve: Serve, stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    limits = ConnectionLimits(10, 4, request_seconds=3600)
    with serve(limits=limits) as client:
        for _ in range(4):
            connect(client, stack).sendall(HALF)
        assert wait_until(lambda: limits.count == 4, patience=PATIENCE)

        refused = [read_all(connect(client, stack)) for _ in range(3)]
        other = connect(client, stack, "127.0.0.2")
        other.sendall(WHOLE)
        served_answer = read_answer(other)

    assert {answer.partition(b"\r\n")[0] for answer in refused} == {b"HTTP/1.1 503 Service Unavailable"}
    assert all(b"4 connections are open from this address" in answer for answer in refused)
    assert served_answer.startswith(b"HTTP/1.1 200 ")
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["web: refused 127.0.0.1 with 503: 4 connections are open from this address"]


def test_a_network_of_ipv6_addresses_has_the_share_of_one_address() -> None:
    limits = ConnectionLimits(10, 2)
    for address in ("2001:db8::1", "2001:db8::2"):
        assert limits.refusal(address) == ""
        limits.add(address)

    assert limits.refusal("2001:db8::3") == "2 connections are open from this address"
    assert limits.refusal("2001:db8:0:1::1") == ""
    assert limits.refusal("192.0.2.1") == ""
    limits.remove("2001:db8::1")
    assert limits.refusal("2001:db8::3") == ""


def test_all_addresses_together_have_no_more_than_all_connections(serve: Serve, stack: ExitStack) -> None:
    limits = ConnectionLimits(6, 3, request_seconds=3600)
    with serve(limits=limits) as client:
        links = [connect(client, stack, f"127.0.0.{number % 2 + 2}") for number in range(6)]
        assert wait_until(lambda: limits.count == 6, patience=PATIENCE)

        refused = read_all(connect(client, stack))
        links[0].close()
        assert wait_until(lambda: limits.count == 5, patience=PATIENCE)

        assert b"6 connections are open\n" in refused
        assert client.get("/healthz").status_code == 200


def echo_app() -> FastAPI:
    """Return an app that sends back what comes over a WebSocket of any path."""
    app = FastAPI()

    @app.websocket("/{path:path}")
    async def echo(websocket: WebSocket) -> None:
        await websocket.accept()
        while True:
            await websocket.send_text(await websocket.receive_text())

    return app


def only_websocket(server: uvicorn.Server) -> WebSocketsSansIOProtocol:
    """Return the server's end of the only WebSocket, once there is one."""

    def found() -> list[WebSocketsSansIOProtocol]:
        return [
            each for each in server.server_state.connections if isinstance(each, WebSocketsSansIOProtocol)
        ]

    assert wait_until(lambda: bool(found()), patience=PATIENCE)
    (websocket,) = found()
    return websocket


def test_answers_to_pings_that_a_client_does_not_read_fill_no_memory() -> None:
    server = make_server(echo_app(), ConnectionLimits(10))
    with serving(server) as place, RawWebSocket(place) as client:
        websocket = only_websocket(server)
        for link, option in (
            (client.link, socket.SO_RCVBUF),
            (websocket.transport.get_extra_info("socket"), socket.SO_SNDBUF),
        ):
            link.setsockopt(socket.SOL_SOCKET, option, 4096)
        pings = frame(bytes(125), PING) * 100
        for _ in range(200):
            client.send(pings)
        # The echo of the first waits until the client reads, and the second until then.
        client.send(frame("the first") + frame("the last"))
        assert wait_until(lambda: not websocket.transport.is_reading(), patience=PATIENCE)
        kept = websocket.transport.get_write_buffer_size()
        is_echoed = client.read_until(b"the last")

    assert 0 < kept < 600_000
    assert is_echoed


@pytest.mark.parametrize("part", [b"", b"x"])
def test_message_of_very_many_parts_ends_its_connection(part: bytes) -> None:
    limits = ConnectionLimits(10)
    with serving(make_server(echo_app(), limits)) as place, RawWebSocket(place) as client:
        client.send(frame(b"", is_last=False))
        client.send(frame(part, CONTINUATION, is_last=False) * 1000)

        assert client.read_until(b"too many fragments")
        assert wait_until(lambda: limits.count == 0, patience=PATIENCE)


def test_text_that_is_no_utf_8_ends_its_connection_without_a_trace_in_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    limits = ConnectionLimits(10)
    with serving(make_server(echo_app(), limits)) as place, RawWebSocket(place) as client:
        client.send(frame(b"\xff\xfe"))

        assert client.read_until(b"invalid UTF-8")
        assert wait_until(lambda: limits.count == 0, patience=PATIENCE)

    assert "Invalid UTF-8" not in capsys.readouterr().err


def test_message_of_a_few_parts_is_taken() -> None:
    with serving(make_server(echo_app(), ConnectionLimits(10))) as place, RawWebSocket(place) as client:
        client.send(frame(b"x", is_last=False))
        client.send(frame(b"y", CONTINUATION, is_last=False) * 30)
        client.send(frame(b"z", CONTINUATION))

        assert client.read_until(b"x" + 30 * b"y" + b"z")


def test_websocket_that_answers_no_ping_is_cut_off_though_it_reads_nothing() -> None:
    limits = ConnectionLimits(10)
    server = make_server(echo_app(), limits)
    server.config.ws_ping_interval = server.config.ws_ping_timeout = 0.2
    with serving(server) as place, RawWebSocket(place) as client:
        websocket = only_websocket(server)
        websocket.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        client.link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(100):
            client.send(frame(b"x" * 100_000))

        assert wait_until(lambda: limits.count == 0, patience=PATIENCE)


def test_a_websocket_counts_until_it_is_closed() -> None:
    limits = ConnectionLimits(10)

    with serving(make_server(echo_app(), limits)) as place:
        with connect_websocket(f"ws://{place}/") as websocket:
            websocket.send("hello")
            echoed, count = websocket.recv(), limits.count
        assert wait_until(lambda: limits.count == 0, patience=PATIENCE)

    assert (echoed, count) == ("hello", 1)


def test_the_limits_stay_below_the_limit_on_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, total in ((256, 128), (1024, 768), (65_536, 4096)):
        monkeypatch.setattr("resource.getrlimit", lambda _, files=files: (files, files))

        assert (ConnectionLimits().total, ConnectionLimits().per_address) == (total, total // 2)
