"""What a newcomer sees: ``celeriac up`` with nothing named, and a walk through its pages."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from celeriac.programs.process import wait_until
from tests.browser.conftest import Visit
from tests.browser.kit import Dashboard, expect_told, keep_picture
from tests.http_client import http_client
from tests.up import PATIENCE, running

#: Of each kind that the load has: done at once, failed, tried again, slow, and those of the other worker.
KINDS = {"sample.double", "sample.fail", "sample.flaky", "sample.slow", "reports.total", "reports.render"}
#: What charts have to show before pictures are taken, a point for each half minute; more for those of docs.
POINTS = int(os.environ.get("PICTURE_POINTS", "1"))
SIZE = {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    folder: Path = tmp_path_factory.mktemp("up")
    with (
        running(folder, "--allow-control", "--pipeline-every", "0") as up,
        http_client(up.address, timeout=PATIENCE) as client,
    ):
        seen = Dashboard(up.address, client)

        def are_seen() -> bool:
            tasks = seen.api("tasks", limit=200)["tasks"]
            return {task["name"] for task in tasks if task["state"] in ("SUCCESS", "FAILURE")} >= KINDS

        def is_drawn() -> bool:
            return sum(each["received"] is not None for each in seen.api("overview")["last_hour"]) >= POINTS

        assert wait_until(are_seen, patience=PATIENCE)
        assert wait_until(is_drawn, patience=PATIENCE + 30.0 * POINTS)
        yield seen


def test_it_can_be_walked_from_the_first_page_to_a_task_and_its_workflow(
    living: Dashboard, visit: Visit
) -> None:
    visitor = visit(living, viewport=SIZE)
    page = visitor.go()

    expect(page.locator("[data-tile=workers]")).to_have_text("2 of 2")
    expect(page.locator("[data-queue-row]")).to_have_count(2)
    keep_picture(page, "overview", height=1300)
    page.get_by_role("link", name="FAILURE").click()
    expect(page.locator("main")).to_contain_text("example failure")
    keep_picture(page, "tasks", height=560)
    page.locator("tbody a[href^='/tasks/']").first.click()
    expect(page.locator("main")).to_contain_text("task-failed")
    _see_a_chord(visitor.page, living)
    visitor.go("/workers")
    expect(page.locator("main")).to_contain_text("reports@localhost")
    keep_picture(page, "workers", height=430)


def test_workers_of_celery_and_ours_say_their_queues_and_pools(living: Dashboard, visit: Visit) -> None:
    page = visit(living, viewport=SIZE).go("/workers")

    page.get_by_role("link", name="reports@localhost").click()
    expect(page.locator("[data-fact=queues]")).to_have_text("reports")
    expect(page.locator("[data-fact=pool]")).to_have_text("2")
    page.go_back()
    page.get_by_role("link", name="sample@localhost").click()

    expect(page.locator("[data-fact=queues]")).to_have_text("celery")
    expect(page.locator("[data-fact=pool]")).to_have_text("2")
    expect(page.get_by_role("region", name="Recent tasks").locator("tbody tr").first).to_be_visible()
    keep_picture(page, "worker")


def test_clocks_are_told_of_all_nodes(living: Dashboard, visit: Visit) -> None:
    page = visit(living, viewport=SIZE).go("/cluster")

    expect(page.locator("main")).to_contain_text("sample@localhost")
    expect(page.locator("main")).to_contain_text("reports@localhost")
    keep_picture(page, "cluster")


def _see_a_chord(page: Page, living: Dashboard) -> None:
    body = living.api("tasks", name="reports.total", state="SUCCESS", limit=1)["tasks"][0]["uuid"]
    page.goto(f"{living.address}/workflows/{body}")
    expect(page.locator("main")).to_contain_text("sample.order")
    expect(page.locator("[data-tile=size]")).to_have_text("5")
    keep_picture(page, "workflow", height=950)
    # One without a traceback: that names folders of the machine.
    page.locator("tbody a[href^='/tasks/']").first.click()
    page.wait_for_url("**/tasks/*")
    expect(page.locator("main")).to_contain_text("task-succeeded")
    keep_picture(page, "task")


def test_a_task_is_sent_once_more_by_hand_and_seen_to_be_done(living: Dashboard, visit: Visit) -> None:
    page = visit(living, viewport=SIZE).go("/tasks?name=reports.fetch&state=SUCCESS")
    first = page.locator("tbody a[href^='/tasks/']").first
    expect(first).to_be_visible()
    first.click()

    page.get_by_role("button", name="Retry").click()
    expect(page.locator("[data-concerns]")).to_be_visible()
    page.locator("[data-confirm-action]").click()

    expect_told(page, "sent as")
