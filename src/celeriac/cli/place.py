"""``--app``: where the app of a command is."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from celeriac.errors import CeleriacError, ImproperlyConfigured

if TYPE_CHECKING:
    from celeriac.app import Celeriac

__all__ = ["Place", "load"]

Place = Annotated[
    str,
    typer.Option(
        "--app",
        "-A",
        metavar="MODULE:APP",
        show_default=False,
        help="Where the app with the tasks is, such as shop.tasks:app.",
    ),
]


def load(place: str) -> "Celeriac":
    """Import the app at ``module:attribute``; raises ImproperlyConfigured with the fix."""
    from celeriac.app import Celeriac  # noqa: PLC0415 - loads the ways to every broker
    from celeriac.worker.pool.child import load_app  # noqa: PLC0415

    # As for any program: modules are looked for where it was started.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        app = load_app(place)
    except CeleriacError:
        raise
    except Exception as error:
        raise ImproperlyConfigured(_why_not_loaded(place, error)) from error
    if not isinstance(app, Celeriac):
        raise ImproperlyConfigured(
            f"{place!r} is a {type(app).__name__}, not a Celeriac app: name the one that has the tasks"
        )
    return app


def _why_not_loaded(place: str, error: Exception) -> str:
    module = place.partition(":")[0]
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing is not None and f"{module}.".startswith(f"{missing}."):
        return f"there is no module {missing!r}: run the command where it is, or mend --app"
    # Not ours to mend, and not that of --app: what it says itself is the way to it.
    return f"{module} cannot be imported, {type(error).__name__}: {error}; --debug shows where"
