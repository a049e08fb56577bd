"""A sample Celery app with a small, steady load: tasks that succeed, fail, retry, are slow, form workflows.

``celery --app celeriac.testing.sample worker`` runs the tasks, ``python -m celeriac.testing.sample``
sends them, and some for a worker of ours (:mod:`celeriac.cli.reports_app`). The broker and the store of
results are those that ``CELERY_BROKER_URL`` and ``CELERY_RESULT_BACKEND`` name. Needs ``celeriac[demo]``.
"""

import time
from collections.abc import Callable
from itertools import cycle
from typing import Any, Final

from celery import Celery, chain, chord
from kombu.exceptions import OperationalError

__all__ = ["app", "send_load"]

#: Seconds between two tasks: enough to see things move, too little to be felt on a laptop.
PAUSE: Final = 0.4
#: What nobody took by then is not worth doing: a sample that was away must not come back to a heap.
_EXPIRES: Final = 60.0
#: Ready, so that who started the sender knows.
READY: Final = "sending"

app = Celery("sample", set_as_current=False)
app.conf.update(
    accept_content=["json"],
    task_ignore_result=True,
    # Only those of a chord are kept, and not for long.
    result_expires=600,
    task_send_sent_event=True,
    broker_connection_retry_on_startup=True,
)


def _task(name: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Name a task for what it does, wherever this module is run from."""
    decorator: Callable[[Callable[..., Any]], Any] = app.task(name=f"sample.{name}", **options)
    return decorator


@_task("double")
def double(number: int) -> int:
    """Succeed at once."""
    return 2 * number


@_task("fail")
def fail(reason: str) -> None:
    """Fail, always."""
    raise ValueError(reason)


@_task("flaky", bind=True, max_retries=3)
def flaky(self: Any) -> int:
    """Succeed at the third attempt."""
    retries: int = self.request.retries
    if retries < 2:
        raise self.retry(countdown=0.5, exc=ConnectionError("not yet"))
    return retries


@_task("slow", bind=True)
def slow(self: Any, steps: int) -> int:
    """Take half a second for each step, and tell of it with an event of its own type."""
    for step in range(steps):
        time.sleep(0.5)
        self.send_event("task-progress", step=step + 1, steps=steps)
    return steps


def _report(name: str, *arguments: Any) -> Any:
    """Return a call of a task that the other worker has; what it returns is kept for the chord it is in."""
    return app.signature(f"reports.{name}", arguments, queue="reports", ignore_result=False)


_TEXTS: Final = ("first line of the small report", "second line", "last line")


@_task("order")
def order() -> None:
    """Have parts made side by side and then put together: tasks that a task sends are its workflow."""
    chord([_report("count", text) for text in _TEXTS], _report("total")).apply_async()


#: What is sent, in turn; made anew each time, since a chain keeps the ids it was first sent with.
_LOAD: Final[tuple[Callable[[], Any], ...]] = (
    lambda: double.s(1),
    lambda: double.s(21),
    lambda: chain(double.s(1), double.s(), double.s()),
    flaky.s,
    lambda: double.s(4),
    order.s,
    lambda: fail.s("example failure"),
    lambda: _report("fetch"),
    lambda: slow.s(4),
    lambda: _report("render", 5),
    # Its second step is for the worker here, and the one that has run the first would take it for its own.
    lambda: chain(_report("count", "words to double"), double.s().set(queue="celery")),
    lambda: _report("render", 0),
)


def send_load() -> None:
    """Send tasks for ever, one after each pause."""
    print(READY, flush=True)
    for make in cycle(_LOAD):
        try:
            make().apply_async(expires=_EXPIRES)
        except OperationalError as error:  # the broker is away; the next one may get through
            print(f"not sent: {error}", flush=True)
        time.sleep(PAUSE)


if __name__ == "__main__":
    send_load()
