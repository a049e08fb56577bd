"""A recorder acknowledges no event into a folder that was removed, unmounted or covered by another mount."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Any

import pytest

from celeriac.programs.process import wait_until
from tests.recorders import PATIENCE, Publisher, RecorderProcess, read_lawful

#: Nothing is sealed within a test: all that is recorded is in the file that is attacked.
UNSEALED: dict[str, Any] = {"log_segment_age": 3600.0, "log_segment_bytes": 1 << 30}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def mounted_log(log: Path) -> Iterator[Path]:
    log.mkdir()
    try:
        mount(log)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root may mount a file system")
    yield log
    while os.path.ismount(log):
        unmount(log)


def mount(folder: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "celeriac", str(folder)], check=True, capture_output=True)  # noqa: S603, S607


def unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], check=True)  # noqa: S603, S607


def remove(folder: Path) -> None:
    # The recorder makes its status file again in between.
    while folder.exists():
        with suppress(OSError):
            shutil.rmtree(folder)


@pytest.mark.parametrize("part", ["", "spool"])
def test_events_of_rabbitmq_are_recorded_in_a_new_folder_if_theirs_is_removed(
    amqp_url: str, log: Path, part: str
) -> None:
    attack(amqp_url, log, lambda: remove(log / part))


@pytest.mark.parametrize("harm", [unmount, mount])
def test_events_of_rabbitmq_are_recorded_in_the_folder_that_is_there_after_a_change_of_mounts(
    amqp_url: str, mounted_log: Path, harm: Callable[[Path], None]
) -> None:
    attack(amqp_url, mounted_log, lambda: harm(mounted_log))


def test_events_of_redis_are_recorded_in_a_new_folder_if_theirs_is_removed(redis_url: str, log: Path) -> None:
    attack(redis_url, log, lambda: remove(log))


def test_events_wait_in_rabbitmq_while_the_folder_cannot_be_made_again(amqp_url: str, log: Path) -> None:
    def block() -> None:
        remove(log)
        log.write_text("in the way")

    def unblock(recorder: RecorderProcess) -> None:
        assert wait_until(lambda: recorder.told["state"] == "disk", patience=PATIENCE)
        assert "cannot be" in recorder.told["last_error"]
        log.unlink()

    attack(amqp_url, log, block, unblock)


def attack(
    url: str, log: Path, harm: Callable[[], None], repair: Callable[[RecorderProcess], None] = lambda _: None
) -> None:
    """Harm the folder that a recorder writes to: later events are recorded, and a gap covers the others."""
    with Publisher(url) as publisher, RecorderProcess(url, log, **UNSEALED) as recorder:
        recorder.wait_until_it_records()
        publisher.publish(1)
        recorder.wait_until_it_has_all_of(publisher)
        recorded_at = time()
        publisher.publish(19)
        recorder.wait_until_it_has_all_of(publisher)
        before = {*publisher.published}
        harm()
        harmed_at = time()
        publisher.publish(20)
        repair(recorder)
        assert wait_until(lambda: recorder.told["gaps"] == 1, patience=PATIENCE), recorder.told
        publisher.publish(20)
        recorder.wait_until_it_has_all_of(publisher)
        recorder.end()

    read = read_lawful(log)
    assert read.ids == {*publisher.published} - before
    (gap,) = read.gaps
    assert "removed or unmounted" in gap.reason
    assert gap.since <= recorded_at <= harmed_at <= gap.until
