"""Who we are and where: the fields every event carries."""

import os
import re
import socket
import time
from functools import lru_cache
from typing import Final

__all__ = ["OUR_IDENT", "anonymous_name", "hours_west", "machine_name", "node_name"]

#: What our workers call their software in heartbeats, as Celery's call theirs ``py-celery``.
OUR_IDENT: Final = "py-celeriac"


@lru_cache(maxsize=1)
def machine_name() -> str:
    """Return what this machine is called."""
    return socket.gethostname()


def anonymous_name() -> str:
    """Return the name of a process that is no worker, as Celery's clients call themselves."""
    return f"gen{os.getpid()}@{machine_name()}"


def node_name(template: str) -> str:
    """Return the name of a node: ``%h`` stands for the host, ``%n`` for its first part, ``%d`` for the rest.

    A name without an ``@`` gets the host behind it.
    """
    host = machine_name()
    first, _, domain = host.partition(".")
    name = template if "@" in template else f"{template}@%h"
    parts = {"%h": host, "%n": first, "%d": domain, "%%": "%"}
    return re.sub(r"%.", lambda found: parts.get(found[0], found[0]), name)


def hours_west() -> float:
    """Return how many hours our time zone lies west of UTC now; India (5:30 east) is -5.5."""
    is_summer = time.daylight and time.localtime().tm_isdst > 0
    # Celery: up to 5.6 rounded down to whole hours, since 5.7 exact.
    return (time.altzone if is_summer else time.timezone) / 3600
