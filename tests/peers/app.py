"""The Celery app that the peers run: imports nothing but Celery and the standard library.

Broker and result backend come from ``CELERY_BROKER_URL`` and ``CELERY_RESULT_BACKEND``.
"""

import os
import time
from collections.abc import Callable
from typing import Any

from celery import Celery, chain, chord, group
from celery.exceptions import Ignore, Reject

app = Celery(
    "peers",
    broker=os.environ.get("CELERY_BROKER_URL"),
    backend=os.environ.get("CELERY_RESULT_BACKEND"),
    set_as_current=False,
)
app.conf.update(
    accept_content=["json"],
    task_serializer="json",
    result_serializer="json",
    event_serializer="json",
    task_send_sent_event=True,
    task_track_started=True,
    broker_connection_retry_on_startup=True,
)
if "PEERS_CAREFUL" in os.environ:
    # What a killed broker takes along is as little as can be: tasks and results are on its disk before
    # anybody counts on them, and Redis soon hands a task on that nobody said to have taken.
    app.conf.update(
        broker_transport_options={"visibility_timeout": 2}
        if str(app.conf.broker_url).startswith("redis")
        else {"confirm_publish": True},
        result_persistent=True,
    )


def task(name: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Name a task for what it does, wherever this file is imported from."""
    decorator: Callable[[Callable[..., Any]], Any] = app.task(name=f"peers.{name}", **options)
    return decorator


@task("add")
def add(x: float, y: float) -> float:
    return x + y


@task("total")
def total(numbers: list[float]) -> float:
    return sum(numbers)


@task("fail")
def fail(message: str = "planned") -> None:
    raise ValueError(message)


@task("retry_then_succeed", bind=True, max_retries=2)
def retry_then_succeed(self: Any) -> int:
    """Is retried twice, at once, and then returns how often it was."""
    if self.request.retries < 2:
        raise self.retry(countdown=0)
    retries: int = self.request.retries
    return retries


@task("sleep_for")
def sleep_for(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@task("echo")
def echo(value: Any, seconds: float = 0.0) -> Any:
    time.sleep(seconds)
    return value


@task("reject", acks_late=True)
def reject() -> None:
    raise Reject("planned", requeue=False)


@task("ignore")
def ignore() -> None:
    raise Ignore


@task("send_custom_event", bind=True)
def send_custom_event(self: Any, steps: int = 3) -> int:
    """Tells of each step with an event of a type that Celery does not know."""
    for step in range(steps):
        self.send_event("task-progress", step=step, steps=steps)
    return steps


def a_chain(length: int) -> Any:
    """Return a chain that counts from 0 up to its length."""
    return chain(add.s(0, 1), *(add.s(1) for _ in range(length - 1)))


def a_group(size: int) -> Any:
    """Return a group whose results are the even numbers from 0."""
    return group(add.s(number, number) for number in range(size))


def a_chord_in_a_chain(size: int) -> Any:
    """Return a chain of a task, a group, a task that needs all of the group, and one more."""
    return chain(echo.s(2), group(echo.s() for _ in range(size)), total.s(), add.s(1))


def a_chord(size: int) -> Any:
    """Return a chord that adds up the even numbers from 0."""
    return chord(a_group(size), total.s())
