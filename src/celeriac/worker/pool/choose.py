"""Which pool a name stands for."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from celeriac.config import Settings
from celeriac.errors import ImproperlyConfigured
from celeriac.worker.pool.base import Pool
from celeriac.worker.pool.run import Runner

__all__ = ["POOL_NAMES", "make_pool"]

#: As the command line names them.
POOL_NAMES: Final = ("threads", "processes", "solo", "gevent")
_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


def make_pool(
    name: str,
    *,
    runner: Runner,
    app: str,
    size: int,
    settings: Settings,
    overrides: Mapping[str, Any] = _NONE,
) -> Pool:
    """Return a pool that runs ``size`` tasks at a time, not yet started.

    ``app`` is where processes find the app, as ``module:attribute``, and ``overrides`` the settings that
    it was given since; other pools use ``runner`` alone. Raises ImproperlyConfigured for a name that
    there is no pool of.
    """
    # Imported when chosen: nobody waits for what he does not use, and gevent may be absent.
    match name:
        case "threads":
            from celeriac.worker.pool.threads import ThreadPool  # noqa: PLC0415

            return ThreadPool(runner, size=size, settings=settings)
        case "processes":
            from celeriac.worker.pool.processes import ProcessPool  # noqa: PLC0415

            return ProcessPool(runner, app=app, size=size, settings=settings, overrides=overrides)
        case "solo":
            from celeriac.worker.pool.solo import SoloPool  # noqa: PLC0415

            return SoloPool(runner, settings=settings)
        case "gevent":
            return _gevent_pool(runner, size=size, settings=settings)
        case _:
            raise ImproperlyConfigured(f"unknown pool {name!r:.80}: use one of {', '.join(POOL_NAMES)}")


def _gevent_pool(runner: Runner, *, size: int, settings: Settings) -> Pool:
    try:
        from celeriac.worker.pool.gevent import GeventPool  # noqa: PLC0415
    except ImportError:
        raise ImproperlyConfigured("the gevent pool needs gevent: pip install 'celeriac[gevent]'") from None
    return GeventPool(runner, size=size, settings=settings)
