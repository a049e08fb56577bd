"""What a worker knows that is to outlive it: its clock, and which tasks were revoked.

A file of two lines. The first says what it is, and holds a checksum of the second, which is JSON.
It is replaced as a whole, so that a crash leaves the old one or the new one.
"""

import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import count
from math import inf
from pathlib import Path
from stat import S_ISREG
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import DecodeError, Meta, Struct, ValidationError

from celeriac.core.revoked import REVOKED_MAX_SIZE
from celeriac.errors import DiskError, ImproperlyConfigured
from celeriac.model.clock import MAX_CLOCK
from celeriac.model.events import MAX_ID_CHARS
from celeriac.store.disk import FLAGS, failed, sync_folder, write_new

__all__ = ["Saved", "WorkerStateFile"]

_VERSION: Final = 1
_FORMAT: Final = "celeriac-worker-state"
#: What each file of ours begins with, of whatever version.
_MARK: Final = f'{{"format":"{_FORMAT}",'.encode()
#: All ids that a worker keeps, each as long as can be, with room for their ages.
_MAX_BYTES: Final = REVOKED_MAX_SIZE * (6 * MAX_ID_CHARS + 64)


class Saved(NamedTuple):
    """What an earlier run left; nothing, at the first."""

    clock: int = 0
    #: Ids, the oldest first, and the seconds since each was revoked. Time with no worker does not count.
    revoked: Sequence[tuple[str, float]] = ()
    #: What was wrong with the file, and where it is now; empty if nothing was.
    damage: str = ""


_Id = Annotated[str, Meta(min_length=1, max_length=MAX_ID_CHARS)]
_Age = Annotated[float, Meta(ge=0)]


class _Header(Struct):
    format: str
    version: Annotated[int, Meta(ge=1)]
    sha256: str = ""


class _Body(Struct):
    clock: Annotated[int, Meta(ge=0, le=MAX_CLOCK)]
    revoked: Annotated[list[tuple[_Id, _Age]], Meta(max_length=REVOKED_MAX_SIZE)]


class _Damaged(Exception):
    """Says what is wrong with a file of ours."""


_decode_header: Final = msgspec.json.Decoder(_Header).decode
_decode_body: Final = msgspec.json.Decoder(_Body).decode
_encode: Final = msgspec.json.Encoder().encode


class WorkerStateFile:
    """The file that ``--statedb`` names; one for each worker.

    Nothing but a file of our own is ever replaced or moved.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def load(self) -> Saved:
        """Return what the file holds; what is damaged is set aside, and told.

        Raises ImproperlyConfigured for a file that is none of ours, or of a later version, and
        DiskError for one that cannot be read.
        """
        content = self._read()
        # One that somebody only made has nothing to lose.
        if not content:
            return Saved()
        try:
            return self._parsed(content)
        except _Damaged as error:
            aside = self._set_aside()
            return Saved(damage=f"{self.path} is damaged: {error}; renamed to {aside.name}, and ignored")

    def save(self, *, clock: int, revoked: Sequence[tuple[str, float]]) -> None:
        """Replace what the file holds; on return it outlives a crash of the machine.

        Raises DiskError if that cannot be; what was there before is then still there.
        """
        kept = [each for each in revoked if _can_be_kept(*each)]
        body = _encode(_Body(min(clock, MAX_CLOCK), kept[-REVOKED_MAX_SIZE:]))
        header = _encode(_Header(_FORMAT, _VERSION, sha256(body).hexdigest()))
        # Another worker that was given the same path by mistake must not write into ours.
        draft = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.new")
        try:
            try:
                write_new(draft, b"%b\n%b\n" % (header, body))
                draft.replace(self.path)
            except BaseException:
                with suppress(OSError):
                    draft.unlink()
                raise
            sync_folder(self.path.parent)
        except OSError as error:
            raise self._failed("written", error) from None

    def _read(self) -> bytes:
        try:
            # To open a pipe would wait for somebody at its other end.
            number = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | FLAGS)
        except FileNotFoundError:
            self._check_folder()
            return b""
        except OSError as error:
            if self.path.is_symlink():
                raise self._refused("a symbolic link: give the path of its target") from None
            raise self._failed("read", error) from None
        except ValueError:
            raise ImproperlyConfigured(
                f"invalid path of the worker state file, {str(self.path)!r}: remove the null character"
            ) from None
        if not S_ISREG(os.fstat(number).st_mode):
            os.close(number)
            raise self._refused("not a regular file: give a file")
        with os.fdopen(number, "rb") as file:
            try:
                return file.read(_MAX_BYTES + 1)
            except OSError as error:
                raise self._failed("read", error) from None

    def _parsed(self, content: bytes) -> Saved:
        if not content.strip(b"\0"):
            # As some file systems leave a file after a crash.
            raise _Damaged("the file has only zeros")
        if not content.startswith(_MARK):
            raise self._refused("not a Celeriac file, perhaps a Celery statedb: give another file")
        header, _, body = content.partition(b"\n")
        try:
            told = _decode_header(header)
            if told.version > _VERSION:
                raise self._refused(f"newer version {told.version}: upgrade Celeriac, or give another file")
            body = body.removesuffix(b"\n")
            if sha256(body).hexdigest() != told.sha256:
                raise _Damaged("wrong checksum")
            read = _decode_body(body)
        except (DecodeError, ValidationError, UnicodeError, RecursionError) as error:
            raise _Damaged(str(error)) from None
        return Saved(read.clock, read.revoked)

    def _set_aside(self) -> Path:
        try:
            for number in count(1):
                aside = self.path.with_name(f"{self.path.name}.damaged-{number}")
                if not os.path.lexists(aside):
                    break
            self.path.rename(aside)
            sync_folder(self.path.parent)
        except OSError as error:
            raise self._failed("set aside", error) from None
        return aside

    def _check_folder(self) -> None:
        if not self.path.parent.is_dir():
            raise ImproperlyConfigured(
                f"the folder {self.path.parent} for the worker state does not exist: create it, or give "
                "another"
            )

    def _refused(self, what: str) -> ImproperlyConfigured:
        return ImproperlyConfigured(f"cannot use {self.path} as the worker state file: {what}")

    def _failed(self, what: str, error: OSError) -> DiskError:
        return failed(f"the worker state file {self.path} cannot be {what}", error)


def _can_be_kept(task_id: str, age: float) -> bool:
    """Say whether it can be read back: a file that cannot would be lost as a whole."""
    is_text = task_id.isascii() or not any("\ud800" <= char <= "\udfff" for char in task_id)
    return is_text and 0 < len(task_id) <= MAX_ID_CHARS and 0 <= age < inf
