"""Who has to log in, and what pages let a viewer and an operator do."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visit
from tests.browser.kit import Dashboard, Visitor, keep_screenshot
from tests.browser.team import PASSWORD

#: Cookies of a browser that was logged in by somebody.
COOKIE = "celeriac_login"


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

    expect(page.get_by_role("alert")).to_have_text("No such name, or not its password.")
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
        buttons = page.get_by_role("button", name="Retry" if "tasks" in path else "Shut it down")
        expect(buttons).to_have_count(1 if may_act else 0)


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
    # It was not touched; what it is told when it asks for news sends it there.
    page.wait_for_url("**/login?next=%2F")


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
