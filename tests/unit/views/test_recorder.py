"""The line that shows how a recorder gets on."""

from celeriac.node.recorder import Progress
from celeriac.views.recorder import progress_line


def test_the_line_tells_what_matters() -> None:
    progress = Progress(
        "recording", recorded=1_234_567, pending=12, gaps=1, segments=3, pending_seals=1, lag=0.25
    )

    line = progress_line(progress, rate=12_345.6, size=2_500_000)

    assert line == (
        "recording:  1,234,567 events  12,346/s  lag 250 ms  2.4 MiB on disk  3 segments (1 to seal)  "
        "12 pending  0 dropped  1 gaps"
    )


def test_what_is_wrong_stands_out_and_cannot_move_the_cursor() -> None:
    progress = Progress("dropping", dropped=5, refused=2, last_error="no room\x1b[2J")

    line = progress_line(progress, rate=None, size=None)

    assert line.startswith("DROPPING EVENTS:")
    assert "5 dropped  2 refused" in line
    assert line.endswith(r"no room\x1b[2J")
