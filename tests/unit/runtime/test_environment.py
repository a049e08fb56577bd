"""Where we are called from is looked up when we are called."""

import asyncio
import sys
from threading import Thread
from types import ModuleType
from typing import Any

import pytest

from celeriac.errors import ImproperlyConfigured
from celeriac.runtime.environment import environment


class Module(ModuleType):
    """A module that says of some others that they are patched."""

    def __init__(self, name: str, *patched: str) -> None:
        super().__init__(name)
        self.is_module_patched = self.is_monkey_patched = patched.__contains__


@pytest.fixture(autouse=True)
def _no_greenlets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gevent.monkey", "eventlet.patcher"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_by_default_threads_wait() -> None:
    assert environment() == "default"


def test_inside_a_loop_tasks_wait() -> None:
    async def main() -> str:
        return environment()

    inside = asyncio.run(main())

    assert inside == "asyncio"
    assert environment() == "default"


def test_a_thread_beside_a_loop_is_a_thread() -> None:
    seen: list[str] = []

    async def main() -> None:
        thread = Thread(target=lambda: seen.append(environment()))
        thread.start()
        thread.join()
        seen.append(await asyncio.to_thread(environment))

    asyncio.run(main())

    assert seen == ["default", "default"]


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (Module("gevent.monkey", "socket", "select"), "gevent"),
        (Module("gevent.monkey", "socket"), "default"),
        (Module("gevent.monkey"), "default"),
        (Module("eventlet.patcher", "socket", "select"), "eventlet"),
        (Module("eventlet.patcher", "socket"), "default"),
        (Module("eventlet.patcher"), "default"),
    ],
    ids=str,
)
def test_greenlets_wait_once_sockets_are_patched(
    module: Any, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = environment()

    monkeypatch.setitem(sys.modules, module.__name__, module)

    assert before == "default"
    assert environment() == expected


def test_a_loop_outranks_greenlets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gevent.monkey", Module("gevent.monkey", "socket", "select"))

    async def main() -> str:
        return environment()

    assert asyncio.run(main()) == "asyncio"
    assert environment() == "gevent"


def test_to_look_imports_nothing() -> None:
    environment()

    assert not {"gevent.monkey", "eventlet.patcher"} & sys.modules.keys()


@pytest.mark.parametrize(
    ("module", "fix"),
    [
        (Module("gevent.monkey", "threading"), "patch_all"),
        (Module("gevent.monkey", "threading", "socket"), "patch_all"),
        (Module("eventlet.patcher", "thread"), "monkey_patch"),
    ],
)
def test_threads_that_are_patched_without_sockets_are_refused_with_the_fix(
    monkeypatch: pytest.MonkeyPatch, module: Module, fix: str
) -> None:
    monkeypatch.setitem(sys.modules, module.__name__, module)

    with pytest.raises(ImproperlyConfigured, match=fix):
        environment()
