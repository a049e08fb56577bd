"""The messages of calls: what is in them, and where they go."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from celeriac.config import Settings
from celeriac.errors import CallerError, ImproperlyConfigured
from celeriac.model.task_request import Arguments, Posting, TaskRequest
from celeriac.node.context import Context
from celeriac.node.posting import posting_for, retry_posting, sent_fields
from celeriac.node.task_options import TaskOptions
from celeriac.wire.task_request import read_body, spell_body

NOW = 1_794_703_817.0


def called(
    *args: Any,
    kwargs: dict[str, Any] | None = None,
    task: TaskOptions | None = None,
    context: Context | None = None,
    settings: dict[str, Any] | None = None,
    **options: Any,
) -> Posting:
    """Return the message of a call of ``shop.pay``, made now."""
    made = Settings(**(settings or {}))
    return posting_for("shop.pay", args, kwargs, options, settings=made, task=task, context=context, now=NOW)  # type: ignore[arg-type]


# -- what is in them


def test_a_call_without_options_goes_to_the_default_queue_at_once() -> None:
    posting = called(1, kwargs={"a": "b"})

    request = posting.request
    assert (posting.exchange, posting.routing_key, posting.priority) == ("", "celery", None)
    assert read_body(request.body) == Arguments((1,), {"a": "b"})
    assert (request.task, request.argsrepr, request.kwargsrepr) == ("shop.pay", "(1,)", "{'a': 'b'}")
    assert (request.eta, request.expires, request.retries, request.ignore_result) == (None, None, 0, None)
    assert request.id == request.root_id == request.correlation_id
    assert (request.origin or "").startswith("gen")


def test_each_call_has_an_id_of_its_own() -> None:
    assert called().request.id != called().request.id


def test_what_a_call_says_is_in_its_message() -> None:
    request = called(
        task_id="mine",
        root_id="r",
        parent_id="p",
        group_id="g",
        group_index=2,
        shadow="quick",
        time_limit=9,
        soft_time_limit=5.5,
        ignore_result=True,
        retries=1,
        reply_to="here",
    ).request

    assert (request.id, request.root_id, request.parent_id) == ("mine", "r", "p")
    assert (request.group_id, request.group_index, request.shadow) == ("g", 2, "quick")
    assert (request.time_limit, request.soft_time_limit, request.ignore_result) == (9, 5.5, True)
    assert (request.retries, request.reply_to, request.correlation_id) == (1, "here", "mine")


@pytest.mark.parametrize(
    ("options", "eta"),
    [
        ({"countdown": 10}, NOW + 10),
        ({"countdown": 0.5, "eta": NOW + 99}, NOW + 0.5),
        ({"eta": NOW + 5}, NOW + 5),
        ({"eta": datetime.fromtimestamp(NOW + 5, UTC)}, NOW + 5),
        ({"eta": datetime.fromtimestamp(NOW + 5, timezone(timedelta(hours=5)))}, NOW + 5),
        ({"eta": datetime.fromtimestamp(NOW + 5, UTC).replace(tzinfo=None)}, NOW + 5),
        ({"eta": "2026-11-15T00:50:22Z"}, NOW + 5),
        ({"eta": None, "countdown": None}, None),
    ],
)
def test_when_a_task_is_to_run_may_be_said_in_every_way(options: dict[str, Any], eta: float | None) -> None:
    assert called(**options).request.eta == eta


@pytest.mark.parametrize("expires", [60, datetime.fromtimestamp(NOW + 60, UTC), "2026-11-15T00:51:17+00:00"])
def test_when_a_task_is_too_late_may_be_said_in_every_way(expires: object) -> None:
    assert called(expires=expires).request.expires == NOW + 60


def test_arguments_can_be_hidden_from_all_who_watch() -> None:
    posting = called("s3cret", kwargs={"key": "s3cret"}, argsrepr="(…)", kwargsrepr="{…}")

    assert "s3cret" not in repr(sent_fields(posting))
    assert (posting.request.argsrepr, posting.request.kwargsrepr) == ("(…)", "{…}")


def test_headers_are_carried_as_json() -> None:
    request = called(headers={"trace": "00", "at": datetime(2026, 11, 15, tzinfo=UTC)}).request

    marked = {"__type__": "datetime", "__value__": "2026-11-15T00:00:00+00:00"}
    assert request.headers == {"trace": "00", "at": marked}


def test_links_are_in_the_body() -> None:
    thank = {"task": "shop.thank", "args": [1]}

    body = read_body(called(link=thank, link_error=[thank, thank]).request.body)

    assert body.callbacks == (thank,)
    assert body.errbacks == (thank, thank)


def test_a_task_that_is_sent_by_a_task_is_its_child() -> None:
    context = Context(TaskRequest("t1", "shop.order", root_id="t0"), Arguments())

    request = called(context=context).request

    assert (request.root_id, request.parent_id) == ("t0", "t1")


# -- where they go


@pytest.mark.parametrize(
    ("options", "task", "place"),
    [
        ({}, TaskOptions(), ("", "routed")),
        ({}, TaskOptions(queue="own"), ("", "own")),
        ({"queue": "said"}, TaskOptions(queue="own"), ("", "said")),
        ({"routing_key": "said"}, TaskOptions(queue="own"), ("", "said")),
        ({"exchange": "x", "routing_key": "k"}, TaskOptions(queue="own"), ("x", "k")),
        ({"queue": None}, TaskOptions(queue="own"), ("", "own")),
    ],
)
def test_a_call_outranks_the_task_and_that_its_route(
    options: dict[str, Any], task: TaskOptions, place: tuple[str, str]
) -> None:
    posting = called(task=task, settings={"task_routes": {"shop.*": "routed"}}, **options)

    assert (posting.exchange, posting.routing_key) == place


@pytest.mark.parametrize(
    ("routes", "place"),
    [
        ({"shop.pay": "a", "shop.*": "b"}, ("", "a", None)),
        ({"shop.*": "b", "shop.pay": "a"}, ("", "b", None)),
        ({"SHOP.*": "b"}, ("", "main", None)),
        ({"shop.*": {"queue": "c", "priority": 7}}, ("", "c", 7)),
        ({"shop.*": {"exchange": "x", "routing_key": "k"}}, ("x", "k", None)),
    ],
)
def test_the_first_route_that_fits_counts(routes: dict[str, Any], place: tuple[object, ...]) -> None:
    posting = called(settings={"task_routes": routes, "task_default_queue": "main"})

    assert (posting.exchange, posting.routing_key, posting.priority) == place


@pytest.mark.parametrize("route", [5, {"queeu": "x"}])
def test_a_route_that_leads_nowhere_is_told(route: object) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"task_routes has .* for 'shop\.\*'"):
        called(settings={"task_routes": {"shop.*": route}})


def test_a_priority_is_that_of_the_call_the_task_or_the_settings() -> None:
    by_settings = {"task_default_priority": 3}

    found = [
        called(settings=by_settings).priority,
        called(settings=by_settings, task=TaskOptions(priority=4)).priority,
        called(settings=by_settings, task=TaskOptions(priority=4), priority=0).priority,
    ]

    assert found == [3, 4, 0]


def test_what_a_task_says_of_its_time_counts_for_its_calls() -> None:
    task = TaskOptions(time_limit=9, soft_time_limit=5, expires=60, ignore_result=True)

    request = called(task=task, time_limit=20).request

    assert (request.time_limit, request.soft_time_limit) == (20, 5)
    assert (request.expires, request.ignore_result) == (NOW + 60, True)


# -- what cannot be sent


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"task_id": "x" * 256}, "task_id is 'xxx"),
        ({"task_id": ""}, "task_id is ''"),
        ({"queue": "a\nb"}, "queue is"),
        ({"priority": 256}, "give an integer from 0 to 255"),
        ({"countdown": "5"}, "countdown is '5': give a number of seconds"),
        ({"countdown": 1e12}, "countdown is"),
        ({"eta": "tomorrow"}, "eta is 'tomorrow'"),
        ({"expires": "never"}, "expires is 'never'"),
        ({"retries": -1}, "retries is -1"),
        ({"time_limit": 0}, "time_limit is 0"),
        ({"time_limit": 5, "soft_time_limit": 6}, "make soft_time_limit shorter"),
        ({"serializer": "pickle"}, "use 'json'"),
        ({"headers": {"id": "x"}}, "the header id is reserved by the protocol: use another name"),
        ({"headers": {"x": object()}}, "is not JSON serializable"),
        ({"headers": [1]}, "headers must be a dict with string keys"),
        ({"link": 5}, "link is 5"),
        ({"link": {"tsak": "x"}}, "link is .*give a signature"),
        ({"link_error": ["shop.thank"]}, "link_error is 'shop.thank'"),
    ],
)
def test_an_option_that_makes_no_sense_is_told_with_the_fix(options: dict[str, Any], told: str) -> None:
    with pytest.raises(CallerError, match=told):
        called(**options)


def test_arguments_that_json_cannot_hold_are_told_with_the_task() -> None:
    with pytest.raises(
        CallerError, match=r"cannot send the arguments of task 'shop\.pay': object is not JSON"
    ):
        called(object())


def test_arguments_that_are_too_long_for_workers_are_not_sent() -> None:
    with pytest.raises(CallerError, match="raise task_max_bytes"):
        called("x" * 1000, settings={"task_max_bytes": 500})


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 2000])
def test_a_task_needs_a_name(name: str) -> None:
    with pytest.raises(CallerError, match="task names are strings"):
        posting_for(name, settings=Settings())


@pytest.mark.parametrize(("args", "kwargs"), [("text", None), (None, [1]), (None, {1: 2})])
def test_arguments_are_a_list_and_a_dict(args: Any, kwargs: Any) -> None:
    with pytest.raises(CallerError, match=r"of task 'shop\.pay' are"):
        posting_for("shop.pay", args, kwargs, settings=Settings())


# -- the next try


def run(arguments: Arguments | None = None, **fields: Any) -> Context:
    """Return a run of ``shop.pay``, which came from the queue ``slow``."""
    arguments = arguments or Arguments((1,), {"a": 2})
    given = {"body": spell_body(arguments), "argsrepr": "(1,)", "kwargsrepr": "{'a': 2}", **fields}
    return Context(TaskRequest("t1", "shop.pay", **given), arguments, routing_key="slow", priority=4)


def again(context: Context, *args: Any, kwargs: dict[str, Any] | None = None, **options: Any) -> Posting:
    return retry_posting(context, args or None, kwargs, options, settings=Settings(), now=NOW)  # type: ignore[arg-type]


def test_the_next_try_is_the_same_task_where_it_came_from() -> None:
    context = run(headers={"mine": 1}, time_limit=9.0, expires=NOW + 60, reply_to="here", group_id="g")

    posting = again(context, countdown=5)

    assert posting.request == context.message._replace(
        retries=1, eta=NOW + 5, root_id="t1", parent_id="t1", headers={"mine": 1}
    )
    assert (posting.exchange, posting.routing_key, posting.priority) == ("", "slow", 4)


def test_the_next_try_of_a_child_stays_a_child() -> None:
    posting = again(run(root_id="t0", parent_id="p1", retries=2))

    assert (posting.request.root_id, posting.request.parent_id, posting.request.retries) == ("t0", "p1", 3)


def test_the_next_try_may_have_other_arguments_and_another_place() -> None:
    context = run(Arguments((1,), {"a": 2}, chain=({"task": "x"},)))

    posting = again(context, 7, 8, queue="other", priority=1, time_limit=3, headers={"n": 1})

    assert read_body(posting.request.body) == Arguments((7, 8), {"a": 2}, chain=({"task": "x"},))
    assert (posting.request.argsrepr, posting.request.kwargsrepr) == ("(7, 8)", "{'a': 2}")
    assert (posting.routing_key, posting.priority, posting.request.time_limit) == ("other", 1, 3)
    assert posting.request.headers == {"n": 1}


def test_what_was_hidden_stays_hidden_in_the_next_try() -> None:
    context = run(Arguments(("s3cret",), {}), argsrepr="(…)", kwargsrepr="{}")

    posting = again(context, "s3cret2")

    assert posting.request.argsrepr == "(…)"


def test_what_rabbitmq_noted_of_a_message_is_not_sent_again() -> None:
    context = run(headers={"x-death": [{}], "x-first-death-queue": "q", "x-delivery-count": 2, "x-mine": 1})

    posting = again(context)

    assert posting.request.headers == {"x-mine": 1}


@pytest.mark.parametrize("wrong", [("s3cret",), ((), "s3cret"), ((), {7: "s3cret"})])
def test_arguments_of_a_wrong_kind_are_refused_and_not_shown(wrong: tuple[Any, ...]) -> None:
    with pytest.raises(CallerError, match=r"give a (list|dict)") as caught:
        posting_for("shop.pay", *wrong, settings=Settings())

    assert "s3cret" not in str(caught.value)


def test_a_task_that_came_by_an_exchange_goes_back_to_its_queue() -> None:
    context = Context(
        TaskRequest("t1", "shop.pay"), Arguments(), exchange="tasks", routing_key="shop.pay", queue="shop"
    )

    posting = again(context)

    assert (posting.exchange, posting.routing_key) == ("", "shop")


def test_a_task_whose_queue_is_not_known_goes_back_by_its_exchange() -> None:
    context = Context(TaskRequest("t1", "shop.pay"), Arguments(), exchange="tasks", routing_key="key")

    posting = again(context)

    assert (posting.exchange, posting.routing_key) == ("tasks", "key")


def test_an_event_tells_what_was_sent_where_and_when() -> None:
    posting = called(1, eta=NOW + 5, queue="slow", task_id="t1")

    assert json.loads(json.dumps(sent_fields(posting))) == {
        "name": "shop.pay",
        "args": "(1,)",
        "kwargs": "{}",
        "root_id": "t1",
        "parent_id": None,
        "retries": 0,
        "eta": "2026-11-15T00:50:22+00:00",
        "expires": None,
        "queue": "slow",
        "exchange": "",
        "routing_key": "slow",
    }
