"""One RabbitMQ for all processes of a parallel run: it takes five CPU seconds to start, and more while idle.

The process that asks first starts it, and stops it once no other process uses it any more. Each process has a
first virtual host of its own, and its tests make further ones.
"""

import fcntl
import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TextIO

import pytest

from celeriac.testing.rabbit import RabbitAddress, RabbitNode, RabbitServer

_ENDS: Final = pytest.StashKey[ExitStack]()


@pytest.fixture(scope="session")
def rabbit_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RabbitNode:
    """The RabbitMQ that tests share; see ``amqp_url``."""
    folder = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        folder = folder.parent
    ends = request.config.stash[_ENDS] = ExitStack()
    return share_rabbit(folder, ends)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the RabbitMQ that this process started; only here does no test wait for the other processes."""
    config.stash.get(_ENDS, ExitStack()).close()


def share_rabbit(folder: Path, ends: ExitStack) -> RabbitNode:
    """Return the RabbitMQ of all who name this folder, until ``ends``; start it if nobody has.

    Locks of this kind belong to a process: they end with it however it ends, and its children have none.
    """
    users = ends.enter_context((folder / "rabbitmq.users").open("a+"))
    address_file = ends.enter_context((folder / "rabbitmq.json").open("a+"))
    fcntl.lockf(users, fcntl.LOCK_SH)
    fcntl.lockf(address_file, fcntl.LOCK_EX)
    try:
        address_file.seek(0)
        if text := address_file.read():
            address = RabbitAddress(**json.loads(text))
        else:
            server = RabbitServer()
            ends.callback(_stop_after_all_others, server, users, address_file)
            server.start()
            address = server.address
            address_file.write(json.dumps(address._asdict()))
            address_file.flush()
    finally:
        fcntl.lockf(address_file, fcntl.LOCK_UN)
    node = RabbitNode(address, vhost=f"process-{os.getpid()}")
    node.add_vhost(node.vhost)
    return node


def _stop_after_all_others(server: RabbitServer, users: TextIO, address_file: TextIO) -> None:
    # Those who come now start one of their own; those who have this one hold a lock until they end.
    fcntl.lockf(address_file, fcntl.LOCK_EX)
    address_file.truncate(0)
    fcntl.lockf(address_file, fcntl.LOCK_UN)
    fcntl.lockf(users, fcntl.LOCK_EX)
    server.close()
