"""A dispatcher whose broker is away, or fails half-way: what is kept, what goes, what comes by itself."""

import logging
from threading import Event as Flag
from threading import Thread, current_thread

import pytest

from celeriac.core.backoff import Backoff
from celeriac.errors import AccessRefused, ConnectionLost
from celeriac.node import courier
from celeriac.programs.process import wait_until
from tests.rig import NEVER, PATIENCE, Rig, couriers, in_threads

# -- while the broker is away


def test_events_wait_while_the_broker_is_away_and_leave_by_themselves_when_it_is_back() -> None:
    rig = Rig()
    arrivals = rig.listen()
    dispatcher = rig.dispatcher()
    rig.broker.stop()

    for _ in range(5):
        dispatcher.send("task-sent")
    assert dispatcher.buffered == 5
    rig.broker.start()

    assert arrivals.wait(5) == 5
    assert rig.clocks == [1, 2, 3, 4, 5]
    dispatcher.close()
    assert couriers() == []


def test_a_link_that_was_cut_is_made_again() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher()
    dispatcher.send("task-sent")
    assert dispatcher.flush(PATIENCE) == 0

    rig.broker.cut()
    dispatcher.send("task-received")

    assert dispatcher.flush(PATIENCE) == 0
    assert rig.clocks == [1, 2]
    dispatcher.close()


def test_batches_wait_too_and_leave_as_they_are() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(buffer_group=["task"], buffer_limit=2)
    rig.broker.stop()
    for type_ in ("task-1", "task-2", "worker-3", "task-4"):
        dispatcher.send(type_)

    rig.broker.start()

    assert dispatcher.flush(PATIENCE) == 0
    assert rig.keys == ["task.multi", "worker.3", "task.multi"]
    assert rig.clocks == [1, 2, 3, 4]
    dispatcher.close()


def test_who_sends_does_not_wait_for_a_link_that_is_being_made() -> None:
    rig = Rig()
    has_begun, may_end = Flag(), Flag()

    def hang() -> None:
        has_begun.set()
        may_end.wait(PATIENCE)

    rig.before_open = hang
    rig.before_publish = rig.fail()
    dispatcher = rig.dispatcher()
    dispatcher.send("task-sent")
    assert has_begun.wait(PATIENCE)

    for _ in range(4):
        dispatcher.send("task-sent")

    assert dispatcher.buffered == 5
    may_end.set()
    assert dispatcher.flush(PATIENCE) == 0
    assert rig.clocks == [1, 2, 3, 4, 5]
    dispatcher.close()


