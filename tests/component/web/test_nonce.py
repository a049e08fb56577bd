"""Only scripts of the dashboard carry the nonce that lets a browser run them."""

import asyncio
import re

import httpx
from nicegui.client import templates
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.types import Receive, Scope, Send

from celeriac.web.access import Access
from celeriac.web.guard import Guard
from celeriac.web.pages import mount  # noqa: F401 - marks the template

INJECTED = "<script>alert(1)</script>"
TRANSLATIONS = dict.fromkeys(
    ["connection_lost", "trying_to_reconnect", "message_too_long", "message_too_long_body"], ""
)


async def page(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with NiceGUI's page, in which somebody has a script."""
    context = {
        "request": Request(scope),
        "head_html": f"<title>{INJECTED}</title>",
        "body_html": INJECTED,
        "elements": INJECTED,
        "translations": TRANSLATIONS,
    }
    await HTMLResponse(templates.get_template("index.html").render(context))(scope, receive, send)


async def ask() -> httpx.Response:
    transport = httpx.ASGITransport(Guard(page, access=Access(), hosts=["localhost"]))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.get("/")


def test_an_injected_script_has_no_nonce() -> None:
    answer = asyncio.run(ask())

    (nonce,) = re.findall(r"'nonce-([^']+)'", answer.headers["content-security-policy"])
    with_nonce = answer.text.count(f'<script nonce="{nonce}"')
    assert answer.text.count(INJECTED) == 3
    assert answer.text.count("<script") - with_nonce == 3
    assert with_nonce > 3


def test_each_answer_has_a_nonce_of_its_own() -> None:
    policies = {asyncio.run(ask()).headers["content-security-policy"] for _ in range(3)}

    assert len(policies) == 3
