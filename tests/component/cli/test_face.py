"""Faces show what happens, in lines or on a screen, and can do nothing else to a terminal."""

import re
from io import StringIO

import pytest
from rich.console import Console

from celeriac import State
from celeriac.cli.face import Lines, Rate, Screen
from celeriac.cli.viewing import view_cluster
from celeriac.errors import ConnectionLost
from celeriac.programs.process import wait_until
from tests.builders import task
from tests.component.cli.kit import HOSTILE, Cluster, heartbeat, is_harmless


def drawn(screen: Screen, state: State, written: StringIO, console: Console) -> str:
    """Return what a screen shows, without the codes that only choose a colour."""
    console.print(screen.picture(state, now=1.0))
    return re.sub(r"\x1b\[[\d;]*m", "", written.getvalue())


def console(width: int = 120, height: int = 40) -> tuple[Console, StringIO]:
    written = StringIO()
    return Console(file=written, width=width, height=height, force_terminal=True), written


def test_the_screen_shows_workers_tasks_and_events() -> None:
    state = State()
    state.event(heartbeat("celery@web1"))
    state.event(task("succeeded", "t1"))
    on, written = console()

    shown = drawn(Screen(["broker  here"], on), state, written, on)

    assert "broker  here" in shown
    assert "2 events" in shown
    assert re.search(r"celery@web1 +offline +1 +7 +2.55 1.6 0.73 +py-celery 5.7.0", shown)
    assert re.search(r"SUCCESS +1", shown)


@pytest.mark.parametrize("height", [24, 30, 40])
def test_the_screen_is_not_higher_than_the_terminal(height: int) -> None:
    state = State()
    for number in range(50):
        state.event(heartbeat(f"celery@web{number}"))
        state.event(task(f"odd{number % 3}", f"t{number}"))
    on, written = console(height=height)

    shown = drawn(Screen(["broker  here"] * 8, on), state, written, on)

    assert len(shown.splitlines()) <= height


def test_the_last_events_are_on_the_screen(cluster: Cluster) -> None:
    cluster.add_speaker(*(task("started", f"t{number:03}") for number in range(300)))
    on, written = console()
    screen = Screen([], on)

    with view_cluster(cluster.app()) as view:
        assert wait_until(lambda: len(view.waiting) == 300, patience=120)
        screen.show(view)
    shown = drawn(screen, view.state, written, on)

    assert "t299" in shown
    assert "t100" not in shown


def test_hostile_text_on_the_screen_emits_no_escape_code(cluster: Cluster) -> None:
    cluster.add_speaker(heartbeat(HOSTILE), task("failed", HOSTILE, exception=HOSTILE), task(HOSTILE, "t2"))
    on, written = console(width=300)
    screen = Screen([], on)

    with view_cluster(cluster.app()) as view:
        assert wait_until(lambda: len(view.waiting) == 3, patience=120)
        screen.show(view)
    shown = drawn(screen, view.state, written, on)

    assert "\\x1b[31m" in shown
    assert is_harmless(shown)


def test_a_viewing_raises_what_ended_it_where_it_is_asked(cluster: Cluster) -> None:
    cluster.broker.stop()

    with view_cluster(cluster.app()) as view:
        assert wait_until(lambda: not view.is_listening, patience=120)

        with pytest.raises(ConnectionLost):
            view.check()


def test_events_that_nobody_takes_away_are_counted_and_not_kept(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("celeriac.cli.viewing._MOST_WAITING", 2)
    cluster.add_speaker(*(task("started", f"t{number}") for number in range(5)))

    with view_cluster(cluster.app()) as view:
        assert wait_until(lambda: view.state.event_count == 5, patience=120)

    assert view.overlooked == 3
    assert len(view.taken()) == 2


def test_a_rate_is_that_of_the_last_seconds() -> None:
    rate = Rate()

    rates = [rate.update(number, now=now) for number, now in ((0, 0.0), (10, 1.0), (20, 2.0), (20, 20.0))]

    assert rates == [0.0, 10.0, 10.0, 0.0]


def test_lines_end_with_the_totals(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.add_speaker(task("started"))

    with view_cluster(cluster.app()) as view, Lines() as face:
        assert wait_until(lambda: view.state.event_count == 1, patience=120)
        face.show(view)

    assert capsys.readouterr().out.endswith("1 events; 1 of 1 workers online; 1 tasks, 1 STARTED\n")


def test_hostile_text_in_lines_emits_no_escape_code(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.add_speaker(task("failed", HOSTILE, exception=HOSTILE, hostname=HOSTILE), task(HOSTILE, HOSTILE))

    with view_cluster(cluster.app()) as view, Lines() as face:
        assert wait_until(lambda: len(view.waiting) == 2, patience=120)
        face.show(view)

    shown = capsys.readouterr().out
    assert "\\x1b[31m" in shown
    assert is_harmless(shown)
