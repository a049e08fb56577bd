"""The list of tasks: what is asked for is found on the server, kept in the address, and followed."""

import json
from collections.abc import Iterator
from time import time
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from celeriac.testing.brokers import RedisServer
from tests.browser.conftest import Visit
from tests.browser.kit import Cluster, Dashboard, dashboard, keep_screenshot

#: What somebody who sends tasks would have run in the browser of who looks.
HOSTILE = "<img src=x onerror=alert(1)>{{alert(2)}}"


@pytest.fixture(scope="module")
def busy(redis: RedisServer, cluster: Cluster) -> Iterator[Dashboard]:
    with dashboard(redis.url) as running:
        for number in range(120):
            cluster.run_task(f"t{number}", node=f"w{number % 2 + 1}@lab", args=f"({number},)")
        for number in range(15):
            cluster.fail_task(f"f{number}", name="shop.refund", error=f"ValueError('account {number}')")
        cluster.send("task-received", "w9@far", uuid="waits", name="mail.send", args="('a',)", kwargs="{}")
        cluster.send("task-received", "w9@far", uuid=f"x{HOSTILE}", name=HOSTILE, args=HOSTILE, kwargs="{}")
        cluster.arrived(running)
        yield running


def rows(page: Page) -> Locator:
    return page.locator("[data-table] tbody tr")


def cells(page: Page, column: int) -> list[str]:
    return rows(page).locator(f"td:nth-child({column})").all_inner_texts()


def query(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def test_its_rows_are_those_that_the_api_tells(busy: Dashboard, visit: Visit) -> None:
    visitor = visit(busy)
    page = visitor.go("/tasks")
    told = busy.api("tasks", limit=100)["tasks"]

    expect(rows(page)).to_have_count(100)
    assert cells(page, 3) == [task["uuid"] for task in told]
    assert cells(page, 1) == [task["state"] for task in told]
    expect(page.locator("[data-total]")).to_have_text("137 tasks in memory")
    expect(page.locator("[data-follow]")).to_have_text("Live")
    expect(rows(page).first).to_contain_text(HOSTILE)
    visitor.check_access()
    keep_screenshot(page, "tasks")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"state": "FAILURE"}, 15),
        ({"state": ["FAILURE", "RECEIVED"]}, 17),
        ({"name": "shop.re*"}, 15),
        ({"worker": "w9@*"}, 2),
        ({"text": "ACCOUNT 1"}, 6),
        ({"text": "(77,)"}, 1),
        ({"name": "shop.*", "state": "SUCCESS", "worker": "w2@lab"}, 60),
        ({"last": "300", "name": "mail.*"}, 1),
        ({"since": str(int(time()) + 9000)}, 0),
        ({"until": "1000000000"}, 0),
        ({"last": "what", "since": "nan", "path": "/etc", "state": ""}, 100),
    ],
)
def test_what_the_address_asks_for_is_found(
    busy: Dashboard, visit: Visit, asked: dict[str, str | list[str]], found: int
) -> None:
    page = visit(busy).go("/tasks?" + "&".join(_pairs(asked)))

    if found:
        expect(rows(page)).to_have_count(found)
    else:
        expect(page.locator("[data-empty=tasks]")).to_have_text("No matching tasks. Widen the filter.")
    known = {name: value for name, value in asked.items() if name not in ("last", "path")}
    if found < 100 and "last" not in asked:
        assert len(busy.api("tasks", limit=100, **known)["tasks"]) == found


def _pairs(asked: dict[str, str | list[str]]) -> Iterator[str]:
    for name, values in asked.items():
        for value in values if isinstance(values, list) else [values]:
            yield f"{name}={quote(value)}"


