"""Who has to log in, and what pages let a viewer and an operator do."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, WebSocketRoute, expect

from celeriac.testing.brokers import RedisServer
from celeriac.web.access import read_accounts, write_accounts
from celeriac.web.guard import COOKIE
from tests.browser.conftest import Visit
from tests.browser.kit import Dashboard, Visitor, keep_screenshot
from tests.browser.team import PASSWORD, locked_dashboard

#: A page that is loaded once, and polls nothing.
PAST = "/workers?at=1700000000"
#: The request by which a page checks whether it is still logged in.
CHECK = "**/static/celeriac.js"


def log_in(visitor: Visitor, name: str, password: str = PASSWORD, path: str = "/") -> Page:
    page = visitor.go(path)
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    return page


def test_who_is_not_known_is_asked_first_and_then_let_where_he_wanted_to(
    locked: Dashboard, visit: Visit
) -> None:
    visitor = visit(locked)

    page = visitor.go("/workers")
    page.wait_for_url("**/login?next=/workers")
    visitor.check_access()
    keep_screenshot(page, "login")
    log_in(visitor, "vera", path="/workers")

    page.wait_for_url("**/workers")
    expect(page.locator("main")).to_contain_text("w1@lab")
    expect(page.locator("header")).to_contain_text("vera (viewer)")


def test_what_a_link_asks_for_is_there_after_the_login(locked: Dashboard, visit: Visit) -> None:
    visitor = visit(locked)

    page = log_in(visitor, "vera", path="/tasks?state=SUCCESS&name=shop.%2A")

    page.wait_for_url("**/tasks?state=SUCCESS&name=shop.%2A")
    expect(page.locator("main")).to_contain_text("t1")


def test_a_wrong_password_is_told_and_lets_nobody_in(locked: Dashboard, visit: Visit) -> None:
    visitor = visit(locked)

    page = log_in(visitor, "vera", "wrong")

    expect(page.get_by_role("alert")).to_have_text("Wrong username or password.")
    assert visitor.page.context.cookies() == []
    # The browser says by itself that it was refused.
    visitor.errors[:] = [error for error in visitor.errors if "401" not in error]


@pytest.mark.parametrize(("name", "may_act"), [("vera", False), ("ada", True)])
def test_only_an_operator_is_shown_what_he_may_do(
    locked: Dashboard, visit: Visit, name: str, may_act: bool
) -> None:
    visitor = visit(locked)
    page = log_in(visitor, name, path="/tasks/t1")
    page.wait_for_url("**/tasks/t1")
    expect(page.locator("main")).to_contain_text("shop.pay")

    for path in ("/tasks/t1", "/workers/w1@lab"):
        visitor.go(path)
        expect(page.locator("main")).to_contain_text("w1@lab")
        buttons = page.get_by_role("button", name="Retry" if "tasks" in path else "Shut down")
        expect(buttons).to_have_count(1 if may_act else 0)


def forgive_refusals(visitor: Visitor) -> None:
    """Forget what the browser itself logs about requests and sockets that were refused."""
    expected = re.compile("WebSocket connection to|Failed to load resource")
    visitor.errors[:] = [error for error in visitor.errors if not expected.search(error)]


def expect_login(visitor: Visitor, path: str) -> None:
    """Expect the login page, which leads back to a path."""
    visitor.page.wait_for_url(re.compile(r"/login\?next="))
    expect(visitor.page.locator("input[name=next]")).to_have_value(path)
    forgive_refusals(visitor)


def test_who_logs_out_is_let_in_no_more_also_not_by_a_page_that_is_open(
    locked: Dashboard, visit: Visit
) -> None:
    visitor = visit(locked)
    page = log_in(visitor, "ada")
    expect(page.locator("[data-tile=tasks]")).to_have_text("2")
    other = page.context.new_page()
    other.goto(f"{locked.address}/")
    expect(other.locator("[data-tile=tasks]")).to_have_text("2")

    other.get_by_role("button", name="Log out").click()

    other.wait_for_url("**/login")
    expect_login(visitor, "/")


def log_out_elsewhere(at: Dashboard, page: Page) -> None:
    """End the login of a page without the page, as a logout in another tab does."""
    shown = next(each["value"] for each in page.context.cookies() if each["name"] == COOKIE)
    answer = at.client.post("/logout", headers={"Cookie": f"{COOKIE}={shown}"})
    assert answer.status_code == 303


def open_past(visitor: Visitor, name: str = "vera") -> Page:
    """Log in and open a page whose only traffic is its socket."""
    page = log_in(visitor, name, path=PAST)
    page.wait_for_url(f"**{PAST}")
    page.wait_for_function("window.socket?.connected")
    expect(page.get_by_role("alert")).not_to_be_empty()
    return page


def test_logout_closes_a_page_that_sends_and_asks_nothing(locked: Dashboard, visit: Visit) -> None:
    visitor = visit(locked)
    page = open_past(visitor)

    log_out_elsewhere(locked, page)

    expect_login(visitor, PAST)


@pytest.mark.parametrize("transport", ["websocket", "polling"])
def test_reconnect_refused_after_logout_leads_to_the_login_page(
    locked: Dashboard, visit: Visit, transport: str
) -> None:
    visitor = visit(locked)
    page = open_past(visitor)
    # The check at the disconnect fails, as without a network; only that at the refusal can lead anywhere.
    page.route(CHECK, lambda route: route.abort())
    with page.expect_event("requestfailed"):
        page.evaluate("name => { socket.io.opts.transports = [name]; socket.disconnect(); }", transport)
    page.unroute(CHECK)

    log_out_elsewhere(locked, page)
    page.evaluate("() => { socket.connect(); }")

    expect_login(visitor, PAST)


def test_socket_opened_after_logout_leads_to_the_login_page(locked: Dashboard, visit: Visit) -> None:
    visitor = visit(locked)
    page = log_in(visitor, "vera", path=PAST)
    page.wait_for_url(f"**{PAST}")
    opened: list[str] = []

    def log_out_first(socket: WebSocketRoute) -> None:
        if not opened:
            log_out_elsewhere(locked, page)
        opened.append(socket.url)
        socket.connect_to_server()

    page.route_web_socket(re.compile("socket.io"), log_out_first)
    page.reload()

    expect_login(visitor, PAST)
    assert opened


def test_handshake_after_logout_leads_to_the_login_page(locked: Dashboard, visit: Visit) -> None:
    visitor = visit(locked)
    page = log_in(visitor, "vera", path=PAST)
    page.wait_for_url(f"**{PAST}")
    sent: list[str | bytes] = []

    def log_out_first(socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()

        def send(message: str | bytes) -> None:
            if not sent:
                log_out_elsewhere(locked, page)
            sent.append(message)
            server.send(message)

        socket.on_message(send)

    page.route_web_socket(re.compile("socket.io"), log_out_first)
    page.reload()

    expect_login(visitor, PAST)
    assert sent[0] == "40"


@pytest.mark.parametrize("asset", ["nicegui.js", "celeriac.js"])
def test_scripts_refused_after_logout_lead_to_the_login_page(
    locked: Dashboard, visit: Visit, asset: str
) -> None:
    visitor = visit(locked)
    page = log_in(visitor, "vera", path=PAST)
    page.wait_for_url(f"**{PAST}")
    refused: list[str] = []

    def log_out_first(route: Route) -> None:
        if not refused:
            log_out_elsewhere(locked, page)
        refused.append(route.request.url)
        route.continue_()

    page.route(f"**/{asset}", log_out_first)
    page.reload()

    expect_login(visitor, PAST)
    assert refused
    # A page without some of its scripts, styles and fonts fails in many ways.
    visitor.errors[:] = [error for error in visitor.errors if "Security Policy" in error]


def test_page_of_another_login_is_loaded_again(locked: Dashboard, visit: Visit) -> None:
    visitor = visit(locked)
    page = open_past(visitor, "ada")
    page.evaluate("() => { socket.disconnect(); }")

    form: dict[str, str | float | bool] = {"name": "vera", "password": PASSWORD, "next": "/"}
    assert page.context.request.post(f"{locked.address}/login", form=form).ok
    page.evaluate("() => { socket.connect(); }")

    expect(page.locator("header")).to_contain_text("vera (viewer)")
    assert page.url.endswith(PAST)


def test_logout_of_a_page_leads_to_the_login_page_alone(locked: Dashboard, visit: Visit) -> None:
    visitor = visit(locked)
    page = open_past(visitor)
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/logout", hold)
    page.get_by_role("button", name="Log out").click(no_wait_after=True)
    # The page sees that its login has ended before it has the answer to its logout.
    with page.expect_event("requestfailed", lambda request: "celeriac.js" in request.url):
        log_out_elsewhere(locked, page)
    held[0].continue_()

    page.wait_for_url("**/login")
    forgive_refusals(visitor)


def test_page_waits_for_a_server_that_is_down_and_logs_in_where_it_is_unknown(
    redis: RedisServer, visit: Visit, tmp_path: Path
) -> None:
    with locked_dashboard(redis.url, tmp_path) as before:
        visitor = visit(before)
        page = open_past(visitor)
        page.evaluate("() => { socket.io.reconnectionDelayMax(500); }")
    with page.expect_event("requestfailed", lambda request: "celeriac.js" in request.url):
        pass
    assert page.url.endswith(PAST)
    port = before.address.rpartition(":")[2]

    with locked_dashboard(redis.url, tmp_path, "--port", port):
        expect_login(visitor, PAST)


def test_a_page_of_another_site_gets_no_live_link(locked: Dashboard, visit: Visit) -> None:
    visitor = visit(locked)
    log_in(visitor, "ada").wait_for_url(f"{locked.address}/")
    cookie = next(each for each in visitor.page.context.cookies() if each.get("name") == COOKIE)
    assert (cookie.get("httpOnly"), cookie.get("sameSite")) == (True, "Strict")
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Cookie": f"{COOKIE}={cookie.get('value')}",
    }
    path = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"

    codes = [
        locked.client.get(path, headers={**upgrade, "Origin": origin}).status_code
        for origin in ("https://evil.example", "null")
    ]

    assert codes == [403, 403]


def test_page_of_a_removed_user_closes_and_leads_to_the_login_page(
    redis: RedisServer, visit: Visit, tmp_path: Path
) -> None:
    file = tmp_path / "accounts.json"
    with locked_dashboard(redis.url, tmp_path) as board:
        removed, other = visit(board), visit(board)
        for visitor, name in ((removed, "vera"), (other, "ada")):
            log_in(visitor, name, path="/workers").wait_for_url("**/workers")
            expect(visitor.page.locator("header")).to_contain_text(name)

        write_accounts(file, [each for each in read_accounts(file) if each.name != "vera"])

        # By itself: nothing on the page is clicked.
        removed.page.wait_for_url("**/login?next=/workers")
        log_in(removed, "vera", path="/workers")
        expect(removed.page.get_by_role("alert")).to_have_text("Wrong username or password.")
        other.go("/tasks")
        expect(other.page.locator("header")).to_contain_text("ada (operator)")
        removed.errors[:] = [error for error in removed.errors if "401" not in error]
