"""The folder where one recorder keeps what is not sealed yet: for it alone, under an id of its own."""

import fcntl
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from celeriac.errors import ImproperlyConfigured
from celeriac.store.disk import FLAGS, MODE, failed, make_folders, sync_folder, write_new

__all__ = ["Spool", "write_whole"]

_DRAFT: Final = ".new"
#: The file that says which file the lock is.
_HOME: Final = "home"
#: What a file name may have, on every file system that we know.
_MAX_NAME_BYTES: Final = 255
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
_ID_NAME_CHARS: Final = 73


class Spool:
    """The folder of the recorder ``name`` within ``root``; made when it is first locked."""

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.folder = root / _folder_name(name)
        #: Whether the folder is a copy of one in another place, which another recorder may have.
        self.is_copy = False
        self._lock = -1

    def lock(self) -> None:
        """Take the folder for this process, for as long as it lives.

        Raises ImproperlyConfigured while another recorder has it, DiskError if it cannot be made.
        """
        path = self.folder / "lock"
        try:
            make_folders(self.folder)
            number = os.open(path, os.O_RDWR | os.O_CREAT | FLAGS, MODE)
        except OSError as error:
            raise failed(f"{path} cannot be created", error) from error
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(number, 32, 0).decode("ascii", "replace").strip()
            os.close(number)
            raise ImproperlyConfigured(
                f"a recorder named {self.name!r} is already running"
                + (f", in process {holder}" if holder else "")
                + (
                    f", with folder {self.folder}: stop it, or give this recorder another name with "
                    "log_recorder"
                )
            ) from None
        except OSError as error:
            os.close(number)
            raise failed(f"{path} cannot be locked", error) from error
        self._lock = number
        # It is for people: a disk that is full must not keep us from making room on it.
        with suppress(OSError):
            os.ftruncate(number, 0)
            os.pwrite(number, b"%d\n" % os.getpid(), 0)
        self._drop_drafts()
        try:
            self._look_where_it_is()
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let another process have the folder."""
        number, self._lock = self._lock, -1
        if number >= 0:
            os.close(number)

    def recorder_id(self, known: str = "") -> str:
        """Return the id of the recorder, made once: a folder that was lost never comes back as the same.

        ``known`` is what events say that were recorded here, in case the file that holds it is damaged.
        """
        path = self.folder / "id"
        try:
            with os.fdopen(os.open(path, os.O_RDONLY | FLAGS), "rb") as file:
                told = file.read(200).decode("ascii", "replace").strip()
        except FileNotFoundError:
            told = ""
        except OSError as error:
            raise failed(f"{path} cannot be read", error) from error
        if _ID.fullmatch(told):
            return told
        if not _ID.fullmatch(known):
            return self.renew_id()
        write_whole(path, known.encode() + b"\n")
        return known

    def renew_id(self) -> str:
        """Give the recorder an id that nobody had before, and return it."""
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", self.name)[:_ID_NAME_CHARS]
        # Spark and Arrow take files whose names begin with _ for hidden, and read past them without a word.
        made = f"{plain.lstrip('_-') or 'recorder'}-{secrets.token_hex(3)}"
        write_whole(self.folder / "id", made.encode() + b"\n")
        if self._lock >= 0:
            self._note_where_it_is()
        return made

    def _look_where_it_is(self) -> None:
        """See whether the folder is where it was made: a copy has another file to lock."""
        try:
            home = (self.folder / _HOME).read_bytes().strip()
        except FileNotFoundError:
            self._note_where_it_is()
        except OSError as error:
            raise failed(f"{self.folder / _HOME} cannot be read", error) from error
        else:
            self.is_copy = home != self._home()

    def _note_where_it_is(self) -> None:
        write_whole(self.folder / _HOME, self._home() + b"\n")
        self.is_copy = False

    def _home(self) -> bytes:
        # No number of the device: that of a disk may be another one after each start of the machine.
        return b"inode %d" % os.fstat(self._lock).st_ino

    def _drop_drafts(self) -> None:
        """Remove what a crash left of files that were being made."""
        for draft in self.folder.glob(f".*{_DRAFT}"):
            with suppress(OSError):
                draft.unlink()


def write_whole(path: Path, content: bytes) -> None:
    """Make or replace a file: it has all of its content, or is as it was. On return it outlives a crash.

    Raises DiskError, and leaves nothing behind.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_DRAFT}")
    try:
        try:
            write_new(draft, content)
            draft.replace(path)
        except BaseException:
            with suppress(OSError):
                draft.unlink()
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise failed(f"{path} cannot be written", error) from error


def _folder_name(name: str) -> str:
    """Return a name for a folder that is another one for each name, and stays where it is put."""
    quoted = quote(name, safe="", errors="surrogatepass")
    if quoted.startswith("."):
        quoted = "%2E" + quoted[1:]
    if not quoted or len(quoted) > _MAX_NAME_BYTES:
        raise ImproperlyConfigured(
            f"invalid recorder name {name[:80]!r}: log_recorder has 1 to {_MAX_NAME_BYTES} bytes"
        )
    return quoted
