"""The page of one task: from memory, from the tables, or why there is nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from celeriac.testing.brokers import RedisServer
from tests.browser.conftest import Visit
from tests.browser.kit import Cluster, Dashboard, dashboard, keep_screenshot
from tests.warehouses import MIDNIGHT, attempt, publish, task

HOSTILE = "<img src=x onerror=alert(1)>{{alert(2)}}"


@pytest.fixture(scope="module")
def busy(redis: RedisServer, cluster: Cluster) -> Iterator[Dashboard]:
    with dashboard(redis.url) as running:
        cluster.run_task("parent", name="shop.order")
        told = {"root_id": "parent", "parent_id": "parent"}
        cluster.send("task-received", uuid="child", name="shop.pay", args="(7,)", kwargs="{}", **told)
        cluster.send("task-started", uuid="child")
        cluster.send(
            "task-retried", uuid="child", exception="ConnectionError('bank')", traceback="Traceback:\n a"
        )
        cluster.send(
            "task-received",
            "w2@lab",
            uuid="child",
            name="shop.pay",
            args="(7,)",
            kwargs="{'x': 1}",
            retries=1,
            **told,
        )
        cluster.send("task-started", "w2@lab", uuid="child")
        cluster.send(
            "task-failed",
            "w2@lab",
            uuid="child",
            exception=f"ValueError('{HOSTILE}')",
            traceback='Traceback (most recent call last):\n  File "shop.py", line 7, in pay\nValueError: no',
        )
        cluster.run_task(f"a/b {HOSTILE}", name=HOSTILE)
        cluster.arrived(running)
        yield running


def column(page: Page, table: str, number: int) -> list[str]:
    return page.locator(f"[{table}] tbody tr td:nth-child({number})").all_inner_texts()


def test_it_tells_what_the_api_tells(busy: Dashboard, visit: Visit) -> None:
    visitor = visit(busy)
    page = visitor.go("/tasks/child")
    told = busy.api("tasks/child")

    expect(page.locator("[data-state]")).to_have_text("FAILURE")
    expect(page.locator("[data-name]")).to_have_text("shop.pay")
    assert column(page, "data-events", 3) == [event["type"] for event in told["events"]]
    assert column(page, "data-events", 1) == [str(event["clock"]) for event in told["events"]]
    assert (
        column(page, "data-attempts", 2)
        == [each["worker"] for each in told["attempts"]]
        == ["w1@lab", "w2@lab"]
    )
    expect(page.locator("main")).to_contain_text(told["exception"])
    expect(page.locator("main")).to_contain_text('File "shop.py", line 7, in pay')
    expect(page.locator("main")).to_contain_text("{'x': 1}")
    visitor.check_access()
    keep_screenshot(page, "task")


def test_its_relatives_and_its_workflow_are_a_click_away(busy: Dashboard, visit: Visit) -> None:
    page = visit(busy).go("/tasks/child")

    page.locator("[data-relatives]").get_by_role("link", name="parent").click()
    page.wait_for_url("**/tasks/parent")
    expect(page.locator("[data-relatives] tbody tr")).to_contain_text(["child"])
    expect(page.locator("[data-relatives] tbody tr")).to_contain_text(["FAILURE"])
    page.locator("dl").get_by_role("link", name="parent").click()

    page.wait_for_url("**/workflows/parent")


def test_a_name_that_would_be_markup_is_text(busy: Dashboard, visit: Visit) -> None:
    page = visit(busy).go("/tasks?text=onerror")
    page.get_by_role("link", name="a/b <img").click()

    expect(page.locator("[data-name]")).to_have_text(HOSTILE)
    expect(page.locator("[data-state]")).to_have_text("SUCCESS")


def test_it_follows_what_happens(busy: Dashboard, cluster: Cluster, visit: Visit) -> None:
    page = visit(busy).go("/tasks/comes")
    expect(page.locator("[data-empty=task]")).to_contain_text("No such task is in memory")

    cluster.send("task-received", uuid="comes", name="shop.pay", args="()", kwargs="{}")
    expect(page.locator("[data-state]")).to_have_text("RECEIVED")
    cluster.send("task-started", uuid="comes")

    expect(page.locator("[data-state]")).to_have_text("STARTED")
    expect(page.locator("[data-events] tbody tr")).to_have_count(2)


def test_nothing_known_says_where_else_to_look(busy: Dashboard, visit: Visit) -> None:
    visitor = visit(busy)
    page = visitor.go("/tasks/no%2Fsuch%3Fone")

    expect(page.locator("[data-empty=task]")).to_contain_text("run celeriac pipeline run first")
    expect(page.locator("[data-name]")).to_have_text("no/such?one")
    expect(page.locator("[data-action]")).to_have_count(0)
    visitor.check_access()
    keep_screenshot(page, "task-none")
    page.get_by_role("link", name="All tasks that are").click()
    page.wait_for_url("**/tasks")


def test_what_is_not_in_memory_is_told_by_the_tables(
    redis: RedisServer, visit: Visit, tmp_path: Path
) -> None:
    publish(
        tmp_path / "tables",
        {
            "tasks": [task("old", name=HOSTILE)],
            "attempts": [attempt("old", ended_at=MIDNIGHT + 3)],
        },
    )
    with dashboard(redis.url, "--warehouse", str(tmp_path / "tables")) as running:
        visitor = visit(running)
        page = visitor.go("/tasks/old")

        expect(page.locator("[data-from-tables]")).to_be_visible()
        expect(page.locator("[data-name]")).to_have_text(HOSTILE)
        expect(page.locator("[data-attempts] tbody tr")).to_have_count(1)
        visitor.check_access()
        keep_screenshot(page, "task-tables")
        page = visitor.go("/tasks/never")
        expect(page.locator("[data-empty=task]")).to_contain_text("mend the id")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(busy: Dashboard, visit: Visit, scheme: str) -> None:
    visitor = visit(busy, viewport={"width": 390, "height": 800}, color_scheme=scheme)
    page = visitor.go("/tasks/child")
    expect(page.locator("[data-state]")).to_have_text("FAILURE")

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    visitor.check_access()
    keep_screenshot(page, f"task-phone-{scheme}")
