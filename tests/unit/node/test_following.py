"""What follows a task that has ended, as Celery's signatures say."""

from typing import Any

import pytest

from celeriac.config import Settings
from celeriac.errors import CallerError
from celeriac.model.result import ResultTree
from celeriac.model.task_request import Arguments, TaskRequest
from celeriac.node.following import Following, after_failure, after_success, chain_ids, postings_of
from celeriac.node.task_options import TaskOptions
from celeriac.wire.task_request import read_body

REQUEST = TaskRequest("t1", "shop.pay", root_id="t0")


def signature(
    task: str, *args: Any, immutable: bool = False, kind: str | None = None, **options: Any
) -> dict[str, Any]:
    return {
        "task": task,
        "args": list(args),
        "kwargs": {},
        "options": options,
        "subtask_type": kind,
        "immutable": immutable,
    }


def several(kind: str, *members: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {**signature(f"celery.{kind}", kind=kind, **options), "kwargs": {"tasks": list(members)}}


def succeeded(
    result: object = 5, *, tasks: dict[str, TaskOptions] | None = None, **follows: Any
) -> Following:
    return after_success(
        REQUEST, Arguments((), {}, **follows), result, settings=Settings(), tasks=tasks or {}
    )


def args(following: Following) -> list[tuple[Any, ...]]:
    return [read_body(each.request.body).args for each in following.postings]


def names(following: Following) -> list[str]:
    return [each.request.task for each in following.postings]


# -- callbacks


def test_nothing_follows_a_task_that_nobody_waits_for() -> None:
    assert succeeded() == Following()


def test_a_callback_gets_the_result_before_its_own_arguments() -> None:
    following = succeeded(callbacks=(signature("a", 1, task_id="c1", queue="slow", priority=3),))

    [posting] = following.postings
    assert args(following) == [(5, 1)]
    assert (posting.request.id, posting.request.root_id, posting.request.parent_id) == ("c1", "t0", "t1")
    assert (posting.routing_key, posting.priority) == ("slow", 3)
    assert following.children == (ResultTree("c1"),)


def test_an_immutable_callback_gets_its_own_arguments_alone() -> None:
    following = succeeded(callbacks=(signature("a", 1, immutable=True),))

    assert args(following) == [(1,)]


def test_several_callbacks_are_a_group() -> None:
    following = succeeded(callbacks=(signature("a", task_id="c1"), signature("b", task_id="c2")))

    first, second = (each.request for each in following.postings)
    assert first.group_id == second.group_id != None  # noqa: E711
    assert (first.group_index, second.group_index) == (0, 1)
    assert following.children == (
        ResultTree(str(first.group_id), members=(ResultTree("c1"), ResultTree("c2"))),
    )


def test_each_task_of_a_group_is_sent() -> None:
    group = several(
        "group", signature("a", 1, task_id="c1"), signature("b", immutable=True, task_id="c2"), task_id="g"
    )

    following = succeeded(callbacks=(group,))

    assert args(following) == [(5, 1), ()]
    assert [each.request.group_id for each in following.postings] == ["g", "g"]
    assert following.children == (ResultTree("g", members=(ResultTree("c1"), ResultTree("c2"))),)


def test_what_a_task_says_of_itself_counts_for_a_callback() -> None:
    following = succeeded(callbacks=(signature("a"),), tasks={"a": TaskOptions(queue="own")})

    assert following.postings[0].routing_key == "own"


def test_options_that_are_for_celerys_publisher_are_left_out() -> None:
    callback = signature("a", retry_policy={"x": 1}, delivery_mode=2, headers={"mine": 1, "id": "forged"})

    following = succeeded(callbacks=(callback,))

    assert following.postings[0].request.headers == {"mine": 1}


def test_stamps_stay_on_what_they_were_put_on() -> None:
    following = succeeded(callbacks=(signature("a", stamped_headers=["why"], why="test"),))

    assert following.postings[0].request.headers == {"stamped_headers": ["why"], "stamps": {"why": "test"}}


# -- chains


def test_the_last_of_a_chain_is_next_and_takes_the_rest_along() -> None:
    rest = (signature("c", task_id="c3"), signature("b", 2, task_id="c2", reply_to="client", group_id="g"))

    following = succeeded(chain=rest)

    [posting] = following.postings
    body = read_body(posting.request.body)
    assert (posting.request.task, posting.request.id, body.args) == ("b", "c2", (5, 2))
    assert body.chain == rest[:1]
    assert (posting.request.reply_to, posting.request.group_id) == ("client", "g")


def test_a_chord_that_waits_stays_with_the_task_of_the_chain_that_it_waits_for() -> None:
    body = signature("total", task_id="b1")

    following = succeeded(chain=(signature("b", task_id="c2", chord=body, group_id="g", group_index=1),))

    request = following.postings[0].request
    assert read_body(request.body).chord == body
    assert (request.group_id, request.group_index) == ("g", 1)


def test_a_chain_as_a_callback_begins_with_its_first_task() -> None:
    chain = several("chain", signature("a", 1), signature("b", task_id="c2"), signature("c", task_id="c3"))

    following = succeeded(callbacks=(chain,))

    [posting] = following.postings
    body = read_body(posting.request.body)
    assert (posting.request.task, body.args) == ("a", (5, 1))
    assert [each["options"]["task_id"] for each in body.chain] == ["c3", "c2"]
    assert following.children == (ResultTree("c3", ResultTree("c2", ResultTree(posting.request.id))),)


def test_a_group_at_the_end_of_a_chain_is_sent_task_by_task() -> None:
    following = succeeded(chain=(several("group", signature("a"), signature("b")),))

    assert names(following) == ["a", "b"]
    assert args(following) == [(5,), (5,)]


def test_the_tasks_after_one_in_its_chain_are_known_by_their_ids() -> None:
    arguments = Arguments(chain=(signature("c", task_id="c3"), {"options": 5}, signature("b", task_id="c2")))

    assert chain_ids(arguments) == ("c3", "c2")


# -- what cannot follow


@pytest.mark.parametrize(
    ("callback", "told"),
    [
        (signature("celery.chord", kind="chord"), "cannot start a chord"),
        (
            several("chain", several("group", signature("a")), signature("b")),
            "cannot start a chain that has groups or chains before its end",
        ),
        (
            several("group", signature("a", chord=signature("b"))),
            "cannot start a group that is part of a chord after a task has ended",
        ),
        (several("group", {"task": 1}), "the tasks of a group are not valid signatures, or too many"),
        (signature("a", priority="high"), "priority is 'high'"),
        (signature("a", link=7), "link is 7"),
        ({"task": 5}, "a callback is not a valid signature: send the task as Celery does"),
    ],
)
def test_what_cannot_be_started_is_told(callback: dict[str, Any], told: str) -> None:
    with pytest.raises(CallerError, match=told):
        succeeded(callbacks=(callback,))


def test_groups_within_groups_end_somewhere() -> None:
    group = signature("a")
    for _ in range(50):
        group = several("group", group)

    with pytest.raises(CallerError, match="cannot start a group"):
        succeeded(callbacks=(group,))


def test_a_result_that_json_cannot_hold_is_told() -> None:
    with pytest.raises(CallerError, match="cannot send the arguments of task 'a'"):
        succeeded(object(), callbacks=(signature("a"),))


# -- errbacks and signatures alone


def test_an_errback_gets_the_id_of_the_task_that_failed() -> None:
    following = after_failure(REQUEST, Arguments(errbacks=(signature("e", 1),)), settings=Settings())

    [posting] = following.postings
    assert args(following) == [("t1", 1)]
    assert (posting.request.root_id, posting.request.parent_id) == ("t0", "t1")
    assert posting.request.group_id is not None


def test_nothing_follows_a_failure_that_nobody_asked_for() -> None:
    arguments = Arguments(callbacks=(signature("a"),), chain=(signature("b"),))

    assert after_failure(REQUEST, arguments, settings=Settings()) == Following()


def test_a_signature_alone_is_sent_with_arguments_before_its_own() -> None:
    following = postings_of(
        signature("total", 1, task_id="b1"), ([2, 3],), settings=Settings(), root_id="t0", parent_id="t9"
    )

    request = following.postings[0].request
    assert (request.id, request.root_id, request.parent_id) == ("b1", "t0", "t9")
    assert args(following) == [([2, 3], 1)]
