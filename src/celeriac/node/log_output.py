"""Where the log of a program goes while a service of ours runs in it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from celeriac.errors import CallerError
from celeriac.store.disk import failed

__all__ = ["log_output"]

_FORMAT: Final = "[%(asctime)s: %(levelname)s/%(processName)s] %(message)s"


@contextmanager
def log_output(level: int | str, file: Path | str | None) -> Iterator[None]:
    """Set the level of the root logger for the duration of the context, and append its lines to a file.

    Without a file they go to standard error if the program has no log output yet. Level 0 and no file leave
    the log as it is. Raises DiskError if the file cannot be written.
    """
    root = logging.getLogger()
    old_level, handler = root.level, None
    try:
        root.setLevel((level.upper() if isinstance(level, str) else level) or old_level)
    except (TypeError, ValueError):
        raise CallerError(f"Invalid loglevel {level!r}. Use a name such as 'INFO', or a number.") from None
    try:
        handler = _new_handler(level, file)
        if handler is not None:
            handler.setFormatter(logging.Formatter(_FORMAT))
            root.addHandler(handler)
        yield
    finally:
        root.setLevel(old_level)
        if handler is not None:
            root.removeHandler(handler)
            handler.close()


def _new_handler(level: int | str, file: Path | str | None) -> logging.Handler | None:
    if not file:
        return logging.StreamHandler() if level and not logging.getLogger().handlers else None
    try:
        return logging.FileHandler(file, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise failed(f"Cannot write log file {file}", error) from error
