"""The pages of workers: they say what the API says, and do to a worker what somebody confirmed."""

import re
import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from celeriac.app import Celeriac
from celeriac.programs.process import wait_until
from celeriac.testing.brokers import RedisServer
from celeriac.testing.peers import CeleriacWorker
from tests.browser.conftest import Visit
from tests.browser.kit import PATIENCE, Cluster, Dashboard, dashboard, expect_told, keep_screenshot
from tests.interop.test_cli_elections import SHOP

#: A name that takes care in addresses, in globs and in markup.
ODD = "odd/na?me#1[x]%41<b>@lab"
#: What the worker obeys.
COMMANDS = "rate_limit,pool_grow,pool_shrink,add_consumer,cancel_consumer,shutdown"
ALIVE = {"freq": 600.0, "active": 1, "processed": 1234, "loadavg": (0.5, 0.25, 0.125)}


@pytest.fixture(scope="module")
def staffed(redis: RedisServer, cluster: Cluster) -> Iterator[Dashboard]:
    """Workers of all kinds, and some tasks."""
    with dashboard(redis.url) as running:
        for node in ("w1@lab", "w2@lab", ODD):
            cluster.send("worker-online", node, sw_ident="py-celery", sw_ver="5.7.0", **ALIVE)
        cluster.send("worker-online", "silent@lab", **{**ALIVE, "freq": 0.2})
        cluster.send("worker-online", "gone@lab", **ALIVE)
        cluster.send("worker-offline", "gone@lab", **ALIVE)
        cluster.run_task("done-1")
        cluster.send("task-received", uuid="open-1", name="shop.pack", args="('<i>box</i>',)", kwargs="{}")
        cluster.send("task-started", uuid="open-1")
        cluster.send("task-received", "w2@lab", uuid="else-1", name="shop.pack", args="()", kwargs="{}")
        cluster.arrived(running)
        assert wait_until(
            lambda: (
                {each["liveness"] for each in running.api("workers")["workers"]} == {"ALIVE", "LOST", "LEFT"}
            ),
            patience=PATIENCE,
        )
        yield running


def cells(page: Page, name: str) -> list[str]:
    """Return what the row of a worker shows."""
    row = page.locator("tbody tr").filter(has=page.get_by_role("link", name=name, exact=True))
    expect(row).to_have_count(1)
    return row.locator("td").all_inner_texts()


def test_the_list_says_what_the_api_says(staffed: Dashboard, visit: Visit) -> None:
    visitor = visit(staffed)
    page = visitor.go("/workers")
    told = staffed.api("workers")["workers"]
    links = page.locator("tbody td:first-child a")
    expect(links).to_have_count(len(told))

    need = ["SUSPECT", "LOST", "ALIVE", "LEFT"]
    first_who_need_a_look = sorted(told, key=lambda each: need.index(each["liveness"]))
    assert links.all_inner_texts() == [each["name"] for each in first_who_need_a_look]
    for state, count in {"ALIVE": 3, "SUSPECT": 0, "LOST": 1, "LEFT": 1}.items():
        expect(page.locator(f"[data-count={state}]")).to_have_text(str(count))
    first = cells(page, "w1@lab")
    assert first[1] == "ALIVE"
    assert first[4].endswith(" ago")
    assert first[5:9] == ["10 min", "0.50 0.25 0.12", "1", "1,234"]
    assert first[12] == "py-celery 5.7.0"
    lost = next(each for each in told if each["name"] == "silent@lab")
    assert cells(page, "silent@lab")[1:3] == ["LOST", lost["reason"]]
    assert cells(page, "gone@lab")[1:3] == ["LEFT", "shut down cleanly"]
    visitor.check_access()
    keep_screenshot(page, "workers")


