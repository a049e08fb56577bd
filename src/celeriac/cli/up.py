"""``celeriac up``: recorder, dashboard and pipeline of a cluster, by one command."""

import errno
from contextlib import ExitStack, suppress
from math import inf
from pathlib import Path
from signal import SIGHUP
from time import monotonic, sleep, strftime
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.session import Session
from celeriac.cli.up_option import Served
from celeriac.config.settings import DATA_FOLDER
from celeriac.errors import CeleriacError
from celeriac.masking import sanitize_url
from celeriac.node.stop_signals import stop_signals
from celeriac.store.disk import failed
from celeriac.views.text import visible

if TYPE_CHECKING:
    from celeriac.cli.lineup import Lineup

__all__ = ["up"]

#: How often the programs are looked at.
_PAUSE: Final = 0.1
_LINE_CHARS: Final = 500

PipelineEvery = Annotated[
    float,
    typer.Option(
        "--pipeline-every",
        min=0.0,
        metavar="MINUTES",
        help="Interval of the pipeline, which makes tables; 0 for never.",
    ),
]
Data = Annotated[Path, typer.Option("--data", metavar="FOLDER", help="Folder for all data.")]
Duration = Annotated[
    float | None, typer.Option("--for", min=0.0, metavar="SECONDS", help="Stop after SECONDS.")
]


def up(
    session: Session,
    served: Served,
    *,
    pipeline_every: PipelineEvery = 10.0,
    data: Data = Path(DATA_FOLDER),
    duration: Duration = None,
) -> Code:
    """Monitor a cluster: record its events, serve the dashboard, and make tables, until Ctrl-C.

    Without a broker it starts a sample cluster: Valkey on a free port of this machine, two workers and a
    small load. That needs: pip install 'celeriac[demo]'.

    All data is in one folder, and the next start continues from there. A service that ends is restarted;
    all of them end with this command.

    For example:
      celeriac up
      celeriac up --broker redis://127.0.0.1:6379/0
      celeriac up -A proj
      celeriac up --port 8080 --allow-control --pipeline-every 60
    """
    stop = _Stop()
    with stop_signals(stop.take, SIGHUP), ExitStack() as stack:
        lineup = _lineup(session, served, stack, data=data, pipeline_every=pipeline_every)
        stack.callback(lineup.close, is_hurried=lambda: stop.count > 1)
        stack.callback(_say, "stopping")
        _watch(lineup, stop, duration)
    return Code.OK


class _Stop:
    """Counts stop signals. A flag: no signal ends a program halfway through its start."""

    def __init__(self) -> None:
        self.count = 0

    def take(self, _number: int, _frame: FrameType | None) -> None:
        """Take a signal."""
        self.count += 1


def _lineup(
    session: Session, served: Served, stack: ExitStack, *, data: Path, pipeline_every: float
) -> "Lineup":
    """Return the programs, none of them started yet."""
    from celeriac.cli.home import SAMPLE, Home  # noqa: PLC0415  (slow to load)
    from celeriac.cli.lineup import Lineup  # noqa: PLC0415
    from celeriac.cli.sample_cluster import SampleCluster  # noqa: PLC0415
    from celeriac.cli.up_place import places_of  # noqa: PLC0415

    app = session.app
    is_named = session.broker or session.app_name or session.loaded is not None
    is_sample = not is_named and app.conf.sources()["broker_url"] == "default"
    if is_sample:
        SampleCluster.check()
    else:
        with app.connection() as link:  # before anything is made: nobody may be there
            link.open()
    home = Home(data)
    places = places_of(app, home, is_sample=is_sample)
    stack.enter_context(home.taken())
    home.claim(SAMPLE if is_sample else sanitize_url(app.conf.broker_url), log=places.log_folder)
    port = served.reserve()
    stack.callback(port.release)
    try:
        return Lineup(
            app,
            home,
            places,
            sample=SampleCluster(home) if is_sample else None,
            served=served,
            port=port.number,
            pipeline_every=60.0 * pipeline_every,
            config=session.config,
            app_name=session.app_name,
        )
    except CeleriacError:  # some of them are of the system as well, and say more
        raise
    except OSError as error:  # each program has a folder, made here
        raise failed(f"Cannot start anything in {home.folder}", error) from error


def _watch(lineup: "Lineup", stop: _Stop, duration: float | None) -> None:
    """Keep the services running and report on them, until a stop signal or the end of the time."""
    is_shown, is_told, lasts = False, False, inf if duration is None else duration
    # Who says when it is to end has it end, also if something never gets ready.
    ends_at = monotonic() + lineup.crew.start_patience + lasts
    _say("starting")
    while not stop.count and monotonic() < ends_at:
        for line in lineup.crew.tick(monotonic()):
            _write(f"{strftime('%H:%M:%S')}  {visible(line, _LINE_CHARS)}")
        if not is_shown and lineup.is_served:
            is_shown = True
            _write(lineup.address())
        if not is_told and lineup.is_up:
            is_told = True
            ends_at = min(ends_at, monotonic() + lasts)
            for line in lineup.heading():
                _write(line)
        sleep(_PAUSE)


def _write(line: str) -> None:
    """Write it; of a terminal that is gone we are told by a signal, and then all ends in order."""
    try:
        output.write(line)
    except BrokenPipeError:  # who read it has seen enough
        raise
    except OSError as error:
        # A file on a full disk takes later lines, once there is room.
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            output.silence()


def _say(line: str) -> None:
    """Say it if that is possible: the terminal may be what has ended."""
    with suppress(OSError, ValueError):
        output.say(line)
