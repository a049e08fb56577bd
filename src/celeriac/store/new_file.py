"""A file that somebody asked for: it has its name only once all is in it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from celeriac.errors import CeleriacError, DiskError

__all__ = ["new_file"]

#: What is in it may be nobody else's business.
_MODE: Final = 0o600


@contextmanager
def new_file(path: Path, *, fix: str) -> Iterator[BinaryIO]:
    """Have a file to write to, that is there whole or not at all; ``fix`` says what to do if it cannot be."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _MODE)
        try:
            with os.fdopen(number, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    except CeleriacError:
        raise
    except OSError as error:
        raise DiskError(f"{path} cannot be written: {error.strerror or error}; {fix}") from error
