"""The folder of ``celeriac up``: all it keeps, for one of them at a time."""

import fcntl
import os
import shlex
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from celeriac.config.settings import LOG_FOLDER, WAREHOUSE_FOLDER
from celeriac.errors import CallerError, CeleriacError
from celeriac.store.disk import FLAGS, MODE, failed, write_new

__all__ = ["SAMPLE", "Home", "claim_log", "read_owner", "trim"]

#: How the cluster that we start ourselves is noted; others are by the URL of their broker.
SAMPLE: Final = "the sample cluster"

#: A log of this size is cut down, and so much of its end is kept.
_MOST_BYTES, _KEPT_BYTES = 4 * 1024 * 1024, 64 * 1024
#: A note is a line, and of a moment in seconds so many digits.
_NOTE_BYTES: Final = 4096
_MOMENT_DIGITS: Final = 10
#: The note in a log of whose events it holds.
_OWNER: Final = ".cluster"
#: What to do about a folder of another cluster, by the name of the note in it.
_OTHER: Final = {
    "cluster": "take another folder with --data FOLDER",
    _OWNER: "name another one with the setting log_url",
}
#: Nobody but the owner may have made, or may change, what we are about to trust and to remove.
_TOO_OPEN: Final = stat.S_IWGRP | stat.S_IWOTH


class Home:
    """Where things are in the folder, and the notes that one run leaves for the next."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.log = self.folder / Path(LOG_FOLDER).name
        self.warehouse = self.folder / Path(WAREHOUSE_FOLDER).name
        self.audit = self.folder / "audit.jsonl"
        #: What the programs print, a file for each.
        self.output = self.folder / "output"
        #: What the broker of the sample keeps.
        self.valkey = self.folder / "valkey"
        #: What lasts as long as the programs do.
        self.run = self.folder / "run"
        self._lock = -1

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Have the folder for this process alone, made if it is not there.

        Raises CeleriacError while another has it, CallerError if it is not for us, DiskError if it cannot
        be made.
        """
        self._lock = self._locked()
        try:
            yield
        finally:
            self._clear()
            os.close(self._lock)

    def _locked(self) -> int:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check()
            lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | FLAGS, MODE)
            try:
                self._take(lock)
                # After the lock: whoever ends here has left a folder that is known as ours.
                _make(self.folder / ".gitignore", "*\n")
                self._clear()  # of one that was killed
                for each in (self.output, self.run):
                    each.mkdir(mode=0o700, exist_ok=True)
            except BaseException:
                os.close(lock)
                raise
        except OSError as error:
            raise failed(f"{self.folder} cannot be used", error) from error
        return lock

    def _check(self) -> None:
        """Raise CallerError unless the folder is ours or empty: what is in ours is written over."""
        told = self.folder.stat()
        place = shlex.quote(str(self.folder))
        if told.st_uid != os.geteuid():
            raise CallerError(f"{place} belongs to another user: take a folder of yours with --data FOLDER")
        if told.st_mode & _TOO_OPEN:
            raise CallerError(f"others may write to {place}: chmod go-w {place}, or take --data FOLDER")
        is_ours = _is_lock(self.folder / "lock") or _is_claim(self.folder / "cluster")
        # celeriac record and celeriac pipeline make these two by themselves.
        if not is_ours and any(each not in (self.log, self.warehouse) for each in self.folder.iterdir()):
            new = shlex.quote(str(self.folder / ".celeriac"))
            raise CallerError(
                f"{place} holds files that celeriac up has not made, and is left as it is: "
                f"take a new folder, such as --data {new}"
            )

    def _clear(self) -> None:
        """Remove what programs had for a run, by the names that their folders have, and nothing else."""
        with suppress(OSError):
            for each in self.run.glob("celeriac-*"):
                shutil.rmtree(each, ignore_errors=True)
            self.run.rmdir()

    def _take(self, lock: int) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            address = os.pread(lock, _NOTE_BYTES, 0).decode(errors="replace")
            seen = f"its dashboard is {address}" if address else "its dashboard is starting"
            raise CeleriacError(
                f"celeriac up runs in {self.folder} already, {seen}; for another take --data FOLDER"
            ) from None
        os.ftruncate(lock, 0)

    def note_address(self, address: str) -> None:
        """Tell those who find the folder taken where the dashboard is. Raises DiskError if that fails."""
        try:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, address.encode(), 0)
        except OSError as error:
            raise failed(f"{self.folder / 'lock'} cannot be written", error) from error

    def claim(self, cluster: str, *, log: Path | None) -> None:
        """Have the folder, and that of the log wherever it is, be those of one cluster.

        Raises CallerError if one is another's, DiskError if that cannot be noted.
        """
        notes = [self.folder / "cluster"]
        if log is not None:
            # It is made here, too: the dashboard reads a log that is there when it starts.
            _make_folder(log)
            notes.append(log / _OWNER)
        _claim(notes, cluster)

    @property
    def broker_port(self) -> int:
        """The port that the broker of the sample had the last time; 0 if there was none."""
        told = _read(self.folder / "broker-port")
        return int(told) if told.isdecimal() and int(told) < 2**16 else 0

    @broker_port.setter
    def broker_port(self, number: int) -> None:
        if number != self.broker_port:
            _write(self.folder / "broker-port", str(number))

    @property
    def compacted_at(self) -> int:
        """When the log was last compacted, in seconds of the epoch; 0 if it never was."""
        told = _read(self.folder / "compacted-at")
        return int(told) if told.isdecimal() and len(told) <= _MOMENT_DIGITS else 0

    @compacted_at.setter
    def compacted_at(self, moment: int) -> None:
        _write(self.folder / "compacted-at", str(moment))


