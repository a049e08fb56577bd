"""``--app``: the app that a command works with, one of Celery or one of ours."""

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from celeriac.errors import CallerError, CeleriacError, ImproperlyConfigured

if TYPE_CHECKING:
    from celeriac.app import Celeriac

__all__ = ["is_own", "load", "load_own"]

_INSTALL: Final = "Install celeriac in the environment of the app"


def load(name: str) -> Any:
    """Import the app that ``celery -A`` would find by this name, or an app of ours at ``module:attribute``.

    Raises ImproperlyConfigured with the fix.
    """
    # As for any program: modules are looked for where it was started.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = _find(name)
        if _is_celery(found):
            _ = found.conf.broker_url  # reads the configuration, which fails if at all, then here
    except CeleriacError:
        raise
    except Exception as error:
        raise ImproperlyConfigured(_why_not_loaded(name, error)) from error
    if not is_own(found) and not _is_celery(found):
        raise ImproperlyConfigured(
            f"--app {name}: not an app but a {type(found).__name__}. Name the app, as in proj.celery:app"
        )
    return found


def load_own(name: str | None, command: str) -> "Celeriac":
    """Import an app of ours, whose tasks or schedule a command runs."""
    if not name:
        raise CallerError(f"celeriac {command} needs an app: -A MODULE:APP, as in -A shop.tasks:app")
    if not all(name.partition(":")):  # processes of a pool import it by both
        raise ImproperlyConfigured(f"--app {name}: give module and name of the app, such as shop.tasks:app")
    app = load(name)
    if not is_own(app):
        raise ImproperlyConfigured(
            f"--app {name}: an app of Celery. celeriac {command} needs one of class celeriac.Celeriac. "
            f"For this app run: celery -A {name} {command}"
        )
    own: Celeriac = app
    return own


def is_own(app: object) -> bool:
    """Tell whether an app is one of ours."""
    from celeriac.app import Celeriac  # noqa: PLC0415 - loads the ways to every broker

    return isinstance(app, Celeriac)


def _is_celery(app: object) -> bool:
    # Celery is not imported to ask: an app of it has imported it.
    celery = sys.modules.get("celery")
    return celery is not None and isinstance(app, celery.Celery)


def _find(name: str) -> Any:
    module, _, attribute = name.partition(":")
    if module and attribute:
        found: Any = import_module(module)
        for part in attribute.split("."):
            if not hasattr(found, part):
                raise ImproperlyConfigured(
                    f"--app {name}: module {module} has no {attribute!r}. Name the app in it"
                )
            found = getattr(found, part)
        return found
    try:
        from celery.app.utils import find_app  # noqa: PLC0415 - only for the apps of Celery
    except ModuleNotFoundError:
        raise ImproperlyConfigured(
            f"--app {name}: Celery is not installed here. {_INSTALL}, or name an app of ours as MODULE:APP"
        ) from None
    return find_app(name)


def _why_not_loaded(name: str, error: Exception) -> str:
    module = name.partition(":")[0]
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing == "celery":
        return f"--app {name}: Celery is not installed here. {_INSTALL}"
    if missing is not None and f"{module}.".startswith(f"{missing}."):
        return f"--app {name}: no module {missing!r}. Run the command in the folder of the project"
    if isinstance(error, AttributeError) and module in sys.modules:
        return f"--app {name}: no app in module {module}. Name the app, such as --app {name}:app"
    # The fault is in the module itself: its own message leads to it.
    return f"--app {name}: cannot load {module}, {type(error).__name__}: {error}. --debug shows the trace"
