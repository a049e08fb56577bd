"""The log of a command goes to a function, line by line."""

import errno
import logging

import pytest

from celeriac.cli.output import log_to

logger = logging.getLogger(__name__)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "Input/output error"),
        OSError(errno.ENOSPC, "No space left on device"),
        BrokenPipeError(),
        ValueError("I/O operation on closed file"),
    ],
    ids=repr,
)
def test_log_line_that_cannot_be_written_is_dropped(error: Exception) -> None:
    written: list[str] = []

    def write(line: str) -> None:
        written.append(line)
        if len(written) == 1:
            raise error

    with log_to(write):
        logger.warning("lost")
        logger.warning("kept")

    assert written == ["warning: lost", "warning: kept"]
