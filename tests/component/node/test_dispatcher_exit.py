"""Dispatchers that nobody closed, when the program ends."""

import gc
import logging
import os
import signal
from collections.abc import Callable, Iterator
from threading import Thread

import pytest

from celeriac.errors import AccessRefused
from celeriac.node import unsent
from celeriac.node.dispatcher import EventDispatcher
from celeriac.node.unsent import CLOSE_TIMEOUT, send_unsent, unsent_couriers
from tests.rig import PATIENCE, Rig, couriers


@pytest.fixture(autouse=True)
def no_unsent_events_of_other_tests() -> Iterator[None]:
    unsent_couriers.clear()
    yield
    unsent_couriers.clear()


def test_gathered_events_are_sent_at_exit() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(buffer_group=["task"])
    dispatcher.send("task-sent")

    send_unsent()

    assert rig.types == ["task-sent"]


def test_events_of_a_collected_dispatcher_are_sent_at_exit() -> None:
    rig = Rig()
    rig.dispatcher(buffer_group=["task"]).send("task-sent")
    gc.collect()

    send_unsent()

    assert rig.types == ["task-sent"]


def test_dispatchers_without_unsent_events_are_not_kept_until_exit() -> None:
    rig = Rig()
    dispatchers = [rig.dispatcher(buffer_group=["task"], buffer_while_offline=False) for _ in range(4)]
    sent, withdrawn, closed, adopted = dispatchers
    own = {dispatcher._courier for dispatcher in dispatchers}

    for dispatcher in dispatchers:
        dispatcher.send("task-sent")
    assert own <= unsent_couriers
    closed.close()
    sent.extend_buffer(adopted)
    assert (sent.flush(PATIENCE), withdrawn.flush(PATIENCE)) == (0, 0)
    rig.before_publish = rig.fail(error=AccessRefused)
    with pytest.raises(AccessRefused):
        withdrawn.send("worker-online")

    assert own.isdisjoint(unsent_couriers)


def test_events_are_sent_at_exit_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 starts no thread once the interpreter ends."""
    rig = Rig()
    dispatcher = rig.dispatcher(buffer_group=["task"])
    dispatcher.send("task-sent")
    rig.before_publish = rig.fail(times=3)

    def refuse(_: Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(Thread, "start", refuse)
    send_unsent()
    dispatcher.enable()
    rig.before_publish = rig.fail()
    dispatcher.send("worker-offline")
    dispatcher.close()

    assert rig.types == ["task-sent", "worker-offline"]
    assert couriers() == []


def test_a_dispatcher_that_fails_at_exit_does_not_hold_up_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good, *bad = rigs = [Rig() for _ in range(3)]
    for rig in rigs:
        rig.dispatcher(buffer_group=["task"]).send("task-sent")
    for rig in bad:
        rig.before_publish = rig.fail(error=AccessRefused)

    with caplog.at_level(logging.WARNING):
        send_unsent()

    assert good.types == ["task-sent"]
    assert caplog.text.count("publisher: cannot send the last events: on purpose") == 2


def test_all_dispatchers_have_one_deadline_at_exit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    monkeypatch.setattr(unsent, "monotonic", lambda: now[0])
    rigs = [Rig() for _ in range(3)]

    def take_all_the_time() -> None:
        now[0] += CLOSE_TIMEOUT

    for rig in rigs:
        rig.before_publish = take_all_the_time
        rig.dispatcher(buffer_group=["task"]).send("task-sent")
    with caplog.at_level(logging.WARNING):
        send_unsent()

    assert [rig.attempts for rig in rigs].count(1) == 1
    assert caplog.text.count("dropped=1") == 2


@pytest.mark.parametrize("leave", [lambda _: send_unsent(), EventDispatcher.close, EventDispatcher.disable])
def test_a_forked_child_ends_without_its_parents_locks_and_events(
    leave: Callable[[EventDispatcher], object],
) -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(buffer_group=["task"])
    dispatcher.send("task-sent")

    with dispatcher._changed:  # as another thread of the parent has it
        child = os.fork()
        if child == 0:
            signal.alarm(30)  # ends the child if it hangs
            code = 1
            try:
                leave(dispatcher)
                code = 0 if (rig.messages, dispatcher.buffered) == ([], 0) else 2
            finally:
                os._exit(code)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert dispatcher.buffered == 1
    dispatcher.close()
    assert rig.types == ["task-sent"]
