"""The program shows a cluster, a log and a replay alike, and ends as it should."""

import json
import os
import pwd
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from time import time
from typing import Any

import pytest
import typer
from textual.pilot import Pilot
from typer.testing import CliRunner, Result

from celeriac.app import Celeriac
from celeriac.cli.option import add_command, add_common
from celeriac.cli.session import Session
from celeriac.cli.top import top as command
from celeriac.errors import ConnectionLost
from celeriac.node.replay import Replay
from celeriac.programs.port import ReservedPort
from celeriac.programs.process import wait_until
from celeriac.transport.memory import MemoryBroker
from celeriac.tui.sight import PlayedSight, Stopwatch
from celeriac.tui.top import Top
from tests.event_logs import HOUR_AT, heartbeat, received, seal, succeeded
from tests.tui.kit import PATIENCE, Person, Shelf, past, sit_down


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
def test_it_ends_when_told_to(key: str) -> None:
    async def quits(person: Person) -> None:
        await person.sees("shop.pay")
        await person.press(key)

    top = sit_down(past(received("t1")), quits)

    assert top.return_code == 0
    assert top.fault is None


def test_timer_that_fires_after_the_screens_are_closed_does_nothing() -> None:
    async def looks(person: Person) -> None:
        await person.sees("shop.pay")

    top = sit_down(past(received("t1")), looks)
    assert top.screen_stack == []

    top._tick()

    assert top.fault is None


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_when_a_signal_tells_it_to(number: signal.Signals) -> None:
    async def is_told(person: Person) -> None:
        await person.sees("shop.pay")
        os.kill(os.getpid(), number)
        await person.waits_for(lambda: person.top.return_code is not None)

    top = sit_down(past(received("t1")), is_told)

    assert top.return_code == 0


@pytest.mark.usefixtures("default_signals")
def test_it_keeps_ignoring_a_signal_that_was_ignored_when_it_started() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    seen: list[object] = []

    async def looks(person: Person) -> None:
        await person.sees("shop.pay")
        seen.append(signal.getsignal(signal.SIGINT))
        os.kill(os.getpid(), signal.SIGTERM)
        await person.waits_for(lambda: person.top.return_code is not None)

    top = sit_down(past(received("t1")), looks)

    assert (seen, top.return_code) == ([signal.SIG_IGN], 0)


def test_the_keys_are_told_and_the_page_goes_away_again() -> None:
    async def asks(person: Person) -> None:
        await person.sees("shop.pay")
        await person.press("question_mark")
        await person.sees("Keys", "the workflow of the task")
        await person.press("escape")
        await person.sees_no("Keys")

    sit_down(past(received("t1")), asks)


def test_a_replay_goes_on_while_it_is_shown() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    events = [
        heartbeat(0.0),
        received("t1", 1.0),
        received("t2", 20.0, name="mail.send"),
        succeeded("t1", 50.0),
    ]
    replay = Replay(Shelf(events), until=HOUR_AT + 60, speed=10.0, clock=watch)

    async def looks(person: Person) -> None:
        # It counts from its first event.
        assert wait_until(lambda: bool(sight.scene.state.workers), patience=PATIENCE)
        clock.now = 0.2
        await person.sees("replay, 10x", "shop.pay", "RECEIVED")
        assert "mail.send" not in person.text
        clock.now = 2.5
        await person.sees("mail.send")
        clock.now = 100.0
        await person.sees("1 SUCCESS", "replay, at its end")

    with PlayedSight(replay, watch, place="memory") as sight:
        sit_down(sight, looks)


def test_a_replay_that_is_paused_stands_still() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    replay = Replay(Shelf([received("t1", 1.0), succeeded("t1", 20.0)]), speed=1.0, clock=watch)

    async def looks(person: Person) -> None:
        await person.sees("RECEIVED")
        await person.press("space")
        await person.sees("PAUSED")
        clock.now = 1000.0
        assert watch() == 0.0
        await person.press("space")
        clock.now = 1100.0
        await person.sees("SUCCESS")

    with PlayedSight(replay, watch, place="memory") as sight:
        sit_down(sight, looks)


