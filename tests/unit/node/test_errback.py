"""Errbacks: those that are called where a task failed, and those that are sent."""

from typing import Any

import pytest

from celeriac import Celeriac, MemoryBroker
from celeriac.model.task_request import Arguments, TaskRequest
from celeriac.node.context import Context
from celeriac.node.errback import call_errbacks

ERROR = ValueError("no")


def spelled(task: str, *args: Any, immutable: bool = False) -> dict[str, Any]:
    return {"task": task, "args": list(args), "kwargs": {}, "options": {}, "immutable": immutable}


def run(*errbacks: dict[str, Any]) -> Context:
    return Context(TaskRequest("t1", "shop.pay"), Arguments(errbacks=errbacks))


def test_a_task_that_takes_more_than_one_argument_is_called_in_place() -> None:
    app = Celeriac(MemoryBroker(), environ={})
    called: list[tuple[Any, ...]] = []
    app.task(name="three")(lambda request, error, trace: called.append((request.id, error, trace)))
    app.task(name="four")(lambda _, __, ___, more: called.append((more,)))
    app.task(name="any")(lambda *args: called.append(args[1:]))

    left = call_errbacks(
        run(spelled("three"), spelled("four", 4), spelled("any")), ERROR, "at line 1", tasks=app.tasks
    )

    assert left == ()
    assert called == [("t1", ERROR, "at line 1"), (4,), (ERROR, "at line 1")]


def test_an_immutable_errback_gets_its_own_arguments_alone() -> None:
    app = Celeriac(MemoryBroker(), environ={})
    called: list[tuple[Any, ...]] = []
    app.task(name="any")(lambda *args: called.append(args))

    call_errbacks(run(spelled("any", 1, 2, immutable=True)), ERROR, None, tasks=app.tasks)

    assert called == [(1, 2)]


def test_a_task_that_takes_one_argument_or_is_bound_or_unknown_is_sent() -> None:
    app = Celeriac(MemoryBroker(), environ={})
    app.task(name="one")(lambda task_id: task_id)
    app.task(name="bound", bind=True)(lambda self, request, error, trace: (self, request, error, trace))
    errbacks = (spelled("one"), spelled("bound"), spelled("elsewhere"), {"task": "one", "args": 5})

    left = call_errbacks(run(*errbacks), ERROR, None, tasks=app.tasks)

    assert left == errbacks


def test_an_errback_that_fails_is_logged_and_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    app = Celeriac(MemoryBroker(), environ={})
    called: list[str] = []

    @app.task(name="bad")
    def bad(_request: Any, _error: Any, _trace: Any) -> None:
        raise OSError("worse")

    app.task(name="good")(lambda _, __, ___: called.append("good"))
    left = call_errbacks(run(spelled("bad"), spelled("good")), ERROR, None, tasks=app.tasks)

    assert left == ()
    assert called == ["good"]
    assert "The errback bad of task shop.pay[t1] failed" in caplog.text
