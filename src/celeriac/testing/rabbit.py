"""A RabbitMQ node of our own: nothing is shared with, or visible to, one of the system."""

import json
import os
import secrets
import subprocess
import threading
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from kombu import Connection

from celeriac.errors import CeleriacError
from celeriac.programs.port import LOOPBACK, ReservedPort
from celeriac.programs.process import find_program
from celeriac.programs.service import Service

__all__ = ["RabbitAddress", "RabbitNode", "RabbitServer"]

#: How long a command to the node may take; far more than needed, for a busy machine.
_PATIENCE = 60
#: For every Erlang here, also those that start epmd or carry a command. One scheduler that
#: sleeps when idle leaves the machine to the tests; nodes are reached over loopback alone.
_ERLANG_FLAGS = "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}"

#: The folder of the plugins that a node finds, in its own.
_AVAILABLE = "available"
#: Where most modules of a running node come from, most first. Erlang tries each folder of its path for each
#: module, and a node's path has a hundred: with these first a start takes a third less CPU time.
_SEARCHED_FIRST = (
    *("rabbit", "stdlib", "kernel", "rabbit_common", "compiler", "ssl", "inets", "ra", "xmerl", "mnesia"),
    *("cuttlefish", "rabbitmq_prelaunch", "ranch", "sasl", "osiris", "tools", "public_key", "syslog", "jsx"),
)
#: Makes values of `rabbit_amqqueue:info_all` fit for JSON: names are records, and arguments have types.
_PLAIN = (
    "Plain = fun ({resource, _, _, Name}) -> Name; "
    "(Values) when is_list(Values) -> maps:from_list([{Name, Value} || {Name, _, Value} <- Values]); "
    "(Value) -> Value end, "
)
#: What a new node begins with: all but streams.
_NO_STREAMS = "[{rabbit, [{forced_feature_flags_on_init, [quorum_queue]}]}].\n"


class RabbitAddress(NamedTuple):
    """How to reach a node, also from another process than the one that started it."""

    folder: str
    node: str
    port: int
    distribution_port: int
    epmd_port: int


