"""The first screen shows a cluster, and of its tasks no more than there is room for."""

import re
from threading import Event as Flag
from time import time
from typing import Any

import pytest
from textual.events import Key

from celeriac.model.clock import NO_CLOCK
from celeriac.model.events import Gap
from celeriac.node.state import State
from celeriac.tui import cluster
from celeriac.views.task_list import TaskFilter, TaskPage, task_page
from tests.event_logs import HOUR_AT, failed, heartbeat, received, started, succeeded
from tests.tui.kit import HOSTILE, PATIENCE, Person, past, rig, sit_down

SHOP = (
    received("t1", 1.0, args="('Lovelace',)", kwargs="{}"),
    started("t1", 2.0),
    succeeded("t1", 3.0, result="'paid'", runtime=0.25),
    received("t2", 4.0, name="mail.send"),
    failed("t2", 5.0, exception="OSError('no route')"),
    heartbeat(55.0, active=3, processed=1234, loadavg=(1.5, 1.0, 0.5)),
    heartbeat(1.0, hostname="gone@web2", freq=2.0),
)


def gap(since: float = HOUR_AT, until: float = HOUR_AT + 50) -> Gap:
    """Return a time when events may have been missed, for a reason that a peer made up."""
    return Gap(
        timestamp=HOUR_AT,
        local_received=HOUR_AT,
        clock=NO_CLOCK,
        hostname="w1@lab",
        since=since,
        until=until,
        reason=HOSTILE,
        attempts=1,
    )


def firsts(person: Person, *beginnings: str) -> list[str]:
    """Return the first words of the lines that begin so."""
    return [line.split()[0] for line in person.lines if line.startswith(beginnings)]


@pytest.mark.parametrize("size", [(80, 24), (100, 30), (200, 60)])
def test_the_tables_show_what_the_state_has(size: tuple[int, int]) -> None:
    async def looks(person: Person) -> None:
        await person.sees("shop.pay", "mail.send", "SUCCESS", "FAILURE", "250 ms", "'paid'", "OSError('no")
        await person.sees("celery@web1", "ALIVE", "1,234", "1.5", "gone@web2", "LOST")
        await person.sees("7 events", "2 tasks", "1 SUCCESS  1 FAILURE", "2 workers")
        await person.sees(
            "Workers lost (no heartbeat, no shutdown event): gone@web2", "past", "memory", "q Quit"
        )

    sit_down(past(*SHOP), looks, size=size)


def test_rates_of_a_time_that_nobody_watched_are_told_as_unknown() -> None:
    async def looks(person: Person) -> None:
        await person.sees("- received, - succeeded, - failed, - retried")

    # Nothing was recorded in the last minutes; and the reception was interrupted.
    sit_down(past(*SHOP, until=HOUR_AT + 600.0), looks)
    sit_down(past(heartbeat(59.0), gap(since=HOUR_AT - 60, until=HOUR_AT + 90)), looks)


def test_workers_that_need_attention_come_first_and_tasks_that_were_heard_of_last() -> None:
    async def looks(person: Person) -> None:
        await person.waits_for(lambda: len(firsts(person, "gone@", "celery@")) == 2)
        await person.sees("shop.pay")

        assert firsts(person, "gone@", "celery@") == ["gone@web2", "celery@web1"]
        tasks = [line.split()[2] for line in person.lines if re.match(r"\d\d:\d\d:\d\d ", line)]
        assert tasks == ["mail.send", "shop.pay"]

    sit_down(past(*SHOP), looks)


def test_what_happens_is_shown_as_it_happens() -> None:
    with rig() as cluster_:

        async def looks(person: Person) -> None:
            await person.sees("No tasks yet.", "live")
            cluster_.send("task-received", uuid="a", name="shop.pay", args="()", kwargs="{}")
            await person.sees("shop.pay", "RECEIVED")
            cluster_.send("task-succeeded", uuid="a", result="1", runtime=0.5)
            await person.sees("SUCCESS", "500 ms")

        sit_down(cluster_.sight, looks)


