"""Of several processes that start at once, one holds the pid file."""

import fcntl
import os
from pathlib import Path

import pytest

from celeriac.errors import CallerError
from celeriac.store import pid_file as module
from celeriac.store.pid_file import pid_file

ENDED = 999_999_999


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cam.pid"


def is_locked(path: Path) -> bool:
    """Return whether another starter has to wait."""
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_pid_file_is_locked_while_it_is_replaced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked: list[bool] = []

    def is_running(_pid: int) -> bool:
        locked.append(is_locked(path))
        return False

    path.write_text(f"{ENDED}\n")
    monkeypatch.setattr(module, "is_running", is_running)
    with pid_file(path):
        locked.append(is_locked(path))

    assert locked == [True, False]
    assert not path.exists()


@pytest.mark.parametrize("replaced", [True, False])
def test_pid_file_that_was_removed_before_the_lock_is_created_again(
    replaced: bool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, left = fcntl.flock, [f"{os.getppid()}\n" if replaced else ""]

    def lock_late(number: int, operation: int) -> None:
        if left:
            path.unlink()
            if content := left.pop():
                path.write_text(content)
        flock(number, operation)

    path.write_text(f"{ENDED}\n")
    monkeypatch.setattr(fcntl, "flock", lock_late)

    if replaced:
        with pytest.raises(CallerError, match=f"process {os.getppid()} is running"), pid_file(path):
            pass
    else:
        with pid_file(path):
            assert path.read_text() == f"{os.getpid()}\n"


def test_pid_file_of_another_process_is_not_removed(path: Path) -> None:
    with pid_file(path):
        path.write_text("4711\n")

    assert path.read_text() == "4711\n"


def test_pid_file_that_was_removed_meanwhile_stays_removed(path: Path) -> None:
    with pid_file(path):
        path.unlink()

    assert not path.exists()
