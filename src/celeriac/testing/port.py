"""Ports of the loopback interface that stay ours while the server behind them is down."""

import socket
import sys

__all__ = ["LOOPBACK", "ReservedPort"]

LOOPBACK = "127.0.0.1"


class ReservedPort:
    """A free port of the loopback interface, kept for one server until released.

    On Linux, a socket that is bound but does not listen keeps others away, while a
    server that sets ``SO_REUSEADDR``, as all do, may listen there. Without it, the
    port of a server that is down could go to anyone: even to a client that tries to
    reconnect, which then would be connected to itself.
    """

    def __init__(self) -> None:
        self._holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # The port is chosen before the option is set: the system then gives one that nobody else holds.
        self._holder.bind((LOOPBACK, 0))
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.number: int = self._holder.getsockname()[1]
        if sys.platform != "linux":
            self.release()  # elsewhere the server could not listen beside us

    def release(self) -> None:
        """Let others have the port."""
        self._holder.close()
