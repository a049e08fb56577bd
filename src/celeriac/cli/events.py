"""``celeriac events``: the events of the cluster, live or from an event log."""

from collections.abc import Iterator
from contextlib import closing
from enum import StrEnum
from fnmatch import fnmatchcase
from threading import Event as Flag
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.log_reading import LogOption, Speed, open_log, open_replay, say_damage
from celeriac.cli.session import Session
from celeriac.cli.time_range import Since, Until
from celeriac.model.events import Event, Gap, TaskEvent
from celeriac.node.source import EventSource, Live
from celeriac.views.event import event_dict, event_line, gap_text
from celeriac.views.format import format_duration
from celeriac.views.text import visible

if TYPE_CHECKING:
    from celeriac.cli.painter import Painter
    from celeriac.node.replay import Replay
    from celeriac.wire.event import Gate

__all__ = ["events"]

Types = Annotated[
    list[str] | None,
    typer.Option("--type", "-t", metavar="GLOB", help="Only this event type, such as 'task-*'. Repeatable."),
]
TaskPattern = Annotated[
    str | None,
    typer.Option("--task", metavar="GLOB", help="Only tasks with this name or id, such as 'shop.*'."),
]
WorkerPattern = Annotated[
    str | None, typer.Option("--worker", metavar="GLOB", help="Only events of this node.")
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Stop after N events.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        min=0.0,
        metavar="SECONDS",
        help="Stop with exit code 69 after SECONDS without a shown event.",
    ),
]
NoWakeup = Annotated[
    bool, typer.Option("--no-wakeup", help="Do not request heartbeats from the workers at the start.")
]


class EventFormat(StrEnum):
    """How events are written."""

    TEXT = "text"
    JSONL = "jsonl"


Form = Annotated[EventFormat, typer.Option("--format", "-o", help="Output format.")]
AsJson = Annotated[bool, typer.Option("--json", help="Same as -o jsonl.")]


def events(
    session: Session,
    *,
    types: Types = None,
    task: TaskPattern = None,
    worker: WorkerPattern = None,
    limit: Limit = None,
    timeout: Timeout = None,
    no_wakeup: NoWakeup = False,
    log: LogOption = None,
    since: Since = None,
    until: Until = None,
    speed: Speed = None,
    form: Form = EventFormat.TEXT,
    is_json: AsJson = False,
) -> Code:
    """Show the events of the cluster live, or those of an event log.

    A task has its name from the event task-received. A task that was received before the start of this
    command is shown by its id alone. Ctrl-C stops, with a summary.

    For example:
      celeriac events
      celeriac events --type task-failed --type task-retried
      celeriac events --task 'shop.*' --json | jq .runtime
      celeriac events --type task-succeeded --limit 1 --timeout 30
      celeriac events --since 2h --type task-failed
      celeriac events --log s3://bucket/history --since 2026-11-14T10:00Z --speed 10x
    """
    from celeriac.cli.painter import Painter  # noqa: PLC0415

    source, told = _source(session, log, since, until, speed, wakeup=not no_wakeup)
    dump = Dump(source, types=types or [], task=task, worker=worker)
    paint = None if is_json or form is EventFormat.JSONL else Painter()
    with closing(source), Silence(source, timeout) as silence:
        try:
            for event in dump.capture():
                silence.end()
                _show(dump, event, paint)
                if limit is not None and dump.shown >= limit:
                    break
        except KeyboardInterrupt:
            output.say(dump.summary(told()))
            raise
    output.say(dump.summary(told()))
    if silence.is_over:
        output.say(f"no event for {format_duration(timeout)}")
        return Code.UNAVAILABLE
    return say_damage(told.damage)


class Told(Protocol):
    """What is to be said of a source when all has been shown."""

    @property
    def damage(self) -> list[str]:
        """What could not be read."""

    def __call__(self) -> str:
        """Return in a few words what was not given out."""


