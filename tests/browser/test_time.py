"""Every page as of a past instant: by the address, and by the slider."""

import re
from collections.abc import Iterator
from math import ceil
from time import sleep, time
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from tests.browser.conftest import Visit
from tests.browser.kit import PATIENCE, Cluster, Dashboard, dashboard, keep_screenshot
from tests.program import Program, own_environment
from tests.warehouses import publish, rollup

#: Of which the tables know, and the log nothing.
LONG_AGO_AT = 1_700_000_000.0 // 3600 * 3600

#: What each page is to show of the instant, each by where and what.
PAGES = {
    "/": {"[data-tile=tasks]": "1", "[data-tile=workers]": "1 of 1", "[data-state-row]": "SUCCESS"},
    "/tasks": {"[data-table] tbody tr": "early", "[data-total]": "1 tasks in memory"},
    "/tasks/early": {"[data-state]": "SUCCESS", "[data-name]": "shop.pay"},
    "/workflows/early": {"[data-name]": "shop.pay", "[data-table] tbody tr": "SUCCESS"},
    "/workers": {"[data-table] tbody tr": "ALIVE", "[data-count=ALIVE]": "1"},
    "/workers/w1@lab": {"[data-fact=liveness]": "ALIVE", "main": "shop.pay"},
    "/cluster": {
        "[aria-label='Lamport clocks'] tbody tr": "w1@lab",
        "[aria-label='Election events'] tbody tr": "id: first",
    },
    "/history": {"[data-answer] [data-tile=attempts]": "3"},
}


class Recorded(NamedTuple):
    """A dashboard with a log, and an instant after the first of two tasks and before the second."""

    dashboard: Dashboard
    between_at: int