def read_owner(log: Path) -> str:
    """Return the cluster whose events are in a log: a broker URL, or :data:`SAMPLE`; empty if unknown."""
    return _read(log.expanduser() / _OWNER)


def claim_log(log: Path, cluster: str) -> None:
    """Have a log be that of one cluster. Raises CallerError if it is another's, DiskError if it fails."""
    folder = log.expanduser()
    if read_owner(folder) != SAMPLE:  # its broker has another address each time
        _make_folder(folder)
        _claim([folder / _OWNER], cluster)


def _claim(notes: Sequence[Path], cluster: str) -> None:
    known = {note: _read(note) for note in notes}
    for note, owner in known.items():
        if owner and owner != cluster:
            raise CallerError(
                f"{note.parent} has the history of {owner}, and two clusters cannot share it: "
                f"{_OTHER[note.name]}, or remove {note} if it is the same cluster"
            )
    for note, owner in known.items():
        # A disk that is full would otherwise cost us the note that is there.
        if not owner:
            _write(note, cluster)


def trim(log: Path) -> None:
    """Cut down what a program has printed, if it is long; it may go on printing meanwhile."""
    with suppress(OSError):
        size = log.stat().st_size
        if size <= _MOST_BYTES:
            return
        # Whoever writes there adds to the end, wherever that is then.
        with log.open("r+b") as file:
            file.seek(size - _KEPT_BYTES)
            last = file.read()
            file.truncate(0)
            file.seek(0)
            file.write(last)


def _read(note: Path) -> str:
    try:
        with os.fdopen(os.open(note, os.O_RDONLY | os.O_NONBLOCK | FLAGS)) as file:
            return file.read(_NOTE_BYTES).strip()
    except (OSError, ValueError):
        return ""


def _write(note: Path, text: str) -> None:
    """Write it into a file of this name, and into none that a link there leads to."""
    try:
        with os.fdopen(os.open(note, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | FLAGS, MODE), "w") as file:
            file.write(text)
    except OSError as error:
        raise failed(f"{note} cannot be written", error) from error


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise failed(f"{folder} cannot be made", error) from error


def _make(file: Path, text: str) -> None:
    """Write a file that is not there yet; the user may have changed the one that is."""
    with suppress(FileExistsError):
        write_new(file, text.encode())


def _is_lock(file: Path) -> bool:
    """Tell whether a file is such a lock as we make: of a project, one may bear the same name."""
    with suppress(OSError):
        told = file.lstat()
        is_private = stat.S_IMODE(told.st_mode) == MODE
        return stat.S_ISREG(told.st_mode) and is_private and _read(file).partition("://")[0] in ("", "http")
    return False


def _is_claim(file: Path) -> bool:
    """Tell likewise whether it says whose history is kept."""
    claim = _read(file)
    return claim == SAMPLE or "://" in claim.partition(" ")[0]
