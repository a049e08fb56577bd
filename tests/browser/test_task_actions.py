"""What can be done to tasks from their pages: said before it is done, done to those alone, and noted."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Page, expect

from celeriac.app import Celeriac
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleriacWorker
from tests.browser.conftest import Visit
from tests.browser.kit import PATIENCE, Dashboard, dashboard, expect_told, keep_screenshot
from tests.interop.test_cli_elections import SHOP

#: A worker that is busy with this runs nothing else for as long as the tests take.
LONG = 3000


class Shop(NamedTuple):
    """A dashboard that may act, a worker with one thread, and what was noted."""

    dashboard: Dashboard
    app: Celeriac
    audit: Path

    def noted(self) -> list[dict[str, Any]]:
        """Return what was noted of actions so far."""
        return (
            [json.loads(line) for line in self.audit.read_text().splitlines()] if self.audit.exists() else []
        )

    def state(self, uuid: str) -> str:
        """Return the state of a task; empty while it is not known."""
        found = self.dashboard.api("tasks", text=uuid)["tasks"]
        return found[0]["state"] if found else ""


@pytest.fixture(scope="module")
def shop(redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    audit = tmp_path_factory.mktemp("audit") / "audit.jsonl"
    app = Celeriac(redis.url, redis.url, environ={})
    with (
        dashboard(redis.url, "--allow-control", "--audit", str(audit)) as running,
        CeleriacWorker(
            SHOP,
            url=redis.url,
            backend=redis.url,
            hostname="shop@localhost",
            concurrency=1,
            # All are received, though only one is run.
            environment={"CELERIAC_WORKER_PREFETCH_MULTIPLIER": "100"},
        ) as worker,
    ):
        app.send_task("shop.pack", ("long", LONG), task_id="long")
        made = Shop(running, app, audit)
        assert wait_until(lambda: made.state("long") == "STARTED", patience=PATIENCE)
        yield made
        # It would go on with the long one.
        worker.kill()
    app.close()


def waiting(shop: Shop, *uuids: str) -> None:
    """Have tasks that wait for the worker."""
    for uuid in uuids:
        shop.app.send_task("shop.price", (3, 2.5), task_id=uuid)
    assert wait_until(lambda: all(shop.state(uuid) == "RECEIVED" for uuid in uuids), patience=PATIENCE)


def failed(shop: Shop, *uuids: str, node: str = "shop@localhost") -> None:
    """Have tasks that failed, as far as their events tell."""
    with shop.app.events.Dispatcher(hostname=node) as events:
        for uuid in uuids:
            events.send("task-received", uuid=uuid, name="shop.price", args="(3, 2.5)", kwargs="{}")
            events.send("task-failed", uuid=uuid, exception="ValueError()", traceback="")
    assert wait_until(lambda: all(shop.state(uuid) == "FAILURE" for uuid in uuids), patience=PATIENCE)


def choose(page: Page, *uuids: str) -> None:
    for uuid in uuids:
        page.get_by_role("checkbox", name=f"Select {uuid}", exact=True).click()


def test_nothing_is_done_before_somebody_says_so(shop: Shop, visit: Visit) -> None:
    waiting(shop, "stays1", "stays2")
    visitor = visit(shop.dashboard)
    page = visitor.go("/tasks?text=stays")
    expect(page.locator("[data-action=revoke]")).to_be_disabled()
    choose(page, "stays1", "stays2")
    expect(page.locator("[data-follow]")).to_have_text("Paused: 2 selected")
    visitor.check_access()
    keep_screenshot(page, "tasks-chosen")

    page.locator("[data-action=revoke]").click()
    dialog = page.locator("[data-confirm]")
    expect(dialog.locator("[data-concerns]")).to_have_text("2 tasks (2 RECEIVED):")
    expect(dialog).to_contain_text("stays1")
    expect(dialog).to_contain_text("stays2")
    visitor.check_access()
    keep_screenshot(page, "tasks-confirm")
    dialog.get_by_role("button", name="Cancel").click()

    expect(dialog).to_have_count(0)
    expect(page.locator("[data-follow]")).to_have_text("Live")
    assert shop.noted() == []


def test_those_that_are_chosen_are_revoked_and_it_is_noted(shop: Shop, visit: Visit) -> None:
    waiting(shop, "goes", "remains")
    page = visit(shop.dashboard).go("/tasks?state=RECEIVED&state=REVOKED")
    choose(page, "goes")
    page.locator("[data-action=revoke]").click()
    page.locator("[data-confirm-action]").click()

    expect_told(page, "shop@localhost")
    noted = [each for each in shop.noted() if each["action"] == "revoke"]
    assert noted[0]["targets"] == ["goes"]
    assert shop.app.control.inspect(["shop@localhost"], timeout=PATIENCE).revoked() == {
        "shop@localhost": ["goes"]
    }


def test_all_that_fit_are_meant_only_by_a_filter(shop: Shop, visit: Visit) -> None:
    waiting(shop, "every1", "every2", "every3")
    visitor = visit(shop.dashboard)
    page = visitor.go("/tasks")
    every = page.get_by_role("checkbox", name="Select all matching")
    expect(every).to_be_disabled()

    page = visitor.go("/tasks?text=every")
    expect(page.locator("[data-table] tbody tr")).to_have_count(3)
    every.click()
    page.locator("[data-action=terminate]").click()
    expect(page.locator("[data-concerns]")).to_have_text("3 tasks (3 RECEIVED):")
    # What came since is not meant.
    waiting(shop, "every4")
    page.locator("[data-confirm-action]").click()

    expect_told(page, "terminate")
    noted = [each for each in shop.noted() if each["action"] == "terminate"]
    assert sorted(noted[0]["targets"]) == ["every1", "every2", "every3"]


def test_a_task_that_has_ended_is_sent_once_more_to_the_queue_of_its_worker(shop: Shop, visit: Visit) -> None:
    failed(shop, "again1")
    waiting(shop, "again2")
    visitor = visit(shop.dashboard)
    page = visitor.go("/tasks?text=again")
    choose(page, "again1", "again2")
    before = shop.dashboard.api("overview")["tasks"]
    page.locator("[data-action=retry]").click()
    dialog = page.locator("[data-confirm]")
    expect(dialog.locator("[data-concerns]")).to_have_text("1 task (1 FAILURE):")
    expect(dialog).to_contain_text("again1 → celery")
    expect(dialog.locator("[data-queues]")).to_have_text("Target queues: 1 celery")
    expect(dialog).to_contain_text("again2: not finished: RECEIVED")
    visitor.check_access()
    keep_screenshot(page, "tasks-retry")
    # What has ended since is not meant.
    failed(shop, "again2")
    page.locator("[data-confirm-action]").click()

    expect_told(page, "sent as")
    assert wait_until(lambda: shop.dashboard.api("overview")["tasks"] == before + 1, patience=PATIENCE)
    noted = [each for each in shop.noted() if each["action"] == "retry"]
    assert [(each["targets"], each["queues"]) for each in noted] == [(["again1"], ["celery"])]


def test_a_task_whose_queue_is_not_known_is_sent_where_somebody_says(shop: Shop, visit: Visit) -> None:
    failed(shop, "astray", node="gone@lab")
    page = visit(shop.dashboard).go("/tasks/astray")
    page.locator("[data-action=retry]").click()
    dialog = page.locator("[data-confirm]")
    expect(dialog).to_contain_text("queue unknown, and its worker does not reply: choose a queue")
    expect(page.locator("[data-confirm-action]")).to_be_hidden()

    dialog.get_by_label("Target queue").fill("parcels")
    expect(dialog).to_contain_text("astray → parcels")
    page.locator("[data-confirm-action]").click()

    expect_told(page, "to parcels")
    with shop.app.connection() as link:
        assert link.queue_length("parcels") == 1


def test_one_that_is_not_in_memory_can_be_revoked_and_not_retried(shop: Shop, visit: Visit) -> None:
    visitor = visit(shop.dashboard)
    page = visitor.go("/tasks/never-heard-of")
    # One that is named need not be in memory: it may wait in a queue.
    page.locator("[data-action=revoke]").click()
    expect(page.locator("[data-confirm]")).to_contain_text("never-heard-of")
    page.get_by_role("button", name="Cancel").click()
    page.locator("[data-action=retry]").click()

    expect(page.locator("[data-confirm]")).to_contain_text("not in memory")
    expect(page.locator("[data-confirm-action]")).to_be_hidden()


def test_tasks_whose_ids_are_shown_alike_are_two_and_only_the_chosen_one_is_meant(
    shop: Shop, visit: Visit
) -> None:
    twins = [f"twin\x1b[31m/../?#%41{'x' * 182}{end}" for end in "ab"]
    assert [len(twin) for twin in twins] == [201, 201]
    with shop.app.events.Dispatcher(hostname="far@lab") as events:
        for twin in twins:
            events.send("task-received", uuid=twin, name=f"shop.{twin[-1]}", args="()", kwargs="{}")
    page = visit(shop.dashboard).go("/tasks?text=twin")
    rows = page.locator("[data-table] tbody tr")
    expect(rows).to_have_count(2)

    # Each leads to its own page, and from there to its workflow and back.
    for end in "ab":
        page = visit(shop.dashboard).go("/tasks?text=twin")
        page.locator("tbody tr").filter(has_text=f"shop.{end}").get_by_role("link").first.click()
        expect(page.locator("[data-name]")).to_have_text(f"shop.{end}")
        page.get_by_role("link", name="twin").click()
        expect(page.locator("[data-name]")).to_contain_text(f"shop.{end}")
        page.locator("tbody tr").get_by_role("link").click()
        expect(page.locator("[data-state]")).to_have_text("RECEIVED")
        expect(page.locator("[data-name]")).to_have_text(f"shop.{end}")

    page = visit(shop.dashboard).go("/tasks?text=twin")
    page.locator("tbody tr").filter(has_text="shop.b").get_by_role("checkbox").click()
    page.locator("[data-action=terminate]").click()
    expect(page.locator("[data-concerns]")).to_have_text("1 task (1 RECEIVED):")
    page.locator("[data-confirm-action]").click()

    expect_told(page, "terminate")
    assert [each["targets"] for each in shop.noted() if each["action"] == "terminate"][-1] == [twins[1]]