@pytest.fixture(scope="module")
def recorded(
    redis: RedisServer, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Recorded]:
    folder = tmp_path_factory.mktemp("log")
    environment = own_environment(CELERIAC_BROKER_URL=redis.url)
    with Program("record", "log", "--limit", "9", cwd=folder, env=environment) as recorder:

        def is_recording() -> bool:
            with redis.client() as client:
                return bool(client.pubsub_numpat() or client.client_list(_type="pubsub"))

        assert wait_until(is_recording, patience=PATIENCE)
        cluster.send("worker-heartbeat", freq=600.0, active=0, processed=0)
        cluster.send("worker-elect", id="first", topic="report", action=None, cver=1)
        cluster.run_task("early")
        between_at = ceil(time()) + 1
        sleep(max(0.0, between_at + 1 - time()))
        cluster.send("worker-elect", id="second", topic="report", action=None, cver=1)
        cluster.run_task("tardy", name="shop.refund")
        assert recorder.wait() == 0
    tables = folder / "warehouse"
    times = [rollup(each, runs=[1.0, 2.0, 3.0]) for each in (between_at // 3600 * 3600 - 3600, LONG_AGO_AT)]
    publish(tables, {"rollups_hour": times, "rollups_minute": times})
    with dashboard(redis.url, "--log", str(folder / "log"), "--warehouse", str(tables)) as running:
        assert wait_until(lambda: running.api("overview")["tasks"] == 2, patience=PATIENCE)
        yield Recorded(running, between_at)


@pytest.mark.parametrize("path", list(PAGES))
def test_each_page_is_as_of_the_instant_of_its_address(recorded: Recorded, visit: Visit, path: str) -> None:
    visitor = visit(recorded.dashboard)

    page = visitor.go(f"{path}?at={recorded.between_at}")

    # First what is there, since all else is missing too until the past has been replayed.
    for place, text in PAGES[path].items():
        expect(page.locator(place)).to_contain_text(text)
    expect(page.locator("[data-as-of]")).to_contain_text("As of 20")
    expect(page.locator("[data-live]")).to_have_count(0)
    for later in ("shop.refund", "tardy", "id: second"):
        expect(page.locator("main")).not_to_contain_text(later)
    expect(page.locator(".notice")).to_be_hidden()
    # All ways lead to pages as of the same instant, but the one that leads back.
    targets = page.locator("a[href^='/']").evaluate_all(
        "links => links.map(link => link.getAttribute('href'))"
    )
    moments = {parse_qs(urlsplit(target).query).get("at", [""])[0] for target in targets}
    assert moments == {"", str(recorded.between_at)}
    assert [target for target in targets if "at=" not in target] == [path]


@pytest.mark.parametrize("path", ["/", "/tasks", "/workers", "/cluster"])
def test_a_page_of_the_past_says_how_much_of_it_is_shown_and_where_the_rest_is(
    recorded: Recorded, visit: Visit, path: str
) -> None:
    visitor = visit(recorded.dashboard)
    page = visitor.go(f"{path}?at={recorded.between_at}")

    expect(page.locator("[data-past-note]")).to_contain_text("the hour before")
    page.locator("[data-past-note]").get_by_role("link", name="Open History").click()

    page.wait_for_url(f"**/history?at={recorded.between_at}")
    expect(page.locator("[data-past-note]")).to_have_count(0)
    visitor.go(path)
    expect(page.locator("[data-past-note]")).to_have_count(0)


def test_tasks_that_were_silent_for_longer_than_an_hour_are_not_there(
    recorded: Recorded, visit: Visit
) -> None:
    page = visit(recorded.dashboard).go(f"/tasks?at={int(LONG_AGO_AT)}")

    expect(page.locator("[data-empty=tasks]")).to_contain_text("in the hour before this time")
    expect(page.locator("[data-past-note]")).to_contain_text("the hour before")


def test_on_a_phone_any_moment_can_be_gone_to(recorded: Recorded, visit: Visit) -> None:
    visitor = visit(recorded.dashboard, viewport={"width": 390, "height": 800})
    page = visitor.go("/tasks")
    expect(page.locator("[data-table] tbody tr").first).to_be_visible()

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_label("Exact time (UTC)").fill("2020-01-01T00:00:30")
    page.get_by_role("button", name="Go", exact=True).click()

    page.wait_for_url("**/tasks?at=1577836830")
    expect(page.locator("[data-as-of]")).to_have_text("As of 2020-01-01 00:00:30 UTC")
    expect(page.locator("[data-empty=tasks]")).to_contain_text("in the hour before this time")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    visitor.check_access()
    keep_screenshot(page, "tasks-past-phone")


def test_who_goes_to_no_moment_is_told_so(recorded: Recorded, visit: Visit) -> None:
    page = visit(recorded.dashboard).go("/tasks")

    page.get_by_role("button", name="Go", exact=True).click()

    expect(page.locator(".notice")).to_contain_text("Incomplete time")
    expect(page.locator("[data-live]")).to_be_visible()


def test_the_past_is_what_the_api_says_of_it(recorded: Recorded, visit: Visit) -> None:
    told = recorded.dashboard.api("overview", at=recorded.between_at)

    visitor = visit(recorded.dashboard)
    page = visitor.go(f"/?at={recorded.between_at}")

    assert told["tasks"] == 1
    expect(page.locator("[data-tile=tasks]")).to_have_text("1")
    visitor.check_access()
    keep_screenshot(page, "overview-past")


def test_the_slider_leads_to_an_instant_and_back(recorded: Recorded, visit: Visit) -> None:
    page = visit(recorded.dashboard).go("/tasks?name=shop.*")
    expect(page.locator("main")).to_contain_text("tardy")

    # Ten steps of 15 seconds, at once: a slider that rests on the way leads to where it rests.
    page.locator("[data-slider] [tabindex='0']").focus()
    for _ in range(ceil((time() + 60 - recorded.between_at) / 150)):
        page.keyboard.press("PageDown")
    page.wait_for_url(re.compile("at="))
    expect(page.locator("[data-as-of]")).to_be_visible()
    expect(page.locator("[data-total]")).to_have_text("0 tasks in memory")
    expect(page.locator("[data-empty=tasks]")).to_contain_text("in the hour before this time")
    expect(page.locator("main")).not_to_contain_text("tardy")
    page.get_by_role("link", name="Back to live").click()

    page.wait_for_url(re.compile(r"/tasks\?name=shop\.(\*|%2A)$"))
    expect(page.locator("[data-live]")).to_be_visible()
    expect(page.locator("[data-table] tbody tr")).to_have_count(2)


@pytest.mark.parametrize("at", ["-5", "nan", "inf", "1e300", "99999999999"])
def test_an_instant_that_is_none_is_refused_in_words(recorded: Recorded, visit: Visit, at: str) -> None:
    page = visit(recorded.dashboard).go(f"/?at={at}")

    expect(page.locator(".notice")).to_contain_text("Invalid at. Use seconds since the epoch")


def test_without_a_log_it_says_how_to_have_a_past(served: Dashboard, visit: Visit) -> None:
    page = visit(served).go("/?at=1700000000")

    expect(page.locator(".notice")).to_contain_text("start with --log URL")
    expect(page.locator("[data-slider]")).to_have_count(0)


def test_what_is_not_there_is_told_with_a_way_back(served: Dashboard, visit: Visit) -> None:
    visitor = visit(served)
    page = visitor.go("/nothing/of/that/name")

    expect(page.get_by_role("heading", level=1)).to_have_text("Page not found")
    page.get_by_role("link", name="Open Overview").click()
    page.wait_for_url(f"{served.address}/")
    # The browser says so by itself.
    assert [error for error in visitor.errors if "404" not in error] == []
    visitor.errors.clear()


def test_an_address_that_cannot_be_read_is_told_as_a_page(served: Dashboard, visit: Visit) -> None:
    visitor = visit(served)
    page = visitor.go("/tasks?at=yesterday")

    expect(page.get_by_role("heading", level=1)).to_have_text("Invalid URL")
    expect(page.locator("body")).to_contain_text("Invalid URL parameter: at")
    assert [error for error in visitor.errors if "422" not in error] == []
    visitor.errors.clear()
