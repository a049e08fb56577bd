"""The page to log in at, and the way out. It works without any script."""

from html import escape
from typing import Final
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.requests import ClientDisconnect

from celeriac.errors import CallerError
from celeriac.web.access import LOGIN_SECONDS, Access
from celeriac.web.guard import COOKIE, address_of
from celeriac.web.guess import run_guess

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

_MAX_FORM_BYTES: Final = 4096
_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Log in - Celeriac</title>
<style>
  :root {{ color-scheme: light dark; }}
  body {{ font-family: system-ui, sans-serif; margin: 0; }}
  body {{ display: grid; place-items: center; min-height: 90vh; }}
  form {{ display: grid; gap: .75rem; width: min(20rem, 90vw); }}
  input, button {{ font: inherit; padding: .5rem; }}
  .wrong {{ color: light-dark(#b00020, #ff8a80); margin: 0; }}
</style>
</head>
<body>
<main>
<h1>Celeriac</h1>
<form method="post" action="/login">
{note}
<input type="hidden" name="next" value="{next}">
<label for="name">Username</label>
<input id="name" name="name" autocomplete="username" required autofocus>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required>
<button type="submit">Log in</button>
</form>
</main>
</body>
</html>
"""


@router.get("/login")
def show(next: str = "/") -> HTMLResponse:  # noqa: A002 - as it is in the address
    """Show the form."""
    return _page(next)


@router.post("/login")
async def log_in(request: Request) -> Response:
    """Let somebody in whose password is right."""
    access: Access = request.app.state.access
    content = bytearray()
    try:
        async for part in request.stream():
            content += part
            if len(content) > _MAX_FORM_BYTES:
                return _page("/", "Username or password too long.", 413)
    except ClientDisconnect:  # before all of the form came
        return Response(status_code=400)
    told = parse_qs(content.decode("utf-8", "replace"))
    name, password, target = (told.get(field, [""])[0] for field in ("name", "password", "next"))
    try:
        shown = await run_guess(access.log_in, name, password, address_of(request))
    except CallerError as error:
        return _page(target, f"{error}.", 429)
    if shown is None:
        return _page(target, "Wrong username or password.", 401)
    answer = RedirectResponse(_own(target), 303)
    answer.set_cookie(
        COOKIE,
        shown,
        max_age=int(LOGIN_SECONDS),
        httponly=True,
        samesite="strict",
        # We speak plain HTTP; whether a proxy before us speaks TLS, the browser says.
        secure=request.headers.get("origin", "").startswith("https:"),
    )
    return answer


@router.post("/logout")
def log_out(request: Request) -> Response:
    """Let somebody in no more."""
    access: Access = request.app.state.access
    access.log_out(request.cookies.get(COOKIE, ""))
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


def _page(target: str, note: str = "", status: int = 200) -> HTMLResponse:
    told = f'<p class="wrong" role="alert">{escape(note)}</p>' if note else ""
    return HTMLResponse(_PAGE.format(note=told, next=escape(_own(target))), status)


def _own(target: str) -> str:
    """Return where to go afterwards: a path of this dashboard, whatever the address said."""
    is_path = target.startswith("/") and not target.startswith(("//", "/\\")) and "\\" not in target
    return target if is_path and target.isprintable() else "/"
