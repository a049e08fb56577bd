"""The page of one task: from memory, from the tables, or why there is nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from celeriac.testing.brokers import RedisServer
from tests.browser.conftest import Visit
from tests.browser.kit import Cluster, Dashboard, dashboard, keep_screenshot
from tests.event_logs import received, seal
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
        for number in range(120):
            cluster.send(
                "task-received", uuid=f"many{number}", name="shop.one", args="()", kwargs="{}",
                root_id="many", parent_id="many",
            )  # fmt: skip
        below = {"root_id": "many", "parent_id": "many0"}
        cluster.send("task-received", uuid="deep", name="shop.deep", args="()", kwargs="{}", **below)
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

    page.locator("[data-related]").get_by_role("link", name="shop.order parent").click()
    page.wait_for_url("**/tasks/parent")
    expect(page.locator("[data-related] [data-kin=child]")).to_contain_text("FAILURE")
    page.locator("[data-related]").get_by_role("link", name="shop.pay child").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/tasks/child")
    page.go_back()
    page.locator("dl").get_by_role("link", name="parent").click()

    page.wait_for_url("**/workflows/parent")


def test_its_relatives_are_a_tree_of_lists_in_lists(busy: Dashboard, visit: Visit) -> None:
    visitor = visit(busy)
    page = visitor.go("/tasks/many0")
    told = busy.api("tasks/many0")["family"]["rows"]

    expect(page.get_by_role("list", name="Related tasks")).to_be_visible()
    items = page.locator("[data-related] li")
    expect(items).to_have_count(len(told))
    depths = items.evaluate_all(
        "items => items.map(item => { let depth = -1;"
        " for (let at = item; at; at = at.parentElement.closest('li')) depth++; return depth; })"
    )
    assert depths == [each["depth"] for each in told]
    expect(page.locator("[data-related] [aria-current]")).to_contain_text("shop.one many0")
    expect(page.locator("[data-kin=self] [data-kin=child]")).to_contain_text("shop.deep deep")
    visitor.check_access()
    keep_screenshot(page, "task-family")


def test_how_many_relatives_are_not_shown_is_said(busy: Dashboard, visit: Visit) -> None:
    page = visit(busy).go("/tasks/many0")

    expect(page.locator("[data-kin=sibling]")).to_have_count(19)
    expect(page.locator("[data-related] > [data-kin=parent]")).to_contain_text(
        "unknown(unknown name) manyparent, sent 100 more, not shown"
    )


def test_a_name_that_would_be_markup_is_text(busy: Dashboard, visit: Visit) -> None:
    page = visit(busy).go("/tasks?text=onerror")
    page.get_by_role("link", name="a/b <img").click()

    expect(page.locator("[data-name]")).to_have_text(HOSTILE)
    expect(page.locator("[data-state]")).to_have_text("SUCCESS")


def test_it_follows_what_happens(busy: Dashboard, cluster: Cluster, visit: Visit) -> None:
    page = visit(busy).go("/tasks/comes")
    expect(page.locator("[data-empty=task]")).to_contain_text("Task not in memory")

    cluster.send("task-received", uuid="comes", name="shop.pay", args="()", kwargs="{}")
    expect(page.locator("[data-state]")).to_have_text("RECEIVED")
    cluster.send("task-started", uuid="comes")

    expect(page.locator("[data-state]")).to_have_text("STARTED")
    expect(page.locator("[data-events] tbody tr")).to_have_count(2)


def test_nothing_known_says_where_else_to_look(busy: Dashboard, visit: Visit) -> None:
    visitor = visit(busy)
    page = visitor.go("/tasks/no%2Fsuch%3Fone")

    expect(page.locator("[data-empty=task]")).to_contain_text("celeriac pipeline run")
    expect(page.locator("[data-name]")).to_have_text("no/such?one")
    expect(page.locator("[data-action]")).to_have_count(0)
    visitor.check_access()
    keep_screenshot(page, "task-none")
    page.get_by_role("link", name="Open Tasks").click()
    page.wait_for_url("**/tasks")


def test_what_is_not_in_memory_is_told_by_the_tables(
    redis: RedisServer, visit: Visit, tmp_path: Path
) -> None:
    seal(tmp_path / "log", [received("old", args="(7,)", eta="tomorrow")])
    common = {"host": "w1@lab", "pid": 7, "retries": 0}
    events = [
        {"type": "received", "at": MIDNIGHT + 1, "clock": 4, "row": 1, **common},
        {"type": "succeeded", "at": MIDNIGHT + 2, "clock": 6, "row": 99, "runtime": 1.0, **common},
    ]
    publish(
        tmp_path / "tables",
        {
            "tasks": [
                task("old", name=HOSTILE, history=events, description_row=1),
                task("below", root_id="old", parent_id="old", first_at=MIDNIGHT + 2),
            ],
            "attempts": [attempt("old", ended_at=MIDNIGHT + 3)],
            "workflows": [{"root_id": "old", "tasks": 2, "succeeded": 2, "failed": 0, "open": 0}],
        },
        log=str(tmp_path / "log"),
        recorders=("a",),
    )
    places = ("--warehouse", str(tmp_path / "tables"), "--log", str(tmp_path / "log"))
    with dashboard(redis.url, *places) as running:
        visitor = visit(running)
        page = visitor.go("/tasks/old")

        expect(page.locator("[data-from-tables]")).to_be_visible()
        expect(page.locator("[data-name]")).to_have_text(HOSTILE)
        expect(page.locator("[data-attempts] tbody tr")).to_have_count(1)
        assert column(page, "data-events", 3) == ["task-received", "task-succeeded"]
        assert column(page, "data-events", 5) == ["not before tomorrow", "in 1 s"]
        expect(page.locator("[data-unread]")).to_contain_text("Details of 1 of 2 events are missing")
        expect(page.locator("main")).to_contain_text("(7,)")
        visitor.check_access()
        keep_screenshot(page, "task-tables")
        page.locator("[data-related]").get_by_role("link", name="below").click()
        page.wait_for_url("**/tasks/below")
        expect(page.locator("[data-kin=parent]")).to_contain_text("old")
        page = visitor.go("/tasks/never")
        expect(page.locator("[data-empty=task]")).to_contain_text("check the id")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(busy: Dashboard, visit: Visit, scheme: str) -> None:
    visitor = visit(busy, viewport={"width": 390, "height": 800}, color_scheme=scheme)
    page = visitor.go("/tasks/child")
    expect(page.locator("[data-state]")).to_have_text("FAILURE")

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    visitor.check_access()
    keep_screenshot(page, f"task-phone-{scheme}")
