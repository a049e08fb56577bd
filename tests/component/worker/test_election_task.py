"""The winner of an election sends one task: what it may be, and what it carries."""

from typing import Any

import pytest

from celeriac.errors import CallerError
from celeriac.model.election import Election, Level
from celeriac.model.task_request import TaskRequest
from celeriac.node.election import FENCING_HEADER, elected_task_id
from celeriac.worker.election_task import ElectedTask
from celeriac.worker.mandate import Mandate
from tests.component.worker.hall import Hall
from tests.component.worker.kit import Site, come_true

FOREVER, OVER = float("inf"), float("-inf")


def signature(task: str = "shop.pay", **fields: Any) -> dict[str, Any]:
    spelled = {"task": task, "args": [7], "kwargs": {"vat": 19}, "options": {}, "subtask_type": None}
    return {**spelled, "immutable": False, **fields}


def elected_task(**settings: Any) -> tuple[Site, ElectedTask]:
    """Return what sends the tasks of elections in a worker, and where that is."""
    site = Site(**settings)
    worker = site.worker()
    return site, ElectedTask(worker.parts._post, actions=site.app.conf.election_actions)


def mandate(id_: str = "e1", deadline: float = FOREVER) -> Mandate:
    return Mandate(Election(id_, "task"), 9, Level.L3, lambda: deadline)


def sent(action: object, *, id_: str = "e1") -> TaskRequest:
    site, elected = elected_task()
    elected.send(action, mandate(id_))
    (request,) = site.queued()
    return request


# -- what it carries


def test_the_task_has_an_id_that_follows_from_the_election_whoever_sends_it() -> None:
    ids = {sent(signature()).id for _ in range(3)}

    assert ids == {elected_task_id("e1")}
    assert elected_task_id("e1") == "75420e5d-e2af-53a9-8bda-027510b79da3"
    assert elected_task_id("e2") != elected_task_id("e1")


def test_an_id_of_its_own_counts() -> None:
    assert sent(signature(options={"task_id": "t9"})).id == "t9"


def test_the_task_carries_its_arguments_and_the_token() -> None:
    request = sent(signature())

    assert request.task == "shop.pay"
    assert request.headers == {FENCING_HEADER: 9}
    assert request.origin == "w1@lab"
    assert request.argsrepr == "(7,)"
    assert request.kwargsrepr == "{'vat': 19}"


def test_who_waits_for_the_result_is_named() -> None:
    assert sent(signature(options={"reply_to": "queue-of-a-client"})).reply_to == "queue-of-a-client"


def test_nothing_is_kept_that_would_start_more_or_say_who_it_is() -> None:
    more = signature("shop.refund")
    options = {
        "link": [more],
        "link_error": [more],
        "chain": [more],
        "chord": more,
        "headers": {FENCING_HEADER: 10**6, "origin": "x"},
        "group_id": "g1",
        "root_id": "r1",
        "parent_id": "p1",
        "retries": 99,
        "shadow": "shop.other",
        "argsrepr": "hidden",
        "stamped_headers": ["x"],
        "replaced_task_nesting": 7,
    }

    request, plain = sent(signature(options=options, immutable=True)), sent(signature())

    assert request == plain


@pytest.mark.parametrize(
    "options",
    [{"queue": "a\nb"}, {"priority": "high"}, {"task_id": 7}, {"expires": "never"}, {"time_limit": -1}],
)
def test_options_that_cannot_be_send_nothing(options: dict[str, Any]) -> None:
    site, elected = elected_task()

    with pytest.raises(CallerError):
        elected.send(signature(options=options), mandate())

    assert site.queued() == []


def test_after_its_time_nothing_is_sent() -> None:
    site, elected = elected_task()

    with pytest.raises(CallerError, match="another node may be elected"):
        elected.send(signature(), mandate(deadline=OVER))

    assert site.queued() == []


# -- what may be sent

NO_SIGNATURES: list[object] = [
    None,
    "shop.pay",
    7,
    [],
    {},
    {"task": 7},
    {"task": ""},
    {"task": "shop.pay", "args": "xy"},
    {"task": "shop.pay", "kwargs": [1]},
    {"task": "shop.pay", "options": "x"},
    signature("celery.group", subtask_type="group"),
    signature("celery.chain", subtask_type="chain"),
    signature("celery.chord", subtask_type="chord"),
    signature("celery.starmap", subtask_type="starmap"),
    signature(subtask_type=7),
]


