"""Where a worker writes its log: lines with the time, in which nothing a peer sent can do harm."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from celeriac.errors import DiskError
from celeriac.views.text import visible_lines

__all__ = ["LEVELS", "logging_to"]

#: As they are named on the command line.
LEVELS = ("debug", "info", "warning", "error", "critical")
#: A line may hold a URL and a reason, or one line of a traceback.
_LINE_CHARS = 4000


class _Lines(logging.Handler):
    """Writes records to a stream; every line of one stands under its head, so that none can be forged."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__()
        self._stream = stream
        self.setFormatter(logging.Formatter())

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
            at = logging.Formatter().formatTime(record, logging.Formatter.default_time_format)
            first, *rest = visible_lines(text, _LINE_CHARS) or [""]
            head = f"[{at},{int(record.msecs):03d}: {record.levelname}/{record.processName}] {first}"
            self._stream.write("\n".join([head, *(f"    {line}" for line in rest)]) + "\n")
            self._stream.flush()
        except Exception:  # noqa: BLE001 - a line of log that cannot be written harms nobody who writes one
            self.handleError(record)


@contextmanager
def logging_to(file: Path | None, *, level: str) -> Iterator[None]:
    """Have the log go to standard error, or be added to a file, for a while."""
    try:
        stream = sys.stderr if file is None else file.open("a", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise DiskError(f"{file} cannot be written: {error.strerror}; name another with --logfile") from error
    root = logging.getLogger()
    handlers, old_level = root.handlers, root.level
    root.handlers = [_Lines(stream)]
    root.setLevel(level.upper())
    try:
        yield
    finally:
        root.handlers = handlers
        root.setLevel(old_level)
        if file is not None:
            stream.close()
