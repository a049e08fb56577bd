"""A RabbitMQ node of our own: nothing is shared with, or visible to, one of the system."""

import os
import secrets
import subprocess
from pathlib import Path
from urllib.parse import quote

from kombu import Connection

from celeriac.errors import CeleriacError
from celeriac.programs.port import LOOPBACK, ReservedPort
from celeriac.programs.process import find_program
from celeriac.programs.service import Service

__all__ = ["RabbitServer"]

#: How long a command to the node may take; far more than needed, for a busy machine.
_PATIENCE = 60
#: For every Erlang here, also those that start epmd or carry a command. One scheduler that
#: sleeps when idle leaves the machine to the tests; nodes are reached over loopback alone.
_ERLANG_FLAGS = "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}"

#: What a new node begins with: all but streams.
_NO_STREAMS = "[{rabbit, [{forced_feature_flags_on_init, [quorum_queue]}]}].\n"


class RabbitServer(Service):
    """A RabbitMQ server with its own node name, cookie, epmd and folders, and no plugins.

    Without streams it is as one that was updated from 3.8 and has the feature flag still off.
    """

    name = "rabbitmq"
    #: Five seconds on an idle machine, and nearly all of it work.
    start_patience = 180.0

    def __init__(self, *, has_streams: bool = True) -> None:
        found = [*((self._scripts() / "rabbitmq-server").resolve().parents[1] / "plugins").glob("rabbit-*")]
        super().__init__()
        self._port, self._distribution, self._epmd = (ReservedPort() for _ in range(3))
        self._node = f"celeriac-{secrets.token_hex(4)}@localhost"
        cookie = self.folder / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o400)  # Erlang refuses one that others may read
        for name in ("environment.conf", "plugins"):
            (self.folder / name).touch()
        # RabbitMQ searches the folders of all plugins, usually seventy, for each of its thousand modules: a
        # third of the CPU time of a start. This folder has RabbitMQ itself alone.
        available = self.folder / "available"
        available.mkdir()
        for path in found:
            (available / path.name).symlink_to(path)
        self._plugins = {"RABBITMQ_PLUGINS_DIR": str(available)} if found else {}
        if not has_streams:
            (self.folder / "advanced.config").write_text(_NO_STREAMS)
        # Low, so that a nearly full disk does not block publishers in the middle of a test.
        (self.folder / "rabbitmq.conf").write_text("disk_free_limit.absolute = 1MB\n")

    @property
    def port(self) -> int:
        """The port it listens on, over every start."""
        return self._port.number

    @property
    def url(self) -> str:
        """Where Celery and kombu find its first virtual host, ``/``."""
        return self.url_of("/")

    def url_of(self, vhost: str) -> str:
        """Return where Celery and kombu find a virtual host."""
        path = vhost if vhost == "/" else quote(vhost, safe="")
        return f"amqp://guest:guest@{LOOPBACK}:{self.port}/{path}"

    def ctl(self, *arguments: str) -> str:
        """Run ``rabbitmqctl`` against the node and return what it prints; takes most of a second."""
        return self._run([str(self._scripts() / "rabbitmqctl"), "--quiet", *arguments])

    def evaluate(self, expression: str) -> str:
        """Evaluate Erlang in the node and return its value as Erlang prints it; takes milliseconds."""
        program = find_program("erl_call", package="erlang-base")
        answer = self._run([str(program), "-sname", self._node, "-r", "-e"], stdin=f"{expression}.\n")
        if not answer.startswith("{ok, "):
            raise CeleriacError(f"RabbitMQ cannot evaluate {expression}: {answer}")
        return answer.removeprefix("{ok, ").removesuffix("}")

    def add_vhost(self, vhost: str) -> None:
        """Add a virtual host that the user of ``url_of`` may do anything in."""
        self.evaluate(
            f"ok = rabbit_vhost:add({_binary(vhost)}, {_binary('guest')}), "
            "ok = rabbit_auth_backend_internal:set_permissions("
            f"{_binary('guest')}, {_binary(vhost)}, {', '.join([_binary('.*')] * 3)}, {_binary('guest')})"
        )

    def delete_vhost(self, vhost: str) -> None:
        """Delete a virtual host, all that is in it, and the connections to it."""
        self.evaluate(f"rabbit_vhost:delete({_binary(vhost)}, {_binary('guest')})")

    def close_connections(self) -> int:
        """Close every client's connection, as an operator would, and return how many there were."""
        return int(
            self.evaluate(
                "Connections = rabbit_networking:connections_local(), "
                f"rabbit_networking:close_connections(Connections, {_binary('closed by a test')}), "
                "length(Connections)"
            )
        )

    def close(self) -> None:
        """Stop, remove the folder and give the ports back."""
        super().close()
        for port in (self._port, self._distribution, self._epmd):
            port.release()

    def _run(self, command: list[str], *, stdin: str = "") -> str:
        done = subprocess.run(  # noqa: S603 - our own command
            command,
            input=stdin,
            env=self._environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        if done.returncode:
            raise CeleriacError(f"{Path(command[0]).name} failed: {done.stderr or done.stdout}")
        return done.stdout

    def _scripts(self) -> Path:
        # Debian links the programs on the path to a script that becomes the user `rabbitmq` and
        # works in the folders of the system. The programs themselves lie beside that script.
        return find_program("rabbitmq-server", package="rabbitmq-server").resolve().parent

    def _command(self) -> list[str]:
        return [str(self._scripts() / "rabbitmq-server")]

    def _environment(self) -> dict[str, str]:
        # The settings of a system's own node must not reach ours, nor ours its supervisor.
        foreign = ("RABBITMQ_", "ERL_", "NOTIFY_SOCKET")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        return inherited | {
            "HOME": str(self.folder),  # where Erlang looks for the cookie
            "LC_ALL": "C.UTF-8",
            "RABBITMQ_NODENAME": self._node,
            "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._distribution.number),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_LOGS": "-",  # to our own log
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "environment.conf"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.folder / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            # Makes the script become the server, so that our pid and signals are the server's.
            "RUNNING_UNDER_SYSTEMD": "true",
            "ERL_EPMD_PORT": str(self._epmd.number),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "ERL_AFLAGS": _ERLANG_FLAGS,
            "ERL_CRASH_DUMP_SECONDS": "0",  # a dump takes long, and nobody reads it
            **self._plugins,
        }

    def _is_ready(self) -> bool:
        connection = Connection(self.url, connect_timeout=5)
        try:
            # The transport itself: `connect` would try again, with pauses of its own.
            link = connection.transport.establish_connection()
        except (OSError, *connection.connection_errors):
            return False
        link.close()
        return True


def _binary(text: str) -> str:
    """Write a text as an Erlang binary."""
    return f"<<{','.join(map(str, text.encode()))}>>"
