"""Writes and reads result documents with a real Celery, its store being a dict: no broker, no Redis.

Reads one JSON object a line and answers with one, until its input ends: ``{"do": "write", "settings":
{…}}`` gives every document by its key; ``{"do": "read", "documents": {id: …}}`` tells what Celery makes
of each; ``{"do": "keys", "prefixes": […]}`` gives the keys. Documents are in base 64. Imports nothing
but Celery and the standard library.
"""

import json
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from celery import Celery
from celery.app.task import Context
from celery.exceptions import Retry


class Outer:
    """So that an exception has a name with a dot in it."""

    class InnerError(Exception):
        """Has another name than its module's."""


#: The test knows them by these names, and expects the same values.
VALUES: dict[str, object] = {
    "none": None,
    "number": 3,
    "huge": 10**400,
    "text": "é € 😀 \x00",
    "half": "a\ud800",
    "nested": {"a": [1, {"b": [None, True, 1.5]}], "": {}},
    "tuple": (1, (2,)),
    "keys": {1: "a", None: "b"},
    "aware": datetime(2026, 11, 15, 1, 2, 3, 4, UTC),
    "naive": datetime(2026, 11, 15),  # noqa: DTZ001
    "date": date(2026, 11, 15),
    "time": time(1, 2, 3),
    "uuid": UUID(int=7),
    "decimal": Decimal("1.10"),
    "bytes": "é".encode(),
    "binary": b"\xff\x00",
    "mixed": {"at": [date(2026, 11, 15), UUID(int=7)], "raw": {"b": b"\xff"}},
    "infinite": [float("inf"), float("-inf")],
    "marked": {"__type__": "bytes"},
}


def make_app(store: dict[str, bytes], **settings: Any) -> Any:
    """Return an app whose results are kept in a dict."""
    app = Celery("peer", broker="memory://", backend="redis://127.0.0.1:1/0", set_as_current=False)
    app.conf.update(settings)
    backend = app.backend

    def keep(key: Any, value: Any, **_: Any) -> None:
        store[bytes(key).decode()] = value if isinstance(value, bytes) else value.encode()

    backend.set = keep
    backend.get = lambda key: store.get(bytes(key).decode())
    # To wait for news it would connect.
    backend.add_pending_result = backend.remove_pending_result = lambda result, **_: result
    return app


def caught(error: BaseException) -> tuple[BaseException, str]:
    """Return an exception and a text such as its traceback."""
    return error, f"Traceback (most recent call last):\n{type(error).__name__}: é"


def write(settings: dict[str, Any]) -> dict[str, str]:
    """Have Celery store a result of every kind."""
    store: dict[str, bytes] = {}
    app = make_app(store, **settings)
    backend = app.backend
    for name, value in VALUES.items():
        backend.mark_as_done(name, value, request=Context(id=name, _children=[]))
    backend.mark_as_started("started", pid=7, hostname="celery@web1")
    backend.store_result("progress", {"done": 1}, "PROGRESS")
    backend.mark_as_revoked("revoked", "terminated", request=Context(id="revoked"))
    for name, error in {
        "failure": ValueError("a", 7),
        "inner": Outer.InnerError("é"),
        "unspeakable": KeyError({1}, b"\xff"),
        "empty": RuntimeError(),
    }.items():
        backend.mark_as_failure(name, *caught(error), request=Context(id=name))
    backend.mark_as_retry("retry", *caught(Retry("again", ValueError("a"))), request=Context(id="retry"))
    backend.mark_as_done("family", 3, request=Context(id="family", _children=family(app)))
    backend.mark_as_done("chain", 3, request=Context(id="chain", _children=[line(app, 200)]))
    backend.mark_as_done("longest", 3, request=Context(id="longest", _children=[line(app, 300)]))
    backend.mark_as_done("request", 3, request=request())
    backend.store_result("result", app.AsyncResult("a", parent=app.AsyncResult("b")), "SUCCESS")
    app.GroupResult("g", [app.AsyncResult("x")]).save(backend=backend)
    return {key: b64encode(document).decode() for key, document in store.items()}


def line(app: Any, length: int) -> Any:
    """Return the result of the last task of a chain."""
    result = None
    for number in range(length):
        result = app.AsyncResult(str(number), parent=result)
    return result


def family(app: Any) -> list[Any]:
    """Return what a task may have started: a task, a chain, a group after it, a group of groups."""
    group = app.GroupResult("g", [app.AsyncResult("x"), app.AsyncResult("y")], parent=app.AsyncResult("p"))
    return [
        app.AsyncResult("one"),
        line(app, 3),
        group,
        app.GroupResult("o", [group, line(app, 2)]),
        app.AsyncResult(UUID(int=7)),
    ]


def request() -> Any:
    """Return a request with all that an extended result tells of."""
    return Context(
        id="request", task="shop.pay", args=[1, date(2026, 11, 15)], kwargs={"a": UUID(int=7)},
        hostname="celery@web1", retries=2, delivery_info={"routing_key": "celery"}, group="g1",
        parent_id="p1", _children=[], stamped_headers=["who"], stamps={"who": "me"},
    )  # fmt: skip


def read(documents: dict[str, str]) -> dict[str, Any]:
    """Tell what Celery makes of documents."""
    store: dict[str, bytes] = {}
    app = make_app(store)
    told = {}
    for task_id, document in documents.items():
        store[app.backend.get_key_for_task(task_id).decode()] = b64decode(document)
        result = app.AsyncResult(task_id)
        value = result.result
        kind = type(value)
        told[task_id] = {
            "state": result.state,
            "value": repr(value.args if isinstance(value, BaseException) else value),
            "kind": f"{kind.__module__}.{kind.__qualname__}",
            "traceback": result.traceback,
            "children": [repr(child.as_tuple()) for child in result.children or ()],
            "fields": repr(
                [result.name, result.args, result.kwargs, result.worker, result.retries, result.queue]
            ),
            "date_done": str(result.date_done),
            "group_id": result._get_task_meta().get("group_id"),
            "parent_id": result._get_task_meta().get("parent_id"),
        }
    return told


def keys(prefixes: list[str | None]) -> list[list[str]]:
    """Return the key of a task, for each prefix that an operator may choose."""
    made = []
    for prefix in prefixes:
        backend = make_app({}, result_backend_transport_options={"global_keyprefix": prefix}).backend
        made.append(backend.get_key_for_task("é").decode())
    return made


COMMANDS: dict[str, Callable[..., Any]] = {"write": write, "read": read, "keys": keys}

if __name__ == "__main__":
    for row in sys.stdin:
        order = json.loads(row)
        print(json.dumps(COMMANDS[order.pop("do")](**order)), flush=True)
