"""Lines of events, in colour where there is a terminal."""

from typing import Final

from rich.text import Text

from celeriac.cli import output
from celeriac.views.event import EventLine

__all__ = ["Painter", "painted"]

_COLOURS: Final = {
    "task-succeeded": "green",
    "task-failed": "bold red",
    "task-retried": "yellow",
    "task-rejected": "yellow",
    "task-revoked": "magenta",
    "task-started": "cyan",
    "worker-online": "bold green",
    "worker-offline": "bold yellow",
    "worker-heartbeat": "dim",
    "cluster-gap": "bold white on red",
}


def painted(line: EventLine) -> Text:
    """Return the line of an event in colour."""
    colour = _COLOURS.get(line.type, "")
    text = Text(no_wrap=True)
    text.append(line.time, style="dim")
    text.append(f"  {line.type:<16}", style=colour)
    for part in line[2:]:
        text.append(f"  {part}" if part else "", style=colour if colour == "dim" else "")
    return text


class Painter:
    """Writes lines to standard output."""

    def __init__(self) -> None:
        self._console = output.console()
        #: Whether somebody looks at it.
        self.is_terminal = self._console.is_terminal

    def event(self, line: EventLine) -> None:
        """Write the line of an event."""
        if self.is_terminal:
            self._console.print(painted(line))
        else:
            output.write(str(line))

    def alarm(self, message: str) -> None:
        """Write a line that nobody overlooks."""
        if self.is_terminal:
            self._console.print(Text(f" {message} ", style="bold white on red"))
        else:
            output.write(f"*** {message} ***")
