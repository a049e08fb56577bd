"""A dashboard as people have it: the program, a real broker, a real browser."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, takewhile
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Page, Request, expect

from celeriac.app import Celeriac
from celeriac.node.dispatcher import EventDispatcher
from celeriac.programs.process import wait_until
from tests.http_client import http_client
from tests.pictures import PICTURES
from tests.program import Program, own_environment

__all__ = [
    "PATIENCE",
    "Cluster",
    "Dashboard",
    "Visitor",
    "dashboard",
    "expect_told",
    "keep_picture",
    "keep_screenshot",
]

PATIENCE: Final = 60.0
#: Where pictures of pages are kept, to be looked at.
SCREENSHOTS: Final = Path("build/screenshots")
#: Workers on a busy machine may take more than the two seconds that people wait.
_PATIENT_WITH_WORKERS: Final = (
    "from celeriac.node import worker_setup; from celeriac.web import action; "
    "action._PATIENCE = worker_setup._PATIENCE = 8.0"
)


class Dashboard:
    """A dashboard that runs, and what its API says."""

    def __init__(self, address: str, client: httpx.Client) -> None:
        self.address = address
        self.client = client

    def api(self, path: str, **query: Any) -> Any:
        """Return what the API answers."""
        answer = self.client.get(f"/api/v1/{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextmanager
def dashboard(url: str, *options: str, token: str | None = None, **environment: str) -> Iterator[Dashboard]:
    """Have ``celeriac web`` serve what happens at a broker."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told"
        env = own_environment(CELERIAC_BROKER_URL=url, CELERIAC_LOG_URL=f"{folder}/none", **environment)
        options = ("--port", "0", "--audit", f"{folder}/audit.jsonl", *options)
        with (
            told.open("wb") as out,
            Program(
                "web", *options, env=env, cwd=Path(folder), stderr=out, before=_PATIENT_WITH_WORKERS
            ) as program,
        ):
            found: list[str] = []

            def is_served() -> bool:
                found[:] = re.findall(r"served at (http://\S+)", told.read_text())
                return bool(found) or program.poll() is not None

            assert wait_until(is_served, patience=PATIENCE)
            assert found, told.read_text()
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            # A link that is kept is closed by the server after the five seconds for which the client keeps
            # it, and a question that is asked just then would be lost.
            limits = httpx.Limits(max_keepalive_connections=0)
            with http_client(found[0], headers=headers, timeout=PATIENCE, limits=limits) as client:
                yield Dashboard(found[0], client)
            program.terminate()
            assert program.wait() == 0, told.read_text()


class Cluster:
    """Sends the events of tasks and workers that are none, so that a test knows all that happened."""

    def __init__(self, app: Celeriac) -> None:
        self.app = app
        self._dispatchers: dict[str, EventDispatcher] = {}
        self.sent = 0

    def send(self, kind: str, node: str = "w1@lab", **fields: Any) -> None:
        """Send an event as a node does."""
        if node not in self._dispatchers:
            self._dispatchers[node] = self.app.events.Dispatcher(hostname=node)
        self._dispatchers[node].send(kind, **fields)
        self.sent += 1

    def run_task(self, uuid: str, name: str = "shop.pay", node: str = "w1@lab", **fields: Any) -> None:
        """Have a task received, started and succeeded."""
        self.send("task-received", node, uuid=uuid, name=name, **{"args": "(1,)", "kwargs": "{}", **fields})
        self.send("task-started", node, uuid=uuid)
        self.send("task-succeeded", node, uuid=uuid, result="'done'", runtime=0.25)

    def fail_task(
        self, uuid: str, name: str = "shop.pay", error: str = "ValueError('no')", **fields: Any
    ) -> None:
        """Have a task received, started and failed."""
        self.send("task-received", uuid=uuid, name=name, **{"args": "(1,)", "kwargs": "{}", **fields})
        self.send("task-started", uuid=uuid)
        self.send("task-failed", uuid=uuid, exception=error, traceback=f"Traceback:\n  in pay\n{error}")

    def arrived(self, at: Dashboard) -> None:
        """Wait until a dashboard has heard all that was sent since it began."""
        for dispatcher in self._dispatchers.values():
            dispatcher.flush()
        assert wait_until(lambda: at.api("overview")["events"] >= self.sent, patience=PATIENCE)

    @contextmanager
    def flood(self) -> Iterator[None]:
        """Have a worker and its tasks speak without a pause, in a thread; nobody else may send meanwhile."""
        is_over = Event()

        def speak() -> None:
            # A moment for all others, or nothing else would be done on a machine of two processors.
            for number in takewhile(lambda _: not is_over.wait(0.005), count(1)):
                self.send("worker-heartbeat", freq=600.0, active=number % 9, processed=number)
                self.run_task("t1" if number % 2 else f"flood-{number}")

        thread = Thread(target=speak)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def close(self) -> None:
        """Let go of all links."""
        for dispatcher in self._dispatchers.values():
            dispatcher.close()


class Visitor:
    """Somebody with a browser. What goes wrong in it, and what it asks of others, is kept."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.address = address
        self.page: Page = context.new_page()
        self.page.set_default_timeout(1000 * PATIENCE)
        #: Errors that its console showed.
        self.errors: list[str] = []
        self.foreign: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda said: self._hear(said.type, said.text))
        self.page.on("request", self._look)
        # What an attack in some field would call.
        self.page.expose_function("alert", lambda *told: self.errors.append(f"alert: {told}"))

    def _hear(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.errors.append(text)

    def _look(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and parts.netloc != urlsplit(self.address).netloc:
            self.foreign.append(request.url)

    def go(self, path: str = "/") -> Page:
        """Go to a page, and wait until it is alive."""
        self.page.goto(self.address + path)
        self.page.wait_for_function("window.socket?.connected || document.querySelector('form')")
        return self.page

    def check_access(self) -> None:
        """Ask axe-core what cannot be reached, read or told by people who do not see, or use keys alone."""
        found = Axe().run(self.page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]})
        assert found.violations_count == 0, found.generate_report()


def expect_told(page: Page, text: str) -> None:
    """Expect that what was done is told; what was told before may be there still, and go at the same time."""
    expect(page.locator(".q-notification", has_text=text)).to_be_visible()


def keep_screenshot(page: Page, name: str) -> None:
    """Keep a picture of a whole page."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True, animations="disabled")


def keep_picture(page: Page, name: str, *, height: int = 900) -> None:
    """Keep a picture of a page for the docs: of a long one the upper part."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    size = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
    page.screenshot(
        path=PICTURES / f"{name}.png",
        full_page=True,
        clip={"x": 0, "y": 0, "width": size[0], "height": min(size[1], height)},
        animations="disabled",
    )