class Broken(Shelf):
    """A log that cannot be read."""

    def recorders(self) -> list[str]:
        raise ConnectionLost("the store is away")


def test_what_ends_the_coming_of_events_ends_the_program_and_is_raised() -> None:
    watch = Stopwatch()

    async def waits(person: Person) -> None:
        await person.waits_for(lambda: person.top.return_code is not None)

    with PlayedSight(Replay(Broken([]), clock=watch), watch, place="memory") as sight:
        top = sit_down(sight, waits)

    assert top.fault is None
    with pytest.raises(ConnectionLost, match="the store is away"):
        sight.check()


def test_what_is_logged_becomes_a_notice() -> None:
    async def looks(person: Person) -> None:
        person.top.tell("warning: [b]clocks[/b] disagree\x1b[2J")
        await person.sees(r"[b]clocks[/b] disagree\x1b[2J")

    sit_down(past(received("t1")), looks)


# -- the command


def run(*arguments: str, broker: Any = None, is_attended: bool = True) -> Result:
    program = typer.Typer()
    add_common(program)
    add_command(program, "top")(command)

    def assemble(**given: Any) -> Celeriac:
        return Celeriac(broker or given["broker"], environ={})

    session = Session(assemble=assemble, is_attended=lambda: is_attended)
    return CliRunner().invoke(program, ["top", *arguments], obj=session, env={"TERM": "xterm"})


def have_done(
    monkeypatch: pytest.MonkeyPatch, does: Callable[[Person], Coroutine[Any, Any, None]]
) -> list[str]:
    """Have somebody do something when the program runs, without a terminal; return what was shown last."""
    seen: list[str] = []
    run_it = Top.run

    def run_headless(top: Top, **_: Any) -> None:
        async def sit(pilot: Pilot[Any]) -> None:
            person = Person(top, pilot)
            await does(person)
            seen.append(person.text)
            top.exit()

        run_it(top, headless=True, size=(100, 30), auto_pilot=sit)

    monkeypatch.setattr(Top, "run", run_headless)
    return seen


def test_a_cluster_is_watched_and_to_quit_is_code_0(monkeypatch: pytest.MonkeyPatch) -> None:
    async def looks(person: Person) -> None:
        await person.sees("live", "No tasks yet.")

    seen = have_done(monkeypatch, looks)

    result = run(broker=MemoryBroker())

    assert result.exit_code == 0, result.output
    assert len(seen) == 1


def test_what_the_log_has_of_the_last_hour_is_known_from_the_beginning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ago = time() - HOUR_AT
    events = [received("old", ago - 4000.0, name="too.early"), received("t1", ago - 600.0)]
    seal(tmp_path / ".celeriac" / "log", events)
    monkeypatch.chdir(tmp_path)

    async def looks(person: Person) -> None:
        await person.sees("live", "shop.pay", "RECEIVED")

    seen = have_done(monkeypatch, looks)

    result = run(broker=MemoryBroker())

    assert result.exit_code == 0, result.output
    assert "too.early" not in seen[0]


def test_a_log_that_cannot_be_read_here_keeps_nobody_from_watching(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".celeriac" / "log").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "celeriac.store.event_log", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    async def looks(person: Person) -> None:
        await person.sees("live", "No tasks yet.")

    have_done(monkeypatch, looks)

    result = run(broker=MemoryBroker())

    assert result.exit_code == 0, result.output
    assert ".celeriac/log is not read: the history needs pyarrow" in result.output


def test_a_broker_that_is_not_there_is_code_69_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    port = ReservedPort()

    async def waits(person: Person) -> None:
        await person.waits_for(lambda: person.top.return_code is not None)

    have_done(monkeypatch, waits)

    result = run("--broker", f"redis://:hush@127.0.0.1:{port.number}/0")
    port.release()

    assert result.exit_code == 69
    assert "Start it, or name another with --broker URL" in result.output
    assert "hush" not in result.output


