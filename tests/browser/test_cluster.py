"""The page of the cluster: clocks, leaders, elections, and what was not heard."""

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from celeriac.app import Celeriac
from celeriac.config import Settings
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from celeriac.transport.connect import connect
from celeriac.wire.names import event_exchange
from tests.browser.conftest import Visit
from tests.browser.kit import PATIENCE, Cluster, Dashboard, dashboard, keep_screenshot
from tests.program import Program, own_environment

BEAT = {"freq": 600.0, "active": 0, "processed": 1, "loadavg": (0.1, 0.1, 0.1)}


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    """A Redis that is trusted with elections."""
    with RedisServer({"appendonly": "yes", "appendfsync": "always"}) as server:
        yield server


@pytest.fixture(scope="module")
def watched(redis: RedisServer, cluster: Cluster) -> Iterator[Dashboard]:
    with dashboard(redis.url) as running:
        for node in ("w1@lab", "w2@lab"):
            cluster.send("worker-online", node, **BEAT)
        cluster.send("worker-elect", id="e1", topic="<b>report</b>", action=None, cver=1)
        cluster.arrived(running)
        yield running


def test_clocks_leaders_and_elections_are_what_the_api_says(
    watched: Dashboard, redis: RedisServer, visit: Visit
) -> None:
    app = Celeriac(redis.url, redis.url, environ={}, hostname="web1@lab")
    with app.leadership("nightly-report") as leader:
        visitor = visit(watched)
        page = visitor.go("/cluster")
        told = watched.api("cluster")

        expect(page.locator("[data-tile=receiving]")).to_have_text("Connected")
        expect(page.locator("[data-tile=losses]")).to_have_text("0")
        expect(page.locator("[data-tile=clock]")).to_have_text(f"{told['clock']:,}")
        clocks = page.get_by_role("region", name="Lamport clocks")
        expect(clocks.locator("tbody tr")).to_have_count(2)
        for worker in watched.api("workers")["workers"]:
            row = clocks.locator("tbody tr").filter(has_text=worker["name"])
            expect(row.locator("td").nth(2)).to_have_text(f"{worker['clock']:,}")
            expect(row.locator("td").nth(3)).to_have_text(f"{told['clock'] - worker['clock']:,}")
        leaders = page.get_by_role("region", name="Leaders").locator("tbody tr")
        expect(leaders).to_have_count(1)
        assert leaders.locator("td").all_inner_texts()[:3] == [
            "nightly-report",
            "web1@lab",
            str(leader.token),
        ]
        expect(page.locator("[data-level]")).to_contain_text("Guarantee level L3")
        elections = page.get_by_role("region", name="Election events").locator("tbody tr")
        expect(elections).to_have_count(1)
        expect(elections).to_contain_text("topic: <b>report</b>")
        expect(page.locator("[data-empty=gaps]")).to_contain_text("No event gaps")
        expect(page.locator("[data-empty=refused]")).to_have_text("No rejected messages.")
        visitor.check_access()
        keep_screenshot(page, "cluster")
    app.close()

    expect(page.locator("[data-empty=leaders]")).to_contain_text("No leases held")


def test_a_broker_that_was_away_leaves_a_gap(own_redis: RedisServer, visit: Visit) -> None:
    with dashboard(own_redis.url) as running:
        visitor = visit(running)
        page = visitor.go("/cluster")
        expect(page.locator("[data-tile=receiving]")).to_have_text("Connected")
        expect(page.locator("[data-empty=clocks]")).to_contain_text("No workers yet")
        expect(page.locator("[data-empty=elections]")).to_contain_text("No election events")
        keep_screenshot(page, "cluster-empty")

        own_redis.restart()

        expect(page.locator("[data-tile=losses]")).to_have_text("1")
        gaps = page.get_by_role("region", name="Event gaps").locator("tbody tr")
        expect(gaps).to_have_count(1)
        (told,) = running.api("cluster")["gaps"]
        expect(gaps).to_contain_text(time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(told["since_at"])))
        expect(gaps).to_contain_text(told["reason"])
        visitor.check_access()
        keep_screenshot(page, "cluster-gap")


def test_on_a_phone_and_in_the_dark_all_can_be_read_and_reached(watched: Dashboard, visit: Visit) -> None:
    visitor = visit(watched, viewport={"width": 390, "height": 800}, color_scheme="dark")
    page = visitor.go("/cluster")
    expect(page.locator("tbody tr").first).to_be_visible()

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    visitor.check_access()
    keep_screenshot(page, "cluster-phone-dark")


