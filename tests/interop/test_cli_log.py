"""The history on the command line: commands on a log as a recorder writes it, some in their own processes."""

import csv
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from io import BytesIO, StringIO
from pathlib import Path
from time import monotonic, tzset
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from celeriac.model.events import (
    Event,
    Failed,
    Gap,
    Received,
    Started,
    Succeeded,
    WorkerHeartbeat,
)
from celeriac.programs.process import wait_until
from celeriac.store.log_writer import LogWriter
from celeriac.store.place import place_for
from tests.program import Program, own_environment, run_here, run_program

PATIENCE = 60.0
#: 2026-11-14T10:00Z.
TEN = 1_794_650_400.0
TASKS = 100


def at(second: float, **fields: Any) -> dict[str, Any]:
    """Return what every event says that happened so many seconds after ten."""
    moment = TEN + second
    return {"timestamp": moment, "local_received": moment, "clock": int(second * 10) + 1, "pid": 7, **fields}


def story() -> Iterator[list[Event]]:
    """Yield messages: a hundred tasks, one a second, each tenth fails; w2 dies after a minute."""
    for second in range(TASKS):
        uuid = f"t{second:03d}"
        own: dict[str, Any] = {"hostname": "w1@lab", "uuid": uuid}
        end: Event = Succeeded(**at(second + 0.5, **own), result="42", runtime=0.4)
        if second % 10 == 0:
            end = Failed(**at(second + 0.5, **own), exception="ValueError('no')")
        yield [
            Received(**at(second, **own), name="shop.fail" if second % 10 == 0 else "shop.pay"),
            Started(**at(second + 0.1, **own)),
            WorkerHeartbeat(**at(second + 0.2, hostname="w1@lab"), freq=2.0, active=1, processed=second),
        ]
        yield [end]
        if second < 60:
            yield [WorkerHeartbeat(**at(second + 0.6, hostname="w2@lab"), freq=2.0, active=0, processed=0)]
    yield [
        Gap(
            **at(TASKS, hostname="r@lab"), since=TEN + 90, until=TEN + 91, reason="the link broke", attempts=1
        )
    ]


EVENTS = [event for message in story() for event in message]


