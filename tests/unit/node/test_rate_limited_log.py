"""Log lines that peers cause are limited in number, whatever kinds there are."""

import logging

import pytest

from celeriac.node.rate_limited_log import RateLimitedLog


def test_a_line_of_each_kind_is_written_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    log = RateLimitedLog(logging.getLogger("test"), now=lambda: now)

    for kind in ("a", "b", "a"):
        log.write(logging.ERROR, kind, "kind %s", kind)
    now = 160.0
    log.write(logging.WARNING, "a", "kind %s again", "a")

    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        ("ERROR", "kind a"),
        ("ERROR", "kind b"),
        ("WARNING", "kind a again"),
    ]


def test_lines_of_very_many_kinds_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    log = RateLimitedLog(logging.getLogger("test"), now=lambda: 100.0)

    for number in range(1000):
        log.write(logging.WARNING, f"kind {number}", "line")

    assert len(caplog.records) == 20