def test_a_worker_that_leaves_is_shown_so_and_one_that_comes_too(
    staffed: Dashboard, cluster: Cluster, visit: Visit
) -> None:
    page = visit(staffed).go("/workers")
    expect(page.get_by_role("link", name="w1@lab")).to_be_visible()

    cluster.send("worker-online", "late@lab", **ALIVE)
    expect(page.get_by_role("link", name="late@lab")).to_be_visible()
    assert cells(page, "late@lab")[1] == "ALIVE"
    cluster.send("worker-offline", "late@lab", **ALIVE)

    assert wait_until(lambda: cells(page, "late@lab")[1] == "LEFT", patience=PATIENCE)


def test_a_clock_that_is_off_is_marked(staffed: Dashboard, cluster: Cluster, visit: Visit) -> None:
    page = visit(staffed).go("/workers")
    expect(page.get_by_role("link", name="w1@lab")).to_be_visible()
    expect(page.locator(".is-drifting")).to_have_count(0)

    cluster.send("worker-heartbeat", "slow-clock@lab", timestamp=time.time() - 90, **ALIVE)

    expect(page.locator(".is-drifting")).to_have_text(re.compile(r"^1 min 3\d s off$"))
    page.get_by_role("link", name="slow-clock@lab").click()
    expect(page.locator("[data-fact=drift].is-drifting")).to_contain_text("1 min 3")


def test_part_of_a_name_narrows_the_list_and_is_in_the_address(staffed: Dashboard, visit: Visit) -> None:
    page = visit(staffed).go("/workers")
    expect(page.get_by_role("link", name="w1@lab")).to_be_visible()

    page.keyboard.press("/")
    page.keyboard.type("w2")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.wait_for_url("**/workers?name=w2")
    page.reload()

    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_label("Search by name").fill("nobody")
    expect(page.locator("[data-empty=workers]")).to_have_text("No matching workers. Change the search.")


@pytest.mark.parametrize("name", ["w1@lab", ODD])
def test_a_name_leads_to_the_worker_whatever_is_in_it(staffed: Dashboard, visit: Visit, name: str) -> None:
    page = visit(staffed).go("/workers")

    page.get_by_role("link", name=name, exact=True).click()

    expect(page.get_by_role("heading", level=1)).to_have_text(f"Worker {name}")
    expect(page.locator("[data-fact=liveness]")).to_have_text("ALIVE")


def test_a_worker_is_told_with_the_tasks_that_it_has(staffed: Dashboard, visit: Visit) -> None:
    visitor = visit(staffed)
    page = visitor.go(f"/workers/{quote('w1@lab', safe='')}")
    told = staffed.api("workers/w1@lab")

    expect(page.locator("[data-fact=processed]")).to_have_text("1,234")
    expect(page.locator("[data-fact=clock]")).to_have_text(f"{told['clock']:,}")
    expect(page.locator("[data-fact=software]")).to_have_text("py-celery 5.7.0")
    active = page.get_by_role("region", name="Active tasks")
    expect(active.locator("tbody tr")).to_have_count(1)
    expect(active.locator("tbody tr")).to_contain_text("('<i>box</i>',)")
    expect(active.get_by_role("link", name="shop.pack")).to_have_attribute("href", "/tasks/open-1")
    recent = page.get_by_role("region", name="Recent tasks")
    expect(recent.locator("tbody tr")).to_have_count(2)
    # No such worker runs.
    expect(page.locator("[data-fact=queues]")).to_have_text("no reply")
    expect(page.locator("[data-fact=pool]")).to_have_text("no reply")
    visitor.check_access()
    keep_screenshot(page, "worker-viewer")


def test_without_leave_to_act_there_is_nothing_to_act_with(staffed: Dashboard, visit: Visit) -> None:
    page = visit(staffed).go("/workers/w1@lab")

    expect(page.locator("[data-no-actions]")).to_have_text(
        "Read-only. To enable actions, restart with --allow-control."
    )
    expect(page.locator("[data-controls]")).to_have_count(0)


def test_a_worker_that_nobody_knows_is_told_as_such(staffed: Dashboard, visit: Visit) -> None:
    visitor = visit(staffed)
    page = visitor.go("/workers/nobody@nowhere")

    expect(page.locator("[data-empty=worker]")).to_contain_text("No worker with this name")
    expect(page.locator("[data-fact=liveness]")).to_be_hidden()
    visitor.check_access()


