"""The first page: it says what the API says, and what to do where there is nothing to see."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from time import time
from urllib.parse import parse_qs, urlsplit

import pytest
from msgspec.structs import replace
from playwright.sync_api import expect

from celeriac.store.recorder_status import RecorderStatus, write_status
from celeriac.testing.brokers import RedisServer
from tests.browser.conftest import Visit
from tests.browser.kit import Cluster, Dashboard, dashboard, keep_screenshot
from tests.event_logs import heartbeat, seal
from tests.warehouses import publish, rollup

HOUR = 3600.0


@pytest.fixture(scope="module")
def busy(redis: RedisServer, cluster: Cluster) -> Iterator[Dashboard]:
    with dashboard(redis.url) as running:
        for node in ("w1@lab", "w2@lab"):
            cluster.send(
                "worker-heartbeat", node, freq=600.0, active=1, processed=20, loadavg=(0.1, 0.2, 0.3)
            )
        for number in range(40):
            cluster.run_task(f"t{number}", node=f"w{number % 2 + 1}@lab")
        for number in range(15):
            cluster.fail_task(f"f{number}")
        cluster.arrived(running)
        yield running


def test_it_says_what_the_api_says(busy: Dashboard, visit: Visit) -> None:
    visitor = visit(busy)
    page = visitor.go()
    told = busy.api("overview")

    expect(page.locator("[data-tile=tasks]")).to_have_text(str(told["tasks"]))
    expect(page.locator("[data-tile=workers]")).to_have_text("2 of 2")
    rows = page.locator("[data-state-row]")
    expect(rows).to_have_count(2)
    assert {tuple(row.split()) for row in rows.all_inner_texts()} == {
        (state, str(count)) for state, count in told["tasks_by_state"].items()
    }
    expect(page.locator("[data-alerts]")).to_contain_text("27 % of 55 tasks failed in the last 5 minutes")
    expect(page.locator("[data-queue-row]")).to_contain_text("celery")
    visitor.check_access()
    keep_screenshot(page, "overview")


def test_it_follows_what_happens(busy: Dashboard, cluster: Cluster, visit: Visit) -> None:
    page = visit(busy).go()
    before = busy.api("overview")["tasks"]
    expect(page.locator("[data-tile=tasks]")).to_have_text(str(before))

    cluster.run_task("later")

    expect(page.locator("[data-tile=tasks]")).to_have_text(str(before + 1))


def test_what_can_be_clicked_stays_the_same_while_its_number_changes(
    busy: Dashboard, cluster: Cluster, visit: Visit
) -> None:
    page = visit(busy).go()
    row, alert = page.locator("[data-state-row]", has_text="FAILURE"), page.locator("[data-alerts] a")
    before = busy.api("overview")["tasks_by_state"]["FAILURE"]
    for each in (row, alert):
        each.evaluate("link => { link.dataset.pressed = 'yes' }")

    cluster.fail_task("pressed")

    expect(row.locator(".bar-count")).to_have_text(str(before + 1))
    expect(alert).to_contain_text(f"of {busy.api('overview')['tasks']} tasks failed")
    for each in (row, alert):
        expect(each).to_have_attribute("data-pressed", "yes")


def test_a_state_leads_to_its_tasks(busy: Dashboard, visit: Visit) -> None:
    page = visit(busy).go()

    page.get_by_role("link", name="FAILURE").click()

    page.wait_for_url("**/tasks?state=FAILURE")


def test_an_alert_of_failures_leads_to_the_tasks_that_failed_of_late(busy: Dashboard, visit: Visit) -> None:
    page = visit(busy).go()

    page.locator("[data-alerts] a", has_text="tasks failed").click()

    page.wait_for_url(re.compile(r"/tasks\?"))
    assert parse_qs(urlsplit(page.url).query) == {"state": ["FAILURE"], "last": ["300"]}
    states = page.get_by_role("region", name="Tasks").locator("tbody .state")
    expect(states.first).to_have_text("FAILURE")
    assert set(states.all_inner_texts()) == {"FAILURE"}


@pytest.fixture(scope="module")
def neglected(redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """A dashboard beside a recorder that fell silent an hour ago, and tables that nobody makes any more."""
    folder = tmp_path_factory.mktemp("history")
    ended_at = time() - HOUR
    beat = replace(heartbeat(), timestamp=ended_at, local_received=ended_at)
    seal(folder / "log", [beat], recorder="eu-1")
    spool = folder / "log" / "spool" / "eu-1"
    spool.mkdir(parents=True)
    status = RecorderStatus(
        name="eu-1", recorder="eu-1", log="log", pid=1, started_at=0.0, updated_at=ended_at, state="recording"
    )
    write_status(spool, status)
    hour = ended_at // HOUR * HOUR
    day = datetime.fromtimestamp(hour, UTC).strftime("%Y-%m-%d")
    rows = [rollup(hour, runs=[1.0] * 9, failed=2, retried=1, day=day)]
    publish(
        folder / "warehouse", {"rollups_hour": rows, "rollups_minute": rows}, published_at=time() - 50 * HOUR
    )
    with dashboard(
        redis.url, "--log", str(folder / "log"), "--warehouse", str(folder / "warehouse")
    ) as running:
        yield running


def test_a_silent_recorder_and_old_tables_are_told_with_the_way_to_more(
    neglected: Dashboard, visit: Visit
) -> None:
    visitor = visit(neglected)
    page = visitor.go()
    alerts = page.locator("[data-alerts] a")

    expect(alerts).to_have_count(2)
    expect(alerts.first).to_contain_text("Events are not recorded: recorder eu-1: no status update")
    expect(alerts.first).to_have_attribute("href", "/cluster")
    expect(alerts.last).to_contain_text("History tables are 2 d 2 h old")
    expect(alerts.last).to_have_attribute("href", "/history")
    visitor.check_access()


def test_the_last_day_has_attempts_failures_and_retries_of_each_hour(
    neglected: Dashboard, visit: Visit
) -> None:
    page = visit(neglected).go()
    chart = page.get_by_role("img", name="Attempts, failures and retries per hour")

    expect(chart).to_be_visible()
    told = chart.evaluate("chart => getElement(chart).chart.getOption().series.map(s => [s.name, s.data])")
    # All hours of a day, of which the last has attempts.
    assert {name: len(points) for name, points in told} == {"attempts": 24, "failed": 24, "retried": 24}
    assert {name: points[-1][1] for name, points in told} == {"attempts": 9, "failed": 2, "retried": 1}
    assert {points[0][1] for _, points in told} == {None}


def test_rates_of_a_time_that_nobody_watched_are_not_told_as_none(neglected: Dashboard, visit: Visit) -> None:
    page = visit(neglected).go(f"/?at={int(time() - HOUR / 2)}")

    expect(page.locator("[data-tile=tasks]")).to_have_text("0")
    for mark in ("received", "succeeded", "failed"):
        expect(page.locator(f"[data-tile={mark}]")).to_have_text("-")


def test_with_no_tasks_it_says_how_to_have_some(own_redis: RedisServer, visit: Visit) -> None:
    with dashboard(own_redis.url) as quiet:
        visitor = visit(quiet)
        page = visitor.go()

        expect(page.locator("[data-empty=tasks]")).to_contain_text("celeriac control enable")
        visitor.check_access()
        keep_screenshot(page, "overview-empty")


def test_queues_that_cannot_be_asked_for_are_told_with_the_reason(redis: RedisServer, visit: Visit) -> None:
    redis.client().set("odd", "no queue")

    with dashboard(redis.url, CELERIAC_TASK_DEFAULT_QUEUE="odd") as running:
        page = visit(running).go()

        expect(page.locator("[data-empty=queues]")).to_contain_text("Cannot query the broker: ")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_light_or_dark_as_the_system_is_until_somebody_chooses(
    busy: Dashboard, visit: Visit, scheme: str
) -> None:
    visitor = visit(busy, color_scheme=scheme)
    page = visitor.go()
    other = "dark" if scheme == "light" else "light"
    expect(page.locator(f"body.body--{scheme}")).to_be_attached()

    page.get_by_label("Light or dark theme").click()
    expect(page.locator(f"body.body--{other}")).to_be_attached()
    visitor.go()

    expect(page.locator(f"body.body--{other}")).to_be_attached()
    expect(page.locator("[data-tile=tasks]")).not_to_have_text("-")
    visitor.check_access()
    keep_screenshot(page, f"overview-{other}")


def test_on_a_phone_nothing_is_wider_than_the_screen(busy: Dashboard, visit: Visit) -> None:
    visitor = visit(busy, viewport={"width": 390, "height": 800})
    page = visitor.go()
    expect(page.locator("[data-tile=tasks]")).not_to_have_text("-")

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    keep_screenshot(page, "overview-phone")


def test_it_can_be_walked_by_keys(busy: Dashboard, visit: Visit) -> None:
    page = visit(busy).go()

    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to content")
    page.keyboard.press("Enter")
    page.keyboard.press("2")

    page.wait_for_url("**/tasks")


def test_keys_can_be_turned_off(busy: Dashboard, visit: Visit) -> None:
    page = visit(busy).go("/workers")
    button = page.locator("[data-keys]")

    button.click()
    expect(button).to_have_accessible_name("Shortcuts off")
    page.locator("body").click()
    page.keyboard.press("2")
    page.reload()
    expect(button).to_have_accessible_name("Shortcuts off")
    page.keyboard.press("2")
    page.wait_for_timeout(500)
    assert page.url.endswith("/workers")

    button.click()
    expect(button).to_have_accessible_name("Shortcuts on")
    page.keyboard.press("2")
    page.wait_for_url("**/tasks")


def test_a_browser_that_keeps_nothing_has_its_keys_and_its_choices_all_the_same(
    busy: Dashboard, visit: Visit
) -> None:
    visitor = visit(busy)
    refusal = "{ get() { throw new DOMException('kept from it', 'SecurityError'); } }"
    visitor.page.add_init_script(f"Object.defineProperty(window, 'localStorage', {refusal})")
    page = visitor.go("/tasks")
    page.locator("[data-keys]").click()
    expect(page.locator("[data-keys]")).to_have_accessible_name("Shortcuts off")
    page.locator("[data-keys]").click()

    page.keyboard.press("3")

    page.wait_for_url("**/workers")
