"""How a recorder is: what the file says, and what whoever asks is answered."""

import os
import socket
from pathlib import Path

import pytest

from celeriac.node.record_health import RecordHealth, ailment
from celeriac.node.recorder import Progress
from celeriac.node.supervisor import Supervisor
from celeriac.programs.process import wait_until
from celeriac.store.disk_use import DiskUse
from celeriac.store.recorder_status import read_status

GOOD = Progress("recording", recorded=7, last_event_at=5.0, lag=0.5)


def health(folder: Path, supervisor: Supervisor | None = None) -> RecordHealth:
    return RecordHealth(
        folder, name="one", log="here", use=DiskUse(folder), supervisor=supervisor or Supervisor({})
    )


def test_a_recorder_that_records_is_well(tmp_path: Path) -> None:
    health(tmp_path).take(GOOD)

    assert ailment(tmp_path) == ""


def test_where_no_recorder_told_of_itself_that_is_what_is_wrong(tmp_path: Path) -> None:
    assert ailment(tmp_path) == f"no recorder status found in {tmp_path}"


@pytest.mark.parametrize(
    ("state", "answer"),
    [
        ("disk", "disk full or read-only: no room"),
        ("dropping", "disk full or read-only, dropping events: no room"),
        ("link", "disconnected from the broker: no room"),
        ("stopped", "stopped by request: no room"),
    ],
)
def test_what_is_wrong_is_told_with_its_reason(tmp_path: Path, state: str, answer: str) -> None:
    health(tmp_path).take(GOOD._replace(state=state, last_error="no room"))

    assert ailment(tmp_path) == answer


def test_a_segment_that_cannot_be_sealed_yet_is_no_reason_to_restart_a_recorder(tmp_path: Path) -> None:
    health(tmp_path).take(GOOD._replace(last_error="the object store is away"))

    assert ailment(tmp_path) == ""


def test_a_recorder_that_ended_with_an_error_says_which(tmp_path: Path) -> None:
    told = health(tmp_path)
    told.take(GOOD)

    told.fail(OSError("the queue is of another kind"))

    assert ailment(tmp_path) == "stopped with an error: the queue is of another kind"
    status = read_status(tmp_path)
    assert status is not None
    assert (status.state, status.recorded) == ("failed", 7)


def test_a_recorder_that_shows_no_life_is_not_well(tmp_path: Path) -> None:
    health(tmp_path).take(GOOD)
    status = read_status(tmp_path)
    assert status is not None

    answers = [ailment(tmp_path, now=lambda age=age: status.updated_at + age) for age in (14.0, 60.0)]  # type: ignore[misc]

    assert answers == ["", "no status update for 60 seconds"]


def test_a_recorder_whose_process_is_gone_is_not_well(tmp_path: Path) -> None:
    health(tmp_path).take(GOOD)

    answer = ailment(tmp_path, is_alive=lambda _pid: False)

    assert answer == f"process {os.getpid()} is not running"


def test_the_file_is_for_its_owner_alone_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    told = health(tmp_path)
    for state in ("recording", "disk", "recording"):
        told.take(GOOD._replace(state=state))

    (file,) = tmp_path.iterdir()

    assert (file.name, file.stat().st_mode & 0o777) == ("status.json", 0o600)


def test_the_file_follows_a_change_at_once_and_a_number_only_after_a_while(tmp_path: Path) -> None:
    told = health(tmp_path)
    told.take(GOOD)
    told.take(GOOD._replace(recorded=8))
    before = read_status(tmp_path)

    told.take(GOOD._replace(recorded=9, state="link"))

    after = read_status(tmp_path)
    assert before is not None
    assert after is not None
    assert (before.recorded, after.recorded, after.state) == (7, 9, "link")


def test_the_bytes_on_the_disk_are_counted_again_within_the_time_of_a_status(tmp_path: Path) -> None:
    file = tmp_path / "000000000001.wal"
    file.write_bytes(b"x" * 10)
    told = health(tmp_path)
    told.take(GOOD)
    before = told.size or 0

    file.write_bytes(b"x" * 5_000_000)

    def is_seen() -> bool:
        told.take(GOOD)
        return (told.size or 0) > 5_000_000

    assert before < 5_000_000
    assert wait_until(is_seen, patience=9.0)


def test_a_folder_that_cannot_be_written_to_ends_nothing(tmp_path: Path) -> None:
    told = health(tmp_path / "gone")

    told.take(GOOD)

    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_none_of_ours_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_bytes(b"\xff not ours")

    assert ailment(tmp_path).startswith("no recorder status found in")


# -- systemd


def test_without_systemd_nothing_is_said(tmp_path: Path) -> None:
    silent = Supervisor({})
    deaf = Supervisor({"NOTIFY_SOCKET": str(tmp_path / "nobody")})

    for supervisor in (silent, deaf):
        supervisor.ready()
        supervisor.status("well")

    assert (silent.watch_every, deaf.watch_every) == (None, None)


@pytest.mark.parametrize("is_abstract", [False, True])
def test_systemd_hears_one_line_at_a_time(tmp_path: Path, is_abstract: bool) -> None:
    name = f"celeriac-test-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        door.bind(f"\0{name}" if is_abstract else name)
        door.settimeout(10.0)
        supervisor = Supervisor({"NOTIFY_SOCKET": f"@{name}" if is_abstract else name})

        supervisor.ready()
        supervisor.status("two\nlines")

        assert [door.recv(1000), door.recv(1000)] == [b"READY=1", b"STATUS=two lines"]


@pytest.mark.parametrize(
    ("environ", "every"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 1.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 1.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
    ],
    ids=["ours", "named", "another", "no-number", "off"],
)
def test_the_watchdog_hears_of_us_three_times_before_it_bites(
    environ: dict[str, str], every: float | None
) -> None:
    assert Supervisor(environ).watch_every == every
