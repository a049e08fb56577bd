"""What tasks and workers say of themselves is shown, and never run: not as markup, script or template."""

from collections.abc import Iterator
from threading import Event, Thread
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, expect

from celeriac.app import Celeriac
from celeriac.testing.brokers import RedisServer
from celeriac.views.text import visible
from tests.browser.conftest import Visit
from tests.browser.kit import Cluster, Dashboard, Visitor, dashboard, expect_told

#: Each is an element with ``data-xss`` or a call of ``alert`` if it is taken for what it is not.
CORPUS = [
    "<script data-xss>alert(1)</script>",
    "<img data-xss src=x onerror=alert(1)>",
    "<svg data-xss onload=alert(1)>",
    "'\"><b data-xss onmouseover=alert(1)>x</b>",
    "{{constructor.constructor('alert(1)')()}}",
    "${alert(1)}`+alert(1)+`",
    "</script><script data-xss>alert(1)</script>",
    "javascript:alert(1)",
    "<iframe data-xss srcdoc='<script>parent.alert(1)</script>'>",
    "<a data-xss href=javascript:alert(1)>x</a>",
    ":onclick alert(1)",
    "\u202e<template data-xss><img src=x onerror=alert(1)></template>",
]
PAGES = ["/", "/tasks", "/workers", "/cluster", "/history"]


def fields(text: str) -> dict[str, Any]:
    """Return all that a task can say of itself."""
    return {
        "name": text,
        "args": text,
        "kwargs": text,
        "root_id": text,
        "parent_id": text,
        "queue": text,
        "routing_key": text,
        "exchange": text,
        "eta": text,
        "expires": text,
    }


@pytest.fixture(scope="module")
def attacked(redis: RedisServer, cluster: Cluster) -> Iterator[Dashboard]:
    with dashboard(redis.url, "--allow-control") as running:
        for text in CORPUS:
            cluster.send("task-sent", text, uuid=text, **fields(text))
            cluster.send("task-received", text, uuid=text, **fields(text))
            cluster.send("task-started", text, uuid=text)
            cluster.send("task-failed", text, uuid=text, exception=text, traceback=text)
            cluster.send(f"task-{text}", text, uuid=f"custom {text}", state=text, note=text)
            cluster.send("task-received", text, uuid=f"child {text}", **{**fields(text), "parent_id": text})
            cluster.send("task-succeeded", text, uuid=f"child {text}", result=text, runtime=1.0)
            # One that can be sent once more.
            again = {**fields(text), "args": "()", "kwargs": "{}"}
            cluster.send("task-sent", text, uuid=f"again {text}", **again)
            cluster.send("task-received", text, uuid=f"again {text}", **again)
            cluster.send("task-failed", text, uuid=f"again {text}", exception=text, traceback=text)
            cluster.send("worker-heartbeat", text, freq=60.0, sw_ident=text, sw_ver=text, sw_sys=text)
            cluster.send("worker-elect", text, id=text, topic=text, action=text, cver=1)
            cluster.send(f"worker-{text}", text, note=text)
        cluster.arrived(running)
        yield running


def look_at(visitor: Visitor, path: str) -> None:
    page = visitor.go(path)
    expect(page.locator("main")).to_contain_text("alert(1)")
    for canvas in page.locator("canvas:visible").all():
        canvas.hover()
    check(visitor)


def check(visitor: Visitor) -> None:
    """See that nothing was taken for what it is not."""
    page = visitor.page
    assert page.locator("[data-xss]").count() == 0
    assert page.locator("a[href^='javascript']").count() == 0
    assert visitor.errors == []


def test_lists_show_it_as_text(attacked: Dashboard, visit: Visit) -> None:
    visitor = visit(attacked)

    for path in ("/", "/tasks", "/workers", "/cluster"):
        look_at(visitor, path)


@pytest.mark.parametrize("page", ["tasks", "workflows", "workers"])
def test_pages_of_one_task_and_one_worker_show_it_as_text(
    attacked: Dashboard, visit: Visit, page: str
) -> None:
    visitor = visit(attacked)

    for text in CORPUS:
        look_at(visitor, f"/{page}/{quote(text, safe='')}")


