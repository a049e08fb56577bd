"""The life of a dispatcher: enabled, disabled, closed, and followed by another one."""

import logging
from threading import Thread

import pytest

from tests.rig import NEVER, PATIENCE, Rig, couriers, in_threads

# -- enabled, disabled, closed


def test_who_asked_is_told_when_it_is_enabled_and_disabled() -> None:
    told: list[str] = []
    dispatcher = Rig().dispatcher(enabled=False)
    dispatcher.on_enabled.add(lambda: told.append("enabled"))
    dispatcher.on_disabled.add(lambda: told.append("disabled"))

    dispatcher.enable()
    dispatcher.disable()
    dispatcher.disable()

    assert told == ["enabled", "disabled"]


def test_who_is_told_may_send() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(enabled=False)
    dispatcher.on_enabled.add(lambda: dispatcher.send("worker-online"))

    dispatcher.enable()

    assert rig.types == ["worker-online"]


def test_what_is_gathered_leaves_before_it_is_disabled() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(buffer_group=["task"])
    dispatcher.send("task-sent")

    dispatcher.disable()
    dispatcher.send("task-late")

    assert rig.types == ["task-sent"]


def test_it_sends_again_when_it_is_enabled_again() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher()
    dispatcher.send("worker-online")
    dispatcher.disable()

    dispatcher.enable()
    dispatcher.send("worker-heartbeat")

    assert rig.types == ["worker-online", "worker-heartbeat"]


def test_nothing_is_sent_after_it_was_closed() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(buffer_group=["task"])

    dispatcher.close()
    dispatcher.send("task-sent")
    dispatcher.publish("worker-offline", {})
    dispatcher.flush()
    dispatcher.close()

    assert rig.messages == []
    assert rig.clock.value == 0


def test_it_is_closed_at_the_end_of_its_block() -> None:
    rig = Rig()
    with rig.dispatcher(buffer_group=["task"]) as dispatcher:
        dispatcher.send("task-sent")

    dispatcher.send("task-late")

    assert rig.types == ["task-sent"]
    assert couriers() == []


def test_threads_that_send_while_it_is_closed_send_all_or_nothing() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher()

    def run(mine: int) -> None:
        for _ in range(200):
            dispatcher.send(f"worker-{mine}")
        if mine == 0:
            dispatcher.close()
            closed_at.append(len(rig.messages))

    closed_at: list[int] = []
    in_threads(4, run)

    assert closed_at == [len(rig.messages)]
    assert rig.clocks == list(range(1, len(rig.messages) + 1))
    assert dispatcher.buffered == 0


# -- closed while the broker is away


def test_what_could_not_be_sent_before_it_was_closed_is_told_and_not_sent_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()
    dispatcher = rig.dispatcher()
    rig.broker.stop()
    dispatcher.send("task-sent")

    with caplog.at_level(logging.WARNING):
        dispatcher.close(timeout=0.0)
    rig.broker.start()
    dispatcher.flush(timeout=0.1)

    assert "dropped=1" in caplog.text
    assert (rig.messages, dispatcher.buffered, couriers()) == ([], 1, [])


def test_what_could_not_be_sent_before_it_was_closed_leaves_when_it_is_enabled_again() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher()
    rig.broker.stop()
    dispatcher.send("task-sent")
    dispatcher.close(timeout=0.0)

    rig.broker.start()
    dispatcher.enable()

    assert dispatcher.flush(PATIENCE) == 0
    assert rig.types == ["task-sent"]
    dispatcher.close()


# -- taking over


def test_another_dispatcher_can_send_what_one_could_not() -> None:
    rig = Rig(**NEVER)
    old, new = rig.dispatcher(buffer_group=["task"]), rig.dispatcher()
    rig.broker.stop()
    for type_ in ("worker-1", "task-2", "worker-3"):
        old.send(type_)
    old.close(timeout=0.0)
    rig.broker.start()

    new.extend_buffer(old)

    assert (old.buffered, new.buffered) == (0, 3)
    assert new.flush(PATIENCE) == 0
    assert rig.types == ["worker-1", "worker-3", "task-2"]
    assert couriers() == []


def test_to_take_over_from_oneself_changes_nothing() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(buffer_group=["task"])
    dispatcher.send("task-sent")

    dispatcher.extend_buffer(dispatcher)

    assert dispatcher.buffered == 1


def test_two_that_take_over_from_each_other_at_once_lose_nothing() -> None:
    rig = Rig()
    one, other = (rig.dispatcher(buffer_group=["task"], buffer_limit=1000) for _ in range(2))
    for dispatcher in (one, other):
        for _ in range(50):
            dispatcher.send("task-sent")

    threads = [
        Thread(target=lambda mine=mine, theirs=theirs: [mine.extend_buffer(theirs) for _ in range(200)])
        for mine, theirs in ((one, other), (other, one))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert one.flush(PATIENCE) + other.flush(PATIENCE) == 0
    assert sorted(rig.clocks) == list(range(1, 101))
