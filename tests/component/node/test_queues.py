"""How long queues are is asked in the background, of the broker."""

import pytest

from celeriac import Celeriac, MemoryBroker, State
from celeriac.errors import AccessRefused
from celeriac.node import queues
from celeriac.node.queues import QueueLengths
from celeriac.programs.process import wait_until
from tests.builders import task

PATIENCE = 20.0


def asked(app: Celeriac, state: State) -> dict[str, int] | None:
    """Return what is known once somebody has asked."""
    lengths = QueueLengths(app.connection, app.control, state, default="celery")
    first = lengths()
    assert first is None
    assert wait_until(lambda: lengths() is not None, patience=PATIENCE)
    told = lengths()
    lengths.close()
    return told


def test_tasks_that_wait_are_counted_in_each_queue() -> None:
    with_two = State()
    with_two.event(task("sent", "t1", name="shop.pay", queue="bulk"))
    app = Celeriac(MemoryBroker(), environ={})
    for _ in range(3):
        app.send_task("shop.pay", (), {}, queue="bulk")
    app.send_task("shop.pay", (), {})

    told = asked(app, with_two)
    app.close()

    assert told == {"bulk": 3, "celery": 1}


def test_a_queue_that_events_named_and_nobody_has_is_not_told() -> None:
    state = State()
    state.event(task("sent", "t1", name="shop.pay", queue="nowhere"))
    app = Celeriac(MemoryBroker(), environ={})

    told = asked(app, state)
    app.close()

    assert told == {"celery": 0}


def test_what_an_event_named_keeps_nobody_from_knowing_the_others() -> None:
    state = State()
    for number, name in enumerate(("x" * 256, "a\x1bb", *(f"made-up-{each}" for each in range(100)))):
        state.event(task("sent", f"t{number}", name="shop.pay", queue=name))
    app = Celeriac(MemoryBroker(), environ={})
    app.send_task("shop.pay", (), {})

    told = asked(app, state)
    app.close()

    assert told == {"celery": 1}


def test_a_worker_tells_its_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "_PATIENCE", 5.0)  # on a busy machine a worker may take longer than one
    app = Celeriac(MemoryBroker(), environ={})
    with app.Worker(queues=["mail"], concurrency=1):
        told = asked(app, State())
    app.close()

    assert told is not None
    assert set(told) == {"celery", "mail"}


def told_after(lengths: QueueLengths) -> dict[str, int] | None:
    """Ask once more, whatever is known already, and return what is known then."""
    assert wait_until(lambda: lengths._thread is None, patience=PATIENCE)
    lengths._asked_at = -queues._KEPT
    lengths()
    assert wait_until(lambda: lengths._thread is None, patience=PATIENCE)
    return lengths._lengths


def test_a_broker_that_is_away_leaves_it_unknown_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = MemoryBroker()
    app = Celeriac(broker, environ={})
    lengths = QueueLengths(app.connection, app.control, State(), default="celery")
    broker.stop()

    told = [told_after(lengths) for _ in range(3)]
    trouble = lengths.trouble
    broker.start()
    back = told_after(lengths)
    lengths.close()
    app.close()

    assert told == [None] * 3
    assert "broker" in trouble
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert trouble in caplog.text
    assert (back, lengths.trouble) == ({"celery": 0}, "")


def test_workers_that_cannot_be_asked_are_no_reason_to_know_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Celeriac(MemoryBroker(), environ={})
    lengths = QueueLengths(app.connection, app.control, State(), default="celery")
    lengths._names = frozenset({"mail"})

    def refuse(*_: object, **__: object) -> None:
        raise AccessRefused("no permission to publish there")

    monkeypatch.setattr(app.control, "inspect", refuse)

    told = told_after(lengths)
    lengths.close()
    app.close()

    assert told == {"celery": 0, "mail": 0}
    assert lengths.trouble == "cannot query the workers: no permission to publish there"


def test_a_fault_of_ours_is_told_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = Celeriac(MemoryBroker(), environ={})
    lengths = QueueLengths(app.connection, app.control, State(), default="celery")
    monkeypatch.setattr(lengths, "_heard", {}.popitem)

    told = told_after(lengths)
    lengths.close()
    app.close()

    assert told is None
    assert lengths.trouble.startswith("KeyError")
    assert "Traceback" in caplog.text