def test_of_the_past_that_is_told_which_the_log_has(
    own_redis: RedisServer, visit: Visit, tmp_path: Path
) -> None:
    app = Celeriac(own_redis.url, own_redis.url, environ={})
    cluster = Cluster(app)
    environment = own_environment(CELERIAC_BROKER_URL=own_redis.url)
    with Program("record", "log", "--limit", "6", cwd=tmp_path, env=environment) as recorder:

        def is_recorded() -> bool:
            cluster.send("worker-heartbeat", "past@lab", **BEAT)
            cluster.send("task-received", "past@lab", uuid="t1", name="shop.pay", args="()", kwargs="{}")
            cluster.send("worker-elect", "past@lab", id="e1", topic="report", action=None, cver=1)
            return recorder.poll() is not None

        assert wait_until(is_recorded, patience=PATIENCE)
    # A whole second, and none in which an event came.
    at = math.ceil(time.time())
    assert wait_until(lambda: time.time() >= at, patience=PATIENCE)
    cluster.close()
    app.close()
    with dashboard(own_redis.url, "--allow-control", "--log", str(tmp_path / "log")) as running:
        visitor = visit(running)
        page = visitor.go(f"/cluster?at={at}")
        worker = page.get_by_role("link", name="past@lab")
        expect(worker).to_have_attribute("href", f"/workers/past%40lab?at={at}")
        expect(page.locator("[data-tile=losses]")).to_have_text("Live only")
        expect(page.locator("[data-empty=leaders]")).to_contain_text("Past leaders are not recorded")
        elections = page.get_by_role("region", name="Election events").locator("tbody tr")
        expect(elections.first).to_contain_text("id: e1")
        # There are no tables, so nobody is sent there.
        expect(page.locator("[data-past-note]")).to_contain_text("the hour before")
        expect(page.get_by_role("link", name="Open History")).to_have_count(0)
        keep_screenshot(page, "cluster-past")

        worker.click()
        expect(page.locator("[data-as-of]")).to_be_visible()
        expect(page.get_by_role("region", name="Active tasks")).to_contain_text("shop.pay")
        expect(page.locator("[data-no-actions]")).to_contain_text("Actions are not available for past times")
        page.get_by_role("link", name="Workers").click()
        page.wait_for_url(f"**/workers?at={at}")
        expect(page.locator("tbody tr")).to_have_count(1)
        visitor.check_access()

        # It began after all of this.
        visitor.go("/cluster")
        expect(elections.first).to_contain_text("id: e1")


def test_who_records_and_how_it_is_with_him_is_told(
    own_redis: RedisServer, visit: Visit, tmp_path: Path
) -> None:
    log = str(tmp_path / "log")
    environment = own_environment(CELERIAC_BROKER_URL=own_redis.url)
    with dashboard(own_redis.url, "--log", log) as running:
        page = visit(running).go("/cluster")
        expect(page.locator("[data-empty=recorders]")).to_contain_text("celeriac record")
        rows = page.get_by_role("region", name="Recorders").locator("tbody tr")

        with Program("record", log, cwd=tmp_path, env=environment) as recorder:
            expect(rows).to_have_count(1)
            expect(rows).to_contain_text("Recording")
            assert [each["ailment"] for each in running.api("cluster")["recorders"]] == [""]
            recorder.terminate()
            assert recorder.wait() == 0

        expect(rows.locator(".is-bad")).to_be_visible()


def test_of_very_many_workers_some_are_listed_and_the_rest_is_counted(
    own_redis: RedisServer, visit: Visit
) -> None:
    with dashboard(own_redis.url) as running, connect(Settings(broker_url=own_redis.url)) as link:
        for number in range(310):
            event = {"type": "worker-online", "hostname": f"w{number}@lab", "clock": number, **BEAT}
            body = json.dumps({**event, "timestamp": time.time(), "utcoffset": 0, "pid": 7}).encode()
            link.publish(event_exchange("celeryev", link.driver), body, routing_key="worker.online")
        page = visit(running).go("/cluster")
        clocks = page.get_by_role("region", name="Lamport clocks")

        expect(clocks.locator("tbody tr")).to_have_count(300)
        expect(page.locator("main")).to_contain_text("10 more not listed")
