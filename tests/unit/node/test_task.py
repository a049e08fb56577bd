"""Tasks: what they are, how they are called, and what they can do while they run."""

import asyncio
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from celeriac import CallerError, Celeriac, MaxRetriesExceeded, MemoryBroker, NotRegistered, Reject, Retry
from celeriac.model.message import Message
from celeriac.model.task_request import Arguments, Posting, TaskRequest
from celeriac.node.context import Context, current_context, running
from celeriac.node.task import Task
from celeriac.wire.task_request import decode, spell_body


@pytest.fixture
def app() -> Iterator[Celeriac]:
    made = Celeriac(MemoryBroker(), environ={})
    yield made
    made.close()


class Told:
    """Keeps what a task says while it runs."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.states: list[tuple[str, bytes]] = []

    def told(self, kind: str, fields: Mapping[str, Any]) -> None:
        self.events.append((kind, dict(fields)))

    def progressed(self, state: str, result: bytes) -> None:
        self.states.append((state, result))


def run_of(task: Task, *args: Any, report: Told | None = None, **fields: Any) -> Context:
    """Return a run of a task by a worker."""
    arguments = Arguments(args, {})
    request = TaskRequest("t1", task.name, spell_body(arguments), **fields)
    return Context(request, arguments, hostname="w@here", routing_key="slow", report=report)


def sent(app: Celeriac) -> list[TaskRequest]:
    """Return the tasks that an app has sent."""
    memory: MemoryBroker = app._memory  # type: ignore[assignment]
    found: list[Message] = [message for exchange, message in memory.published if exchange == ""]
    return [decode(each, max_bytes=10_000) for each in found]


# -- what they are


def test_a_function_is_a_task_named_by_its_module_and_itself(app: Celeriac) -> None:
    @app.task
    def add(x: int, y: int) -> int:
        """Add two numbers."""
        return x + y

    assert add.name == f"{__name__}.add"
    assert app.tasks[add.name] is add
    assert (add(1, 2), add.__doc__) == (3, "Add two numbers.")


def test_a_task_has_the_options_that_it_was_given(app: Celeriac) -> None:
    @app.task(name="shop.pay", queue="slow", max_retries=None, autoretry_for=OSError, acks_late=True)
    def pay() -> None: ...

    assert (pay.name, pay.queue, pay.max_retries, pay.acks_late) == ("shop.pay", "slow", None, True)
    assert (pay.autoretry_for, pay.track_started, pay.default_retry_delay) == ((OSError,), None, 180)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_retires": 3}, "max_retires is not an option of a task: did you mean max_retries?"),
        ({"acks_late": "yes"}, "option acks_late of a task is 'yes'"),
        ({"serializer": "pickle"}, "use 'json'"),
        ({"priority": 1000}, "from 0 to 255"),
        ({"autoretry_for": ("OSError",)}, "give exception classes"),
        ({"time_limit": 3, "soft_time_limit": 4}, "make soft_time_limit shorter"),
        ({"queue": ""}, "give a queue name"),
        ({"name": "a\nb"}, "task names are strings"),
    ],
)
def test_an_option_that_makes_no_sense_is_told_with_the_fix(
    app: Celeriac, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(CallerError, match=told.replace("?", r"\?")):
        app.task(**options)(lambda: None)


def test_two_functions_cannot_have_one_name(app: Celeriac) -> None:
    app.task(name="shop.pay")(inspect.getdoc)

    with pytest.raises(CallerError, match=r"two tasks are named 'shop\.pay'"):
        app.task(name="shop.pay")(inspect.getfile)


def test_a_module_that_is_read_twice_defines_its_tasks_anew(app: Celeriac) -> None:
    first = app.task(name="shop.pay")(inspect.getdoc)
    second = app.task(name="shop.pay")(inspect.getdoc)

    assert app.tasks["shop.pay"] is second is not first


def test_a_name_that_is_not_known_is_told_with_those_that_are_near(app: Celeriac) -> None:
    app.task(name="shop.pay")(lambda: None)

    with pytest.raises(NotRegistered, match=r"similar: shop\.pay"):
        app.tasks["shop.pya"]
    assert "shop.pya" not in app.tasks
    assert app.tasks.get("shop.pya") is None
    assert list(app.tasks) == ["shop.pay"]


def test_a_bound_task_gets_itself(app: Celeriac) -> None:
    @app.task(bind=True)
    def who(self: Task, *args: int) -> tuple[Task, tuple[int, ...]]:
        return self, args

    assert who(1, 2) == (who, (1, 2))
    assert who.run(3) == (who, (3,))


def test_a_coroutine_function_can_be_a_task(app: Celeriac) -> None:
    @app.task(bind=True)
    async def wait(self: Task) -> str:
        return self.name

    assert inspect.iscoroutinefunction(wait.run)
    assert asyncio.run(wait()) == wait.name


# -- how they are called


def test_delay_sends_the_task_with_its_arguments(app: Celeriac) -> None:
    @app.task(name="shop.add")
    def add(x: int, y: int = 0) -> int:
        return x + y

    result = add.delay(1, y=2)

    [request] = sent(app)
    assert (request.id, request.task) == (result.id, "shop.add")
    assert request.body.startswith(b'[[1], {"y": 2}')


def test_arguments_that_the_function_does_not_take_are_not_sent(app: Celeriac) -> None:
    @app.task(name="shop.add")
    def add(x: int) -> int:
        return x

    with pytest.raises(CallerError, match=r"invalid arguments for task 'shop\.add': missing .* 'x'"):
        add.delay()
    assert sent(app) == []


def test_arguments_are_not_looked_at_if_the_task_says_so(app: Celeriac) -> None:
    @app.task(typing=False)
    def add(x: int) -> int:
        return x

    add.delay(1, 2, 3)

    assert len(sent(app)) == 1


def test_an_option_of_a_call_that_there_is_none_of_is_told(app: Celeriac) -> None:
    add = app.task(lambda: None)

    with pytest.raises(CallerError, match="contdown is not an option of a call: did you mean countdown"):
        add.apply_async(contdown=5)  # type: ignore[call-arg]


def test_a_task_that_is_sent_within_a_run_is_a_child_of_it(app: Celeriac) -> None:
    add = app.task(lambda: None)
    context = run_of(add, root_id="t0")

    with running(context):
        result = add.delay()

    [request] = sent(app)
    assert (request.root_id, request.parent_id) == ("t0", "t1")
    assert [child.id for child in context.children] == [result.id]


# -- what they know of their run


def test_a_task_knows_the_run_it_is_in(app: Celeriac) -> None:
    add = app.task(lambda: None)
    context = run_of(add, 1, retries=2, group_id="g", time_limit=9.0, headers={"mine": 1})

    with running(context):
        request = add.request

    assert (request.id, request.task, request.args, request.retries) == ("t1", add.name, (1,), 2)
    assert (request.group, request.timelimit, request.headers) == ("g", (9.0, None), {"mine": 1})
    assert (request.hostname, request.delivery_info["routing_key"]) == ("w@here", "slow")
    assert not request.called_directly
    assert current_context() is None


def test_a_task_that_was_called_directly_knows_that(app: Celeriac) -> None:
    @app.task(bind=True)
    def who(self: Task, number: int) -> tuple[object, ...]:
        return self.request.called_directly, self.request.id, self.request.args, number

    assert who(7) == (True, None, (7,), 7)
    assert who.request.called_directly


def test_a_task_that_is_called_by_another_in_place_is_part_of_that_run(app: Celeriac) -> None:
    @app.task(bind=True, name="inner")
    def inner(self: Task) -> tuple[bool, object]:
        context = current_context()
        return self.request.called_directly, context and context.id

    outer = app.task(name="outer")(lambda: None)
    with running(run_of(outer)):
        known = inner()

    assert known == (True, "t1")


def test_a_task_says_how_far_it_is(app: Celeriac) -> None:
    add, told = app.task(lambda: None), Told()

    with running(run_of(add, report=told)):
        add.update_state("PROGRESS", {"done": 5})
        add.send_event("task-progress", done=5)

    assert told.states == [("PROGRESS", b'{"done": 5}')]
    assert told.events == [("task-progress", {"done": 5})]


def test_called_directly_a_task_can_say_what_it_likes(app: Celeriac) -> None:
    @app.task(bind=True)
    def talk(self: Task) -> str:
        self.update_state("PROGRESS")
        self.send_event("task-progress")
        return "done"

    assert talk() == "done"


@pytest.mark.parametrize("state", ["SUCCESS", "FAILURE", "RETRY", "REVOKED", "", "x" * 101])
def test_how_a_task_ended_is_not_for_it_to_say(app: Celeriac, state: str) -> None:
    add = app.task(lambda: None)

    with pytest.raises(CallerError, match="state"):
        add.update_state(state)


# -- trying again


def retried(task: Task, context: Context, **options: Any) -> tuple[Retry, Posting]:
    with running(context), pytest.raises(Retry) as caught:
        task.retry(**options)
    posting = caught.value.posting
    assert isinstance(posting, Posting)
    return caught.value, posting


def test_a_retry_is_the_next_try_for_the_worker_to_send(app: Celeriac) -> None:
    add = app.task(lambda: None)
    context = run_of(add, 1, retries=1)
    error = OSError("gone")

    retry, posting = retried(add, context, exc=error, countdown=5)

    assert (posting.request.id, posting.request.retries, posting.routing_key) == ("t1", 2, "slow")
    assert posting.request.body == context.message.body
    assert retry.exc is error
    assert retry.when == pytest.approx(5)
    assert sent(app) == []


def test_without_a_word_a_retry_comes_after_the_delay_of_the_task(app: Celeriac) -> None:
    add = app.task(default_retry_delay=30)(lambda: None)

    retry, _ = retried(add, run_of(add))

    assert retry.when == pytest.approx(30)


def test_a_retry_knows_the_error_that_it_was_made_in(app: Celeriac) -> None:
    add, error = app.task(lambda: None), OSError("gone")

    try:
        raise error
    except OSError:
        retry, _ = retried(add, run_of(add))

    assert retry.exc is error


def test_a_task_is_retried_no_more_often_than_it_may(app: Celeriac) -> None:
    add = app.task(max_retries=2)(lambda: None)

    with running(run_of(add, retries=2)), pytest.raises(MaxRetriesExceeded, match="has been retried 2 times"):
        add.retry()
    with running(run_of(add, retries=2)), pytest.raises(OSError, match="gone"):
        add.retry(exc=OSError("gone"))
    assert retried(add, run_of(add, retries=2), max_retries=3)[1].request.retries == 3


def test_a_task_without_a_limit_is_retried_for_ever(app: Celeriac) -> None:
    add = app.task(max_retries=None)(lambda: None)

    _, posting = retried(add, run_of(add, retries=1000))

    assert posting.request.retries == 1001


def test_called_directly_a_retry_is_the_error_it_is_for(app: Celeriac) -> None:
    @app.task(bind=True)
    def fail(self: Task) -> None:
        raise self.retry(exc=OSError("gone"))

    with pytest.raises(OSError, match="gone"):
        fail()


def test_a_retry_cannot_become_another_task(app: Celeriac) -> None:
    add = app.task(lambda: None)

    with running(run_of(add)), pytest.raises(CallerError, match="task_id is not an option of a retry"):
        add.retry(task_id="t2")


def test_some_errors_have_a_task_tried_again_by_itself(app: Celeriac) -> None:
    add = app.task(autoretry_for=(OSError,), dont_autoretry_for=(TimeoutError,), max_retries=1)(lambda: None)

    with running(run_of(add)):
        again = add.autoretry(ConnectionError("gone"))
        others = [add.autoretry(error) for error in (ValueError(), TimeoutError())]
    with running(run_of(add, retries=1)):
        too_often = add.autoretry(ConnectionError("gone"))

    assert again is not None
    assert again.posting is not None
    assert others == [None, None]
    assert too_often is None


def test_what_a_task_ends_itself_with_is_no_error_to_retry(app: Celeriac) -> None:
    add = app.task(autoretry_for=(Exception,))(lambda: None)

    with running(run_of(add)):
        found = [add.autoretry(error) for error in (Reject(), Retry())]

    assert found == [None, None]


def test_waits_between_tries_grow_to_a_longest(app: Celeriac) -> None:
    add = app.task(
        autoretry_for=(OSError,), retry_backoff=2, retry_backoff_max=10, retry_jitter=False, max_retries=None
    )(lambda: None)
    waits: list[float] = []

    for retries in range(4):
        with running(run_of(add, retries=retries)):
            retry = add.autoretry(OSError())
        waits.append(0.0 if retry is None or retry.when is None else round(retry.when))

    assert waits == [2, 4, 8, 10]


def test_waits_are_drawn_at_random(app: Celeriac) -> None:
    add = app.task(autoretry_for=(OSError,), retry_backoff=600)(lambda: None)

    with running(run_of(add)):
        found = {retry.when for _ in range(20) if (retry := add.autoretry(OSError())) is not None}

    assert len(found) > 10
    assert all(when is not None and when <= 600 for when in found)


def test_arguments_of_a_retry_may_be_said_beforehand(app: Celeriac) -> None:
    add = app.task(autoretry_for=(OSError,), retry_kwargs={"countdown": 7, "max_retries": 9})(lambda: None)

    with running(run_of(add, retries=8)):
        retry = add.autoretry(OSError())

    assert retry is not None
    assert retry.when == pytest.approx(7)
