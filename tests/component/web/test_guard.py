"""Who may come in by which door: every route, for everybody."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event

import httpx
import pytest

from celeriac.programs.process import wait_until
from celeriac.store.audit import Audit
from celeriac.web.access import Access, Account, Role, new_token
from celeriac.web.action import Actions
from celeriac.web.guard import COOKIE
from celeriac.web.server import make_app
from tests.component.web.kit import Rig, cheaply_hashed, served

PASSWORD = "correct horse battery"  # noqa: S105
TOKENS = {role: new_token(f"program-{role}") for role in Role}
ACCOUNTS = [
    Account("ada", Role.OPERATOR, cheaply_hashed(PASSWORD)),
    *(
        Account(f"program-{role}", role, cheaply_hashed(token), is_token=True)
        for role, token in TOKENS.items()
    ),
]


def actions_of(rig: Rig, tmp_path: Path) -> Actions:
    return Actions(rig.board, rig.app.control, Audit(tmp_path / "audit.jsonl"), send=rig.app.send_task)


#: Doors that are no part of the API.
OTHERS = [
    ("GET", "/login"), ("GET", "/healthz"), ("GET", "/api/v1/openapi.json"), ("GET", "/metrics"),
    ("POST", "/logout"),
]  # fmt: skip


def routes(rig: Rig) -> list[tuple[str, str]]:
    """Return each method and path that the dashboard has, with something in the place of parameters."""
    paths = make_app(rig.board, Access()).openapi()["paths"]
    told = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    return [(method, path.replace("{uuid}", "x").replace("{name}", "x")) for method, path in told] + OTHERS


@pytest.fixture
def locked(rig: Rig, tmp_path: Path) -> Iterator[httpx.Client]:
    """A dashboard where people have to say who they are, and operators may act."""
    access = Access(ACCOUNTS, allow_control=True)
    with served(rig, access, actions_of(rig, tmp_path)) as client:
        yield client


def asked(client: httpx.Client, method: str, path: str, token: str | None = None) -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    limit = {"limit": 1} if path.endswith("/events") else {}
    with client.stream(
        method, path, headers=headers, params=limit, json={} if method == "POST" else None
    ) as answer:
        return answer.status_code


def test_nobody_gets_in_by_any_door_without_saying_who_he_is(rig: Rig, locked: httpx.Client) -> None:
    told = {(method, path): asked(locked, method, path) for method, path in routes(rig)}

    assert len(told) > 20
    assert {path for (_, path), status in told.items() if status not in (303, 401)} == {"/login", "/healthz"}
    assert {status for (_, path), status in told.items() if path.startswith("/api/")} == {401}


@pytest.mark.parametrize("role", list(Role))
def test_a_viewer_may_look_and_an_operator_may_act_too(rig: Rig, locked: httpx.Client, role: Role) -> None:
    told = {(method, path): asked(locked, method, path, TOKENS[role]) for method, path in routes(rig)}

    acts = {status for (method, path), status in told.items() if method == "POST" and path != "/logout"}
    looks = {status for (method, _), status in told.items() if method == "GET"}
    # An empty command is none, mostly, which is found out only once somebody may give one.
    assert acts == ({403} if role is Role.VIEWER else {200, 400, 422})
    assert looks <= {200, 400, 404}


def test_nobody_may_act_where_that_is_not_allowed(rig: Rig, ask: httpx.Client) -> None:
    told = {asked(ask, method, path) for method, path in routes(rig) if "/control/" in path}

    assert told == {403}


def test_somebody_logs_in_with_a_password_and_out_again(locked: httpx.Client) -> None:
    wrong = locked.post("/login", data={"name": "ada", "password": "guess", "next": "/"})
    right = locked.post("/login", data={"name": "ada", "password": PASSWORD, "next": "/api/v1/workers"})
    inside = locked.get("/api/v1/workers")
    locked.post("/logout")
    outside = locked.get("/api/v1/workers")

    assert (wrong.status_code, right.status_code) == (401, 303)
    assert right.headers["location"] == "/api/v1/workers"
    cookie = right.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert (inside.status_code, outside.status_code) == (200, 401)


def test_logout_after_the_login_has_ended_leads_to_the_login_page(locked: httpx.Client) -> None:
    answer = locked.post("/logout")

    assert (answer.status_code, answer.headers["location"]) == (303, "/login")


@pytest.mark.parametrize(
    "target",
    ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", "", "/a\nb"],
)
def test_a_login_leads_nowhere_else(locked: httpx.Client, target: str) -> None:
    answer = locked.post("/login", data={"name": "ada", "password": PASSWORD, "next": target})

    assert answer.headers["location"] == "/"


def test_the_page_to_log_in_shows_nothing_of_its_address_as_html(locked: httpx.Client) -> None:
    page = locked.get("/login", params={"next": '/"><script>alert(1)</script>'})

    assert "<script" not in page.text


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "",
        "[::1",
        "a b",
        "localhost/login?",
        "localhost#",
        "x@localhost",
    ],
)
def test_who_asks_for_another_host_is_refused(ask: httpx.Client, host: str) -> None:
    answer = ask.get("/api/v1/overview", headers={"Host": host})

    assert answer.status_code in (400, 421)


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "http://[",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "http://localhost",
    ],
)
def test_the_page_of_another_site_cannot_act(locked: httpx.Client, origin: str) -> None:
    headers = {"Authorization": f"Bearer {TOKENS[Role.OPERATOR]}", "Origin": origin}
    order = {"workers": ["w1@lab"], "dry_run": True}

    foreign = locked.post("/api/v1/control/shutdown", json=order, headers=headers)
    own = str(locked.base_url).rstrip("/")
    ours = locked.post("/api/v1/control/shutdown", json=order, headers={**headers, "Origin": own})

    assert (foreign.status_code, ours.status_code) == (403, 200)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_the_page_of_another_site_may_lead_here_and_ask_for_nothing(ask: httpx.Client, site: str) -> None:
    picture = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
    link = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    frame = {**link, "Sec-Fetch-Dest": "iframe"}
    own = {**picture, "Sec-Fetch-Site": "same-origin"}

    told = [ask.get("/api/v1/workers", headers=each).status_code for each in (picture, frame, link, own)]

    assert told == [403, 403, 200, 200]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_form_of_another_site_without_origin_cannot_act(locked: httpx.Client, method: str) -> None:
    headers = {
        "Authorization": f"Bearer {TOKENS[Role.OPERATOR]}",
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    order = {"workers": ["w1@lab"], "dry_run": True}

    answer = locked.request(method, "/api/v1/control/shutdown", json=order, headers=headers)

    assert (answer.status_code, answer.text) == (
        403,
        "Cross-site request refused. Other sites may only link here.\n",
    )


@pytest.mark.parametrize("path", ["/api/v1/workers", "/api/v1/no-such", "/metrics"])
def test_no_cache_keeps_an_answer_for_programs(ask: httpx.Client, path: str) -> None:
    assert ask.get(path).headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "head",
    [b"X-A: " + b"a" * 200_000, b"\r\n".join(b"X-%d: a" % number for number in range(20_000))],
    ids=["long", "many"],
)
def test_a_head_without_end_is_refused_before_it_is_kept(ask: httpx.Client, head: bytes) -> None:
    with socket.create_connection((ask.base_url.host, ask.base_url.port or 0), timeout=60) as link:
        link.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        with suppress(ConnectionError):  # it may be closed before all was sent
            link.sendall(head + b"\r\n")
            assert b" 431 " in link.recv(1000)

    assert ask.get("/healthz").status_code == 200


def test_those_who_guess_wait_apart_from_those_who_are_known(
    locked: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {"Authorization": f"Bearer {TOKENS[Role.VIEWER]}"}
    assert locked.get("/api/v1/workers", headers=known).status_code == 200
    go_on, most, running = Event(), [0], [0]

    def slow(*_: object) -> bool:
        running[0] += 1
        most[0] = max(most[0], running[0])
        go_on.wait(60)
        running[0] -= 1
        return False

    monkeypatch.setattr("celeriac.web.access._is_right", slow)
    with ThreadPoolExecutor(9) as guessers:
        wrong = [
            guessers.submit(locked.post, "/login", data={"name": f"n{number}", "password": "x"})
            for number in range(9)
        ]
        try:
            assert wait_until(lambda: running[0] > 0, patience=60)
            assert locked.get("/api/v1/workers", headers=known).status_code == 200
        finally:
            go_on.set()

    assert {each.result().status_code for each in wrong} == {401}
    assert most[0] <= 2


def test_a_body_that_is_no_text_is_refused_and_not_sent_back(locked: httpx.Client) -> None:
    headers = {"Authorization": f"Bearer {TOKENS[Role.OPERATOR]}", "Content-Type": "application/json"}

    answer = locked.post(
        "/api/v1/control/revoke", content=b'{"ids": [1, "secret"], "\\ud800": 1}', headers=headers
    )

    assert answer.status_code == 422
    assert {tuple(each) for each in answer.json()["detail"]} == {("loc", "msg", "type")}
    assert "secret" not in answer.text


def test_every_answer_says_what_a_browser_may_do_with_it(ask: httpx.Client) -> None:
    for path in ("/api/v1/overview", "/login", "/api/v1/tasks/none"):
        headers = ask.get(path).headers

        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


def test_who_logs_out_is_told_of_no_further_events(rig: Rig) -> None:
    access = Access(ACCOUNTS)
    shown = access.log_in("ada", PASSWORD)
    assert shown is not None

    with served(rig, access) as client:
        client.cookies.set(COOKIE, shown)
        with client.stream("GET", "/api/v1/events") as answer:
            told = answer.iter_lines()
            assert next(told) == ": listening"
            access.log_out(shown)

            assert [line for line in told if line] == []  # it ends
        assert client.get("/api/v1/overview").status_code == 401