def test_of_many_who_wait_for_one_link_only_one_finds_out_that_it_is_lost() -> None:
    rig = Rig(**NEVER)
    dispatcher = rig.dispatcher()

    def lose_it_when_all_have_put_theirs_in() -> None:
        wait_until(lambda: dispatcher.buffered == 8, patience=PATIENCE)
        raise ConnectionLost("on purpose")

    rig.before_publish = lose_it_when_all_have_put_theirs_in
    senders = [Thread(target=dispatcher.send, args=("task-sent",)) for _ in range(8)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()

    assert rig.attempts == 1
    assert dispatcher.buffered == 8
    dispatcher.close(timeout=0.0)
    assert couriers() == []


def test_an_event_that_comes_at_the_end_of_a_recovery_is_not_left_behind() -> None:
    rig = Rig()
    arrivals = rig.listen()
    dispatcher = rig.dispatcher()
    latecomer = Thread(target=dispatcher.send, args=("task-late",))

    def begin_late() -> int:
        if latecomer.ident is None:
            latecomer.start()
            wait_until(lambda: dispatcher.buffered > 1, patience=PATIENCE)
        return 0

    rig.before_publish = rig.fail()
    rig.unconfirmed = begin_late
    dispatcher.send("task-sent")

    assert arrivals.wait(2) == 2
    assert rig.types == ["task-sent", "task-late"]
    latecomer.join()
    dispatcher.close()


def test_an_event_that_comes_while_the_keeper_has_the_link_leaves_right_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(courier, "_QUIET", 0.0)
    rig = Rig()
    arrivals = rig.listen()
    dispatcher = rig.dispatcher()

    def send_another() -> int:
        if current_thread().name == "celeriac-courier" and courier._QUIET == 0.0:
            monkeypatch.setattr(courier, "_QUIET", 3600.0)  # the keeper looks no more by itself
            in_threads(1, lambda _: dispatcher.send("task-late"))
        return 0

    rig.unconfirmed = send_another
    dispatcher.send("task-sent")

    assert arrivals.wait(2) == 2
    assert rig.types == ["task-sent", "task-late"]
    dispatcher.close()


# -- when it fails half-way


@pytest.mark.parametrize("position", range(1, 8))
@pytest.mark.parametrize("hook", ["before_publish", "after_publish"])
def test_what_fails_half_way_goes_on_where_it_was(position: int, hook: str) -> None:
    rig = Rig()
    rig.broker.stop()
    dispatcher = rig.dispatcher(buffer_group=["task"], buffer_limit=3)
    for number in range(9):
        dispatcher.send("task-sent", number=number)
        dispatcher.send("worker-heartbeat", number=number)
    failing, before = rig.fail(), rig.attempts

    setattr(rig, hook, lambda: failing() if rig.attempts == before + position else None)
    rig.broker.start()

    assert dispatcher.flush(PATIENCE) == 0
    assert rig.attempts > before + 12
    # What came twice is the same to the byte: nine heartbeats, and three batches of tasks.
    bodies = list(dict.fromkeys(message.body for message in rig.messages))
    assert len(bodies) == 12
    for type_ in ("task-sent", "worker-heartbeat"):
        numbers = [event["number"] for event in rig.events if event["type"] == type_]
        assert list(dict.fromkeys(numbers)) == list(range(9))
    dispatcher.close()


def test_only_what_was_not_confirmed_is_sent_again() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher()
    rig.unconfirmed = lambda: 3
    for number in range(10):
        dispatcher.send("task-sent", number=number)
    dispatcher.flush()
    assert dispatcher.buffered == 3

    rig.unconfirmed = int
    rig.broker.cut()
    dispatcher.send("task-sent", number=10)

    assert dispatcher.flush(PATIENCE) == 0
    assert [event["number"] for event in rig.events] == [*range(10), 7, 8, 9, 10]
    assert rig.messages[7:10] == rig.messages[10:13]
    dispatcher.close()


def test_a_flush_waits_for_the_broker_to_confirm() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher()
    answers = iter([1, 1, 0])
    rig.unconfirmed = lambda: next(answers)

    dispatcher.send("task-sent")
    left = dispatcher.flush(PATIENCE)

    assert left == 0
    assert rig.attempts == 1


def test_what_is_gathered_during_a_flush_is_kept_and_not_waited_for() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(buffer_group=["task"])
    asked: list[int] = []

    def gather() -> None:
        dispatcher.send("task-late")

    def answer() -> int:
        asked.append(len(rig.messages))
        return 0

    rig.before_publish, rig.unconfirmed = gather, answer
    dispatcher.send("task-sent")
    left = dispatcher.flush(timeout=1.0)

    assert (rig.types, left) == (["task-sent"], 1)
    assert len(asked) < 5
    rig.before_publish = rig.fail(times=0)
    assert dispatcher.flush(PATIENCE) == 0
    assert rig.types == ["task-sent", "task-late"]


def test_an_interrupt_loses_no_event() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher()
    rig.before_publish = rig.fail(error=KeyboardInterrupt)

    with pytest.raises(KeyboardInterrupt):
        dispatcher.send("task-sent")

    assert dispatcher.flush(PATIENCE) == 0
    assert rig.types == ["task-sent"]


def test_a_refusal_is_told_and_the_event_is_kept() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher()
    rig.before_publish = rig.fail(error=AccessRefused)

    with pytest.raises(AccessRefused):
        dispatcher.send("task-sent")

    assert dispatcher.flush(PATIENCE) == 0
    assert rig.types == ["task-sent"]
    assert couriers() == []


def test_a_refused_dispatcher_does_not_ask_the_broker_again_before_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Backoff, "next", lambda _: 3600.0)
    rig = Rig()
    dispatcher = rig.dispatcher()
    rig.before_publish = rig.fail(error=AccessRefused)

    for _ in range(3):
        with pytest.raises(AccessRefused, match="on purpose"):
            dispatcher.send("task-sent")
    with pytest.raises(AccessRefused):
        dispatcher.open()

    assert (rig.attempts, dispatcher.buffered) == (1, 3)
    assert dispatcher.flush(PATIENCE) == 0
    assert rig.types == ["task-sent"] * 3


def test_a_dispatcher_that_keeps_nothing_does_not_ask_a_broker_again_that_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Backoff, "next", lambda _: 3600.0)
    rig = Rig()
    dispatcher = rig.dispatcher(buffer_while_offline=False)
    rig.before_publish = rig.fail(error=AccessRefused)

    for _ in range(2):
        with pytest.raises(AccessRefused):
            dispatcher.send("worker-online")

    assert (rig.attempts, dispatcher.buffered) == (1, 0)