class RabbitNode:
    """A node that runs, started by this process or by another one.

    ``vhost`` is the virtual host that this object takes for the first one.
    """

    def __init__(self, address: RabbitAddress, *, vhost: str = "/") -> None:
        self.address = address
        self.vhost = vhost
        self._vhosts = {vhost}

    @property
    def port(self) -> int:
        """The port it listens on, over every start."""
        return self.address.port

    @property
    def url(self) -> str:
        """Where Celery and kombu find its first virtual host."""
        return self.url_of(self.vhost)

    def url_of(self, vhost: str) -> str:
        """Return where Celery and kombu find a virtual host."""
        path = vhost if vhost == "/" else quote(vhost, safe="")
        return f"amqp://guest:guest@{LOOPBACK}:{self.port}/{path}"

    def ctl(self, *arguments: str) -> str:
        """Run ``rabbitmqctl`` against the node and return what it prints; takes most of a second."""
        return self._run([str(_scripts() / "rabbitmqctl"), "--quiet", *arguments])

    def evaluate(self, expression: str) -> str:
        """Evaluate Erlang in the node and return its value as Erlang prints it; takes milliseconds."""
        program = find_program("erl_call", package="erlang-base")
        # Random names (-r) are made of the second: those of two processes at once would be the same.
        caller = f"call-{os.getpid()}-{threading.get_ident()}"
        command = [str(program), "-sname", self.address.node, "-h", caller, "-e"]
        answer = self._run(command, stdin=f"{expression}.\n")
        if not answer.startswith("{ok, "):
            raise CeleriacError(f"RabbitMQ cannot evaluate {expression}: {answer}")
        return answer.removeprefix("{ok, ").removesuffix("}")

    def list_queues(self, vhost: str, *columns: str) -> list[dict[str, Any]]:
        """Return columns of all queues of a virtual host, as ``rabbitmqctl list_queues`` does."""
        listed = self.evaluate(
            f"{_PLAIN}binary_to_list(rabbit_json:encode([maps:from_list([{{Key, Plain(Value)}} "
            "|| {Key, Value} <- Queue]) "
            f"|| Queue <- rabbit_amqqueue:info_all({_binary(vhost)}, [{', '.join(columns)}])]))"
        )
        # An empty list is printed as one, any other as a text.
        queues: list[dict[str, Any]] = json.loads(listed.removeprefix('"').removesuffix('"'))
        return queues

    def add_vhost(self, vhost: str) -> None:
        """Add a virtual host that the user of ``url_of`` may do anything in."""
        self._vhosts.add(vhost)
        self.evaluate(f"ok = rabbit_vhost:add({_binary(vhost)}, {_binary('guest')}), {_permission(vhost)}")

    def set_permissions(
        self, vhost: str, *, configure: str = ".*", write: str = ".*", read: str = ".*"
    ) -> None:
        """Set what the user of ``url_of`` may do in a virtual host: patterns of names."""
        self.evaluate(_permission(vhost, configure, write, read))

    def delete_vhost(self, vhost: str) -> None:
        """Delete a virtual host, all that is in it, and the connections to it."""
        self._vhosts.discard(vhost)
        self.evaluate(f"rabbit_vhost:delete({_binary(vhost)}, {_binary('guest')})")

    def close_connections(self) -> int:
        """Close all connections to our virtual hosts, as an operator would, and return how many."""
        ours = ", ".join(map(_binary, sorted(self._vhosts)))
        return int(
            self.evaluate(
                "Connections = [Pid || Pid <- rabbit_networking:connections_local(), "
                "[{vhost, Vhost}] <- [catch rabbit_networking:connection_info(Pid, [vhost])], "
                f"lists:member(Vhost, [{ours}])], "
                f"rabbit_networking:close_connections(Connections, {_binary('closed by a test')}), "
                "length(Connections)"
            )
        )

    def environment(self) -> dict[str, str]:
        """Return the environment of the server and of the commands that reach it."""
        # The settings of a system's own node must not reach ours, nor ours its supervisor.
        foreign = ("RABBITMQ_", "ERL_", "NOTIFY_SOCKET")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        folder, available = Path(self.address.folder), Path(self.address.folder, _AVAILABLE)
        plugins = {"RABBITMQ_PLUGINS_DIR": str(available)} if available.is_dir() else {}
        return inherited | {
            "HOME": str(folder),  # where Erlang looks for the cookie
            "LC_ALL": "C.UTF-8",
            "RABBITMQ_NODENAME": self.address.node,
            "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.address.distribution_port),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "logs"),
            "RABBITMQ_LOGS": "-",  # to our own log
            "RABBITMQ_CONF_ENV_FILE": str(folder / "environment.conf"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _search_path(),
            # Makes the script become the server, so that our pid and signals are the server's.
            "RUNNING_UNDER_SYSTEMD": "true",
            "ERL_EPMD_PORT": str(self.address.epmd_port),
            "ERL_EPMD_ADDRESS": LOOPBACK,
            "ERL_AFLAGS": _ERLANG_FLAGS,
            "ERL_CRASH_DUMP_SECONDS": "0",  # a dump takes long, and nobody reads it
            **plugins,
        }

    def _run(self, command: list[str], *, stdin: str = "") -> str:
        done = subprocess.run(  # noqa: S603 - our own command
            command,
            input=stdin,
            env=self.environment(),
            cwd=self.address.folder,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        if done.returncode:
            raise CeleriacError(f"{Path(command[0]).name} failed: {done.stderr or done.stdout}")
        return done.stdout


class RabbitServer(RabbitNode, Service):
    """A RabbitMQ server with its own node name, cookie, epmd and folders, and no plugins.

    Without streams it is as one that was updated from 3.8 and has the feature flag still off.
    """

    name = "rabbitmq"
    #: Five seconds on an idle machine, and nearly all of it work.
    start_patience = 180.0

    def __init__(self, *, has_streams: bool = True) -> None:
        found = [*_plugins().glob("rabbit-*")]
        Service.__init__(self)
        self._ports = [ReservedPort() for _ in range(3)]
        node = f"celeriac-{secrets.token_hex(4)}@localhost"
        port, distribution, epmd = (reserved.number for reserved in self._ports)
        RabbitNode.__init__(self, RabbitAddress(str(self.folder), node, port, distribution, epmd))
        cookie = self.folder / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o400)  # Erlang refuses one that others may read
        for name in ("environment.conf", "plugins"):
            (self.folder / name).touch()
        # RabbitMQ searches the folders of all plugins, usually seventy, for each of its thousand modules: a
        # third of the CPU time of a start. This folder has RabbitMQ itself alone.
        for path in found:
            available = self.folder / _AVAILABLE
            available.mkdir(exist_ok=True)
            (available / path.name).symlink_to(path)
        if not has_streams:
            (self.folder / "advanced.config").write_text(_NO_STREAMS)
        # Low, so that a nearly full disk does not block publishers in the middle of a test.
        (self.folder / "rabbitmq.conf").write_text("disk_free_limit.absolute = 1MB\n")

    def close(self) -> None:
        """Stop, remove the folder and give the ports back."""
        super().close()
        for port in self._ports:
            port.release()

    def _command(self) -> list[str]:
        return [str(_scripts() / "rabbitmq-server")]

    def _environment(self) -> dict[str, str]:
        return self.environment()

    def _is_ready(self) -> bool:
        connection = Connection(self.url, connect_timeout=5)
        try:
            # The transport itself: `connect` would try again, with pauses of its own.
            link = connection.transport.establish_connection()
        except (OSError, *connection.connection_errors):
            return False
        link.close()
        return True


def _scripts() -> Path:
    # Debian links the programs on the path to a script that becomes the user `rabbitmq` and
    # works in the folders of the system. The programs themselves lie beside that script.
    return find_program("rabbitmq-server", package="rabbitmq-server").resolve().parent


def _plugins() -> Path:
    return (_scripts() / "rabbitmq-server").resolve().parents[1] / "plugins"


@cache
def _search_path() -> str:
    """Return the arguments of Erlang that name the folders to search first."""
    erlang = find_program("erl", package="erlang-base").resolve().parents[1] / "lib"
    found = [
        folder
        for name in _SEARCHED_FIRST
        for parent in (_plugins(), erlang)
        for folder in sorted(parent.glob(f"{name}-[0-9]*/ebin"))
    ]
    return "".join(f" -pa {folder}" for folder in reversed(found))


def _binary(text: str) -> str:
    """Write a text as an Erlang binary."""
    return f"<<{','.join(map(str, text.encode()))}>>"


def _permission(vhost: str, *patterns: str) -> str:
    """Return the expression that sets patterns of names to configure, write and read; default: all names."""
    given = ", ".join(map(_binary, patterns or (".*",) * 3))
    return (
        "ok = rabbit_auth_backend_internal:set_permissions("
        f"{_binary('guest')}, {_binary(vhost)}, {given}, {_binary('guest')})"
    )
