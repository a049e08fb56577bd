"""Ports that stay ours while the server behind them is down."""

import errno
import socket
import sys
from typing import Any, Final

__all__ = ["LOOPBACK", "ReservedPort", "free_port"]

LOOPBACK = "127.0.0.1"
_IS_LINUX: Final = sys.platform == "linux"
_TRIES: Final = 10


class ReservedPort:
    """A port, of the loopback interface unless ``host`` is another, kept for one server until released.

    With no ``number`` it is one that is free; with one, OSError is raised if somebody listens there,
    or has reserved it.

    On Linux, a socket that is bound but does not listen keeps others away, while a
    server that sets ``SO_REUSEADDR``, as all do, may listen there. Without it, the
    port of a server that is down could go to anyone: even to a client that tries to
    reconnect, which then would be connected to itself.
    """

    def __init__(self, number: int = 0, *, host: str = LOOPBACK) -> None:
        family, _, _, _, address = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0]
        for left in reversed(range(_TRIES)):
            self._holder = socket.socket(family, socket.SOCK_STREAM)
            self._claim = socket.socket(socket.AF_UNIX)
            try:
                self._take(number, address)
            except OSError as error:
                self.release()
                # The system knows nothing of our claims: somebody has just claimed what it gave us.
                if number or not left or error.errno != errno.EADDRINUSE:
                    raise
            else:
                break
        self.number: int = self._holder.getsockname()[1]
        if not _IS_LINUX:
            self.release()  # elsewhere the server could not listen beside us

    def release(self) -> None:
        """Let others have the port."""
        self._holder.close()
        self._claim.close()

    def _take(self, number: int, address: tuple[Any, ...]) -> None:
        # A port that was in use until just now may only be taken by who says so before.
        if number:
            self._claim_alone(number, address[0])
            self._share()
        self._holder.bind(address)
        # Else it is said after: the system then gives a port that nobody else holds.
        if not number:
            self._claim_alone(self._holder.getsockname()[1], address[0])
            self._share()

    def _claim_alone(self, number: int, host: str) -> None:
        """Raise OSError if another of us has reserved it: as both share it, the system would let us."""
        if _IS_LINUX:
            # A name that is no file: it is gone with whoever had it, however that ended.
            self._claim.bind(f"\0celeriac-port-{host}-{number}")

    def _share(self) -> None:
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def free_port(wanted: int = 0, *, host: str = LOOPBACK) -> ReservedPort:
    """Reserve a port: the one that is wanted if nobody has it, else one that is free."""
    try:
        return ReservedPort(wanted, host=host)
    except OSError:
        return ReservedPort(host=host)
