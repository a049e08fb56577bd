"""The page of the history: what the tables tell, by links that can be shared."""

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from celeriac.testing.brokers import RedisServer
from celeriac.views.format import format_count, format_duration
from tests.browser.conftest import Visit
from tests.browser.kit import Dashboard, dashboard, keep_picture, keep_screenshot
from tests.warehouses import publish, rollup

HOUR = 3600.0
#: The beginning of the hour that the tests begin in.
NOW = time.time() // HOUR * HOUR
HOURS = 30


def day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def rollups(begin_at: float, number: int) -> list[dict[str, Any]]:
    """Return the roll-ups of an hour, few enough to be told exactly: the last day is slower than before."""
    factor = (3.0 if number >= HOURS - 24 else 1.0) * (1 + 0.2 * (number % 6))
    waits = [factor * each for each in (0.01, 0.02, 0.05, 0.2)]
    slow = [4 * each for each in waits]
    date = day(begin_at)
    return [
        rollup(begin_at, "shop.pay", runs=waits, waits=waits, failed=1, retried=1, day=date),
        rollup(begin_at, "mail.send", runs=slow, waits=waits, worker="w2@lab", queue="mail", day=date),
    ]


def session(pid: int, begin_at: float, **fields: Any) -> dict[str, Any]:
    return {
        "worker": "w1@lab", "pid": pid, "begin_at": begin_at, "end_at": begin_at + HOUR, "active_max": 4,
        "processed": 300, "load_max": 1.5, "drift": 0.001, "software": "py-celery 5.7.0",
        "day": day(begin_at), **fields,
    }  # fmt: skip


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of thirty hours, in a row but for one without attempts."""
    folder = tmp_path_factory.mktemp("warehouse")
    begins = [(number, NOW - (HOURS - number) * HOUR) for number in range(HOURS) if number != HOURS - 5]
    times = [row for number, at in begins for row in rollups(at, number)]
    sessions = [
        session(11, NOW - 3 * HOUR, ending="lost", is_restart=False),
        session(12, NOW - HOUR, ending="open", is_restart=True),
    ]
    # What is in an hour is said to be in its first minute.
    made = {"rollups_hour": times, "rollups_minute": times, "workers": sessions}
    publish(folder, made, published_at=time.time())
    return folder


@pytest.fixture(scope="module")
def kept(redis: RedisServer, tables: Path) -> Iterator[Dashboard]:
    with dashboard(redis.url, "--warehouse", str(tables)) as running:
        yield running


def answered(page: Page) -> Page:
    """Wait until the tables have answered."""
    expect(page.locator(".waiting")).to_be_hidden()
    return page


def rows_of(region: Locator) -> list[list[str]]:
    expect(region.locator("tbody tr").first).to_be_visible()
    return [row.locator("td").all_inner_texts() for row in region.locator("tbody tr").all()]


def test_percentiles_are_those_of_the_api(kept: Dashboard, visit: Visit) -> None:
    since, until = NOW - 24 * HOUR, NOW
    span = {"since": since, "until": until}
    visitor = visit(kept)
    page = answered(visitor.go(f"/history?since={since}&until={until}"))
    (whole,) = kept.api("history/latency", **span)
    hours = kept.api("history/latency", by="hour", **span)

    expect(page.locator("[data-tile=attempts]")).to_have_text(format_count(whole["attempts"]))
    expect(page.locator("[data-tile=failed]")).to_have_text(format_count(whole["failed"]))
    for mark in ("wait_p50", "wait_p95", "wait_p99", "run_p50", "run_p95", "run_p99"):
        expect(page.locator(f"[data-tile={mark}]")).to_have_text(format_duration(whole[mark]))
    told = rows_of(page.get_by_role("region", name="Attempts, queue wait and run time"))
    assert [row[0] for row in told] == [
        each["at"].replace("T", " ").replace("Z", "") for each in reversed(hours)
    ]
    assert [row[9] for row in told] == [format_duration(each["run_p99"]) for each in reversed(hours)]
    assert len(hours) == 23
    expect(page.get_by_role("img", name="Queue wait percentiles over time")).to_be_visible()
    visitor.check_access()
    keep_picture(page, "history")


def test_what_is_asked_is_in_the_address_and_a_link_to_it_shows_the_same(
    kept: Dashboard, visit: Visit
) -> None:
    # A month, of which the tables have the same whenever it is asked for.
    page = answered(visit(kept).go("/history?range=month"))

    page.get_by_label("Task (glob)").fill("mail.*")
    page.get_by_label("Worker (glob)").fill("w2@lab")
    page.get_by_label("Queue (glob)").fill("mail")
    page.get_by_role("button", name="Run").click()
    page.wait_for_url(re.compile(r"/history\?.*task=mail\.%2A&worker=w2%40lab&queue=mail"))
    answered(page)
    shown = page.locator("[data-tile=attempts]").inner_text()
    shared = page.url.removeprefix(kept.address)
    again = answered(visit(kept).go(shared))

    assert int(shown.replace(",", "")) > 0
    expect(again.locator("[data-tile=attempts]")).to_have_text(shown)
    expect(again.get_by_label("Task (glob)")).to_have_value("mail.*")
    again.get_by_label("Queue (glob)").fill("celery")
    again.keyboard.press("Enter")
    again.wait_for_url(re.compile("queue=celery"))
    expect(again.locator("[data-empty=latency]")).to_contain_text("No attempts match")


def test_another_time_is_chosen_and_an_exact_one_too(kept: Dashboard, visit: Visit) -> None:
    page = answered(visit(kept).go("/history"))

    page.get_by_role("combobox", name="Time range").click()
    page.get_by_role("option", name="Last 7 days").click()
    page.get_by_role("button", name="Run").click()
    page.wait_for_url("**/history?range=week")
    answered(page)
    (week,) = kept.api("history/latency")
    expect(page.locator("[data-tile=attempts]")).to_have_text(format_count(week["attempts"]))

    page.get_by_role("combobox", name="Time range").click()
    page.get_by_role("option", name="Custom range").click()
    begin = datetime.fromtimestamp(NOW - 2 * HOUR, UTC)
    page.get_by_label("Start (UTC)").fill(begin.strftime("%Y-%m-%dT%H:%M:%S"))
    page.get_by_role("button", name="Run").click()
    page.wait_for_url(f"**/history?since={NOW - 2 * HOUR}")
    answered(page)
    (two,) = kept.api("history/latency", since=NOW - 2 * HOUR)
    expect(page.locator("[data-tile=attempts]")).to_have_text(format_count(two["attempts"]))
    expect(page.locator("[data-span]")).to_contain_text(begin.strftime("Range: %Y-%m-%d %H:%M:%S UTC to"))


def test_too_many_times_are_refused_with_what_to_do(kept: Dashboard, visit: Visit) -> None:
    page = answered(visit(kept).go("/history?range=month&by=minute"))

    expect(page.locator(".notice")).to_contain_text("use longer intervals")


def test_the_slowest_and_those_that_fail_lead_to_their_percentiles(kept: Dashboard, visit: Visit) -> None:
    span = f"since={NOW - 24 * HOUR}&until={NOW}"
    visitor = visit(kept)
    page = answered(visitor.go(f"/history?tab=top&{span}"))
    told = kept.api("history/top", since=NOW - 24 * HOUR, until=NOW)
    slowest = rows_of(page.locator("[data-ranking=slowest]"))

    assert [row[0] for row in slowest] == [each["name"] for each in told] == ["mail.send", "shop.pay"]
    assert [row[5] for row in slowest] == [format_duration(each["run_mean"]) for each in told]
    assert [row[0] for row in rows_of(page.locator("[data-ranking=failing]"))] == ["shop.pay"]
    visitor.check_access()
    keep_screenshot(page, "history-top")
    page.locator("[data-ranking=failing]").get_by_role("link", name="shop.pay").click()
    page.wait_for_url("**/history?task=shop.pay&since=*")
    expect(page.locator("[data-tile=failed]")).not_to_have_text("0")


def test_tasks_workers_and_queues_are_told_apart_as_by_the_api(kept: Dashboard, visit: Visit) -> None:
    span = {"since": NOW - 24 * HOUR, "until": NOW}
    visitor = visit(kept)
    page = answered(visitor.go(f"/history?since={span['since']}&until={span['until']}"))

    def shown(per: str) -> list[list[str]]:
        return rows_of(page.get_by_role("region", name=f"By {per}"))

    assert shown("task") == apart(kept, "task", **span)
    page.get_by_role("combobox", name="Group by").click()
    page.get_by_role("option", name="Worker").click()
    page.wait_for_url("**&per=worker#apart")
    assert [row[0] for row in shown("worker")] == ["w1@lab", "w2@lab"]
    assert shown("worker") == apart(kept, "worker", **span)
    expect(page.locator("[data-apart]")).to_be_in_viewport()
    visitor.check_access()
    keep_screenshot(page, "history-apart")

    page.get_by_role("link", name="w2@lab").click()
    page.wait_for_url(f"**/history?worker=w2%40lab&since={span['since']}&until={span['until']}")
    assert shown("task") == apart(kept, "task", worker="w2@lab", **span)
    page.get_by_role("link", name="mail.send").click()
    page.wait_for_url("**/history?task=mail.send&worker=w2%40lab&*per=worker")
    page = answered(visitor.go(f"/history?per=queue&since={span['since']}&until={span['until']}"))
    assert [row[0] for row in shown("queue")] == ["celery", "mail"]
    assert shown("queue") == apart(kept, "queue", **span)


def apart(kept: Dashboard, per: str, **query: Any) -> list[list[str]]:
    """Return the rows of the API as the page writes them."""
    counts = ("attempts", "failed", "retried")
    durations = ("wait_p50", "wait_p95", "wait_p99", "run_p50", "run_p95", "run_p99", "run_max")
    return [
        [
            row["name"],
            *(format_count(row[name]) for name in counts),
            *(format_duration(row[name]) for name in durations),
        ]
        for row in kept.api("history/breakdown", per=per, **query)
    ]


def test_two_times_are_compared_and_what_got_worse_is_marked(kept: Dashboard, visit: Visit) -> None:
    middle = NOW - 24 * HOUR
    visitor = visit(kept)
    page = answered(visitor.go(f"/history?tab=compare&since={middle}&until={middle + 6 * HOUR}"))
    told = kept.api(
        "history/compare",
        a_since=middle - 6 * HOUR, a_until=middle, b_since=middle, b_until=middle + 6 * HOUR,
    )  # fmt: skip
    table = page.get_by_role("region", name="Comparison")
    rows = {row[0]: row for row in rows_of(table)}

    assert list(rows) == [each["measure"] for each in told]
    assert rows["attempts"] == ["attempts", "48", "48", "same"]
    mean = next(each for each in told if each["measure"] == "run mean")
    assert rows["run mean"][1:] == [format_duration(mean["left"]), format_duration(mean["right"]), "+200.0 %"]
    marked = table.locator("tr").filter(has_text="run mean").locator(".is-worse")
    expect(marked).to_have_count(1)
    visitor.check_access()
    keep_screenshot(page, "history-compare")

    page.get_by_role("combobox", name="Compare with").click()
    page.get_by_role("option", name="Same time last week").click()
    page.get_by_role("button", name="Run").click()
    page.wait_for_url("**against=last-week")
    answered(page)
    expect(table.locator("tr").filter(has_text="attempts").locator("td").nth(1)).to_have_text("0")


def test_a_comparison_is_narrowed_by_worker_and_queue(kept: Dashboard, visit: Visit) -> None:
    middle = NOW - 24 * HOUR
    page = answered(visit(kept).go(f"/history?tab=compare&since={middle}&until={middle + 6 * HOUR}"))
    rows = page.get_by_role("region", name="Comparison").locator("tr")
    attempts = rows.filter(has_text="attempts").locator("td")
    expect(attempts).to_have_text(["attempts", "48", "48", "same"])

    page.get_by_label("Worker (glob)").fill("w2@*")
    page.get_by_role("button", name="Run").click()
    page.wait_for_url("**worker=w2%40%2A**")
    expect(attempts).to_have_text(["attempts", "24", "24", "same"])
    page.get_by_label("Queue (glob)").fill("celery")
    page.get_by_role("button", name="Run").click()
    page.wait_for_url("**queue=celery**")

    expect(page.locator("[data-empty=compare]")).to_be_visible()


def test_the_times_that_workers_were_there_are_told(kept: Dashboard, visit: Visit) -> None:
    visitor = visit(kept)
    page = answered(visitor.go("/history"))

    page.get_by_role("navigation", name="History views").get_by_text("Workers").click()
    page.wait_for_url("**/history?tab=sessions")
    rows = rows_of(page.get_by_role("region", name="Worker sessions"))

    assert [(row[0], row[1], row[4], row[5]) for row in rows] == [
        ("w1@lab", "11", "lost", ""), ("w1@lab", "12", "open", "yes"),
    ]  # fmt: skip
    expect(page.get_by_role("link", name="w1@lab").first).to_have_attribute("href", "/workers/w1%40lab")
    visitor.check_access()
    keep_screenshot(page, "history-sessions")


def test_of_the_past_times_end_at_the_moment_that_is_shown(kept: Dashboard, visit: Visit) -> None:
    at = int(NOW - 10 * HOUR)
    page = answered(visit(kept).go(f"/history?at={at}"))
    (told,) = kept.api("history/latency", since=at - 24 * HOUR, until=at)

    expect(page.locator("[data-tile=attempts]")).to_have_text(format_count(told["attempts"]))
    expect(page.locator("[data-span]")).to_contain_text(
        datetime.fromtimestamp(at, UTC).strftime("to %Y-%m-%d %H:%M:%S UTC")
    )
    expect(page.get_by_role("link", name="Compare")).to_have_attribute(
        "href", f"/history?tab=compare&at={at}"
    )


def test_the_overview_has_the_last_day(kept: Dashboard, visit: Visit) -> None:
    visitor = visit(kept)
    page = visitor.go("/")
    section = page.locator("[data-last-day]")

    expect(section.get_by_role("img", name="Run time percentiles over time")).to_be_visible()
    expect(page.locator("[data-empty=history]")).to_be_hidden()
    visitor.check_access()
    keep_screenshot(page, "overview-history")
    section.get_by_role("link", name="Open History").click()
    page.wait_for_url("**/history")


@pytest.mark.parametrize("tab", ["latency", "top", "compare", "sessions"])
def test_without_tables_it_says_how_to_have_some(served: Dashboard, visit: Visit, tab: str) -> None:
    visitor = visit(served)
    page = answered(visitor.go(f"/history?tab={tab}"))

    expect(page.locator("[data-empty=history]")).to_contain_text("celeriac pipeline run")
    expect(page.locator("[data-empty=history]")).to_contain_text("celeriac up")
    visitor.check_access()
    if tab == "latency":
        keep_screenshot(page, "history-empty")


def test_the_overview_without_tables_says_so_and_shows_all_else(served: Dashboard, visit: Visit) -> None:
    page = visit(served).go("/")

    expect(page.locator("[data-last-day] [data-empty=history]")).to_contain_text("celeriac up")
    expect(page.locator("[data-tile=tasks]")).to_have_text("0")
    expect(page.locator(".notice")).to_be_hidden()


def test_what_keeps_the_overview_from_being_shown_stays_though_the_tables_answer(
    kept: Dashboard, visit: Visit
) -> None:
    page = visit(kept).go(f"/?at={int(NOW - HOUR)}")

    expect(page.locator("[data-last-day]").get_by_role("img").first).to_be_visible()
    expect(page.locator(".notice")).to_contain_text("No event log configured")


def test_what_cannot_be_answered_is_told_and_nobody_waits_for_it(kept: Dashboard, visit: Visit) -> None:
    page = answered(visit(kept).go("/history?tab=compare&at=1e15"))

    expect(page.locator(".notice")).to_contain_text("The query failed")


@pytest.mark.parametrize("tab", ["latency", "top", "compare", "sessions"])
def test_on_a_phone_and_in_the_dark_all_can_be_read_and_reached(
    kept: Dashboard, visit: Visit, tab: str
) -> None:
    visitor = visit(kept, viewport={"width": 390, "height": 800}, color_scheme="dark")
    page = answered(visitor.go(f"/history?tab={tab}"))
    expect(page.locator("tbody tr").first).to_be_visible()

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    visitor.check_access()
    keep_screenshot(page, f"history-{tab}-phone-dark")


@pytest.mark.parametrize(
    "query", ["tab=none&by=year&range=x&against=y&per=z", "since=1e400&by=day", "task=%3Cb%3E%27%22"]
)
def test_a_link_that_is_old_or_wrong_shows_what_it_can(kept: Dashboard, visit: Visit, query: str) -> None:
    page = answered(visit(kept).go(f"/history?{query}"))

    expect(page.get_by_role("heading", level=1)).to_have_text("History")
    expect(page.locator("[data-answer] > *").first).to_be_visible()
