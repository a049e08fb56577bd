"""What a worker has in hand: each task once, and either ended or taken away."""

from threading import Thread

import pytest

from celeriac.config import Settings
from celeriac.model.message import Delivery, Message
from celeriac.model.task_request import TaskRequest
from celeriac.worker.assignment import Assignment, Desk, Stage, Verdict
from celeriac.worker.traits import Traits

TRAITS = Traits.of(None, Settings())


def add(desk: Desk, task_id: str = "t1", **fields: int) -> Assignment:
    return desk.add(
        TaskRequest(task_id, "shop.pay", **fields),  # type: ignore[arg-type]
        TRAITS,
        Delivery(Message(b""), "celery", task_id),
    )


def test_what_is_in_hand_is_found_by_key_id_try_and_stage() -> None:
    desk = Desk()
    first, second, other = add(desk, retries=0), add(desk, retries=1), add(desk, "t2")
    other.stage = Stage.SCHEDULED

    assert desk.get(first.key) is first
    assert desk.find(["t1"]) == [first, second]
    assert desk.find_attempt(second.request) is second
    assert desk.all(Stage.SCHEDULED) == [other]
    assert desk.all() == [first, second, other]
    assert len(desk) == 3


def test_what_has_ended_is_remembered_with_what_became_of_its_message() -> None:
    desk = Desk()
    done, dropped, requeued = add(desk, "t1"), add(desk, "t2"), add(desk, "t3")

    desk.put_away([(done, Verdict.ACCEPT), (dropped, Verdict.DROP), (requeued, Verdict.REQUEUE)])

    verdicts = [desk.verdict_on(each.request) for each in (done, dropped, requeued)]
    assert verdicts == [Verdict.ACCEPT, Verdict.DROP, None]
    assert (len(desk), desk.ended) == (0, 3)


def test_what_is_sent_anew_is_forgotten_to_have_ended() -> None:
    desk = Desk()
    desk.put_away([(add(desk), Verdict.ACCEPT)])

    again = add(desk)

    assert desk.verdict_on(again.request) is None


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celeriac.worker.assignment._MAX_REMEMBERED", 2)
    desk = Desk()
    ended = [add(desk, f"t{number}") for number in range(3)]

    desk.put_away([(each, Verdict.ACCEPT) for each in ended])

    assert [desk.verdict_on(each.request) is not None for each in ended] == [False, True, True]


def test_of_two_with_one_try_the_end_of_the_first_hides_not_the_second() -> None:
    desk = Desk()
    first, second = add(desk), add(desk)

    desk.remove([first])

    assert desk.find_attempt(second.request) is second


def test_what_began_is_counted_by_name() -> None:
    desk = Desk()
    task = add(desk)

    began = desk.begin(task.key, pid=7, at=1.5)
    nothing = desk.begin(4711, pid=7, at=1.5)

    assert (began, nothing) == (task, None)
    assert (task.stage, task.pid, task.started_at) == (Stage.ACTIVE, 7, 1.5)
    assert desk.begun == {"shop.pay": 1}


def test_a_task_ends_once() -> None:
    desk = Desk()
    task = add(desk)

    ends = [desk.end(task.key), desk.end(task.key), desk.end(4711)]

    assert ends == [task, None, None]


def test_what_has_not_ended_is_taken_away_and_what_has_is_not() -> None:
    desk = Desk()
    ended, running = add(desk, "t1"), add(desk, "t2")
    desk.end(ended.key)

    taken = desk.take_unended()

    assert taken == [running]
    assert desk.end(running.key) is None
    assert desk.all() == [ended]
    assert not desk.has_unended


def test_each_of_many_tasks_ends_or_is_taken_away_but_not_both() -> None:
    desk = Desk()
    tasks = [add(desk, f"t{number}") for number in range(2000)]
    ended: list[Assignment | None] = []
    thread = Thread(target=lambda: ended.extend(desk.end(task.key) for task in tasks))

    thread.start()
    taken = desk.take_unended()
    thread.join()

    both = {each.key for each in ended if each is not None} & {each.key for each in taken}
    assert both == set()
    assert len([each for each in ended if each is not None]) + len(taken) == 2000