class Refusals:
    """What the gate refused."""

    def __init__(self, gate: "Gate") -> None:
        self.damage: list[str] = []
        self._gate = gate

    def __call__(self) -> str:
        """Return how much was refused, and why."""
        refused = self._gate.refused
        reasons = ", ".join(f"{visible(reason, 40)} {count}" for reason, count in refused.most_common(5))
        return f"{refused.total()} refused by the gate{f' ({reasons})' if reasons else ''}"


class Damage:
    """What of a log could not be read."""

    def __init__(self, replay: "Replay") -> None:
        self._replay = replay

    @property
    def damage(self) -> list[str]:
        """What could not be read."""
        return self._replay.damage

    def __call__(self) -> str:
        """Return how much is damaged."""
        return f"{len(self.damage)} damaged"


def _source(
    session: Session,
    log: str | None,
    since: str | None,
    until: str | None,
    speed: str | None,
    *,
    wakeup: bool,
) -> tuple[EventSource, Told]:
    """Return where events come from, and who tells what was not given out."""
    if log or since or until or speed:
        replay = open_replay(session, open_log(session, log), since=since, until=until, speed=speed)
        return replay, Damage(replay)
    receiver = session.app.events.Receiver()
    return Live(receiver, session.app.events.State(), wakeup=wakeup), Refusals(receiver.gate)


class Dump:
    """The events of a source that somebody asked for, and how many there were."""

    def __init__(
        self, source: EventSource, *, types: list[str], task: str | None, worker: str | None
    ) -> None:
        #: Knows the names of tasks, which few events tell.
        self.state = source.state
        self.shown = 0
        self.seen = 0
        self.gaps = 0
        self._source = source
        self._types = types
        self._task = task
        self._worker = worker

    def capture(self) -> Iterator[Event]:
        """Yield the events that were asked for, and gaps, which concern everybody."""
        for event in self._source:
            if isinstance(event, Gap):
                self.gaps += 1
                yield event
                continue
            self.seen += 1
            if self._is_wanted(event):
                self.shown += 1
                yield event

    def name_of(self, event: Event) -> str | None:
        """Return the name of the task of an event, if it is known."""
        task = self.state.tasks.get(event.uuid) if isinstance(event, TaskEvent) else None
        return None if task is None else task.name

    def summary(self, left_out: str) -> str:
        """Return in one line what there was."""
        return f"{self.seen} events seen, {self.shown} shown; {left_out}; {self.gaps} gaps"

    def _is_wanted(self, event: Event) -> bool:
        if self._types and not any(fnmatchcase(event.type, pattern) for pattern in self._types):
            return False
        if self._worker is not None and not fnmatchcase(event.hostname, self._worker):
            return False
        if self._task is None:
            return True
        if not isinstance(event, TaskEvent):
            return False
        return fnmatchcase(event.uuid, self._task) or fnmatchcase(self.name_of(event) or "", self._task)


class Silence:
    """Stops a source when nothing ended the silence for ``timeout`` seconds; None for never.

    A receiver's own time runs from any event. Here it runs from the last that was shown, so
    that heartbeats do not keep somebody waiting who asked for something else.
    """

    def __init__(self, source: EventSource, timeout: float | None) -> None:
        self.is_over = False
        self._source = source
        self._timeout = timeout
        self._since = monotonic()
        self._ended = Flag()
        self._thread = Thread(target=self._watch, name="silence", daemon=True)

    def end(self) -> None:
        """Begin to count anew."""
        self._since = monotonic()

    def __enter__(self) -> "Silence":
        self._since = monotonic()
        if self._timeout is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _watch(self) -> None:
        timeout = self._timeout or 0.0
        while not self._ended.wait(max(0.0, self._since + timeout - monotonic())):
            if monotonic() >= self._since + timeout:
                self.is_over = True
                self._source.stop()
                return


def _show(dump: Dump, event: Event, paint: "Painter | None") -> None:
    if isinstance(event, Gap):
        alarm = f"GAP: {gap_text(event)}"
        if paint is None:
            # People are told first: whoever reads the line of JSON may stop us at once.
            output.say(alarm)
            output.write_json(event_dict(event))
        else:
            paint.alarm(alarm)
    elif paint is None:
        output.write_json(event_dict(event))
    else:
        paint.event(event_line(event, dump.name_of(event)))