@pytest.mark.parametrize("action", NO_SIGNATURES)
def test_what_is_no_single_task_is_refused(action: object) -> None:
    site, elected = elected_task(election_actions=["*"])

    refusal = elected.refusal(Election("e1", "task", action))
    with pytest.raises(CallerError, match="single task"):
        elected.send(action, mandate())

    assert refusal == "the action is not a signature of a single task"
    assert site.queued() == []


@pytest.mark.parametrize(
    ("allowed", "task", "is_refused"),
    [
        ([], "shop.pay", True),
        (["shop.pay"], "shop.pay", False),
        (["shop.*"], "shop.pay", False),
        (["shop.pay"], "shop.pay2", True),
        (["shop.pay"], "Shop.pay", True),
        (["shop.*"], "shopping.pay", True),
        (["a", "shop.p?y"], "shop.pay", False),
    ],
)
def test_another_node_starts_only_what_is_named(allowed: list[str], task: str, is_refused: bool) -> None:
    _, elected = elected_task(election_actions=allowed)

    refusal = elected.refusal(Election("e1", "task", signature(task)))

    assert refusal == (f"task {task} is not listed in election_actions" if is_refused else "")


def test_who_has_a_handler_for_another_topic_allows_it() -> None:
    _, elected = elected_task()

    assert elected.refusal(Election("e1", "note", None)) == ""


# -- in workers


def test_workers_send_what_is_allowed_once() -> None:
    with Hall(election_actions=["shop.*"]).running() as hall:
        hall.call("e1", "task", signature())
        hall.call("e2", "task", signature("bank.pay"))
        hall.call("e3", "task", signature("celery.group", subtask_type="group"))
        hall.call("e4", "task", signature())
        assert come_true(lambda: hall.is_over("e1", "e4"))
        phases = [hall.phases("e2"), hall.phases("e3")]

    assert sorted(hall.site.posted()) == sorted([elected_task_id("e1"), elected_task_id("e4")])
    assert phases == [["observing"] * 3] * 2


def test_by_default_nothing_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    with Hall().running() as hall:
        hall.call("e1", "task", signature())
        hall.call("e2")
        assert come_true(lambda: hall.is_over("e2"))

    assert hall.site.posted() == []
    assert any("task shop.pay is not listed in election_actions" in each for each in caplog.messages)


def test_a_node_may_start_what_it_wants_by_itself() -> None:
    with Hall().running() as hall:
        hall.workers[0].gossip.election("e1", "task", signature())
        assert come_true(lambda: hall.phases("e1")[0] == "done")

    assert hall.site.posted() == [elected_task_id("e1")]


def test_many_names_that_are_refused_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with Hall(1).running() as hall:
        for number in range(500):
            hall.call(f"e{number}", "task", signature(f"evil.{number}"))
        hall.call("last")
        assert come_true(lambda: hall.is_over("last"))

    assert len([each for each in caplog.messages if "is not listed in election_actions" in each]) <= 20


# -- by a signature


def test_a_signature_that_is_elected_has_a_result_to_wait_for() -> None:
    with Hall(1, election_actions=["shop.*"], result_backend="rpc://").running() as hall:
        app = hall.site.app
        result = app.signature("shop.pay", (7,)).election(id="e1", force=True)
        named = app.signature("shop.pay", (7,), task_id="t9").election(force=True)
        assert come_true(lambda: len(hall.site.posted()) == 2)
        tasks = [each for _, each in hall.site.broker.published if each.routing_key == "celery"]

    assert (result.id, named.id) == (elected_task_id("e1"), "t9")
    assert sorted(hall.site.posted()) == sorted([result.id, "t9"])
    assert [each.reply_to for each in tasks] == [app._reply_to()] * 2


def test_a_signature_without_an_id_is_elected_anew_each_time() -> None:
    site = Site()
    task = site.app.signature("shop.pay")

    ids = {task.election(force=True).id for _ in range(3)}

    assert len(ids) == 3
    assert "task_id" not in task.options


def test_a_signature_that_is_several_tasks_is_refused() -> None:
    site = Site()
    group = site.app.signature(signature("celery.group", subtask_type="group"))

    with pytest.raises(CallerError, match="several tasks"):
        group.election(force=True)


def test_a_signature_that_is_too_long_is_refused() -> None:
    site = Site()

    with pytest.raises(CallerError, match="store it elsewhere and send a reference"):
        site.app.signature("shop.pay", ("x" * 20_000,)).election(force=True)
