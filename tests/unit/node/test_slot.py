"""Slots: what is put in is there for who waits, and nobody sleeps through it."""

import sys
from collections.abc import Iterator
from threading import Thread

import pytest

from celeriac.errors import AccessRefused
from celeriac.model.result import ResultMeta
from celeriac.node.slot import LastingSlot
from tests.results import PATIENCE, meta, slot_for


@pytest.fixture
def _switch_threads_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_a_result_wakes_who_waits_and_fills_the_slot() -> None:
    slot = slot_for("a")

    wakes = slot.put(meta("a"))

    assert wakes
    assert slot.ready
    assert slot.take() == [meta("a")]


def test_a_slot_for_two_is_full_with_the_second() -> None:
    slot = slot_for("a", "b")

    slot.put(meta("a"))
    is_full_with_one = slot.ready
    slot.put(meta("b"))

    assert not is_full_with_one
    assert slot.ready
    assert slot.take() == [meta("a"), meta("b")]


def test_progress_wakes_nobody_who_did_not_ask_for_it() -> None:
    slot = slot_for("a")

    wakes = slot.put(meta("a", "STARTED"))

    assert not wakes
    assert not slot.has_news
    assert not slot.ready


def test_progress_is_there_for_who_asked_for_it() -> None:
    slot = slot_for("a", wants_all=True)

    wakes = slot.put(meta("a", "STARTED"))

    assert wakes
    assert slot.take() == [meta("a", "STARTED")]
    assert not slot.ready


def test_what_was_taken_is_not_taken_again() -> None:
    slot = slot_for("a", "b")

    slot.put(meta("a"))
    slot.take()

    assert slot.take() == []
    assert not slot.has_news


def test_a_slot_that_failed_is_full_and_keeps_what_came_before() -> None:
    slot = slot_for("a", "b")

    slot.put(meta("a"))
    slot.fail(AccessRefused("no"))

    assert slot.ready
    assert slot.take() == [meta("a")]
    assert str(slot.error) == "no"


def test_a_result_that_cannot_be_read_fills_the_slot_too() -> None:
    slot = slot_for("a")

    wakes = slot.put(ResultMeta("a", "", fault="it is not JSON"))

    assert wakes
    assert slot.ready


@pytest.mark.usefixtures("_switch_threads_often")
def test_r12_nobody_sleeps_through_any_of_thousands_of_results() -> None:
    results = [meta(f"t{number}") for number in range(5_000)]
    slot = slot_for(*(each.task_id for each in results))
    taken: list[ResultMeta] = []
    is_awake = True

    def fill() -> None:
        for each in results:
            if slot.put(each):
                slot.ring()

    filler = Thread(target=fill)
    filler.start()
    while is_awake and not (slot.ready and not slot.has_news):
        if not slot.has_news and not slot.ready:
            # Nothing else would wake us: no interval, no second look.
            is_awake = bool(slot.flag.wait(PATIENCE))
        taken += slot.take()
    filler.join()

    assert is_awake
    assert taken == results


@pytest.mark.usefixtures("_switch_threads_often")
def test_r12_a_put_between_the_look_and_the_sleep_is_not_missed() -> None:
    turns = 3_000
    there, back = slot_for(*["a"] * turns), slot_for(*["b"] * turns)
    answered = []

    def answer() -> None:
        for _ in range(turns):
            while not there.has_news:
                assert there.flag.wait(PATIENCE)
            there.take()
            back.put(meta("b"))
            back.ring()

    answerer = Thread(target=answer)
    answerer.start()
    for _ in range(turns):
        there.put(meta("a"))
        there.ring()
        while not back.has_news and back.flag.wait(PATIENCE):
            pass
        answered += back.take()
    answerer.join()

    assert len(answered) == turns


def test_a_lasting_slot_hands_on_what_comes() -> None:
    received: list[ResultMeta | Exception] = []
    slot = LastingSlot(received.append)

    slot.put(meta("a", "STARTED"))
    slot.put(meta("a"))
    slot.ring()

    assert received == [meta("a")]
    assert not slot.has_news


def test_a_lasting_slot_hands_on_why_nothing_will_come() -> None:
    received: list[ResultMeta | Exception] = []
    slot = LastingSlot(received.append)
    error = AccessRefused("no")

    slot.fail(error)
    slot.ring()

    assert received == [error]
