"""200,000 tasks in the list, and events all the time: the browser has a page of them, and is at hand."""

import json
from collections.abc import Iterator
from itertools import count
from time import time

import pytest
from playwright.sync_api import Page, expect

from celeriac.config import Settings
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from celeriac.transport.connect import connect
from celeriac.wire.names import event_exchange
from tests.browser.conftest import Visit
from tests.browser.kit import PATIENCE, Cluster, Dashboard, dashboard, keep_screenshot

TASKS = 200_000
#: However late the dashboard is, the broker keeps for it what it has not read.
UNLIMITED = {"client-output-buffer-limit": "pubsub 0 0 0"}


#: The longest time between two frames, in seconds. A page that is at hand draws one some 60 times a second,
#: and it took less than a second on a machine with two busy processors; one that has to lay out 200,000 rows
#: draws nothing for tens of seconds.
FROZEN = 10.0
#: Notes how long the page draws nothing.
METER = """
(() => {
  let drawn = performance.now();
  let longest = 0;
  window.longestGap = () => Math.max(longest, performance.now() - drawn) / 1000;
  const draw = () => {
    longest = Math.max(longest, performance.now() - drawn);
    drawn = performance.now();
    requestAnimationFrame(draw);
  };
  requestAnimationFrame(draw);
})()
"""


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer(UNLIMITED) as server:
        yield server


@pytest.fixture(scope="module")
def full(redis: RedisServer) -> Iterator[Dashboard]:
    room = {"CELERIAC_MAX_TASKS_IN_MEMORY": str(2 * TASKS)}
    with dashboard(redis.url, **room) as running:
        publish(redis.url)
        assert wait_until(lambda: running.api("overview")["tasks"] == TASKS, patience=4 * PATIENCE)
        yield running


def publish(url: str) -> None:
    """Have tasks received by a worker: of each only that, so that it takes seconds and not minutes."""
    now, clock = time(), count(1)
    with connect(Settings(broker_url=url)) as link:
        exchange = event_exchange("celeryev", link.driver)
        for number in range(TASKS):
            event = {
                "type": "task-received",
                "uuid": f"{number:08d}-0000-4000-8000-000000000000",
                "name": f"shop.task{number % 50}",
                "args": f"({number},)",
                "kwargs": "{}",
                "hostname": f"w{number % 20}@lab",
                "pid": 7,
                "clock": next(clock),
                "utcoffset": 0,
                "retries": 0,
                "timestamp": now + number / TASKS,
            }
            body = json.dumps(event).encode()
            link.publish(exchange, body, routing_key="task.received", headers={"hostname": event["hostname"]})
        assert not link.unconfirmed(PATIENCE)


def longest_gap(page: Page) -> float:
    told: float = page.evaluate("window.longestGap()")
    return told


def test_one_of_them_is_found_and_the_page_stays_at_hand(
    full: Dashboard, cluster: Cluster, visit: Visit
) -> None:
    page = visit(full).go("/tasks")
    rows = page.locator("[data-table] tbody tr")
    expect(rows).to_have_count(100)
    expect(page.locator("[data-total]")).to_have_text("200,000 tasks in memory")
    keep_screenshot(page, "tasks-many")

    page.evaluate(METER)
    with cluster.flood():
        expect(page.locator("[data-total]")).not_to_have_text("200,000 tasks in memory")
        # The oldest, so that all are looked through.
        page.keyboard.press("/")
        page.keyboard.type("(17,)")
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text("00000017-0000-4000-8000-000000000000")
        page.get_by_label("Search").fill("")
        page.get_by_label("Name", exact=True).fill("shop.task7")
        expect(rows.filter(has_text="shop.task7")).to_have_count(100)
        page.locator("[data-older]").click()
        expect(page.locator("[data-follow]")).to_contain_text("Page 2")

        older = full.api("tasks", name="shop.task7", limit=200)["tasks"][100:]
        expect(rows.first).to_contain_text(older[0]["uuid"])
    assert page.locator("tr").count() == 101
    assert rows.locator("td:nth-child(3)").all_inner_texts() == [task["uuid"] for task in older]
    assert longest_gap(page) < FROZEN


def test_a_page_that_is_not_at_hand_is_noticed(full: Dashboard, visit: Visit) -> None:
    page = visit(full).go("/tasks")
    page.evaluate(METER)

    page.evaluate("(() => { const until = performance.now() + 700; while (performance.now() < until); })()")

    assert longest_gap(page) > 0.5
