"""The page of a workflow: a graph, and a table that tells the same."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from celeriac.testing.brokers import RedisServer
from tests.browser.conftest import Visit
from tests.browser.kit import Cluster, Dashboard, dashboard, keep_screenshot
from tests.warehouses import MIDNIGHT, publish, task

HOSTILE = "<img src=x onerror=alert(1)>{{alert(2)}}"


@pytest.fixture(scope="module")
def busy(redis: RedisServer, cluster: Cluster) -> Iterator[Dashboard]:
    """Have a task that sent four and, once they were done, two more, one that sent a chord, and one 1,100."""
    with dashboard(redis.url) as running:
        cluster.run_task("order", name="shop.order")
        for number in range(4):
            below = {"root_id": "order", "parent_id": "order"}
            if number == 2:
                cluster.fail_task(f"part{number}", name="shop.pack", **below)
            else:
                cluster.run_task(f"part{number}", name="shop.pack", node=f"w{number % 2 + 1}@lab", **below)
        cluster.run_task("bill", name=HOSTILE, root_id="order", parent_id="part3")
        cluster.send(
            "task-received",
            uuid="mail",
            name="mail.send",
            args="()",
            kwargs="{}",
            root_id="order",
            parent_id="part3",
        )
        cluster.run_task("chord", name="shop.chord")
        for number in range(3):
            cluster.run_task(f"head{number}", name="shop.head", root_id="chord", parent_id="chord")
        cluster.run_task("body", name="shop.body", root_id="chord", parent_id="head2")
        cluster.run_task("link", name="shop.link", root_id="chord", parent_id="body")
        cluster.run_task("many", name="shop.many")
        for number in range(1100):
            cluster.send(
                "task-received", uuid=f"m{number}", name="shop.one", args="()", kwargs="{}",
                root_id="many", parent_id="many",
            )  # fmt: skip
        cluster.arrived(running)
        yield running


def column(page: Page, number: int) -> list[str]:
    return page.locator(f"[data-table] tbody tr td:nth-child({number})").all_inner_texts()


def test_graph_and_table_tell_what_the_api_tells(busy: Dashboard, visit: Visit) -> None:
    visitor = visit(busy)
    page = visitor.go("/workflows/order")
    told = busy.api("workflows/order")

    expect(page.locator("[data-table] tbody tr")).to_have_count(7)
    assert column(page, 8) == [each["uuid"] for each in told["tasks"]]
    assert column(page, 2) == [each["state"] for each in told["tasks"]]
    assert [bool(text) for text in column(page, 6)] == [each["is_critical"] for each in told["tasks"]]
    indents = [len(text) - len(text.lstrip("\u00a0")) for text in column(page, 1)]
    assert indents == [4 * each["depth"] for each in told["tasks"]]
    expect(page.locator("[data-tile=size]")).to_have_text("7")
    expect(page.locator("[data-tile=failed]")).to_have_text("1")
    expect(page.locator("[data-tile=open]")).to_have_text("1")
    expect(page.locator("[data-graph] svg text")).to_have_count(7)
    expect(page.locator("[data-graph] svg")).to_contain_text("shop.order")
    visitor.check_access()
    keep_screenshot(page, "workflow")


def test_a_chord_is_drawn_with_dashed_lines_from_all_its_body_waited_for(
    busy: Dashboard, visit: Visit
) -> None:
    visitor = visit(busy)
    page = visitor.go("/workflows/chord")

    expect(page.locator("[data-table] tbody tr")).to_have_count(6)
    assert column(page, 7) == ["", *["group of 3"] * 3, "chord body", "chain link"]
    assert column(page, 6) == ["yes", "", "", "yes", "yes", "yes"]
    expect(page.locator("[data-graph] svg path[stroke-dasharray]")).to_have_count(2)
    expect(page.locator("[data-kinds]")).to_contain_text("A chord body is inferred")
    expect(page.locator("[data-kinds]")).to_contain_text("derived from parents")
    visitor.check_access()
    keep_screenshot(page, "workflow-chord")


def test_without_a_chord_nothing_is_called_inferred(busy: Dashboard, visit: Visit) -> None:
    page = visit(busy).go("/workflows/order")

    expect(page.locator("[data-table] tbody tr")).to_have_count(7)
    expect(page.locator("[data-graph] svg text")).to_have_count(7)
    expect(page.locator("[data-graph] svg path[stroke-dasharray]")).to_have_count(0)
    expect(page.locator("[data-kinds]")).not_to_contain_text("inferred")


def test_a_task_of_it_leads_to_the_whole(busy: Dashboard, visit: Visit) -> None:
    page = visit(busy).go("/workflows/bill")

    expect(page.locator("[data-name]")).to_have_text("shop.order order")


def test_a_click_on_a_node_leads_to_its_task(busy: Dashboard, visit: Visit) -> None:
    page = visit(busy).go("/workflows/order")
    label = page.locator("[data-graph] svg text", has_text="mail.send")
    expect(label).to_be_visible()
    box = label.bounding_box()
    assert box is not None

    # The node stands above its label.
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] - 10)

    page.wait_for_url("**/tasks/mail")
    expect(page.locator("[data-state]")).to_have_text("RECEIVED")


def test_it_follows_what_happens(busy: Dashboard, cluster: Cluster, visit: Visit) -> None:
    page = visit(busy).go("/workflows/alone")
    expect(page.locator("[data-empty=workflow]")).to_contain_text("Task not in memory")

    cluster.run_task("alone", name="shop.alone")
    expect(page.locator("[data-tile=size]")).to_have_text("1")
    cluster.run_task("not-alone", name="shop.too", root_id="alone", parent_id="alone")

    expect(page.locator("[data-tile=size]")).to_have_text("2")
    expect(page.locator("[data-graph] svg text")).to_have_count(2)


def test_of_a_large_one_it_says_what_is_shown(busy: Dashboard, visit: Visit) -> None:
    visitor = visit(busy)
    page = visitor.go("/workflows/many")

    expect(page.locator("[data-tile=size]")).to_have_text("1,101")
    expect(page.locator("[data-drawn]")).to_contain_text("The graph shows 300 of 1,101 tasks.")
    expect(page.locator("[data-listed]")).to_have_text("First 1,000 of 1,101 tasks.")
    expect(page.locator("[data-table] tbody tr")).to_have_count(1000)


def test_what_is_not_in_memory_is_told_by_the_tables(
    redis: RedisServer, visit: Visit, tmp_path: Path
) -> None:
    summary = {
        "root_id": "old",
        "name": HOSTILE,
        "tasks": 2,
        "succeeded": 2,
        "failed": 0,
        "open": 0,
        "begin_at": MIDNIGHT + 1,
        "end_at": MIDNIGHT + 3,
        "critical_path": ["old", "below"],
        "critical_run": 2.0,
    }
    tasks = [task("old", name=HOSTILE), task("below", root_id="old", parent_id="old", first_at=MIDNIGHT + 2)]
    publish(tmp_path / "tables", {"tasks": tasks, "workflows": [summary]})
    with dashboard(redis.url, "--warehouse", str(tmp_path / "tables")) as running:
        visitor = visit(running)
        page = visitor.go("/workflows/below")

        expect(page.locator("[data-origin]")).to_contain_text("no longer in memory")
        expect(page.locator("[data-table] tbody tr")).to_have_count(2)
        expect(page.locator("[data-name]")).to_contain_text(HOSTILE)
        visitor.check_access()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(busy: Dashboard, visit: Visit, scheme: str) -> None:
    visitor = visit(busy, viewport={"width": 390, "height": 800}, color_scheme=scheme)
    page = visitor.go("/workflows/order")
    expect(page.locator("[data-table] tbody tr")).to_have_count(7)

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    visitor.check_access()
    keep_screenshot(page, f"workflow-phone-{scheme}")


def test_it_can_be_read_in_the_dark(busy: Dashboard, visit: Visit) -> None:
    visitor = visit(busy, color_scheme="dark")
    page = visitor.go("/workflows/order")
    expect(page.locator("[data-table] tbody tr")).to_have_count(7)

    visitor.check_access()
    keep_screenshot(page, "workflow-dark")
