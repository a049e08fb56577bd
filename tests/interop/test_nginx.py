"""The dashboard behind a real nginx, with the configuration of the page about proxies."""

import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI, WebSocket

from celeriac.programs.port import LOOPBACK, free_port
from celeriac.programs.process import find_program
from celeriac.programs.service import Service
from celeriac.web.access import Access, Account, Role, hashed
from celeriac.web.connection import ConnectionLimits
from celeriac.web.proxy import TrustedProxies
from celeriac.web.server import hosts_of, make_app, make_server
from tests.component.web.kit import PATIENCE, Rig, rig, serving
from tests.tidy.repository import ROOT, blocks

NAME = "tasks.example.com"
PAGE = ROOT / "docs" / "howto" / "use-a-reverse-proxy.md"
UPGRADE = (
    "GET /echo HTTP/1.1\r\nHost: {name}\r\nOrigin: https://{name}\r\nCookie: celeriac_login={cookie}\r\n"
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class Nginx(Service):
    """An nginx with the configuration of the page in front of a dashboard."""

    name = "nginx"

    def __init__(self, upstream: str) -> None:
        super().__init__()
        self._port = free_port()
        self.certificate = self.folder / "tasks.example.com.pem"
        self._make_certificate()
        (shown,) = [block.code for block in blocks(PAGE.read_text()) if block.language == "nginx"]
        for old, new in (
            ("listen 443 ssl;", f"listen {LOOPBACK}:{self.port} ssl;"),
            ("http://127.0.0.1:8765;", f"http://{upstream};"),
            ("/etc/ssl/", f"{self.folder}/"),
        ):
            assert old in shown
            shown = shown.replace(old, new)
        kept = "".join(
            f"{kind}_temp_path {self.folder}/{kind};\n"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (self.folder / "nginx.conf").write_text(
            f"daemon off;\nworker_processes 1;\npid {self.folder}/pid;\nerror_log stderr;\n"
            f"events {{}}\nhttp {{\naccess_log off;\n{kept}{shown}\n}}\n"
        )

    def _make_certificate(self) -> None:
        key = self.certificate.with_suffix(".key")
        command = [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"),
            *("-keyout", str(key), "-out", str(self.certificate)),
        ]
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603

    @property
    def port(self) -> int:
        return self._port.number

    def close(self) -> None:
        """Stop, remove the folder and give the port back."""
        super().close()
        self._port.release()

    def _program(self) -> Path:
        return find_program("nginx", package="nginx")

    def _command(self) -> list[str]:
        return [str(self._program()), "-p", str(self.folder), "-c", str(self.folder / "nginx.conf")]

    def _is_ready(self) -> bool:
        with socket.socket() as link:
            return link.connect_ex((LOOPBACK, self.port)) == 0


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("proxy")) as made:
        yield made


@pytest.fixture(scope="module")
def nginx(dashboard: Rig) -> Iterator[Nginx]:
    accounts = [Account("ada", Role.VIEWER, hashed("open-barley"))]
    app = make_app(dashboard.board, Access(accounts), hosts=hosts_of(LOOPBACK, [NAME]))
    add_echo(app)
    limits = ConnectionLimits(proxies=TrustedProxies([LOOPBACK]))
    with serving(make_server(app, limits)) as place, Nginx(place) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def context(nginx: Nginx) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(nginx.certificate))


@pytest.fixture(scope="module")
def client(nginx: Nginx, context: ssl.SSLContext) -> Iterator[httpx.Client]:
    """A browser of somebody who logged in."""
    headers = {"Host": NAME, "Origin": f"https://{NAME}"}
    url = f"https://{LOOPBACK}:{nginx.port}"
    extensions = {"sni_hostname": NAME}
    with httpx.Client(base_url=url, headers=headers, verify=context, timeout=PATIENCE) as browser:
        form = {"name": "ada", "password": "open-barley"}
        answer = browser.post("/login", data=form, extensions=extensions)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"]
        assert "Secure" in cookie
        browser.headers["Cookie"] = cookie.partition(";")[0]
        # Each request needs the name that the certificate has.
        browser.event_hooks["request"] = [lambda request: request.extensions.update(extensions)]
        yield browser


def add_echo(app: FastAPI) -> None:
    """Add a WebSocket, as pages have one, that says from where it was opened."""

    @app.websocket("/echo")
    async def echo(link: WebSocket) -> None:
        await link.accept()
        await link.send_text(link.client.host if link.client else "")


def test_whoever_logged_in_by_nginx_reads_the_api(client: httpx.Client) -> None:
    assert client.get("/api/v1/overview").status_code == 200
    assert client.get("/api/v1/overview", headers={"Cookie": ""}).status_code == 401


def test_nginx_passes_the_host_that_was_asked_for(client: httpx.Client) -> None:
    answer = client.get("/api/v1/overview", headers={"Host": "other.example.com"})

    assert answer.status_code == 421


def test_nginx_opens_websockets_and_forwards_the_address(
    nginx: Nginx, context: ssl.SSLContext, client: httpx.Client
) -> None:
    cookie = str(client.headers["Cookie"]).partition("=")[2]
    with (
        socket.create_connection((LOOPBACK, nginx.port), timeout=PATIENCE) as plain,
        context.wrap_socket(plain, server_hostname=NAME) as link,
    ):
        link.sendall(UPGRADE.format(name=NAME, cookie=cookie).encode())
        received = b""
        while LOOPBACK.encode() not in received:
            part = link.recv(4096)
            assert part, received
            received += part

    assert received.startswith(b"HTTP/1.1 101 ")


def test_nginx_passes_events_on_as_they_come(dashboard: Rig, client: httpx.Client) -> None:
    with client.stream("GET", "/api/v1/events", params={"limit": 1}) as answer:
        lines = (line for line in answer.iter_lines() if line)
        assert next(lines) == ": listening"
        dashboard.send("worker-online")

        assert next(lines) == "event: events"
        assert "worker-online" in next(lines)