def test_a_pause_leaves_all_as_it_is_until_it_ends() -> None:
    with rig() as cluster_:

        async def looks(person: Person) -> None:
            await person.sees("No tasks yet.")
            await person.press("space")
            await person.sees("PAUSED")
            cluster_.send("task-received", uuid="a", name="shop.pay", args="()", kwargs="{}")
            await person.waits_for(lambda: "a" in cluster_.watcher.state.tasks)
            assert "shop.pay" not in person.text
            await person.press("space")
            await person.sees("shop.pay")
            await person.sees_no("PAUSED")

        sit_down(cluster_.sight, looks)


@pytest.mark.parametrize(
    ("query", "found", "left_out"),
    [
        ("state:FAILURE", "mail.send", "shop.pay"),
        ("name:shop.*", "shop.pay", "mail.send"),
        ("lovelace", "shop.pay", "mail.send"),
        ("worker:celery@* no route", "mail.send", "shop.pay"),
        ("since:-56s", "mail.send", "shop.pay"),
        ("until:-56s", "shop.pay", "mail.send"),
    ],
)
def test_a_search_narrows_and_escape_widens_it_again(query: str, found: str, left_out: str) -> None:
    async def searches(person: Person) -> None:
        await person.sees(found, left_out)
        await person.press("slash")
        await person.type(query)
        await person.sees_no(left_out)
        assert found in person.text
        await person.press("enter")
        assert query in person.text
        await person.press("escape")
        await person.sees(found, left_out)
        assert query not in person.text

    sit_down(past(*SHOP), searches)


def test_a_time_that_is_searched_for_goes_on_with_the_cluster() -> None:
    with rig() as cluster_:

        async def searches(person: Person) -> None:
            cluster_.send("task-received", uuid="a", name="shop.pay", args="()", kwargs="{}")
            await person.sees("shop.pay")
            await person.press("slash")
            await person.type("since:-1h")
            await person.sees("since:-1h", "shop.pay")
            later = time() + 3700.0
            cluster_.sight._now = lambda: later
            await person.sees_no("shop.pay")
            await person.sees("No task in memory matches the search")

        sit_down(cluster_.sight, searches)


def test_a_search_that_nothing_fits_says_so() -> None:
    async def searches(person: Person) -> None:
        await person.press("slash")
        await person.type("nosuch")
        await person.sees("No task in memory matches the search")

    sit_down(past(*SHOP), searches)


def test_keys_that_mean_something_are_letters_in_the_search_box() -> None:
    async def searches(person: Person) -> None:
        await person.press("slash")
        await person.type("qrw jk")
        await person.sees("qrw jk")

    top = sit_down(past(*SHOP), searches)

    assert not top.is_paused


def test_enter_on_a_worker_shows_its_tasks_alone() -> None:
    theirs = succeeded("t9", 9.0).__class__(
        uuid="t9", timestamp=HOUR_AT + 9, clock=1, hostname="w[2]@lab", local_received=HOUR_AT + 9
    )
    events = (*SHOP[:3], theirs, heartbeat(55.0), heartbeat(55.0, hostname="w[2]@lab"))

    async def chooses(person: Person) -> None:
        await person.sees("shop.pay", "w[2]@lab")
        await person.press("shift+tab", "down", "enter")
        await person.sees('worker:"w[[]2]@lab"')
        await person.sees_no("shop.pay")
        await person.sees("(unknown)")

    sit_down(past(*events), chooses)


def test_pages_are_turned_at_the_ends_of_the_list() -> None:
    events = [received(f"t{number:03}", 0.1 * number, name=f"task-{number:03}") for number in range(100)]

    async def turns(person: Person) -> None:
        await person.sees("task-099")
        await person.press("pagedown")
        await person.sees_no("task-099")
        await person.sees("page 2")
        await person.waits_for(lambda: "task-0" in person.text)
        second = person.text
        await person.press("pagedown")
        await person.sees("page 3")
        await person.press("pageup")
        await person.waits_for(lambda: person.text == second)
        await person.press("home")
        await person.sees("task-099")
        await person.sees_no("page 2")

    sit_down(past(*events), turns)