def test_each_field_narrows_the_list_and_is_kept_in_the_address(busy: Dashboard, visit: Visit) -> None:
    visitor = visit(busy)
    page = visitor.go("/tasks")
    expect(rows(page)).to_have_count(100)

    page.keyboard.press("/")
    page.keyboard.type("account")
    expect(rows(page)).to_have_count(15)
    page.get_by_label("Name", exact=True).fill("shop.*")
    page.wait_for_url("**name=*")
    page.get_by_label("Worker", exact=True).fill("w1@*")
    page.wait_for_url("**worker=*")
    page.get_by_role("combobox", name="State").click()
    page.get_by_role("option", name="FAILURE").click()
    page.get_by_role("option", name="RETRY").click()
    page.keyboard.press("Escape")
    page.get_by_role("combobox", name="Time range").click()
    expect(page.get_by_role("option", name="Last hour")).to_be_visible()
    visitor.check_access()
    page.get_by_role("option", name="Last hour").click()

    page.wait_for_url("**last=3600*")
    assert query(page) == {
        "state": ["FAILURE", "RETRY"],
        "name": ["shop.*"],
        "worker": ["w1@*"],
        "text": ["account"],
        "last": ["3600"],
    }
    expect(rows(page)).to_have_count(15)
    visitor.check_access()
    keep_screenshot(page, "tasks-filtered")

    page.reload()

    expect(rows(page)).to_have_count(15)
    expect(page.get_by_label("Search")).to_have_value("account")
    page.locator("[data-clear]").click()
    expect(rows(page)).to_have_count(100)
    page.wait_for_url(f"{busy.address}/tasks")


def test_moments_can_be_told_exactly(busy: Dashboard, visit: Visit) -> None:
    page = visit(busy).go("/tasks")
    page.get_by_role("combobox", name="Time range").click()
    page.get_by_role("option", name="Custom range").click()
    page.get_by_label("End (UTC)").fill("2020-01-01T00:00:00")

    expect(page.locator("[data-empty=tasks]")).to_have_text("No matching tasks. Widen the filter.")
    page.wait_for_url("**/tasks?until=1577836800")
    page.locator("[data-widen]").click()
    expect(rows(page)).to_have_count(100)


def test_older_tasks_are_a_page_away_and_do_not_follow(
    busy: Dashboard, cluster: Cluster, visit: Visit
) -> None:
    page = visit(busy).go("/tasks")
    expect(rows(page)).to_have_count(100)
    first = busy.api("tasks", limit=100)

    page.locator("[data-older]").click()
    older = busy.api("tasks", limit=100, before=first["next"])["tasks"]
    expect(page.locator("[data-follow]")).to_contain_text("Page 2")
    expect(rows(page)).to_have_count(len(older))
    assert cells(page, 3) == [task["uuid"] for task in older]
    expect(page.locator("[data-older]")).to_be_disabled()

    cluster.run_task("comes")
    cluster.arrived(busy)
    expect(page.locator("[data-total]")).to_have_text(f"{busy.api('overview')['tasks']} tasks in memory")
    assert cells(page, 3) == [task["uuid"] for task in older]
    page.locator("[data-newest]").click()

    expect(rows(page).first).to_contain_text("comes")
    expect(page.locator("[data-follow]")).to_have_text("Live")


def test_two_clicks_at_once_go_one_page_back(busy: Dashboard, visit: Visit) -> None:
    page = visit(busy).go("/tasks")
    expect(rows(page)).to_have_count(100)

    page.locator("[data-older]").evaluate("button => { button.click(); button.click(); }")

    expect(page.locator("[data-follow]")).to_contain_text("Page 2")
    expect(rows(page)).not_to_have_count(100)
    expect(page.locator("[data-older]")).to_be_disabled()
    expect(page.locator("[data-follow]")).to_contain_text("Page 2")


def test_it_follows_what_happens(busy: Dashboard, cluster: Cluster, visit: Visit) -> None:
    page = visit(busy).go("/tasks?name=live.*")
    expect(page.locator("[data-empty=tasks]")).to_be_visible()

    cluster.send("task-received", uuid="l1", name="live.one", args="()", kwargs="{}")
    expect(rows(page)).to_have_count(1)
    expect(rows(page).first).to_contain_text("RECEIVED")
    cluster.send("task-started", uuid="l1")

    expect(rows(page).first).to_contain_text("STARTED")


