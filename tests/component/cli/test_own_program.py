"""What ails the programs of ``celeriac up``, by what they tell, and by what they do not."""

import errno
import os
from pathlib import Path

import pytest

from celeriac.cli import own_program
from celeriac.cli.home import Home
from celeriac.cli.own_program import Dashboard, RecorderProgram, Surroundings
from celeriac.programs.service import Ailment
from celeriac.store.recorder_status import RecorderStatus, write_status

#: What is said of a full disk, and what to do.
FULL = "disk full or read-only: No space left on device; free disk space, or use a larger disk"


@pytest.fixture
def around(tmp_path: Path) -> Surroundings:
    home = Home(tmp_path)
    home.run.mkdir()
    home.output.mkdir()
    return Surroundings(home, {}, tmp_path)


@pytest.fixture
def recorder(around: Surroundings, tmp_path: Path) -> RecorderProgram:
    spool = tmp_path / "spool"
    spool.mkdir()
    return RecorderProgram(around, spool)


def tell(recorder: RecorderProgram, at: float, state: str = "recording", last_error: str = "") -> None:
    status = RecorderStatus(
        name="one",
        recorder="one-1",
        log="here",
        pid=os.getpid(),
        started_at=0.0,
        updated_at=at,
        state=state,
        last_error=last_error,
    )
    write_status(recorder._spool, status)


def test_a_recorder_ails_by_what_it_tells(recorder: RecorderProgram) -> None:
    tell(recorder, 1.0)
    well = recorder.ailment()
    tell(recorder, 3.0, "link", "refused")
    cut = recorder.ailment()
    tell(recorder, 5.0, "link", "timed out")
    still_cut = recorder.ailment()

    assert well is None
    assert cut == Ailment("disconnected from the broker", "disconnected from the broker: refused")
    assert still_cut is not None
    assert still_cut.kind == cut.kind


def test_one_that_tells_nothing_any_more_is_silent_and_then_hangs(recorder: RecorderProgram) -> None:
    tell(recorder, 1.0)
    looks = [recorder.ailment() for _ in range(61)]
    kinds = [each.kind if each else "" for each in looks]

    tell(recorder, 2.0)

    assert kinds == [*[""] * 15, *["silent"] * 45, "hung"]
    assert [each is not None and each.is_hung for each in looks] == [*[False] * 60, True]
    assert looks[15] == Ailment("silent", "no status update for 15 s")
    assert recorder.ailment() is None


def test_one_that_slept_as_long_as_we_did_is_well(recorder: RecorderProgram) -> None:
    # What it told is years old by the clock on the wall.
    tell(recorder, 1.0)

    assert recorder.ailment() is None


def test_a_disk_that_is_full_is_no_reason_to_lose_what_is_in_memory(
    recorder: RecorderProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    tell(recorder, 1.0)
    with monkeypatch.context() as full:
        full.setattr(own_program, "TemporaryFile", refuse)
        ailments = [recorder.ailment() for _ in range(100)]
    # It may take a moment to see that there is room.
    ailments += [recorder.ailment() for _ in range(5)]
    tell(recorder, 2.0)

    assert set(ailments[15:]) == {Ailment("disk", FULL)}
    assert recorder.ailment() is None


def test_one_that_tells_nothing_though_there_is_room_again_hangs(
    recorder: RecorderProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "_disk_trouble", iter([*["full"] * 100, *[""] * 100]).__next__)
    tell(recorder, 1.0)

    kinds = [each.kind if each else "" for each in (recorder.ailment() for _ in range(161))]

    assert kinds == [*[""] * 15, *["disk"] * 109, *["silent"] * 35, *["hung"] * 2]


def test_a_status_that_cannot_be_read_is_told(recorder: RecorderProgram) -> None:
    (recorder._spool / "status.json").mkdir()

    found = recorder.ailment()

    assert found is not None
    assert found.kind == "unreadable"
    assert "status.json cannot be read" in found.text


def test_a_dashboard_ails_by_what_it_answers_and_may_be_slow_now_and_then(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    dashboard = Dashboard(around, [], host="127.0.0.1", port=8080)
    answers = iter([200, None, None, 503, None, None, None, 503, 200])
    monkeypatch.setattr(dashboard, "_answer", lambda: next(answers))

    kinds = [each.kind if each else "" for each in (dashboard.ailment() for _ in range(9))]

    assert kinds == ["", "", "", "deaf", "deaf", "deaf", "mute", "deaf", ""]