def test_the_cursor_stays_with_its_task_while_others_come() -> None:
    with rig() as cluster_:

        async def follows(person: Person) -> None:
            for uuid in ("a", "b", "c"):
                cluster_.send("task-received", uuid=uuid, name=f"shop.{uuid}", args="()", kwargs="{}")
            await person.sees("shop.a", "shop.b", "shop.c")
            await person.press("down")
            cluster_.send("task-received", uuid="d", name="shop.d", args="()", kwargs="{}")
            await person.sees("shop.d")
            await person.press("enter")
            await person.sees(" task   shop.b  b")

        sit_down(cluster_.sight, follows)


def test_names_from_peers_do_nothing_but_show() -> None:
    events = (
        received("t1", 1.0, name=HOSTILE, args=HOSTILE, kwargs="{}"),
        failed("t1", 2.0, exception=HOSTILE, traceback=HOSTILE),
        heartbeat(55.0, hostname=HOSTILE),
        gap(),
    )

    async def looks(person: Person) -> None:
        await person.sees(r"\x1b[31m\x9b2J\nroot# \u202e[bold red]x[/] [@click=app.quit]y[/] :bomb:")
        assert all(line.isprintable() for line in person.lines)
        await person.press("enter")
        await person.sees("EVENT HISTORY", r"\nroot# \u202e[bold red]x[/] [@click=app.quit]y[/]")
        assert all(line.isprintable() for line in person.lines)
        await person.press("w")
        await person.sees("critical path", "[bold red]x[/]")
        assert all(line.isprintable() for line in person.lines)

    sit_down(past(*events), looks, size=(240, 50))


def test_a_name_like_markup_is_shown_as_it_is_in_a_notice_and_in_a_question() -> None:
    with rig() as cluster_:

        async def looks(person: Person) -> None:
            cluster_.send("task-received", uuid="[red]id[/]", name="[bold]x[/bold]", args="()", kwargs="{}")
            await person.sees("[bold]x[/bold]")
            await person.press("r")
            await person.sees("Revoke [bold]x[/bold]", "[red]id[/]")
            await person.press("y")
            await person.sees("revoked [red]id[/]")

        sit_down(cluster_.sight, looks, revoke=cluster_.revoke)


def test_of_200_000_tasks_only_those_are_asked_for_that_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    many = 200_000
    events = (received(f"t{number}", 0.0001 * number) for number in range(many))
    sight = past(*events, max_tasks_in_memory=many)
    limits: list[int] = []
    monkeypatch.setattr(sight.scene.state, "all_tasks", lambda: pytest.fail("all tasks were read"))

    def asked(*arguments: Any, limit: int, **options: Any) -> TaskPage:
        limits.append(limit)
        return task_page(*arguments, limit=limit, **options)

    async def looks(person: Person) -> None:
        monkeypatch.setattr(cluster, "task_page", asked)
        limits.clear()
        await person.sees("200,000 tasks", "shop.pay")
        await person.waits_for(lambda: len(limits) >= 3)
        await person.press("pagedown")
        await person.sees("page 2")

    sit_down(sight, looks)

    assert len(sight.scene.state.tasks) == many
    assert max(limits) <= 30


def test_a_look_that_is_not_over_is_not_begun_again_and_the_last_query_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_end = Flag()
    asked_for: list[str | None] = []

    def asked(state: State, wanted: TaskFilter, *arguments: Any, **options: Any) -> TaskPage:
        asked_for.append(wanted.text)
        assert may_end.wait(PATIENCE)
        return task_page(state, wanted, *arguments, **options)

    async def looks(person: Person) -> None:
        await person.sees("mail.send", "shop.pay")
        monkeypatch.setattr(cluster, "task_page", asked)
        await person.press("slash", "l")
        await person.waits_for(lambda: bool(asked_for))
        began = len(asked_for)
        await person.type("ovelace")
        assert len(asked_for) == began
        may_end.set()
        await person.sees_no("mail.send")
        assert "lovelace" in person.text

    sit_down(past(*SHOP), looks)

    # None of the texts in between was looked for.
    assert set(asked_for) <= {None, "l", "lovelace"}


def test_what_is_typed_at_once_after_the_slash_goes_into_the_search_box() -> None:
    async def types(person: Person) -> None:
        await person.sees("mail.send")
        for char in "/qr/w":
            person.top.post_message(Key({"/": "slash"}.get(char, char), char))
        await person.sees("qr/w")

    sit_down(past(*SHOP), types)
