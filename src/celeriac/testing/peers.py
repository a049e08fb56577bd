"""Real workers for tests: Celery's, run by any interpreter that has Celery, and our own."""

import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from celeriac.errors import CeleriacError, ImproperlyConfigured
from celeriac.programs.service import Service

__all__ = ["CeleriacWorker", "CeleryWorker"]

_RECORD = re.compile(r"^(?=\[\d{4}-)", re.MULTILINE)
_ERROR = re.compile(r"^\[[^\]]*: (?:ERROR|CRITICAL)/|^Traceback \(most recent call last\):", re.MULTILINE)
#: A client that sends one task by name and prints its result. A process of its own, with the
#: worker's Celery: a client inside a test would leave connections open, and mix two Celeries.
_CLIENT = """
import json, os, sys
from celery import Celery
name, arguments, patience = json.loads(sys.argv[1])
app = Celery(broker=os.environ["CELERY_BROKER_URL"], backend=os.environ.get("CELERY_RESULT_BACKEND"))
print(json.dumps(app.send_task(name, arguments).get(timeout=patience)))
"""


class _Worker(Service):
    """What workers of both kinds have in common; ``prefix`` is that of the variables they read."""

    prefix: str

    def __init__(
        self,
        app: Path | str,
        *,
        url: str,
        backend: str | None,
        hostname: str,
        pool: str,
        concurrency: int,
        events: bool,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None,
        home: Path | None,
        log: Path | None,
    ) -> None:
        super().__init__(home=home, log=log)
        self.hostname = hostname
        self._app = app
        self._arguments = [
            *("--hostname", hostname, "--pool", pool, "--concurrency", str(concurrency)),
            *(["--task-events"] if events else []),
            *arguments,
        ]
        self._extra = {f"{self.prefix}_BROKER_URL": url, "PYTHONUNBUFFERED": "1"}
        if backend is not None:
            self._extra[f"{self.prefix}_RESULT_BACKEND"] = backend
        self._extra |= environment or {}
        #: Where the log of the latest start begins, and how long it was when we last looked.
        self._started_at_byte = self._seen_bytes = 0

    def begin(self) -> None:
        """Start the worker, and wait for nothing."""
        self._started_at_byte = self._seen_bytes = (
            self.log_file.stat().st_size if self.log_file.exists() else 0
        )
        super().begin()

    def errors(self) -> list[str]:
        """Return what was logged at ERROR or CRITICAL, or with a traceback, over every start.

        A task that fails is logged so too.
        """
        return [record.rstrip() for record in _RECORD.split(self.log()) if _ERROR.search(record)]

    def _module(self) -> str:
        return self._app.stem if isinstance(self._app, Path) else self._app

    def _cwd(self) -> Path:
        return self._app.absolute().parent if isinstance(self._app, Path) else Path.cwd()

    def _environment(self) -> dict[str, str]:
        return dict(os.environ) | self._extra

    def _is_ready(self) -> bool:
        printed = self.log_file.read_bytes()
        if len(printed) < self._seen_bytes:  # somebody has cut it down, and what is left is the end of it
            self._started_at_byte = 0
        self._seen_bytes = len(printed)
        return f"{self.hostname} ready.".encode() in printed[self._started_at_byte :]


class CeleryWorker(_Worker):
    """A worker of a real Celery, ready for tasks once started.

    ``python`` is the interpreter that has Celery, ``app`` a file, or the name of a module
    to be found from the working folder. ``url`` and ``backend`` are given in the
    environment, where Celery looks first: they hold whatever the app itself says.
    """

    name = "celery"
    prefix = "CELERY"

    def __init__(
        self,
        python: Path | str,
        app: Path | str,
        *,
        url: str,
        backend: str | None = None,
        hostname: str | None = None,
        pool: str = "prefork",
        concurrency: int = 1,
        events: bool = True,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        home: Path | None = None,
        log: Path | None = None,
    ) -> None:
        if not Path(python).exists():
            raise ImproperlyConfigured(f"no interpreter at {python}: create an environment with Celery there")
        super().__init__(
            app,
            url=url,
            backend=backend,
            hostname=hostname or f"peer-{secrets.token_hex(4)}@localhost",
            pool=pool,
            concurrency=concurrency,
            events=events,
            arguments=("--loglevel", "INFO", *arguments),
            environment=environment,
            home=home,
            log=log,
        )
        # Not resolved: an environment is known by the place of its link to the interpreter.
        self._python = str(Path(python).absolute())

    def call(self, task: str, *arguments: object, patience: float = 60.0) -> Any:
        """Send a task by name, as a client of the same Celery and app would, and return its result.

        Whichever worker is free takes it. The error, if it fails, shows what the client printed.
        """
        request = json.dumps([task, arguments, patience])
        done = subprocess.run(  # noqa: S603 - our own command
            [self._python, "-c", _CLIENT, request],
            env=self._environment(),
            cwd=self._cwd(),
            capture_output=True,
            text=True,
            # Celery's own patience ends first, and says why.
            timeout=patience + 30,
            check=False,
        )
        if done.returncode:
            raise CeleriacError(f"{task} returned no result: {done.stderr}")
        return json.loads(done.stdout)

    def _command(self) -> list[str]:
        return [self._python, "-m", "celery", "--app", self._module(), "worker", *self._arguments]


class CeleriacWorker(_Worker):
    """A worker of our own in a process of its own, ready for tasks once started.

    ``app`` is a file that has an ``app``, or the name of a module that does. ``url`` and ``backend`` are
    given in the environment.
    """

    name = "celeriac"
    prefix = "CELERIAC"

    def __init__(
        self,
        app: Path | str,
        *,
        url: str,
        backend: str | None = None,
        hostname: str | None = None,
        pool: str = "threads",
        concurrency: int = 2,
        events: bool = True,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        home: Path | None = None,
        log: Path | None = None,
    ) -> None:
        super().__init__(
            app,
            url=url,
            backend=backend,
            hostname=hostname or f"ours-{secrets.token_hex(4)}@localhost",
            pool=pool,
            concurrency=concurrency,
            events=events,
            arguments=arguments,
            environment=environment,
            home=home,
            log=log,
        )

    def _command(self) -> list[str]:
        place = f"{self._module()}:app"
        return [sys.executable, "-m", "celeriac", "worker", "--app", place, *self._arguments]