def test_a_refusal_that_comes_back_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    dispatcher = rig.dispatcher()
    rig.broker.stop()
    dispatcher.send("task-sent")

    with caplog.at_level(logging.WARNING):
        rig.before_publish = rig.fail(times=3, error=AccessRefused)
        rig.broker.start()
        assert wait_until(lambda: dispatcher.buffered == 0, patience=PATIENCE)

    assert rig.types == ["task-sent"]
    assert caplog.text.count("publisher: events are waiting for the broker: on purpose") == 1
    dispatcher.close()


# -- the limit


@pytest.mark.parametrize(("sent", "dropped"), [(10, 0), (11, 1), (25, 15)])
def test_beyond_the_limit_the_oldest_go_and_are_counted(sent: int, dropped: int) -> None:
    rig = Rig(event_offline_limit=10)
    dispatcher = rig.dispatcher()
    rig.broker.stop()

    for number in range(sent):
        dispatcher.send("task-sent", number=number)
    rig.broker.start()

    assert dispatcher.flush(PATIENCE) == 0
    assert dispatcher.dropped == ({"task": dropped} if dropped else {})
    assert [event["number"] for event in rig.events] == list(range(dropped, sent))
    dispatcher.close()


def test_each_event_is_either_sent_or_counted_by_its_group() -> None:
    rig = Rig(event_offline_limit=10)
    dispatcher = rig.dispatcher(buffer_group=["task"], buffer_limit=4)
    rig.broker.stop()

    for _ in range(20):
        dispatcher.send("task-sent")
        dispatcher.send("worker-heartbeat")
    rig.broker.start()

    assert dispatcher.flush(PATIENCE) == 0
    arrived = [type_.partition("-")[0] for type_ in rig.types]
    assert {group: arrived.count(group) + dispatcher.dropped[group] for group in ("task", "worker")} == {
        "task": 20,
        "worker": 20,
    }
    assert len(arrived) <= 10
    dispatcher.close()


@pytest.mark.parametrize("limit", [1, 2, 10, 100])
@pytest.mark.parametrize("buffer_group", [(), ("task",)])
def test_a_broker_that_is_there_gets_every_event_however_low_the_limit(
    limit: int, buffer_group: tuple[str, ...]
) -> None:
    rig = Rig(event_offline_limit=limit)
    dispatcher = rig.dispatcher(buffer_group=buffer_group)

    for _ in range(500):
        dispatcher.send("task-sent")

    assert dispatcher.flush(PATIENCE) == 0
    assert dispatcher.dropped == {}
    assert rig.clocks == list(range(1, 501))


# -- who does not want events to be kept


def test_who_keeps_nothing_while_offline_is_told_of_each_failure() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(buffer_while_offline=False)
    rig.broker.stop()

    with pytest.raises(ConnectionLost):
        dispatcher.send("worker-lost")

    assert dispatcher.buffered == 0
    rig.broker.start()
    dispatcher.send("worker-online")
    assert rig.types == ["worker-online"]
    assert couriers() == []


def test_who_keeps_nothing_while_offline_returns_when_the_broker_has_the_event() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(buffer_while_offline=False)

    dispatcher.send("worker-online")

    assert dispatcher.buffered == 0


def test_an_event_that_nobody_confirms_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier, "_PATIENCE", 0.01)
    rig = Rig()
    dispatcher = rig.dispatcher(buffer_while_offline=False)
    rig.unconfirmed = lambda: 1

    with pytest.raises(ConnectionLost, match="does not confirm messages"):
        dispatcher.send("worker-online")

    assert dispatcher.buffered == 0


def test_a_batch_is_kept_when_a_single_event_fails() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(buffer_while_offline=False, buffer_group=["task"])
    dispatcher.send("task-sent")
    rig.broker.stop()

    for type_ in ("worker-lost", "worker-lost"):
        with pytest.raises(ConnectionLost):
            dispatcher.send(type_)
    with pytest.raises(ConnectionLost):
        dispatcher.publish("task-lost", {})

    assert dispatcher.buffered == 1
    rig.broker.start()
    assert dispatcher.flush(PATIENCE) == 0
    assert rig.types == ["task-sent"]


def test_what_another_thread_puts_in_meanwhile_is_not_taken_for_what_failed() -> None:
    rig = Rig()
    dispatcher = rig.dispatcher(buffer_while_offline=False, buffer_group=["task"], buffer_limit=1)
    other = Thread(target=dispatcher.send, args=("task-sent",))
    failing = rig.fail()

    def fail_when_the_other_has_put_its_own_in() -> None:
        if other.ident is None:
            other.start()
            wait_until(lambda: dispatcher.buffered == 2, patience=PATIENCE)
        failing()

    rig.before_publish = fail_when_the_other_has_put_its_own_in
    with pytest.raises(ConnectionLost):
        dispatcher.send("worker-lost")

    other.join()
    assert dispatcher.flush(PATIENCE) == 0
    assert rig.types == ["task-sent"]