def test_with_no_worker_it_says_how_to_have_one(own_redis: RedisServer, visit: Visit) -> None:
    with dashboard(own_redis.url) as quiet:
        visitor = visit(quiet)
        page = visitor.go("/workers")

        expect(page.locator("[data-empty=workers]")).to_contain_text("worker -E")
        visitor.check_access()
        keep_screenshot(page, "workers-empty")


@pytest.mark.parametrize("path", ["/workers", "/workers/w1@lab"])
def test_on_a_phone_and_in_the_dark_all_can_be_read_and_reached(
    staffed: Dashboard, visit: Visit, path: str
) -> None:
    visitor = visit(staffed, viewport={"width": 390, "height": 800}, color_scheme="dark")
    page = visitor.go(path)
    expect(page.locator("tbody tr").first).to_be_visible()

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    visitor.check_access()
    keep_screenshot(page, f"{'workers' if path == '/workers' else 'worker'}-phone-dark")


def test_workers_whose_names_are_shown_alike_are_told_apart(
    staffed: Dashboard, cluster: Cluster, visit: Visit
) -> None:
    twins = {"twin\x1b@lab": 11, "twin\\x1b@lab": 22}
    for node, processed in twins.items():
        cluster.send("worker-online", node, **{**ALIVE, "processed": processed})
    cluster.arrived(staffed)
    visitor = visit(staffed)

    for processed in twins.values():
        page = visitor.go("/workers?name=twin")
        expect(page.locator("tbody tr")).to_have_count(2)
        row = page.locator("tbody tr").filter(has=page.get_by_role("cell", name=str(processed), exact=True))
        row.get_by_role("link").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Worker twin\\x1b@lab")
        expect(page.locator("[data-fact=processed]")).to_have_text(str(processed))


# -- actions, on a worker that is one


@pytest.fixture
def hand() -> Iterator[tuple[Dashboard, Celeriac, CeleriacWorker]]:
    """A worker, and a dashboard that lets people act on it."""
    with RedisServer() as redis:
        app = Celeriac(redis.url, redis.url, environ={})
        with (
            dashboard(redis.url, "--allow-control") as served,
            CeleriacWorker(
                SHOP, url=redis.url, backend=redis.url, hostname="shop@lab", arguments=("--allow", COMMANDS)
            ) as worker,
        ):
            assert wait_until(lambda: bool(served.api("workers")["workers"]), patience=PATIENCE)
            yield served, app, worker
        app.close()


def processes(app: Celeriac) -> int:
    """Return how many threads the pool of the worker has."""
    told = app.control.inspect(timeout=PATIENCE, limit=1).stats()
    assert told is not None
    return int(told["shop@lab"]["pool"]["max-concurrency"])


def queues(app: Celeriac) -> list[str]:
    """Return the names of the queues that the worker takes tasks from."""
    told = app.control.inspect(timeout=PATIENCE, limit=1).active_queues()
    assert told is not None
    return sorted(each["name"] for each in told["shop@lab"])


