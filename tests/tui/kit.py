"""A cluster that the terminal shows, and what somebody at that terminal sees and does."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

from textual.pilot import Pilot

from celeriac.app import Celeriac
from celeriac.core.redaction import Redactor
from celeriac.model.events import Event
from celeriac.node.replay import Replay
from celeriac.node.watcher import Watcher
from celeriac.programs.process import wait_until
from celeriac.transport.memory import MemoryBroker
from celeriac.tui.sight import LiveSight, PastSight, Sight
from celeriac.tui.top import Revoke, Top
from tests.event_logs import HOUR_AT

__all__ = ["HOSTILE", "PATIENCE", "Person", "Rig", "Shelf", "past", "rig", "sit_down"]

#: Far more than is needed, for a busy machine.
PATIENCE = 60.0
#: Seconds between two looks at the screen, which is drawn for each.
_CHECK_EVERY = 0.05
#: Colours, a title, the eight-bit form of an escape, a line of its own, a turn of direction, markup, a link.
HOSTILE = "\x1b[31m\x9b2J\nroot# \u202e[bold red]x[/] [@click=app.quit]y[/] :bomb:"


class Shelf:
    """A log that is made of a list."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.damage: list[str] = []
        self._events = events

    def recorders(self) -> list[str]:
        return ["a"]

    def read(
        self, since: float | None = None, until: float | None = None, *_: Any, **__: Any
    ) -> Iterator[Event]:
        for event in self._events:
            if (since is None or event.timestamp >= since) and (until is None or event.timestamp <= until):
                yield event


def past(*events: Event, until: float = HOUR_AT + 60.0, **options: Any) -> PastSight:
    """Return a cluster as it was when these events had come."""
    return PastSight.of(Replay(Shelf(events), until=until, **options), place="memory")


class Rig:
    """A cluster on the broker in memory, which is watched."""

    def __init__(self, app: Celeriac, watcher: Watcher, broker: MemoryBroker) -> None:
        self.app = app
        self.broker = broker
        self.watcher = watcher
        self.sight = LiveSight(watcher, place="memory://")
        self._dispatcher = app.events.Dispatcher(hostname="w1@lab")

    def send(self, kind: str, **fields: Any) -> None:
        """Send an event as a worker does."""
        self._dispatcher.send(kind, **fields)

    def revoke(self, uuid: str) -> Sequence[object] | None:
        """Revoke a task as the command does, but wait for no answers."""
        return self.app.control.revoke(uuid)

    def commands(self) -> list[bytes]:
        """Return the bodies of all commands that were sent, but for the one that wakes workers."""
        sent = [message.body for exchange, message in self.broker.published if exchange == "celery.pidbox"]
        return [body for body in sent if b'"heartbeat"' not in body]


@contextmanager
def rig() -> Iterator[Rig]:
    """Have a cluster that is watched."""
    broker = MemoryBroker()
    app = Celeriac(broker, hostname="top@lab", environ={})
    try:
        with Watcher(app.events, hostname=app.hostname, redactor=Redactor()) as watcher:
            assert wait_until(lambda: watcher.is_receiving, patience=PATIENCE)
            yield Rig(app, watcher, broker)
    finally:
        app.close()


def has_all(text: str, parts: Sequence[str]) -> bool:
    return all(part in text for part in parts)


class Person:
    """Somebody at the terminal."""

    def __init__(self, top: Top, pilot: Pilot[None]) -> None:
        self.top = top
        self._pilot = pilot

    @property
    def text(self) -> str:
        """All that is on the screen, notices too."""
        return "\n".join(self.lines)

    @property
    def lines(self) -> list[str]:
        """The lines of the screen."""
        return [strip.text.rstrip() for strip in self.top.screen._compositor.render_strips()]

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        await self._pilot.press(*keys)

    async def type(self, text: str) -> None:
        """Type a text."""
        names = {" ": "space", ":": "colon", ".": "full_stop", "*": "asterisk", "@": "at", "-": "minus"}
        await self.press(*(names.get(char, char) for char in text))

    async def waits_for(self, condition: Callable[[], bool]) -> None:
        """Look until something is so."""
        deadline = monotonic() + PATIENCE
        while not condition():
            assert monotonic() < deadline, self.text
            await self._pilot.pause(_CHECK_EVERY)

    async def sees(self, *texts: str) -> None:
        """Look until all of these texts are on the screen."""
        await self.waits_for(lambda: has_all(self.text, texts))

    async def sees_no(self, text: str) -> None:
        """Look until a text is not on the screen any more."""
        await self.waits_for(lambda: text not in self.text)


def sit_down(
    sight: Sight,
    does: Callable[[Person], Awaitable[None]],
    *,
    revoke: Revoke | None = None,
    size: tuple[int, int] = (100, 30),
) -> Top:
    """Have somebody look at a sight and do something; return the program as it then is."""
    top = Top(sight, revoke=revoke)

    async def sit() -> None:
        async with top.run_test(size=size, notifications=True) as pilot:
            await does(Person(top, pilot))

    asyncio.run(sit())
    return top
