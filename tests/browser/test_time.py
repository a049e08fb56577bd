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

#: The pages that are there for any cluster.
PAGES = [
    "/",
    "/tasks",
    "/tasks/early",
    "/workflows/early",
    "/workers",
    "/workers/w1@lab",
    "/cluster",
    "/history",
]


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
    with Program("record", "log", "--limit", "7", cwd=folder, env=environment) as recorder:

        def is_recording() -> bool:
            with redis.client() as client:
                return bool(client.pubsub_numpat() or client.client_list(_type="pubsub"))

        assert wait_until(is_recording, patience=PATIENCE)
        cluster.send("worker-heartbeat", freq=2.0, active=0, processed=0)
        cluster.run_task("early")
        between_at = ceil(time()) + 1
        sleep(max(0.0, between_at + 1 - time()))
        cluster.run_task("late", name="shop.refund")
        assert recorder.wait() == 0
    with dashboard(redis.url, "--log", str(folder / "log")) as running:
        assert wait_until(lambda: running.api("overview")["tasks"] == 2, patience=PATIENCE)
        yield Recorded(running, between_at)


@pytest.mark.parametrize("path", PAGES)
def test_each_page_is_as_of_the_instant_of_its_address(recorded: Recorded, visit: Visit, path: str) -> None:
    visitor = visit(recorded.dashboard)

    page = visitor.go(f"{path}?at={recorded.between_at}")

    expect(page.locator("[data-as-of]")).to_contain_text("As of 20")
    expect(page.locator("[data-live]")).to_have_count(0)
    expect(page.locator("main")).not_to_contain_text("shop.refund")
    expect(page.locator(".notice")).to_be_hidden()
    # All ways lead to pages as of the same instant, but the one that leads back.
    targets = page.locator("a[href^='/']").evaluate_all(
        "links => links.map(link => link.getAttribute('href'))"
    )
    moments = {parse_qs(urlsplit(target).query).get("at", [""])[0] for target in targets}
    assert moments == {"", str(recorded.between_at)}
    assert [target for target in targets if "at=" not in target] == [path]


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
    expect(page.locator("main")).to_contain_text("late")

    # Ten steps of 15 seconds, at once: a slider that rests on the way leads to where it rests.
    page.locator("[data-slider] [tabindex='0']").focus()
    for _ in range(ceil((time() + 60 - recorded.between_at) / 150)):
        page.keyboard.press("PageDown")
    page.wait_for_url(re.compile("at="))
    expect(page.locator("[data-as-of]")).to_be_visible()
    expect(page.locator("main")).not_to_contain_text("late")
    page.get_by_role("link", name="Back to live").click()

    page.wait_for_url(re.compile(r"/tasks\?name=shop\.(\*|%2A)$"))
    expect(page.locator("[data-live]")).to_be_visible()


@pytest.mark.parametrize("at", ["-5", "nan", "inf", "1e300", "99999999999"])
def test_an_instant_that_is_none_is_refused_in_words(recorded: Recorded, visit: Visit, at: str) -> None:
    page = visit(recorded.dashboard).go(f"/?at={at}")

    expect(page.locator(".notice")).to_contain_text("at is a moment in seconds of the epoch")


def test_without_a_log_it_says_how_to_have_a_past(served: Dashboard, visit: Visit) -> None:
    page = visit(served).go("/?at=1700000000")

    expect(page.locator(".notice")).to_contain_text("start it with --log URL")
    expect(page.locator("[data-slider]")).to_have_count(0)


def test_what_is_not_there_is_told_with_a_way_back(served: Dashboard, visit: Visit) -> None:
    visitor = visit(served)
    page = visitor.go("/nothing/of/that/name")

    expect(page.get_by_role("heading", level=1)).to_have_text("There is no such page")
    page.get_by_role("link", name="To the overview").click()
    page.wait_for_url(f"{served.address}/")
    # The browser says so by itself.
    assert [error for error in visitor.errors if "404" not in error] == []
    visitor.errors.clear()


def test_an_address_that_cannot_be_read_is_told_as_a_page(served: Dashboard, visit: Visit) -> None:
    visitor = visit(served)
    page = visitor.go("/tasks?at=yesterday")

    expect(page.get_by_role("heading", level=1)).to_have_text("The address cannot be read")
    expect(page.locator("body")).to_contain_text("What the address says of at is not understood.")
    assert [error for error in visitor.errors if "422" not in error] == []
    visitor.errors.clear()
