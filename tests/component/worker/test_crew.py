"""A few threads that do much."""

from threading import Event, Lock, get_ident
from threading import enumerate as all_threads

import pytest

from celeriac.worker.crew import Crew
from tests.component.worker.kit import PATIENCE, come_true


def threads_of(crew: str) -> int:
    return len([each for each in all_threads() if each.name.startswith(f"{crew}-")])


def test_nothing_is_started_before_there_is_something_to_do() -> None:
    Crew("idle", 3)

    assert threads_of("idle") == 0


def test_much_is_done_by_few() -> None:
    crew, done, who, lock = Crew("few", 3), [], set(), Lock()

    def work(number: int) -> None:
        with lock:
            done.append(number)
            who.add(get_ident())

    for number in range(500):
        crew.put(lambda number=number: work(number))  # type: ignore[misc]

    assert come_true(lambda: len(done) == 500)
    assert sorted(done) == list(range(500))
    assert len(who) <= 3
    crew.close()
    assert come_true(lambda: threads_of("few") == 0)


def test_one_that_hangs_keeps_no_other_waiting() -> None:
    crew, going_on, done = Crew("hanging", 2), Event(), Event()

    crew.put(lambda: going_on.wait(PATIENCE))
    crew.put(done.set)

    assert done.wait(PATIENCE)
    going_on.set()
    crew.close()
    assert come_true(lambda: threads_of("hanging") == 0)


@pytest.mark.parametrize("error", [ValueError("planned"), SystemExit(1), KeyboardInterrupt()])
def test_what_fails_harms_nothing_that_follows(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    crew, done = Crew("failing", 1), Event()

    def fail() -> None:
        raise error

    for _ in range(5):
        crew.put(fail)
    crew.put(done.set)

    assert done.wait(PATIENCE)
    assert caplog.messages == ["worker: a background job failed"] * 5
    crew.close()


def test_what_was_given_before_the_end_is_done_and_no_more() -> None:
    crew, going_on, done = Crew("ending", 1), Event(), []
    crew.put(lambda: going_on.wait(PATIENCE))
    crew.put(lambda: done.append("before"))

    crew.close()
    crew.put(lambda: done.append("after"))
    going_on.set()

    assert come_true(lambda: threads_of("ending") == 0)
    assert done == ["before"]
