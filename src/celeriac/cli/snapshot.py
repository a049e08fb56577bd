"""``celeriac snapshot``: the state of the cluster in a file, or in snapshots at intervals."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from threading import Timer
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from celeriac.cli import output
from celeriac.cli.exit import Code
from celeriac.cli.format_option import PLAIN, Output
from celeriac.cli.session import Session
from celeriac.cli.viewing import view_cluster
from celeriac.errors import CallerError, CeleriacError, ImproperlyConfigured
from celeriac.masking import sanitize_url
from celeriac.model.events import TaskEvent
from celeriac.node.stop_signals import interrupt, stop_command, stop_signals
from celeriac.views.format import format_duration
from celeriac.views.text import visible

if TYPE_CHECKING:
    from types import FrameType

    from celeriac.app import Celeriac
    from celeriac.node.camera import Polaroid
    from celeriac.node.receiver import EventReceiver
    from celeriac.node.state import State

__all__ = ["snapshot"]

#: Celery's workers send a heartbeat every 2 seconds: one of each is heard.
_LISTEN: Final = 3.0
_LOOK_EVERY: Final = 0.05
_FILE: Final = "cluster.state"
#: A URL and a few counts.
_ROW_CHARS: Final = 500

Target = Annotated[
    str | None,
    typer.Argument(
        metavar="OUTPUT",
        show_default=False,
        help=f"File or URL for the state, such as s3://bucket/{_FILE}. Default: {_FILE}.",
    ),
]
For = Annotated[
    float | None,
    typer.Option(
        "--for",
        min=0.0,
        metavar="SECONDS",
        help=f"Stop after SECONDS. Default: {_LISTEN:g} for a file, no limit for a camera.",
    ),
]
UntilQuiet = Annotated[
    bool,
    typer.Option("--until-quiet", help="Listen until no task event came for --for SECONDS. Only for a file."),
]
CameraName = Annotated[
    str | None,
    typer.Option(
        "--camera", metavar="MODULE:CLASS", help="Camera class that takes the snapshots, until Ctrl-C."
    ),
]
Database = Annotated[
    str | None,
    typer.Option("--database", metavar="URL", help="Write workers and tasks to PostgreSQL or SQLite."),
]
Parquet = Annotated[
    str | None,
    typer.Option("--parquet", metavar="URL", help="Write Parquet files to a folder or an object store."),
]
Frequency = Annotated[
    float,
    typer.Option("--freq", "--every", min=0.01, metavar="SECONDS", help="Interval between snapshots."),
]
MaxRate = Annotated[
    str | None,
    typer.Option("--maxrate", metavar="RATE", help="Maximum rate of snapshots: 10/s, 10/m or 10/h."),
]


def snapshot(
    session: Session,
    *,
    place: Target = None,
    seconds: For = None,
    until_quiet: UntilQuiet = False,
    camera: CameraName = None,
    database: Database = None,
    parquet: Parquet = None,
    freq: Frequency = 1.0,
    maxrate: MaxRate = None,
    out: Output = PLAIN,
) -> Code:
    """Save cluster state to a file, or write periodic snapshots to a database or Parquet.

    For a file, listens a few seconds; State.restore reads the file. A camera writes a snapshot every --freq
    seconds and a last one at the end: --database, --parquet, or a class of your own derived from
    celeriac.Polaroid. Secrets in arguments and results are masked (settings redact_*), but not for a camera
    of your own. Ctrl-C or SIGTERM: saves the state, and exits.

    For example:
      celeriac snapshot
      celeriac snapshot s3://bucket/cluster.state --for 30
      celeriac snapshot --database postgresql://monitor@db/celery --freq 10
      celeriac snapshot --parquet snapshots --freq 60 --for 3600
      celeriac snapshot --camera shop.monitor:Camera --maxrate 10/m
    """
    cameras = [name for name in (camera, database, parquet) if name is not None]
    if len(cameras) + (place is not None) > 1:
        raise CallerError("Use one of OUTPUT, --camera, --database and --parquet. Run one command for each")
    if cameras and until_quiet:
        raise CallerError("--until-quiet is for a file. Stop a camera with --for SECONDS")
    from celeriac.node.camera import make_camera  # noqa: PLC0415  (loads what most commands do without)

    app = session.app
    if not cameras:
        told = _save(app, place or _FILE, _LISTEN if seconds is None else seconds, until_quiet=until_quiet)
    else:
        with _blaming(camera):
            film = _film(app, database=database, parquet=parquet) or _yours(camera or "")
            made = make_camera(film, app, freq=freq, maxrate=maxrate)
        output.say(
            f"snapshot every {format_duration(made.freq)}, {_target(film, camera)}; stop: {stop_command()}"
        )
        _run(app, made, seconds)
        if database is not None:
            # From here on it is not the broker that may be away.
            session.place_option = "--database URL"
        with _blaming(camera):
            _take_last(made)
        told = _counts(made.state) | {"snapshots": made.taken, "failed": made.failed}
    if not out.write_object(told):
        saved = f"{told.pop('saved')}: " if "saved" in told else ""
        output.write(visible(saved + ", ".join(map(_counted, told, told.values())), _ROW_CHARS))
    return Code.OK


# -- one picture


def _save(app: "Celeriac", place: str, seconds: float, *, until_quiet: bool) -> dict[str, object]:
    """Listen for a while, and save what was heard."""
    view = view_cluster(app)
    with _interruptible(), view:
        end_at = monotonic() + seconds
        while monotonic() < end_at:
            view.check()
            if any(isinstance(event, TaskEvent) for event in view.taken()) and until_quiet:
                end_at = monotonic() + seconds
            sleep(min(_LOOK_EVERY, max(0.0, end_at - monotonic())))
    view.check()
    view.state.save(place)
    return {"saved": sanitize_url(place) if "://" in place else place} | _counts(view.state)


def _counted(name: str, count: object) -> str:
    """Return such as ``1 worker`` or ``2 workers``."""
    return f"{count} {name.removesuffix('s') if count == 1 else name}"


def _counts(state: "State") -> dict[str, object]:
    return {
        "workers": len(state.workers),
        "tasks": len(state.tasks),
        "events": state.event_count - len(state.gaps),
        "gaps": len(state.gaps),
    }


@contextmanager
def _interruptible() -> Iterator[None]:
    """Leave the context at Ctrl-C or SIGTERM, and go on."""
    with suppress(KeyboardInterrupt), stop_signals(interrupt):
        yield


# -- one after the other


def _film(app: "Celeriac", *, database: str | None, parquet: str | None) -> object:
    """Return the camera of ours that an option names, which writes nothing that the settings redact."""
    from celeriac.node.history import redactor_of  # noqa: PLC0415  (loads what most commands do without)

    redact = redactor_of(app.conf)
    if database is not None:
        return _load("celeriac.store.database_camera", "database").DatabaseCamera(database, redact=redact)
    if parquet is not None:
        return _load("celeriac.store.parquet_camera", "history").ParquetCamera(parquet, redact=redact)
    return None


def _load(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyarrow", "fsspec", "sqlalchemy", "psycopg"):
            raise
        raise ImproperlyConfigured(
            f"Snapshots there need {error.name}, which is not installed: pip install 'celeriac[{extra}]'"
        ) from None


def _yours(name: str) -> object:
    from celeriac.node.camera import load_camera  # noqa: PLC0415

    # As for any program: modules are looked for where it was started.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return load_camera(name)


@contextmanager
def _blaming(camera: str | None) -> Iterator[None]:
    """Say whose fault it is if a camera that is none of ours raises."""
    try:
        yield
    except CeleriacError:
        raise
    except Exception as error:
        if camera is None:
            raise
        why = visible(f"{type(error).__name__}: {error}", _ROW_CHARS)
        raise CeleriacError(f"Camera {camera} failed: {why}. --debug shows the trace") from error


def _target(film: object, camera: str | None) -> str:
    """Return where pictures go, for people."""
    if camera is not None:
        return f"by {camera}"
    place = getattr(film, "place", film)
    return f"to {getattr(place, 'url', place)}"


def _run(app: "Celeriac", camera: "Polaroid", seconds: float | None) -> None:
    """Have a camera take pictures until it is told to end."""
    from celeriac.node.camera import evcam  # noqa: PLC0415

    receiver = app.events.Receiver()
    with _ended(receiver, seconds):
        evcam(camera, app=app, receiver=receiver)


@contextmanager
def _ended(receiver: "EventReceiver", seconds: float | None) -> Iterator[None]:
    """Stop a receiver at SIGTERM, and after a time."""
    timer = Timer(seconds or 0.0, receiver.stop)
    timer.daemon = True
    if seconds is not None:
        timer.start()
    try:
        with _on_sigterm(lambda _number, _frame: receiver.stop()):
            yield
    finally:
        timer.cancel()


@contextmanager
def _on_sigterm(do: "Callable[[int, FrameType | None], object]") -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, do)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _take_last(camera: "Polaroid") -> None:
    """Have what came since the last picture, and what that one could not write."""
    try:
        camera.capture()
    finally:
        close = getattr(camera.film, "close", None)
        if close is not None:
            close()
