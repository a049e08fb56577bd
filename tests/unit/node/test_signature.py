"""Calls that are written down."""

from collections.abc import Iterator
from typing import Any

import pytest

from celeriac import CallerError, Celeriac, MemoryBroker, Signature
from celeriac.node.task import Task
from celeriac.wire.task_request import decode, read_body


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


@pytest.fixture
def app(broker: MemoryBroker) -> Iterator[Celeriac]:
    made = Celeriac(broker, environ={})
    yield made
    made.close()


@pytest.fixture
def add(app: Celeriac) -> Task:
    return app.task(name="shop.add", queue="slow")(lambda x, y=0: x + y)


def sent(broker: MemoryBroker) -> Any:
    return decode(broker.published[-1][1], max_bytes=10_000)


def test_a_signature_is_written_as_celery_writes_it(add: Task) -> None:
    spelled = add.signature((1,), {"y": 2}, countdown=5).to_dict()

    assert spelled == {
        "task": "shop.add",
        "args": [1],
        "kwargs": {"y": 2},
        "options": {"countdown": 5},
        "subtask_type": None,
        "immutable": False,
    }


def test_a_signature_is_read_as_it_was_written(app: Celeriac, add: Task) -> None:
    signature = add.si(1, y=2).set(priority=3)

    assert app.signature(signature.to_dict()) == signature


def test_to_call_a_signature_puts_arguments_before_its_own(add: Task, broker: MemoryBroker) -> None:
    result = add.s(2).apply_async((1,), priority=5)

    request = sent(broker)
    assert (request.id, read_body(request.body).args) == (result.id, (1, 2))
    assert (broker.published[-1][1].routing_key, broker.published[-1][1].priority) == ("slow", 5)


def test_arguments_of_an_immutable_one_stay_as_they_are(add: Task, broker: MemoryBroker) -> None:
    add.si(2).delay(1)

    assert read_body(sent(broker).body).args == (2,)


def test_a_copy_leaves_the_first_as_it_was(add: Task) -> None:
    first = add.s(1)

    copy = first.clone((0,), {"y": 2}, countdown=5)

    assert (copy.args, copy.kwargs, copy.options) == ((0, 1), {"y": 2}, {"countdown": 5})
    assert first == add.s(1)


def test_a_signature_can_follow_another(add: Task, broker: MemoryBroker) -> None:
    first, second, third = add.s(1), add.s(2), add.s(3)

    assert first.link(second) is second
    assert first.link(second) is second
    assert first.on_error(third) is first
    first.delay()

    body = read_body(sent(broker).body)
    assert body.callbacks == (second.to_dict(),)
    assert body.errbacks == (third.to_dict(),)


def test_links_of_links_are_written_too(add: Task) -> None:
    first, second, third = add.s(1), add.s(2), add.s(3)
    first.link(second)
    second.link(third)

    [callback] = first.to_dict()["options"]["link"]

    assert callback["options"]["link"] == [third.to_dict()]


def test_a_signature_can_be_an_argument(add: Task, broker: MemoryBroker) -> None:
    add.apply_async((add.s(1),))

    assert read_body(sent(broker).body).args == (add.s(1).to_dict(),)


def test_an_option_that_there_is_none_of_is_told(app: Celeriac, add: Task) -> None:
    with pytest.raises(CallerError, match="did you mean countdown"):
        add.s(1).set(cuntdown=5)  # type: ignore[call-arg]
    with pytest.raises(CallerError, match="did you mean queue"):
        app.signature("shop.add", quue="x")  # type: ignore[call-arg]


def test_what_spells_no_signature_is_told(app: Celeriac) -> None:
    with pytest.raises(CallerError, match="a signature is a dict of task, args"):
        app.signature({"name": "shop.add"})


def test_a_signature_of_nobody_cannot_be_called() -> None:
    with pytest.raises(CallerError, match=r"create it with app\.signature"):
        Signature("shop.add").delay()


def test_what_is_several_tasks_is_for_celery_to_call(app: Celeriac) -> None:
    group = app.signature({"task": "celery.group", "subtask_type": "group", "kwargs": {"tasks": []}})

    with pytest.raises(CallerError, match="a group has several tasks, and only Celery can call it"):
        group.delay()


def test_what_a_signature_is_called_with_is_not_shown(add: Task) -> None:
    assert "s3cret" not in repr(add.s("s3cret"))
