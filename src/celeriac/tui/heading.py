"""The lines on top of the first screen: where we look, and the cluster in a few numbers."""

from typing import Final

from rich.text import Text

from celeriac.tui.cell import style_of
from celeriac.tui.sight import Sight
from celeriac.views.alert import Alert
from celeriac.views.format import format_duration, format_rate
from celeriac.views.log import count_text, moment_text
from celeriac.views.overview import Overview

__all__ = ["place_line", "total_lines"]

_ALERT_STYLES: Final = {"error": "bold white on red", "warning": "bold yellow"}
_RATES: Final = ("received", "succeeded", "failed", "retried")


def place_line(sight: Sight, *, as_of: float | None, is_paused: bool) -> Text:
    """Return the broker or log, and the instant that is shown."""
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(" celeriac ", style="reverse bold")
    line.append("  PAUSED" if is_paused else "", style="bold yellow")
    line.append(f"  {moment_text(as_of) or ''}", style="bold")
    line.append(f"  {sight.mode}", style="" if sight.mode == "live" else "bold cyan")
    line.append(f"  {sight.place}")
    return line


def total_lines(seen: Overview) -> Text:
    """Return the totals, and what needs somebody to look."""
    lines = [_rates(seen), _tasks(seen), _workers(seen)]
    if seen.alerts:
        lines.append(_alert(seen.alerts))
    return Text("\n").join(lines)


def _rates(seen: Overview) -> Text:
    told = [f"{format_rate(getattr(seen.now, name))} {name}" for name in _RATES]
    return _line(count_text(seen.events, "event"), ", ".join(told))


def _tasks(seen: Overview) -> Text:
    return _counted(count_text(seen.tasks, "task"), seen.tasks_by_state)


def _workers(seen: Overview) -> Text:
    counts = {name: count for name, count in seen.workers.items() if count}
    line = _counted(count_text(sum(counts.values()), "worker"), counts)
    for what, took in (("wait", seen.now.wait_p95), ("run", seen.now.run_p95)):
        line.append("" if took is None else f"   {what} p95 {format_duration(took)}")
    return line


def _alert(alerts: list[Alert]) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f" {alerts[0].text} ", style=_ALERT_STYLES.get(alerts[0].level, ""))
    line.append(f" and {len(alerts) - 1} more" if len(alerts) > 1 else "")
    return line


def _counted(what: str, counts: dict[str, int]) -> Text:
    line = _line(what, "")
    for name, count in counts.items():
        line.append(f"{count:,} ")
        line.append(f"{name}  ", style=style_of(name))
    return line


def _line(what: str, rest: str) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{what:<16}  ", style="bold")
    line.append(rest)
    return line