def expect_asked(visitor: Visitor, text: str, *said: str) -> Locator:
    """Expect that a dialog shows a text as such."""
    dialog = visitor.page.locator("[data-confirm]")
    for each in (visible(text, 120), *said):
        expect(dialog).to_contain_text(each)
    check(visitor)
    return dialog


def test_who_is_asked_whether_to_act_is_shown_it_as_text(attacked: Dashboard, visit: Visit) -> None:
    visitor = visit(attacked)

    for text in CORPUS:
        # It goes on, in a state that has the name of the attack.
        page = visitor.go(f"/tasks/{quote(f'custom {text}', safe='')}")
        page.locator("[data-action=terminate]").click()
        dialog = expect_asked(visitor, f"custom {text}", f"1 task (1 {visible(text.upper(), 40)}):")
        dialog.get_by_role("button", name="Cancel").click()
        expect(dialog).to_have_count(0)
        page.locator("[data-action=retry]").click()
        dialog = expect_asked(visitor, f"custom {text}", f"not finished: {visible(text.upper(), 40)}")
        dialog.get_by_role("button", name="Cancel").click()
        expect(dialog).to_have_count(0)


def test_what_was_done_is_told_as_text(attacked: Dashboard, visit: Visit) -> None:
    visitor = visit(attacked)

    for text in filter(str.isprintable, CORPUS):
        page = visitor.go(f"/tasks/{quote(f'again {text}', safe='')}")
        page.locator("[data-action=retry]").click()
        dialog = expect_asked(visitor, f"again {text}", f"→ {text}", f"Target queues: 1 {text}")
        # As another queue, too.
        dialog.get_by_label("Target queue").fill(f"to {text}")
        expect_asked(visitor, f"again {text}", f"→ to {text}", f"Target queues: 1 to {text}")
        page.locator("[data-confirm-action]").click()
        expect_told(page, f"to to {text}")
        check(visitor)


@pytest.mark.parametrize("text", [text for text in CORPUS if "data-xss" in text and text.isprintable()])
def test_what_a_worker_answers_is_told_as_text(
    attacked: Dashboard, redis: RedisServer, visit: Visit, text: str
) -> None:
    app = Celeriac(redis.url, environ={}, control_allow=("add_consumer",))
    mailbox = app.mailbox(text)
    mailbox.handlers["add_consumer"] = lambda **_: {"ok": text}
    link = app.connection()
    mailbox.attach(link)
    ending = Event()

    def answer() -> None:
        while not ending.is_set():
            link.drain(0.05)

    thread = Thread(target=answer)
    thread.start()
    try:
        visitor = visit(attacked)
        page = visitor.go(f"/workers/{quote(text, safe='')}")
        page.get_by_label("Queue", exact=True).fill(text)
        page.get_by_role("button", name="Add queue").click()
        expect_asked(visitor, text, f"Add queue: {visible(text, 80)}")
        page.locator("[data-confirm-action]").click()

        expect_told(page, f"add-consumer: {text}: {visible({'ok': text}, 200)}")
        check(visitor)
    finally:
        ending.set()
        thread.join()
        link.close()
        app.close()


@pytest.mark.parametrize(
    "address", ["/tasks?name={0}&worker={0}&text={0}&state={0}", "/history?task={0}&by={0}"]
)
def test_what_an_address_says_is_text_too(attacked: Dashboard, visit: Visit, address: str) -> None:
    visitor = visit(attacked)

    for text in CORPUS:
        page = visitor.go(address.format(quote(text, safe="")))
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        check(visitor)


def test_a_page_has_the_same_scripts_whatever_is_in_it(attacked: Dashboard, served: Dashboard) -> None:
    # All of it at once: a request for each would exceed the number of pages that one address may have open.
    text = " ".join(CORPUS)
    for path in PAGES:
        harmless = served.client.get(path).text
        answer = attacked.client.get(path, params={"text": text, "name": text, "task": text})

        hostile = answer.text
        assert answer.status_code == 200
        assert hostile.count("<script nonce=") == harmless.count("<script nonce=") > 0
        assert hostile.count("<script") == hostile.count("<script nonce=")
