"""What stands where results would be kept, if they are not."""

from typing import NoReturn, cast

from celeriac.config import Settings
from celeriac.node.backend import Backend, backend_for
from celeriac.transport.base import Connection

__all__ = ["no_backend"]


def no_backend(settings: Settings) -> Backend:
    """Return a backend that raises ImproperlyConfigured, with the fix, whatever it is asked.

    So a task can be sent without one, and only who wants its result is told.
    """
    return cast("Backend", _NoBackend(settings))


class _NoBackend:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        backend_for(self._settings, _unreachable)
        raise AttributeError(name)


def _unreachable() -> Connection:
    raise NotImplementedError
