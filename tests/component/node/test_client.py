"""Sending by name: what the app adds to a call, and what it gives back."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from celeriac import AccessRefused, CallerError, Celeriac, ImproperlyConfigured, MemoryBroker
from celeriac.core.backoff import Backoff
from celeriac.model.message import Exchange
from celeriac.programs.process import wait_until
from celeriac.transport.memory import MemoryConnection

HIDDEN = "s3cret"


def published(broker: MemoryBroker, exchange: str = "") -> list[Any]:
    return [message for name, message in broker.published if name == exchange]


def test_a_task_is_sent_by_its_name_wherever_it_is_defined() -> None:
    broker = MemoryBroker()
    app = Celeriac(broker, environ={}, hostname="me@here")

    result = app.send_task("shop.pay", [1], {"a": 2}, queue="slow", task_id="t1")

    [message] = published(broker)
    assert (result.id, message.headers["id"], message.routing_key) == ("t1", "t1", "slow")
    assert message.headers["origin"] == "me@here"
    app.close()


def test_what_a_task_says_of_itself_counts_when_it_is_sent_by_name() -> None:
    broker = MemoryBroker()
    app = Celeriac(broker, environ={})
    app.task(name="shop.pay", queue="own", priority=2)(lambda: None)

    app.send_task("shop.pay")

    [message] = published(broker)
    assert (message.routing_key, message.priority) == ("own", 2)
    app.close()


def test_without_a_backend_only_who_asks_for_the_result_is_told() -> None:
    app = Celeriac(MemoryBroker(), environ={})

    result = app.send_task("shop.pay")

    with pytest.raises(ImproperlyConfigured, match="no result backend is set"):
        result.get(timeout=0)
    with pytest.raises(ImproperlyConfigured, match="no result backend is set"):
        _ = result.state
    app.close()


def test_where_results_are_messages_a_task_says_where_to_send_its_own() -> None:
    broker = MemoryBroker()
    app = Celeriac(broker, "rpc://", environ={})

    result = app.send_task("shop.pay")
    app.send_task("shop.pay", ignore_result=True)

    wanted, unwanted = published(broker)
    assert wanted.reply_to.startswith("celeriac.reply.")
    assert unwanted.reply_to == ""
    app.backend.store_result(result.id, 5, reply_to=wanted.reply_to)
    assert result.get(timeout=120) == 5
    app.close()


def test_that_a_task_was_sent_is_told_if_the_settings_want_it() -> None:
    broker = MemoryBroker()
    app = Celeriac(broker, environ={}, task_send_sent_event=True, hostname="me@here")

    app.send_task("shop.pay", [HIDDEN], task_id="t1", argsrepr="(…)")

    wait_until(lambda: bool(published(broker, "celeryev")), patience=120)
    [event] = [json.loads(message.body) for message in published(broker, "celeryev")]
    assert (event["type"], event["uuid"], event["name"], event["queue"]) == (
        "task-sent",
        "t1",
        "shop.pay",
        "celery",
    )
    assert (event["args"], event["hostname"]) == ("(…)", "me@here")
    app.close()


def test_task_sent_is_published_before_the_broker_confirms_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = MemoryBroker()
    app = Celeriac(broker, environ={}, task_send_sent_event=True)
    published_at_confirmation = []

    def confirm(*_: object) -> int:
        published_at_confirmation.append([exchange for exchange, _ in broker.published])
        return 0

    monkeypatch.setattr(MemoryConnection, "unconfirmed", confirm)
    app.send_task("shop.pay")

    assert published_at_confirmation[-1] == ["", "celeryev"]
    app.close()


def test_the_connection_of_task_sent_is_made_before_the_task_is_published() -> None:
    broker = MemoryBroker()
    app = Celeriac(broker, environ={}, task_send_sent_event=True)
    calls: list[str] = []
    app._dispatcher.open = lambda: calls.append("open")  # type: ignore[method-assign]
    app._sender.post = lambda *_, **__: calls.append("post")  # type: ignore[method-assign]

    app.send_task("shop.pay")

    assert calls == ["open", "post"]
    app.close()


def test_a_task_is_sent_while_its_event_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    broker = MemoryBroker()
    app = Celeriac(broker, environ={}, task_send_sent_event=True)

    def refuse() -> None:
        raise AccessRefused("no events for you")

    app._dispatcher.open = refuse  # type: ignore[method-assign]
    app.send_task("shop.pay", task_id="t1")

    assert len(published(broker)) == 1
    assert "Could not publish the task-sent event for t1: no events for you" in caplog.text
    app.close()


def test_a_broker_that_refuses_events_is_asked_and_logged_once_for_many_tasks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = MemoryBroker()
    app = Celeriac(broker, environ={}, task_send_sent_event=True)
    refused: list[str] = []

    def refuse(_: MemoryConnection, exchange: Exchange) -> None:
        refused.append(exchange.name)
        raise AccessRefused("no events for you")

    monkeypatch.setattr(Backoff, "next", lambda _: 3600.0)
    monkeypatch.setattr(MemoryConnection, "prepare", refuse)
    for _ in range(3):
        app.send_task("shop.pay")

    assert len(published(broker)) == 3
    assert refused == ["celeryev"]
    assert caplog.text.count("no events for you") == 1
    app.close()


def test_a_task_that_keeps_still_is_not_told_of() -> None:
    broker = MemoryBroker()
    app = Celeriac(broker, environ={}, task_send_sent_event=True)
    still = app.task(send_events=False)(lambda: None)

    still.delay()
    app.close()

    assert published(broker, "celeryev") == []


def test_what_is_hidden_is_in_the_body_and_nowhere_else() -> None:
    broker = MemoryBroker()
    app = Celeriac(broker, environ={}, task_send_sent_event=True)

    app.send_task("shop.pay", [HIDDEN], {"key": HIDDEN}, argsrepr="(…)", kwargsrepr="{…}")
    app.close()

    [message], events = published(broker), published(broker, "celeryev")
    assert HIDDEN in message.body.decode()
    assert HIDDEN not in repr(message._replace(body=b""))
    assert HIDDEN not in repr(events)


def test_an_option_that_there_is_none_of_is_told() -> None:
    app = Celeriac(MemoryBroker(), environ={})

    with pytest.raises(CallerError, match="did you mean priority"):
        app.send_task("shop.pay", priorty=3)  # type: ignore[call-arg]


def test_an_app_that_was_closed_can_send_again() -> None:
    broker = MemoryBroker()
    app = Celeriac(broker, environ={}, task_send_sent_event=True)

    for _ in range(2):
        app.send_task("shop.pay")
        app.close()

    assert len(published(broker)) == len(published(broker, "celeryev")) == 2


PROGRAM = """
from celeriac import Celeriac, MemoryBroker
app = Celeriac(MemoryBroker(), environ={})
@app.task
def add(x, y): return x + y
if __name__ == "__main__":
    print(add.name)
"""


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["shop.py"], "shop.add"),
        (["-m", "shop"], "shop.add"),
        (["-m", "store"], "store.add"),
        (["store/deep.py"], "deep.add"),
        (["-m", "store.deep"], "store.deep.add"),
    ],
)
def test_a_program_that_is_a_module_names_its_tasks_as_who_imports_it(
    tmp_path: Path, arguments: list[str], name: str
) -> None:
    (tmp_path / "store").mkdir()
    for file in ("shop.py", "store/__main__.py", "store/deep.py"):
        (tmp_path / file).write_text(PROGRAM)
    (tmp_path / "store" / "__init__.py").touch()

    told = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
    )

    assert told.stdout.strip() == name
