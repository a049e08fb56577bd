"""Tells systemd how a service is, where it wants to know."""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

__all__ = ["Supervisor"]

#: A status is one line, for people.
_STATUS_CHARS: Final = 200
#: The watchdog is told of a sign of life this many times before it would bite.
_SIGNS: Final = 3


class Supervisor:
    """Speaks to the socket that ``NOTIFY_SOCKET`` names; without one it is silent.

    What cannot be told is not: a service must not fail because nobody listens.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        # An abstract one has no file, and begins with a null.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        #: How often it wants a sign of life; None if it does not.
        self.watch_every = _watch_every(environ)

    def ready(self) -> None:
        """Say that the service has begun."""
        self._tell("READY=1")

    def live(self) -> None:
        """Give a sign of life."""
        self._tell("WATCHDOG=1")

    def status(self, text: str) -> None:
        """Say in one line what goes on."""
        line = "".join(char if char.isprintable() else " " for char in text[:_STATUS_CHARS])
        self._tell(f"STATUS={line}")

    def stopping(self) -> None:
        """Say that the service is about to end."""
        self._tell("STOPPING=1")

    def _tell(self, text: str) -> None:
        if not self._address:
            return
        with (
            suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as door,
        ):
            # Whoever is too busy to listen must not keep us waiting.
            door.setblocking(False)
            door.connect(self._address)
            door.send(text.encode("utf-8", "replace"))


def _watch_every(environ: Mapping[str, str]) -> float | None:
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        span = int(environ.get("WATCHDOG_USEC", "0")) / 1e6
    except ValueError:
        return None
    return span / _SIGNS if span > 0 else None
