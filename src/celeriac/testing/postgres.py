"""A real PostgreSQL for tests, on a free port of the loopback interface and in a folder of its own.

Thus::

    with PostgresServer() as server:
        camera = DatabaseCamera(server.url)

It keeps its port, its folder and what is in it over ``stop``, ``kill`` and ``restart``, and ends with
this process however that ends (:mod:`celeriac.programs.guard`).
"""

import ctypes
import os
import pwd
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from celeriac.errors import CeleriacError, ImproperlyConfigured
from celeriac.programs.port import LOOPBACK, ReservedPort
from celeriac.programs.process import find_program
from celeriac.programs.service import Service

__all__ = ["PostgresServer"]

_PACKAGE = "postgresql"
#: Where Debian puts the programs of each version: none of them is on the path.
_VERSIONS = Path("/usr/lib/postgresql")
#: The administrator of the database; a user of PostgreSQL, not of the system.
_USER = "postgres"
#: Who runs it for root, whom it refuses: the first of them that the system has.
_SERVANTS = ("postgres", "nobody")
#: For a program of PostgreSQL to do its work: far more than needed, for a busy machine.
_PATIENCE = 120.0
_DEFAULTS = {
    # A test may kill the server, never the machine: what was committed is there after that all the same.
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "50",
    "shared_buffers": "16MB",
    # In its own folder, so that nothing is left in memory when it is killed.
    "dynamic_shared_memory_type": "mmap",
    "log_statement": "none",
}
#: From sys/ipc.h: remove it.
_IPC_RMID = 0


class PostgresServer(Service):
    """A PostgreSQL server; ``settings`` are lines of ``postgresql.conf``, by name.

    It wants a password, which is in ``url``. What was committed outlives ``kill``.
    """

    name = "postgres"

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._port = ReservedPort()
        self._settings = _DEFAULTS | dict(settings or {})
        self.password = secrets.token_hex(16)

    @property
    def port(self) -> int:
        """The port it listens on, over every start."""
        return self._port.number

    @property
    def url(self) -> str:
        """Where its first database is, with the password."""
        return self.url_of(_USER)

    def url_of(self, database: str) -> str:
        """Return where one of its databases is, with the password."""
        return f"postgresql://{_USER}:{self.password}@{LOOPBACK}:{self.port}/{database}"

    def add_database(self, name: str) -> str:
        """Add an empty database, and return where it is."""
        place = [f"--host={LOOPBACK}", f"--port={self.port}", f"--username={_USER}", "--no-password"]
        self._run([str(_programs() / "createdb"), *place, name])
        return self.url_of(name)

    def stop(self) -> None:
        """End it cleanly, without waiting for its clients to leave, as it would by itself."""
        if self.is_alive:
            self.signal(signal.SIGINT)
        super().stop()

    def close(self) -> None:
        """Stop, remove the folder and give the port back."""
        self.stop()
        self._forget_memory()
        super().close()
        self._port.release()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _command(self) -> list[str]:
        programs = _programs()
        if not (self._data / "PG_VERSION").exists():
            self._make_cluster()
        own = {"listen_addresses": LOOPBACK, "port": str(self.port), "unix_socket_directories": self.folder}
        settings = [f"--{name}={value}" for name, value in {**own, **self._settings}.items()]
        return [*_as_servant(), str(programs / "postgres"), "-D", str(self._data), *settings]

    def _make_cluster(self) -> None:
        servant = _servant()
        shutil.rmtree(self._data, ignore_errors=True)  # one that was not finished
        password = self.folder / "password"
        password.touch(mode=0o600)
        password.write_text(self.password)
        if servant is not None:
            for path in (self.folder, password):
                os.chown(path, servant.pw_uid, servant.pw_gid)
        options = [
            f"--pgdata={self._data}",
            f"--username={_USER}",
            f"--pwfile={password}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            "--no-instructions",
        ]
        self._run([*_as_servant(), str(_programs() / "initdb"), *options])
        password.unlink()

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(  # noqa: S603 - our own command
            command,
            env=self._environment() | {"PGPASSWORD": self.password},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        if done.returncode:
            raise CeleriacError(f"{' '.join(command[:-1])} failed: {done.stderr or done.stdout}")

    def _environment(self) -> dict[str, str]:
        # The settings of the user's own servers must not reach ours.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return inherited | {"LC_ALL": "C.UTF-8", "HOME": str(self.folder)}

    def _is_ready(self) -> bool:
        told = self._told()
        return len(told) > 7 and told[0] == str(self.pid) and told[7].strip() == "ready"

    def _told(self) -> list[str]:
        """Return what it tells of itself: pid, folder, start, port, socket, address, memory, state."""
        with suppress(OSError):
            return (self._data / "postmaster.pid").read_text().splitlines()
        return []

    def _forget_memory(self) -> None:
        """Give back the few bytes of System V memory that a killed server leaves in the system for ever.

        One whose owner was killed leaves them all the same: nobody is there to give them back.
        """
        told = self._told()
        if len(told) > 6 and (key_and_id := told[6].split()):
            ctypes.CDLL(None).shmctl(int(key_and_id[-1]), _IPC_RMID, None)


def _programs() -> Path:
    """Return the folder with the programs of the newest version there is."""
    found = [path.parent for path in _VERSIONS.glob("*/bin/initdb") if (path.parent / "postgres").exists()]
    if found:
        return max(found, key=lambda folder: [int(part) for part in folder.parent.name.split(".")])
    return find_program("initdb", package=_PACKAGE).resolve().parent


def _servant() -> pwd.struct_passwd | None:
    """Return the user to run it as; None for the one we are."""
    if os.geteuid() != 0:
        return None
    for name in _SERVANTS:
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise ImproperlyConfigured(
        f"PostgreSQL does not run as root, and no user {' or '.join(_SERVANTS)} exists: add one, or "
        f"apt-get install {_PACKAGE}"
    )


def _as_servant() -> list[str]:
    """Return what is to stand before a command, so that a user runs it whom PostgreSQL does not refuse."""
    servant = _servant()
    if servant is None:
        return []
    # Who changes its user is no longer killed with its parent, unless it asks for it again.
    return [
        str(find_program("setpriv", package="util-linux")),
        f"--reuid={servant.pw_uid}",
        f"--regid={servant.pw_gid}",
        "--clear-groups",
        "--pdeathsig=KILL",
        "--",
    ]
