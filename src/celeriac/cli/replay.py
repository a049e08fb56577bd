"""``celeriac replay``: the cluster at a time of the past."""

import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from time import sleep
from typing import TYPE_CHECKING, Annotated, Final

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.format_option import PLAIN, Output
from celeriac.cli.log_reading import LogPlace, Speed, open_log, open_replay, say_damage
from celeriac.cli.progress import Progress
from celeriac.cli.session import Session
from celeriac.cli.time_range import AsOf, Since
from celeriac.cli.viewing import Viewing
from celeriac.errors import CallerError
from celeriac.model.events import Event, Gap, TaskEvent, WorkerHeartbeat
from celeriac.node.replay import Replay
from celeriac.node.state import State
from celeriac.node.stop_signals import stop_command
from celeriac.views.cluster import TaskRow, WorkerRow, task_rows, totals, worker_rows
from celeriac.views.event import event_line, gap_text
from celeriac.views.log import moment_text
from celeriac.views.measure import read_speed
from celeriac.views.replay import past_dict

if TYPE_CHECKING:
    from celeriac.cli.face import Face
    from celeriac.store.event_log import EventLog

__all__ = ["replay"]

_LAST_EVENTS: Final = 10
_MOST_TASKS: Final = 20
_MOST_GAPS: Final = 5
#: How often what is shown is renewed.
_PAUSE: Final = 0.25
_STYLES: Final = {"online": "green", "offline": "bold yellow", "left": "dim", "FAILURE": "bold red"}

TaskPattern = Annotated[
    str | None, typer.Option("--task", metavar="GLOB", help="Only tasks with this name or id.")
]
WorkerPattern = Annotated[
    str | None, typer.Option("--worker", metavar="GLOB", help="Only events of this node.")
]


def replay(
    session: Session,
    *,
    log: LogPlace = None,
    until: AsOf = None,
    since: Since = None,
    speed: Speed = None,
    task: TaskPattern = None,
    worker: WorkerPattern = None,
    out: Output = PLAIN,
) -> Code:
    """Show a cluster at a time of the past: workers, tasks and their results, last events.

    Reads an event log. Events count by the time when they happened, also those that a recorder received
    late. With --since, events before it are unknown. With --speed, the events are replayed. Damaged parts
    of the log are named, all else is shown, and the exit code is 1.

    For example:
      celeriac replay --until 2026-11-14T10:00
      celeriac replay s3://bucket/history --until 2h --task 'shop.*'
      celeriac replay --since 2026-11-14T09:50 --until 2026-11-14T10:00 --speed 10x
      celeriac replay --until now --json | jq .workers
    """
    if not out.is_table and speed is not None and read_speed(speed, option="--speed") is not None:
        raise CallerError("--speed is for a terminal. For programs use celeriac events --speed -o jsonl")
    history = open_log(session, log)
    last: deque[Event] = deque(maxlen=_LAST_EVENTS)
    is_watched = speed is not None and out.is_table
    with Progress("reading") as progress:
        play = open_replay(
            session,
            history,
            since=since,
            until=until,
            speed=speed,
            task=task,
            worker=worker,
            progress=None if is_watched else progress,
        )
        if is_watched:
            _watch(play, history.place.url, last)
        else:
            for batch in play.batches():
                last.extend(_worth_telling(batch))
    damage = list(play.damage)
    gaps = _gaps(play, history, is_filtered=task is not None or worker is not None)
    if not out.write_object(past_dict(play.state, as_of=play.instant, gaps=gaps, last=last)):
        filters = [f"{name} {text}" for name, text in (("--task", task), ("--worker", worker)) if text]
        _tell(play, gaps, last, filters)
    return say_damage(damage)


def _watch(play: Replay, place: str, last: deque[Event]) -> None:
    from celeriac.cli.face import Lines, Screen  # noqa: PLC0415  (slow to load)

    is_plain = not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb"
    heading = [""]
    face: Face = Lines() if is_plain else Screen(heading)
    speed = "full speed" if play.speed is None else f"{play.speed:g}x"
    ending = f"{speed}; stop with {stop_command()}"
    with _Seen(play, last) as view, face:
        while True:
            is_over = not view.is_listening
            heading[0] = f"replay  {place}  {moment_text(play.instant) or ''}  {ending}"
            face.show(view)
            if is_over:
                break
            sleep(_PAUSE)
        view.check()
    if view.overlooked:
        output.say(f"{view.overlooked:,} events were too fast to show; the totals have them")


class _Seen(Viewing):
    """Remembers the last events that were shown."""

    def __init__(self, play: Replay, last: deque[Event]) -> None:
        super().__init__(play)
        self._last = last

    def taken(self) -> list[Event]:
        """Take away the events that wait."""
        events = super().taken()
        self._last.extend(_worth_telling(events))
        return events


def _worth_telling(events: Iterable[Event]) -> Iterator[Event]:
    return (event for event in events if not isinstance(event, WorkerHeartbeat))


def _gaps(play: Replay, history: "EventLog", *, is_filtered: bool) -> list[Gap]:
    """Return when events may be missing; whatever was asked for, they may be among those."""
    if not is_filtered:
        return list(play.state.gaps)
    read = history.read(since=play.since, until=play.until, types=["cluster-gap"])
    return [event for event in read if isinstance(event, Gap)]


def _tell(play: Replay, gaps: list[Gap], last: deque[Event], filters: Sequence[str]) -> None:
    state = play.state
    sums = totals(state)
    has_workers = not any(each.startswith("--task") for each in filters)
    if not sums.events:
        output.say(f"No events{_asked_for(play, filters)}")
        return
    workers = f"{sums.workers_online} of {sums.workers} workers online, " if has_workers else ""
    output.write(f"as of {moment_text(play.instant)}: {workers}{sums.tasks:,} tasks, {sums.events:,} events")
    rows = worker_rows(state) if has_workers else []
    if rows:
        output.write("")
        output.write_rows(WorkerRow, rows, _STYLES)
    if sums.tasks_by_state:
        output.write("")
        output.write_table(("STATE", "TASKS"), sums.tasks_by_state.items(), _STYLES)
    if not has_workers and sums.tasks:
        output.write("")
        output.write_rows(TaskRow, task_rows(state, _MOST_TASKS), _STYLES)
    output.write("")
    output.write("last events")
    for event in last:
        output.write(f"  {event_line(event, _name_of(event, state))}")
    for gap in gaps[-_MOST_GAPS:]:
        output.say(f"GAP: {gap_text(gap)}")
    if len(gaps) > _MOST_GAPS:
        output.say(f"and {len(gaps) - _MOST_GAPS} gaps before; -o json has all")


def _asked_for(play: Replay, filters: Sequence[str]) -> str:
    """Return what of a log was asked for."""
    told = f" that match {' and '.join(filters)}" if filters else ""
    told += f" from {moment_text(play.since)}" if play.since is not None else ""
    return told + (f" until {moment_text(play.until)}" if play.until is not None else "")


def _name_of(event: Event, state: State) -> str | None:
    task = state.tasks.get(event.uuid) if isinstance(event, TaskEvent) else None
    return None if task is None else task.name
