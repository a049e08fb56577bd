"""Waiting on files, and the bell that ends it."""

import gc
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread

import pytest

from celeriac.transport.readiness import Wakeup, wait_readable

PATIENCE = 120.0
#: Where Linux lists them.
OPEN_FILES = Path("/proc/self/fd")


@pytest.fixture(params=["eventfd", "pipe"])
def wakeup(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wakeup]:
    """A bell of each kind."""
    if request.param == "pipe":
        monkeypatch.delattr(os, "eventfd", raising=False)
    made = Wakeup()
    yield made
    made.close()


def test_what_rang_is_readable_until_it_is_cleared(wakeup: Wakeup) -> None:
    before = wait_readable([wakeup], 0.0)

    wakeup.ring()
    wakeup.ring()
    rung = wait_readable([wakeup], PATIENCE), wait_readable([wakeup], 0.0)
    wakeup.clear()
    wakeup.clear()

    assert (before, rung, wait_readable([wakeup], 0.0)) == ([], ([wakeup], [wakeup]), [])


def test_it_can_be_rung_again_after_it_was_cleared(wakeup: Wakeup) -> None:
    for _ in range(3):
        wakeup.ring()
        wakeup.clear()

    wakeup.ring()

    assert wait_readable([wakeup], 0.0) == [wakeup]


def test_those_alone_that_have_something_are_returned(wakeup: Wakeup) -> None:
    other = Wakeup()

    wakeup.ring()

    assert wait_readable([other, wakeup], PATIENCE) == [wakeup]
    other.close()


def test_another_thread_ends_the_waiting(wakeup: Wakeup) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait_readable, [wakeup], PATIENCE)

        wakeup.ring()

        assert waiting.result() == [wakeup]


def test_a_bell_that_nobody_clears_can_be_rung_without_end(wakeup: Wakeup) -> None:
    for _ in range(100_000):  # a pipe holds 65,536
        wakeup.ring()
    wakeup.clear()

    assert wait_readable([wakeup], 0.0) == []


def test_a_wait_may_be_longer_than_the_system_can_count(wakeup: Wakeup) -> None:
    wakeup.ring()

    assert wait_readable([wakeup], 1e9) == [wakeup]


def test_after_it_is_closed_it_touches_no_file_that_got_its_number(wakeup: Wakeup) -> None:
    number = wakeup.fileno()

    wakeup.close()
    wakeup.close()
    reader, writer = os.pipe()

    assert number in {reader, writer}  # the system gives out the lowest number that is free
    wakeup.ring()
    wakeup.clear()
    assert wakeup.fileno() == -1
    os.set_blocking(reader, False)
    with pytest.raises(BlockingIOError):
        os.read(reader, 1)
    os.close(reader)
    os.close(writer)


def test_it_can_be_closed_while_others_ring_it() -> None:
    for _ in range(50):
        wakeup = Wakeup()
        threads = [Thread(target=lambda bell=wakeup: [bell.ring() for _ in range(100)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        wakeup.close()
        for thread in threads:
            thread.join()


def test_it_can_be_rung_by_a_finalizer(wakeup: Wakeup) -> None:
    class Ringing:
        def __del__(self) -> None:
            wakeup.ring()

    ringing = Ringing()
    del ringing
    gc.collect()

    assert wait_readable([wakeup], 0.0) == [wakeup]


@pytest.mark.skipif(not OPEN_FILES.is_dir(), reason="the system does not tell which files are open")
def test_none_is_left_open() -> None:
    gc.collect()  # what other tests left may be open still
    before = len(list(OPEN_FILES.iterdir()))

    for _ in range(10):
        Wakeup().close()
    Wakeup()

    assert len(list(OPEN_FILES.iterdir())) == before
