"""A browser and a broker for each file, and a visitor for each test."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from celeriac.app import Celeriac
from celeriac.testing.brokers import RedisServer
from tests.browser.kit import PATIENCE, Cluster, Dashboard, Visitor, dashboard
from tests.browser.team import locked_dashboard


# For each file, though one would do for all: it has an event loop run in this thread, and tests that have
# loops of their own could not run in this process any more.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium without a window: it is installed when the tests are set up."""
    program = shutil.which("chromium-headless-shell")
    assert program is not None, "the tests need chromium-headless-shell: run scripts/setup-tests"
    with sync_playwright() as playwright:
        # Who runs tests as root, in a container say, has no sandbox.
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def cluster(redis: RedisServer) -> Iterator[Cluster]:
    app = Celeriac(redis.url, redis.url, environ={})
    made = Cluster(app)
    yield made
    made.close()
    app.close()


@pytest.fixture(scope="module")
def served(redis: RedisServer) -> Iterator[Dashboard]:
    """A dashboard without any option."""
    with dashboard(redis.url) as running:
        yield running


@pytest.fixture(scope="module")
def locked(
    redis: RedisServer, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Dashboard]:
    """A dashboard where people have to say who they are, a worker, a task that ran and one that failed."""
    with locked_dashboard(redis.url, tmp_path_factory.mktemp("accounts")) as running:
        cluster.send("worker-heartbeat", freq=2.0, active=0, processed=0)
        cluster.run_task("t1")
        cluster.fail_task("t2")
        cluster.arrived(running)
        yield running


#: Far more than any page needs, for a busy machine.
expect.set_options(timeout=1000 * PATIENCE)

Visit = Callable[..., Visitor]


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    """Somebody who visits a dashboard; nothing may go wrong in his browser, and all comes from there."""
    visitors: list[Visitor] = []
    with ExitStack() as stack:

        def come(to: Dashboard, **options: object) -> Visitor:
            # So that nothing is half transparent when it is looked at.
            options = {"reduced_motion": "reduce", **options}
            context = browser.new_context(**options)  # type: ignore[arg-type]
            stack.callback(context.close)
            visitors.append(Visitor(context, to.address))
            return visitors[-1]

        yield come
        assert [error for visitor in visitors for error in visitor.errors] == []
        assert [url for visitor in visitors for url in visitor.foreign] == []