def test_what_is_confirmed_is_done_to_the_worker_and_what_is_not_is_not(
    hand: tuple[Dashboard, Celeriac, CeleriacWorker], visit: Visit
) -> None:
    served, app, worker = hand
    visitor = visit(served)
    page = visitor.go("/workers/shop@lab")
    before = processes(app)
    dialog = page.locator("[data-confirm]")
    pool, shown_queues = page.locator("[data-fact=pool]"), page.locator("[data-fact=queues]")
    expect(pool).to_have_text(str(before))
    expect(shown_queues).to_have_text("celery")

    page.get_by_label("Change by").fill("3")
    page.get_by_role("button", name="Grow pool").click()
    expect(dialog).to_contain_text("Grow pool: 3")
    expect(dialog).to_contain_text("shop@lab")
    visitor.check_access()
    keep_screenshot(page, "worker-confirm")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    assert processes(app) == before

    page.get_by_role("button", name="Grow pool").click()
    page.locator("[data-confirm-action]").click()
    expect_told(page, "pool-grow: shop@lab")
    assert processes(app) == before + 3
    expect(pool).to_have_text(str(before + 3))

    page.get_by_label("Queue", exact=True).fill("parcels")
    page.get_by_role("button", name="Add queue").click()
    page.locator("[data-confirm-action]").click()
    expect_told(page, "add-consumer: shop@lab")
    # It answers before it does so.
    assert wait_until(lambda: "parcels" in queues(app), patience=PATIENCE)
    expect(shown_queues).to_have_text("celery, parcels")
    assert served.api("workers/shop@lab")["setup"]["queues"] == ["celery", "parcels"]
    visitor.check_access()
    keep_screenshot(page, "worker")

    page.get_by_role("button", name="Shut down").click()
    page.locator("[data-confirm-action]").click()
    assert wait_until(lambda: not worker.is_alive, patience=PATIENCE)
    expect(page.locator("[data-fact=liveness]")).to_have_text("LEFT")
    expect(pool).to_have_text("-")


def test_what_is_taken_away_from_the_worker_is_what_the_button_says(
    hand: tuple[Dashboard, Celeriac, CeleriacWorker], visit: Visit
) -> None:
    served, app, _ = hand
    before = processes(app) + 3
    app.control.pool_grow(3, reply=True, timeout=PATIENCE, limit=1)
    app.control.add_consumer("parcels", reply=True, timeout=PATIENCE, limit=1)
    # It answers before it does so.
    assert wait_until(lambda: processes(app) == before, patience=PATIENCE)
    assert wait_until(lambda: queues(app) == ["celery", "parcels"], patience=PATIENCE)
    page = visit(served).go("/workers/shop@lab")
    dialog = page.locator("[data-confirm]")

    page.get_by_label("Change by").fill("2")
    page.get_by_role("button", name="Shrink pool").click()
    expect(dialog).to_contain_text("Shrink pool: 2")
    page.locator("[data-confirm-action]").click()
    expect_told(page, "pool-shrink: shop@lab")
    assert wait_until(lambda: processes(app) == before - 2, patience=PATIENCE)

    page.get_by_label("Queue", exact=True).fill("parcels")
    page.get_by_role("button", name="Remove queue").click()
    expect(dialog).to_contain_text("Remove queue: parcels")
    page.locator("[data-confirm-action]").click()
    expect_told(page, "cancel-consumer: shop@lab")
    assert wait_until(lambda: queues(app) == ["celery"], patience=PATIENCE)


def test_what_the_api_would_refuse_is_said_at_the_field(
    hand: tuple[Dashboard, Celeriac, CeleriacWorker], visit: Visit
) -> None:
    served, _, _ = hand
    visitor = visit(served)
    page = visitor.go("/workers/shop@lab")

    for wrong in ("0", "1001", "1.5", ""):
        page.get_by_label("Change by").fill(wrong)
        page.get_by_role("button", name="Shrink pool").click()
        expect(page.get_by_text("Use a whole number from 1 to 1000")).to_be_visible()
    page.get_by_role("button", name="Remove queue").click()
    expect(page.get_by_text("Enter a queue name of up to 250 characters")).to_be_visible()
    page.get_by_label("Task name").fill("shop.pay")
    page.get_by_label("Rate", exact=True).fill("often")
    page.get_by_role("button", name="Set rate limit").click()
    expect(page.get_by_text("Use a number per second, minute or hour")).to_be_visible()
    expect(page.locator("[data-confirm]")).to_have_count(0)
    visitor.check_access()

    page.get_by_label("Rate", exact=True).fill("10/m")
    page.get_by_role("button", name="Set rate limit").click()
    page.locator("[data-confirm-action]").click()
    expect_told(page, "rate-limit: shop@lab")