def test_a_log_is_shown_as_of_an_instant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seal(tmp_path, [received("t1", 1.0), succeeded("t1", 50.0)])

    async def looks(person: Person) -> None:
        await person.sees("past", "shop.pay", "RECEIVED")

    seen = have_done(monkeypatch, looks)

    result = run("--log", str(tmp_path), "--until", "2026-09-21T15:00:20Z")

    assert result.exit_code == 0, result.output
    assert "SUCCESS" not in seen[0]


def test_a_log_is_shown_over_a_replay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seal(tmp_path, [received("t0", 1.0, name="too.early"), received("t1", 30.0), succeeded("t1", 50.0)])

    async def looks(person: Person) -> None:
        await person.sees("replay, at its end", "shop.pay", "SUCCESS")

    seen = have_done(monkeypatch, looks)

    result = run("--log", str(tmp_path), "--since", "2026-09-21T15:00:20Z", "--speed", "10000x")

    assert result.exit_code == 0, result.output
    assert "too.early" not in seen[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--log", "nowhere"), "No event log in "),
        (("--until", "now", "--allow-control"), "Leave it out with an event log"),
        (("--log", "x", "--speed", "fast"), "10x, 0.5x, or max"),
    ],
)
def test_what_cannot_be_is_said_before_the_screen_is_filled(
    arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    seal(tmp_path / "x", [received("t1", 1.0)])

    result = run(*arguments, broker=MemoryBroker())

    assert result.exit_code == 2
    assert said in result.output


def test_a_revoke_is_noted_with_who_did_it_to_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broker = MemoryBroker()
    audit = tmp_path / "audit.jsonl"
    monkeypatch.setattr("celeriac.cli.top._PATIENCE", 0.01)
    monkeypatch.setenv("USER", "somebody-else")

    async def revokes(person: Person) -> None:
        await person.sees("live")
        with Celeriac(broker, environ={}).events.Dispatcher(hostname="w1@lab") as events:
            events.send("task-received", uuid="a\n", name="shop.pay", args="()", kwargs="{}")
        await person.sees("shop.pay")
        await person.press("r")
        await person.sees("Revoke shop.pay")
        assert audit.read_text() == ""
        await person.press("y")
        await person.sees("no worker answered")

    have_done(monkeypatch, revokes)
    result = run("--allow-control", "--audit", str(audit), broker=broker)

    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    who = {"user": pwd.getpwuid(os.getuid()).pw_name, "role": "operator"}
    assert [{**line, "at": 0} for line in lines] == [
        {"at": 0, **who, "action": "revoke", "targets": ["a\n"]},
        {"at": 0, **who, "action": "revoke done", "replies": {}},
    ]


def test_a_file_that_cannot_be_written_is_told_before_the_screen_is_filled(tmp_path: Path) -> None:
    result = run("--allow-control", "--audit", str(tmp_path), broker=MemoryBroker())

    assert result.exit_code == 1
    assert "free disk space, or name a writable file with --audit" in result.output


def test_without_a_terminal_it_names_what_to_use_instead() -> None:
    result = run(broker=MemoryBroker(), is_attended=False)

    assert result.exit_code == 2
    assert "celeriac events" in result.output


def test_without_the_package_it_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("textual", "celeriac.tui"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual", None)

    result = run(broker=MemoryBroker())

    assert result.exit_code == 78
    assert "pip install 'celeriac[tui]'" in result.output


def test_a_fault_of_the_program_is_raised_without_the_values_of_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def looks(person: Person) -> None:
        await person.waits_for(lambda: person.top.return_code is not None)

    def fail(_: object) -> None:
        secret = "hunter2"  # noqa: F841, S105
        raise ZeroDivisionError("a fault")

    have_done(monkeypatch, looks)
    monkeypatch.setattr(Top, "_tick", fail)

    result = run(broker=MemoryBroker())

    assert result.exit_code == 1
    assert "internal error" in result.output
    assert "hunter2" not in result.output
