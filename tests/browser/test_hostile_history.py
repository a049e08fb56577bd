"""What is hostile in the tables is shown, and never run: they have what peers said long ago."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from celeriac.history.span import day_of
from celeriac.testing.brokers import RedisServer
from celeriac.views.text import visible
from tests.browser.conftest import Visit
from tests.browser.kit import Dashboard, Visitor, dashboard
from tests.browser.test_hostile import CORPUS, check
from tests.warehouses import attempt, publish, rollup, task

HOUR = 3600.0
#: The beginning of the hour that the tests begin in.
NOW = time.time() // HOUR * HOUR
#: What of each text is seen in a cell, whatever else is spelled out or cut.
SEEN = "alert(1)"


def rows_of(text: str) -> dict[str, list[dict[str, Any]]]:
    """Return rows of each table in which all that a peer can choose is one text."""
    at, before = NOW - HOUR, NOW - 25 * HOUR
    day: dict[str, Any] = {"day": day_of(at)}
    names: dict[str, Any] = {"name": text, "worker": text, "queue": text}
    measured: dict[str, Any] = {"runs": [1.0, 2.0], "waits": [0.5], "failed": 1, "retried": 1}
    times = [rollup(each, **names, **measured, day=day_of(each)) for each in (before, at)]
    span = {"begin_at": at, "end_at": at + 9}
    ends: dict[str, Any] = {"ended_at": at + 3, "counted_at": at + 3}
    seen = {"first_at": at, "last_at": at + 3, "seen_at": at, "root_id": text, "parent_id": text}
    counts = {
        "tasks": 1,
        "succeeded": 0,
        "failed": 1,
        "open": 0,
        "critical_path": [text],
        "critical_run": 1.0,
    }
    failed: dict[str, Any] = {"outcome": "FAILURE", "worker": text}
    return {
        "rollups_hour": times,
        "rollups_minute": times,
        "workers": [
            {"worker": text, "pid": 1, **span, "ending": text, "is_restart": True, "software": text, **day}
        ],
        "tasks": [task(text, name=text, worker=text, state="FAILURE", **seen, **day)],
        "attempts": [attempt(text, name=text, **failed, **ends, **day)],
        "failures": [{"uuid": text, "raised_at": at + 3, "exception": f"E {text}", **failed, **day}],
        "workflows": [{"root_id": text, "name": text, **span, **counts, **day}],
    }


@pytest.fixture(scope="module")
def attacked(redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """Tables in which every text that a peer can choose is hostile."""
    folder: Path = tmp_path_factory.mktemp("warehouse")
    of_each = [rows_of(text) for text in CORPUS]
    made = {name: [row for rows in of_each for row in rows[name]] for name in of_each[0]}
    publish(folder, made, published_at=time.time())
    with dashboard(redis.url, "--warehouse", str(folder)) as running:
        yield running


def look_at(visitor: Visitor, path: str) -> Page:
    """Go to a page, wait until all of the corpus is seen as text, and see that nothing of it was run."""
    page = visitor.go(path)
    expect(page.locator(".waiting")).to_be_hidden()
    expect(page.locator("main")).to_contain_text(SEEN)
    for canvas in page.locator("canvas:visible").all():
        canvas.hover()
    check(visitor)
    return page


@pytest.mark.parametrize("per", ["task", "worker", "queue"])
def test_what_is_told_apart_is_text(attacked: Dashboard, visit: Visit, per: str) -> None:
    page = look_at(
        visit(attacked), f"/history?per={per}&range=hour&by=none&until={NOW}&since={NOW - 2 * HOUR}"
    )

    rows = page.get_by_role("region", name=f"By {per}").locator("tbody tr")
    expect(rows).to_have_count(len(CORPUS))
    for row in rows.all():
        expect(row.locator("td").first).to_contain_text(SEEN)


@pytest.mark.parametrize("ranking", ["slowest", "failing", "retried"])
def test_names_in_rankings_are_text(attacked: Dashboard, visit: Visit, ranking: str) -> None:
    page = look_at(visit(attacked), "/history?tab=top")

    links = page.locator(f"[data-ranking={ranking}] tbody td:first-child")
    expect(links.first).to_contain_text(SEEN)


def test_times_of_workers_are_text(attacked: Dashboard, visit: Visit) -> None:
    page = look_at(visit(attacked), "/history?tab=sessions")

    rows = page.get_by_role("region", name="Worker sessions").locator("tbody tr")
    expect(rows).to_have_count(len(CORPUS))
    for row in rows.all():
        for column in (0, 4, 10):
            expect(row.locator("td").nth(column)).to_contain_text(SEEN)


@pytest.mark.parametrize("tab", ["latency", "compare"])
def test_what_is_asked_for_is_text_and_finds_what_is_named_so(
    attacked: Dashboard, visit: Visit, tab: str
) -> None:
    visitor = visit(attacked)

    for text in CORPUS:
        named = quote(text, safe="")
        page = visitor.go(f"/history?tab={tab}&task={named}&worker={named}&queue={named}")
        expect(page.locator(".waiting")).to_be_hidden()
        expect(page.locator("[data-answer] tbody tr").first).to_be_visible()
        check(visitor)


@pytest.mark.parametrize("kind", ["tasks", "workflows"])
def test_a_task_that_only_the_tables_know_is_text(attacked: Dashboard, visit: Visit, kind: str) -> None:
    visitor = visit(attacked)

    for text in CORPUS:
        page = look_at(visitor, f"/{kind}/{quote(text, safe='')}")
        if kind == "tasks":
            expect(page.locator("main")).to_contain_text(f"E {visible(text)}")


def test_links_of_names_lead_to_what_is_named_so(attacked: Dashboard, visit: Visit) -> None:
    visitor = visit(attacked)
    page = look_at(visitor, f"/history?since={NOW - 2 * HOUR}")
    link = page.get_by_role("region", name="Task").get_by_role("link", name=CORPUS[1], exact=True)

    link.click()
    page.wait_for_url("**/history?task=**")

    expect(page.get_by_label("Task (glob)")).to_have_value(CORPUS[1])
    expect(page.locator("[data-tile=attempts]")).to_have_text("2")
    check(visitor)
