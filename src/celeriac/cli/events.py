"""``celeriac events``: what happens in the cluster, as it happens."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from threading import Event as Flag
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.option import AsJson
from celeriac.cli.session import Session
from celeriac.model.events import Event, Gap, TaskEvent
from celeriac.views.event import event_dict, event_line, gap_text
from celeriac.views.text import visible

if TYPE_CHECKING:
    from celeriac.app import Celeriac
    from celeriac.cli.painter import Painter
    from celeriac.node.receiver import EventReceiver

__all__ = ["events"]

Types = Annotated[
    list[str] | None,
    typer.Option("--type", "-t", metavar="GLOB", help="Only this type, such as 'task-*'; again for more."),
]
TaskPattern = Annotated[
    str | None,
    typer.Option("--task", metavar="GLOB", help="Only tasks whose name or id fits, such as 'shop.*'."),
]
WorkerPattern = Annotated[
    str | None, typer.Option("--worker", metavar="GLOB", help="Only events that this node sent.")
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="End after N events.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", min=0.0, metavar="SECONDS", help="End with code 69 when nothing was shown for so long."
    ),
]
NoWakeup = Annotated[
    bool, typer.Option("--no-wakeup", help="Do not ask the workers to announce themselves at once.")
]


def events(
    session: Session,
    *,
    types: Types = None,
    task: TaskPattern = None,
    worker: WorkerPattern = None,
    limit: Limit = None,
    timeout: Timeout = None,
    no_wakeup: NoWakeup = False,
    as_json: AsJson = False,
) -> Code:
    """Show the events of the cluster as they come.

    The name of a task is known from the event that says it was received: a task that was
    received before this command began has none, and only its id can be asked for.
    Ctrl-C ends it, with a summary.

    For example:
      celeriac events
      celeriac events --type task-failed --type task-retried
      celeriac events --task 'shop.*' --json | jq .runtime
      celeriac events --type task-succeeded --limit 1 --timeout 30
    """
    from celeriac.cli.painter import Painter  # noqa: PLC0415

    dump = Dump(session.app, types=types or [], task=task, worker=worker)
    paint = None if as_json else Painter()
    with dump.receiver, Silence(dump.receiver, timeout) as silence:
        try:
            for event in dump.capture(wakeup=not no_wakeup):
                silence.end()
                _show(dump, event, paint)
                if limit is not None and dump.shown >= limit:
                    break
        except KeyboardInterrupt:
            output.say(dump.summary())
            raise
    output.say(dump.summary())
    if silence.is_over:
        output.say(f"nothing came for {timeout:g} seconds")
        return Code.UNAVAILABLE
    return Code.OK


class Dump:
    """The events of a cluster that somebody asked for, and how many there were."""

    def __init__(self, app: "Celeriac", *, types: list[str], task: str | None, worker: str | None) -> None:
        self.receiver = app.events.Receiver()
        #: Knows the names of tasks, which few events tell.
        self.state = app.events.State()
        self.shown = 0
        self.gaps = 0
        self._types = types
        self._task = task
        self._worker = worker

    def capture(self, *, wakeup: bool) -> Iterator[Event]:
        """Yield the events that were asked for, and gaps, which concern everybody."""
        for event in self.receiver.itercapture(wakeup=wakeup):
            self.state.event(event)
            if isinstance(event, Gap):
                self.gaps += 1
                yield event
            elif self._is_wanted(event):
                self.shown += 1
                yield event

    def name_of(self, event: Event) -> str | None:
        """Return the name of the task of an event, if it is known."""
        task = self.state.tasks.get(event.uuid) if isinstance(event, TaskEvent) else None
        return None if task is None else task.name

    def summary(self) -> str:
        """Return in one line what there was."""
        refused = self.receiver.gate.refused
        reasons = ", ".join(f"{visible(reason, 40)} {count}" for reason, count in refused.most_common(5))
        return (
            f"{self.state.event_count - self.gaps} events seen, {self.shown} shown; "
            f"{refused.total()} refused by the gate{f' ({reasons})' if reasons else ''}; {self.gaps} gaps"
        )

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
    """Stops a receiver when nothing ended the silence for ``timeout`` seconds; None for never.

    The receiver's own time runs from any event. Here it runs from the last that was shown, so
    that heartbeats do not keep somebody waiting who asked for something else.
    """

    def __init__(self, receiver: "EventReceiver", timeout: float | None) -> None:
        self.is_over = False
        self._receiver = receiver
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
                self._receiver.stop()
                return


def _show(dump: Dump, event: Event, paint: "Painter | None") -> None:
    if isinstance(event, Gap):
        alarm = f"GAP: {gap_text(event)}"
        # People are told first: whoever reads the line of JSON may stop us at once.
        if paint is None or not paint.is_terminal:
            output.say(alarm)
        if paint is None:
            output.write_json(event_dict(event))
        else:
            paint.alarm(alarm)
    elif paint is None:
        output.write_json(event_dict(event))
    else:
        paint.event(event_line(event, dump.name_of(event)))
