"""Drainers: which one is chosen, and how each lets its callers wait."""

import asyncio
import sys
from collections.abc import Iterator
from threading import Event, Thread

import pytest

from celeriac.errors import ImproperlyConfigured, ResultTimeout
from celeriac.model.result import ResultMeta
from celeriac.node.consumer import BaseResultConsumer
from celeriac.node.drainer import (
    AsyncioDrainer,
    Drainer,
    EventletDrainer,
    GeventDrainer,
    ThreadDrainer,
    drainer_class,
)
from tests.results import PATIENCE, Store, StoreBackend, meta, quick, settled


@pytest.fixture
def drainer() -> Iterator[ThreadDrainer]:
    drainer = ThreadDrainer(BaseResultConsumer(Store().link(), settings=quick()))
    yield drainer
    drainer.stop()


# -- which one


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("default", ThreadDrainer),
        ("gevent", GeventDrainer),
        ("eventlet", EventletDrainer),
        ("asyncio", AsyncioDrainer),
    ],
)
def test_a_drainer_is_known_by_its_name(name: str, kind: type[Drainer]) -> None:
    assert drainer_class(name) is kind


def test_without_a_name_the_drainer_is_that_of_the_place() -> None:
    async def inside() -> type[Drainer]:
        return drainer_class()

    outside = drainer_class()

    assert outside is ThreadDrainer
    assert asyncio.run(inside()) is AsyncioDrainer


def test_a_drainer_that_is_not_known_is_an_error_that_names_those_that_are() -> None:
    backend = StoreBackend(result_drainer="threads")

    with pytest.raises(ImproperlyConfigured, match=r"'threads'; use one of .*asyncio, .*register_drainer"):
        backend.result("a").get(timeout=PATIENCE)

    assert settled(lambda: backend.health().waiters == 0)


@pytest.mark.parametrize("name", ["gevent", "eventlet"])
def test_a_drainer_whose_package_is_missing_names_the_extra(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, f"celeriac.runtime.{name}", raising=False)
    monkeypatch.setitem(sys.modules, name, None)
    backend = StoreBackend(result_drainer=name)

    with pytest.raises(ImproperlyConfigured, match=rf"install celeriac\[{name}\]"):
        backend.result("a").get(timeout=PATIENCE)

    assert settled(lambda: backend.health().waiters == 0)


def test_drainers_of_one_backend_share_its_consumer() -> None:
    backend = StoreBackend()

    async def inside() -> Drainer:
        return backend.drainer()

    in_thread, in_loop = backend.drainer(), asyncio.run(inside())

    assert in_thread.consumer is in_loop.consumer is backend.consumer
    assert backend.drainer() is in_thread
    backend.close()


# -- waiting


def test_who_waits_is_let_go_once_the_slot_is_full(drainer: ThreadDrainer) -> None:
    slot = drainer.slot(["a"])

    def fill() -> None:
        slot.put(meta("a"))
        slot.ring()

    filler = Thread(target=fill)
    filler.start()
    steps = [slot.take() for _ in drainer.drain_events_until(slot, PATIENCE)]
    filler.join()

    assert [each for step in steps for each in step] == [meta("a")]


def test_who_waits_at_a_full_slot_is_let_go_at_once(drainer: ThreadDrainer) -> None:
    slot = drainer.slot(["a"])
    slot.put(meta("a"))

    steps = [slot.take() for _ in drainer.drain_events_until(slot, 0.0)]

    assert steps == [[meta("a")]]


def test_r7_what_has_come_counts_although_the_time_is_up(drainer: ThreadDrainer) -> None:
    slot = drainer.slot(["a", "b"])
    slot.put(meta("a"))
    taken: list[ResultMeta] = []

    with pytest.raises(ResultTimeout):
        taken.extend(each for _ in drainer.drain_events_until(slot, 0.0) for each in slot.take())

    assert taken == [meta("a")]


def test_r7_what_has_come_counts_in_a_loop_although_the_time_is_up() -> None:
    drainer = AsyncioDrainer(BaseResultConsumer(Store().link(), settings=quick()))
    taken = []

    async def main() -> None:
        slot = drainer.slot(["a", "b"])
        slot.put(meta("a"))
        async for _ in drainer.drain_events_async(slot, 0.0):
            taken.extend(slot.take())

    with pytest.raises(ResultTimeout):
        asyncio.run(main())

    assert taken == [meta("a")]


def test_r7_no_time_at_all_is_a_timeout(drainer: ThreadDrainer) -> None:
    slot = drainer.slot(["a"])

    with pytest.raises(ResultTimeout, match="0 s"):
        list(drainer.drain_events_until(slot, 0.0))

    assert not slot.ready


def test_on_interval_is_called_at_each_interval(drainer: ThreadDrainer) -> None:
    slot = drainer.slot(["a"])
    calls = []

    def call() -> None:
        calls.append(slot.ready)
        if len(calls) == 3:
            slot.put(meta("a"))

    steps = list(drainer.drain_events_until(slot, PATIENCE, 0.001, call))

    assert calls == [False] * 3
    assert len(steps) == 4


def test_r12_a_result_that_comes_during_a_callback_is_not_slept_through(drainer: ThreadDrainer) -> None:
    slot = drainer.slot(["a", "b"])
    slot.put(meta("a"))
    slot.ring()
    taken = []

    def come() -> None:
        if not slot.ready:
            slot.put(meta("b"))
            slot.ring()

    for _ in drainer.drain_events_until(slot, PATIENCE, None, come):
        taken += slot.take()

    assert taken == [meta("a"), meta("b")]


def test_callbacks_of_one_drainer_run_beside_its_caller(drainer: ThreadDrainer) -> None:
    is_called, may_go_on = Event(), Event()

    def block() -> None:
        is_called.set()
        may_go_on.wait(PATIENCE)

    drainer.caller()(block)
    was_called = is_called.wait(PATIENCE)
    may_go_on.set()

    assert was_called
