"""A browser for each process, a broker for each file, and a visitor for each test."""

import shutil
from asyncio import AbstractEventLoop, _set_running_loop, get_running_loop
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from celeriac.app import Celeriac
from celeriac.testing.brokers import RedisServer
from tests.browser.kit import PATIENCE, Cluster, Dashboard, Visitor, dashboard
from tests.browser.team import locked_dashboard


@pytest.fixture(scope="session")
def shared_browser() -> Iterator[tuple[Browser, AbstractEventLoop]]:
    """Debian's Chromium without a window, and the event loop that Playwright runs in this thread.

    The browser is installed when the tests are set up. To start it takes half a CPU second.
    """
    program = shutil.which("chromium-headless-shell")
    assert program is not None, "the tests need chromium-headless-shell: run scripts/setup-tests"
    with sync_playwright() as playwright:
        # Who runs tests as root, in a container say, has no sandbox.
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        loop = get_running_loop()
        _set_running_loop(None)
        yield running, loop
        _set_running_loop(loop)
        running.close()


@pytest.fixture(scope="module")
def browser(shared_browser: tuple[Browser, AbstractEventLoop]) -> Iterator[Browser]:
    """The browser, for the tests of one file. Other files may run event loops of their own."""
    running, loop = shared_browser
    _set_running_loop(loop)
    yield running
    _set_running_loop(None)


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
