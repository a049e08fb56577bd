"""Names that peers made up to harm a terminal: all screens show them as plain text, and go on."""

import random
from collections.abc import Iterable, Iterator
from itertools import cycle, islice

import pytest

from celeriac.model.events import Event, Sent
from celeriac.tui.top import Top
from tests.event_logs import HOUR_AT, failed, heartbeat, received, started
from tests.live import IS_LONG
from tests.tui.kit import HOSTILE, Person, past, rig, sit_down

LONG = 100_000
NAMES: dict[str, str] = {
    "several": HOSTILE,
    "markup": "[bold][/bold][/][link=http://evil.example]x[/link][@click=app.quit()]y[/] [",
    "unbalanced markup": "[" * 300 + "/]]" * 300,
    "emoji code": ":bomb: :warning:",
    "escape codes": "\x1b[2J\x1b[31m\x1b]0;owned\x07\x1b]8;;http://evil.example\x1b\\x\x1b]8;;\x1b\\",
    "eight-bit codes": "\x9b2J\x9d0;owned\x9c\x90q\x9c",
    "a device is asked": "\x1b[c\x1b[6n\x05\x1bP+q544e\x1b\\",
    "lines": "one\ntwo\r\nthree\rfour\x0bfive\x0csix\x85seven\u2028eight\u2029nine",
    "tabs": "a\tb\t\t",
    "null bytes": "\x00a\x00",
    "delete and backspace": "secret\x08\x08\x08\x7f",
    "bidi": "\u202ecod.exe\u202c \u2066x\u2069 \u200f\u061c \u05d0\u05d1",
    "no width": "a\u200bb\ufeffc\u200dd\u2060e",
    "combining": "x" + "\u0301\u0489" * 500,
    "wide": "\u4e2d\uff21\U0001f600\U0001f468\u200d\U0001f469" * 50,
    "tags and private use": "\U000e0041\ue000\U0010ffff",
    "surrogates": "\ud800x\udfff",
    "empty": "",
    "a blank": " ",
    "very long": "x" * LONG,
    "very long, with codes": "\x1b[31m" * (LONG // 5),
    "very long, wide": "\u4e2d" * LONG,
    "very long, combining": "\u0301" * LONG,
    "very many lines": "\n" * LONG,
    "quote": 'worker:"a" OR "b',
    "format": "%s %n {0} {x.__class__} $(reboot) `reboot`",
}
SIZES = ((100, 30), (240, 50), (20, 8)) if IS_LONG else ((100, 30),)


def events_named(names: Iterable[str]) -> Iterator[Event]:
    """Yield the events of a task and a worker for each name: all that they say is that name."""
    for number, name in enumerate(names):
        at = float(number)
        uuid = f"t{number}-{name}"
        family = {"root_id": "t0", "parent_id": None if number == 0 else name}
        yield Sent(
            uuid=uuid,
            name=name,
            queue=name,
            exchange=name,
            routing_key=name,
            timestamp=HOUR_AT + at,
            clock=1,
            hostname=name,
            local_received=HOUR_AT + at,
        )
        yield received(uuid, at, name=name, args=name, kwargs=name, eta=name, expires=name, **family)
        yield started(uuid, at + 0.1)
        yield failed(uuid, at + 0.2, exception=name, traceback=f"{name}\n{name}")
        yield heartbeat(at + 0.3, hostname=name, sw_ident=name, sw_ver=name, sw_sys=name)


def check(person: Person, size: tuple[int, int]) -> None:
    """Look at the screen: plain characters alone, and as many lines as there is room for."""
    width, height = size
    strips = person.top.screen._compositor.render_strips()
    assert len(strips) <= height
    for strip in strips:
        assert strip.text.isprintable(), strip.text
        assert strip.cell_length <= width, strip.text
        for segment in strip:
            assert segment.style is None or segment.style.link is None
            # What a click does is said by Textual alone: a row of a footer, never a name.
            assert "quit()" not in str(segment.style.meta if segment.style else "")


async def look_everywhere(person: Person, size: tuple[int, int]) -> None:
    """Go over the list, and from each of some tasks and workers to all that can be seen of it."""
    await person.waits_for(lambda: "FAILURE" in person.text)
    check(person, size)
    for _ in range(3):
        await person.press("enter")
        await person.waits_for(lambda: type(person.top.screen).__name__ == "TaskScreen")
        await person.waits_for(lambda: " task " in person.text)
        check(person, size)
        await person.press("pagedown")
        check(person, size)
        await person.press("p")
        check(person, size)
        await person.press("w")
        await person.waits_for(lambda: type(person.top.screen).__name__ == "WorkflowScreen")
        check(person, size)
        while type(person.top.screen).__name__ != "ClusterScreen":
            await person.press("escape")
        await person.press("down")
    # The tasks of a worker: its name is put into the search box.
    await person.press("tab", "down", "enter")
    check(person, size)
    await person.press("escape", "r")
    check(person, size)
    await person.press("escape", "question_mark")
    check(person, size)


def show(names: Iterable[str], size: tuple[int, int]) -> Top:
    async def looks(person: Person) -> None:
        await look_everywhere(person, size)

    return sit_down(past(*events_named(names)), looks, size=size)


def check_end(top: Top) -> None:
    assert top.fault is None
    assert top.return_code in (None, 0)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", NAMES if IS_LONG else ["all"])
def test_screens_show_hostile_names_as_plain_text(name: str, size: tuple[int, int]) -> None:
    names = [*NAMES.values()] if name == "all" else [NAMES[name]] * 3

    check_end(show(names, size))


@pytest.mark.parametrize("seed", range(200 if IS_LONG else 1))
def test_screens_show_names_of_any_characters_as_plain_text(seed: int) -> None:
    chance = random.Random(seed)
    parts = [*NAMES.values(), *map(chr, range(256)), "[", "]", "[/", "\\", "\\["]
    names = ["".join(chance.choices(parts, k=chance.randrange(1, 12)))[:2000] for _ in range(5)]

    check_end(show(names, (120, 30)))


def test_live_screens_show_hostile_names_that_came_from_a_broker_as_plain_text() -> None:
    # An event of a broker has no more than 256 KiB.
    names = [name[:10_000] for name in NAMES.values() if name and name.isascii()]
    size = (120, 40)

    with rig() as cluster:

        async def looks(person: Person) -> None:
            for number, name in enumerate(names):
                cluster.send("task-sent", uuid=f"t{number}", name=name, args=name, kwargs=name, queue=name)
                if number < len(names) - 1:
                    cluster.send("task-failed", uuid=f"t{number}", exception=name, traceback=name)
            await person.waits_for(lambda: f"{len(names)} tasks" in person.text)
            for key in islice(cycle(["enter", "escape", "down"]), 12):
                await person.press(key)
                check(person, size)
            await person.press("home", "r")
            await person.sees("Revoke ")
            check(person, size)
            await person.press("y")
            await person.sees("revoked")
            check(person, size)

        top = sit_down(cluster.sight, looks, revoke=cluster.revoke, size=size)

    check_end(top)