def test_a_saved_view_is_there_after_a_reload_until_it_is_deleted(busy: Dashboard, visit: Visit) -> None:
    name = "Mine \"'<b>"
    visitor = visit(busy)
    page = visitor.go("/tasks?name=shop.re*&state=FAILURE")
    expect(rows(page)).to_have_count(15)
    page.locator("[data-save]").click()
    page.get_by_label("View name").fill(name)
    visitor.check_access()
    keep_screenshot(page, "tasks-save")
    page.locator("[data-save-dialog]").get_by_role("button", name="Save view").click()
    expect(page.locator("[data-delete-view]")).to_be_visible()

    page = visitor.go("/tasks")
    expect(rows(page)).to_have_count(100)
    page.get_by_role("combobox", name="View").click()
    page.get_by_role("option", name=name).click()
    expect(rows(page)).to_have_count(15)
    assert query(page) == {"name": ["shop.re*"], "state": ["FAILURE"]}
    expect(page.get_by_label("Name", exact=True)).to_have_value("shop.re*")
    page.locator("[data-delete-view]").click()
    expect(page.locator("[data-delete-view]")).to_be_hidden()

    assert json.loads(page.evaluate("localStorage.getItem('celeriac-views')")) == []


def test_some_views_are_there_from_the_start(busy: Dashboard, visit: Visit) -> None:
    page = visit(busy).go("/tasks")
    page.evaluate("localStorage.setItem('celeriac-views', '[{\"name\": 7}, null, {}]')")
    page.reload()
    page.get_by_role("combobox", name="View").click()
    page.get_by_role("option", name="Failed", exact=True).click()

    expect(rows(page)).to_have_count(15)
    page.wait_for_url("**/tasks?state=FAILURE")


def test_a_row_leads_to_its_task(busy: Dashboard, visit: Visit) -> None:
    page = visit(busy).go("/tasks?text=waits")

    page.get_by_role("link", name="waits").click()

    page.wait_for_url("**/tasks/waits")


def test_without_leave_nothing_can_be_done(busy: Dashboard, visit: Visit) -> None:
    page = visit(busy).go("/tasks")
    expect(rows(page)).to_have_count(100)

    expect(page.locator("[data-no-actions]")).to_have_text(
        "Read-only. To enable actions, restart with --allow-control."
    )
    expect(page.locator("[data-action]")).to_have_count(0)
    expect(page.get_by_role("checkbox")).to_have_count(0)


def test_with_no_tasks_it_says_how_to_have_some(own_redis: RedisServer, visit: Visit) -> None:
    with dashboard(own_redis.url) as quiet:
        visitor = visit(quiet)
        page = visitor.go("/tasks")

        expect(page.locator("[data-empty=tasks]")).to_contain_text("celeriac control enable")
        expect(page.locator("[data-widen]")).to_be_hidden()
        visitor.check_access()
        keep_screenshot(page, "tasks-empty")


def test_it_can_be_read_in_the_dark(busy: Dashboard, visit: Visit) -> None:
    visitor = visit(busy, color_scheme="dark")
    page = visitor.go("/tasks?state=FAILURE")
    expect(rows(page)).to_have_count(15)

    visitor.check_access()
    keep_screenshot(page, "tasks-dark")


def test_on_a_phone_the_table_is_scrolled_and_not_the_page(busy: Dashboard, visit: Visit) -> None:
    visitor = visit(busy, viewport={"width": 390, "height": 800})
    page = visitor.go("/tasks?state=FAILURE")
    expect(rows(page)).to_have_count(15)

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    visitor.check_access()
    keep_screenshot(page, "tasks-phone")