def unchanged(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def writer_of(root: Path, name: str) -> LogWriter:
    return LogWriter(
        place_for(root),
        spool=root / "spool",
        name=name,
        redact=unchanged,
        segment_bytes=1 << 30,
        segment_age=300.0,
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of four segments."""
    root = tmp_path / "history"
    writer = writer_of(root, "r")
    quarter = len(EVENTS) // 4
    for number in range(4):
        end = None if number == 3 else (number + 1) * quarter
        with writer:
            writer.append(EVENTS[number * quarter : end])
    return root


@pytest.fixture
def doubled(log: Path) -> Path:
    """A log of two recorders that saw the same."""
    with writer_of(log, "second") as writer:
        writer.append([event for event in EVENTS if not isinstance(event, Gap)])
    return log


@pytest.fixture
def unsealed(tmp_path: Path) -> Iterator[Path]:
    """A log whose recorder is at work, and has sealed nothing yet."""
    root = tmp_path / "fresh"
    with writer_of(root, "r") as writer:
        writer.append(EVENTS)
        writer.sync()
        yield root


def segments(log: Path) -> list[Path]:
    return sorted(log.glob("events/*/*/*.parquet"))


def environment() -> dict[str, str]:
    """Return the environment of somebody two hours east of Greenwich."""
    return own_environment(TZ="Etc/GMT-2")


@pytest.fixture(autouse=True)
def east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Be there as well."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", environment()["TZ"])
        tzset()
        yield
    tzset()


def run(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end."""
    return run_here(*map(str, arguments), env=environment())


def run_apart(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end in a process of its own."""
    done = run_program(*map(str, arguments), env=environment())
    out, err = (said.encode(errors="surrogateescape") for said in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def told(*arguments: str | Path) -> Any:
    """Run a command, and return the JSON that it tells."""
    result = run(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def json_lines(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


# -- replay


def test_replay_tells_who_was_alive_at_an_instant_and_what_had_become_of_the_tasks(log: Path) -> None:
    early = told("replay", log, "--until", "2026-11-14T10:00:50Z")
    late = told("replay", log, "--until", "2026-11-14T10:01:20Z")

    assert {row["name"]: row["status"] for row in early["workers"]} == {
        "w1@lab": "online",
        "w2@lab": "online",
    }
    assert {row["name"]: row["status"] for row in late["workers"]} == {
        "w1@lab": "online", "w2@lab": "offline",
    }  # fmt: skip
    assert early["totals"]["tasks_by_state"] == {"SUCCESS": 45, "FAILURE": 5, "RECEIVED": 1}
    assert (early["gaps"], early["as_of"]) == ([], TEN + 50)
    assert [task["uuid"] for task in early["tasks"][:2]] == ["t050", "t049"]


def test_replay_tells_people_in_their_own_time_and_says_so(log: Path) -> None:
    result = run("replay", log, "--until", "2026-11-14T12:00:50")

    out = result.stdout.decode()
    assert result.returncode == 0
    assert out.startswith("as of 2026-11-14T12:00:50+02:00: 2 of 2 workers online, 51 tasks, 251 events\n")
    assert "w2@lab  online" in out
    assert "12:00:50.000  task-received     w1@lab  shop.fail[t050]" in out.splitlines()[-1]
    assert result.stderr.decode() == ("--until 2026-11-14T12:00:50: local time, 2026-11-14T12:00:50+02:00\n")


def test_replay_of_all_stands_at_the_end_and_tells_the_gaps(log: Path) -> None:
    whole = told("replay", log)

    assert whole["totals"]["events"] == len(EVENTS)
    assert [gap["reason"] for gap in whole["gaps"]] == ["the link broke"]


def test_replay_of_one_task_tells_it_and_the_gaps_that_may_hide_more(log: Path) -> None:
    result = run("replay", log, "--task", "shop.fail", "--until", "2026-11-14T10:02Z")

    out = result.stdout.decode()
    assert "10 tasks, 30 events" in out.splitlines()[0]
    assert out.count("shop.fail  FAILURE") == 10
    assert "GAP: events from 12:01:30.000 to 12:01:31.000 may be missing: the link broke" in (
        result.stderr.decode()
    )


def test_replay_counts_and_shows_once_what_two_recorders_have(doubled: Path) -> None:
    past = told("replay", doubled)

    assert past["totals"]["events"] == len(EVENTS)
    last = [json.dumps(event, sort_keys=True) for event in past["last_events"]]
    assert len(last) == len(set(last)) == 10


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (("--task", "nosuch", "--worker", "w1@*"), " that match --task nosuch and --worker w1@*"),
        (("--until", "2025-01-01T00:00Z"), " until 2025-01-01T02:00:00+02:00"),
    ],
)
def test_replay_that_finds_nothing_says_what_was_asked_for(
    log: Path, options: tuple[str, ...], asked: str
) -> None:
    result = run("replay", log, *options)

    assert result.stderr.decode() == f"No events{asked}\n"


@pytest.mark.parametrize("command", [("replay",), ("log", "ls"), ("log", "export"), ("events", "--log")])
def test_moments_the_wrong_way_round_are_told_by_the_names_of_their_options(
    log: Path, command: tuple[str, ...]
) -> None:
    result = run(*command, log, "--since", "-5m", "--until", "-10m")

    assert (result.returncode, result.stderr) == (2, b"error: --since is later than --until. Swap them.\n")


@pytest.mark.parametrize("until", ["-2h", "2h", "now", "2026-11-15"])
def test_a_moment_can_be_told_in_every_form(log: Path, until: str) -> None:
    assert told("replay", log, "--until", until, "--since", "2026-11-14")["as_of"] > TEN


def test_a_moment_that_cannot_be_read_is_refused_with_the_forms_there_are(log: Path) -> None:
    result = run("replay", log, "--until", "tea time")

    assert result.returncode == 2
    assert result.stderr == (b"error: Invalid --until 'tea time'. Use 7d, 2h, 2026-11-14T10:00Z or now.\n")


def test_a_log_that_is_not_there_is_told_with_what_to_do(tmp_path: Path) -> None:
    result = run("replay", tmp_path / "nothing")

    assert result.returncode == 2
    assert result.stderr.endswith(b"/nothing. Start celeriac up or celeriac record, or name another log\n")


def test_what_is_played_is_shown_as_lines_where_there_is_no_terminal(log: Path) -> None:
    result = run("replay", log, "--speed", "1000x", "--until", "2026-11-14T10:00:10Z")

    lines = [line for line in result.stdout.decode().splitlines() if "/s; " not in line]
    assert result.returncode == 0, result.stderr
    assert "12:00:00.000  task-received     w1@lab  shop.fail[t000]" in lines[0]
    assert "as of 2026-11-14T12:00:10+02:00: 2 of 2 workers online, 11 tasks, 51 events" in lines


def test_on_a_terminal_it_is_played_on_a_screen_that_ctrl_c_takes_away(log: Path) -> None:
    leader, follower = pty.openpty()
    seen = b""
    with Program(
        "replay", str(log), "--speed", "5x", stdin=follower, stdout=follower, stderr=follower,
        env=environment() | {"TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
    ) as process:  # fmt: skip
        os.close(follower)
        try:
            seen = _read_until(leader, b"shop.pay[t003]")
            process.send_signal(signal.SIGINT)
            seen += _read_until(leader, b"\x1b[?1049l")
            assert wait_until(lambda: process.poll() is not None, patience=PATIENCE)
        finally:
            process.kill()
            os.close(leader)

    assert process.returncode == 130
    assert b"; stop with " in seen
    assert seen.rindex(b"\x1b[?25h") > seen.rindex(b"\x1b[?25l")


def _read_until(number: int, mark: bytes) -> bytes:
    """Read from a terminal until it shows a text."""
    seen = b""
    ends_at = monotonic() + PATIENCE
    while mark not in seen and monotonic() < ends_at:
        if select.select([number], [], [], 0.5)[0]:
            try:
                seen += os.read(number, 65_536)
            except OSError:  # nobody has the terminal any more
                break
    assert mark in seen, seen[-2000:]
    return seen


# -- events


def test_events_of_a_log_are_told_as_live_ones_are(log: Path) -> None:
    result = run("events", "--log", log, "--type", "task-failed", "--json")

    assert result.returncode == 0
    assert [event["uuid"] for event in json_lines(result.stdout) if event["type"] == "task-failed"] == [
        f"t{number:03d}" for number in range(0, TASKS, 10)
    ]
    summary = f"{len(EVENTS) - 1} events seen, 10 shown; 0 damaged; 1 gaps"
    assert result.stderr.decode().splitlines()[-1] == summary


def test_events_of_two_recorders_are_told_once(doubled: Path) -> None:
    result = run("events", "--log", doubled, "--type", "task-failed", "--json")

    failed = [event["uuid"] for event in json_lines(result.stdout) if event["type"] == "task-failed"]
    assert failed == [f"t{number:03d}" for number in range(0, TASKS, 10)]


def test_a_gap_is_told_in_one_line(log: Path) -> None:
    result = run("events", "--log", log, "--type", "nothing")

    assert (result.stdout + result.stderr).count(b"GAP: ") == 1


def test_events_between_two_moments_are_all_there_are(log: Path) -> None:
    result = run(
        "events", "--log", log, "--since", "2026-11-14T10:00:05Z", "--until", "2026-11-14T10:00:06Z",
        "--speed", "max", "--worker", "w1@*", "--json",
    )  # fmt: skip

    chosen = [
        event.type for event in EVENTS if TEN + 5 <= event.timestamp <= TEN + 6 and event.hostname == "w1@lab"
    ]
    assert [event["type"] for event in json_lines(result.stdout)] == chosen


@pytest.fixture
def beside_the_log(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder where celeriac up has recorded."""
    (tmp_path / ".celeriac").mkdir()
    (tmp_path / ".celeriac" / "log").symlink_to(log)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("beside_the_log")
def test_a_time_range_reads_the_log_of_the_folder() -> None:
    result = run("events", "--since", "2026-11-14T10:00:05Z", "--until", "2026-11-14T10:00:06Z", "--json")

    shown = [event["type"] for event in json_lines(result.stdout)]
    assert shown == [event.type for event in EVENTS if TEN + 5 <= event.timestamp <= TEN + 6]


@pytest.mark.usefixtures("beside_the_log")
@pytest.mark.parametrize(
    "command",
    [("replay",), ("log", "ls"), ("log", "verify"), ("log", "export"), ("events", "--since", "30y")],
)
def test_commands_find_the_log_of_the_folder(command: tuple[str, ...]) -> None:
    assert run(*command).returncode == 0


# -- what it consists of


def test_ls_adds_up_an_hour_and_lists_its_segments(log: Path) -> None:
    rows = told("log", "ls", log, "--all")
    hours = told("log", "ls", log)
    table = run("log", "ls", log).stdout.decode().splitlines()

    assert [(hour["segments"], hour["events"]) for hour in hours] == [(4, len(EVENTS))]
    assert [row["path"] for row in rows] == [str(path.relative_to(log)) for path in segments(log)]
    assert sum(row["events"] for row in rows) == len(EVENTS)
    assert table[0].split()[:5] == ["HOUR", "RECORDER", "SEGMENTS", "EVENTS", "BYTES"]
    assert table[1].split()[2:4] == ["4", str(len(EVENTS))]


def test_stat_counts_what_is_there(log: Path) -> None:
    whole = told("log", "stat", log)
    quick = told("log", "stat", log, "--quick")
    people = run("log", "stat", log).stdout.decode()

    assert (whole["events"], whole["segments"], whole["gaps"]) == (len(EVENTS), 4, 1)
    assert whole["types"]["task-failed"] == 10
    assert whole["bytes_per_event"] == quick["bytes_per_event"] > 0
    assert "types" not in quick
    assert (whole["first"], whole["last"]) == ("2026-11-14T10:00:00+00:00", "2026-11-14T10:01:40+00:00")
    assert f"events           {len(EVENTS)}\n" in people
    assert re.search(r"task-failed +10\n", people)


def test_what_is_not_sealed_yet_is_told_of(unsealed: Path) -> None:
    listed = run("log", "ls", unsealed)
    stat = told("log", "stat", unsealed)

    assert listed.stderr.decode() == f"No sealed segments yet; {len(EVENTS)} events not sealed yet\n"
    assert (stat["first"], stat["last"]) == ("2026-11-14T10:00:00+00:00", "2026-11-14T10:01:40+00:00")
    assert stat["recorders"][0]["until"] == stat["last"]


def test_stat_says_that_it_adds_up_what_several_recorders_have(doubled: Path) -> None:
    out = run("log", "stat", doubled).stdout.decode()

    assert f"events           {2 * len(EVENTS) - 1}, all recorders added up: one that two of them saw" in out


def test_verify_finds_nothing_wrong_with_a_log_as_it_was_written(log: Path) -> None:
    result = run("log", "verify", log)

    assert result.returncode == 0
    assert result.stdout.decode().startswith(f"{len(EVENTS)} events in 4 segments and 1 file not sealed yet")
    assert result.stdout.endswith(b": sound\n")


# -- damage


@pytest.fixture
def damaged(log: Path) -> Path:
    """The same, with one bit of the second segment turned."""
    path = segments(log)[1]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return log


def test_verify_tells_what_is_damaged_and_what_to_do(damaged: Path) -> None:
    result = run_apart("log", "verify", damaged, "--json")

    (finding,) = json.loads(result.stdout)["findings"]
    assert result.returncode == 1
    assert (finding["weight"], finding["kind"]) == ("damage", "altered")
    assert finding["where"] == str(segments(damaged)[1].relative_to(damaged))
    assert "restore it from a backup" in finding["fix"]


@pytest.mark.parametrize(
    "command",
    [("replay",), ("replay", "--json"), ("log", "stat"), ("log", "export"), ("events", "--json", "--log")],
)
def test_damage_is_told_all_else_is_shown_and_the_code_says_so(damaged: Path, command: Sequence[str]) -> None:
    result = run_apart(*command, damaged)

    err = result.stderr.decode()
    assert result.returncode == 1, err
    assert "damaged: " in err
    assert segments(damaged)[1].name in err
    assert "celeriac log verify names each problem" in err
    assert len(result.stdout) > 500


def test_a_damaged_segment_that_was_set_aside_is_missing_until_it_is_brought_back(damaged: Path) -> None:
    first = run("log", "verify", damaged, "--set-aside")
    second = run("log", "verify", damaged)

    assert (first.returncode, second.returncode) == (1, 1)
    assert len(segments(damaged)) == 3
    assert b"damage: missing: " in second.stdout


# -- what is kept


def test_compact_makes_one_segment_of_many_and_changes_nothing_else(log: Path) -> None:
    before = run("log", "export", log).stdout

    foretold = told("log", "compact", log, "--dry-run")
    untouched = len(segments(log))
    done = told("log", "compact", log)

    assert (foretold["merged"], foretold["made"], untouched) == (4, 1, 4)
    assert (done["merged"], done["made"], done["events_removed"]) == (4, 1, 0)
    assert len(segments(log)) == 1
    assert run("log", "export", log).stdout == before
    assert run("log", "verify", log).returncode == 0


def test_compact_removes_what_is_too_old_and_keeps_failures_longer(log: Path) -> None:
    done = told("log", "compact", log, "--keep", "1s", "--keep-failures", "300y")

    left = json_lines(run("log", "export", log).stdout)
    assert done["trimmed"] == 1
    assert {event["uuid"] for event in left} == {f"t{number:03d}" for number in range(0, TASKS, 10)}
    assert run("log", "verify", log).returncode == 0


def test_compact_foretells_how_much_would_be_gone(log: Path) -> None:
    size = sum(path.stat().st_size for path in segments(log))

    foretold = told("log", "compact", log, "--keep", "1s", "--dry-run")
    text = run("log", "compact", log, "--keep", "1s", "--dry-run").stdout.decode()

    assert (foretold["events_removed"], foretold["bytes_freed"]) == (len(EVENTS), size)
    assert text.splitlines()[-1].startswith(f"{len(EVENTS)} events and ")
    assert len(segments(log)) == 4


def test_compact_says_so_if_nothing_limits_the_log(log: Path) -> None:
    result = run_apart("log", "compact", log)

    assert result.stderr.startswith(b"No retention: set log_keep or log_max_bytes")


def test_compact_refuses_what_is_no_span(log: Path) -> None:
    result = run("log", "compact", log, "--keep", "90")

    assert result.returncode == 2
    assert result.stderr.startswith(b"error: Invalid --keep '90'. Use 30s, 15m")
    assert len(segments(log)) == 4


# -- for other programs


def test_export_writes_every_event_in_each_form(log: Path, tmp_path: Path) -> None:
    lines = json_lines(run("log", "export", log).stdout)
    rows = list(csv.DictReader(StringIO(run("log", "export", log, "--format", "csv").stdout.decode())))
    target = tmp_path / "all.parquet"
    written = run_apart("log", "export", log, "--format", "parquet", "--output", target)
    table = pq.read_table(BytesIO(target.read_bytes()))

    types = [event.type for event in EVENTS]
    assert [line["type"] for line in lines] == types
    assert [row["type"] for row in rows] == types
    assert table["type"].to_pylist() == types
    assert (written.returncode, written.stdout, written.stderr) == (0, b"", b"")
    assert target.stat().st_mode & 0o777 == 0o600


def test_export_writes_only_what_was_asked_for(log: Path) -> None:
    result = run(
        "log", "export", log, "--type", "task-*", "--task", "shop.fail", "--since", "2026-11-14T10:00:45Z"
    )

    lines = json_lines(result.stdout)
    assert {line["uuid"] for line in lines} == {f"t{number:03d}" for number in range(50, TASKS, 10)}


def test_an_export_that_cannot_be_written_leaves_nothing_behind(log: Path, tmp_path: Path) -> None:
    result = run("log", "export", log, "--output", tmp_path / "no" / "where")

    assert result.returncode == 1
    assert b"cannot be written: No such file or directory; name another with --output" in result.stderr
    assert sorted(tmp_path.iterdir()) == [log]


def test_without_arrow_every_command_says_what_to_install(log: Path) -> None:
    commands = [
        [*command, str(log)]
        for command in (
            ("log", "ls"), ("log", "stat"), ("log", "verify"), ("log", "compact"), ("log", "export"),
            ("replay",), ("events", "--log"), ("snapshot", "--parquet"),
        )
    ]  # fmt: skip
    # What is None there cannot be imported.
    program = """
import json, sys
sys.modules["pyarrow"] = None
from typer.testing import CliRunner
from celeriac.cli.root import app
for command in json.loads(sys.argv[1]):
    done = CliRunner().invoke(app, command)
    print(json.dumps([done.exit_code, done.stderr]))
"""

    result = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program, json.dumps(commands)],
        capture_output=True,
        text=True,
        timeout=PATIENCE * 2,
        check=False,
        env=environment(),
    )

    ends = [json.loads(line) for line in result.stdout.splitlines()]
    assert [code for code, _ in ends] == [78] * len(commands), result.stderr
    assert all("pip install 'celeriac[history]'" in said for _, said in ends)


def test_a_recorder_loads_arrow_after_it_has_subscribed() -> None:
    program = """
import sys
from celeriac import Celeriac, ImproperlyConfigured, MemoryBroker

class NoArrow:
    def find_spec(self, name, path=None, target=None):
        if name == "pyarrow":
            print(broker.wait_for_subscriber(timeout=0.0))
            raise ModuleNotFoundError(name=name)

broker = MemoryBroker()
sys.meta_path.insert(0, NoArrow())
try:
    Celeriac(broker, environ={}).history.Recorder("log", name="one").run()
except ImproperlyConfigured as error:
    print(error)
"""

    result = subprocess.run(  # noqa: S603
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False
    )

    assert result.stdout.startswith("True\nthe history needs pyarrow"), result.stderr


def test_no_command_loads_arrow_before_it_reads_a_log() -> None:
    check = "import sys, celeriac.cli.root; print('pyarrow' in sys.modules)"

    result = subprocess.run(  # noqa: S603
        [sys.executable, "-c", check], capture_output=True, text=True, timeout=PATIENCE, check=False
    )

    assert result.stdout == "False\n", result.stderr
